"""WSJ's figures 13 and 14 on Spark: the length of the distribution epoch against delay and communication.

Tuples come in real time: a thread writes a file of each stream every quarter of a second, and the flow distributes
what has come whenever a distribution epoch is over. The delay of an epoch is the time from when its mean tuple was made
until the epoch is committed, as seen from outside of the engine; slots sleep for each tuple (`wsj_load_spark`).
Communication: routing and exchange, as the engine times them, for as many epochs as there are in ten minutes. Cost: a
minute for both figures.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean, median
from threading import Event, Thread
from typing import Any

import numpy as np

from braidstream.lab.papers.on_spark import Arrived, bench, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged
from braidstream.lab.workloads import append_files

__all__: list[str] = []

RATE, KEYS, SLOTS = 1_000, 20_000, 3
WORK_US = (500.0, 0.0)
FILE_S = 0.25
"""How often the source has a file."""
_QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 4 SECONDS], S [RANGE 4 SECONDS] WHERE R.k = S.k"
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "x_label": "distribution epoch (s)",
    "parameters": {"rate": RATE, "keys": KEYS, "window_s": 4, "slots": SLOTS, "file_s": FILE_S, "us_a_tuple": 500},
    "obtained": (
        "The engine on Spark on this machine, in real time: a file of each stream every quarter of a second. Slots"
        " sleep 500 us a tuple; delays are seen from outside, routing and exchange are timed by the engine."
    ),
    "differs": "Windows of 4 s and 1,000 tuples/s in place of 10 minutes and 1,500; epochs from 1 s instead of 0.5 on.",
}


@dataclass(frozen=True)
class _Timed:
    """What was measured at one length of the epoch."""

    delay_s: float
    communication_s: float
    """Of routing and exchange in ten minutes."""
    n_epochs: int


@contextmanager
def _source(folder: Path, seed: int) -> Iterator[float]:
    """Write both streams as time passes, from the time given on, until the block ends."""
    ended, began, rng = Event(), time.monotonic(), np.random.default_rng([seed, 13])
    n_rows, file_us = round(RATE * FILE_S), round(FILE_S * 1e6)

    def write() -> None:
        for number in itertools.count():
            if ended.wait(max(began + (number + 1) * FILE_S - time.monotonic(), 0)):
                return
            for name in "RS":
                keys = rng.integers(0, KEYS, n_rows)
                append_files(folder / name, [keys_table(keys, number, epoch_us=file_us)])

    writer = Thread(target=write, daemon=True)
    writer.start()
    try:
        yield began
    finally:
        ended.set()
        writer.join()


def _timed(began: float, arrived: Sequence[Arrived]) -> _Timed:
    """Leaves out the first epoch, in which workers start."""
    last, delays, sent_s, n_rows = 0, [], [], 0
    for one in arrived:
        first, last = last, last + sum(one.entry.rows.values()) // 2
        made = began + (first + last) / 2 / RATE
        delays.append(one.at - made)
        sent_s.append(one.entry.parts["routing"] + one.entry.parts["exchange"])
        n_rows += (last - first) if len(delays) > 1 else 0
    length_s = n_rows / RATE / (len(delays) - 1)
    return _Timed(fmean(delays[1:]), median(sent_s[1:]) * 600 / length_s, len(delays) - 1)


@cache
def _epochs(quick: bool, seed: int) -> tuple[list[float], list[_Timed]]:
    """What both figures show, run once."""
    lengths = [1.0, 3.0, 6.0] if quick else [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = []
    with bench(SLOTS, WORK_US) as place:
        for length in lengths:
            folder = place.folder / f"of-{length:g}"
            for name in "RS":
                (folder / name).mkdir(parents=True)
            n_epochs = 1 + max(2 if quick else 4, round((6 if quick else 12) / length))
            options = {"slots": SLOTS, "controller": False, "router": "hash"}
            source = partial(_source, folder, seed)
            found.append(_timed(*place.live(folder, _QUERY, f"{length:g} seconds", n_epochs, source, **options)))
    return lengths, found


@experiment(
    "wsj",
    "fig13-spark",
    title="average delay against the distribution epoch, on Spark",
    claim="A shorter distribution epoch means a shorter delay.",
    y_label="delay (s)",
    check="The delay rises with the epoch at every step, by 0.4 to 1.2 s a second: the wait is half, then the join.",
    **_DECLARED,
)
def fig13(run: Run) -> Outcome:
    """Delay against t_d."""
    lengths, found = _epochs(run.quick, run.seed)
    delays = [one.delay_s for one in found]
    slope = (delays[-1] - delays[0]) / (lengths[-1] - lengths[0])
    told = ", ".join(f"{one:.2f} s" for one in delays)
    checks = [
        Check(
            "the delay rises with the epoch",
            all(a < b for a, b in itertools.pairwise(delays)),
            told,
            "decreases as the epoch decreases",
            "at every step",
        ),
        Check(
            "by the wait for the epoch's end, and the join of what waited",
            0.4 < slope < 1.2,
            f"{slope:.2f} s for each second of the epoch",
            "due to the wait time at the master node",
            "0.4 to 1.2: to wait is half of an epoch, a tenth less by noise; to join takes a third, and may take twice",
        ),
    ]
    return judged([Series("delay", lengths, delays)], checks, [_epochs_told(lengths, found)])


@experiment(
    "wsj",
    "fig14-spark",
    title="communication against the distribution epoch, on Spark",
    claim="A shorter distribution epoch means more communication: the other side of the trade-off.",
    y_label="routing and exchange (s in 10 minutes)",
    check="Routing and exchange take less time the longer the epoch, by half in all; the delay doubles at least.",
    **_DECLARED,
)
def fig14(run: Run) -> Outcome:
    """Communication against t_d."""
    lengths, found = _epochs(run.quick, run.seed)
    sent = [one.communication_s for one in found]
    checks = [
        Check(
            "a shorter epoch communicates more",
            all(a > b for a, b in itertools.pairwise(sent)) and sent[-1] < 0.5 * sent[0],
            ", ".join(f"{one:.1f} s" for one in sent),
            "increases as the epoch decreases",
            "falls at every step, and by half in all: an exchange has a fixed cost, and six short epochs pay it",
        ),
        Check(
            "and delays less",
            2 * found[0].delay_s < found[-1].delay_s,
            f"{found[0].delay_s:.2f} s at the shortest, {found[-1].delay_s:.2f} s at the longest",
            "a trade-off",
            "half: the shortest epoch is a sixth of the longest, and the rest is what an epoch costs anyway",
        ),
    ]
    return judged([Series("routing and exchange", lengths, sent)], checks, [_epochs_told(lengths, found)])


def _epochs_told(lengths: Sequence[float], found: Sequence[_Timed]) -> str:
    told = (f"{one.n_epochs} of {length:g} s" for length, one in zip(lengths, found, strict=True))
    return f"epochs measured: {', '.join(told)}"
