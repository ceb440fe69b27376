"""Size-tiered compaction: an epoch touches O(log) segments of a slot, not one for each epoch of the window.

Per slot and store, segments fall into tiers by their live rows (each tier `FAN` times the last). When a tier holds `FAN`
of them, the slot merges these into one. A merge never spans more than a quarter of the window, so that the whole merged
segment can be dropped soon after its rows expire; and it takes the slot's rows only, so that a segment shared with other
slots after a move is taken apart step by step. Every row is rewritten O(log) times.

`plan` is a pure function of the manifest, evaluated by the driver and carried out by the slots in the same epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from braidstream.control.directory import Group
from braidstream.kernels.rows import Rows, merge
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.segments import open_segment, owned_rows, write_segment

__all__ = ["FAN", "Merge", "plan", "run"]

FAN = 4
SMALLEST = 4096
"""Segments below this many rows share the lowest tier."""


@dataclass(frozen=True)
class Merge:
    """A slot's task: merge these segments of a store."""

    store: str
    inputs: tuple[Segment, ...]
    alive_from: int


def plan(manifest: Manifest, windows: Mapping[str, int | None]) -> dict[int, list[Merge]]:
    """The merges of each slot; at most one for each store, the lowest tier first."""
    merges: dict[int, list[Merge]] = defaultdict(list)
    for slot, held in manifest.by_slot().items():
        by_store: dict[str, list[tuple[Segment, int]]] = defaultdict(list)
        for segment, rows in held:
            by_store[segment.store].append((segment, rows))
        for store, segments in by_store.items():
            chosen = _choose(segments, windows.get(store))
            if chosen:
                merges[slot].append(Merge(store, chosen, alive_from(manifest.watermark, windows.get(store))))
    return dict(merges)


def alive_from(watermark: int | None, window_us: int | None) -> int:
    """The earliest time that a stored tuple may have: s.t + W >= watermark."""
    return -(1 << 62) if watermark is None or window_us is None else watermark - window_us


def run(files: Files, task: Merge, epoch: int, slot: int, groups: Sequence[Group]) -> Segment | None:
    """Carry out a merge: the slot's live, unexpired rows of the inputs as one segment; None when nothing is left."""
    parts = []
    for segment in task.inputs:
        rows = owned_rows(open_segment(files, segment), segment, groups)
        if segment.oldest < task.alive_from:
            rows = Rows(rows.table.filter(rows.times >= task.alive_from))
        if len(rows):
            parts.append(rows)
    if not parts:
        return None
    return write_segment(files, merge(parts), task.store, epoch, slot, groups)


def _choose(segments: Sequence[tuple[Segment, int]], window_us: int | None) -> tuple[Segment, ...]:
    tiers: dict[int, list[Segment]] = defaultdict(list)
    for segment, rows in segments:
        tiers[_tier(rows)].append(segment)
    for tier in sorted(tiers):
        found = _run_of(sorted(tiers[tier], key=lambda s: (s.oldest, s.newest, s.name)), window_us)
        if found:
            return found
    return ()


def _run_of(segments: Sequence[Segment], window_us: int | None) -> tuple[Segment, ...]:
    for begin in range(len(segments) - FAN + 1):
        run_ = segments[begin : begin + FAN]
        span = max(s.newest for s in run_) - min(s.oldest for s in run_)
        if window_us is None or span <= window_us // 4:
            return tuple(run_)
    return ()


def _tier(rows: int) -> int:
    tier = 0
    while rows >= SMALLEST * FAN:
        rows //= FAN
        tier += 1
    return tier
