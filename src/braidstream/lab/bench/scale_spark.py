"""Epochs of a small flow on local Spark with many slots: what Spark's own scheduling adds to the metadata.

Each epoch has a few rows a slot, so what is measured is the fixed cost of slots: a task each, two cores for all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

__all__ = ["SparkCosts", "measure_on_spark"]

_EPOCHS = 6
_ROWS = 2_000
_SCHEMA = "k long, v long, ts timestamp"


@dataclass(frozen=True)
class SparkCosts:
    """Medians over the epochs after the first two."""

    slots: int
    epoch_ms: float
    """All of an epoch, the Spark job with one task a slot included."""
    commit_ms: float
    """What is decided, the manifest, and what is retired."""

    def as_json(self) -> dict[str, Any]:
        """As it is written."""
        return {name: round(value, 1) for name, value in asdict(self).items()}


def measure_on_spark(slots: Sequence[int], folder: Path, tell: Callable[[str], None]) -> list[SparkCosts]:
    """Run the same streams through flows with so many slots, on `local[2]`."""
    for seed, name in enumerate("RS"):
        keys = UniformKeys(5_000)
        write_stream(str(folder / name), rate=1_000, keys=keys, rows_per_file=_ROWS, n_rows=_EPOCHS * _ROWS, seed=seed)
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    found = []
    for n in slots:
        flow = Flow(spark, slots=n)
        for name in "RS":
            flow.files(name, folder / name, schema=_SCHEMA, time="ts", options={"maxFilesPerTrigger": "1"})
        text = "SELECT R.k FROM R [RANGE 2 SECONDS], S [RANGE 2 SECONDS] WHERE R.k = S.k"
        flow.query(text, name="q").to("parquet", path=str(folder / f"out-{n}"))
        handle = flow.start(checkpoint=str(folder / f"ck-{n}"))
        handle.await_termination()
        seconds = [entry.seconds for entry in handle.progress][2:]
        medians = [1000 * statistics.median(one[phase] for one in seconds) for phase in ("total", "commit")]
        found.append(SparkCosts(n, *medians))
        tell(f"{n} slots on Spark: {medians[0]:,.0f} ms an epoch, of which {medians[1]:,.0f} ms for the commit")
    spark.stop()
    return found
