"""Generations: which state of a group is active, and which was pushed out of what slots probe (D-CAPE 4.1).

Each part of a segment belongs to one generation of its group. Generation 0 is *active*: slots probe it, and new tuples
join it. A *spill* makes the active parts of a group its next inactive generation (1, 2, ...); new tuples begin a new
active one and join among themselves. *Clean-up* produces what is missing between generations and makes them one: all
of a group (`cleaned`), or only some of them (`joined`). No data is copied: numbers in the manifest change.

Invariant: all composites of tuples of one generation have been produced, none of tuples of several. Composites are of
tuples with one hash, so the numbers need to agree only within a hash: a split hands them to both halves, buddies with
different numbers merge freely, and a group with inactive generations moves like any other.

A group with inactive generations is *held*: all its rows, the active ones too, stay past their deadline until they are
cleaned up, because they may belong to results that nobody has produced yet.

Cost: O(parts) each; nothing here depends on the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from braidstream.model.directory import Directory, Group
from braidstream.model.numbers import GroupId
from braidstream.state.manifest import Manifest, Part, Segment

__all__ = [
    "Held",
    "account",
    "activated",
    "cleaned",
    "held_groups",
    "held_ranges",
    "joined",
    "pushed_stores",
    "sizes",
    "spilled",
    "unexpired",
]


@dataclass
class Held:
    """What a group holds. `deadlines` has for each inactive generation the latest deadline of its segments."""

    active_rows: int = 0
    active_bytes: float = 0.0
    inactive_rows: int = 0
    inactive_bytes: float = 0.0
    deadlines: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, float] = field(default_factory=dict)
    """The bytes of each inactive generation."""

    def add(self, segment: Segment, part: Part) -> None:
        """Count a part. Its bytes are the segment's, shared by rows."""
        size = segment.bytes * part.rows / max(segment.rows, 1)
        if not part.generation:
            self.active_rows += part.rows
            self.active_bytes += size
            return
        self.inactive_rows += part.rows
        self.inactive_bytes += size
        self.sizes[part.generation] = self.sizes.get(part.generation, 0.0) + size
        self.deadlines[part.generation] = max(self.deadlines.get(part.generation, segment.deadline), segment.deadline)


def account(manifest: Manifest, stores: Collection[str] | None = None) -> dict[GroupId, Held]:
    """What each group holds, of some stores or of all. A group that holds nothing is in it too."""
    found = {group.id: Held() for group in manifest.directory.groups}
    for segment in manifest.segments:
        if stores is None or segment.store in stores:
            for part in segment.parts:
                found[manifest.directory.at(part.low).id].add(segment, part)
    return found


def sizes(manifest: Manifest) -> tuple[int, int]:
    """The bytes of active and of inactive state."""
    active = inactive = 0.0
    for segment in manifest.segments:
        share = segment.bytes / max(segment.rows, 1)
        pushed = sum(part.rows for part in segment.parts if part.generation)
        inactive += share * pushed
        active += share * (segment.live_rows - pushed)
    return int(active), int(inactive)


def held_groups(manifest: Manifest) -> list[Group]:
    """The groups with inactive generations, in the order of their addresses."""
    lows = {part.low for segment in manifest.segments for part in segment.parts if part.generation}
    return sorted({manifest.directory.at(low) for low in lows}, key=lambda group: group.low)


def pushed_stores(manifest: Manifest) -> frozenset[str]:
    """The stores that have inactive generations."""
    return frozenset(s.store for s in manifest.segments if any(part.generation for part in s.parts))


def activated(manifest: Manifest, stores: Collection[str]) -> Manifest:
    """The manifest with all state active again that is not in `stores`. For groups of which nothing is missing."""
    others = {segment.store for segment in manifest.segments} - set(stores)
    return _mapped(manifest, lambda part, _: replace(part, generation=0), others)


def held_ranges(manifest: Manifest) -> dict[int, tuple[tuple[int, int], ...]]:
    """By stage: the ranges of hashes of the groups with inactive generations, ascending."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for group in held_groups(manifest):
        found[group.stage].append((group.first, group.last))
    return {stage: tuple(ranges) for stage, ranges in found.items()}


def spilled(manifest: Manifest, groups: Iterable[GroupId], stores: Collection[str]) -> Manifest:
    """The manifest with the active parts of these groups, in stores that may be pushed, as inactive generations."""
    chosen = set(groups)
    if not chosen:
        return manifest
    last: dict[GroupId, int] = defaultdict(int)
    for segment in manifest.segments:
        for part in segment.parts:
            group = manifest.directory.at(part.low).id
            last[group] = max(last[group], part.generation)

    def changed(part: Part, group: GroupId) -> Part:
        is_pushed = group in chosen and not part.generation
        return replace(part, generation=last[group] + 1) if is_pushed else part

    return _mapped(manifest, changed, stores)


def cleaned(
    manifest: Manifest, groups: Iterable[GroupId], inactive: Collection[GroupId], stores: Collection[str]
) -> Manifest:
    """The manifest after a clean-up: all is one generation, active, or for the groups in `inactive` an inactive one.

    State that is not in `stores`, those that may be pushed, is active again in any case.
    """
    chosen = set(groups)

    def changed(part: Part, group: GroupId, *, may_stay: bool) -> Part:
        if group not in chosen:
            return part
        return replace(part, generation=1 if may_stay and group in inactive else 0)

    others = {segment.store for segment in manifest.segments} - set(stores)
    first = _mapped(manifest, lambda part, group: changed(part, group, may_stay=True), stores)
    return _mapped(first, lambda part, group: changed(part, group, may_stay=False), others)


def joined(manifest: Manifest, some: Mapping[GroupId, Collection[int]]) -> Manifest:
    """The manifest after a clean-up of only some generations of groups: they are one, with the highest number."""

    def changed(part: Part, group: GroupId) -> Part:
        numbers = some.get(group, ())
        return replace(part, generation=max(numbers)) if part.generation in numbers else part

    return _mapped(manifest, changed, {segment.store for segment in manifest.segments}) if some else manifest


def unexpired(segments: Iterable[Segment], directory: Directory, watermark: int | None) -> tuple[Segment, ...]:
    """Without the segments whose deadline has passed; of these, parts of held groups stay."""
    live = [segment for segment in segments if segment.is_live]
    if watermark is None:
        return tuple(live)
    lows = {part.low for segment in live for part in segment.parts if part.generation}
    held = {directory.at(low).id for low in lows}
    kept = []
    for segment in live:
        if segment.deadline >= watermark:
            kept.append(segment)
        elif held and (parts := tuple(part for part in segment.parts if directory.at(part.low).id in held)):
            kept.append(replace(segment, parts=parts))
    return tuple(kept)


def _mapped(manifest: Manifest, change: Callable[[Part, GroupId], Part], stores: Collection[str]) -> Manifest:
    """The manifest with every part of some stores changed; `change` is given the part and the id of its group."""
    at = manifest.directory.at

    def mapped(segment: Segment) -> Segment:
        if segment.store not in stores:
            return segment
        parts = tuple(change(part, at(part.low).id) for part in segment.parts)
        return segment if parts == segment.parts else replace(segment, parts=parts)

    return replace(manifest, segments=tuple(mapped(segment) for segment in manifest.segments))
