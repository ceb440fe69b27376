"""WSJ's figures 13 and 14 on Spark: the length of the distribution epoch against delay and communication.

The same rate in shorter or longer epochs, read from files; slots sleep for each tuple (`wsj_load_spark`). How long an
epoch was follows from what was read in it, not from what was asked for. Delay: tuples wait for the end of their epoch,
then for what its busiest slot took, as measured. Communication: routing and exchange, as the engine times them, for as
many epochs as there are in ten minutes. Cost: half a minute for both figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from typing import Any

import numpy as np

from braidstream.epoch.progress import EpochProgress
from braidstream.lab.papers.on_spark import ON_SPARK, Epochs, bench, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged

__all__: list[str] = []

RATE, KEYS, SLOTS = 1_000, 20_000, 3
WORK_US = (500.0, 0.0)
_WARM, _MEASURED = 1, 4
"""Epochs that are left out, and that are measured."""
_QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 4 SECONDS], S [RANGE 4 SECONDS] WHERE R.k = S.k"
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "x_label": "distribution epoch (s)",
    "parameters": {"rate": RATE, "keys": KEYS, "window_s": 4, "slots": SLOTS, "epochs": _MEASURED, "us_a_tuple": 500},
    "obtained": ON_SPARK + " Slots sleep 500 us a tuple; routing and exchange are timed.",
    "differs": (
        "Windows of 4 s and 1,000 tuples/s in place of 10 minutes and 1,500. Tuples do not come in real time: how long"
        " they wait for their epoch's end is its length."
    ),
}


@dataclass(frozen=True)
class _Timed:
    """What was measured at one length of the epoch."""

    delay_s: float
    communication_s: float
    """Of routing and exchange in ten minutes."""


def _stream(length_s: float, seed: int) -> Epochs:
    rng, n_rows = np.random.default_rng([seed, 13]), round(RATE * length_s)
    return [
        {name: keys_table(rng.integers(0, KEYS, n_rows), e, epoch_us=round(length_s * 1e6)) for name in "RS"}
        for e in range(_WARM + _MEASURED)
    ]


def _timed(epochs: Sequence[EpochProgress]) -> _Timed:
    length_s = fmean(sum(entry.rows.values()) for entry in epochs) / (2 * RATE)
    busy_s = fmean(max(entry.busy_s) for entry in epochs)
    sent_s = median(entry.parts["routing"] + entry.parts["exchange"] for entry in epochs)
    return _Timed(length_s / 2 + busy_s, sent_s * 600 / length_s)


@cache
def _epochs(quick: bool, seed: int) -> tuple[list[float], list[_Timed]]:
    """What both figures show, run once."""
    lengths = [0.5, 2.0, 6.0] if quick else [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    found = []
    with bench(SLOTS, WORK_US) as place:
        place.run(place.streams("warm", _stream(0.1, seed)), _QUERY, slots=SLOTS, controller=False, router="hash")
        for length in lengths:
            streams = place.streams(f"of-{length}", _stream(length, seed))
            ran = place.run(streams, _QUERY, slots=SLOTS, controller=False, router="hash")
            found.append(_timed(ran.epochs[_WARM:]))
    return lengths, found


@experiment(
    "wsj",
    "fig13-spark",
    title="average delay against the distribution epoch, on Spark",
    claim="A shorter distribution epoch means a shorter delay.",
    y_label="delay (s)",
    check="The delay rises with the epoch, by 0.7 to 1 s a second: half of it waiting, then the join of what waited.",
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
            "so",
            "at every step",
        ),
        Check(
            "by the wait, and the join of what waited",
            0.7 < slope <= 1.0,
            f"{slope:.2f} s for each second of the epoch",
            "due to the wait time at the master node",
            "0.7 to 1: waiting alone is 0.5; the busiest of three slots sleeps a third of an epoch, and may take half",
        ),
    ]
    return judged([Series("delay", lengths, delays)], checks)


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
            "falls at every step, and by half in all: an exchange has a fixed cost, and twelve short epochs pay it",
        ),
        Check(
            "and delays less",
            2 * found[0].delay_s < found[-1].delay_s,
            f"{found[0].delay_s:.2f} s at the shortest, {found[-1].delay_s:.2f} s at the longest",
            "a trade-off",
            "half: the shortest epoch is a twelfth of the longest, and noise is no half",
        ),
    ]
    return judged([Series("routing and exchange", lengths, sent)], checks)
