"""From Spark's types to Arrow's: how columns are stored, and what planning is told of a stream.

Invariant: a stored column reads back as the type that Spark had for it, which its field remembers. Cost: a look at the
schema; `shape_of` asks the session for a dozen settings.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from braidstream.errors import StreamError
from braidstream.plan.shapes import StreamShape
from braidstream.query import describe_duration
from braidstream.spark.parquet import is_readable, reads_as_spark
from braidstream.spark.sources import DIRECT_OPTIONS, Stream
from braidstream.spark.utc_schemas import utc_schema
from braidstream.state.staging import SPARK_FIELD

__all__ = ["arrow_schema", "readable_columns", "shape_of", "shapes_of"]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types in which columns are stored: time zones in UTC, 32-bit offsets. Fields know Spark's types."""
    try:
        found = utc_schema(schema)
    except PySparkException:
        raise _unsupported(schema) from None
    return pa.schema([a.with_metadata({SPARK_FIELD: f.json()}) for a, f in zip(found, schema.fields, strict=True)])


def _unsupported(schema: StructType) -> StreamError:
    wrong = [field for field in schema.fields if not _has_arrow_form(field)]
    shown = ", ".join(f"{field.name!r} ({field.dataType.simpleString()})" for field in wrong)
    fix = "cast it in the stream" + (f", or drop({wrong[0].name!r})" if wrong else "")
    return StreamError(f"a stream has columns that Arrow has no form for: {shown}", "types that Arrow has", fix)


def _has_arrow_form(field: StructField) -> bool:
    try:
        utc_schema(StructType([field]))
    except PySparkException:
        return False
    return True


def shapes_of(streams: Mapping[str, Stream]) -> dict[str, StreamShape]:
    """What planning is told of the streams of a flow."""
    return {name: shape_of(stream) for name, stream in streams.items()}


def shape_of(stream: Stream) -> StreamShape:
    """What planning is told of a stream."""
    folder = None if stream.files is None else stream.files.path
    idle = None if stream.idle_us is None else describe_duration(stream.idle_us)
    schema, readable = arrow_schema(stream.schema), readable_columns(stream)
    return StreamShape(stream.name, schema, stream.time, stream.shown_delay, idle, folder, readable)


def readable_columns(stream: Stream) -> frozenset[str] | None:
    """The columns that can be read from the stream's files without Spark; None where the stream cannot be."""
    source = stream.files
    if source is None or not {option.lower() for option in source.options} <= DIRECT_OPTIONS:
        return None
    if not reads_as_spark(stream.frame.sparkSession):
        return None
    return frozenset(field.name for field in stream.schema.fields if is_readable(field.dataType))
