"""Results to a system that takes them over one connection: by one task of Spark, never by the driver.

A transaction belongs to one connection, so one task reads all rows of an epoch, batch by batch as Arrow, and sends them
on. Spark may run it again, or twice at once: whatever it calls must look for its mark first. Cost: the driver sees a
number; the task holds a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

__all__ = ["in_one_task"]

Put = Callable[[Iterator[pa.RecordBatch]], int]


def in_one_task(frame: DataFrame, put: Put) -> int:
    """What `put` gives for the rows of a frame, of which it is given all, in one task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": pa.array([put(batches)], pa.int64())})

    answers = frame.coalesce(1).mapInArrow(run, "rows long").collect()
    return sum(int(row["rows"]) for row in answers)
