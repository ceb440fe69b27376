"""Aggregates over the window without enumerating composites: per key, counts and sums of the inputs multiply.

For a key k, with n_i(k) live rows of input i: COUNT(*) is the product of all n_i, SUM(R.x) is the sum of x over the
live rows of R times the product of the other counts, COUNT(R.x) likewise, AVG is their quotient, and MIN and MAX are
those of R's live rows wherever every other input has one. Groups may divide the rows of one input further: the
*grouped* one.

Two stages, both over summaries (`braidstream.kernels.summaries`). `KeyAggregator`, one for each slot of the key, looks
only at the keys that new and expiring tuples touch, reads their values before and after, and gives the differences for
each group. `GroupAggregator`, one for each slot of the group, adds differences to totals and gives the new values of
groups that changed. Where a group contains the key (`Aggregation.local`), the first stage gives the results itself.

Sums are differences of exact numbers, so totals never drift. Extremes cannot be subtracted; a key sends its extreme as
a *lease* instead: a value and the time until which it holds for certain, the next expiry of any row of the key. When
that passes, the key is touched again and sends its next one. So the extreme of a group at a watermark is that of the
leases which have not ended, and leases are summarized like rows whose time is their end.

Invariant: what stages give depends only on the rows and on the watermarks before and after the epoch, not on slots,
segments or compaction. Cost: new and expired tuples and changed groups, each times the logarithm of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from braidstream.kernels.finished import changed_results, only_result
from braidstream.kernels.measures import (
    EPOCH,
    FOREVER,
    WATERMARK,
    AggregateColumn,
    AggregateInput,
    Aggregation,
    Clock,
    Measure,
    alive_from,
    measured,
)
from braidstream.kernels.rows import Rows, take
from braidstream.kernels.sizes import whole
from braidstream.kernels.summaries import ALL_TIME, Summary, concat, summarize
from braidstream.kernels.touched import Gathered, GroupRows, KeyRows, Touched, gather_groups, union

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
    "alive_from",
]


ONLY = np.zeros(1, dtype=np.uint64)
"""The hash of the only group of a query without GROUP BY."""


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
    """The first stage, in one slot. With one input whose rows are composites, it is the only one."""

    aggregation: Aggregation
    emits_always: bool = False
    """Whether there are results without a change: of a local aggregation without GROUP BY, in the slot that has it."""

    def step(self, new: Sequence[Rows | None], stored: Sequence[Sequence[Summary]], clock: Clock) -> KeyStep:
        """One epoch: for each input its new rows and the summaries of stored ones."""
        kept = tuple(self._summarized(place, rows, clock) for place, rows in enumerate(new))
        gathered = self._gather(kept, stored, clock)
        rows = KeyRows.of(self.aggregation, gathered)
        if self.emits_always:
            return KeyStep(kept, only_result(self.aggregation, clock, None if rows is None else rows.after))
        if rows is None:
            return KeyStep(kept, self.aggregation.schema.empty_table() if self.aggregation.local else None)
        if self.aggregation.local:
            return KeyStep(kept, changed_results(self.aggregation, clock, rows.groups(), rows.before, rows.after))
        return KeyStep(kept, None, rows.totals(), rows.leases() if self.aggregation.is_leased else None)

    def _summarized(self, place: int, rows: Rows | None, clock: Clock) -> Summary | None:
        entry = self.aggregation.inputs[place]
        if rows is None:
            return None
        keep = rows.times >= clock.alive(entry.window_us)[1]
        if entry.bit is not None and rows.masks is not None:
            keep &= (rows.masks & (1 << entry.bit)) != 0
        table = rows.table if keep.all() else take(rows.table, np.flatnonzero(keep))
        return summarize(measured(self.aggregation, place, whole(table))) if table.num_rows else None

    def _gather(
        self, kept: Sequence[Summary | None], stored: Sequence[Sequence[Summary]], clock: Clock
    ) -> list[Gathered]:
        """Of every input what is stored and new of the keys that this epoch touches."""
        aggregation = self.aggregation
        spans = [clock.alive(entry.window_us) for entry in aggregation.inputs]
        touched = [Touched.of(kept[i], stored[i], *spans[i]) for i in range(len(aggregation.inputs))]
        grouped = aggregation.grouped
        elsewhere = union([t.hashes for i, t in enumerate(touched) if i != grouped])
        everywhere = union([elsewhere, touched[grouped].hashes, *([ONLY] if self.emits_always else [])])
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
            gathered.append(Gathered.of(parts))
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
        touched = union([*hashes, *([ONLY] if self.emits_always else [])])
        totals = gather_groups(new_totals, stored_totals, touched, (ALL_TIME, ALL_TIME))
        leased = gather_groups(new_leases, stored_leases, touched, clock.alive(0))
        rows = GroupRows(self.aggregation, totals, leased)
        before, after = rows.values(after=False), rows.values(after=True)
        if self.emits_always:
            results = only_result(self.aggregation, clock, after)
        else:
            results = changed_results(self.aggregation, clock, rows.identity, before, after)
        kept = new_totals if new_totals is not None and len(new_totals) else None
        return GroupStep(kept, new_leases, results)
