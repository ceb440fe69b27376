"""The clean-up of a slot's groups: the results that are missing between generations, in bounded memory (D-CAPE 4.2).

For generations G1 .. Gn of a group, the active one last, and k = 2 .. n: all composites with a tuple of Gk and one of
G1 .. G(k-1). So a composite of tuples of several generations is produced once, at the latest of them, and one of a
single generation not at all: that was produced while it was active. The same holds for only some of the generations of
a group, which are one afterwards; what is missing between these and the others stays missing.

A row of a semi join is put out at its first match, which is in its own generation if it has one there. So of the rows
that have none there those are put out that have one in the others. Rows of outer, anti and as-of joins are decided only
when a group is cleaned up as a whole: those that have closed since they were last decided (`model.undecided`).

The hash space of a group is cut into pieces whose rows, of all inputs and generations, fit `piece_bytes`; a piece is
opened, joined and let go before the next. Windows are checked by the times of tuples alone, never by the watermark:
tuples past their deadline are here because they may belong to results.

Cost: each row is read once, and sorted once for each generation after its own. Known limitation: the rows of a single
key are one piece, however many they are.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from braidstream.control.probing import probing_order
from braidstream.errors import RunError
from braidstream.kernels.join import Pool, batch_bytes, column, composites, gather, limit_of
from braidstream.kernels.matching import Partners, satisfying
from braidstream.kernels.rows import Rows, distinct, sort_rows
from braidstream.kernels.sizes import joined
from braidstream.model.directory import Group
from braidstream.model.faults import reach
from braidstream.model.join_kinds import JoinKind
from braidstream.model.numbers import GroupId, SlotId
from braidstream.model.reports import CleanUpReport, Failure, Result, encoded
from braidstream.model.stores import Closing, Join, JoinInput, Store
from braidstream.model.undecided import owed_in
from braidstream.slot.allocators import give_back
from braidstream.slot.deciding import (
    Asked,
    Decided,
    alone,
    ending,
    filtered,
    length_of,
    turned_on,
    unmatched,
    with_newest,
)
from braidstream.slot.epoch_task import read_manifest
from braidstream.slot.sharing import told_columns
from braidstream.slot.task import REPORTS_SCHEMA, executor, failure_of
from braidstream.state import syncing
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.seals import seal_seconds
from braidstream.state.segments import copied, open_segment, rows_between
from braidstream.state.staging import Staging, Writer

__all__ = ["CleanTask", "clean_task"]

_MOST_RANGES = 4096
_Slices = Mapping[int, Sequence[tuple[Segment, Part]]]
"""For each store the parts of a group, each with its segment."""


@dataclass(frozen=True)
class CleanTask:
    """What every slot is given to clean up. The manifest is the pending one of the epoch."""

    root: str
    run: str
    """Unique for each clean-up: a worker caches manifests by it."""
    epoch: int
    stores: tuple[Store, ...]
    joins: tuple[Join, ...]
    staging: Mapping[str, Staging]
    groups: frozenset[GroupId]
    piece_bytes: int
    some: Mapping[GroupId, frozenset[int]] = field(default_factory=dict)
    """Groups of which only these generations are cleaned up, among themselves."""
    durable: bool = False


def clean_task(task: CleanTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over the envelopes that wake the slots. It gives a report for each slot."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = {slot for batch in batches for slot in batch.column("slot").to_pylist()}
        for slot in sorted(slots):
            blob = encoded(_report(task, slot))
            yield pa.RecordBatch.from_arrays([pa.array([blob], pa.binary())], schema=REPORTS_SCHEMA)

    return run


def _report(task: CleanTask, slot: SlotId) -> CleanUpReport | Failure:
    try:
        return _Cleaner(task, slot).run()
    except (RunError, OSError) as error:
        return failure_of(error, slot, task.root)


class _Cleaner:
    """One slot in one clean-up."""

    def __init__(self, task: CleanTask, slot: SlotId) -> None:
        self.started, self.sealed_s = time.perf_counter(), seal_seconds()
        self.task, self.slot = task, slot
        self.files = Files(task.root, run=task.run)
        self.manifest: Manifest = read_manifest(task.root, task.epoch, task.run, pending=True)
        sections = [entry.section for entry in self.manifest.sections.of_slot(slot)]
        self.sections = {group.id: section for section in sections for group in section.groups}
        asked = (*task.groups, *task.some)
        self.groups = sorted({g for s in sections for g in s.groups if g.id in asked}, key=lambda group: group.low)
        self.writers: dict[str, Writer] = {}
        self.bytes = 0

    def run(self) -> CleanUpReport:
        """Clean up, and report."""
        for group in self.groups:
            reach("clean-up", epoch=self.task.epoch)
            slices = self._slices(group)
            for low, high in self._pieces(group, slices):
                self._clean(group, slices, low, high)
                give_back(self.task.piece_bytes)
        results = {query: Result(w.rows, w.close()) for query, w in self.writers.items()}
        syncing.settle(durable=self.task.durable)
        return CleanUpReport(
            slot=self.slot,
            executor=executor(),
            results=results,
            bytes=self.bytes,
            fetched=self.files.fetched,
            busy_s=time.perf_counter() - self.started,
            sealing_s=seal_seconds() - self.sealed_s,
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        )

    def _slices(self, group: Group) -> _Slices:
        used = {entry.store for join in self.task.joins for entry in join.inputs}
        names = {self.task.stores[index].name: index for index in used}
        found: dict[int, list[tuple[Segment, Part]]] = defaultdict(list)
        only = None if group.id in self.task.groups else self.task.some[group.id]
        for segment in self.sections[group.id].live(self.manifest.watermark):
            if segment.store in names:
                own = (part for part in segment.parts if only is None or part.generation in only)
                found[names[segment.store]] += [(segment, part) for part in own if part.meets(group)]
        return found

    def _pieces(self, group: Group, slices: _Slices) -> Iterator[tuple[int, int]]:
        """Ranges of hashes (inclusive) whose rows fit the memory of a piece, as far as they can be told apart."""
        held = [one for own in slices.values() for one in own]
        total = sum(segment.bytes * part.rows / max(segment.rows, 1) for segment, part in held)
        self.bytes += int(total)
        if total <= self.task.piece_bytes:
            yield group.first, group.last
            return
        wanted = min(int(4 * total / self.task.piece_bytes) + 1, _MOST_RANGES)
        width = -(-(group.last - group.first + 1) // wanted)
        lows = list(range(group.first, group.last + 1, width))
        sizes = self._sizes(held, lows)
        begin, size = 0, 0.0
        for at, more in enumerate(sizes):
            if size and size + more > self.task.piece_bytes:
                yield lows[begin], lows[at] - 1
                begin, size = at, 0.0
            size += more
        yield lows[begin], group.last

    def _sizes(self, held: Sequence[tuple[Segment, Part]], lows: Sequence[int]) -> list[float]:
        """The bytes of all slices in each of the ranges that begin at `lows`."""
        sizes = np.zeros(len(lows))
        for segment, part in held:
            hashes = open_segment(self.files, segment).hashes
            first = int(np.searchsorted(hashes, np.uint64(part.first)))
            last = int(np.searchsorted(hashes, np.uint64(part.last), side="right"))
            cuts = np.searchsorted(hashes[first:last], np.array(lows, dtype=np.uint64))
            sizes += np.diff(np.append(cuts, last - first)) * (segment.bytes / max(segment.rows, 1))
        return sizes.tolist()

    def _clean(self, group: Group, slices: _Slices, low: int, high: int) -> None:
        piece = _Piece(self.files, slices, low, high)
        for join in self.task.joins:
            writer = self._writer(join)
            for pools in piece.steps(join) if join.kind.composes else ():
                self._join(join, pools, writer)
            for found in self._decided(join, piece, group):
                found.write(writer, self.task.epoch, recovered=True)

    def _decided(self, join: Join, piece: _Piece, group: Group) -> Iterator[Decided]:
        """What a join has beside matches, of a piece of a group."""
        if join.kind is JoinKind.SEMI:
            yield from piece.first_matches(join)
        reached, undecided = self.manifest.watermark, self.manifest.notes.undecided
        if group.id not in self.task.groups or reached is None:
            return
        for closing in join.closings:
            store = self.task.stores[join.inputs[closing.input].store]
            for first, last, since in owed_in(undecided, store.name, (group.stage, piece.low, piece.high)):
                yield from piece.closed(join, closing, self.task.stores, (first, last), (since, reached))

    def _writer(self, join: Join) -> Writer:
        if join.query not in self.writers:
            staging = self.task.staging[join.query]
            self.writers[join.query] = staging.writer(join.schema, self.task.epoch, self.slot)
        return self.writers[join.query]

    def _join(self, join: Join, pools: Sequence[Pool], writer: Writer) -> None:
        windows = [entry.window_us for entry in join.inputs]
        bits = [entry.bit for entry in join.inputs]
        order = probing_order(len(pools), self.manifest.notes.fanouts.get(join.query, {}))
        limit = limit_of(pools, self.task.piece_bytes)
        taken = [{out.column for out in join.outputs if out.input == place} for place in range(len(pools))]
        for one in join.on:
            taken[0].add(one.left)
            taken[1].add(one.right)
        most = batch_bytes(self.task.piece_bytes)
        each = composites(pools, windows, order, bits, limit, across=True, taken=taken, most_bytes=most, gaps=join.gaps)
        for whole in each:
            found = satisfying(pools, whole, join.on)
            columns = [column(pools[out.input], out.column, found.index[out.input]) for out in join.outputs]
            writer.write([*columns, *told_columns(join, len(found), self.task.epoch, recovered=True)])


class _Piece:
    """The rows of one range of hashes, by store and generation. They are read when first asked for."""

    def __init__(self, files: Files, slices: _Slices, low: int, high: int) -> None:
        self._files, self._slices, self.low, self.high = files, slices, low, high
        self._read: dict[tuple[int, int, int], Rows | None] = {}

    def steps(self, join: Join) -> Iterator[list[Pool]]:
        """For each generation but the first: the pools with its rows as new and all earlier ones as stored."""
        generations = self._generations(join)
        for k in range(1, len(generations)):
            pools = self._pools(join, generations[:k], generations[k])
            if pools is not None:
                yield pools

    def first_matches(self, join: Join) -> Iterator[Decided]:
        """Rows of a semi join whose matches are all in other generations than their own."""
        generations, entry = self._generations(join), join.inputs[0]
        for number in generations:
            rows = self._rows(entry, join.since, number)
            if rows is None:
                continue
            left = unmatched(join, 0, rows, np.arange(len(rows)), self._asked(join, 0, [number]))
            others = self._asked(join, 0, [other for other in generations if other != number])
            found = np.setdiff1d(left, unmatched(join, 0, rows, left, others), assume_unique=True)
            yield from alone(join, 0, rows, found)

    def closed(
        self,
        join: Join,
        closing: Closing,
        stores: Sequence[Store],
        hashes: tuple[int, int],
        times: tuple[int | None, int],
    ) -> Iterator[Decided]:
        """Rows of an input, in a range of hashes, that have closed between two watermarks."""
        place = closing.input
        generations, entry = self._generations(join), join.inputs[place]
        asked = self._asked(join, place, generations)
        for number in generations:
            rows = self._rows(entry, join.since, number)
            if rows is None:
                continue
            first = np.searchsorted(rows.hashes, np.uint64(hashes[0]))
            last = np.searchsorted(rows.hashes, np.uint64(hashes[1]), side="right")
            index = ending(rows, length_of(join, place), *times)
            index = filtered(rows, index[(index >= first) & (index < last)], closing.bit)
            if join.kind.is_asof:
                yield from with_newest(join, stores, rows.take(index), asked)
            else:
                yield from alone(join, place, rows, unmatched(join, place, rows, index, asked))

    def _generations(self, join: Join) -> list[int]:
        """The generations that the inputs of a join have, the active one last."""
        numbers = {part.generation for entry in join.inputs for _, part in self._slices.get(entry.store, ())}
        return sorted(numbers, key=lambda number: (number == 0, number))

    def _asked(self, join: Join, place: int, generations: Sequence[int]) -> Asked:
        """What rows of an input may match: the rows of the other in some generations."""
        other, on = join.inputs[1 - place], turned_on(join, place)
        found = [self._rows(other, join.since, number) for number in generations]
        parts = [Partners(rows, other.bit, on) for rows in found if rows is not None]
        return lambda _: parts

    def _pools(self, join: Join, earlier: Sequence[int], later: int) -> list[Pool] | None:
        new = [self._rows(entry, join.since, later) for entry in join.inputs]
        if not any(new):
            return None
        hashes = [None if rows is None else rows.distinct_hashes() for rows in new]
        pools = []
        for place, entry in enumerate(join.inputs):
            others = distinct([own for at, own in enumerate(hashes) if at != place and own is not None])
            parts = [rows for number in earlier if (rows := self._rows(entry, join.since, number)) is not None]
            met = [rows.take(gather(rows, others, None, None)) for rows in parts]
            pool = _pool([rows for rows in met if len(rows)], new[place])
            if pool is None:
                return None
            pools.append(pool)
        return pools

    def _rows(self, entry: JoinInput, since: int, generation: int) -> Rows | None:
        key = (entry.store, since, generation)
        if key not in self._read:
            self._read[key] = self._open(*key)
        return self._read[key]

    def _open(self, store: int, since: int, generation: int) -> Rows | None:
        tables = []
        for segment, part in self._slices.get(store, ()):
            low, high = max(part.first, self.low), min(part.last, self.high)
            if part.generation != generation or segment.first_epoch <= since or low > high:
                continue
            found = rows_between(open_segment(self._files, segment), segment, low, high)
            if found.num_rows:
                tables.append(copied(found))
        return sort_rows(joined(tables)) if tables else None


def _pool(stored: Sequence[Rows], new: Rows | None) -> Pool | None:
    if not stored and new is None:
        return None
    tables = [rows.table for rows in stored]
    if new is None:
        new = Rows(tables[0].slice(0, 0))
    if not tables:
        return Pool(Rows(new.table.slice(0, 0)), new)
    return Pool(Rows(tables[0]) if len(tables) == 1 else sort_rows(joined(tables)), new)
