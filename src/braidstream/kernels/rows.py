"""Rows of one store: an Arrow table with the engine's own columns in front, sorted by key hash and then by time.

The engine's columns are named in `model.columns`.

Invariant of `Rows`: sorted by (hash, time). So the rows of one key are a contiguous run, the rows of one key within a
span of time are a contiguous part of it, and a group is a contiguous slice, all found by binary search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.kept_marks import kept_marks
from braidstream.kernels.loops import marks, native
from braidstream.kernels.sizes import joined, whole, widest
from braidstream.model.columns import (
    DEADLINE,
    HASH,
    HASH_OF,
    KEY,
    MARK,
    MASK,
    OWN,
    TIME,
    VALUE_OF,
    stored_name,
    user_name,
)

__all__ = [
    "DEADLINE",
    "HASH",
    "HASH_OF",
    "KEY",
    "MARK",
    "MASK",
    "TIME",
    "VALUE_OF",
    "Rows",
    "distinct",
    "key_columns",
    "merge",
    "payload_names",
    "sort_rows",
    "stored_name",
    "text_at",
    "user_name",
]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


def payload_names(table: pa.Table) -> list[str]:
    """The columns that rows are told apart by: what is stored of the streams, but for names that begin with `__`.

    These are left out so that rows have the numbers that they had when such names were stored as they are.
    """
    return [name for name in table.column_names if not user_name(name).startswith(OWN)]


@dataclass(frozen=True)
class Rows:
    """Rows sorted by (hash, time)."""

    table: pa.Table
    file: str = field(default="", compare=False)
    """Of which file they are all rows, by a name that no other content has; empty for other rows."""

    @cached_property
    def hashes(self) -> U64:
        """The key hashes, ascending."""
        return fixed_width(self.table, HASH).view(np.uint64)

    @cached_property
    def times(self) -> I64:
        """The event times in microseconds, ascending within equal hashes."""
        return fixed_width(self.table, TIME)

    def marked(self, n_needles: int) -> U64:
        """What rules out most needles that have no row, where so many of them make that worth a look at all rows."""
        return kept_marks(self.file, len(self), n_needles, lambda: self._marks)

    @cached_property
    def _marks(self) -> U64:
        return marks(self.hashes)

    @cached_property
    def masks(self) -> I64 | None:
        """The filters each row passes, one bit a filter; None when every row passes all."""
        if MASK not in self.table.column_names:
            return None
        column = self.table.column(MASK)
        if column.null_count == 0:
            return fixed_width(self.table, MASK)
        # Rows from before queries filtered differently: only queries that take them all look at those.
        return np.asarray(column.fill_null(-1).combine_chunks().to_numpy(zero_copy_only=False))

    @cached_property
    def deadlines(self) -> I64 | None:
        """The latest time that each intermediate result may be joined with; None for rows of a stream."""
        return fixed_width(self.table, DEADLINE) if DEADLINE in self.table.column_names else None

    def alive(self, watermark: int | None, window_us: int | None) -> npt.NDArray[np.bool_] | None:
        """Which rows a tuple that is not late may still join: deadline >= watermark. None means all."""
        if watermark is None:
            return None
        if self.deadlines is not None:
            return self.deadlines >= watermark
        return None if window_us is None else self.times >= watermark - window_us

    @cached_property
    def longest_key(self) -> int:
        """What the real keys of a row take at most."""
        return widest(self.table.select(key_columns(self.table)))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def take(self, index: I64) -> Rows:
        """The rows at `index`, which must keep the order."""
        return Rows(take(self.table, index))

    def distinct_hashes(self) -> U64:
        """The distinct key hashes, ascending."""
        first = np.ones(len(self), dtype=np.bool_)
        np.not_equal(self.hashes[1:], self.hashes[:-1], out=first[1:])
        return self.hashes[first]

    def cuts(self, lows: U64) -> I64:
        """For group boundaries `lows` (ascending, the first being 0): the first row of each group, and the end."""
        return np.append(np.searchsorted(self.hashes, lows), len(self)).astype(np.int64)


def key_columns(table: pa.Table) -> list[str]:
    """The names of the columns that hold real keys."""
    return [name for name in table.column_names if name.startswith(KEY)]


def fixed_width(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column without NULLs as a NumPy array, without a copy where it is one chunk."""
    column = table.column(name)
    if column.num_chunks == 1:
        return np.asarray(column.chunk(0).to_numpy(zero_copy_only=False))
    return np.asarray(column.to_numpy())


def text_at(values: pa.ChunkedArray | pa.Array, row: int) -> str:
    """A value as people read it; one with a time beyond Python's years, as Arrow writes it."""
    try:
        return str(values[row].as_py())
    except (OverflowError, ValueError):
        return str(values.slice(row, 1).to_string(indent=0)).strip("[]\n")


def take(table: pa.Table, index: I64) -> pa.Table:
    """The rows of `table` at `index`, none of them twice."""
    is_cut = any(column.num_chunks != 1 for column in table.itercolumns())
    return (whole(table) if is_cut else table).take(pa.array(index))


def sort_rows(table: pa.Table) -> Rows:
    """Sort by (hash, time)."""
    table = whole(table)
    hashes = fixed_width(table, HASH).view(np.uint64)
    return Rows(take(table, _order(hashes, fixed_width(table, TIME))))


def _order(hashes: U64, times: I64) -> I64:
    """The order of rows by (hash, time)."""
    made = native(len(hashes))
    if made is not None:
        found: I64 = made.ordered(hashes, times)
        return found
    order = np.argsort(hashes)
    return _order_runs_by_time(hashes[order], times, order)


def _order_runs_by_time(sorted_hashes: U64, times: I64, order: I64) -> I64:
    """Sorting by hash with a fast unstable sort leaves equal hashes in any order: sort only those by time."""
    same = sorted_hashes[1:] == sorted_hashes[:-1]
    if not same.any():
        return order
    in_run = np.zeros(len(order), dtype=np.bool_)
    in_run[1:] |= same
    in_run[:-1] |= same
    at = np.flatnonzero(in_run)
    rows = order[at]
    order[at] = rows[_by_run_and_time(sorted_hashes[at], times[rows])]
    return order


def _by_run_and_time(hashes: U64, times: I64) -> I64:
    """The order of rows by (hash, time), where hashes are sorted already: one sort of one number, where that fits."""
    bits = (int(times.max()) - int(times.min())).bit_length()
    run = np.cumsum(np.append(False, hashes[1:] != hashes[:-1]))
    if bits + int(run[-1]).bit_length() > 62:
        return np.lexsort((times, run))
    return np.argsort((run << bits) | (times - times.min()))


def distinct(hashes: Sequence[U64]) -> U64:
    """The distinct hashes of several arrays, ascending."""
    if not hashes:
        return np.empty(0, dtype=np.uint64)
    if len(hashes) == 1:
        return hashes[0]
    together = np.sort(np.concatenate(hashes))
    first = np.ones(len(together), dtype=np.bool_)
    np.not_equal(together[1:], together[:-1], out=first[1:])
    return together[first]


def merge(parts: Sequence[Rows] | Iterable[Rows], schema: pa.Schema | None = None) -> Rows:
    """Several sorted runs as one."""
    tables = [part.table for part in parts]
    if not tables:
        if schema is None:
            raise ValueError("nothing to merge, and no schema for an empty result")
        return Rows(schema.empty_table())
    if len(tables) == 1:
        return Rows(tables[0])
    return sort_rows(joined(tables))


def outside(hashes: U64, index: I64, ranges: Sequence[tuple[int, int]]) -> I64:
    """Those of the rows at `index` whose hashes lie in none of the ranges (inclusive), which ascend and are apart."""
    lows, highs = (np.array(side, dtype=np.uint64) for side in zip(*ranges, strict=True))
    own = hashes[index]
    at = np.searchsorted(lows, own, side="right") - 1
    return index[(at < 0) | (own > highs[np.maximum(at, 0)])]
