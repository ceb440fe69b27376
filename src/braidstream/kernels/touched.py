"""What an epoch touches: runs gathered from summaries, added up by key and by group, before and after.

`KeyRows` are the groups within touched keys, one row each, with counts and sums of all inputs multiplied; `GroupRows`
are touched groups with their totals and leases. Both give `Values`: exact components and extremes at two moments.

Invariant: rows of equal keys and groups are one, whatever their hashes; only real keys decide.
Cost: the number of runs found, sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.exact import Exact, product
from braidstream.kernels.measures import FOREVER, ROWS, SPECIALS, Aggregation, Measure
from braidstream.kernels.rows import HASH, I64, TIME, U64, key_columns, take
from braidstream.kernels.sizes import joined, stacked, taken, whole
from braidstream.kernels.summaries import (
    GROUP,
    LARGEST,
    LEAST,
    SAME,
    SUM,
    LiveRuns,
    Summary,
    argbest,
    identify,
    summarize,
)

__all__ = ["Gathered", "GroupRows", "KeyRows", "Touched", "Values", "extreme_names", "gather_groups", "union"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Values:
    """The values of groups at one moment: exact components and extremes, by name."""

    size: int
    components: Mapping[str, Exact]
    extremes: Mapping[str, pa.Array]

    def component(self, name: str) -> Exact:
        """A component by name; zero when nothing of it was ever seen."""
        return self.components.get(name) or Exact.zeros(self.size)


@dataclass(frozen=True)
class Touched:
    """Hashes of keys, and of pairs of key and group, that an epoch touches in one input."""

    hashes: U64
    pairs: tuple[U64, U64] | None

    @classmethod
    def of(cls, new: Summary | None, stored: Sequence[Summary], alive_before: int, alive_after: int) -> Touched:
        """Touched by new rows, and by stored ones that expire."""
        found: list[tuple[Summary, Any]] = [(new, slice(None))] if new is not None else []
        if alive_after > alive_before:
            found += [(s, rows) for s in stored if len(rows := s.expiring(alive_before, alive_after))]
        hashes = np.concatenate([s.hashes[rows] for s, rows in found]) if found else np.zeros(0, dtype=np.uint64)
        if not found or GROUP not in found[0][0].table.column_names:
            return cls(_distinct(hashes), None)
        groups = np.concatenate([s.numbers(GROUP).view(np.uint64)[rows] for s, rows in found])
        return cls(_distinct(hashes), (hashes, groups))

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
class Gathered:
    """The runs found of one input in all its summaries, one below the other."""

    found: LiveRuns | None

    @classmethod
    def of(cls, parts: Sequence[tuple[LiveRuns, bool]]) -> Gathered:
        """Runs found in summaries, each with whether the summary is new: it then counts only after."""
        if not parts:
            return cls(None)
        sizes = [len(found) for found, _ in parts]
        olds = [{} if is_new else found.before for found, is_new in parts]
        old_extremes = [{} if is_new else found.extremes_before for found, is_new in parts]
        extremes = [found.extremes_after for found, _ in parts]
        types = {name: values.type for entry in extremes for name, values in entry.items()}
        return cls(
            LiveRuns(
                joined([found.identity for found, _ in parts]),
                _stacked(olds, sizes),
                _stacked([found.after for found, _ in parts], sizes),
                _stacked_values(old_extremes, sizes, types),
                _stacked_values(extremes, sizes, types),
                np.concatenate([found.oldest for found, _ in parts]),
            )
        )

    @property
    def size(self) -> int:
        """The number of runs."""
        return 0 if self.found is None else len(self.found)


def gather_groups(new: Summary | None, stored: Sequence[Summary], touched: U64, span: tuple[int, int]) -> Gathered:
    """The runs of touched groups in stored summaries and in the new one."""
    parts = []
    for summary, is_new in [*((s, False) for s in stored), *((s, True) for s in (new,) if s is not None)]:
        runs = summary.runs_of(touched)
        if len(runs):
            parts.append((summary.live(runs, *span), is_new))
    return Gathered.of(parts)


class KeyRows:
    """The touched keys of a slot, one row for each group within a key."""

    def __init__(self, aggregation: Aggregation, reduced: Sequence[_Reduced], key_of: I64, n_rows: int) -> None:
        self._aggregation, self._reduced, self._key_of = aggregation, reduced, key_of
        self._size = n_rows

    @classmethod
    def of(cls, aggregation: Aggregation, gathered: Sequence[Gathered]) -> KeyRows | None:
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
        return cls(aggregation, reduced, key_of, n_groups)

    def groups(self) -> pa.Table:
        """The identity of each row."""
        return self._reduced[self._aggregation.grouped].identity()

    @cached_property
    def before(self) -> Values:
        """The values when the epoch begins."""
        return self._values(after=False)

    @cached_property
    def after(self) -> Values:
        """The values when the epoch ends."""
        return self._values(after=True)

    def totals(self) -> Summary | None:
        """The differences of all components, added up for each group."""
        changed = np.zeros(self._size, dtype=np.bool_)
        names = list(self.after.components)
        differences = {}
        for name in names:
            differences[name] = self.after.component(name).minus(self.before.component(name)).carried()
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
        rows = np.flatnonzero(self.after.component("n").nonzero())
        if not len(rows):
            return None
        columns = self._group_columns(rows)
        columns[TIME] = pa.array(self._ends()[rows])
        columns |= {name: values.take(pa.array(rows)) for name, values in self.after.extremes.items()}
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

    def _values(self, *, after: bool) -> Values:
        components: dict[str, Exact] = {}
        extremes: dict[str, pa.Array] = {}
        counts = [self._aligned(i, r.ints(ROWS, after=after)) for i, r in enumerate(self._reduced)]
        components["n"] = product(counts, self._size)
        complete = np.all([count > 0 for count in counts], axis=0)
        for i, entry in enumerate(self._aggregation.inputs):
            if not entry.measures:
                continue
            others = product(counts[:i] + counts[i + 1 :], self._size)
            for measure in entry.measures:
                components |= dict(self._components(i, measure, counts[i], others, components["n"], after=after))
                extremes |= dict(self._extremes(i, measure, complete, after=after))
        return Values(self._size, components, extremes)

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
            for name, _ in SPECIALS:
                if reduced.has(f"{SUM}{name}:{column}"):
                    special = self._aligned(i, reduced.ints(f"{SUM}{name}:{column}", after=after))
                    yield f"{name}:{i}:{column}", Exact.of_ints(special).times(others)

    def _extremes(self, i: int, measure: Measure, complete: Bools, *, after: bool) -> Iterator[tuple[str, pa.Array]]:
        index = np.arange(self._size) if i == self._aggregation.grouped else self._key_of
        for mark, wanted in ((LEAST, measure.least), (LARGEST, measure.largest)):
            if wanted:
                values = self._reduced[i].extreme(f"{mark}{measure.column}", measure.type, after=after)
                yield f"{mark}{i}:{measure.column}", taken(values, pa.array(index, mask=~complete))

    def _aligned(self, i: int, values: I64) -> I64:
        return values if i == self._aggregation.grouped else values[self._key_of]


class GroupRows:
    """The touched groups of a slot: stored totals and leases, and new ones."""

    def __init__(self, aggregation: Aggregation, totals: Gathered, leased: Gathered) -> None:
        self._aggregation = aggregation
        parts = [g.found.identity for g in (totals, leased) if g.found is not None]
        self.identity = pa.table({HASH: pa.array([], pa.int64())})
        ids = np.zeros(0, dtype=np.int64)
        self.size = 0
        if parts:
            together = joined(parts)
            order, starts = identify(together)
            ids, self.size = _ids(order, starts), len(starts)
            self.identity = take(together, order[starts])
        self._totals = _Reduced(totals, ids[: totals.size], self.size)
        self._leased = _Reduced(leased, ids[totals.size :], self.size)

    def values(self, *, after: bool) -> Values:
        """The values when the epoch begins or ends."""
        components = {name: self._totals.exact(name, after=after) for name in _component_names(self._aggregation)}
        extremes = {}
        for name, kind in extreme_names(self._aggregation):
            values = self._leased.extreme(name, kind, after=after)
            _, i, column = name[0], *name[1:].split(":", 1)
            empty = ~components[f"c:{i}:{column}"].nonzero()
            extremes[name] = values.take(pa.array(np.arange(self.size), mask=empty))
        return Values(self.size, components, extremes)


class _Reduced:
    """The runs of one input added up by id, as columns of `size` values each."""

    def __init__(self, gathered: Gathered, ids: I64, size: int) -> None:
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
        digits = {
            int(place): column
            for name, column in sums.items()
            if name.startswith(mark) and ":" not in (place := name[len(mark) :])  # a column may be called `prefix:more`
        }
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
        return taken(pool, pa.array(index, mask=absent))

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


def _component_names(aggregation: Aggregation) -> list[str]:
    names = ["n"]
    for i, entry in enumerate(aggregation.inputs):
        for measure in entry.measures:
            kinds = ["c", "s", *(name for name, _ in SPECIALS)] if measure.summed else ["c"]
            names += [f"{kind}:{i}:{measure.column}" for kind in kinds]
    return names


def extreme_names(aggregation: Aggregation) -> list[tuple[str, pa.DataType]]:
    """The names and types of all extremes of an aggregation."""
    return [
        (f"{mark}{i}:{measure.column}", measure.type)
        for i, entry in enumerate(aggregation.inputs)
        for measure in entry.measures
        for mark, wanted in ((LEAST, measure.least), (LARGEST, measure.largest))
        if wanted
    ]


def _key_ids(gathered: Sequence[Gathered]) -> tuple[list[I64], int]:
    """For each input the numbers of the keys of its runs, the same number for the same key in all of them."""
    tables = [g.found.identity.select([HASH, *key_columns(g.found.identity)]) for g in gathered if g.found is not None]
    order, starts = identify(joined(tables))
    ids = _ids(order, starts)
    ends = np.cumsum([g.size for g in gathered])
    return [ids[end - g.size : end] for g, end in zip(gathered, ends.tolist(), strict=True)], len(starts)


def _group_ids(found: LiveRuns, keys: I64) -> tuple[I64, int]:
    """The numbers of the groups within keys."""
    columns: dict[str, Any] = {HASH: pa.array(keys)}
    names = found.identity.column_names
    columns |= {name: found.identity.column(name) for name in names if name == GROUP or name.startswith(SAME)}
    order, starts = identify(whole(pa.table(columns)))
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
        name: stacked([part[name] if name in part else pa.nulls(n, kind) for part, n in zip(parts, sizes, strict=True)])
        for name, kind in types.items()
    }


def union(parts: Sequence[U64]) -> U64:
    """The distinct hashes of all parts, ascending."""
    return _distinct(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.uint64)


def _distinct(hashes: U64) -> U64:
    """Sorted without repetition; NumPy's own hashes first, which is slower here."""
    ordered = np.sort(hashes)
    new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def _member(values: U64, among: U64) -> Bools:
    at = np.searchsorted(among, values)
    return (
        (at < len(among)) & (among[np.minimum(at, len(among) - 1)] == values)
        if len(among)
        else np.zeros(len(values), np.bool_)
    )
