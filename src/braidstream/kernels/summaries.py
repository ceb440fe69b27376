"""Summaries: sums and extremes over the live rows of a key, read by one binary search, without touching the rows.

A *summary* is a table sorted by identity (key hash, real keys, and the group within the key where there is one) and
then by time. The rows of one identity are a *run*. Each row holds the sums of its run from that row to the run's end,
and likewise the extremes: so what is live at a watermark is found at the first row that has not expired. Nothing is
ever subtracted, a merge of summaries is a summary, and rows that expire need not be rewritten. Rows of equal identity
and time are one row: where a window never ends, times are all zero and the state is one row a key.

Columns tell by their names what they are:

    __h  __g  __t     hash of the key, hash of the group within it (optional), time
    __k0 ... , =c     real keys (where hashes may collide) and group columns: compared where hashes agree
    +c                an integer that adds up to the end of the run; a column that is missing is zero
    <c  >c            the least and the largest value to the end of the run; NULL where there is none
    __r  __o          number of the run; the rows in the order of time, to find what expires

Invariant: sorted by (hash, group hash, identity, time), so a slice of the hash space is a slice of the table.
Cost: `summarize` sorts; `Summary.runs_of`, `live` and `expiring` are binary searches for what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels.join import expand, probe
from braidstream.kernels.rows import HASH, I64, KEY, TIME, U64, fixed_width, take
from braidstream.kernels.sizes import joined, one_chunk, taken

__all__ = [
    "ALL_TIME",
    "GROUP",
    "LiveRuns",
    "Summary",
    "argbest",
    "identify",
    "identity_columns",
    "merge_summaries",
    "own_values",
    "same_values",
    "summarize",
]

GROUP, RUN, ORDER = "__g", "__r", "__o"
SUM, LEAST, LARGEST, SAME = "+", "<", ">", "="
ALL_TIME = -(1 << 62)
"""Earlier than any time: everything is live."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LiveRuns:
    """Runs found in summaries, and what is live of them: `sums` where zero is nothing, `extremes` where NULL is."""

    identity: pa.Table
    """Hashes, real keys and group columns of each run."""
    before: Mapping[str, I64]
    after: Mapping[str, I64]
    extremes_before: Mapping[str, pa.Array]
    extremes_after: Mapping[str, pa.Array]
    oldest: I64
    """The oldest time that is live after; the largest possible where nothing is."""

    def __len__(self) -> int:
        return int(self.identity.num_rows)


@dataclass(frozen=True)
class Summary:
    """A summary, and the ranges of hashes (inclusive, ascending) that are live in it; None when all of them are."""

    table: pa.Table
    ranges: Sequence[tuple[int, int]] | None = None
    _columns: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers without NULLs."""
        if name not in self._columns:
            self._columns[name] = fixed_width(self.table, name)
        return self._columns[name]  # type: ignore[no-any-return]

    @cached_property
    def hashes(self) -> U64:
        """The key hashes, ascending."""
        return self.numbers(HASH).view(np.uint64)

    @property
    def sums(self) -> list[str]:
        """The names of the columns that add up."""
        return [name for name in self.table.column_names if name.startswith(SUM)]

    @property
    def extremes(self) -> list[str]:
        """The names of the columns of extremes."""
        return [name for name in self.table.column_names if name.startswith((LEAST, LARGEST))]

    def owned(self, hashes: U64) -> Bools:
        """Which hashes lie in a live range."""
        if self.ranges is None:
            return np.ones(len(hashes), dtype=np.bool_)
        lows = np.array([low for low, _ in self.ranges], dtype=np.uint64)
        highs = np.array([high for _, high in self.ranges], dtype=np.uint64)
        at = np.searchsorted(lows, hashes, side="right") - 1
        return (at >= 0) & (hashes <= highs[np.maximum(at, 0)]) if len(lows) else np.zeros(len(hashes), np.bool_)

    def runs_of(self, hashes: U64) -> I64:
        """The runs of these hashes (distinct, ascending)."""
        start, stop = probe(self.hashes, hashes[self.owned(hashes)])
        start, stop = start[stop > start], stop[stop > start]
        runs = self.numbers(RUN)
        return expand(runs[start].astype(np.int64), runs[stop - 1].astype(np.int64) + 1)[1]

    def runs_at(self, hashes: U64, groups: U64) -> I64:
        """The runs of these pairs of hashes (distinct, in the order of the table)."""
        own = self.owned(hashes)
        hashes, groups = hashes[own], groups[own]
        start, stop = probe(self.hashes, hashes)
        inside = self.numbers(GROUP).view(np.uint64)
        begin = _bisect(inside, start, stop, groups)
        found = begin < stop
        found[found] = inside[begin[found]] == groups[found]
        begin, stop, groups = begin[found], stop[found], groups[found]
        end = begin + 1  # two groups with one hash are two runs; there is hardly ever more than one
        last = _bisect(inside, end, stop, groups, after=True) - 1
        runs = self.numbers(RUN)
        return expand(runs[begin].astype(np.int64), runs[last].astype(np.int64) + 1)[1]

    def live(self, runs: I64, alive_before: int, alive_after: int) -> LiveRuns:
        """What is live of these runs from either time on."""
        number = self.numbers(RUN)
        start, stop = np.searchsorted(number, runs), np.searchsorted(number, runs, side="right")
        times = self.numbers(TIME)
        first_before = _bisect(times, start, stop, np.full(len(runs), alive_before))
        first_after = (
            first_before
            if alive_before == alive_after
            else _bisect(times, first_before, stop, np.full(len(runs), alive_after))
        )
        oldest = np.where(first_after < stop, _at(times, first_after), np.iinfo(np.int64).max)
        return LiveRuns(
            take(self.table.select(identity_columns(self.table)), start),
            self._sums(first_before, stop),
            self._sums(first_after, stop),
            self._extremes(first_before, stop),
            self._extremes(first_after, stop),
            oldest,
        )

    def expiring(self, alive_before: int, alive_after: int) -> I64:
        """The rows whose time is in [alive_before, alive_after), and whose hash is live here."""
        order, times = self.numbers(ORDER), self.numbers(TIME)
        ends = np.array([alive_before, alive_after])
        begin, end = _bisect_by(times, order, ends)
        rows = order[begin:end].astype(np.int64)
        return rows[self.owned(self.hashes[rows])]

    def _sums(self, first: I64, stop: I64) -> dict[str, I64]:
        return {name: np.where(first < stop, _at(self.numbers(name), first), 0) for name in self.sums}

    def _extremes(self, first: I64, stop: I64) -> dict[str, pa.Array]:
        if not self.extremes:
            return {}
        index = pa.array(first, mask=first >= stop)
        return {name: taken(one_chunk(self.table, name), index) for name in self.extremes}


def summarize(table: pa.Table) -> Summary:
    """A summary of rows, each with its own values in the columns of sums and extremes."""
    order, new_run = _sorted_runs(table)
    run = np.cumsum(new_run) - 1
    times = fixed_width(table, TIME)[order]
    new_entry = new_run.copy()
    new_entry[1:] |= times[1:] != times[:-1]
    entries = np.flatnonzero(new_entry)
    starts = np.flatnonzero(new_run)
    ends = np.append(starts[1:], len(order))
    columns: dict[str, Any] = {}
    for name in identity_columns(table):
        columns[name] = one_chunk(table, name).take(pa.array(order[entries]))
    columns[TIME] = pa.array(times[entries])
    for name in table.column_names:
        if name.startswith(SUM):
            summed = _suffix_sums(fixed_width(table, name)[order], ends[run])[entries]
            if summed.any():
                columns[name] = pa.array(summed)
        elif name.startswith((LEAST, LARGEST)):
            columns[name] = _suffix_best(one_chunk(table, name), order, run, name[0] == LARGEST, entries)
    return _indexed(*_needed(pa.table(columns), run[entries]))


def own_values(summary: Summary, alive_from: int) -> pa.Table:
    """The rows of a summary that are live, with their own values again: what `summarize` was given, or as good."""
    runs, times = summary.numbers(RUN), summary.numbers(TIME)
    last = np.append(runs[1:] != runs[:-1], True) if len(summary) else np.zeros(0, dtype=np.bool_)
    keep = np.flatnonzero((times >= alive_from) & summary.owned(summary.hashes))
    columns: dict[str, Any] = {}
    for name in summary.table.column_names:
        if name in (RUN, ORDER):
            continue
        if name.startswith(SUM):
            values = summary.numbers(name)
            following = np.where(last, 0, np.append(values[1:], 0))
            columns[name] = pa.array((values - following)[keep])
        else:
            columns[name] = one_chunk(summary.table, name).take(pa.array(keep))
    return pa.table(columns)


def merge_summaries(parts: Iterable[Summary], alive_from: int = ALL_TIME) -> Summary | None:
    """One summary of all live rows; None when there are none."""
    tables = [table for part in parts if (table := own_values(part, alive_from)).num_rows]
    if not tables:
        return None
    merged = summarize(concat(tables))
    return merged if len(merged) else None


def concat(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of tables whose columns of sums may differ: those that are missing are zero."""
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    filled = []
    for table in tables:
        missing = [name for name in names if name not in table.column_names]
        zeros = {name: pa.array(np.zeros(table.num_rows, dtype=np.int64)) for name in missing}
        filled.append(pa.table({name: zeros.get(name) if name in zeros else table.column(name) for name in names}))
    return joined(filled)


def identity_columns(table: pa.Table) -> list[str]:
    """The columns that say whose run a row is."""
    return [n for n in table.column_names if n in (HASH, GROUP) or n.startswith((KEY, SAME))]


def identify(table: pa.Table) -> tuple[I64, I64]:
    """For rows with identity columns: an order that brings equal ones together, and where each of them begins."""
    order, new = _sorted_runs(table)
    return order, np.flatnonzero(new)


def argbest(values: pa.Array, largest: bool, order: I64, starts: I64) -> I64:
    """For each run of rows (`order` cut at `starts`) the row with the best value; any of them when all are NULL."""
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    best_first = _best_first(values, largest)
    rank = np.empty(len(best_first), dtype=np.int64)
    rank[best_first] = np.arange(len(best_first))
    return best_first[np.minimum.reduceat(rank[order], starts)]


def _sorted_runs(table: pa.Table) -> tuple[I64, Bools]:
    """The order by (hash, group, identity, time), and which rows in that order begin a run."""
    hashes = fixed_width(table, HASH).view(np.uint64)
    keys: list[npt.NDArray[Any]] = [hashes]
    if GROUP in table.column_names:
        keys.append(fixed_width(table, GROUP).view(np.uint64))
    times = fixed_width(table, TIME) if TIME in table.column_names else None
    order = _order([*keys, *(() if times is None else (times,))])
    new = _changes(keys, order)
    compared = [name for name in identity_columns(table) if name not in (HASH, GROUP)]
    if compared and not all(_agree(one_chunk(table, name), order, new) for name in compared):
        codes = [_codes(one_chunk(table, name)) for name in compared]
        order = _order([*keys, *codes, *(() if times is None else (times,))])
        new = _changes([*keys, *codes], order)
    return order, new


def _order(keys: Sequence[npt.NDArray[Any]]) -> I64:
    """The order by these keys, the first one first; nothing is sorted where it holds already."""
    size = len(keys[0])
    ascending = np.ones(max(size - 1, 0), dtype=np.bool_)
    for key in reversed(keys):
        ascending = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & ascending)
    return np.arange(size) if ascending.all() else np.lexsort(list(reversed(keys)))


def _changes(keys: Sequence[npt.NDArray[Any]], order: I64) -> Bools:
    new = np.ones(len(order), dtype=np.bool_)
    if len(order):
        new[1:] = False
        for key in keys:
            ordered = key[order]
            new[1:] |= ordered[1:] != ordered[:-1]
    return new


def _agree(values: pa.Array, order: I64, new: Bools) -> bool:
    """Whether rows that follow one another in a run of equal hashes have equal values."""
    later = np.flatnonzero(~new)
    if not len(later):
        return True
    return bool(same_values(values.take(pa.array(order[later - 1])), values.take(pa.array(order[later]))).all())


def _codes(values: pa.Array) -> I64:
    """Numbers that are equal iff the values are; NULL has one too."""
    encoded = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)


def _suffix_sums(values: I64, ends: I64) -> I64:
    """For each row the sum to the end of its run. What wraps around in between comes back in the difference."""
    total = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values[::-1], out=total[:-1][::-1])
    return total[:-1] - total[ends]


def _suffix_best(values: pa.Array, order: I64, run: I64, largest: bool, entries: I64) -> pa.Array:
    """For each entry the best value from there to the end of its run, NULL where there is none."""
    best_first = _best_first(values, largest)
    rank = np.empty(len(best_first), dtype=np.int64)
    rank[best_first] = np.arange(len(best_first))
    keyed = run * len(values) + rank[order]  # an earlier run is always less, so a scan from the end begins anew there
    best = np.minimum.accumulate(keyed[::-1])[::-1][entries]
    return taken(values, pa.array(best_first[best - run[entries] * len(values)]))


def _best_first(values: pa.Array, largest: bool) -> I64:
    """Rows from the best value to the worst; NULLs last. NaN is larger than every number, as in Spark."""
    direction = "descending" if largest else "ascending"
    if pa.types.is_floating(values.type):
        values = _float_codes(values)
    sorted_ = pc.array_sort_indices(values, order=direction, null_placement="at_end")
    return np.asarray(sorted_.to_numpy()).astype(np.int64)


def _float_codes(values: pa.Array) -> pa.Array:
    """Integers in the order of doubles."""
    null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    plain = np.asarray(values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)) + 0.0
    bits = plain.view(np.int64)
    codes = np.where(bits < 0, ~bits ^ np.iinfo(np.int64).min, bits)
    codes[np.isnan(plain)] = np.iinfo(np.int64).max
    return pa.array(codes, mask=null)


def _needed(table: pa.Table, run: I64) -> tuple[pa.Table, I64]:
    """Without entries that say nothing: all sums zero and alone in their run, or extremes as in the next entry."""
    sums = [name for name in table.column_names if name.startswith(SUM)]
    extremes = [name for name in table.column_names if name.startswith((LEAST, LARGEST))]
    if not len(run) or (sums and extremes):
        return table, run
    if extremes:
        needless = np.append(run[1:] == run[:-1], False)
        for name in extremes:
            values = one_chunk(table, name)
            needless[:-1] &= same_values(values.slice(0, len(run) - 1), values.slice(1))
    else:
        needless = np.bincount(run, minlength=1)[run] == 1
        for name in sums:
            needless &= fixed_width(table, name) == 0
    if not needless.any():
        return table, run
    keep = np.flatnonzero(~needless)
    return take(table, keep), _dense(run[keep])


def same_values(left: pa.Array, right: pa.Array) -> Bools:
    """Where values are the same: NULL is the same as NULL, NaN as NaN."""
    same = pc.equal(left, right).fill_null(False)
    if left.null_count or right.null_count:
        same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    return np.asarray(same.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _dense(run: I64) -> I64:
    if not len(run):
        return run
    return np.cumsum(np.append(False, run[1:] != run[:-1]))


def _indexed(table: pa.Table, run: I64) -> Summary:
    by_time = np.argsort(fixed_width(table, TIME), kind="stable")
    table = table.append_column(RUN, pa.array(run.astype(np.int32)))
    return Summary(table.append_column(ORDER, pa.array(by_time.astype(np.int32))))


def _bisect(values: npt.NDArray[Any], start: I64, stop: I64, target: npt.NDArray[Any], after: bool = False) -> I64:
    """The first row in each [start, stop) whose value is at least (after: above) the target, one search for all."""
    low, high = start.copy(), stop.copy()
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) >> 1
        before = values[middle] <= target[open_] if after else values[middle] < target[open_]
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
    return low


def _bisect_by(values: I64, order: npt.NDArray[Any], targets: I64) -> tuple[int, int]:
    """Where targets would be in values[order], which ascends."""
    low, high = np.zeros(len(targets), dtype=np.int64), np.full(len(targets), len(order))
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) >> 1
        before = values[order[middle]] < targets[open_]
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
    return int(low[0]), int(low[1])


def _at(values: npt.NDArray[Any], index: I64) -> npt.NDArray[Any]:
    return values[np.minimum(index, len(values) - 1)] if len(values) else np.zeros(len(index), dtype=np.int64)
