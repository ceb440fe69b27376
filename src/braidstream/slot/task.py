"""The slot's task: unpack, join, store, report. One Spark task for each slot and stage in each epoch.

A flow of type-1 queries has one stage. A query of type 2 has one for each level of its tree: a slot of one stage sends
intermediate results to the slots of the next, and passes on what is meant for later ones.

Everything a task does is a function of the manifest before, the envelopes, and the slot's number; it writes only files
with names of their own. So Spark may run it twice, or kill it half-way: what counts is the report that Spark accepts.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.control.probing import probing_order
from braidstream.errors import DamagedState, RunError
from braidstream.kernels.biclique import PROBE, STORED
from braidstream.kernels.frequent import largest_runs
from braidstream.kernels.join import Pool, batch_bytes, composites, limit_of
from braidstream.kernels.matching import satisfying
from braidstream.kernels.routing import (
    Routes,
    deal,
    deal_light,
    spread_by_time,
    unpack,
)
from braidstream.kernels.rows import DEADLINE, HASH, I64, KEY, TIME, U64, Rows, sort_rows, user_name
from braidstream.kernels.sizes import joined
from braidstream.model.directory import Group
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.faults import reach
from braidstream.model.join_kinds import JoinKind
from braidstream.model.numbers import SlotId
from braidstream.model.reports import Failure, Frequent, GroupCounts, Result, SlotReport, StagedFile, Tally, encoded
from braidstream.model.slowness import slow_down
from braidstream.model.snapshots import Written
from braidstream.model.stores import Branch, Join, Store
from braidstream.slot.aggregation import END, SlotAggregates, merge_segments, reached_watermark, with_ends
from braidstream.slot.allocators import give_back, spare_what_stays
from braidstream.slot.closing import Closings, Decided
from braidstream.slot.counting import Counting, stored
from braidstream.slot.epoch_task import EpochTask, routes_of
from braidstream.slot.handover import blob_of, handed_over
from braidstream.slot.pairing import pairs_of
from braidstream.slot.pools.cell_pools import CellPools
from braidstream.slot.pools.group_pools import Pools
from braidstream.slot.pools.unit_pools import BicliquePools
from braidstream.slot.section_writing import Merged, written
from braidstream.slot.sharing import CompositeBatch, shared, told_columns
from braidstream.state import adoption, compaction, syncing
from braidstream.state.cells import Cells
from braidstream.state.files import Files, unwritable
from braidstream.state.filters import filter_of, taken_in
from braidstream.state.manifest import Segment
from braidstream.state.opened import begin_task
from braidstream.state.seals import seal_seconds
from braidstream.state.segments import Place
from braidstream.state.staging import Writer

__all__ = ["REPORTS_SCHEMA", "SlotTask", "executor", "failure_of"]

REPORTS_SCHEMA = pa.schema([("report", pa.binary())])


@dataclass(frozen=True)
class _Side:
    """The pools of a join in the slot's groups, its cells, or as a unit: what matches are counted by, their counts."""

    pools: Sequence[Pool] | None
    lows: U64
    matches: I64
    windows: Sequence[int | None] | None = None
    """Where they are not those of the join's inputs."""


@dataclass(frozen=True)
class SlotTask:
    """The function that Spark runs over the envelopes of each partition. The last stage gives reports."""

    task: EpochTask
    stage: int = 0
    is_last: bool = True

    def at(self, epoch: int) -> SlotTask:
        """The same for another epoch: all else of most epochs is alike."""
        return replace(self, task=replace(self.task, epoch=epoch))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slots that the envelopes are for, nearly always one."""
        sent = self._sent(batches)
        return map(_reported, sent) if self.is_last else handed_over(sent, self.task.handover)

    def _sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Envelope]:
        spare_what_stays("slot")
        own: dict[SlotId, list[tuple[Kind, pa.Buffer]]] = defaultdict(list)
        for batch in batches:
            slots, kinds, blobs = (batch.column(name) for name in ("slot", "kind", "blob"))
            for i in range(batch.num_rows):
                envelope = Envelope.of(slots[i].as_py(), kinds[i].as_py(), blobs[i].as_buffer())
                if _is_for_later(self.task, self.stage, envelope.kind):
                    yield envelope
                else:
                    own[SlotId(envelope.slot)].append((envelope.kind, blob_of(envelope)))
        for slot, received in own.items():
            yield from _guarded(self.task, self.stage, slot, received)
            if self.task.deferred and not self.is_last:  # what it left out at a later stage needs nothing new there
                yield Envelope(slot, Kind(Content.TICK), b"")


def _is_for_later(task: EpochTask, stage: int, kind: Kind) -> bool:
    is_of_later_store = kind.store is not None and task.stores[kind.store].stage > stage
    return kind.content is Content.REPORT or is_of_later_store


def _reported(envelope: Envelope) -> pa.RecordBatch:
    blob = blob_of(envelope)
    report = blob if isinstance(blob, bytes) else blob.to_pybytes()
    return pa.RecordBatch.from_arrays([pa.array([report], pa.binary())], schema=REPORTS_SCHEMA)


def _guarded(task: EpochTask, stage: int, slot: SlotId, received: list[tuple[Kind, pa.Buffer]]) -> Iterator[Envelope]:
    """Damaged state and a full disk are reported instead of raised: trying again would not help."""
    begin_task()
    try:
        yield from _Slot(task, stage, slot, received).run()
    except (RunError, OSError) as error:
        yield Envelope(slot, Kind(Content.REPORT), encoded(failure_of(error, slot, task.root)))


def failure_of(error: RunError | OSError, slot: SlotId, root: str) -> Failure:
    """The report of a slot that cannot go on; an error that may pass with the next attempt is raised again."""
    told = error if isinstance(error, RunError) else unwritable(error, root)
    if told is None:
        raise error
    return Failure.of(slot, told)


def executor() -> str:
    """The executor this task runs on: all its Python workers are children of one process."""
    return f"{socket.gethostname()}:{os.getppid()}"


class _Slot:
    """One slot in one stage of one epoch."""

    def __init__(self, task: EpochTask, stage: int, slot: SlotId, received: list[tuple[Kind, pa.Buffer]]) -> None:
        self.started, self.began, self.sealed_s = time.perf_counter(), time.time(), seal_seconds()
        self.task, self.stage, self.slot = task, stage, slot
        self.manifest = task.manifest()
        self.files = Files(task.root, run=task.run)
        self.section = self.manifest.section((stage, slot))
        self.groups: tuple[Group, ...] = self.section.groups
        self.lows: U64 = np.array([group.first for group in self.groups], dtype=np.uint64)
        self.matches: I64 = np.zeros(len(self.groups), dtype=np.int64)
        self.produced: dict[str, int] = defaultdict(int)
        self.probes: dict[str, dict[int, list[int]]] = {}
        self.bytes = sum(blob.size for _, blob in received)
        self.tallies: list[Tally] = []
        self.late: dict[str, StagedFile] = {}
        self.seen: list[Tally] = []
        self.reached = self.manifest.watermark if task.reached is None else task.reached
        self.changes: dict[int, list[pa.Table]] = defaultdict(list)
        self.new, self.new_in_cells = self._unpack(received)
        if task.shed:
            shed, stores = filter_of(self.manifest), task.stores
            taken = {i: taken_in(rows, stores[i].name, stage, shed) for i, rows in self.new.items()}
            self.new = {i: rows for i, rows in taken.items() if len(rows)}
        if stage == 0 and task.reached is None:
            before = self.manifest.watermark
            self.reached = reached_watermark(self.manifest.newest, self.seen, task.delays_us, before, task.idle)
        if task.ends:
            self.reached = END
        lost = next((task.stores[i].name for i in self.new if task.stores[i].is_unkeyed), None)
        if lost is not None:
            raise DamagedState(task.root, f"rows of {lost} came to a group: the manifest has no grid for them")
        self.counting = Counting(self.manifest, self.groups, self.lows, task.shed) if task.shed else None
        self.joins = [join for join in task.joins if join.stage == stage and join.query not in task.suspended]
        is_closing = any(join.kind is not JoinKind.INNER for join in self.joins) and not task.deferred
        self.opened: dict[str, Rows] | None = {} if is_closing else None

    @cached_property
    def routes(self) -> Routes:
        """Where intermediate results go: only who sends any reads the routing table."""
        return routes_of(self.manifest)

    def run(self) -> Iterator[Envelope]:
        """Intermediate results for the next stage as they are found, and at the end the report."""
        reach("task-start", epoch=self.task.epoch)
        give_back(self.task.piece_bytes)
        state = (self.files, self.manifest, self.section, self.task.stores)
        units = {use: rows for use, rows in self.new_in_cells.items() if use[1] in (STORED, PROBE)}
        in_cells = {use: rows for use, rows in self.new_in_cells.items() if use not in units}
        composed = [join for join in self.joins if join.kind.composes]
        place = Place(self.files, self.task.epoch, self.slot, self.groups)
        began = time.perf_counter()
        segments = self._store_new(place)  # nothing of them depends on the joins, while which the disk takes them
        new_s = time.perf_counter() - began
        pools, cells = Pools(*state, self.new, composed, self.opened), CellPools(*state, in_cells, composed)
        unit = BicliquePools(*state, units)
        self.codes = np.append(cells.codes, np.uint64(self.slot)) if units else cells.codes
        self.cell_matches: I64 = np.zeros(len(self.codes), dtype=np.int64)
        results = {join.query: self._writer(join) for join in self.joins if join.target is None}
        for alike in shared([join for join in composed if not join.is_unkeyed], self.task.deferred):
            join, deferred = alike[0], self.task.deferred.get(alike[0].query)
            sides = [_Side(one, self.lows, self.matches) for one in pools.sides(join, deferred)]
            sides.append(_Side(cells.of(join, deferred), self.codes, self.cell_matches))
            whole = np.zeros(1, dtype=np.uint64)
            sides += [_Side(one, whole, self.cell_matches[-1:], windows) for one, windows in unit.of(join)]
            for found in self._composites(alike, sides):
                for join in alike:
                    if join.target is None:
                        self._put_out(join, found, results[join.query])
                    else:
                        yield from self._derive(join, found, *found.composites.times_and_deadlines())
        yield from self._put_others_out(cells, results)
        reach("task-before-segment", epoch=self.task.epoch)
        joined_s = time.perf_counter() - self.started
        aggregates = self._aggregates(place)
        if aggregates.plans:
            yield from aggregates.run(self.stage, self.new, self.changes, self.routes)
        yield from self._told()
        results |= aggregates.results
        segments += [*cells.write(place), *unit.write(place), *aggregates.segments]
        reach("task-after-segment", epoch=self.task.epoch)
        give_back(self.task.piece_bytes)
        merged = [self._merge(place, merge) for merge in self._merges()]
        adopted = self._adopted(place)
        syncing.begin(durable=self.task.durable)
        section = self._written(segments, merged)
        stored_s = time.perf_counter() - self.started
        reach("task-after-section", epoch=self.task.epoch)
        if (self.task.epoch + self.slot) % 64 == 0:
            self.files.drop_copies()
        staged = {query: Result(w.rows, w.close()) for query, w in results.items()}
        syncing.settle(durable=self.task.durable)
        slow_down(executor(), time.perf_counter() - self.started, self._n_rows, sum(r.rows for r in staged.values()))
        report = SlotReport(
            slot=self.slot,
            stage=self.stage,
            began=self.began,
            store_s=stored_s - joined_s + new_s,
            executor=executor(),
            tallies=tuple(self.tallies),
            rows=self._n_rows,
            bytes=self.bytes,
            section=section,
            adopted=adopted,
            results=staged,
            produced=self.produced,
            probes={join: {at: (n, m) for at, (n, m) in own.items()} for join, own in self.probes.items()},
            late=self.late,
            groups=self._group_counts(),
            frequent=self._frequent(),
            cells=cells.counts(),
            cell_matches=tuple(zip(self.codes.tolist(), self.cell_matches.tolist(), strict=True)),
            shed={} if self.counting is None else self.counting.sent(),
            fetched=self.files.fetched,
            busy_s=time.perf_counter() - self.started,
            sealing_s=seal_seconds() - self.sealed_s,
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )
        yield Envelope(self.slot, Kind(Content.REPORT), encoded(report))

    @property
    def _n_rows(self) -> int:
        """The rows that the slot received."""
        return sum(len(rows) for rows in (*self.new.values(), *self.new_in_cells.values()))

    def _unpack(self, received: list[tuple[Kind, pa.Buffer]]) -> tuple[dict[int, Rows], dict[tuple[int, int], Rows]]:
        """The new rows by store, and those of cells by store and use."""
        tables: dict[Kind, list[pa.Table]] = defaultdict(list)
        for kind, blob in received:
            if kind.content is Content.TALLY:
                self.tallies.append(Tally.unpack(blob.to_pybytes()))
            elif kind.content is Content.SEEN:
                self.seen.append(Tally.unpack(blob.to_pybytes()))
            elif kind.content is Content.REACHED:
                self.reached = json.loads(blob.to_pybytes())
            elif kind.content is Content.ROWS and self.task.stores[kind.number].summarized:
                self.changes[kind.number].append(unpack(blob))
            elif kind.content is not Content.TICK:
                tables[kind].append(unpack(blob))
        for branch in self.task.branches:
            late = tables.pop(Kind(Content.LATE, branch.index), [])
            if late and (staged := self._write_late(branch, late)):
                self.late[branch.stream] = staged
        rows = {kind: sort_rows(joined(parts)) for kind, parts in sorted(tables.items())}
        in_cells = {(kind.number, kind.use): own for kind, own in rows.items() if kind.content is Content.CELLS}
        return {kind.number: own for kind, own in rows.items() if kind.content is Content.ROWS}, in_cells

    def _write_late(self, branch: Branch, envelopes: Sequence[pa.Table]) -> StagedFile | None:
        names = [user_name(name) for name in envelopes[0].column_names]
        schema = envelopes[0].rename_columns(names).schema
        writer = self.task.late[branch.stream].writer(schema, self.task.epoch, self.slot)
        for batch in (batch for rows in envelopes for batch in rows.to_batches()):
            writer.write(batch.columns)
        return writer.close()

    def _aggregates(self, place: Place) -> SlotAggregates:
        plans = () if self.task.deferred else self.task.aggregates
        if self.task.ends:  # only windows of time end with the input
            plans = tuple(plan for plan in plans if plan.periods is not None)
        return SlotAggregates(
            place, self.manifest, self.section, self.task.stores, plans, self.task.staging, self.reached
        )

    def _close(self, results: Mapping[str, Writer]) -> Iterator[Envelope]:
        """What joins that are no inner ones put out beside matches; a pass for deferred joins has nothing of it."""
        own = [join for join in self.joins if join.kind is not JoinKind.INNER]
        if not own or self.task.deferred:
            return
        state = (self.files, self.manifest, self.slot, self.groups, self.task.stores)
        closings = Closings(*state, self.new, self.reached, self.opened or {})
        for join in own:
            if (counting := self._counting(join)) is not None:
                counting.close(join)
        for found in (found for join in own for found in closings.of(join)):
            if (counting := self._counting(found.join)) is not None:
                counting.add_decided(found.join, found)
            if found.join.target is None:
                found.write(results[found.join.query], self.task.epoch)
            else:
                yield from self._derive(found.join, found, *found.times_and_deadlines())

    def _writer(self, join: Join) -> Writer:
        return self.task.staging[join.query].writer(join.schema, self.task.epoch, self.slot)

    def _put_out(self, join: Join, found: CompositeBatch, writer: Writer) -> None:
        columns = [found.column(out) for out in join.outputs]
        columns += told_columns(join, len(found.composites), self.task.epoch, recovered=False)
        writer.write(with_ends(found.composites, columns, self.reached) if join.lives else columns)

    def _derive(self, join: Join, found: CompositeBatch | Decided, newest: I64, deadlines: I64) -> Iterator[Envelope]:
        """Intermediate results, re-indexed on the next attribute, with the newest time of their components."""
        target = join.target
        assert target is not None
        columns: dict[str, Any] = {HASH: found.column(target.hash), TIME: pa.array(newest)}
        if self.task.stores[target.store].verified:
            columns |= {f"{KEY}{i}": found.column(key) for i, key in enumerate(target.keys)}
        columns[DEADLINE] = pa.array(deadlines)
        columns |= {out.name: found.column(out) for out in join.outputs}
        rows = pa.table(columns)
        if rows.column(HASH).null_count:
            yield from self._without_key(rows, self.task.stores[target.store])
            rows = rows.filter(pc.is_valid(rows.column(HASH)))
        if join.lives and self.manifest.watermark is not None:
            rows = rows.filter(pc.greater_equal(rows.column(DEADLINE), self.manifest.watermark))
        self.produced[join.query] += rows.num_rows
        yield from deal(rows, self.task.stores[target.store], self.routes)

    def _without_key(self, rows: pa.Table, store: Store) -> Iterator[Envelope]:
        """Intermediate results without a key, where a join puts these out: spread by their times."""
        if store.keyless is None:
            return
        own = rows.filter(pc.is_null(rows.column(HASH)))
        own = own.drop_columns([name for name in own.column_names if name.startswith(KEY)])
        spread = pa.array(spread_by_time(np.asarray(own.column(TIME).combine_chunks())).view(np.int64))
        own = own.set_column(own.column_names.index(HASH), HASH, spread)
        yield from deal_light(own, store.keyless, store.stage, self.routes)

    def _told(self) -> Iterator[Envelope]:
        """The watermark after the epoch for all slots of the next stage, where rows are closed at a later one."""
        if self.slot == 0 and any(join.closings and join.stage > self.stage for join in self.task.joins):
            told = json.dumps(self.reached).encode()
            yield from (Envelope(slot, Kind(Content.REACHED), told) for slot in range(self.manifest.n_slots))

    def _composites(self, alike: Sequence[Join], sides: Sequence[_Side]) -> Iterator[CompositeBatch]:
        """What the groups and then the cells of the slot produce for joins that share it, each batch once.

        Every join counts the composites as its own.
        """
        join = alike[0]
        counted = [(one, counting) for one in alike if (counting := self._counting(one)) is not None]
        for one, counting in counted:
            counting.begin(one, [self.new[e.store].hashes for e in one.inputs if e.store in self.new])
        probes: dict[int, list[int]] = {}
        self.probes |= {one.query: probes for one in alike}
        notes = self.manifest.notes
        fanouts = notes.slot_fanouts.get(join.query, {}).get(self.slot) or notes.fanouts.get(join.query, {})
        order = probing_order(len(join.inputs), fanouts)
        bits = [entry.bit for entry in join.inputs]
        for side in sides:
            if side.pools is None:
                continue
            cuts = [pool.new.cuts(side.lows) for pool in side.pools]
            windows = side.windows or [entry.window_us for entry in join.inputs]
            limit = limit_of(side.pools, self.task.piece_bytes)
            each = composites(
                side.pools,
                windows,
                order,
                bits,
                limit,
                probes,
                lives=join.lives,
                taken=self._taken(alike),
                most_bytes=batch_bytes(self.task.piece_bytes),
                gaps=join.gaps,
            )
            for whole in each:
                found = satisfying(side.pools, whole, join.on)
                ends = np.searchsorted(found.index[found.source], cuts[found.source] + found.offset)
                side.matches[:] += len(alike) * np.diff(ends)
                for one, counting in counted:
                    counting.add(one, side.pools, found)
                yield CompositeBatch(side.pools, found)

    def _put_others_out(self, cells: CellPools, results: Mapping[str, Writer]) -> Iterator[Envelope]:
        """What joins put out that does not come of composites on a key."""
        self._pair(cells, results)
        yield from self._close(results)

    def _pair(self, cells: CellPools, results: Mapping[str, Writer]) -> None:
        """What the cells of the slot produce for joins without an equality, each batch once for all that are alike."""
        for alike in shared([join for join in self.joins if join.is_unkeyed], {}):
            for code, found in pairs_of(alike[0], cells, self._taken(alike), self.task.piece_bytes):
                self.cell_matches[np.searchsorted(self.codes, np.uint64(code))] += len(alike) * len(found.composites)
                for join in alike:
                    self._put_out(join, found, results[join.query])

    def _taken(self, alike: Sequence[Join]) -> list[set[str]]:
        """For each input the columns that some of the joins take of a composite."""
        found: list[set[str]] = [set() for _ in alike[0].inputs]
        for join in alike:
            for out in join.taken:
                found[out.input].add(out.column)
            for one in join.on:
                found[0].add(one.left)
                found[1].add(one.right)
        return found

    def _counting(self, join: Join) -> Counting | None:
        names = [self.task.stores[entry.store].name for entry in join.inputs]
        return self.counting if self.counting is not None and self.counting.counts(join, names) else None

    def _store_new(self, place: Place) -> list[Segment]:
        """The new rows of groups, as segments, which the disk begins to take."""
        known, stores = Cells(self.manifest), self.task.stores
        kept = {i: rows for i, rows in self.new.items() if stores[i].kept}
        written = [segment for i, rows in kept.items() for segment in self._stored(place, rows, stores[i])]
        syncing.begin(durable=self.task.durable)
        return [known.without_heavy(segment) for segment in written]

    def _stored(self, place: Place, rows: Rows, store: Store) -> list[Segment]:
        if self.counting is None or store.name not in self.task.shed:
            return [place.write(rows, store.name, store.window_us)]
        return stored(place, rows, store, self.counting.bits)

    def _merges(self) -> list[compaction.SegmentMerge]:
        return [] if self.task.merging is None else self.task.merging.plan(self.section, self.manifest)

    def _merge(self, place: Place, merge: compaction.SegmentMerge) -> Merged:
        reach("compaction", epoch=self.task.epoch)
        store = next(store for store in self.task.stores if store.name == merge.store)
        return Merged(merge, merge_segments(place, merge, store) if store.summarized else compaction.run(place, merge))

    def _written(self, new: Sequence[Segment], merged: Sequence[Merged]) -> Written | None:
        """The slot's section after the epoch, if it is another."""
        kept = frozenset(store.name for store in self.task.stores)
        return written(self.files, self.task.epoch, self.section, self.manifest.watermark, kept, new, merged)

    def _adopted(self, place: Place) -> dict[int, tuple[Segment, ...]]:
        """What the slot's cells take over after a regrid, by the number of the adoption."""
        here = {store.name for store in self.task.stores if store.stage == self.stage}
        own = [one for one in self.task.adoptions if self.slot in one.slots and one.store in here]
        if own:
            reach("compaction", epoch=self.task.epoch)
        return {one.number: tuple(adoption.run(place, self.manifest, one)) for one in own}

    def _frequent(self) -> dict[int, Frequent]:
        """The largest runs of keys among the new rows of each store that may have grids."""
        if not self.task.tracks:
            return {}
        stores = self.task.stores
        return {i: largest_runs(rows, stores[i]) for i, rows in self.new.items() if stores[i].family}

    def _group_counts(self) -> GroupCounts:
        """The groups with new rows or matches."""
        rows: I64 = np.zeros(len(self.groups), dtype=np.int64)
        for new in self.new.values():
            rows += np.diff(new.cuts(self.lows))
        for change in (change for sent in self.changes.values() for change in sent):
            hashes = np.asarray(change.column(HASH).combine_chunks()).view(np.uint64)
            rows += np.bincount(np.searchsorted(self.lows, hashes, side="right") - 1, minlength=len(rows))
        ids: I64 = np.array([group.id for group in self.groups], dtype=np.int64)
        seen = (rows != 0) | (self.matches != 0)
        return GroupCounts.of(ids[seen], rows[seen], self.matches[seen])
