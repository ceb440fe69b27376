"""Functions of slots as Spark's: what most epochs ask for is alike but for the epoch's number, and is made once.

`mapInArrow` pickles its function, parses its schema and resolves columns in some thirty calls to the JVM, each a part
of a millisecond. Here the column that it makes of a slot's task is kept, and used again while the next epoch asks for
the same; the number comes from what Spark tells tasks of a micro-batch.

Invariant: a task runs what it was asked for in this epoch: the number is that of the micro-batch, and all else was
compared. Cost: a comparison an epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from pyspark.util import PythonEvalType

from braidstream.epoch.cluster import SlotFunction
from braidstream.slot.task import SlotTask

__all__ = ["ENVELOPE", "NODE_ENVELOPE", "REPORTS", "EpochTasks", "batch_id"]

ENVELOPE = StructType(
    [StructField("slot", IntegerType()), StructField("kind", IntegerType()), StructField("blob", BinaryType())]
)
"""`kernels.routing.ENVELOPE_SCHEMA` in Spark's words."""
NODE_ENVELOPE = StructType(
    [StructField("slot", IntegerType()), StructField("head", StringType()), StructField("blob", BinaryType())]
)
"""`functions.node_cluster.NODE_ENVELOPE`."""
REPORTS = StructType([StructField("report", BinaryType())])
"""`slot.task.REPORTS_SCHEMA`."""
_NONE = -1


def batch_id() -> int:
    """The number of the micro-batch that the task which asks belongs to."""
    return int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))


@dataclass(frozen=True)
class _InBatch:
    """A slot's task of whichever epoch it runs in."""

    plain: SlotTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.plain.at(batch_id())(batches)


@dataclass
class EpochTasks:
    """The functions of the last epoch, as columns of Spark's."""

    epoch: int | None = None
    """The micro-batch that runs now."""
    _known: dict[int, tuple[SlotTask, Any]] = field(default_factory=dict)

    def mapped(self, frame: DataFrame, function: SlotFunction, schema: StructType) -> DataFrame:
        """`mapInArrow` over envelopes."""
        if not isinstance(function, SlotTask) or function.task.epoch != self.epoch:
            return frame.mapInArrow(function, schema)
        plain = function.at(_NONE)
        known = self._known.get(plain.stage)
        if known is None or known[0] != plain:
            known = self._known[plain.stage] = plain, _column(_InBatch(plain), schema)
        return DataFrame(frame._jdf.mapInArrow(known[1], False, None), frame.sparkSession)


def _column(function: _InBatch, schema: StructType) -> Any:
    """The function over envelopes as `mapInArrow` hands it to the JVM."""
    made = pandas_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return made(*(F.col(name) for name in ENVELOPE.names))._jc
