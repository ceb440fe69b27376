"""Aggregates over the window without enumerating composites: per key, counts and sums of the inputs multiply.

For a key k, with n_i(k) live rows of input i: COUNT(*) is the product of all n_i, SUM(R.x) is the sum of x over the live
rows of R times the product of the other counts, COUNT(R.x) likewise, AVG is their quotient, and MIN and MAX are those of
R's live rows wherever every other input has one. Groups may divide the rows of one input (the *grouped* one) further.

Two stages, both over summaries (`braidstream.kernels.summaries`). `KeyAggregator`, one for each slot of the key, looks
only at the keys that new and expiring tuples touch, reads their values before and after, and gives the differences for
each group. `GroupAggregator`, one for each slot of the group, adds differences to totals and gives the new values of
groups that changed. Where a group contains the key (`Aggregation.local`), the first stage gives the results itself.

Sums are differences of exact numbers, so totals never drift. Extremes cannot be subtracted; a key sends its extreme as a
*lease* instead: a value and the time until which it holds for certain, the next expiry of any row of the key. When that
passes, the key is touched again and sends its next one. So the extreme of a group at a watermark is that of the leases
which have not ended, and leases are summarized like rows whose time is their end.

Invariant: what stages give depends only on the rows and on the watermarks before and after the epoch, not on slots,
segments or compaction. Cost: new and expired tuples and changed groups, each times the logarithm of the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.errors import RunError
from braidstream.kernels.exact import Exact, product, to_decimals
from braidstream.kernels.hashing import hash_columns, hashable
from braidstream.kernels.rows import HASH, I64, TIME, U64, Rows, fixed_width, key_columns, take
from braidstream.kernels.summaries import (
    ALL_TIME,
    GROUP,
    LARGEST,
    LEAST,
    ORDER,
    RUN,
    SAME,
    SUM,
    Found,
    Summary,
    argbest,
    concat,
    identify,
    summarize,
)

__all__ = [
    "EPOCH",
    "FOREVER",
    "WATERMARK",
    "AggregateColumn",
    "AggregateInput",
    "Aggregation",
    "Clock",
    "GroupAggregator",
    "GroupStep",
    "KeyAggregator",
    "KeyStep",
    "Measure",
]

EPOCH, WATERMARK = "epoch", "watermark"
FOREVER = 1 << 62
"""The end of a lease where no window ends."""
_ROWS = f"{SUM}n"
_SPECIALS = (("nan", np.isnan), ("inf", np.isposinf), ("ninf", np.isneginf))

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Measure:
    """What is kept of one column of an input: its count always, its sum and its extremes where asked for."""

    column: str
    type: pa.DataType
    summed: bool = False
    least: bool = False
    largest: bool = False


@dataclass(frozen=True)
class AggregateInput:
    """One input of an aggregate query: where its rows come from, its window, and what is kept of its columns."""

    store: int
    window_us: int | None
    bit: int | None
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class AggregateColumn:
    """One aggregate: COUNT(*) has no input and no column."""

    name: str
    function: str
    input: int | None
    column: str | None
    type: pa.DataType
    scale: int = 0
    """The scale of the argument, where that is a decimal."""


@dataclass(frozen=True)
class Aggregation:
    """An aggregate query as the stages see it."""

    query: str
    inputs: tuple[AggregateInput, ...]
    grouped: int
    """The input whose columns are grouped by; any, when there is no GROUP BY."""
    group_by: tuple[tuple[str, str], ...]
    """For each GROUP BY entry its name in the result and the column of the grouped input."""
    local: bool
    """Whether every group lies within one key."""
    columns: tuple[AggregateColumn, ...]
    schema: pa.Schema
    """Of the result: groups, aggregates, epoch, watermark."""

    @property
    def is_leased(self) -> bool:
        """Whether there is a MIN or a MAX."""
        return any(m.least or m.largest for entry in self.inputs for m in entry.measures)


@dataclass(frozen=True)
class Clock:
    """An epoch, and the watermarks before and after it."""

    epoch: int
    before: int | None
    after: int | None

    def alive(self, window_us: int | None) -> tuple[int, int]:
        """The earliest live times before and after."""
        return alive_from(self.before, window_us), alive_from(self.after, window_us)


def alive_from(watermark: int | None, window_us: int | None) -> int:
    """The earliest time that is live at a watermark: t + W >= T."""
    return ALL_TIME if watermark is None or window_us is None else watermark - window_us


@dataclass(frozen=True)
class KeyStep:
    """What the first stage gives: rows to keep for each input; then results, or differences and leases for groups."""

    kept: tuple[Summary | None, ...]
    results: pa.Table | None = None
    totals: Summary | None = None
    leases: Summary | None = None


@dataclass(frozen=True)
class GroupStep:
    """What the second stage gives: totals and leases to keep, and the results."""

    totals: Summary | None
    leases: Summary | None
    results: pa.Table


@dataclass(frozen=True)
class KeyAggregator:
    """The first stage, in one slot."""

    aggregation: Aggregation

    def step(self, new: Sequence[Rows | None], stored: Sequence[Sequence[Summary]], clock: Clock) -> KeyStep:
        """One epoch: for each input its new rows and the summaries of stored ones."""
        kept = tuple(self._summarized(place, rows, clock) for place, rows in enumerate(new))
        gathered = self._gather(kept, stored, clock)
        rows = _KeyRows.of(self.aggregation, gathered, clock)
        if rows is None:
            return KeyStep(kept, self._no_results() if self.aggregation.local else None)
        if self.aggregation.local:
            return KeyStep(kept, _changed_results(self.aggregation, clock, rows.groups(), rows.before(), rows.after()))
        return KeyStep(kept, None, rows.totals(), rows.leases() if self.aggregation.is_leased else None)

    def _no_results(self) -> pa.Table:
        return self.aggregation.schema.empty_table()

    def _summarized(self, place: int, rows: Rows | None, clock: Clock) -> Summary | None:
        entry = self.aggregation.inputs[place]
        if rows is None:
            return None
        keep = rows.times >= clock.alive(entry.window_us)[1]
        if entry.bit is not None and rows.masks is not None:
            keep &= (rows.masks & (1 << entry.bit)) != 0
        table = rows.table if keep.all() else take(rows.table, np.flatnonzero(keep))
        return summarize(self._measured(place, table.combine_chunks())) if table.num_rows else None

    def _measured(self, place: int, table: pa.Table) -> pa.Table:
        entry = self.aggregation.inputs[place]
        n_rows = table.num_rows
        columns: dict[str, Any] = {name: table.column(name) for name in (HASH, *key_columns(table))}
        columns[TIME] = pa.array(np.zeros(n_rows, dtype=np.int64)) if entry.window_us is None else table.column(TIME)
        if place == self.aggregation.grouped and self.aggregation.group_by:
            groups = [_canonical(_one(table, column)) for _, column in self.aggregation.group_by]
            columns[GROUP] = pa.array(hash_groups(groups).view(np.int64))
            columns |= {
                f"{SAME}{name}": values for (name, _), values in zip(self.aggregation.group_by, groups, strict=True)
            }
        columns[_ROWS] = pa.array(np.ones(n_rows, dtype=np.int64))
        for measure in entry.measures:
            columns |= _measure_columns(measure, _one(table, measure.column))
        return pa.table(columns)

    def _gather(
        self, kept: Sequence[Summary | None], stored: Sequence[Sequence[Summary]], clock: Clock
    ) -> list[_Gathered]:
        """Of every input what is stored and new of the keys that this epoch touches."""
        aggregation = self.aggregation
        spans = [clock.alive(entry.window_us) for entry in aggregation.inputs]
        touched = [_Touched.of(kept[i], stored[i], *spans[i]) for i in range(len(aggregation.inputs))]
        grouped = aggregation.grouped
        elsewhere = _union([t.hashes for i, t in enumerate(touched) if i != grouped])
        everywhere = _union([elsewhere, touched[grouped].hashes])
        within = touched[grouped].outside(elsewhere) if aggregation.group_by else None
        gathered = []
        for i, span in enumerate(spans):
            parts = []
            for summary, is_new in [
                *((s, False) for s in stored[i]),
                *((s, True) for s in (kept[i],) if s is not None),
            ]:
                if i == grouped and within is not None:
                    runs = np.append(summary.runs_of(elsewhere), summary.runs_at(*within))
                else:
                    runs = summary.runs_of(everywhere)
                if len(runs):
                    parts.append((summary.live(runs, *span), is_new))
            gathered.append(_Gathered.of(parts))
        return gathered


@dataclass(frozen=True)
class GroupAggregator:
    """The second stage, in one slot. Without GROUP BY one slot has the only group and `emits_always`."""

    aggregation: Aggregation
    emits_always: bool = False

    def step(
        self,
        changes: Sequence[pa.Table],
        leases: Sequence[pa.Table],
        stored_totals: Sequence[Summary],
        stored_leases: Sequence[Summary],
        clock: Clock,
    ) -> GroupStep:
        """One epoch: differences and leases that keys sent, and what is stored of earlier ones."""
        new_totals = summarize(concat(changes)) if changes else None
        new_leases = summarize(concat(leases)) if leases else None
        hashes = [s.hashes for s in (new_totals, new_leases) if s is not None]
        touched = _union([*hashes, *([np.zeros(1, dtype=np.uint64)] if self.emits_always else [])])
        totals = _gather_groups(new_totals, stored_totals, touched, (ALL_TIME, ALL_TIME))
        leased = _gather_groups(new_leases, stored_leases, touched, clock.alive(0))
        rows = _GroupRows(self.aggregation, totals, leased)
        before, after = rows.values(after=False), rows.values(after=True)
        if self.emits_always:
            results = _results(self.aggregation, clock, pa.table({HASH: pa.array([0])}), rows.padded(after))
        else:
            results = _changed_results(self.aggregation, clock, rows.identity, before, after)
        kept = new_totals if new_totals is not None and len(new_totals) else None
        return GroupStep(kept, new_leases, results)


@dataclass(frozen=True)
class _Values:
    """The values of groups at one moment: exact components and extremes, by name."""

    size: int
    components: Mapping[str, Exact]
    extremes: Mapping[str, pa.Array]

    def component(self, name: str) -> Exact:
        return self.components.get(name) or Exact.zeros(self.size)


@dataclass(frozen=True)
class _Touched:
    """Hashes of keys, and of pairs of key and group, that an epoch touches in one input."""

    hashes: U64
    pairs: tuple[U64, U64] | None

    @classmethod
    def of(cls, new: Summary | None, stored: Sequence[Summary], alive_before: int, alive_after: int) -> _Touched:
        found: list[tuple[Summary, Any]] = [(new, slice(None))] if new is not None else []
        if alive_after > alive_before:
            found += [(s, rows) for s in stored if len(rows := s.expiring(alive_before, alive_after))]
        hashes = np.concatenate([s.hashes[rows] for s, rows in found]) if found else np.zeros(0, dtype=np.uint64)
        if not found or GROUP not in found[0][0].table.column_names:
            return cls(np.unique(hashes), None)
        groups = np.concatenate([s.numbers(GROUP).view(np.uint64)[rows] for s, rows in found])
        return cls(np.unique(hashes), (hashes, groups))

    def outside(self, elsewhere: U64) -> tuple[U64, U64]:
        """The distinct pairs whose key is not among `elsewhere`, which is sorted."""
        if self.pairs is None:
            return np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64)
        hashes, groups = self.pairs
        apart = ~_member(hashes, elsewhere)
        hashes, groups = hashes[apart], groups[apart]
        order = np.lexsort((groups, hashes))
        hashes, groups = hashes[order], groups[order]
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (hashes[1:] != hashes[:-1]) | (groups[1:] != groups[:-1])
        return hashes[new], groups[new]


@dataclass(frozen=True)
class _Gathered:
    """The runs found of one input in all its summaries, one below the other."""

    found: Found | None

    @classmethod
    def of(cls, parts: Sequence[tuple[Found, bool]]) -> _Gathered:
        if not parts:
            return cls(None)
        sizes = [len(found) for found, _ in parts]
        olds = [{} if is_new else found.before for found, is_new in parts]
        old_extremes = [{} if is_new else found.extremes_before for found, is_new in parts]
        extremes = [found.extremes_after for found, _ in parts]
        types = {name: values.type for entry in extremes for name, values in entry.items()}
        return cls(
            Found(
                pa.concat_tables([found.identity for found, _ in parts]).combine_chunks(),
                _stacked(olds, sizes),
                _stacked([found.after for found, _ in parts], sizes),
                _stacked_values(old_extremes, sizes, types),
                _stacked_values(extremes, sizes, types),
                np.concatenate([found.oldest for found, _ in parts]),
            )
        )

    @property
    def size(self) -> int:
        return 0 if self.found is None else len(self.found)


def _gather_groups(new: Summary | None, stored: Sequence[Summary], touched: U64, span: tuple[int, int]) -> _Gathered:
    parts = []
    for summary, is_new in [*((s, False) for s in stored), *((s, True) for s in (new,) if s is not None)]:
        runs = summary.runs_of(touched)
        if len(runs):
            parts.append((summary.live(runs, *span), is_new))
    return _Gathered.of(parts)


class _Reduced:
    """The runs of one input added up by id, as columns of `size` values each."""

    def __init__(self, gathered: _Gathered, ids: I64, size: int) -> None:
        self._found, self.size = gathered.found, size
        self._order = np.argsort(ids, kind="stable")
        ordered = ids[self._order]
        self._starts = (
            np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ids) else np.zeros(0, np.int64)
        )
        self._at = ordered[self._starts]

    def ints(self, name: str, *, after: bool) -> I64:
        """A column of sums that is known to be small: a count of rows."""
        spread = np.zeros(self.size, dtype=np.int64)
        values = self._sums(after=after).get(name)
        if values is not None and len(self._starts):
            spread[self._at] = np.add.reduceat(values[self._order], self._starts)
        return spread

    def has(self, name: str) -> bool:
        """Whether there is such a column of sums."""
        return self._found is not None and name in self._found.after

    def exact(self, prefix: str, *, after: bool) -> Exact:
        """The columns of digits `prefix:place`."""
        sums = self._sums(after=after)
        mark = f"{SUM}{prefix}:"
        digits = {int(name[len(mark) :]): column for name, column in sums.items() if name.startswith(mark)}
        if not digits:
            return Exact.zeros(self.size)
        pieces = Exact(len(self._order), digits).take(self._order)
        return pieces.summed(self._starts).spread(self._at, self.size)

    def extreme(self, name: str, kind: pa.DataType, *, after: bool) -> pa.Array:
        """A column of extremes, NULL where there is none."""
        if self._found is None:
            return pa.nulls(self.size, kind)
        pool = (self._found.extremes_after if after else self._found.extremes_before).get(name)
        if pool is None:
            return pa.nulls(self.size, kind)
        index, absent = np.zeros(self.size, dtype=np.int64), np.ones(self.size, dtype=np.bool_)
        index[self._at] = argbest(pool, name[0] == LARGEST, self._order, self._starts)
        absent[self._at] = False
        return pool.take(pa.array(index, mask=absent))

    def oldest(self) -> I64:
        """The oldest live time of each id."""
        spread = np.full(self.size, np.iinfo(np.int64).max)
        if self._found is not None and len(self._starts):
            spread[self._at] = np.minimum.reduceat(self._found.oldest[self._order], self._starts)
        return spread

    def identity(self) -> pa.Table:
        """The identity columns, one row for each id that there is."""
        assert self._found is not None
        return take(self._found.identity, self._order[self._starts])

    def _sums(self, *, after: bool) -> Mapping[str, I64]:
        if self._found is None:
            return {}
        return self._found.after if after else self._found.before


class _KeyRows:
    """The touched keys of a slot, one row for each group within a key."""

    def __init__(
        self, aggregation: Aggregation, reduced: Sequence[_Reduced], key_of: I64, clock: Clock, n_rows: int
    ) -> None:
        self._aggregation, self._reduced, self._key_of = aggregation, reduced, key_of
        self._clock, self._size = clock, n_rows

    @classmethod
    def of(cls, aggregation: Aggregation, gathered: Sequence[_Gathered], clock: Clock) -> _KeyRows | None:
        """None when no key has rows of the grouped input: there is no composite then, before or after."""
        grouped = gathered[aggregation.grouped]
        if grouped.found is None:
            return None
        ids, n_keys = _key_ids(gathered)
        group_ids, n_groups = _group_ids(grouped.found, ids[aggregation.grouped])
        reduced = [
            _Reduced(g, group_ids, n_groups) if i == aggregation.grouped else _Reduced(g, ids[i], n_keys)
            for i, g in enumerate(gathered)
        ]
        key_of = np.zeros(n_groups, dtype=np.int64)
        key_of[group_ids] = ids[aggregation.grouped]
        return cls(aggregation, reduced, key_of, clock, n_groups)

    def groups(self) -> pa.Table:
        return self._reduced[self._aggregation.grouped].identity()

    def before(self) -> _Values:
        return self._before

    def after(self) -> _Values:
        return self._after

    @cached_property
    def _before(self) -> _Values:
        return self._values(after=False)

    @cached_property
    def _after(self) -> _Values:
        return self._values(after=True)

    def totals(self) -> Summary | None:
        """The differences of all components, added up for each group."""
        changed = np.zeros(self._size, dtype=np.bool_)
        names = list(self._after.components)
        differences = {}
        for name in names:
            differences[name] = self._after.component(name).minus(self._before.component(name)).carried()
            changed |= differences[name].nonzero()
        rows = np.flatnonzero(changed)
        if not len(rows):
            return None
        columns = self._group_columns(rows)
        columns[TIME] = pa.array(np.zeros(len(rows), dtype=np.int64))
        for name, exact in differences.items():
            for place, digits in exact.digits.items():
                columns[f"{SUM}{name}:{place}"] = pa.array(digits[rows])
        made = summarize(pa.table(columns))
        return made if len(made) else None

    def leases(self) -> Summary | None:
        """The extremes of each touched key that has composites, and until when they hold."""
        rows = np.flatnonzero(self._after.component("n").nonzero())
        if not len(rows):
            return None
        columns = self._group_columns(rows)
        columns[TIME] = pa.array(self._ends()[rows])
        columns |= {name: values.take(pa.array(rows)) for name, values in self._after.extremes.items()}
        return summarize(pa.table(columns))

    def _ends(self) -> I64:
        end = np.full(self._size, FOREVER)
        for i, entry in enumerate(self._aggregation.inputs):
            if entry.window_us is not None:
                oldest = self._aligned(i, self._reduced[i].oldest())
                end = np.minimum(end, np.minimum(oldest, FOREVER - entry.window_us) + entry.window_us)
        return end

    def _group_columns(self, rows: I64) -> dict[str, Any]:
        identity = take(self.groups(), rows)
        if GROUP not in identity.column_names:
            return {HASH: pa.array(np.zeros(len(rows), dtype=np.int64))}
        columns = {name: identity.column(name) for name in identity.column_names if name.startswith(SAME)}
        return {HASH: identity.column(GROUP), **columns}

    def _values(self, *, after: bool) -> _Values:
        components: dict[str, Exact] = {}
        extremes: dict[str, pa.Array] = {}
        counts = [self._aligned(i, r.ints(_ROWS, after=after)) for i, r in enumerate(self._reduced)]
        components["n"] = product(counts, self._size)
        complete = np.all([count > 0 for count in counts], axis=0)
        for i, entry in enumerate(self._aggregation.inputs):
            if not entry.measures:
                continue
            others = product(counts[:i] + counts[i + 1 :], self._size)
            for measure in entry.measures:
                components |= dict(self._components(i, measure, counts[i], others, components["n"], after=after))
                extremes |= dict(self._extremes(i, measure, complete, after=after))
        return _Values(self._size, components, extremes)

    def _components(
        self, i: int, measure: Measure, count: I64, others: Exact, total: Exact, *, after: bool
    ) -> Iterator[tuple[str, Exact]]:
        reduced, column = self._reduced[i], measure.column
        nulls = f"{SUM}null:{column}"
        if reduced.has(nulls):
            present = count - self._aligned(i, reduced.ints(nulls, after=after))
            yield f"c:{i}:{column}", Exact.of_ints(present).times(others)
        else:
            yield f"c:{i}:{column}", total
        if measure.summed:
            own = reduced.exact(f"s:{column}", after=after)
            yield f"s:{i}:{column}", (own if i == self._aggregation.grouped else own.take(self._key_of)).times(others)
            for name, _ in _SPECIALS:
                if reduced.has(f"{SUM}{name}:{column}"):
                    special = self._aligned(i, reduced.ints(f"{SUM}{name}:{column}", after=after))
                    yield f"{name}:{i}:{column}", Exact.of_ints(special).times(others)

    def _extremes(self, i: int, measure: Measure, complete: Bools, *, after: bool) -> Iterator[tuple[str, pa.Array]]:
        index = np.arange(self._size) if i == self._aggregation.grouped else self._key_of
        for mark, wanted in ((LEAST, measure.least), (LARGEST, measure.largest)):
            if wanted:
                values = self._reduced[i].extreme(f"{mark}{measure.column}", measure.type, after=after)
                yield f"{mark}{i}:{measure.column}", values.take(pa.array(index, mask=~complete))

    def _aligned(self, i: int, values: I64) -> I64:
        return values if i == self._aggregation.grouped else values[self._key_of]


class _GroupRows:
    """The touched groups of a slot: stored totals and leases, and new ones."""

    def __init__(self, aggregation: Aggregation, totals: _Gathered, leased: _Gathered) -> None:
        self._aggregation = aggregation
        parts = [g.found.identity for g in (totals, leased) if g.found is not None]
        self.identity = pa.table({HASH: pa.array([], pa.int64())})
        ids = np.zeros(0, dtype=np.int64)
        self.size = 0
        if parts:
            together = pa.concat_tables(parts).combine_chunks()
            order, starts = identify(together)
            ids, self.size = _ids(order, starts), len(starts)
            self.identity = take(together, order[starts])
        self._totals = _Reduced(totals, ids[: totals.size], self.size)
        self._leased = _Reduced(leased, ids[totals.size :], self.size)

    def values(self, *, after: bool) -> _Values:
        components = {name: self._totals.exact(name, after=after) for name in _component_names(self._aggregation)}
        extremes = {}
        for name, kind in _extreme_names(self._aggregation):
            values = self._leased.extreme(name, kind, after=after)
            _, i, column = name[0], *name[1:].split(":", 1)
            empty = ~components[f"c:{i}:{column}"].nonzero()
            extremes[name] = values.take(pa.array(np.arange(self.size), mask=empty))
        return _Values(self.size, components, extremes)

    def padded(self, values: _Values) -> _Values:
        """The values of the only group, also when there never was a composite."""
        if values.size:
            return values
        nothing = {name: Exact.zeros(1) for name in values.components}
        return _Values(1, nothing, {name: pa.nulls(1, column.type) for name, column in values.extremes.items()})


def _component_names(aggregation: Aggregation) -> list[str]:
    names = ["n"]
    for i, entry in enumerate(aggregation.inputs):
        for measure in entry.measures:
            kinds = ["c", "s", *(name for name, _ in _SPECIALS)] if measure.summed else ["c"]
            names += [f"{kind}:{i}:{measure.column}" for kind in kinds]
    return names


def _extreme_names(aggregation: Aggregation) -> list[tuple[str, pa.DataType]]:
    return [
        (f"{mark}{i}:{measure.column}", measure.type)
        for i, entry in enumerate(aggregation.inputs)
        for measure in entry.measures
        for mark, wanted in ((LEAST, measure.least), (LARGEST, measure.largest))
        if wanted
    ]


def _changed_results(
    aggregation: Aggregation, clock: Clock, groups: pa.Table, before: _Values, after: _Values
) -> pa.Table:
    changed = np.zeros(after.size, dtype=np.bool_)
    for name in {*before.components, *after.components}:
        changed |= after.component(name).differs(before.component(name))
    for name, values in after.extremes.items():
        changed |= _distinct(before.extremes[name], values)
    rows = np.flatnonzero(changed)
    components = {name: exact.take(rows) for name, exact in after.components.items()}
    extremes = {name: values.take(pa.array(rows)) for name, values in after.extremes.items()}
    return _results(aggregation, clock, take(groups, rows), _Values(len(rows), components, extremes))


def _results(aggregation: Aggregation, clock: Clock, groups: pa.Table, values: _Values) -> pa.Table:
    columns: list[Any] = [groups.column(f"{SAME}{name}") for name, _ in aggregation.group_by]
    columns += [_Finished(aggregation.query, column, values).array() for column in aggregation.columns]
    columns.append(pa.array(np.full(values.size, clock.epoch, dtype=np.int64)))
    time = aggregation.schema.field(WATERMARK).type
    columns.append(pa.array([clock.after] * values.size, pa.int64()).cast(time))
    return pa.table(columns, schema=aggregation.schema)


@dataclass(frozen=True)
class _Finished:
    """One aggregate as a column of the result."""

    query: str
    column: AggregateColumn
    values: _Values

    def array(self) -> pa.Array:
        function = self.column.function
        if function == "count":
            return pa.array(self._fitting(self._count))
        if function == "sum":
            return self._sum()
        if function == "avg":
            return self._average()
        mark = LEAST if function == "min" else LARGEST
        return self.values.extremes[f"{mark}{self._address}"].cast(self.column.type)

    @property
    def _address(self) -> str:
        return f"{self.column.input}:{self.column.column}"

    @property
    def _count(self) -> Exact:
        return self.values.component("n" if self.column.input is None else f"c:{self._address}")

    @property
    def _empty(self) -> Bools:
        return ~self._count.nonzero()

    def _sum(self) -> pa.Array:
        total = self.values.component(f"s:{self._address}")
        if pa.types.is_decimal(self.column.type):
            found, too_large = to_decimals(total.to_objects(), self.column.type)
            self._refuse(too_large)
            return found if not self._empty.any() else found.take(pa.array(np.arange(len(found)), mask=self._empty))
        if pa.types.is_floating(self.column.type):
            return pa.array(self._with_specials(total.to_float64()), mask=self._empty)
        return pa.array(self._fitting(total), mask=self._empty)

    def _average(self) -> pa.Array:
        total, count, empty = self.values.component(f"s:{self._address}"), self._count, self._empty
        if pa.types.is_decimal(self.column.type):
            return self._decimal_average(total, count, empty)
        with np.errstate(invalid="ignore", divide="ignore"):
            quotient = total.to_float64() / count.to_float64()
        return pa.array(self._with_specials(quotient), mask=empty)

    def _decimal_average(self, total: Exact, count: Exact, empty: Bools) -> pa.Array:
        """Rounded half up, as Spark does; Python's integers do it, one group at a time."""
        kind: pa.Decimal128Type = self.column.type
        shift = kind.scale - self.column.scale
        numbers = np.where(empty, 0, total.to_objects() * 10**shift)
        counts = np.where(empty, 1, count.to_objects())
        sign = np.where(numbers < 0, -1, 1)
        rounded = sign * ((2 * np.abs(numbers) + counts) // (2 * counts)) if len(numbers) else numbers
        found, too_large = to_decimals(rounded, kind)
        self._refuse(too_large)
        return found.take(pa.array(np.arange(len(found)), mask=empty))

    def _with_specials(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        nan, inf, ninf = (self.values.component(f"{name}:{self._address}").nonzero() for name, _ in _SPECIALS)
        numbers = np.where(inf, np.inf, np.where(ninf, -np.inf, numbers))
        return np.where(nan | (inf & ninf), np.nan, numbers)

    def _fitting(self, exact: Exact) -> I64:
        values, too_large = exact.to_int64()
        self._refuse(too_large)
        return values

    def _refuse(self, too_large: Bools) -> None:
        if too_large.any():
            raise RunError(
                f"query {self.query!r}: {self.column.function.upper()} {self.column.name!r} does not fit in {self.column.type}",
                "a result within the range of its type",
                "cast the argument to double, or make the window shorter",
            )


def hash_groups(columns: Sequence[pa.Array]) -> U64:
    """Hashes of the values of group columns; NULL is a value like others."""
    hashed = [values if hashable(values.type) else values.cast(pa.string()) for values in columns]
    return hash_columns(hashed)[0]


def _canonical(values: pa.Array) -> pa.Array:
    """Values that group together made the same: one zero, one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    plain = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    plain = plain + plain.dtype.type(0)
    plain[np.isnan(plain)] = np.nan
    return pa.array(plain, mask=np.asarray(values.is_null().to_numpy(zero_copy_only=False)))


def _measure_columns(measure: Measure, values: pa.Array) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    name = measure.column
    if values.null_count:
        columns[f"{SUM}null:{name}"] = pa.array(
            np.asarray(values.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
        )
    if measure.summed:
        columns |= _sum_columns(name, values)
    if measure.least:
        columns[f"{LEAST}{name}"] = values
    if measure.largest:
        columns[f"{LARGEST}{name}"] = values
    return columns


def _sum_columns(name: str, values: pa.Array) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if pa.types.is_decimal(values.type):
        exact = Exact.of_decimals(values)
    elif pa.types.is_floating(values.type):
        numbers = np.asarray(values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        for special, test in _SPECIALS:
            found = test(numbers)
            if found.any():
                columns[f"{SUM}{special}:{name}"] = pa.array(found.astype(np.int64))
        exact = Exact.of_floats(np.where(np.isfinite(numbers), numbers, 0.0))
    else:
        exact = Exact.of_ints(np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)))
    return columns | {f"{SUM}s:{name}:{place}": pa.array(digits) for place, digits in exact.digits.items()}


def _key_ids(gathered: Sequence[_Gathered]) -> tuple[list[I64], int]:
    """For each input the numbers of the keys of its runs, the same number for the same key in all of them."""
    tables = [g.found.identity.select([HASH, *key_columns(g.found.identity)]) for g in gathered if g.found is not None]
    order, starts = identify(pa.concat_tables(tables).combine_chunks())
    ids = _ids(order, starts)
    ends = np.cumsum([g.size for g in gathered])
    return [ids[end - g.size : end] for g, end in zip(gathered, ends.tolist(), strict=True)], len(starts)


def _group_ids(found: Found, keys: I64) -> tuple[I64, int]:
    """The numbers of the groups within keys."""
    columns: dict[str, Any] = {HASH: pa.array(keys)}
    names = found.identity.column_names
    columns |= {name: found.identity.column(name) for name in names if name == GROUP or name.startswith(SAME)}
    order, starts = identify(pa.table(columns).combine_chunks())
    return _ids(order, starts), len(starts)


def _ids(order: I64, starts: I64) -> I64:
    ids = np.zeros(len(order), dtype=np.int64)
    marks = np.zeros(len(order), dtype=np.int64)
    marks[starts[1:]] = 1
    ids[order] = np.cumsum(marks)
    return ids


def _stacked(parts: Sequence[Mapping[str, I64]], sizes: Sequence[int]) -> dict[str, I64]:
    """Columns of sums one below the other, zero where a part has none."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate(
            [
                part[name] if name in part else np.zeros(size, dtype=np.int64)
                for part, size in zip(parts, sizes, strict=True)
            ]
        )
        for name in names
    }


def _stacked_values(
    parts: Sequence[Mapping[str, pa.Array]], sizes: Sequence[int], types: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    return {
        name: pa.concat_arrays(
            [part[name] if name in part else pa.nulls(n, kind) for part, n in zip(parts, sizes, strict=True)]
        )
        for name, kind in types.items()
    }


def _distinct(left: pa.Array, right: pa.Array) -> Bools:
    """Where values differ; NULL is equal to NULL, NaN to NaN."""
    same = pc.equal(left, right).fill_null(False)
    same = pc.or_(same, pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)).fill_null(False))
    return ~np.asarray(same.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _union(parts: Sequence[U64]) -> U64:
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.uint64)


def _member(values: U64, among: U64) -> Bools:
    at = np.searchsorted(among, values)
    return (
        (at < len(among)) & (among[np.minimum(at, len(among) - 1)] == values)
        if len(among)
        else np.zeros(len(values), np.bool_)
    )


def _one(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
