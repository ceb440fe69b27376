"""The join of one slot in one epoch: new tuples against new and stored ones, for m streams on one key.

The idea, in two steps. *Gather*: of each stored segment only the rows whose key occurs among this epoch's new tuples of
the other inputs are taken, into one small sorted table an input. *Extend*: for each input i in turn, its new tuples are
extended input by input to composites (MJoin; DHTJoin 3.3.1): by the stored tuples of every other input, and by the new
ones of the inputs before i. So a composite comes from exactly one i, that of its last new component in input order, and
is produced once, in the epoch in which its last component arrives.

The window: with t* the newest time of a composite, t* - si.t <= Wi for every i, which is the same as
tj - si.t <= Wi for every pair; *gaps* bound tj - si.t for single pairs, from above and from below. So the times that
may extend a composite are one interval, found by binary search. An
intermediate result stands for its components by two numbers, its newest time and its deadline min(si.t + Wi): two parts
of a composite fit iff neither is newer than the other's deadline.

A join *across* generations of a group (D-CAPE 4.2, equation 1, for any m) takes the later generation as new and the
earlier ones as stored, and leaves out composites of new tuples alone, which were produced while that was active.

Invariant: no array has more than `limit` composites at once, whatever one key holds, and the columns that are taken of
a batch of them have no more than `most_bytes`, whatever one row holds. Of each input a batch has either stored rows or
new ones, never both, so that the two need not be put together.

Cost: new tuples times (number of segments, each a binary search), plus gathered rows, plus matches. The length of the
window appears only in the logarithm. Known limitation: for m > 2 a gathered row may end in no composite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels import sizes
from braidstream.kernels.loops import matches, members
from braidstream.kernels.rows import I64, U64, Rows, key_columns
from braidstream.model.stores import JoinGap

__all__ = [
    "LIMIT", "Composites", "Pool", "Widths", "batch_bytes", "bisect", "chunks", "composites", "expand", "gather",
    "limit_of", "probe",
]  # fmt: skip

LIMIT = 1 << 17
"""Composites produced at once: 131,072 indices are 1 MB. Larger arrays fall out of the caches, and the pages of each
are mapped anew: with twice as many a composite costs nearly twice as much."""
Flags = npt.NDArray[np.bool_]
UNBOUNDED = np.iinfo(np.int64).max // 4
"""What an unbounded window counts as: a deadline of more than half of it never comes."""
_LEAST = 1 << 12
"""Composites produced at once where memory is short: fewer would cost more in calls than they save."""
_LEAST_BYTES = 1 << 20
_FEW = 16
"""Runs of at most this many rows of one key are filtered by time after expansion, longer ones by binary search."""


@dataclass(frozen=True)
class Pool:
    """What an epoch joins of one input: `stored` rows that may match, and `new` rows.

    Rows are counted through, the stored ones first: that is what composite indices refer to.
    """

    stored: Rows
    new: Rows

    def holder(self, index: I64) -> tuple[Rows, int]:
        """The rows, stored or new, that indices of one batch of composites refer to, and the number of the first."""
        before = len(self.stored)
        return (self.new, before) if len(index) and index[0] >= before else (self.stored, 0)


def batch_bytes(most_bytes: int | None) -> int:
    """What a batch of composites may take where pieces of memory are so large; None is no limit."""
    return sizes.BATCH_BYTES if most_bytes is None else min(sizes.BATCH_BYTES, max(most_bytes, _LEAST_BYTES))


def limit_of(pools: Sequence[Pool], most_bytes: int | None) -> int:
    """How many composites to produce at once so that their columns take about `most_bytes`; None is no limit."""
    if most_bytes is None:
        return LIMIT
    widths = (side.table.nbytes / len(side) for pool in pools for side in (pool.new, pool.stored) if len(side))
    return min(LIMIT, max(int(most_bytes / max(sum(widths), 1.0)), _LEAST))


@dataclass(frozen=True)
class Composites:
    """A batch of composites: for each input the rows in its pool's table. `source` is the input they come from."""

    source: int
    index: tuple[I64, ...]
    offset: int
    """Where the new rows of `source` begin in its pool: index[source] - offset is ascending."""
    times_and_deadlines: Callable[[], tuple[I64, I64]]
    """The newest time and the deadline of each composite, where they are asked for."""

    def __len__(self) -> int:
        return len(self.index[0])

    def part(self, begin: int, end: int) -> Composites:
        """Some of them."""
        if (begin, end) == (0, len(self)):
            return self

        def own() -> tuple[I64, I64]:
            times, deadlines = self.times_and_deadlines()
            return times[begin:end], deadlines[begin:end]

        return Composites(self.source, tuple(rows[begin:end] for rows in self.index), self.offset, own)

    def at(self, chosen: I64) -> Composites:
        """Those at some places, ascending."""

        def own() -> tuple[I64, I64]:
            times, deadlines = self.times_and_deadlines()
            return times[chosen], deadlines[chosen]

        return Composites(self.source, tuple(rows[chosen] for rows in self.index), self.offset, own)


def gather(segment: Rows, hashes: U64, watermark: int | None, window_us: int | None) -> I64:
    """The rows of a segment whose key hash is among `hashes` (distinct, ascending) and which are not expired."""
    if not len(segment) or not len(hashes):
        return np.empty(0, dtype=np.int64)
    found = members(segment.hashes, hashes)
    if found is not None:
        rows = found
    elif len(segment) <= 2 * len(hashes):
        at = np.searchsorted(hashes, segment.hashes)
        at[at == len(hashes)] = 0
        rows = np.flatnonzero(hashes[at] == segment.hashes)
    else:
        _, rows = expand(*probe(segment.hashes, hashes))
    alive = segment.alive(watermark, window_us)
    return rows if alive is None else rows[alive[rows]]


def probe(build: U64, hashes: U64) -> tuple[I64, I64]:
    """For each hash the range of rows of `build` (ascending) that have it; empty ranges for the others."""
    start = np.searchsorted(build, hashes)
    found = np.zeros(len(hashes), dtype=np.bool_)
    inside = start < len(build)
    found[inside] = build[start[inside]] == hashes[inside]
    stop = start.copy()
    stop[found] = np.searchsorted(build, hashes[found], side="right")
    return start, stop


def expand(start: I64, stop: I64) -> tuple[I64, I64]:
    """All (needle, row) pairs of the ranges [start, stop)."""
    count = stop - start
    needles = np.repeat(np.arange(len(count)), count)
    rows = np.repeat(start - (np.cumsum(count) - count), count)
    rows += np.arange(len(rows))
    return needles, rows


def composites(
    pools: Sequence[Pool],
    windows: Sequence[int | None],
    order: Sequence[Sequence[int]] | None = None,
    bits: Sequence[int | None] | None = None,
    limit: int = LIMIT,
    probes: dict[int, list[int]] | None = None,
    *,
    lives: bool = False,
    across: bool = False,
    taken: Sequence[Collection[str]] | None = None,
    most_bytes: int | None = None,
    gaps: Sequence[JoinGap] = (),
) -> Iterator[Composites]:
    """All composites that this epoch's new tuples complete. `order[i]` is the probing sequence of input i.

    `taken` are the columns of each input that are taken of the composites (None: all), and a batch is cut so that they
    have no more than `most_bytes` (None: `sizes.BATCH_BYTES`).

    `probes` collects for each input how often it was probed and how many matches that gave: its selectivity. With
    `lives` the times of the components may lie any distance apart: windows then only say when a composite ends.
    `gaps` are kept to beside the windows.
    `across` leaves out composites of new tuples alone: what is left is missing between two generations (D-CAPE 4.2).
    """
    m = len(pools)
    widths = Widths(pools, taken, sizes.BATCH_BYTES if most_bytes is None else most_bytes)
    spans = [UNBOUNDED if window is None else window for window in windows]
    for source in range(m):
        new = pools[source].new
        if not len(new):
            continue
        rows = np.arange(len(new))
        bit = None if bits is None else bits[source]
        if bit is not None and new.masks is not None:
            rows = np.flatnonzero(new.masks & (1 << bit))
        sequence = [j for j in range(m) if j != source] if order is None else list(order[source])
        offset = len(pools[source].stored)
        counts = {} if probes is None else probes
        partial = _Partial(pools, spans, bits, source, {source: rows}, new, limit, counts, lives, gaps, across)
        for done in partial.extend(sequence):
            index = tuple(done.bound[j] + offset if offset and j == source else done.bound[j] for j in range(m))
            yield from widths.cut(Composites(source, index, offset, done.times_and_deadlines))


class Widths:
    """What the columns that are taken of composites take: by input, of its stored and of its new rows."""

    def __init__(self, pools: Sequence[Pool], taken: Sequence[Collection[str]] | None, most_bytes: int) -> None:
        self._pools, self._taken, self._most = pools, taken, most_bytes
        self._sides: dict[tuple[int, bool], tuple[int, pa.Table]] = {}

    def cut(self, found: Composites) -> Iterator[Composites]:
        """A batch in pieces that do not take too much; nearly always it is one."""
        held = [pool.holder(index)[0].table for pool, index in zip(self._pools, found.index, strict=True)]
        if len(found) * sum(table.get_total_buffer_size() for table in held) <= self._most:
            yield found  # no row takes more than all of them
            return
        sides = [self._side(i, index) for i, index in enumerate(found.index)]
        if len(found) * sum(most for most, _, _ in sides) <= self._most:
            yield found
            return
        each = np.zeros(len(found), dtype=np.int64)
        for (_, table, first), index in zip(sides, found.index, strict=True):
            each += sizes.table_bytes(table)[index - first]
        for begin, end in sizes.cuts(each, self._most):
            yield found.part(begin, end)

    def _side(self, i: int, index: I64) -> tuple[int, pa.Table, int]:
        """Of the rows that indices refer to: what one takes at most, their columns, the number of the first."""
        rows, first = self._pools[i].holder(index)
        if (i, first > 0) not in self._sides:
            table = rows.table
            if self._taken is not None:
                table = table.select([name for name in table.column_names if name in self._taken[i]])
            self._sides[i, first > 0] = (sizes.widest(table), table)
        return *self._sides[i, first > 0], first


@dataclass(frozen=True)
class _Partial:
    """Composites under construction: rows of the bound inputs, all of one length (pool rows; of `source`: new rows)."""

    pools: Sequence[Pool]
    spans: Sequence[int]
    bits: Sequence[int | None] | None
    source: int
    bound: dict[int, I64]
    new: Rows
    limit: int
    probes: dict[int, list[int]]
    lives: bool
    gaps: Sequence[JoinGap] = ()
    is_fresh: bool = False
    """Whether only new tuples are bound so far and that must not stay so: the last input is then a stored one."""

    def extend(self, sequence: Sequence[int]) -> Iterator[_Partial]:
        if not sequence:
            if len(self.bound[self.source]):
                yield self
            return
        target, rest = sequence[0], sequence[1:]
        pool = self.pools[target]
        builds = [(pool.stored, 0)]
        if target < self.source and (rest or not self.is_fresh):
            builds.append((pool.new, len(pool.stored)))
        for build, offset in builds:
            if len(build) and len(self.bound[self.source]):
                yield from self._extend_by(target, build, offset, rest)

    def _extend_by(self, target: int, build: Rows, offset: int, rest: Sequence[int]) -> Iterator[_Partial]:
        newest, low, high = self._bounds(target, build)
        hashes = self._of_source(self.new.hashes)
        counts = self.probes.setdefault(target, [0, 0])
        counts[0] += len(hashes)
        for needles, rows in _pairs(build, hashes, low, high, self.limit):
            keep = None
            if build.deadlines is not None and not self.lives:
                keep = _both(keep, build.deadlines[rows] >= newest[needles])
            keep = _both(keep, self._passes(target, build, rows))
            fitting, found = (needles, rows) if keep is None else (needles[keep], rows[keep])
            same = self._same_keys(build, found, fitting)
            if same is not None:
                fitting, found = fitting[same], found[same]
            bound = {j: self._chosen(j, fitting) for j in self.bound}
            bound[target] = found + offset if offset else found
            counts[1] += len(found)
            is_fresh = self.is_fresh and build is self.pools[target].new
            yield from replace(self, bound=bound, is_fresh=is_fresh).extend(rest)

    @cached_property
    def _has_all(self) -> bool:
        """Whether nothing but the source is bound yet, with all its new rows."""
        return len(self.bound) == 1 and len(self.bound[self.source]) == len(self.new)

    def _of_source(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of the source's new rows that are bound."""
        return values if self._has_all else values[self.bound[self.source]]

    def _chosen(self, j: int, needles: I64) -> I64:
        """The rows of a bound input that some of the partial composites have."""
        return needles if self._has_all else np.take(self.bound[j], needles)

    def _bounds(self, target: int, build: Rows) -> tuple[I64, I64, I64]:
        """Of each partial composite: its newest time, and the interval of times that may extend it."""
        newest, high = self.times_and_deadlines()
        if self.lives:
            return newest, np.full_like(newest, -UNBOUNDED), np.full_like(newest, UNBOUNDED)
        low = np.full_like(newest, -UNBOUNDED) if build.deadlines is not None else newest - self.spans[target]
        for other, nearest, farthest in self._gaps_of(target):
            times = self._values(other, lambda rows: rows.times)
            if nearest is not None:
                low = np.maximum(low, times + nearest)
            if farthest is not None:
                high = np.minimum(high, times + farthest)
        return newest, low, high

    def _gaps_of(self, target: int) -> Iterator[tuple[int, int | None, int | None]]:
        """For bound inputs with a gap to `target`: the bounds on (target's time - their time)."""
        for gap in self.gaps:
            if gap.right == target and gap.left in self.bound:
                yield gap.left, gap.low_us, gap.high_us
            elif gap.left == target and gap.right in self.bound:
                low, high = gap.low_us, gap.high_us
                yield gap.right, None if high is None else -high, None if low is None else -low

    def times_and_deadlines(self) -> tuple[I64, I64]:
        """Of each partial composite: its newest time, and the latest time that a tuple may have to extend it."""
        newest = high = None
        for j in self.bound:
            times = self._values(j, lambda rows: rows.times)
            deadlines = times + self.spans[j]
            if self.pools[j].new.deadlines is not None:
                deadlines = self._values(j, _deadlines)
            newest = times if newest is None else np.maximum(newest, times)
            high = deadlines if high is None else np.minimum(high, deadlines)
        assert newest is not None
        assert high is not None
        return newest, high

    def _values(self, j: int, of: Callable[[Rows], I64]) -> I64:
        rows, pool = self.bound[j], self.pools[j]
        if j == self.source:
            return self._of_source(of(self.new))
        from_new = _safe_take(of(pool.new), rows - len(pool.stored))
        return np.where(rows < len(pool.stored), _safe_take(of(pool.stored), rows), from_new)

    def _passes(self, target: int, build: Rows, rows: I64) -> Flags | None:
        bit = None if self.bits is None else self.bits[target]
        return None if bit is None or build.masks is None else (build.masks[rows] & (1 << bit)) != 0

    def _same_keys(self, build: Rows, rows: I64, needles: I64) -> Flags | None:
        """Compare the real keys where hashes may collide; None where they cannot."""
        names = key_columns(build.table)
        if not names or not len(rows):
            return None
        own = self.bound[self.source][needles]
        same = np.ones(len(rows), dtype=np.bool_)
        at_once = max(sizes.BATCH_BYTES // max(self.new.longest_key, build.longest_key, 1), 1)
        for name in names:
            left, right = sizes.one_chunk(self.new.table, name), sizes.one_chunk(build.table, name)
            for begin in range(0, len(rows), at_once):
                part = slice(begin, begin + at_once)
                same[part] &= equal(left.take(pa.array(own[part])), right.take(pa.array(rows[part])))
        return None if same.all() else same


def equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether keys are equal as Spark compares them: NaN equals NaN, NULL equals nothing."""
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return np.asarray(pc.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _both(one: Flags | None, other: Flags | None) -> Flags | None:
    """The rows that pass two filters; None is one that all pass."""
    return other if one is None else one if other is None else one & other


def _pairs(build: Rows, hashes: U64, low: I64, high: I64, limit: int) -> Iterator[tuple[I64, I64]]:
    """(needle, row) for all rows of `build` with the hash of a needle and a time in [low, high], by needle.

    Hashes of needles ascend. At most `limit` pairs at a time.
    """
    found = matches(build.hashes, build.times, hashes, low, high, limit, build.marked(len(hashes)))
    if found is not None:
        yield from found
        return
    start, stop, is_narrow = _ranges(build, hashes, low, high)
    for needles, rows in chunks(start, stop, limit):
        if is_narrow[needles[0] : needles[-1] + 1].all():
            yield needles, rows
            continue
        times = build.times[rows]
        keep = (times >= low[needles]) & (times <= high[needles])
        yield needles[keep], rows[keep]


def _ranges(build: Rows, hashes: U64, low: I64, high: I64) -> tuple[I64, I64, Flags]:
    """For each needle the rows of `build` with its hash, and whether they are those with times in [low, high] already.

    That is so for long runs, where the times are narrowed by binary search, and where there are no rows.
    """
    start, stop = probe(build.hashes, hashes)
    is_narrow = stop - start > _FEW
    long_runs = np.flatnonzero(is_narrow)
    if len(long_runs):
        begin, end = start[long_runs], stop[long_runs]
        start[long_runs] = bisect(build.times, begin, end, low[long_runs])
        last = bisect(build.times, begin, end, high[long_runs] + 1)
        stop[long_runs] = np.maximum(last, start[long_runs])  # no time may fit at all
    return start, stop, is_narrow | (stop <= start)


def bisect(times: I64, start: I64, stop: I64, target: I64) -> I64:
    """The first row in each [start, stop) whose time is at least `target`: one binary search for all at once."""
    low, high = start.copy(), stop.copy()
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) >> 1
        before = times[middle] < target[open_]
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
    return low


def chunks(start: I64, stop: I64, limit: int) -> Iterator[tuple[I64, I64]]:
    """The pairs of `expand`, at most `limit` at a time, even where one needle alone has more."""
    count = stop - start
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    if total <= limit:
        if total:
            yield expand(start, stop)
        return
    for begin in range(0, total, limit):
        end = min(begin + limit, total)
        first = int(np.searchsorted(ends, begin, side="right"))
        last = int(np.searchsorted(ends, end, side="left")) + 1
        part_start, part_stop = start[first:last].copy(), stop[first:last].copy()
        part_start[0] += begin - (ends[first] - count[first])
        part_stop[-1] -= ends[last - 1] - end
        needles, rows = expand(part_start, part_stop)
        yield needles + first, rows


def _deadlines(rows: Rows) -> I64:
    return rows.times if rows.deadlines is None else rows.deadlines


def _safe_take(values: I64, rows: I64) -> I64:
    return values[np.clip(rows, 0, len(values) - 1)] if len(values) else np.zeros(len(rows), dtype=np.int64)


def column(pool: Pool, name: str, index: I64) -> Any:
    """The values of one column of a pool at `index`, of a batch of composites; NULL where the rows have no such."""
    rows, first = pool.holder(index)
    if name not in rows.table.column_names:
        other = pool.stored if rows is pool.new else pool.new
        return pa.nulls(len(index), sizes.narrow(other.table.schema.field(name).type))
    return pc.take(sizes.one_chunk(rows.table, name), pa.array(index - first if first else index), boundscheck=False)
