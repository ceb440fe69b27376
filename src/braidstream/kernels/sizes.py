"""Columns of any size: what keeps arrays, envelopes and batches within the limits of Arrow and of the JVM.

Arrow's strings, binaries and lists have 32-bit offsets, so one array of them ends at 2 GB; its large types have 64-bit
ones. Rows here are kept in one array a column, and so a column of variable width with more than `ARRAY_BYTES` is kept
in the large type (`whole`, `joined`), and in the ordinary one otherwise. What leaves a slot or a task is cut by bytes
(`cut`, `cuts`) and narrow again, so that files of results, Spark and users never see a large type; segments on disk may
have them, where they are that large.

Invariant: after `whole` each column is one chunk, and no array of a narrow type has more than `ARRAY_BYTES`. A take
without repetition keeps that; where rows repeat, `taken` and `cuts` look at what the rows take.
Cost: for tables below the limit that of `combine_chunks` and a look at the sizes, some microseconds; widening a column
copies its offsets, not its data. A piece is at least one row, however large that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ARRAY_BYTES",
    "BATCH_BYTES",
    "ENVELOPE_BYTES",
    "cut",
    "cuts",
    "fitting",
    "is_fixed",
    "joined",
    "narrow",
    "one_chunk",
    "row_bytes",
    "stacked",
    "table_bytes",
    "taken",
    "whole",
    "wide",
    "widest",
]

ARRAY_BYTES = 1 << 28
"""What an array with 32-bit offsets may hold. An eighth of 2 GB: eight elements of a list may share a byte."""
BATCH_BYTES = 1 << 26
"""What is taken at once of results, or of rows that are repeated."""
ENVELOPE_BYTES = 1 << 25
"""What one value of the exchange may hold: the JVM keeps it as one array on its heap, more than once."""

I64 = npt.NDArray[np.int64]


def whole(table: pa.Table) -> pa.Table:
    """The table with one chunk a column, in the types that are needed for its size; without a copy if it is that."""
    if _exceeds(table, ARRAY_BYTES) or _has_large(table.schema):
        table = pa.table([fitting(column) for column in table.columns], names=table.column_names)
    return table.combine_chunks()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below one another, as `whole`; columns that some of them do not have are NULL there."""
    if len(tables) > 1 and any(_has_large(table.schema) for table in tables):
        tables = [table.cast(_widened(table.schema)) for table in tables]
    return whole(pa.concat_tables(tables, promote_options="default"))


def stacked(arrays: Sequence[pa.Array]) -> pa.Array:
    """Arrays of one kind of values below one another, as one."""
    return one_chunk(joined([pa.table({"": values}) for values in arrays]), "")


def fitting(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the type that is needed for its size."""
    if is_fixed(column.type):
        return column
    kind = wide(column.type) if _is_large(column) else narrow(column.type)
    return column if column.type == kind else column.cast(kind)


def one_chunk(table: pa.Table, name: str) -> pa.Array:
    """A column as one array."""
    column = table.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return fitting(column).combine_chunks()


def taken(values: pa.Array, index: pa.Array) -> pa.Array:
    """The values at `index`, which may repeat them and have NULLs: in the large type where that is much."""
    if not is_fixed(values.type) and len(values):
        most = len(index) * int(row_bytes(values).max())
        if most > ARRAY_BYTES:
            values = values.cast(wide(values.type))
    return values.take(index)


def cut(table: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """The rows of a table in pieces of at most so many bytes, or of one row; each in narrow types."""
    if not _exceeds(table, most_bytes):
        yield whole(table)
        return
    for begin, end in cuts(table_bytes(table), most_bytes):
        yield whole(table.slice(begin, end - begin))


def cuts(sizes: I64, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows of these sizes: each takes at most so many bytes, or is one row."""
    ends = np.cumsum(sizes)
    begin, before = 0, 0
    while begin < len(sizes):
        end = max(int(np.searchsorted(ends, before + most_bytes, side="right")), begin + 1)
        yield begin, end
        begin, before = end, int(ends[end - 1])


def table_bytes(table: pa.Table) -> I64:
    """What each row of a table takes, about."""
    return sum((row_bytes(column) for column in table.columns), np.zeros(table.num_rows, dtype=np.int64))


def widest(table: pa.Table) -> int:
    """What a row of a table takes at most."""
    if not table.num_rows:
        return 0
    kinds = [(column, is_fixed(column.type)) for column in table.columns]
    fixed = sum(_fixed_bytes(column.type) for column, same in kinds if same)
    return fixed + sum(int(row_bytes(column).max()) for column, same in kinds if not same)


def row_bytes(column: pa.Array | pa.ChunkedArray) -> I64:
    """What each value of a column takes, about."""
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([np.zeros(0, dtype=np.int64), *(row_bytes(chunk) for chunk in column.chunks)])
    kind = column.type
    if is_fixed(kind):
        return np.full(len(column), _fixed_bytes(kind), dtype=np.int64)
    if pa.types.is_struct(kind):
        fields = (row_bytes(column.field(i)) for i in range(kind.num_fields))
        return sum(fields, np.zeros(len(column), dtype=np.int64))
    if pa.types.is_fixed_size_list(kind):
        inner = row_bytes(column.values.slice(column.offset * kind.list_size, len(column) * kind.list_size))
        return np.asarray(inner.reshape(len(column), kind.list_size).sum(axis=1))
    if _is_listed(kind):
        offsets = np.asarray(column.offsets).astype(np.int64)
        inner = _elements(column, int(offsets[0]), int(offsets[-1]))
        ends = np.append(0, np.cumsum(inner))[offsets - offsets[0]]
        return np.asarray(np.diff(ends) + 4)
    lengths = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False)).astype(np.int64) + 4


def wide(kind: pa.DataType) -> pa.DataType:
    """The type with 64-bit offsets, all the way down."""
    return _changed(kind, True)


def narrow(kind: pa.DataType) -> pa.DataType:
    """The type with 32-bit offsets, all the way down."""
    return _changed(kind, False)


@lru_cache(maxsize=1024)
def is_fixed(kind: pa.DataType) -> bool:
    """Whether every value takes the same."""
    if pa.types.is_fixed_size_list(kind):
        return is_fixed(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_fixed(kind.field(i).type) for i in range(kind.num_fields))
    return not pa.types.is_map(kind) and narrow(kind) == wide(kind)


@lru_cache(maxsize=1024)
def _changed(  # noqa: PLR0911  one for each kind of type
    kind: pa.DataType, large: bool
) -> pa.DataType:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.large_string() if large else pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind):
        return pa.large_binary() if large else pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _changed_field(kind.value_field, large)
        return pa.large_list(inner) if large else pa.list_(inner)
    if types.is_fixed_size_list(kind):
        return pa.list_(_changed_field(kind.value_field, large), kind.list_size)
    if types.is_struct(kind):
        return pa.struct([_changed_field(kind.field(i), large) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_changed_field(kind.key_field, large), _changed_field(kind.item_field, large), kind.keys_sorted)
    return kind


def _changed_field(field: pa.Field, large: bool) -> pa.Field:
    return field.with_type(_changed(field.type, large))


@lru_cache(maxsize=256)
def _has_large(schema: pa.Schema) -> bool:
    return any(field.type != narrow(field.type) for field in schema)


def _exceeds(table: pa.Table, limit: int) -> bool:
    """Whether a table has more bytes: first by what its buffers have, of which it may be a part, which is quick."""
    return bool(table.get_total_buffer_size() > limit and table.nbytes > limit)


def _is_large(column: pa.ChunkedArray) -> bool:
    """Whether a column has more than an ordinary array may. Of a part of nested values Arrow counts the whole."""
    if column.nbytes <= ARRAY_BYTES:
        return False
    return not pa.types.is_nested(column.type) or int(row_bytes(column).sum()) > ARRAY_BYTES


def _widened(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(wide(field.type)) for field in schema])


def _is_listed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _elements(column: pa.Array, begin: int, end: int) -> I64:
    """What the elements of lists take, from one to another."""
    inner: Iterable[pa.Array] = (column.keys, column.items) if pa.types.is_map(column.type) else (column.values,)
    return sum((row_bytes(one.slice(begin, end - begin)) for one in inner), np.zeros(end - begin, dtype=np.int64))


def _fixed_bytes(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _fixed_bytes(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_fixed_bytes(kind.field(i).type) for i in range(kind.num_fields))
    return 0 if pa.types.is_null(kind) else -(-int(kind.bit_width) // 8)
