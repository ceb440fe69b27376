"""What outer, semi, anti and as-of joins put out in a slot beside matches: rows without one, first matches, the newest.

A row closes when the watermark passes t + W, the last time at which a partner could come. In the epoch in which the
watermark goes from one value to the next the slot takes the rows that close in between, new ones and stored ones, and
looks their partners up: rows without one are put out with NULLs, those of an as-of join with the newest. Nothing is
remembered of what a row has met: its partners are kept until it is closed (`plan.retention`) and asked for again. So
whatever moves, splits, compacts or restarts state needs not know of these joins.

Where partners were pushed rows wait: in ranges that the manifest notes (`model.undecided`) nothing is decided here, and
a clean-up decides what has closed since (`slot.cleaning`).

A semi join puts a row out at its first match: new rows that have one, and stored rows that have one among the new
partners and none among the stored ones. That is asked of the active generation alone: so a row was put out iff it has
a match in its own generation, and a clean-up puts out those that have one only in others.

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

import numpy as np

from braidstream.kernels.join import gather
from braidstream.kernels.matching import Needles, Partners
from braidstream.kernels.rows import I64, Rows, outside
from braidstream.model.dead_rows import Filter
from braidstream.model.directory import Group
from braidstream.model.join_kinds import JoinKind
from braidstream.model.numbers import SlotId
from braidstream.model.stores import Closing, Join, Store
from braidstream.model.undecided import owed_in, span_of
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
from braidstream.state.files import Files
from braidstream.state.filters import filter_of, sift
from braidstream.state.generations import held_ranges
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.segments import open_segment, owned_index, owned_rows

__all__ = ["Closings", "Decided"]


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
    _owned: dict[str, Rows] = field(default_factory=dict)
    _owed: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _by_store: dict[str, list[Segment]] = field(default_factory=lambda: defaultdict(list))

    def of(self, join: Join) -> Iterator[Decided]:
        """What a join has beside matches."""
        if join.kind is JoinKind.SEMI:
            yield from self._first_matches(join)
            return
        for closing in join.closings:
            place = closing.input
            asked = self._asked(join, place)
            for rows, index in self._closing(join, closing, join.inputs[place].store):
                if join.kind.is_asof:
                    yield from with_newest(join, self.stores, rows.take(index), asked)
                else:
                    yield from alone(join, place, rows, unmatched(join, place, rows, index, asked))
            if closing.keyless is not None:
                for rows, index in self._closing(join, closing, closing.keyless):
                    yield from alone(join, place, rows, index, is_keyless=True)

    def _closing(self, join: Join, closing: Closing, store: int) -> Iterator[tuple[Rows, I64]]:
        """The rows of an input that close in this epoch, of the new ones and of each segment: rows, and which."""
        before, derived, window_us = self.manifest.watermark, self.stores[store].derived, length_of(join, closing.input)
        if self.reached is None or (window_us is None and not derived) or self.reached == before:
            return
        length = 0 if window_us is None else window_us
        if store in self.new:
            new = self.new[store]
            yield new, self._due(store, new, ending(new, window_us, None, self.reached), closing)
        for segment in self._of(store, join):
            last = segment.deadline if derived else segment.newest + length
            if segment.oldest + length >= self.reached or (before is not None and last < before):
                continue
            rows = self._open(segment)
            found = owned_index(rows, ending(rows, window_us, before, self.reached), segment, self.groups)
            yield self._living(rows, self._due(store, rows, found, closing), segment)

    def _due(self, store: int, rows: Rows, index: I64, closing: Closing) -> I64:
        """Of rows that close those that pass the filter, and are not left to a clean-up."""
        owed = self._owed_ranges(self.stores[store].name)
        return filtered(rows, outside(rows.hashes, index, owed) if owed else index, closing.bit)

    def _owed_ranges(self, store: str) -> list[tuple[int, int]]:
        """Where in the slot's groups rows of a store wait for a clean-up: first and last hashes, ascending."""
        if store not in self._owed:
            known, spans = self.manifest.notes.undecided, sorted(map(span_of, self.groups))
            self._owed[store] = [one[:2] for span in spans for one in owed_in(known, store, span)] if known else []
        return self._owed[store]

    def _living(self, rows: Rows, index: I64, segment: Segment) -> tuple[Rows, I64]:
        """Stored rows, and which of those at `index` were not shed; of partners none are (`JoinKind.droppable`)."""
        if self._shed is None or self._shed.is_empty or segment.store not in self._shed.stores:
            return rows, index
        left = sift(rows.take(index), segment, self._shed)
        return left, np.arange(len(left))

    def _active(self, segment: Segment) -> Rows:
        """The active rows of a segment. Others, that wait for a clean-up, are asked about by nobody but semi joins."""
        if not self._is_held:
            return self._open(segment)
        if segment.name not in self._owned:
            self._owned[segment.name] = owned_rows(self._open(segment), segment, self.groups)
        return self._owned[segment.name]

    @cached_property
    def _is_held(self) -> bool:
        """Whether some of the slot's state was pushed: a file may then have rows of it beside active ones."""
        sections = (entry.section for entry in self.manifest.sections.of_slot(self.slot))
        return any(held_ranges(section, self.manifest.watermark) for section in sections)

    @cached_property
    def _shed(self) -> Filter | None:
        return filter_of(self.manifest)

    def _asked(self, join: Join, place: int, *, new: bool = True) -> Asked:
        """What rows of an input may match: new rows of the other, and of its segments those whose times may fit."""
        other, on = join.inputs[1 - place], turned_on(join, place)

        def partners(needles: Needles) -> Iterator[Partners]:
            if new and other.store in self.new:
                yield Partners(self.new[other.store], other.bit, on)
            if not len(needles):
                return
            low, high = int(needles.low.min()), int(needles.high.max())
            for segment in self._of(other.store, join):
                if segment.newest >= low and segment.oldest <= high:
                    rows = self._active(segment) if join.kind is JoinKind.SEMI else self._open(segment)
                    yield Partners(rows, other.bit, on)

        return partners

    def _first_matches(self, join: Join) -> Iterator[Decided]:
        entry, other = join.inputs
        arrived = self.new.get(other.store)
        if entry.store in self.new:
            rows = self.new[entry.store]
            yield from alone(join, 0, rows, _matched(join, rows, np.arange(len(rows)), self._asked(join, 0)))
        if arrived is None:
            return
        hashes = arrived.distinct_hashes()
        for segment in self._of(entry.store, join):
            rows = self._open(segment)
            found = gather(rows, hashes, self.manifest.watermark, entry.window_us)
            rows, index = self._living(rows, owned_index(rows, found, segment, self.groups), segment)
            index = _matched(join, rows, index, lambda _: [Partners(arrived, other.bit, join.on)])
            earlier = self._asked(join, 0, new=False)
            yield from alone(join, 0, rows, unmatched(join, 0, rows, index, earlier))

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


def _matched(join: Join, rows: Rows, index: I64, partners: Asked) -> I64:
    """Those of the rows at `index` of the first input that have a match."""
    return np.setdiff1d(index, unmatched(join, 0, rows, index, partners), assume_unique=True)
