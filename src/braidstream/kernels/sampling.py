"""Which rows a shedding filter leaves: row numbers, the sample of keys, and marks on rows that are kept for counting.

A *row number* is a random number in [0, 1) made of the row itself (its key hash, its time and its other fixed-width
values), so it is the same in every segment, on every slot and on every replay. Rows alike in all of these share it.

The *sample* is a set of keys: those whose mixed hash ends in a number of zero bits. Groups are the leading bits of the
hash itself, so the sample is spread evenly over them. Its rows are exempt from the filter; where it would have dropped
them they carry the mark `__d`, also on disk, since a merged segment no longer tells which epoch a row is of.

Cost: O(rows) of what was gathered, a few NumPy operations each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.hashing import hash_columns, hashable, is_text
from braidstream.kernels.rows import I64, MARK, U64, Rows, payload_names
from braidstream.kernels.sizes import whole

__all__ = ["BUCKETS", "MARK", "buckets", "is_sampled", "marks", "row_numbers", "sifted"]

BUCKETS = 64
_F64 = npt.NDArray[np.float64]
_BOOL = npt.NDArray[np.bool_]


def is_sampled(hashes: U64, bits: int) -> _BOOL:
    """Which keys are in the sample of 2^-bits of them. A sample with more bits lies within one with fewer."""
    found: _BOOL = (_mixed(hashes) & np.uint64((1 << bits) - 1)) == 0
    return found


def buckets(hashes: U64) -> I64:
    """A bucket for each key, independent of the sample and of the group."""
    return (_mixed(hashes) >> np.uint64(58)).astype(np.int64)


def row_numbers(rows: Rows) -> _F64:
    """A number in [0, 1) for each row, made of its content."""
    mixed = _mixed(rows.hashes ^ _mixed(rows.times.view(np.uint64) + np.uint64(1)))
    names = [name for name in payload_names(rows.table) if _is_plain(rows.table.schema.field(name).type)]
    if names:
        mixed = _mixed(mixed ^ hash_columns([rows.table.column(name).combine_chunks() for name in names])[0])
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sifted(rows: Rows, lows: U64, floors: I64, caps: _F64, bits: int) -> Rows:
    """The rows that a filter leaves, given by pieces of the hash space; rows of the sample stay, and are marked."""
    if not len(rows):
        return rows
    table = rows.table
    dead = _dead(rows, lows, floors, caps) | marks(table)
    if not dead.any():
        return rows
    exempt = is_sampled(rows.hashes, bits)
    if (marked := dead & exempt).any():
        table = table.drop_columns([MARK]) if MARK in table.column_names else table
        table = table.append_column(MARK, pa.array(marked))
    left = exempt | ~dead
    return Rows(table if left.all() else whole(table.filter(pa.array(left))))


def marks(table: pa.Table) -> _BOOL:
    """Which rows of a table are only kept for counting."""
    if MARK not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.bool_)
    column = table.column(MARK).combine_chunks().fill_null(False)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _dead(rows: Rows, lows: U64, floors: I64, caps: _F64) -> _BOOL:
    at = np.searchsorted(lows, rows.hashes, side="right") - 1
    dead: _BOOL = rows.times < floors[at]
    if (caps < 1.0).any():
        dead |= row_numbers(rows) >= caps[at]
    return dead


def _is_plain(kind: pa.DataType) -> bool:
    return hashable(kind) and not is_text(kind)


def _mixed(values: U64) -> U64:
    """A bijection that spreads every bit over all others (the last steps of MurmurHash3)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))
