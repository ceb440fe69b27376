"""Spark's `xxhash64`, vectorized over NumPy arrays.

The key hash of a row must be the same whether Spark computes it (any source, any key type) or the routing task does
(files read without passing through the JVM). This module covers the types that the routing task may hash itself:
integers, dates, timestamps, booleans, floats and strings; `hashable` says which. A test compares it with Spark.

Invariant: for one key column of an integer-like type the hash is injective (each step of XXH64 on a fixed-width value
is a bijection), so equal hashes mean equal keys and no comparison of real keys is needed: `INJECTIVE` lists those
types.

Cost: a dozen NumPy operations a column for fixed-width types; for strings, one pass for each 8 bytes of the longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels.loops import native

__all__ = [
    "INJECTIVE",
    "SEED",
    "UNKEYED_HASH",
    "hash_columns",
    "hashable",
    "is_text",
    "unhashed",
    "unhashed_keys",
    "unkeyed_hashes",
]

U64 = npt.NDArray[np.uint64]

SEED = 42  # Spark's default seed of xxhash64
INJECTIVE = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "boolean"})

_INJECTIVE_TYPES = {
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_WIDTHS = {kind: 8 if kind in ("bigint", "timestamp", "timestamp_ntz") else 4 for kind in sorted(INJECTIVE)}
"""The bytes that are hashed of a value."""

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p)
    for p in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def hashable(kind: pa.DataType) -> bool:
    """Whether `hash_columns` covers this type."""
    fixed = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)
    return bool(
        fixed or pa.types.is_timestamp(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind) or is_text(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings or binaries, in arrays of any size."""
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return bool(large or pa.types.is_string(kind) or pa.types.is_binary(kind))


def hash_columns(columns: Sequence[pa.Array]) -> tuple[U64, npt.NDArray[np.bool_]]:
    """The hash of each row over all columns, and which rows have no NULL among them."""
    rows = len(columns[0])
    hashes = np.full(rows, SEED, dtype=np.uint64)
    valid = np.ones(rows, dtype=np.bool_)
    for column in columns:
        present = np.ones(rows, dtype=np.bool_) if column.null_count == 0 else _to_numpy(column.is_valid())
        hashed = _hash_column(column, hashes)
        hashes = hashed if column.null_count == 0 else np.where(present, hashed, hashes)
        valid &= present
    return hashes, valid


def unkeyed_hashes(rows: int) -> pa.Array:
    """The hash of rows that share one key (`UNKEYED_KEY`), for each of them."""
    return pa.repeat(pa.scalar(int(UNKEYED_HASH.view(np.int64)), pa.int64()), rows)


def unhashed(hash_: int, kind: str) -> int | None:
    """The only value of an integer type (a Spark type name) that has this hash; None for other types."""
    if kind not in ("bigint", "int", "smallint", "tinyint"):
        return None
    width = _WIDTHS[kind]
    word = int(_unmixed(np.array([hash_], dtype=np.uint64), width)[0])
    limit = 1 << (8 * width)
    if word >= limit:
        return None
    return word - limit if word >= limit >> 1 else word


def unhashed_keys(hashes: U64, kind: str) -> pa.Array | None:
    """The keys of an injective type that have these hashes; None for other types, and where one has none."""
    width = _WIDTHS.get(kind)
    if width is None:
        return None
    words = _unmixed(hashes, width)
    if width == 4 and (words >> np.uint64(32)).any():
        return None
    values = pa.array(words.view(np.int64) if width == 8 else words.astype(np.uint32).view(np.int32))
    return values.cast(_INJECTIVE_TYPES[kind])


def _unmixed(hashes: U64, width: int) -> U64:
    """Each step of the hash undone, from the last to the first."""
    bits, factor, term = (27, _P1, _P4) if width == 8 else (23, _P2, _P3)
    h = hashes ^ (hashes >> np.uint64(32))
    h = h * _inverse(_P3)
    h = h ^ (h >> np.uint64(29)) ^ (h >> np.uint64(58))
    h = h * _inverse(_P2)
    h = h ^ (h >> np.uint64(33))
    h = (h - term) * _inverse(factor)
    h = _rotated_back(h, bits)
    word = (h ^ (np.uint64(SEED + width) + _P5)) * _inverse(_P1)
    return _rotated_back(word, 31) * _inverse(_P2) if width == 8 else word


def _inverse(factor: np.uint64) -> np.uint64:
    return np.uint64(pow(int(factor), -1, 1 << 64))


def _rotated_back(words: U64, bits: int) -> U64:
    return words >> np.uint64(bits) | words << np.uint64(64 - bits)


def _hash_column(column: pa.Array, seed: U64) -> U64:
    kind = column.type
    if is_text(kind):
        return _hash_bytes(column, seed)
    is_long = pa.types.is_int64(kind) or pa.types.is_timestamp(kind)
    if not pa.types.is_floating(kind):
        column = column.cast(pa.int64() if is_long else pa.int32())
    values = _to_numpy(column if column.null_count == 0 else pc.fill_null(column, 0))
    if pa.types.is_floating(kind):
        return _hash_float(values, seed)
    return _hash_long(values, seed) if is_long else _hash_int(values, seed)


def _hash_float(values: npt.NDArray[Any], seed: U64) -> U64:
    values = values + values.dtype.type(0)  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float32:
        return _hash_int(values.view(np.int32), seed)
    return _hash_long(values.view(np.int64), seed)


def _hash_int(values: npt.NDArray[np.int32], seed: U64) -> U64:
    word = values.view(np.uint32).astype(np.uint64)
    return _avalanche(_mix_int(seed + _P5 + np.uint64(4), word))


def _hash_long(values: npt.NDArray[np.int64], seed: U64) -> U64:
    made = native(len(values))
    if made is not None:
        hashes: U64 = made.hash_longs(np.ascontiguousarray(values, dtype=np.int64), seed)
        return hashes
    return _avalanche(_mix_long(seed + _P5 + np.uint64(8), values.view(np.uint64)))


def _hash_bytes(column: pa.Array, seed: U64) -> U64:
    """XXH64 of variable-length values: a pass over all rows for each 32-byte stripe, 8-byte word, and so on."""
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    every = np.frombuffer(column.buffers()[1] or b"", dtype=np.int64 if is_large else np.int32)
    offsets = every[column.offset : column.offset + len(column) + 1].astype(np.int64)
    made = native(len(column))
    if made is not None:
        hashes: U64 = made.hash_texts(np.frombuffer(column.buffers()[2] or b"", dtype=np.uint8), offsets, seed)
        return hashes
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    start, length = offsets[:-1] - first, np.diff(offsets)
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(column.buffers()[2], dtype=np.uint8)[first:last]
    mixed, at = _stripes(padded, start, length, seed)
    mixed = mixed + length.astype(np.uint64)
    end = start + length
    for width, mix in ((8, _mix_long), (4, _mix_int), (1, _mix_byte)):
        while (rows := np.flatnonzero(at + width <= end)).size:
            mixed[rows] = mix(mixed[rows], _words(padded, at[rows], width))
            at[rows] += width
    return _avalanche(mixed)


def _stripes(data: npt.NDArray[np.uint8], start: Any, length: Any, seed: U64) -> tuple[U64, npt.NDArray[np.int64]]:
    hashes = seed + _P5
    at = start.copy()
    long_rows = np.flatnonzero(length >= 32)
    if not long_rows.size:
        return hashes, at
    base = seed[long_rows]
    lanes = [base + _P1 + _P2, base + _P2, base.copy(), base - _P1]
    end = (start + length)[long_rows]
    position = start[long_rows].copy()
    while (rows := np.flatnonzero(position + 32 <= end)).size:
        for lane in range(4):
            word = _words(data, position[rows] + 8 * lane, 8)
            lanes[lane][rows] = _rotate(lanes[lane][rows] + word * _P2, 31) * _P1
        position[rows] += 32
    merged = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    for values in lanes:
        merged = (merged ^ (_rotate(values * _P2, 31) * _P1)) * _P1 + _P4
    hashes[long_rows], at[long_rows] = merged, position
    return hashes, at


def _words(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> U64:
    gathered = np.zeros((len(at), 8), dtype=np.uint8)
    gathered[:, :width] = data[at[:, None] + np.arange(width)]
    return gathered.view("<u8").ravel().astype(np.uint64, copy=False)


def _mix_long(hashes: U64, word: U64) -> U64:
    return _rotate(hashes ^ (_rotate(word * _P2, 31) * _P1), 27) * _P1 + _P4


def _mix_int(hashes: U64, word: U64) -> U64:
    return _rotate(hashes ^ (word * _P1), 23) * _P2 + _P3


def _mix_byte(hashes: U64, word: U64) -> U64:
    return _rotate(hashes ^ (word * _P5), 11) * _P1


def _rotate(values: U64, bits: int) -> U64:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(hashes: U64) -> U64:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _to_numpy(column: pa.Array) -> npt.NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


UNKEYED_HASH = hash_columns([pa.array([0], pa.int32())])[0][0]
"""The hash of `UNKEYED_KEY`."""
