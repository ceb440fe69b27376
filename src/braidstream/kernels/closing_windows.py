"""Aggregates by windows of time, put out once: when the watermark says that nothing more can come.

A row is in one group, which is of one window, and has for its time the last moment at which the group may still change.
So rows of a group expire together, and what a summary holds of them then (`kernels.summaries`) is the answer, added to
what arrived in the same epoch. Of COUNT(DISTINCT) the values are part of what rows are told apart by; they are counted
when the group is put out.

Invariant: every group is put out in exactly one epoch, with all of its rows; that depends on the rows and on watermarks
alone. Cost: new rows and groups that end, each times a logarithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.finished import changed_results
from braidstream.kernels.measures import ROWS, Aggregation, Clock, Periods, canonical, hash_groups, measured
from braidstream.kernels.rows import HASH, I64, TIME, Rows, fixed_width, take
from braidstream.kernels.sizes import one_chunk, whole
from braidstream.kernels.summaries import ALL_TIME, GROUP, ORDER, RUN, SAME, SUM, Summary, concat, identify, summarize
from braidstream.kernels.touched import Gathered, KeyRows

__all__ = ["DISTINCT", "WindowAggregator"]

DISTINCT = "distinct:"
"""Before the name of a column whose different values are counted."""


@dataclass(frozen=True)
class WindowAggregator:
    """What one slot does with the composites of its groups."""

    aggregation: Aggregation
    periods: Periods

    def step(self, new: Rows | None, stored: Sequence[Summary], clock: Clock) -> tuple[Summary | None, pa.Table]:
        """One epoch: what is to be kept of new rows, and the groups that end."""
        before, after = clock.alive(0)
        ending = list(self._expired(stored, before, after))
        kept = None
        if new is not None:
            table = self._measured(new)
            is_open = fixed_width(table, TIME) >= after
            kept = summarize(take(table, np.flatnonzero(is_open))) if is_open.any() else None
            ending += [take(table, np.flatnonzero(~is_open))] if not is_open.all() else []
        return kept, self._results(ending, clock) if ending else self.aggregation.schema.empty_table()

    def _expired(self, stored: Sequence[Summary], before: int, after: int) -> Iterator[pa.Table]:
        """Of stored rows those that end: each is the only one of its group and values in a summary."""
        for summary in stored if after > before else ():
            rows = summary.expiring(before, after)
            if len(rows):
                yield take(summary.table.drop_columns([RUN, ORDER]), np.sort(rows))

    def _measured(self, new: Rows) -> pa.Table:
        """New rows as summaries take them, told apart by the values that are counted as well."""
        table = whole(new.table)
        (entry,) = self.aggregation.inputs
        measures = tuple(one for one in entry.measures if not one.column.startswith(DISTINCT))
        made = measured(replace(self.aggregation, inputs=(replace(entry, measures=measures),)), 0, table)
        for column, _ in self.periods.distinct:
            made = made.append_column(f"{SAME}{DISTINCT}{column}", canonical(one_chunk(table, column)))
        return _regrouped(made)

    def _results(self, ending: Sequence[pa.Table], clock: Clock) -> pa.Table:
        table = concat(ending)
        if self.periods.distinct:
            table = _regrouped(self._counted(table))
        merged = summarize(table.set_column(table.schema.get_field_index(TIME), TIME, pa.array(_zeros(table))))
        runs = np.arange(int(merged.numbers(RUN)[-1]) + 1)
        gathered = Gathered.of([(merged.live(runs, ALL_TIME, ALL_TIME), True)])
        rows = KeyRows.of(self.aggregation, [gathered])
        assert rows is not None
        return changed_results(self.aggregation, clock, rows.groups(), rows.before, rows.after)

    def _counted(self, table: pa.Table) -> pa.Table:
        """Rows without the values that are counted: of each value one row of a group counts as not NULL."""
        names = [f"{SAME}{DISTINCT}{column}" for column, _ in self.periods.distinct]
        groups = table.drop_columns([*names, GROUP, TIME])
        order, starts = identify(_regrouped(groups))
        ids = np.empty(table.num_rows, dtype=np.int64)
        ids[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
        made = table.drop_columns(names)
        n_rows = fixed_width(table, ROWS)
        for name in names:
            first = _first_of_each(ids, one_chunk(table, name))
            made = made.append_column(f"{SUM}null:{name.removeprefix(SAME)}", pa.array(n_rows - first))
        return made


def _zeros(table: pa.Table) -> I64:
    return np.zeros(table.num_rows, dtype=np.int64)


def _regrouped(table: pa.Table) -> pa.Table:
    """The rows with the hash of all that they are told apart by."""
    names = [name for name in table.column_names if name.startswith(SAME)]
    hashes = pa.array(hash_groups([one_chunk(table, name) for name in names]).view(np.int64))
    columns: dict[str, Any] = {name: table.column(name) for name in table.column_names if name != GROUP}
    return pa.table({HASH: columns.pop(HASH), GROUP: hashes, **columns})


def _first_of_each(ids: I64, values: pa.Array) -> I64:
    """1 where a value is the first of its kind in its group, 0 elsewhere and for NULLs."""
    encoded = values.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)).astype(np.int64)
    found: I64 = np.zeros(len(ids), dtype=np.int64)
    valid = np.flatnonzero(codes >= 0)
    if len(valid):
        pairs = ids[valid] * (int(codes.max()) + 1) + codes[valid]
        found[valid[np.unique(pairs, return_index=True)[1]]] = 1
    return found
