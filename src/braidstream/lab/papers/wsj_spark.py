"""WSJ's figures 13 and 14 on Spark: the length of the distribution epoch against delay and communication.

Two streams of Spark's rate source, whose tuples bear the time at which they came; epochs are micro-batches of a given
length. The production delay of a result is measured when its epoch is delivered: now, less the time of the newer of
its tuples. Communication is routing and exchange, as the engine times them. Cost: half a minute for a length.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from braidstream.epoch.progress import EpochProgress
from braidstream.lab.papers.on_spark import ON_SPARK, session
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged
from braidstream.spark.flow import Flow

__all__: list[str] = []

_RATE, _KEYS = 500, 5_000
_WARM, _MEASURED = 3, 4
"""Epochs that are left out, and that are measured."""
_LONGEST_S = 120.0
_QUERY = "SELECT R.ts AS rt, S.ts AS st FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "x_label": "distribution epoch (s)",
    "parameters": {"rate": _RATE, "keys": _KEYS, "window_s": 10, "slots": 3, "epochs": _MEASURED},
    "obtained": ON_SPARK.partition(":")[0]
    + ": Spark's rate source, micro-batches of each length; delays are measured.",
    "differs": "Three slots share two cores; windows of 10 s and 500 tuples/s in place of 10 minutes and 1,500.",
}


@dataclass(frozen=True)
class _Timed:
    """What was measured at one length of the epoch."""

    delay_s: float
    communication: float
    """The share of the time that routing and exchange take."""


def _timed(spark: SparkSession, epoch_s: float, folder: Path) -> _Timed:
    """Run the flow until enough epochs were delivered."""
    delays: dict[int, float] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        now = time.time()
        newest = frame.selectExpr("unix_micros(greatest(rt, st)) / 1e6 AS t").agg({"t": "avg"}).first()
        if newest is not None and newest[0] is not None:
            delays[epoch] = now - newest[0]

    flow = Flow(spark, f"epochs of {epoch_s:g} s", slots=3, controller=False)
    for name in "RS":
        ticks = spark.readStream.format("rate").option("rowsPerSecond", _RATE).load()
        keyed = ticks.selectExpr(f"pmod(hash(value, '{name}'), {_KEYS}) AS k", "value AS v", "timestamp AS ts")
        flow.stream(name, keyed, time="ts", delay="0 seconds")
    flow.query(_QUERY, name="q").to(take)
    handle = flow.start(folder / f"ck-{epoch_s:g}", epoch=f"{round(epoch_s * 1000)} milliseconds", durability="process")
    began = time.monotonic()
    while len(delays) < _WARM + _MEASURED and time.monotonic() - began < _LONGEST_S:
        time.sleep(0.05)
    handle.stop()
    measured = sorted(delays)[_WARM:]
    return _Timed(fmean(delays[epoch] for epoch in measured), _communication(handle.progress[_WARM:], epoch_s))


def _communication(progress: Sequence[EpochProgress], epoch_s: float) -> float:
    return fmean(
        (one.parts["routing"] + one.parts["exchange"]) / max(epoch_s, one.seconds["total"]) for one in progress
    )


def _epochs(run: Run) -> tuple[list[float], list[_Timed]]:
    lengths = [1.5, 5.0] if run.quick else [1.0, 2.0, 3.0, 4.0, 6.0]
    found = list[_Timed]()
    with session() as spark, TemporaryDirectory(prefix="papers-") as folder:
        for length in lengths:
            run.progress(len(found) / len(lengths), f"epochs of {length:g} s")
            found.append(_timed(spark, length, Path(folder)))
    return lengths, found


@experiment(
    "wsj",
    "fig13-spark",
    title="average delay against the distribution epoch, on Spark",
    claim="A shorter distribution epoch means a shorter delay.",
    y_label="delay (s)",
    check="The delay rises with the epoch, by 0.5 to 1.5 s a second: half of it waiting, then the epoch's own time.",
    **_DECLARED,
)
def fig13(run: Run) -> Outcome:
    """Delay against t_d."""
    lengths, found = _epochs(run)
    delays = [one.delay_s for one in found]
    slope = (delays[-1] - delays[0]) / (lengths[-1] - lengths[0])
    told = ", ".join(f"{one:.2f} s" for one in delays)
    checks = [
        Check("the delay rises with the epoch", all(a < b for a, b in itertools.pairwise(delays)), told, "so"),
        Check(
            "by the wait, and the join of what waited",
            0.4 <= slope <= 1.5,
            f"{slope:.2f} s for each second of the epoch",
            "due to the wait time at the master node",
            "half an epoch of waiting less a fifth for noise, and at most one epoch of joining",
        ),
    ]
    return judged([Series("delay", lengths, delays)], checks)


@experiment(
    "wsj",
    "fig14-spark",
    title="communication against the distribution epoch, on Spark",
    claim="A shorter distribution epoch means more communication: the other side of the trade-off.",
    y_label="communication (share of the time)",
    check="The share of the time for routing and exchange falls with the epoch, by a fifth in all; the delay rises.",
    **_DECLARED,
)
def fig14(run: Run) -> Outcome:
    """Communication against t_d."""
    lengths, found = _epochs(run)
    shares = [one.communication for one in found]
    falls = all(a > b for a, b in itertools.pairwise(shares)) and shares[-1] < 0.8 * shares[0]
    checks = [
        Check(
            "a shorter epoch communicates more",
            falls,
            ", ".join(f"{share:.1%}" for share in shares),
            "increases as the epoch decreases",
            "falls at every step, and by a fifth in all",
        ),
        Check(
            "and delays less",
            found[0].delay_s < found[-1].delay_s,
            f"{found[0].delay_s:.2f} s at the shortest, {found[-1].delay_s:.2f} s at the longest",
            "a trade-off",
        ),
    ]
    return judged([Series("communication", lengths, shares)], checks)
