"""The aggregates of a slot: the first stage after the exchange on keys, the second after that on groups.

State is summaries in segments like any others: written by the slot, listed in the manifest, compacted in tiers, moved
with their groups. A slot needs the watermark after its epoch while the epoch runs, for that decides what expires: so
every routing task tells every slot what it saw, and each computes the same watermark as the driver will.

Invariant: a task's output depends on the manifest before and its envelopes alone, so Spark may run it twice.
Cost: what `braidstream.kernels.aggregates` says, and a file for each input and epoch.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from braidstream.kernels.aggregates import Clock, GroupAggregator, KeyAggregator, alive_from
from braidstream.kernels.closing_windows import DISTINCT, WindowAggregator
from braidstream.kernels.join import UNBOUNDED, Composites
from braidstream.kernels.measures import FOREVER, AggregatePlan, Periods, canonical, hash_groups
from braidstream.kernels.routing import Routes, Tally, deal_light, envelopes_to_batch
from braidstream.kernels.rows import DEADLINE, HASH, TIME, Rows, sort_rows
from braidstream.kernels.sizes import BATCH_BYTES, cut, joined
from braidstream.kernels.summaries import ALL_TIME, ORDER, RUN, Summary, merge_summaries
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.stores import Stage, Store
from braidstream.state.compaction import SegmentMerge
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.section import Section
from braidstream.state.segments import Place, open_segment
from braidstream.state.staging import Staging, Writer

__all__ = ["END", "SlotAggregates", "merge_segments", "reached_watermark", "route_composites", "with_ends"]


END = 1 << 62
"""The watermark after which nothing comes: behind every time, also behind that plus an unbounded window."""


def reached_watermark(
    newest: Mapping[str, int],
    tallies: Iterable[Tally],
    delays_us: Mapping[str, int],
    before: int | None,
    idle: Collection[str] = (),
) -> int | None:
    """The watermark after an epoch: the minimum over streams of (largest time seen - delay); it never goes back.

    It does not wait for streams that were idle before and said nothing in the epoch. Where nothing arrived at all it
    stays: then no slot runs, and none could decide the rows that it would pass.
    """
    seen, quiet, told = dict(newest), set(idle), list(tallies)
    if not told:
        return before
    for tally in told:
        if tally.newest is not None:
            seen[tally.stream] = max(seen.get(tally.stream, tally.newest), tally.newest)
            quiet.discard(tally.stream)
    waited = {stream: delay_us for stream, delay_us in delays_us.items() if stream not in quiet}
    if not waited or any(stream not in seen for stream in waited):
        return before
    reached = min(seen[stream] - delay_us for stream, delay_us in waited.items())
    return reached if before is None else max(before, reached)


def merge_segments(place: Place, task: SegmentMerge, store: Store) -> Segment | None:
    """Carry out a merge of summaries: the slot's live rows of the inputs as one; None when nothing is left."""
    parts = [_summary(place, segment) for segment in task.inputs]
    merged = merge_summaries(parts, alive_from(task.watermark, store.window_us))
    if merged is None:
        return None
    first = min(segment.first_epoch for segment in task.inputs)
    made = place.write(Rows(merged.table), store.name, store.window_us, first)
    return replace(made, epoch=max(segment.epoch for segment in task.inputs))


@dataclass
class SlotAggregates:
    """All aggregate queries of one slot in one epoch."""

    place: Place
    manifest: Manifest
    section: Section
    stores: Sequence[Store]
    plans: Sequence[AggregatePlan]
    staging: Mapping[str, Staging]
    watermark: int | None
    """After the epoch."""
    segments: list[Segment] = field(default_factory=list)
    results: dict[str, Writer] = field(default_factory=dict)

    def run(
        self, stage: int, new: Mapping[int, Rows], changes: Mapping[int, Sequence[pa.Table]], routes: Routes
    ) -> Iterator[Envelope]:
        """What there is to do at a stage."""
        if stage == Stage.FIRST:
            yield from self.keys(new, routes)
        elif stage == Stage.TOTALS:
            self.groups(changes, routes)
        elif stage == Stage.COMPOSITES:
            self.composites(changes, routes)

    def keys(self, new: Mapping[int, Rows], routes: Routes) -> Iterator[Envelope]:
        """The first stage: keep new rows, and send what changed to the slots of the groups."""
        told: set[int] = set()
        for plan in self.plans:
            if plan.enumeration is not None:
                continue
            inputs = plan.aggregation.inputs
            rows = [new.get(entry.store) for entry in inputs]
            step = KeyAggregator(plan.aggregation).step(rows, [self._stored(store) for store in plan.kept], self._clock)
            for store, summary in zip(plan.kept, step.kept, strict=True):
                self._keep(store, summary)
            if step.results is not None:
                self._put_out(plan, step.results)
            for index, summary in ((plan.totals, step.totals), (plan.leases, step.leases)):
                for envelope in self._dealt(summary, index, routes):
                    told.add(envelope.slot)
                    yield envelope
            if plan.emits_always:
                told.add(_only_slot(routes, Stage.TOTALS))
        for slot in sorted(told):
            yield Envelope(slot, Kind(Content.REACHED), json.dumps(self.watermark).encode())

    def groups(self, changes: Mapping[int, Sequence[pa.Table]], routes: Routes) -> None:
        """The second stage: add what changed to the totals, and put out the groups that are other than before."""
        for plan in self.plans:
            if plan.totals is None:
                continue
            emits = plan.emits_always and _only_slot(routes, Stage.TOTALS) == self.place.slot
            sent = changes.get(plan.totals, ())
            leased = () if plan.leases is None else changes.get(plan.leases, ())
            if not (emits or sent or leased):
                continue
            stored_leases = [] if plan.leases is None else self._stored(plan.leases)
            aggregator = GroupAggregator(plan.aggregation, emits)
            step = aggregator.step(sent, leased, self._stored(plan.totals), stored_leases, self._clock)
            self._keep(plan.totals, step.totals)
            if plan.leases is not None:
                self._keep(plan.leases, step.leases)
            self._put_out(plan, step.results)

    def composites(self, sent: Mapping[int, Sequence[pa.Table]], routes: Routes) -> None:
        """The only stage of queries that enumerate: composites by group, each live until its end."""
        for plan in self.plans:
            if plan.enumeration is None:
                continue
            (store,) = plan.kept
            new = sort_rows(joined(sent[store])) if sent.get(store) else None
            if plan.periods is not None:
                kept, results = WindowAggregator(plan.aggregation, plan.periods).step(
                    new, self._stored(store), self._clock
                )
                self._keep(store, kept)
                self._put_out(plan, results)
                continue
            emits = plan.emits_always and _only_slot(routes, Stage.COMPOSITES) == self.place.slot
            step = KeyAggregator(plan.aggregation, emits).step([new], [self._stored(store)], self._clock)
            self._keep(store, step.kept[0])
            assert step.results is not None
            if emits or plan.aggregation.group_by:
                self._put_out(plan, step.results)

    @property
    def _clock(self) -> Clock:
        return Clock(self.place.epoch, self.manifest.watermark, self.watermark)

    def _stored(self, store: int) -> list[Summary]:
        name = self.stores[store].name
        return [_summary(self.place, s) for s in self._segments.get(name, ())]

    @cached_property
    def _segments(self) -> Mapping[str, Sequence[Segment]]:
        found: dict[str, list[Segment]] = defaultdict(list)
        for segment in (segment.active for segment in self.section.live(self.manifest.watermark)):
            if segment.parts:
                found[segment.store].append(segment)
        return found

    def _keep(self, store: int, summary: Summary | None) -> None:
        if summary is not None and len(summary):
            entry = self.stores[store]
            self.segments.append(self.place.write(Rows(summary.table), entry.name, entry.window_us))

    def _dealt(self, summary: Summary | None, index: int | None, routes: Routes) -> list[Envelope]:
        if summary is None or index is None:
            return []
        rows = summary.table.drop_columns([RUN, ORDER])
        return deal_light(rows, index, self.stores[index].stage, routes)

    def _put_out(self, plan: AggregatePlan, results: pa.Table) -> None:
        writer = self.staging[plan.query].writer(plan.schema, self.place.epoch, self.place.slot)
        self.results[plan.query] = writer
        if not results.num_rows:
            return
        if plan.selected is not None:
            results = results.select([source for _, source in plan.selected])
        for piece in cut(results, BATCH_BYTES):
            writer.write([column.combine_chunks() for column in piece.columns])


def with_ends(found: Composites, columns: Sequence[pa.Array], reached: int | None) -> list[pa.Array]:
    """Composites with the time until which all components are live, without those that are not live any more."""
    _, deadlines = found.times_and_deadlines()
    ends = np.where(deadlines > UNBOUNDED // 2, FOREVER, deadlines)
    kept = pa.array(np.flatnonzero(ends >= (ALL_TIME if reached is None else reached)))
    return [*(values.take(kept) for values in columns), pa.array(ends).take(kept)]


def route_composites(
    plan: AggregatePlan, manifest: Callable[[], Manifest], routes_of: Callable[[Manifest], Routes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that sends composites, with groups and arguments computed, to the slots of their groups."""
    aggregation, (store,) = plan.aggregation, plan.kept
    kinds = {source: aggregation.schema.field(name).type for name, source in aggregation.group_by}
    measures = (m for m in aggregation.inputs[0].measures if not m.column.startswith(DISTINCT))
    kinds |= {measure.column: measure.type for measure in measures}
    kinds |= {} if plan.periods is None else dict(plan.periods.distinct)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routes = routes_of(manifest())
        for batch in batches:
            if not batch.num_rows:
                continue
            columns = {name: batch.column(name).cast(kind) for name, kind in kinds.items()}
            ends = batch.column(DEADLINE)
            if plan.periods is not None:
                columns, ends = _in_periods(plan.periods, columns)
            groups = [canonical(columns[source]) for _, source in aggregation.group_by]
            hashes = hash_groups(groups) if groups else np.zeros(batch.num_rows, dtype=np.uint64)
            rows = pa.table({HASH: hashes.view(np.int64), TIME: ends, **columns})
            yield from envelopes_to_batch(deal_light(rows, store, Stage.COMPOSITES, routes))

    return run


def _in_periods(periods: Periods, columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], pa.Array]:
    """Composites in each window of time that they lie in, and the last moment at which that may change."""
    kind = columns[periods.start].type
    times = np.asarray(columns[periods.start].cast(pa.int64()).to_numpy(zero_copy_only=False))
    rows, starts, ends = periods.of(times)
    made = {name: values.take(pa.array(rows)) for name, values in columns.items()}
    made[periods.start] = pa.array(starts).cast(kind)
    made[periods.end] = pa.array(starts + periods.size_us).cast(kind)
    return made, pa.array(ends)


def _summary(place: Place, segment: Segment) -> Summary:
    """A segment's rows, of which the slot's are live."""
    met = ((part, group) for part in segment.parts for group in place.groups if part.meets(group))
    ranges: list[tuple[int, int]] = []
    for low, high in sorted((max(part.first, group.first), min(part.last, group.last)) for part, group in met):
        if ranges and ranges[-1][1] + 1 == low:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    return Summary(open_segment(place.files, segment).table, ranges)


def _only_slot(routes: Routes, stage: int) -> int:
    """The slot of the only group of a query without GROUP BY, whose hash is zero."""
    return int(routes.tables[stage].slot_of(np.zeros(1, dtype=np.uint64))[0])
