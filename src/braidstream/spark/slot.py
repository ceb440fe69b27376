"""The slot's task: unpack, join, store, report. One Spark task of the join stage for each slot in each epoch.

Everything it does is a function of the manifest before, the envelopes, and the slot's number; it writes only files with
names of their own. So Spark may run it twice, or kill it half-way: what counts is the report that Spark accepts.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.control.directory import Group
from braidstream.errors import DamagedState
from braidstream.kernels.join import Pool, column, composites, gather, pool_of
from braidstream.kernels.plan import Branch, Join, Store
from braidstream.kernels.routing import TALLY, Tally, unpack
from braidstream.kernels.rows import I64, U64, Rows, sort_rows
from braidstream.state import compaction
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.results import Staging, Writer
from braidstream.state.segments import live_hashes, open_segment, write_segment
from braidstream.testing.faults import reach

__all__ = ["REPORT", "EpochTask", "read_manifest", "slot_task"]

REPORT = "report binary"


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


@lru_cache(maxsize=4)
def read_manifest(root: str, epoch: int, run: str) -> Manifest:
    """The manifest of an epoch, cached in the worker process for one run of the flow."""
    del run
    return Manifest.read(Files(root), epoch)


def slot_task(task: EpochTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over the envelopes of each partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        envelopes: dict[int, list[tuple[int, pa.Buffer]]] = defaultdict(list)
        for batch in batches:
            slots, kinds, blobs = (batch.column(name) for name in ("slot", "kind", "blob"))
            for i in range(batch.num_rows):
                envelopes[slots[i].as_py()].append((kinds[i].as_py(), blobs[i].as_buffer()))
        for slot, received in envelopes.items():
            report = _guarded(task, slot, received)
            yield pa.RecordBatch.from_pydict({"report": [json.dumps(report).encode()]}, pa.schema([("report", pa.binary())]))

    return run


def _guarded(task: EpochTask, slot: int, received: list[tuple[int, pa.Buffer]]) -> dict[str, Any]:
    """Damaged state is reported instead of raised: trying again would not help."""
    try:
        return _Slot(task, slot, received).run()
    except DamagedState as error:
        return {"slot": slot, "damaged": {"path": error.path, "wrong": error.wrong.removeprefix(f"{error.path}: ")}}


def executor() -> str:
    """The executor this task runs on: all its Python workers are children of one process."""
    return f"{socket.gethostname()}:{os.getppid()}"


class _Slot:
    """One slot in one epoch."""

    def __init__(self, task: EpochTask, slot: int, received: list[tuple[int, pa.Buffer]]) -> None:
        self.started = time.perf_counter()
        self.task, self.slot = task, slot
        self.manifest = read_manifest(task.root, task.epoch - 1, task.run)
        self.files = Files(task.root)
        self.groups: tuple[Group, ...] = self.manifest.directory.of_slot(slot)
        self.lows: U64 = np.array([group.low for group in self.groups], dtype=np.uint64)
        self.matches = np.zeros(len(self.groups), dtype=np.int64)
        self.tallies: list[Tally] = []
        self.late: dict[str, str | None] = {}
        self.new = self._unpack(received)

    def run(self) -> dict[str, Any]:
        reach("task-start", epoch=self.task.epoch)
        pools = self._pools()
        results = {join.query: self._join(join, pools) for join in self.task.joins}
        reach("task-before-segment", epoch=self.task.epoch)
        segments = [self._store(index, rows) for index, rows in self.new.items()]
        reach("task-after-segment", epoch=self.task.epoch)
        merged = [self._merge(merge) for merge in self.task.merges.get(self.slot, ())]
        if self.task.epoch % 16 == 0:
            self.files.keep_copies(segment.name for segment in self.manifest.segments)
        return {
            "slot": self.slot,
            "executor": executor(),
            "tallies": [asdict(tally) for tally in self.tallies],
            "rows": sum(len(rows) for rows in self.new.values()),
            "segments": [segment.as_plain() for segment in segments],
            "merged": merged,
            "results": {query: {"rows": w.rows, "file": w.close()} for query, w in results.items()},
            "late": self.late,
            "groups": self._group_reports(),
            "fetched": self.files.fetched,
            "busy_s": time.perf_counter() - self.started,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    def _unpack(self, received: list[tuple[int, pa.Buffer]]) -> dict[int, Rows]:
        tables: dict[int, list[pa.Table]] = defaultdict(list)
        for kind, blob in received:
            if kind == TALLY:
                self.tallies.append(Tally.unpack(blob.to_pybytes()))
            else:
                tables[kind].append(unpack(blob))
        for branch in self.task.branches:
            late = tables.pop(-2 - branch.index, [])
            if late:
                self.late[branch.stream] = self._write_late(branch, pa.concat_tables(late))
        return {store: sort_rows(pa.concat_tables(parts)) for store, parts in sorted(tables.items())}

    def _write_late(self, branch: Branch, rows: pa.Table) -> str | None:
        writer = self.task.late[branch.stream].writer(rows.schema, self.task.epoch, self.slot)
        for batch in rows.to_batches():
            writer.write(batch.columns)
        return writer.close()

    def _pools(self) -> dict[int, Pool]:
        """For each store that an arrived tuple can match: its stored rows with such a key, and its new rows."""
        needles = self._needles()
        segments: dict[str, list[Segment]] = defaultdict(list)
        for segment in self.manifest.of_slot(self.slot):
            segments[segment.store].append(segment)
        pools = {}
        for index, hashes in needles.items():
            store = self.task.stores[index]
            alive_from = compaction.alive_from(self.manifest.watermark, store.window_us)
            parts = [self._gather(s, hashes, alive_from) for s in segments[store.name] if s.newest >= alive_from]
            new = self.new.get(index)
            if new is None:
                present = [part for part in parts if len(part)]
                if not present:
                    continue
                new = Rows(present[0].table.slice(0, 0))
            pools[index] = pool_of(parts, new)
        return pools

    def _needles(self) -> dict[int, U64]:
        """For each store, the distinct hashes of new tuples of the stores it is joined with."""
        partners: dict[int, set[int]] = defaultdict(set)
        for join in self.task.joins:
            for place, one in enumerate(join.inputs):
                partners[one.store] |= {other.store for at, other in enumerate(join.inputs) if at != place}
        distinct = {index: rows.distinct_hashes() for index, rows in self.new.items()}
        needles = {}
        for index, others in partners.items():
            arrived = [distinct[other] for other in sorted(others) if other in distinct]
            if arrived:
                needles[index] = arrived[0] if len(arrived) == 1 else np.unique(np.concatenate(arrived))
            elif index in distinct:
                needles[index] = np.empty(0, dtype=np.uint64)
        return needles

    def _gather(self, segment: Segment, hashes: U64, alive_from: int) -> Rows:
        rows = open_segment(self.files, segment)
        return rows.take(gather(rows, live_hashes(segment, hashes), alive_from))

    def _join(self, join: Join, pools: Mapping[int, Pool]) -> Writer:
        writer = self.task.staging[join.query].writer(join.schema, self.task.epoch, self.slot)
        if any(entry.store not in pools for entry in join.inputs):
            return writer
        own = [pools[entry.store] for entry in join.inputs]
        cuts = [pool.new.cuts(self.lows) for pool in own]
        windows = [entry.window_us for entry in join.inputs]
        for found in composites(own, windows, bits=[entry.bit for entry in join.inputs]):
            writer.write([column(own[out.input], out.column, found.index[out.input]) for out in join.outputs])
            source = found.index[found.source] - found.offset
            self.matches += np.diff(np.searchsorted(source, cuts[found.source]))
        return writer

    def _store(self, index: int, rows: Rows) -> Segment:
        store = self.task.stores[index]
        return write_segment(self.files, rows, store.name, self.task.epoch, self.slot, self.groups)

    def _merge(self, merge: compaction.Merge) -> dict[str, Any]:
        reach("compaction", epoch=self.task.epoch)
        made = compaction.run(self.files, merge, self.task.epoch, self.slot, self.groups)
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

