"""Rows that could not be read, or computed, go to an output of their own, each once, and the flow goes on.

A stream that asks for it has a column more, `_bad`: what is known of a row that is not what its schema says. Such a row
has no other value, so it has no time, is counted like a row without one, and joins nothing. It takes the way of late
tuples: staged by a slot, delivered with the epoch. There the rows part: those with a `_bad` go to the output for bad
rows, the others to that for late tuples, if there is one. Rows of which an expression of a query failed (`FAILED` says
which) go the same way, to the query's output; queries that do not use that expression have them all the same.

Cost: none for rows that are right; Spark reads the staged late tuples of an epoch once more for each output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from braidstream.model.columns import FAILED
from braidstream.model.declarations import Target
from braidstream.spark.causes import in_expression
from braidstream.spark.names import column_of
from braidstream.spark.sink import Delivery, Reached, Sink

__all__ = ["BAD", "BAD_TYPE", "FAILED_ROWS", "FILE_BAD_TYPE", "BadRows", "FailedRows", "GoodRows", "bare", "skipping"]

BAD = "_bad"
BAD_TYPE = "struct<reason:string,message:string,topic:string,partition:int,offset:bigint>"
"""Of a message of Kafka's; and of a row of a file."""
FILE_BAD_TYPE = "struct<reason:string,message:string,file:string>"


UNREADABLE = "a message that cannot be read"
"""What the error begins with at which a flow stops that does not keep such messages."""


def skipping(error: BaseException) -> str:
    """How rows that cannot be read, or of which an expression cannot be computed, are passed over, if it is that."""
    text = f"{error} {error.__cause__}"
    if UNREADABLE in text or "MALFORMED_RECORD_IN_PARSING" in text:
        how = 'bad = { format = "json", path = "bad" }'
        return f"repair the source; or add {how} to the stream, where such rows then go, and start again"
    expression = in_expression(error) or (error.__cause__ and in_expression(error.__cause__))
    if expression is None and not any(condition in text for condition in _OF_VALUES):
        return ""
    return (
        f"a value is not what {expression or 'an expression'} takes: repair the source; or let the query pass such rows"
        " over, with try_cast, try_divide, nullif or CASE WHEN, which give NULL for them; or add"
        ' bad = { format = "json", path = "bad" } to the query, where such rows then go; and start again'
    )


_OF_VALUES = ("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "CANNOT_PARSE_TIMESTAMP", "CAST_OVERFLOW")
"""Conditions of Spark's that are about the value of one row."""


class _Some(Sink):
    """A sink that is given some of the rows."""

    part = ""
    """What tells them from those that another sink is given of the same outlet."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.description, self.promise = sink.description, sink.promise
        self.idempotent, self.recognizes = sink.idempotent, sink.recognizes

    def taken(self, frame: DataFrame) -> DataFrame:
        """The rows that it is given."""
        raise NotImplementedError

    def kept(self, schema: StructType) -> StructType:
        """Their columns."""
        raise NotImplementedError

    @property
    def parts(self) -> Sequence[Sink]:
        """Itself."""
        return [self]

    @property
    def target(self) -> Target:
        """The sink's."""
        return self.sink.target

    @property
    def folder(self) -> str | None:
        """The sink's."""
        return self.sink.folder

    def find(self, spark: SparkSession) -> None:
        """Ask the sink."""
        self.sink.find(spark)

    def check(self, flow: str) -> None:
        """Ask the sink."""
        self.sink.check(flow)

    def check_rows(self, schema: StructType) -> None:
        """Ask the sink about the columns that it is given."""
        self.sink.check_rows(self.kept(schema))

    def named(self, outlet: str) -> str:
        """The outlet as the sink knows it."""
        return outlet

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        """Ask the sink about the outlet as it knows it."""
        self.sink.refuse_later(flow, self.named(outlet), reached)

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark the sink."""
        self.sink.claim(flow, owner)

    def sweep(self) -> None:
        """Sweep the sink."""
        self.sink.sweep()

    def deliver(self, delivery: Delivery) -> None:
        """Hand over its rows, if there are some."""

        def frame() -> DataFrame:
            return self.taken(delivery.frame())

        staged = delivery.staged if delivery.staged and not frame().isEmpty() else ()
        own = replace(delivery, outlet=self.named(delivery.outlet), staged=staged, frame=frame, part=self.part)
        self.sink.deliver(replace(own, finished=False))
        self.placed = self.sink.placed


class BadRows(_Some):
    """Takes the rows of a stream that could not be read: what is known of them."""

    part = "bad"

    def __init__(self, sink: Sink, stream: str) -> None:
        super().__init__(sink)
        self.stream = stream

    def named(self, outlet: str) -> str:
        """As the stream's own, whichever of the ways in which it is read they come from."""
        del outlet
        return f"late {self.stream}"

    def taken(self, frame: DataFrame) -> DataFrame:
        """The rows with a `_bad`."""
        return frame.where(column_of(BAD).isNotNull()).select(f"{BAD}.*")

    def kept(self, schema: StructType) -> StructType:
        """The fields of `_bad`."""
        kind = schema[BAD].dataType
        assert isinstance(kind, StructType)
        return kind


class GoodRows(_Some):
    """Takes the others: those that other outputs are not given, `without` the columns that say so."""

    def __init__(self, sink: Sink, without: Sequence[str] = (BAD, FAILED)) -> None:
        super().__init__(sink)
        self.without = without

    def taken(self, frame: DataFrame) -> DataFrame:
        """The rows that could be read, and of which nothing failed."""
        for name in self.without:
            frame = frame.where(column_of(name).isNull()) if name in frame.columns else frame
        return frame.select(*(column_of(name) for name in frame.columns if name not in self.without))

    def kept(self, schema: StructType) -> StructType:
        """All columns but these."""
        return StructType([field for field in schema.fields if field.name not in self.without])


class FailedRows(_Some):
    """Takes the rows of which an expression of a query failed: the query, the reason, and the row as JSON."""

    def __init__(self, sink: Sink, query: str) -> None:
        super().__init__(sink)
        self.query = query

    def named(self, outlet: str) -> str:
        """As an outlet of its own: several queries may have one table, which knows what it took by outlet."""
        return f"{outlet} of {self.query}"

    def taken(self, frame: DataFrame) -> DataFrame:
        """A row for each in which the query is named."""
        told = F.explode(F.from_json(column_of(FAILED), "array<struct<query string, reason string>>"))
        own = (column_of(name) for name in frame.columns if name not in _OURS)
        row = F.to_json(F.struct(*own), {"ignoreNullFields": "false"})
        found = frame.where(column_of(FAILED).isNotNull()).select(told.alias("told"), row.alias("row"))
        return found.where(F.col("told.query") == self.query).select("told.query", "told.reason", "row")

    def kept(self, schema: StructType) -> StructType:
        """The same whatever the stream."""
        return FAILED_ROWS


_OURS = (BAD, FAILED)
FAILED_ROWS = StructType([StructField(name, StringType()) for name in ("query", "reason", "row")])
"""What is known of a row, or of joined rows, of which an expression fails."""


def bare(sink: Sink) -> Sink:
    """The sink itself, of one that is given some of the rows."""
    return sink.sink if isinstance(sink, _Some) else sink
