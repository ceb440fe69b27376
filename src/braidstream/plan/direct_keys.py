"""Which streams can be read directly: Parquet files whose keys are plain columns of types that NumPy hashes as Spark.

Cost: a look at the texts of the keys, once for each plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from braidstream.kernels.hashing import hashable
from braidstream.kernels.rows import user_name
from braidstream.model.stores import UNKEYED_KEY, Branch
from braidstream.plan.keys import quoted
from braidstream.plan.shapes import StreamShape

__all__ = ["ARROW_TYPES", "direct_keys"]


def direct_keys(stream: StreamShape, branch: Branch) -> Mapping[int | str, Sequence[tuple[str, pa.DataType]]] | None:
    """The key columns by store or computed column when the stream can be read directly, else None.

    None of a store whose rows all have one key.
    """
    if stream.readable is None or branch.attempts or any(store.filters for store in branch.stores):
        return None
    read = {stream.time, *(user_name(name) for name in branch.payload)}
    if not read.intersection(stream.schema.names) <= stream.readable:
        return None
    wanted: dict[int | str, Sequence[str]] = {store.index: store.compared for store in branch.stores}
    wanted |= {added.name: (added.key,) for added in branch.computed}
    keys: dict[int | str, Sequence[tuple[str, pa.DataType]]] = {}
    for name, expressions in wanted.items():
        if tuple(expressions) == (UNKEYED_KEY,):
            keys[name] = ()
            continue
        found = [_direct_key(stream, key) for key in expressions]
        if any(entry is None for entry in found):
            return None
        keys[name] = [entry for entry in found if entry is not None]
    return keys


def _direct_key(stream: StreamShape, key: str) -> tuple[str, pa.DataType] | None:
    columns = {quoted(name): name for name in stream.schema.names}
    expression, _, kind = key.removeprefix("CAST(").removesuffix(")").rpartition(" AS ")
    name, target = columns.get(expression), ARROW_TYPES.get(kind)
    if name is None or target is None:
        return None
    own = stream.schema.field(name).type
    return (name, target) if hashable(own) and (own == target or _widens(own, target)) else None


def _widens(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and pa.types.is_integer(target) and kind.bit_width <= target.bit_width)


ARROW_TYPES = {
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
"""Simple types by their names in Spark SQL."""
