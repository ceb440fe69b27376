"""A slot's section after an epoch: which of its segments it merges, and what is in the section that it writes.

All is planned from the section before the epoch and from rules that are the same for all slots, so a replay plans the
same, and the driver need not know of a segment: it is told the name of the section, and figures.

Where rows are shed, a segment of which little lives is written anew by itself.

Cost: O(parts of the section), and the merges themselves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from braidstream.control.shedding import Span, Stock, live_bytes
from braidstream.model.dead_rows import Filter
from braidstream.model.directory import Directory, Group
from braidstream.model.numbers import GroupId
from braidstream.model.parts import Part, Segment
from braidstream.model.snapshots import Written
from braidstream.state import compaction, pushed
from braidstream.state.compaction import Rules, SegmentMerge
from braidstream.state.files import Files
from braidstream.state.filters import filter_of
from braidstream.state.generations import held_ranges
from braidstream.state.manifest import Manifest
from braidstream.state.section import Section

__all__ = ["Merged", "Merging", "row_bytes", "spans_of", "stocks_of", "written"]

_THIN = 0.5
"""A segment of which less lives is written anew."""
_FEW = 4096
"""The rows of a smaller segment are accounted by what rows take in files of all sizes."""


@dataclass(frozen=True)
class Merging:
    """How slots merge in an epoch."""

    rules: Rules
    pushed_bytes: int | None = None
    """What a merge of pushed parts may take; None: nothing is pushed."""
    shed: Mapping[str, int | None] | None = None
    """The stores whose rows may be shed, with their windows."""

    def plan(self, section: Section, manifest: Manifest) -> list[SegmentMerge]:
        """The merges of a slot at a stage."""
        filter_ = filter_of(manifest)
        merges = compaction.plan(section, manifest.watermark, self.rules, filter_)
        if self.shed is not None and filter_ is not None:
            merges += self._thin(section, manifest.watermark, filter_, merges)
        if self.pushed_bytes is not None:
            merges += pushed.plan(section, manifest.watermark, replace(self.rules, most_bytes=self.pushed_bytes))
        return merges

    def _thin(
        self, section: Section, watermark: int | None, filter_: Filter, merges: Sequence[SegmentMerge]
    ) -> list[SegmentMerge]:
        """Segments of which little lives, each by itself."""
        assert self.shed is not None
        live = [s for s in section.live(watermark) if s.store in self.shed and s.name not in self.rules.busy]
        taken = {segment.name for task in merges for segment in task.inputs}
        spans, each = spans_of(live, self.shed, watermark), row_bytes(live)
        late, found = held_ranges(section, watermark), []
        for segment in (one.active for one in live if one.name not in taken):
            stocks = stocks_of([segment], section.groups, each)
            size = float(live_bytes(stocks, filter_, spans).sum())
            if stocks and size < _THIN * segment.rows * each.get(segment.store, 0.0):
                window = self.shed[segment.store]
                found.append(SegmentMerge(segment.store, window, watermark, (segment,), held=late, shed=filter_))
        return found


def spans_of(segments: Iterable[Segment], windows: Mapping[str, int | None], watermark: int | None) -> dict[str, Span]:
    """Of each store, the times that may still be joined."""
    oldest: dict[str, int] = {}
    newest: dict[str, int] = {}
    for segment in segments:
        oldest[segment.store] = min(oldest.get(segment.store, segment.oldest), segment.oldest)
        newest[segment.store] = max(newest.get(segment.store, segment.newest), segment.newest)
    spans = {}
    for store, window in windows.items():
        low = oldest.get(store, 0) if window is None or watermark is None else watermark - window
        spans[store] = Span(low, max(newest.get(store, low), low))
    return spans


def stocks_of(
    segments: Iterable[Segment], groups: Sequence[Group] | Directory, each: Mapping[str, float]
) -> list[Stock]:
    """The active parts of segments, as shedding counts them; `each` is what a row of a store takes."""
    directory = groups if isinstance(groups, Directory) else Directory(tuple(groups), GroupId(0))
    found = []
    for s in segments:
        size = s.bytes / s.rows if s.rows >= _FEW else each[s.store]
        for part in s.parts:
            if not part.generation:
                group = directory.at(part.low)
                found.append(
                    Stock(group.slot, group.low, s.store, s.epoch, s.oldest, s.newest, size * part.rows, s.sample)
                )
    return found


def row_bytes(segments: Iterable[Segment]) -> dict[str, float]:
    """What a row of each store takes. Small files are mostly schema and footer, so it is by how much files grow."""
    sizes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for segment in segments:
        sizes[segment.store].append((segment.rows, segment.bytes))
    return {store: _slope(np.array(known, dtype=np.float64)) for store, known in sizes.items()}


def _slope(sizes: npt.NDArray[np.float64]) -> float:
    """Bytes a row, from the (rows, bytes) of files, by least squares; of the largest file if they are all alike."""
    rows, size = sizes[:, 0] - sizes[:, 0].mean(), sizes[:, 1] - sizes[:, 1].mean()
    largest = sizes[sizes[:, 0].argmax()]
    most = float(largest[1] / max(largest[0], 1))
    spread = float((rows**2).sum())
    return min(max(float((rows * size).sum()) / spread, 1.0), most) if spread else most


@dataclass(frozen=True)
class Merged:
    """A merge that was carried out: what it took of its inputs is live in `segment` now; None: none of it is live."""

    task: SegmentMerge
    segment: Segment | None

    def empty(self, taken: Segment) -> list[Part]:
        """Pushed parts of an input that stay where they are: of generations of which the merge found no row.

        A generation holds what is stored of its group until it is cleaned up (`state.generations`), rows or none: after
        a split one half may have none. It is enough that one input has it.
        """
        found = set() if self.segment is None else {part.low for part in self.segment.parts}
        gone = {low for low, _ in self.task.pushed} - found
        if not gone:
            return []
        lows = sorted(low for low, _ in self.task.pushed)
        own = {part: lows[bisect_right(lows, part.low) - 1] for segment in self.task.inputs for part in segment.parts}
        first = {low: next(s.name for s in self.task.inputs if any(own[p] == low for p in s.parts)) for low in gone}
        return [part for part in taken.parts if own[part] in gone and first[own[part]] == taken.name]


def written(
    files: Files,
    epoch: int,
    section: Section,
    watermark: int | None,
    stores: Collection[str],
    new: Sequence[Segment],
    merged: Sequence[Merged],
) -> Written | None:
    """Write the section after an epoch; None when it is as before."""
    live = {s.name: s for s in section.live(watermark) if s.store in stores}
    for one in merged:
        for taken in one.task.inputs:
            live[taken.name] = _left(live[taken.name], taken, one)
        if one.segment is not None:
            live[one.segment.name] = one.segment
    live |= {segment.name: segment for segment in new}
    segments = tuple(segment for segment in live.values() if segment.is_live)
    if segments == section.segments:
        return None
    made = section.with_segments(segments)
    before, after = section.names, made.names
    return Written(
        made.write(files, epoch),
        made.figures(watermark),
        tuple(sorted(after - before)),
        tuple(sorted(before - after)),
    )


def _left(segment: Segment, taken: Segment, merged: Merged) -> Segment:
    """What a merge has left of one of its inputs: it took cells, some pushed parts, or the slot's active parts."""
    task = merged.task
    if task.codes:
        return segment.without_cells(task.codes)
    if task.pushed:
        return segment.without_parts([part for part in taken.parts if part not in merged.empty(taken)])
    return replace(segment, parts=tuple(part for part in segment.parts if part.generation))
