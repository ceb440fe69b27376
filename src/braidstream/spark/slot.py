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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.control.directory import Group
from braidstream.control.probing import probing_order
from braidstream.errors import DamagedState, RunError
from braidstream.kernels.join import Composites, Pool, column, composites
from braidstream.kernels.measures import AggregatePlan
from braidstream.kernels.plan import Branch, Join, Store
from braidstream.kernels.routing import (
    REACHED,
    REPORT,
    SEEN,
    TALLY,
    TICK,
    Envelope,
    Routes,
    Tally,
    deal,
    envelopes_to_batch,
    late_kind,
    unpack,
)
from braidstream.kernels.rows import DEADLINE, HASH, I64, KEY, TIME, U64, Rows, sort_rows
from braidstream.spark.aggregation import SlotAggregates, merge_segments, reached_watermark, with_ends
from braidstream.spark.pools import Pools
from braidstream.spark.shedding import Counting, stored
from braidstream.spark.told import told_columns
from braidstream.state import compaction
from braidstream.state.files import Files, unwritable
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.results import Staging, Writer
from braidstream.state.segments import Place
from braidstream.testing.faults import reach
from braidstream.testing.slowness import slow_down

__all__ = [
    "REPORTS",
    "REPORTS_SCHEMA",
    "EpochTask",
    "failure_of",
    "read_manifest",
    "routes_of",
    "slot_task",
]

REPORTS = "report binary"
REPORTS_SCHEMA = pa.schema([("report", pa.binary())])


@dataclass(frozen=True)
class EpochTask:
    """What every slot's task of an epoch is given."""

    root: str
    run: str
    """Unique for each start of a flow, so that a worker process that outlives it does not trust its cache."""
    epoch: int
    stores: tuple[Store, ...]
    branches: tuple[Branch, ...]
    joins: tuple[Join, ...]
    staging: Mapping[str, Staging]
    late: Mapping[str, Staging]
    merges: Mapping[int, Sequence[compaction.Merge]]
    suspended: frozenset[str] = frozenset()
    """Joins that produce nothing in this epoch."""
    deferred: Mapping[str, int] = field(default_factory=dict)
    """Joins that now produce what they did not since an epoch. The task then reads the pending manifest."""
    aggregates: tuple[AggregatePlan, ...] = ()
    delays_us: Mapping[str, int] = field(default_factory=dict)
    """Of the streams that define the watermark."""
    reached: int | None = None
    """The watermark after the epoch, once the driver knows it."""
    shed: frozenset[str] = frozenset()
    """Stores whose rows may be shed: their sample is stored apart, and results are counted."""

    def manifest(self) -> Manifest:
        """The manifest that defines routing and state for this task."""
        pending = bool(self.deferred)
        return read_manifest(self.root, self.epoch if pending else self.epoch - 1, self.run, pending)


@lru_cache(maxsize=4)
def read_manifest(root: str, epoch: int, run: str, pending: bool = False) -> Manifest:
    """The manifest of an epoch, cached in the worker process for one run of the flow."""
    del run
    return Manifest.read(Files(root), epoch, pending=pending)


def routes_of(manifest: Manifest) -> Routes:
    """Where rows go in the epoch after a manifest."""
    directory = manifest.directory
    return Routes(directory.depth, directory.slots[directory.table()], manifest.n_slots, manifest.watermark)


def slot_task(
    task: EpochTask, stage: int = 0, *, is_last: bool = True
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over the envelopes of each partition. The last stage gives reports."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own: dict[int, list[tuple[int, pa.Buffer]]] = defaultdict(list)
        for batch in batches:
            slots, kinds, blobs = (batch.column(name) for name in ("slot", "kind", "blob"))
            for i in range(batch.num_rows):
                envelope = Envelope(slots[i].as_py(), kinds[i].as_py(), blobs[i].as_buffer())
                if _is_for_later(task, stage, envelope.kind):
                    yield from _sent(envelope, is_last)
                else:
                    own[envelope.slot].append((envelope.kind, envelope.blob))
        for slot, received in own.items():
            for envelope in _guarded(task, stage, slot, received):
                yield from _sent(envelope, is_last)

    return run


def _is_for_later(task: EpochTask, stage: int, kind: int) -> bool:
    return kind == REPORT or (kind >= 0 and task.stores[kind].stage > stage)


def _sent(envelope: Envelope, is_last: bool) -> Iterator[pa.RecordBatch]:
    if is_last:
        blob = envelope.blob if isinstance(envelope.blob, bytes) else envelope.blob.to_pybytes()
        yield pa.RecordBatch.from_arrays([pa.array([blob], pa.binary())], schema=REPORTS_SCHEMA)
    else:
        yield from envelopes_to_batch([envelope])


def _guarded(task: EpochTask, stage: int, slot: int, received: list[tuple[int, pa.Buffer]]) -> Iterator[Envelope]:
    """Damaged state and a full disk are reported instead of raised: trying again would not help."""
    try:
        yield from _Slot(task, stage, slot, received).run()
    except (RunError, OSError) as error:
        yield _report_envelope(slot, failure_of(error, slot, task.root))


def failure_of(error: RunError | OSError, slot: int, root: str) -> dict[str, Any]:
    """The report of a slot that cannot go on; an error that may pass with the next attempt is raised again."""
    if isinstance(error, DamagedState):
        wrong = error.wrong.removeprefix(f"{error.path}: ")
        return {"slot": slot, "damaged": {"path": error.path, "wrong": wrong}}
    told = error if isinstance(error, RunError) else unwritable(error, root)
    if told is None:
        raise error
    return {"slot": slot, "failed": {"wrong": told.wrong, "expected": told.expected, "fix": told.fix}}


def _report_envelope(slot: int, report: Mapping[str, Any]) -> Envelope:
    return Envelope(slot, REPORT, json.dumps(report).encode())


def executor() -> str:
    """The executor this task runs on: all its Python workers are children of one process."""
    return f"{socket.gethostname()}:{os.getppid()}"


class _Slot:
    """One slot in one stage of one epoch."""

    def __init__(self, task: EpochTask, stage: int, slot: int, received: list[tuple[int, pa.Buffer]]) -> None:
        self.started = time.perf_counter()
        self.task, self.stage, self.slot = task, stage, slot
        self.manifest = task.manifest()
        self.files = Files(task.root)
        self.groups: tuple[Group, ...] = self.manifest.directory.of_slot(slot)
        self.lows: U64 = np.array([group.low for group in self.groups], dtype=np.uint64)
        self.matches = np.zeros(len(self.groups), dtype=np.int64)
        self.produced: dict[str, int] = defaultdict(int)
        self.probes: dict[str, dict[int, list[int]]] = defaultdict(dict)
        self.bytes = sum(blob.size for _, blob in received)
        self.tallies: list[Tally] = []
        self.late: dict[str, str | None] = {}
        self.seen: list[Tally] = []
        self.reached = self.manifest.watermark if task.reached is None else task.reached
        self.changes: dict[int, list[pa.Table]] = defaultdict(list)
        self.new = self._unpack(received)
        if stage == 0:
            before = self.manifest.watermark
            self.reached = reached_watermark(self.manifest.newest, self.seen, task.delays_us, before)
        self.counting = Counting(self.manifest, self.groups, self.lows, task.shed) if task.shed else None
        self.joins = [join for join in task.joins if join.stage == stage and join.query not in task.suspended]

    def run(self) -> Iterator[Envelope]:
        """Intermediate results for the next stage as they are found, and at the end the report."""
        reach("task-start", epoch=self.task.epoch)
        pools = Pools(self.files, self.manifest, self.slot, self.task.stores, self.new, self.joins)
        results: dict[str, Writer] = {}
        for join in self.joins:
            inputs = pools.of(join, self.task.deferred.get(join.query))
            if join.target is None:
                results[join.query] = self._result(join, inputs)
            else:
                yield from self._derive(join, inputs)
        reach("task-before-segment", epoch=self.task.epoch)
        place = Place(self.files, self.task.epoch, self.slot, self.groups)
        aggregates = self._aggregates(place)
        yield from aggregates.run(self.stage, self.new, self.changes, routes_of(self.manifest))
        results |= aggregates.results
        stores = self.task.stores
        kept = {i: rows for i, rows in self.new.items() if stores[i].kept}
        segments = [segment for i, rows in kept.items() for segment in self._stored(place, rows, stores[i])]
        segments += aggregates.segments
        reach("task-after-segment", epoch=self.task.epoch)
        merged = [self._merge(place, merge) for merge in self._merges()]
        if self.task.epoch % 16 == 0:
            self.files.keep_copies(segment.name for segment in self.manifest.segments)
        slow_down(executor(), time.perf_counter() - self.started, sum(len(rows) for rows in self.new.values()))
        yield _report_envelope(
            self.slot,
            {
                "slot": self.slot,
                "stage": self.stage,
                "executor": executor(),
                "tallies": [asdict(tally) for tally in self.tallies],
                "rows": sum(len(rows) for rows in self.new.values()),
                "segments": [segment.as_plain() for segment in segments],
                "merged": merged,
                "results": {query: {"rows": w.rows, "file": w.close()} for query, w in results.items()},
                "produced": dict(self.produced),
                "probes": self.probes,
                "bytes": self.bytes,
                "late": self.late,
                "groups": self._group_reports(),
                **({} if self.counting is None else {"shed": self.counting.plain()}),
                "fetched": self.files.fetched,
                "busy_s": time.perf_counter() - self.started,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            },
        )

    def _unpack(self, received: list[tuple[int, pa.Buffer]]) -> dict[int, Rows]:
        tables: dict[int, list[pa.Table]] = defaultdict(list)
        for kind, blob in received:
            if kind == TALLY:
                self.tallies.append(Tally.unpack(blob.to_pybytes()))
            elif kind == SEEN:
                self.seen.append(Tally.unpack(blob.to_pybytes()))
            elif kind == REACHED:
                self.reached = json.loads(blob.to_pybytes())
            elif kind >= 0 and self.task.stores[kind].summarized:
                self.changes[kind].append(unpack(blob))
            elif kind != TICK:
                tables[kind].append(unpack(blob))
        for branch in self.task.branches:
            late = tables.pop(late_kind(branch), [])
            if late:
                self.late[branch.stream] = self._write_late(branch, pa.concat_tables(late))
        return {store: sort_rows(pa.concat_tables(parts)) for store, parts in sorted(tables.items())}

    def _write_late(self, branch: Branch, rows: pa.Table) -> str | None:
        writer = self.task.late[branch.stream].writer(rows.schema, self.task.epoch, self.slot)
        for batch in rows.to_batches():
            writer.write(batch.columns)
        return writer.close()

    def _aggregates(self, place: Place) -> SlotAggregates:
        plans = () if self.task.deferred else self.task.aggregates
        return SlotAggregates(place, self.manifest, self.task.stores, plans, self.task.staging, self.reached)

    def _result(self, join: Join, pools: Sequence[Pool] | None) -> Writer:
        writer = self.task.staging[join.query].writer(join.schema, self.task.epoch, self.slot)
        for found in self._composites(join, pools):
            assert pools is not None
            columns = [column(pools[out.input], out.column, found.index[out.input]) for out in join.outputs]
            columns += told_columns(join, len(found), self.task.epoch, recovered=False)
            writer.write(with_ends(join, pools, found, columns, self.reached) if join.lives else columns)
        return writer

    def _derive(self, join: Join, pools: Sequence[Pool] | None) -> Iterator[Envelope]:
        """Intermediate results, re-indexed on the next attribute, with the newest time of their components."""
        target = join.target
        assert target is not None
        routes = routes_of(self.manifest)
        for found in self._composites(join, pools):
            assert pools is not None
            taken = {c: column(pools[c.input], c.column, found.index[c.input]) for c in (target.hash, *target.keys)}
            newest, deadlines = found.times_and_deadlines()
            columns: dict[str, Any] = {HASH: taken[target.hash], TIME: pa.array(newest)}
            if self.task.stores[target.store].verified:
                columns |= {f"{KEY}{i}": taken[key] for i, key in enumerate(target.keys)}
            columns[DEADLINE] = pa.array(deadlines)
            columns |= {out.name: column(pools[out.input], out.column, found.index[out.input]) for out in join.outputs}
            rows = pa.table(columns)
            if rows.column(HASH).null_count:
                rows = rows.filter(pc.is_valid(rows.column(HASH)))
            self.produced[join.query] += rows.num_rows
            yield from deal(rows, target.store, routes)

    def _composites(self, join: Join, pools: Sequence[Pool] | None) -> Iterator[Composites]:
        if (counting := self._counting(join)) is not None:
            counting.begin(join, [self.new[e.store].hashes for e in join.inputs if e.store in self.new])
        if pools is None:
            return
        cuts = [pool.new.cuts(self.lows) for pool in pools]
        windows = [None if join.lives else entry.window_us for entry in join.inputs]
        fanouts = self.manifest.memory.get("fanouts", {}).get(join.query, {})
        order = probing_order(len(pools), {int(target): fanout for target, fanout in fanouts.items()})
        probes = self.probes[join.query]
        for found in composites(pools, windows, order, [entry.bit for entry in join.inputs], probes=probes):
            source = found.index[found.source] - found.offset
            self.matches += np.diff(np.searchsorted(source, cuts[found.source]))
            if counting is not None:
                counting.add(join, pools, found)
            yield found

    def _counting(self, join: Join) -> Counting | None:
        names = [self.task.stores[entry.store].name for entry in join.inputs]
        return self.counting if self.counting is not None and self.counting.counts(join, names) else None

    def _stored(self, place: Place, rows: Rows, store: Store) -> list[Segment]:
        if self.counting is None or store.name not in self.task.shed:
            return [place.write(rows, store.name, store.window_us)]
        return stored(place, rows, store, self.counting.bits)

    def _merges(self) -> list[compaction.Merge]:
        here = {store.name for store in self.task.stores if store.stage == self.stage}
        return [merge for merge in self.task.merges.get(self.slot, ()) if merge.store in here]

    def _merge(self, place: Place, merge: compaction.Merge) -> dict[str, Any]:
        reach("compaction", epoch=self.task.epoch)
        store = next(store for store in self.task.stores if store.name == merge.store)
        made = merge_segments(place, merge, store) if store.summarized else compaction.run(place, merge)
        return {
            "inputs": [segment.name for segment in merge.inputs],
            "segment": None if made is None else made.as_plain(),
        }

    def _group_reports(self) -> list[list[int]]:
        """For each group with new rows or matches: its id, new rows, matches."""
        rows: I64 = np.zeros(len(self.groups), dtype=np.int64)
        for new in self.new.values():
            rows += np.diff(new.cuts(self.lows))
        reports = zip(self.groups, rows.tolist(), self.matches.tolist(), strict=True)
        return [[group.id, arrived, matched] for group, arrived, matched in reports if arrived or matched]
