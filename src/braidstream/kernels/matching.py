"""Whether a row has a match, and which partner is the newest: what outer, semi, anti and as-of joins ask.

A *needle* is a row that is decided; the rows that it may match are sorted by (hash, time), so those with its key whose
times fit are one range, found by binary search. Where nothing else decides a match, a range that is not empty is one.
Where more does (filters, comparisons, keys whose hashes may collide) candidates are looked at, a few of each needle
first: most rows that have a match have it among these.

The newest partner is the last row of the range that passes, going back from its end. Of several at the same time it is
the one that is largest in the columns that are asked for, so that it does not depend on who came first.

Comparisons are Spark's: NULL compares with nothing but by `<=>`, NaN equals NaN and is larger than all other numbers.

Cost: needles times the logarithm of the rows, for each part of them, plus candidates that are looked at. Known
limitation: a needle whose many candidates all fail looks at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels.join import LIMIT, UNBOUNDED, Composites, Pool, bisect, column, equal, expand, probe
from braidstream.kernels.loops import spans, unmatched
from braidstream.kernels.rows import I64, U64, Rows, key_columns, take, text_at
from braidstream.kernels.sizes import joined, one_chunk
from braidstream.model.stores import Comparison

__all__ = ["Needles", "Partners", "Span", "compare", "newest_partner", "satisfying", "turned"]

Flags = npt.NDArray[np.bool_]
_FIRST = 16
"""Candidates of each needle that are looked at first; then four times as many each time."""
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Span:
    """The times that a partner of a needle may have, relative to the needle's."""

    before_us: int | None
    """How much older it may be; None: any. Below 0: it is newer by at least that."""
    after_us: int | None

    def narrowed(self, least: int | None, most: int | None) -> Span:
        """Partners whose time less the needle's is within bounds as well."""
        before, after = self.before_us, self.after_us
        if least is not None:
            before = -least if before is None else min(before, -least)
        if most is not None:
            after = most if after is None else min(after, most)
        return Span(before, after)

    def bounds(self, times: I64, deadlines: I64 | None) -> tuple[I64, I64]:
        """The first and the last time for each needle; an intermediate result has a deadline instead of a window."""
        low = UNBOUNDED if self.before_us is None else self.before_us
        high = UNBOUNDED if self.after_us is None else self.after_us
        return times - low, times + high if deadlines is None else deadlines


@dataclass(frozen=True)
class Needles:
    """Rows that are decided: their hashes, the times of their partners, and the columns that decide, where some do."""

    hashes: U64
    low: I64
    high: I64
    """The first and the last time that a partner may have."""
    table: pa.Table | None
    """Keys and what is compared; None where hash and time are all."""

    @classmethod
    def of(cls, rows: Rows, index: I64, span: Span, on: Sequence[Comparison]) -> Needles:
        """Rows at some places."""
        deadlines = None if rows.deadlines is None else rows.deadlines[index]
        asked = [*key_columns(rows.table), *dict.fromkeys(one.left for one in on)]
        table = take(rows.table.select(asked), index) if asked else None
        return cls(rows.hashes[index], *span.bounds(rows.times[index], deadlines), table)

    def __len__(self) -> int:
        return len(self.hashes)

    def at(self, index: I64) -> Needles:
        """Some of them."""
        table = None if self.table is None else take(self.table, index)
        return Needles(self.hashes[index], self.low[index], self.high[index], table)

    def column(self, name: str) -> pa.Array:
        """A column that decides."""
        assert self.table is not None
        return one_chunk(self.table, name)


@dataclass(frozen=True)
class Partners:
    """The rows that needles may match, and what else than key and time decides: their filter, and comparisons.

    The left side of a comparison is the needle's.
    """

    rows: Rows
    bit: int | None = None
    on: tuple[Comparison, ...] = ()

    def unmatched(self, needles: Needles, left: I64) -> I64:
        """Of the needles at `left`, which ascend, those without a match."""
        if not self.is_tested:
            own, marked = self.rows, self.rows.marked(len(left))
            found = unmatched(own.hashes, own.times, needles.hashes, needles.low, needles.high, left, marked)
            if found is not None:
                return found
        asked = needles if len(left) == len(needles) else needles.at(left)
        return left[~(self._passing(asked) if self.is_tested else self._timely(asked))]

    def _passing(self, needles: Needles) -> Flags:
        """Which needles have a match, where candidates are looked at."""
        start, stop = self.ranges(needles)
        found = np.zeros(len(needles), dtype=np.bool_)
        open_, width = np.flatnonzero(stop > start), _FIRST
        while len(open_):
            end = np.minimum(start[open_] + width, stop[open_])
            for begin in range(0, len(open_), max(LIMIT // width, 1)):
                part = slice(begin, begin + max(LIMIT // width, 1))
                at, rows = expand(start[open_[part]], end[part])
                at = open_[part][at]
                found[at[self.passes(needles, at, rows)]] = True
            start[open_] = end
            open_ = open_[~found[open_] & (end < stop[open_])]
            width = min(width * 4, LIMIT)
        return found

    def _timely(self, needles: Needles) -> Flags:
        """Which needles have a row with their hash at a time that fits: mostly the first row with it tells."""
        hashes, times = self.rows.hashes, self.rows.times
        found = np.zeros(len(needles), dtype=np.bool_)
        if not len(hashes):
            return found
        at = np.searchsorted(hashes, needles.hashes)
        at[at == len(hashes)] = 0
        own = np.flatnonzero(hashes[at] == needles.hashes)
        first, low, high = at[own], needles.low[own], needles.high[own]
        time = times[first]
        fits = (time >= low) & (time <= high)
        if len(older := np.flatnonzero(time < low)):  # there may be newer ones
            end = np.searchsorted(hashes, needles.hashes[own[older]], side="right")
            begin = bisect(times, first[older] + 1, end, low[older])
            fits[older] = (begin < end) & (times[np.minimum(begin, len(times) - 1)] <= high[older])
        found[own[fits]] = True
        return found

    def ranges(self, needles: Needles) -> tuple[I64, I64]:
        """For each needle the rows with its hash and with times that fit."""
        found = spans(self.rows.hashes, self.rows.times, needles.hashes, needles.low, needles.high)
        if found is not None:
            return found
        start, stop = probe(self.rows.hashes, needles.hashes)
        some = np.flatnonzero(stop > start)
        begin, end = start[some], stop[some]
        start[some] = bisect(self.rows.times, begin, end, needles.low[some])
        stop[some] = bisect(self.rows.times, begin, end, needles.high[some] + 1)
        return start, stop

    @property
    def is_tested(self) -> bool:
        """Whether more than hash and time decides."""
        has_filter = self.bit is not None and self.rows.masks is not None
        return has_filter or bool(self.on) or bool(key_columns(self.rows.table))

    def passes(self, needles: Needles, at: I64, rows: I64) -> Flags:
        """Which of the candidates, `rows` for the needles `at`, are matches."""
        passing = np.ones(len(rows), dtype=np.bool_)
        if self.bit is not None and self.rows.masks is not None:
            passing &= (self.rows.masks[rows] & (1 << self.bit)) != 0
        for name in key_columns(self.rows.table):
            self._narrow(passing, needles, name, name, at, rows, equal)
        for one in self.on:
            self._narrow(passing, needles, one.left, one.right, at, rows, _comparing(one.operator))
        return passing

    def _narrow(
        self,
        passing: Flags,
        needles: Needles,
        left: str,
        right: str,
        at: I64,
        rows: I64,
        holds: Callable[[pa.Array, pa.Array], Flags],
    ) -> None:
        """Leave only candidates of which a needle's column and a row's column hold."""
        own = np.flatnonzero(passing)
        one, other = needles.column(left), one_chunk(self.rows.table, right)
        passing[own] = holds(one.take(pa.array(at[own])), other.take(pa.array(rows[own])))


def turned(on: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Comparisons with their sides exchanged."""
    return tuple(Comparison(one.right, _TURNED.get(one.operator, one.operator), one.left) for one in on)


def satisfying(pools: Sequence[Pool], found: Composites, on: Sequence[Comparison]) -> Composites:
    """The composites of two inputs that satisfy comparisons."""
    if not on:
        return found
    holds = np.ones(len(found), dtype=np.bool_)
    for one in on:
        left = column(pools[0], one.left, found.index[0])
        holds &= compare(one.operator, left, column(pools[1], one.right, found.index[1]))
    return found if holds.all() else found.at(np.flatnonzero(holds))


def compare(operator: str, left: pa.Array, right: pa.Array) -> Flags:
    """Which pairs of values satisfy a comparison, as Spark compares them."""
    if left.type != right.type:
        right = right.cast(left.type)
    if pa.types.is_boolean(left.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    if operator == "<=>":
        return equal(left, right) | _flags(pc.and_(pc.is_null(left), pc.is_null(right)))
    if operator == "=":
        return equal(left, right)
    known = _flags(pc.and_(pc.is_valid(left), pc.is_valid(right)))
    if operator == "!=":
        return np.asarray(known & ~equal(left, right))
    if operator in (">", ">="):
        left, right = right, left
    less = _flags(pc.less(left, right))
    if pa.types.is_floating(left.type):
        less |= _flags(pc.and_(pc.invert(pc.is_nan(left)), pc.is_nan(right)))
    return less if operator in ("<", ">") else less | equal(left, right)


def _comparing(operator: str) -> Callable[[pa.Array, pa.Array], Flags]:
    return lambda left, right: compare(operator, left, right)


def _flags(values: Any) -> Flags:
    return np.asarray(pc.fill_null(values, fill_value=False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def newest_partner(needles: Needles, parts: Sequence[Partners], columns: Sequence[str]) -> tuple[pa.Table | None, I64]:
    """Rows of which each needle's newest partner is one, and for each needle which; -1 where it has none.

    Among partners of one time it is the one that is largest in `columns`, the first of them first.
    """
    index: I64 = np.full(len(needles), -1, dtype=np.int64)
    found = [_newest(needles, part) for part in parts]
    if not found:
        return None, index
    times = np.stack([time for _, _, time in found])
    best = times.max(axis=0)
    at, rows, tables, n_before = [], [], [], 0
    for part, (start, stop, time) in zip(parts, found, strict=True):
        own = np.flatnonzero((time == best) & (stop > start))
        needle, row = _tied(needles, part, own, start, stop, best)
        used, place = np.unique(row, return_inverse=True)
        tables.append(take(part.rows.table, used))
        at.append(needle)
        rows.append(place + n_before)
        n_before += len(used)
    table, needle, row = joined(tables), np.concatenate(at), np.concatenate(rows)
    order = _ranked(table, needle, row, columns)
    index[needle[order]] = row[order]  # the last of each needle stays
    return table, index


def _newest(needles: Needles, part: Partners) -> tuple[I64, I64, I64]:
    """For each needle the rows of a part until its newest partner, and the time of that; -UNBOUNDED: it has none."""
    start, stop = part.ranges(needles)
    open_ = np.flatnonzero(stop > start) if part.is_tested else np.empty(0, dtype=np.int64)
    while len(open_):
        failed = open_[~part.passes(needles, open_, stop[open_] - 1)]
        stop[failed] -= 1
        open_ = failed[stop[failed] > start[failed]]
    times = np.full(len(needles), -2 * UNBOUNDED, dtype=np.int64)
    some = stop > start
    times[some] = part.rows.times[stop[some] - 1]
    return start, stop, times


def _tied(needles: Needles, part: Partners, own: I64, start: I64, stop: I64, best: I64) -> tuple[I64, I64]:
    """The partners of some needles that have the newest time, as (needle, row) pairs."""
    first = bisect(part.rows.times, start[own], stop[own], best[own])
    at, rows = expand(first, stop[own])
    at = own[at]
    if part.is_tested and len(at) > len(own):
        passing = part.passes(needles, at, rows)
        at, rows = at[passing], rows[passing]
    return at, rows


def _ranked(table: pa.Table, needle: I64, row: I64, columns: Sequence[str]) -> I64:
    """The order of candidates in which the largest of each needle comes last; of those that are alone, any."""
    count = np.bincount(needle) if len(needle) else np.zeros(0, dtype=np.int64)
    alone = count[needle] == 1
    if alone.all():
        return np.arange(len(needle))
    several = np.flatnonzero(~alone)
    chosen = table.take(pa.array(row[several]))
    keys: dict[str, Any] = {f"c{i}": _sortable(chosen.column(name)) for i, name in enumerate(columns)}
    if not keys:
        return np.arange(len(needle))
    order = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys], null_placement="at_start")
    return np.concatenate([np.flatnonzero(alone), several[np.asarray(order)]])


def _sortable(values: pa.ChunkedArray) -> Any:
    """A column in a form that Arrow sorts, NULL first: nested values by their text, of which there are few."""
    if pa.types.is_nested(values.type):
        return pa.array([text_at(values, i) if values[i].is_valid else None for i in range(len(values))], pa.string())
    return values
