"""Which keys the routing task hashes itself: plain columns of types that NumPy hashes as Spark.

Where all keys of a stream of Parquet files are such, it is read directly. Of a stream that Spark reads the columns are
sent in the place of their hashes where they are no wider, for a query mostly takes them anyway.

Cost: a look at the texts of the keys, once for each plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from braidstream.kernels.hashing import hashable, is_text
from braidstream.kernels.rows import user_name
from braidstream.model.stores import UNKEYED_KEY, Branch
from braidstream.plan.keys import quoted
from braidstream.plan.shapes import StreamShape

__all__ = ["ARROW_TYPES", "KeyColumns", "key_columns"]

KeyColumns = Mapping[int | str, Sequence[tuple[str, pa.DataType]]]
"""By store or computed column the columns of its key, and the types that they are compared in."""


def key_columns(
    streams: Mapping[str, StreamShape], branches: Sequence[Branch]
) -> tuple[dict[str, KeyColumns], dict[str, KeyColumns]]:
    """The key columns of each stream that can be read directly, and of each other those that routing hashes."""
    direct = {b.stream: keys for b in branches if (keys := _direct_keys(streams[b.stream], b)) is not None}
    return direct, {b.stream: _plain_keys(streams[b.stream], b) for b in branches if b.stream not in direct}


def _direct_keys(stream: StreamShape, branch: Branch) -> KeyColumns | None:
    """None when the stream cannot be read directly; none of a store whose rows all have one key."""
    if stream.readable is None or branch.attempts or any(store.filters for store in branch.stores):
        return None
    read = {stream.time, *(user_name(name) for name in branch.payload)}
    if not read.intersection(stream.schema.names) <= stream.readable:
        return None
    keys = {}
    for name, expressions in _keys(branch).items():
        columns = _key_columns(stream, expressions)
        if columns is None:
            return None
        keys[name] = columns
    return keys


def _plain_keys(stream: StreamShape, branch: Branch) -> KeyColumns:
    """The keys of a stream that Spark reads whose columns are sent as they are: of a fixed width, and none may fail."""
    found = {
        name: _key_columns(stream, expressions)
        for name, expressions in _keys(branch).items()
        if not set(expressions).intersection(branch.tried)
    }
    return {
        name: columns
        for name, columns in found.items()
        if columns is not None and not any(is_text(kind) for _, kind in columns)
    }


def _keys(branch: Branch) -> dict[int | str, Sequence[str]]:
    wanted: dict[int | str, Sequence[str]] = {store.index: store.compared for store in branch.stores}
    return wanted | {added.name: (added.key,) for added in branch.computed}


def _key_columns(stream: StreamShape, expressions: Sequence[str]) -> Sequence[tuple[str, pa.DataType]] | None:
    if tuple(expressions) == (UNKEYED_KEY,):
        return ()
    found = [_direct_key(stream, key) for key in expressions]
    return None if None in found else [entry for entry in found if entry is not None]


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
