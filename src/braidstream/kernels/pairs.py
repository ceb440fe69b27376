"""Pairs of two inputs without an equality: found in a band by sorting, or block against block (WSJ IV-D).

A *band* bounds the difference or the sum of two numbers. Where there is one, one side is in the order of its number
(`Sorted`), and for each row of the other side two binary searches find the range of its partners. Where there is none,
every pair within the windows is looked at: blocks of one side against blocks of the other, each a few NumPy operations
over all pairs at once (`kernels.blocks`), and only the blocks whose times may fit. What is compared there are the ranks
of values among those of the two blocks, so that texts are looked at once for a block and not once for a pair.

Whole numbers are compared exactly. Others are searched as doubles, with a slack for rounding: what is found contains
every match, and the predicate itself is evaluated afterwards. What is no finite number (NaN is larger than all others
to Spark, and infinite ones subtract to it) is a candidate for everything. NULL is in no band.

Invariant: a pair within windows, gaps, bands and comparisons is given once; no array has more than `limit` pairs.
Cost: in a band, needles times the logarithm of the sorted rows, and pairs in the band, whatever their times; in blocks,
all pairs whose times may fit. Known limitation: a band that most pairs are in costs as much as blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels.blocks import Columns, block_pairs
from braidstream.kernels.join import LIMIT, UNBOUNDED, chunks
from braidstream.kernels.matching import compare
from braidstream.kernels.rows import I64, Rows
from braidstream.kernels.sizes import one_chunk
from braidstream.model.stores import Comparison, Join, JoinBand

__all__ = ["Pairing", "Side", "Sorted"]

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]
Found = Iterator[tuple[I64, I64]]
_BLOCK_ROWS = 1 << 14
"""Rows of a block that is compared with needles: what is compared of them stays in the processor's caches."""
_NEEDLES = 1 << 10
_LEAST, _MOST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Side:
    """Rows of one input, ascending in time: the place that it has in the join, and the bit of its filter."""

    rows: Rows
    place: int
    bit: int | None = None
    _numbers: dict[tuple[str, bool], tuple[Numbers, Flags]] = field(default_factory=dict, compare=False, repr=False)

    def passing(self) -> I64:
        """The rows that pass the filter."""
        if self.bit is None or self.rows.masks is None:
            return np.arange(len(self.rows))
        return np.flatnonzero(self.rows.masks & (1 << self.bit))

    def numbers(self, band: JoinBand) -> tuple[Numbers, Flags]:
        """What a band is about, as whole numbers or doubles, and where it is not NULL."""
        key = (band.left if self.place == 0 else band.right, band.is_whole)
        if key not in self._numbers:
            self._numbers[key] = _numbers(one_chunk(self.rows.table, key[0]), is_whole=band.is_whole)
        return self._numbers[key]

    def sorted(self, band: JoinBand) -> Sorted:
        """The rows in the order of a band's number."""
        values, valid = self.numbers(band)
        at = np.flatnonzero(valid)
        is_finite = np.isfinite(values[at])
        finite, odd = at[is_finite], at[~is_finite]
        order = np.concatenate([finite[np.argsort(values[finite], kind="stable")], odd])
        return Sorted(order, values[order[: len(finite)]])


@dataclass(frozen=True)
class Sorted:
    """Rows in the order of a number: those with a finite one, and behind them the others; none where it is NULL."""

    order: I64
    values: Numbers
    """Of the finite ones."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return int(self.order.nbytes + self.values.nbytes)


def _numbers(values: pa.Array, *, is_whole: bool) -> tuple[Numbers, Flags]:
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    if is_whole and pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    plain = values.cast(pa.int64()).fill_null(0) if is_whole else values.cast(pa.float64()).fill_null(0.0)
    return np.asarray(plain.to_numpy(zero_copy_only=False)), valid


@dataclass(frozen=True)
class Pairing:
    """What pairs of a join without an equality satisfy."""

    low_us: int
    high_us: int
    """The time of the second input less that of the first lies between these."""
    bands: tuple[JoinBand, ...] = ()
    on: tuple[Comparison, ...] = ()
    limit: int = LIMIT
    sorts: bool = True
    """Whether bands are found by sorting; else they are compared in blocks, as anything else."""

    @classmethod
    def of(cls, join: Join, limit: int = LIMIT) -> Pairing:
        """What a join says by its windows, gaps, bands and comparisons."""
        first, second = (entry.window_us for entry in join.inputs)
        low, high = -UNBOUNDED if second is None else -second, UNBOUNDED if first is None else first
        for gap in join.gaps:
            bounds = (gap.low_us, gap.high_us)
            least, most = bounds if gap.left == 0 else tuple(None if b is None else -b for b in reversed(bounds))
            low, high = low if least is None else max(low, least), high if most is None else min(high, most)
        return cls(low, high, join.bands, join.on, limit)

    @property
    def band(self) -> JoinBand | None:
        """What rows are sorted by."""
        return self.bands[0] if self.bands and self.sorts else None

    def may_meet(self, needles: Side, oldest: int, newest: int) -> bool:
        """Whether rows with times from one to another may be partners of needles."""
        times, (low, high) = needles.rows.times, self._span(needles.place)
        return bool(newest >= int(times[0]) + low and oldest <= int(times[-1]) + high)

    def within(self, needles: Side, rows: Side, order: Sorted | None = None) -> Found:
        """The pairs of needles and rows of the other input, as positions in both.

        `order` are the rows in the order of `band`, where it is known already.
        """
        if not len(needles.rows) or not len(rows.rows):
            return
        if self.band is None:
            candidates = self._in_blocks(needles, rows)
        else:
            candidates = self._in_band(self.band, needles, rows.sorted(self.band) if order is None else order)
        for at, found in candidates:
            keep = self._kept(needles, rows, at, found)
            if keep.any():
                yield (at, found) if keep.all() else (at[keep], found[keep])

    def _span(self, place: int) -> tuple[int, int]:
        """The time of a partner less that of a needle, which is of the input at `place`."""
        return (self.low_us, self.high_us) if place == 0 else (-self.high_us, -self.low_us)

    def _in_band(self, band: JoinBand, needles: Side, known: Sorted) -> Found:
        values, valid = needles.numbers(band)
        chosen = needles.passing()
        chosen = chosen[valid[chosen]]
        low, high = _bounds(band, needles.place, values[chosen])
        start = np.searchsorted(known.values, low)
        stop = np.maximum(np.searchsorted(known.values, high, side="right"), start)
        if not band.is_whole:
            odd = ~np.isfinite(values[chosen])
            start[odd], stop[odd] = 0, len(known.values)
        for at, found in chunks(start, stop, self.limit):
            yield chosen[at], known.order[found]
        if len(known.order) > len(known.values):
            first, last = (np.full(len(chosen), len(side)) for side in (known.values, known.order))
            for at, found in chunks(first, last, self.limit):
                yield chosen[at], known.order[found]

    def _in_blocks(self, needles: Side, rows: Side) -> Found:
        """Blocks of needles, which ascend in time, against the blocks of rows, which do too, whose times may fit."""
        (low, high), times = self._span(needles.place), rows.rows.times
        chosen = needles.passing()
        for top in range(0, len(chosen), _NEEDLES):
            at = chosen[top : top + _NEEDLES]
            first, last = needles.rows.times[at[0]] + low, needles.rows.times[at[-1]] + high
            begin, end = np.searchsorted(times, first), np.searchsorted(times, last, side="right")
            for start in range(int(begin), int(end), _BLOCK_ROWS):
                yield from self._block(needles, rows, at, np.arange(start, min(start + _BLOCK_ROWS, int(end))))

    def _block(self, needles: Side, rows: Side, at: I64, found: I64) -> Found:
        own, other = self._columns(needles, at), self._columns(rows, found)
        is_first = needles.place == 0
        left, right = (own, other) if is_first else (other, own)
        for i, one in self._ranked(needles):
            names = (one.left, one.right) if is_first else (one.right, one.left)
            mine, theirs = _ranks(_taken(needles, names[0], at), _taken(rows, names[1], found))
            own[f"on {i}"], other[f"on {i}"] = mine, theirs
        for a, b in block_pairs(left, right, predicate=self._holds):
            yield (at[a], found[b]) if is_first else (at[b], found[a])

    def _ranked(self, side: Side) -> list[tuple[int, Comparison]]:
        """The comparisons that are evaluated in blocks, by ranks: of values that Arrow ranks as Spark compares them.

        Both sides of a comparison are of one type, so it does not matter which side is asked.
        """
        if self.band is not None:
            return []
        names = (one.left if side.place == 0 else one.right for one in self.on)
        kinds = (side.rows.table.schema.field(name).type for name in names)
        return [(i, one) for i, (one, kind) in enumerate(zip(self.on, kinds, strict=True)) if _is_ranked(kind)]

    def _columns(self, side: Side, index: I64) -> dict[str, Numbers]:
        columns: dict[str, Numbers] = {"time": side.rows.times[index]}
        for i, band in enumerate(self.bands):
            values, valid = side.numbers(band)
            columns |= {f"{i}": values[index], f"{i}?": valid[index]}
        return columns

    def _holds(self, left: Columns, right: Columns) -> Flags:
        """Which pairs of two blocks are within windows and bands."""
        apart = right["time"] - left["time"]
        holds: Flags = (apart >= self.low_us) & (apart <= self.high_us)
        for i, band in enumerate(self.bands):
            holds &= left[f"{i}?"] & right[f"{i}?"] & _is_within(band, left[f"{i}"], right[f"{i}"])
        for i, one in enumerate(self.on):
            if f"on {i}" in left:
                holds &= _compared(one.operator, left[f"on {i}"], right[f"on {i}"])
        return holds

    def _kept(self, needles: Side, rows: Side, at: I64, found: I64) -> Flags:
        """Which candidates are pairs."""
        keep = np.ones(len(at), dtype=np.bool_)
        if rows.bit is not None and rows.rows.masks is not None:
            keep &= (rows.rows.masks[found] & (1 << rows.bit)) != 0
        (left, first), (right, second) = ((needles, at), (rows, found))[:: 1 if needles.place == 0 else -1]
        if self.band is not None:
            apart = right.rows.times[second] - left.rows.times[first]
            keep &= (apart >= self.low_us) & (apart <= self.high_us)
            for band in self.bands[1:]:
                a, has_a = _numbers(_taken(left, band.left, first), is_whole=band.is_whole)
                b, has_b = _numbers(_taken(right, band.right, second), is_whole=band.is_whole)
                keep &= has_a & has_b & _is_within(band, a, b)
        done = {i for i, _ in self._ranked(left)}
        for one in (one for i, one in enumerate(self.on) if i not in done):
            chosen = np.flatnonzero(keep)
            values, others = _taken(left, one.left, first[chosen]), _taken(right, one.right, second[chosen])
            keep[chosen] = compare(one.operator, values, others)
        return keep


def _taken(side: Side, name: str, index: I64) -> pa.Array:
    return one_chunk(side.rows.table, name).take(pa.array(index))


def _is_ranked(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_temporal)
    return any(test(kind) for test in tests)


def _ranks(one: pa.Array, other: pa.Array) -> tuple[I64, I64]:
    """Numbers that compare as the values of two arrays do; 0 for NULL."""
    kind = one.type if one.type == other.type or not pa.types.is_large_string(other.type) else other.type
    both = pa.chunked_array([one.cast(kind), other.cast(kind)])
    valid = np.asarray(both.is_valid().to_numpy(), dtype=np.bool_)
    ranks = np.asarray(pc.rank(both, "ascending", tiebreaker="dense")).astype(np.int64) * valid
    return ranks[: len(one)], ranks[len(one) :]


def _compared(operator: str, left: Numbers, right: Numbers) -> Flags:
    """Which ranks compare so; 0 compares with nothing but by `<=>`."""
    if operator == "<=>":
        return np.asarray(left == right)
    found = {"=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater}
    return np.asarray(found.get(operator, np.greater_equal)(left, right) & (left > 0) & (right > 0))


def _is_within(band: JoinBand, left: Numbers, right: Numbers) -> Flags:
    """Whether two numbers are in a band, or may be, as far as rounding allows to tell."""
    low, high = _bounds(band, 0, left)
    is_in = (right >= low) & (right <= high)
    return np.asarray(is_in if band.is_whole else is_in | ~np.isfinite(left) | ~np.isfinite(right))


def _bounds(band: JoinBand, place: int, values: Numbers) -> tuple[Numbers, Numbers]:
    """The least and the largest number of the other input for each of those of the input at `place`."""
    low, high = band.low, band.high
    if not band.is_sum and place == 0:
        low, high = (None if bound is None else -bound for bound in (high, low))
    if band.is_whole:
        return _whole_bounds(values, low, high, is_negated=band.is_sum)
    values = -values if band.is_sum else values
    with np.errstate(invalid="ignore"):  # infinite ones are looked at apart
        room = band.slack * np.abs(values)
        least = np.full_like(values, -np.inf) if low is None else values + low - room - band.slack * abs(low)
        most = np.full_like(values, np.inf) if high is None else values + high + room + band.slack * abs(high)
    return least, most


def _whole_bounds(values: I64, low: float | None, high: float | None, *, is_negated: bool) -> tuple[I64, I64]:
    """Whole numbers, or their opposites, plus two bounds; a range that has no number in 64 bits ends before it begins.

    The opposite of the least number is none: it is the largest one, and 1 more is added to it.
    """
    more = 0
    if is_negated:
        more, values = (values == _LEAST).astype(np.int64), -np.maximum(values, -_MOST)
    least, is_above = (np.full_like(values, _LEAST), False) if low is None else _shifted(values, int(low), more)[:2]
    most, is_below = (np.full_like(values, _MOST), False) if high is None else _shifted(values, int(high), more)[::2]
    is_empty = np.logical_or(is_above, is_below)
    return np.where(is_empty, _MOST, least), np.where(is_empty, _LEAST, most)


def _shifted(values: I64, by: int, more: I64 | int) -> tuple[I64, Flags, Flags]:
    """Numbers plus others, the nearest of 64 bits where that is none of them, and where it is above or below all."""
    steps = by + more
    above = values > _MOST - np.maximum(steps, 0)
    below = values < _LEAST - np.minimum(steps, 0)
    with np.errstate(over="ignore"):
        moved = values + steps
    return np.where(above, _MOST, np.where(below, _LEAST, moved)), above, below
