"""Size-tiered compaction: an epoch touches O(log) segments of a slot, not one for each epoch of the window.

Per slot and store, segments fall into tiers by their live rows (each tier `FAN` times the last). When a tier holds
`FAN` of them, the slot merges these into one. Their deadlines differ by at most a quarter of the time that the last
segment has left (its window, and more where a silent stream or a long delay holds the watermark back), so that the
whole merged segment can be dropped soon after its rows expire. A merge takes the slot's rows only, so that a segment
shared with other slots after a move is taken apart step by step. Every row is rewritten O(log) times.

Cells of heavy keys are merged apart from groups, by the same tiers: the slices that were written under the present
grid. What was written under earlier ones, or while the key was light, is taken over by `state.adoption`.
What was pushed is merged apart from active parts, by `state.pushed`. Rows of a group that has pushed generations stay
past their deadline, since clean-up still needs them. No merge takes more than `MOST_BYTES`, and under a budget no more
than `most_bytes`: larger segments stay as they are.

`plan` is a pure function of the slot's section before the epoch, so that a replay plans the same. Cost: O(parts of the
section).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.join import gather
from braidstream.kernels.rows import U64, Rows, merge
from braidstream.model.dead_rows import Filter
from braidstream.state.cells import is_unit
from braidstream.state.filters import sift
from braidstream.state.generations import held_ranges
from braidstream.state.manifest import Segment
from braidstream.state.section import Section
from braidstream.state.segments import Place, copied, open_segment, owned_rows

__all__ = ["FAN", "Rules", "SegmentMerge", "plan", "run", "tier_of"]

FAN = 4
MOST_BYTES = 1 << 30
"""What a merge holds in memory at most, where nothing else is said."""
SMALLEST = 4096
"""Segments below this many rows share the lowest tier."""


@dataclass(frozen=True)
class SegmentMerge:
    """A slot's task: merge these segments of a store."""

    store: str
    window_us: int | None
    watermark: int | None
    inputs: tuple[Segment, ...]
    codes: tuple[int, ...] = ()
    """For segments of cells: which cells are merged."""
    held: tuple[tuple[int, int], ...] = ()
    """Ranges of hashes whose rows stay past their deadline."""
    shed: Filter | None = None
    """What is dead by shedding: a merge makes it physical."""
    pushed: tuple[tuple[int, int], ...] = ()
    """For pushed parts: the low address of each group, and the generation that is merged of it."""


@dataclass(frozen=True)
class Rules:
    """What compaction goes by, beside a section: the same for all slots of an epoch, and in a replay."""

    windows: Mapping[str, int | None]
    """For each store the time that one segment may span (None: any)."""
    barriers: frozenset[int] = frozenset()
    """Epochs: what arrived until then and what arrived after it stay in segments of their own, because somebody still
    tells them apart."""
    busy: frozenset[str] = frozenset()
    """Segments that are left alone in this epoch."""
    most_bytes: int | None = None
    """What a merge may hold in memory; None: it does not matter."""


def plan(section: Section, watermark: int | None, rules: Rules, shed: Filter | None = None) -> list[SegmentMerge]:
    """The merges of a slot at a stage; at most one for each store, the lowest tier first."""
    most = MOST_BYTES if rules.most_bytes is None else min(rules.most_bytes, MOST_BYTES)
    between = sorted({*rules.barriers, *(() if shed is None else shed.barriers())})
    live = [s for s in section.live(watermark) if s.name not in rules.busy and s.store in rules.windows]
    late = held_ranges(section, watermark)
    merges: list[SegmentMerge] = []
    by_store: dict[tuple[str, bool], list[tuple[Segment, int]]] = defaultdict(list)
    by_use: dict[tuple[str, int], list[tuple[Segment, int]]] = defaultdict(list)
    for segment in live:
        active = segment.active
        if active.parts:
            by_store[segment.store, segment.sample].append((active, sum(part.rows for part in active.parts)))
        if segment.cells:
            by_use[segment.store, segment.use].append((segment, sum(rows for _, rows in segment.cells)))
    for (store, _), segments in by_store.items():
        if chosen := _choose(segments, _time_left(segments, watermark), between, most):
            merges.append(SegmentMerge(store, rules.windows[store], watermark, chosen, held=late, shed=shed))
    for (store, _), segments in by_use.items():
        if chosen := _choose(segments, _time_left(segments, watermark), between, most):
            codes = {code for segment in chosen for code, _ in segment.cells}
            merges.append(SegmentMerge(store, rules.windows[store], watermark, chosen, tuple(sorted(codes))))
    return merges


def run(place: Place, task: SegmentMerge) -> Segment | None:
    """Carry out a merge: the slot's live, unexpired rows of the inputs as one segment; None when nothing is left."""
    parts = []
    for segment in task.inputs:
        rows = _own_rows(place, task, segment)
        if task.pushed:  # a few rows of each of many segments
            rows = Rows(copied(rows.table))
        alive = rows.alive(task.watermark, task.window_us)
        if alive is not None and task.held:
            alive |= _within(rows.hashes, task.held)
        if alive is not None and not alive.all():
            rows = Rows(rows.table.filter(pa.array(alive)))
        rows = sift(rows, segment, task.shed)
        if len(rows):
            parts.append(rows)
    if not parts:
        return None
    merged = merge(parts)
    first_epoch, sample = min(segment.first_epoch for segment in task.inputs), task.inputs[0].sample
    if task.codes and is_unit(task.codes[0]):
        made = place.write_unit(merged, task.store, task.inputs[0].use, task.window_us, first_epoch)
    elif task.codes:
        made = place.write_cells(merged, task.store, task.inputs[0].use, task.window_us, first_epoch)
    else:
        absent = frozenset.intersection(*(frozenset(segment.given) for segment in task.inputs))
        made = place.write(merged, task.store, task.window_us, first_epoch, sample=sample)
        numbers = dict(task.pushed)
        numbered = tuple(replace(part, generation=numbers.get(part.low, 0)) for part in made.parts)
        made = replace(made, given=tuple(sorted(absent)), parts=numbered)
    return replace(made, epoch=max(segment.epoch for segment in task.inputs))


def _own_rows(place: Place, task: SegmentMerge, segment: Segment) -> Rows:
    rows = open_segment(place.files, segment)
    if not task.codes:
        return owned_rows(rows, segment, place.groups)
    if is_unit(task.codes[0]):
        return rows
    live = np.array(sorted({code for code, _ in segment.cells}.intersection(task.codes)), dtype=np.uint64)
    return rows.take(gather(rows, live, None, None))


def _within(hashes: U64, ranges: Sequence[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    lows, highs = (np.array(side, dtype=np.uint64) for side in zip(*ranges, strict=True))
    at = np.searchsorted(lows, hashes, side="right") - 1
    return (at >= 0) & (hashes <= highs[np.maximum(at, 0)])


def _choose(
    segments: Sequence[tuple[Segment, int]], time_left_us: int, barriers: Sequence[int], most_bytes: int
) -> tuple[Segment, ...]:
    tiers: dict[tuple[int, int], list[Segment]] = defaultdict(list)
    for segment, rows in segments:
        if segment.bytes * rows > most_bytes // FAN * max(segment.rows, 1):
            continue
        tiers[tier_of(rows), bisect_left(barriers, segment.first_epoch)].append(segment)
    for tier in sorted(tiers):
        found = _run_of(sorted(tiers[tier], key=_order), time_left_us // 4)
        if found:
            return found
    return ()


def _order(segment: Segment) -> tuple[int, int, int, int, int, str]:
    """By deadline; names are random, so they come last: a replayed epoch should merge the same."""
    return segment.deadline, segment.oldest, segment.epoch, segment.first_epoch, segment.rows, segment.name


def _time_left(segments: Sequence[tuple[Segment, int]], watermark: int | None) -> int:
    """How long the last of these segments will live. A window, and more where the watermark lags behind."""
    now = min(segment.oldest for segment, _ in segments) if watermark is None else watermark
    return max(segment.deadline for segment, _ in segments) - now


def _run_of(segments: Sequence[Segment], most_us: int) -> tuple[Segment, ...]:
    """The first `FAN` neighbours whose deadlines lie at most so far apart."""
    for begin in range(len(segments) - FAN + 1):
        run_ = segments[begin : begin + FAN]
        if run_[-1].deadline - run_[0].deadline <= most_us:
            return tuple(run_)
    return ()


def tier_of(rows: int) -> int:
    """The tier of a segment, or of a part, with so many live rows."""
    tier = 0
    while rows >= SMALLEST * FAN:
        rows //= FAN
        tier += 1
    return tier
