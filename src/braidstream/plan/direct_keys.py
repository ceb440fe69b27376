"""Which streams can be read directly: Parquet files whose keys are plain columns of types that NumPy hashes as Spark.

Cost: a look at the texts of the keys, once for each plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from braidstream.kernels.hashing import hashable
from braidstream.kernels.rows import user_name
from braidstream.model.stores import Branch
from braidstream.spark.names import quoted
from braidstream.spark.parquet import is_readable, reads_as_spark
from braidstream.spark.sources import DIRECT_OPTIONS, Stream, payload_of

__all__ = ["direct_keys"]


def direct_keys(stream: Stream, branch: Branch) -> Mapping[int | str, Sequence[tuple[str, pa.DataType]]] | None:
    """The key columns by store or computed column when the stream can be read directly, else None."""
    source = stream.files
    if source is None or not {option.lower() for option in source.options} <= DIRECT_OPTIONS:
        return None
    if any(store.filters for store in branch.stores) or not reads_as_spark(stream.frame.sparkSession):
        return None
    read = {stream.time, *(user_name(name) for name in payload_of(branch))}
    if not all(is_readable(field.dataType) for field in stream.schema.fields if field.name in read):
        return None
    wanted: dict[int | str, Sequence[str]] = {store.index: store.compared for store in branch.stores}
    wanted |= {added.name: (added.key,) for added in branch.computed}
    keys: dict[int | str, Sequence[tuple[str, pa.DataType]]] = {}
    for name, expressions in wanted.items():
        found = [_direct_key(stream, key) for key in expressions]
        if any(entry is None for entry in found):
            return None
        keys[name] = [entry for entry in found if entry is not None]
    return keys


def _direct_key(stream: Stream, key: str) -> tuple[str, pa.DataType] | None:
    schema = to_arrow_schema(stream.schema, timezone="UTC")
    columns = {quoted(name): name for name in stream.schema.names}
    expression, _, kind = key.removeprefix("CAST(").removesuffix(")").rpartition(" AS ")
    name, target = columns.get(expression), _ARROW.get(kind)
    if name is None or target is None or not hashable(schema.field(name).type):
        return None
    if schema.field(name).type != target and not _widens(schema.field(name).type, target):
        return None
    return name, target


def _widens(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and pa.types.is_integer(target) and kind.bit_width <= target.bit_width)


_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
