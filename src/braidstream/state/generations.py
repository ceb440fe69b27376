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

Cost: O(parts of the sections that change) each; nothing here depends on the rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.model.directory import Group
from braidstream.model.figures import StoredColumns
from braidstream.model.numbers import GroupId
from braidstream.model.snapshots import ACCOUNT, Key
from braidstream.state.manifest import Manifest, Part, Segment
from braidstream.state.section import Section

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
    "stored_columns",
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

    def add(self, generation: int, rows: int, size: float, deadline: int) -> None:
        """Count what a generation has of a store."""
        if not generation:
            self.active_rows += rows
            self.active_bytes += size
            return
        self.inactive_rows += rows
        self.inactive_bytes += size
        self.sizes[generation] = self.sizes.get(generation, 0.0) + size
        self.deadlines[generation] = max(self.deadlines.get(generation, deadline), deadline)


def account(manifest: Manifest, stores: Collection[str] | None = None) -> dict[GroupId, Held]:
    """What each group holds, of some stores or of all. A group that holds nothing is in it too."""
    found = {group.id: Held() for group in manifest.directory.groups}
    for own in _accounts(manifest, stores).tolist():
        _, group, number, rows, size, deadline = own
        if group in found:
            found[GroupId(group)].add(number, rows, size, deadline)
    return found


def stored_columns(manifest: Manifest) -> StoredColumns:
    """The active and the inactive bytes of each group, by its id."""
    ids, accounts = manifest.directory.columns().sorted_ids[1], _accounts(manifest)
    at = np.searchsorted(ids, accounts["group"])
    is_known = ids[np.minimum(at, len(ids) - 1)] == accounts["group"] if len(ids) else np.zeros(0, dtype=np.bool_)
    is_active = accounts["generation"] == 0
    sums = (
        np.bincount(at[of & is_known], accounts["bytes"][of & is_known], len(ids)).astype(np.int64)
        for of in (is_active, ~is_active)
    )
    return StoredColumns(ids, *sums)


def _accounts(manifest: Manifest, stores: Collection[str] | None = None) -> npt.NDArray[Any]:
    """What slots said of their groups, of some stores or of all: rows of `section.ACCOUNT`, one a generation."""
    found = [np.empty(0, ACCOUNT)]
    for figures in manifest.figures().values():
        rows = figures.rows_by_group
        if stores is not None:
            wanted = np.array([store in stores for store in figures.stores], dtype=np.bool_)
            rows = rows[wanted[rows["store"]]] if len(rows) else rows
        found.append(rows)
    return np.concatenate(found)


def sizes(manifest: Manifest) -> tuple[int, int]:
    """The bytes of active and of inactive state."""
    figures = manifest.figures().values()
    active = sum(one.active_bytes + one.cell_bytes for one in figures)
    return int(active), int(sum(one.inactive_bytes for one in figures))


def held_groups(manifest: Manifest) -> list[Group]:
    """The groups with inactive generations, in the order of their addresses."""
    pushed = _accounts(manifest)
    ids = set(pushed["group"][pushed["generation"] > 0].tolist())
    return sorted((manifest.directory.by_id[GroupId(id_)] for id_ in ids), key=lambda group: group.low)


def pushed_stores(manifest: Manifest) -> frozenset[str]:
    """The stores that have inactive generations."""
    found = set[str]()
    for figures in manifest.figures().values():
        rows = figures.rows_by_group
        found.update(figures.stores[at] for at in np.unique(rows["store"][rows["generation"] > 0]).tolist())
    return frozenset(found)


def activated(manifest: Manifest, stores: Collection[str]) -> Manifest:
    """The manifest with all state active again that is not in `stores`. For groups of which nothing is missing."""
    return _mapped(manifest, lambda part, _: replace(part, generation=0), lambda store: store not in stores)


def held_ranges(section: Section, watermark: int | None) -> tuple[tuple[int, int], ...]:
    """The ranges of hashes of a section's groups with inactive generations, ascending."""
    lows = [group.first for group in section.groups]
    pushed = {part.first for segment in section.live(watermark) for part in segment.parts if part.generation}
    places = sorted({bisect_right(lows, first) - 1 for first in pushed})
    return tuple((section.groups[at].first, section.groups[at].last) for at in places)


def spilled(manifest: Manifest, groups: Iterable[GroupId], stores: Collection[str]) -> Manifest:
    """The manifest with the active parts of these groups, in stores that may be pushed, as inactive generations."""
    chosen = set(groups)
    if not chosen:
        return manifest
    accounts = _accounts(manifest)
    last: dict[int, int] = defaultdict(int)
    for group, number in zip(accounts["group"].tolist(), accounts["generation"].tolist(), strict=True):
        last[group] = max(last[group], number)

    def changed(part: Part, group: GroupId) -> Part:
        is_pushed = group in chosen and not part.generation
        return replace(part, generation=last[group] + 1) if is_pushed else part

    return _mapped(manifest, changed, lambda store: store in stores, chosen)


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

    kept = set(stores)
    first = _mapped(manifest, lambda part, group: changed(part, group, may_stay=True), lambda s: s in kept, chosen)
    return _mapped(first, lambda part, group: changed(part, group, may_stay=False), lambda s: s not in kept, chosen)


def joined(manifest: Manifest, some: Mapping[GroupId, Collection[int]]) -> Manifest:
    """The manifest after a clean-up of only some generations of groups: they are one, with the highest number."""

    def changed(part: Part, group: GroupId) -> Part:
        numbers = some.get(group, ())
        return replace(part, generation=max(numbers)) if part.generation in numbers else part

    return _mapped(manifest, changed, lambda _: True, some) if some else manifest


def _mapped(
    manifest: Manifest,
    change: Callable[[Part, GroupId], Part],
    concerns: Callable[[str], bool],
    groups: Collection[GroupId] | None = None,
) -> Manifest:
    """The manifest with the parts of some stores changed, in the sections of some groups or in all.

    `change` is given the part and the id of its group.
    """
    at, known = manifest.directory.at, manifest.directory.by_id

    def mapped(segment: Segment) -> Segment:
        if not concerns(segment.store):
            return segment
        parts = tuple(change(part, at(part.low).id) for part in segment.parts)
        return segment if parts == segment.parts else replace(segment, parts=parts)

    if groups is None:
        keys: Iterable[Key] = list(manifest.sections)
    else:
        keys = sorted({(group.stage, group.slot) for id_ in groups if (group := known.get(id_)) is not None})
    return manifest.mapped(lambda segments: tuple(mapped(segment) for segment in segments), keys)
