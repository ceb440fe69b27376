"""Compaction of pushed parts: what is inactive must not stay in pieces of every segment it ever came in.

A push copies nothing: the parts of a group stay where they are, a few rows in each of many segments, whose other rows
are merged away. Left so, the manifest and the files on disk would grow with the number of epochs. Two things are
merged, in size tiers like active state:

1. parts of one group and generation, when `FAN` of a tier have come together;
2. small segments of which only pushed parts are left, `FAN` of a tier, or two that fill half of the largest merge.

Parts of many groups share the segment that is written, of each group one generation only, since a part is told from the
rest by its hashes alone.

Invariant: a merge changes neither what a generation holds nor its number. Rows on two sides of a barrier, or of a
sample and not, stay in segments of their own. What is left is O(generations x log) segments, and one for each
`most_bytes` / 2 of state. Cost: each row is rewritten O(log) times; O(parts) to plan. A slot merges at most its budget
in an epoch (`_ROUNDS` times the largest merge): what is left comes later.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from braidstream.state import compaction
from braidstream.state.compaction import FAN, Rules, SegmentMerge, tier_of
from braidstream.state.generations import held_ranges
from braidstream.state.manifest import Part, Segment
from braidstream.state.section import Section

__all__ = ["plan"]

_ROUNDS = 8

_Address = tuple[str, bool, int]
"""Store, whether it is a sample, and between which barriers: what may share a segment."""


@dataclass(frozen=True)
class _Fragment:
    """The parts of one group and generation in one segment."""

    segment: Segment
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def bytes(self) -> float:
        return self.segment.bytes * self.rows / max(self.segment.rows, 1)


_Found = dict[tuple[int, int], list[_Fragment]]
"""By the low address of a group and a generation."""
_Due = tuple[int, int, list[_Fragment]]
"""The low address of a group, a generation, and the fragments of it to merge."""


def plan(section: Section, watermark: int | None, rules: Rules) -> list[SegmentMerge]:
    """The merges of pushed parts that a slot does in an epoch."""
    assert rules.most_bytes is not None
    most_bytes, room, merges = rules.most_bytes, float(_ROUNDS * rules.most_bytes), list[SegmentMerge]()
    late = held_ranges(section, watermark)
    for (store, _, _), found in sorted(_fragments(section, watermark, rules).items()):
        due = [(*at, few) for at, own in sorted(found.items()) if (few := _due(own, most_bytes))]
        taken = {one.segment.name for _, _, few in due for one in few}
        for together in (*_packed(due, most_bytes), *_together(found, taken, most_bytes)):
            if room > 0:
                room -= sum(one.bytes for _, _, few in together for one in few)
                merges.append(_merge(store, rules.windows[store], watermark, together, late))
    return merges


def _fragments(section: Section, watermark: int | None, rules: Rules) -> dict[_Address, _Found]:
    between, lows = sorted(rules.barriers), [group.low for group in section.groups]
    found: dict[_Address, _Found] = defaultdict(lambda: defaultdict(list))
    for segment in section.live(watermark):
        if segment.name in rules.busy or segment.store not in rules.windows:
            continue
        own: dict[tuple[int, int], list[Part]] = defaultdict(list)
        for part in segment.parts:
            if part.generation:
                own[lows[bisect_right(lows, part.low) - 1], part.generation].append(part)
        stretch = bisect_left(between, segment.first_epoch)
        for (low, number), parts in own.items():
            found[segment.store, segment.sample, stretch][low, number].append(_Fragment(segment, tuple(parts)))
    return found


def _due(fragments: Sequence[_Fragment], most_bytes: int) -> list[_Fragment]:
    """The fragments of the lowest tier with `FAN` of them, as many as one merge may take."""
    tiers: dict[int, list[_Fragment]] = defaultdict(list)
    for one in fragments:
        if one.bytes <= most_bytes / FAN:
            tiers[tier_of(one.rows)].append(one)
    for tier in sorted(tiers):
        if len(tiers[tier]) >= FAN:
            chosen, size = [], 0.0
            for one in sorted(tiers[tier], key=lambda one: (one.rows, one.segment.name)):
                if size + one.bytes <= most_bytes:
                    chosen.append(one)
                    size += one.bytes
            return chosen
    return []


def _packed(due: Sequence[_Due], most_bytes: int) -> Iterator[list[_Due]]:
    """Sets of groups that share a segment: each group once, all together no more than a merge may take."""
    waiting = list(due)
    while waiting:
        taken, left, size = list[_Due](), list[_Due](), 0.0
        groups: set[int] = set()
        for one in waiting:
            more = sum(fragment.bytes for fragment in one[2])
            if one[0] in groups or (taken and size + more > most_bytes):
                left.append(one)
            else:
                groups.add(one[0])
                taken.append(one)
                size += more
        yield taken
        waiting = left


def _together(found: _Found, taken: Collection[str], most_bytes: int) -> Iterator[list[_Due]]:
    """Small segments whose pushed parts agree in the generation of each group: at most one set of each tier."""
    held: dict[str, list[tuple[int, int, _Fragment]]] = defaultdict(list)
    for (low, number), fragments in sorted(found.items()):
        for one in fragments:
            held[one.segment.name].append((low, number, one))
    tiers: dict[int, list[list[tuple[int, int, _Fragment]]]] = defaultdict(list)
    for name, own in sorted(held.items()):
        is_whole = sum(len(one.parts) for _, _, one in own) == len(own[0][2].segment.parts)
        if is_whole and name not in taken and _size(own) <= most_bytes / 2:
            tiers[tier_of(sum(one.rows for _, _, one in own))].append(own)
    for _, segments in sorted(tiers.items()):
        chosen = _agreeing(sorted(segments, key=_size), most_bytes)
        if len(chosen) >= FAN or (len(chosen) > 1 and sum(map(_size, chosen)) > most_bytes / 2):
            by_group: dict[tuple[int, int], list[_Fragment]] = defaultdict(list)
            for low, number, one in (entry for own in chosen for entry in own):
                by_group[low, number].append(one)
            yield [(*at, few) for at, few in sorted(by_group.items())]


def _agreeing(
    segments: Sequence[list[tuple[int, int, _Fragment]]], most_bytes: int
) -> list[list[tuple[int, int, _Fragment]]]:
    """As many as one merge may take, no two of them with different generations of a group."""
    chosen, size, numbers = list[list[tuple[int, int, _Fragment]]](), 0.0, dict[int, int]()
    for own in segments:
        if size + _size(own) <= most_bytes and all(numbers.get(low, number) == number for low, number, _ in own):
            chosen.append(own)
            size += _size(own)
            numbers |= {low: number for low, number, _ in own}
    return chosen


def _size(own: Sequence[tuple[int, int, _Fragment]]) -> float:
    return sum(one.bytes for _, _, one in own)


def _merge(
    store: str,
    window_us: int | None,
    watermark: int | None,
    together: Sequence[_Due],
    held: tuple[tuple[int, int], ...],
) -> SegmentMerge:
    """The merge task: its inputs have only the parts that are merged."""
    parts: dict[str, list[Part]] = defaultdict(list)
    segments: dict[str, Segment] = {}
    for _, _, fragments in together:
        for one in fragments:
            segments[one.segment.name] = one.segment
            parts[one.segment.name] += one.parts
    inputs = tuple(
        replace(segment, parts=tuple(sorted(parts[name], key=lambda part: part.low)))
        for name, segment in sorted(segments.items())
    )
    pushed = tuple((low, number) for low, number, _ in together)
    return compaction.SegmentMerge(store, window_us, watermark, inputs, held=held, pushed=pushed)
