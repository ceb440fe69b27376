"""What outer, semi, anti and as-of joins put out in a slot beside matches: rows without one, first matches, the newest.

A row closes when the watermark passes t + W, the last time at which a partner could come. In the epoch in which the
watermark goes from one value to the next the slot takes the rows that close in between, new ones and stored ones, and
looks their partners up: rows without one are put out with NULLs, those of an as-of join with the newest. Nothing is
remembered of what a row has met: its partners are kept until it is closed (`plan.retention`) and asked for again. So
whatever moves, splits, compacts or restarts state needs not know of these joins.

A semi join puts a row out at its first match: new rows that have one, and stored rows that have one among the new
partners and none among the stored ones.

Invariant: the epoch in which a row closes follows from the manifest before and from what was read, as the watermark
does, so it closes once, also on replay. A row is decided by the slot that has all rows of its key.

Cost: rows that close times the segments of the other store, each a binary search; a look at the times of the segments
that may have such rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.join import gather
from braidstream.kernels.loops import between
from braidstream.kernels.matching import Needles, Partners, Span, newest_partner, turned
from braidstream.kernels.rows import DEADLINE, I64, TIME, Rows, take
from braidstream.kernels.sizes import BATCH_BYTES, cut, narrow, one_chunk
from braidstream.model.directory import Group
from braidstream.model.join_kinds import JoinKind
from braidstream.model.numbers import SlotId
from braidstream.model.stores import Closing, Join, OutputColumn, Store
from braidstream.slot.sharing import told_columns
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.segments import open_segment, owned_index
from braidstream.state.staging import Writer

__all__ = ["Closings", "Decided"]

_FIRST = int(np.iinfo(np.int64).min)
"""Before all times."""


@dataclass(frozen=True)
class Decided:
    """Rows of one input of a join that are put out, with their partners or with NULLs."""

    join: Join
    place: int
    rows: Rows
    partners: pa.Table | None

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, out: OutputColumn) -> Any:
        """The values of one column of one input."""
        source = self.rows.table if out.input == self.place else self.partners
        if source is None or out.column not in source.column_names:
            return pa.nulls(len(self), narrow(self._types[out.input, out.column]))
        return one_chunk(source, out.column)

    @cached_property
    def _types(self) -> dict[tuple[int, str], pa.DataType]:
        outputs = zip(self.join.outputs, self.join.schema, strict=False)
        return {(out.input, out.column): field.type for out, field in outputs}

    def times_and_deadlines(self) -> tuple[I64, I64]:
        """Of each row: its time, and the latest time that its last partner may have had."""
        window_us = self.join.inputs[self.place].window_us
        deadlines = self.rows.deadlines
        return self.rows.times, self.rows.times + (window_us or 0) if deadlines is None else deadlines

    def write(self, writer: Writer, epoch: int) -> None:
        """Put them out as results of a query."""
        names = [str(i) for i in range(len(self.join.outputs))]
        table = pa.table([self.column(out) for out in self.join.outputs], names=names)
        for piece in cut(table, BATCH_BYTES):
            told = told_columns(self.join, piece.num_rows, epoch, recovered=False)
            writer.write([*(column.combine_chunks() for column in piece.columns), *told])


@dataclass
class Closings:
    """The rows of one slot that are decided in one epoch."""

    files: Files
    manifest: Manifest
    slot: SlotId
    groups: Sequence[Group]
    stores: Sequence[Store]
    new: Mapping[int, Rows]
    reached: int | None
    """The watermark after the epoch."""
    _opened: dict[str, Rows] = field(default_factory=dict)
    _by_store: dict[str, list[Segment]] = field(default_factory=lambda: defaultdict(list))

    def of(self, join: Join) -> Iterator[Decided]:
        """What a join has beside matches."""
        if join.kind is JoinKind.SEMI:
            yield from self._first_matches(join)
            return
        for closing in join.closings:
            window_us = 0 if join.kind.is_asof else join.inputs[closing.input].window_us
            for rows, index in self._closing(join, closing, join.inputs[closing.input].store, window_us):
                if join.kind.is_asof:
                    yield from self._with_newest(join, rows.take(index))
                else:
                    yield from self._alone(join, closing.input, rows, self._unmatched(join, closing.input, rows, index))
            if closing.keyless is not None:
                for rows, index in self._closing(join, closing, closing.keyless, window_us):
                    yield from self._alone(join, closing.input, rows, index)

    def _closing(self, join: Join, closing: Closing, store: int, window_us: int | None) -> Iterator[tuple[Rows, I64]]:
        """The rows of an input that close in this epoch, of the new ones and of each segment: rows, and which."""
        before, derived = self.manifest.watermark, self.stores[store].derived
        if self.reached is None or (window_us is None and not derived) or self.reached == before:
            return
        length = 0 if window_us is None else window_us  # the deadline of an intermediate result is not before its time
        if store in self.new:
            new = self.new[store]
            yield new, _filtered(new, _ending(new, length, None, self.reached), closing.bit)
        for segment in self._of(store, join):
            last = segment.deadline if derived else segment.newest + length
            if segment.oldest + length >= self.reached or (before is not None and last < before):
                continue
            rows = self._open(segment)
            found = owned_index(rows, _ending(rows, length, before, self.reached), segment, self.groups)
            yield rows, _filtered(rows, found, closing.bit)

    def _unmatched(
        self, join: Join, place: int, rows: Rows, index: I64, parts: Sequence[Partners] | None = None
    ) -> I64:
        """Those of the rows at `index` of an input that have no match, among all partners or among some."""
        able = _filtered(rows, index, join.inputs[place].bit)
        needles = Needles.of(rows, able, _span(join, place), join.on if place == 0 else turned(join.on))
        left: I64 = np.arange(len(able))
        for part in self._partners(join, place, needles) if parts is None else parts:
            if not len(left):
                break
            left = part.unmatched(needles, left)
        unable = np.setdiff1d(index, able, assume_unique=True) if len(able) < len(index) else able[:0]
        return np.sort(np.concatenate([able[left], unable])) if len(unable) else able[left]

    def _partners(self, join: Join, place: int, needles: Needles, *, new: bool = True) -> Iterator[Partners]:
        """What rows of an input may match: new rows of the other, and of its segments those whose times may fit."""
        other = join.inputs[1 - place]
        on = join.on if place == 0 else turned(join.on)
        if new and other.store in self.new:
            yield Partners(self.new[other.store], other.bit, on)
        if not len(needles):
            return
        low, high = int(needles.low.min()), int(needles.high.max())
        for segment in self._of(other.store, join):
            if segment.newest >= low and segment.oldest <= high:
                yield Partners(self._open(segment), other.bit, on)

    def _first_matches(self, join: Join) -> Iterator[Decided]:
        entry, other = join.inputs
        arrived = self.new.get(other.store)
        if entry.store in self.new:
            rows = self.new[entry.store]
            yield from self._alone(join, 0, rows, self._matched(join, rows, np.arange(len(rows))))
        if arrived is None:
            return
        hashes = arrived.distinct_hashes()
        for segment in self._of(entry.store, join):
            rows = self._open(segment)
            found = gather(rows, hashes, self.manifest.watermark, entry.window_us)
            index = owned_index(rows, found, segment, self.groups)
            index = self._matched(join, rows, index, [Partners(arrived, other.bit, join.on)])
            earlier = list(self._partners(join, 0, Needles.of(rows, index, _span(join, 0), join.on), new=False))
            yield from self._alone(join, 0, rows, self._unmatched(join, 0, rows, index, earlier))

    def _matched(self, join: Join, rows: Rows, index: I64, parts: Sequence[Partners] | None = None) -> I64:
        """Those of the rows at `index` of the first input that have a match."""
        return np.setdiff1d(index, self._unmatched(join, 0, rows, index, parts), assume_unique=True)

    def _with_newest(self, join: Join, rows: Rows) -> Iterator[Decided]:
        """Rows of an as-of join, each with its newest partner."""
        span, (_, other) = _span(join, 0), join.inputs
        own = _filtered(rows, np.arange(len(rows)), join.inputs[0].bit)
        asked = {out.column for out in join.outputs if out.input == 1}
        columns = [name for name in self.stores[other.store].columns if name in asked]
        index: I64 = np.full(len(rows), -1, dtype=np.int64)
        needles = Needles.of(rows, own, span, join.on)
        table, found = newest_partner(needles, list(self._partners(join, 0, needles)), columns)
        index[own] = found
        if 0 not in join.kind.kept:
            chosen = np.flatnonzero(index >= 0)
            rows, index = rows.take(chosen), index[chosen]
        partners = None if table is None else table.take(pa.array(index, mask=index < 0))
        yield Decided(join, 0, rows, partners)

    def _alone(self, join: Join, place: int, rows: Rows, index: I64) -> Iterator[Decided]:
        """The rows at `index` of one input, with NULLs for the other."""
        if len(index):
            asked = {out.column for out in join.taken if out.input == place} | {TIME, DEADLINE}
            columns = [name for name in rows.table.column_names if name in asked]
            yield Decided(join, place, Rows(take(rows.table.select(columns), index)), None)

    def _of(self, store: int, join: Join) -> list[Segment]:
        """The segments of a store with rows that a join sees."""
        if not self._by_store:
            for segment in self.manifest.of_slot(self.slot):
                self._by_store[segment.store].append(segment)
        return [s for s in self._by_store.get(self.stores[store].name, ()) if s.first_epoch > join.since]

    def _open(self, segment: Segment) -> Rows:
        if segment.name not in self._opened:
            self._opened[segment.name] = open_segment(self.files, segment)
        return self._opened[segment.name]


def _span(join: Join, place: int) -> Span:
    """When the partners of a row of an input may be: until its own window ends, and not before theirs begin."""
    own, other = join.inputs[place].window_us, join.inputs[1 - place].window_us
    return Span(other, 0 if join.kind.is_asof else own)


def _ending(rows: Rows, window_us: int, before: int | None, reached: int) -> I64:
    """The rows whose last partner may have come until `reached`, and not until `before`."""
    ends, length = (rows.times, window_us) if rows.deadlines is None else (rows.deadlines, 0)
    return between(ends, _FIRST if before is None else before - length, reached - length)


def _filtered(rows: Rows, index: I64, bit: int | None) -> I64:
    """Of the rows at `index` those that pass a filter."""
    if bit is not None and rows.masks is not None:
        index = index[(rows.masks[index] & (1 << bit)) != 0]
    return index
