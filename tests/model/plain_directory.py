"""A directory as a plain list of groups, looked through from the beginning: slow, and easy to see to be right."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from braidstream.model.directory import HASH_BITS, Group
from braidstream.model.instructions import (
    AddSlot,
    CleanUp,
    IllegalInstruction,
    Instruction,
    Merge,
    Move,
    RemoveSlot,
    Spill,
    Split,
)


@dataclass(frozen=True)
class PlainDirectory:
    """What `model.directory.Directory` is, without columns."""

    groups: tuple[Group, ...] = ()
    next_id: int = 0

    @cached_property
    def by_id(self) -> dict[int, Group]:
        return {group.id: group for group in self.groups}

    @property
    def regions(self) -> dict[int, list[Group]]:
        found = defaultdict(list)
        for group in self.groups:
            found[group.stage].append(group)
        return dict(found)

    def with_stages(self, stages: Iterable[int], n_groups: int, n_slots: int) -> PlainDirectory:
        depth = max(n_groups - 1, 0).bit_length()
        n_wide = (1 << depth) - n_groups
        shapes = [(i, depth - 1) for i in range(n_wide)] + [(i, depth) for i in range(2 * n_wide, 1 << depth)]
        equal = [Group(p, d, i, i * n_slots // n_groups) for i, (p, d) in enumerate(shapes)]
        made = self
        for stage in sorted(set(stages) - self.regions.keys()):
            made = made._with_region(stage, equal)
        return made

    def with_copy(self, stage: int) -> PlainDirectory:
        return self._with_region(stage, self.regions[0])

    def _with_region(self, stage: int, shapes: Sequence[Group]) -> PlainDirectory:
        added = [replace(g, prefix=g.prefix_at(stage), id=self.next_id + i) for i, g in enumerate(shapes)]
        return replace(self._with(added, set()), next_id=self.next_id + len(added))

    def at(self, address: int) -> Group:
        return self.groups[bisect_right([group.low for group in self.groups], address) - 1]

    def of_slot(self, slot: int, stage: int | None = None) -> tuple[Group, ...]:
        return tuple(g for g in self.groups if g.slot == slot and stage in (None, g.stage))

    def move(self, group: int, slot: int) -> PlainDirectory:
        return self._with([replace(self.by_id[group], slot=slot)], {group})

    def split(self, group: int, slot: int) -> PlainDirectory:
        whole = self.by_id[group]
        lower = replace(whole, prefix=whole.prefix * 2, depth=whole.depth + 1)
        upper = replace(lower, prefix=lower.prefix + 1, id=self.next_id, slot=slot)
        return replace(self._with([lower, upper], {group}), next_id=self.next_id + 1)

    def buddy(self, group: int) -> Group | None:
        own = self.by_id[group]
        same = (g for g in self.groups if g.depth == own.depth and g.prefix == own.buddy_prefix and own.depth > 0)
        return next(same, None)

    def merge(self, group: int) -> PlainDirectory:
        own, buddy = self.by_id[group], self.buddy(group)
        assert buddy is not None
        lower = min(own, buddy)
        merged = Group(lower.prefix // 2, lower.depth - 1, lower.id, own.slot)
        return self._with([merged], {own.id, buddy.id})

    def resized(self, n_slots: int) -> PlainDirectory:
        made = [group for region in self.regions.values() for group in _resized(region, n_slots)]
        return replace(self, groups=tuple(sorted(made, key=lambda g: g.low)))

    def _with(self, added: Iterable[Group], removed: set[int]) -> PlainDirectory:
        left = [group for group in self.groups if group.id not in removed]
        return replace(self, groups=tuple(sorted([*left, *added], key=lambda g: g.low)))


def _resized(groups: Sequence[Group], n_slots: int) -> list[Group]:
    most = -(-len(groups) // n_slots)
    held = [0] * n_slots
    kept: list[Group] = []
    homeless: list[Group] = []
    for group in groups:
        stays = group.slot < n_slots and held[group.slot] < most
        (kept if stays else homeless).append(group)
        if stays:
            held[group.slot] += 1
    for group in homeless:
        slot = held.index(min(held))
        held[slot] += 1
        kept.append(replace(group, slot=slot))
    return kept


def plainly_applied(
    directory: PlainDirectory, n_slots: int, instructions: Iterable[Instruction]
) -> tuple[PlainDirectory, int]:
    """What `model.instructions.apply` does, one instruction after the other."""
    for one in instructions:
        directory, n_slots = _applied(directory, n_slots, one)
    return directory, n_slots


def _applied(directory: PlainDirectory, n_slots: int, one: Instruction) -> tuple[PlainDirectory, int]:
    def expect(is_legal: bool) -> None:
        if not is_legal:
            raise IllegalInstruction(one, "", "")

    if isinstance(one, AddSlot):
        return directory, n_slots + 1
    if isinstance(one, RemoveSlot):
        expect(one.slot == n_slots - 1 > 0 and not directory.of_slot(one.slot))
        return directory, n_slots - 1
    assert isinstance(one, (Move, Split, Merge, Spill, CleanUp))
    expect(one.group in directory.by_id)
    if isinstance(one, (Spill, CleanUp)):
        return directory, n_slots
    if isinstance(one, Merge):
        expect(directory.buddy(one.group) is not None)
        return directory.merge(one.group), n_slots
    expect(0 <= one.slot < n_slots)
    if isinstance(one, Split):
        expect(directory.by_id[one.group].depth < HASH_BITS)
        return directory.split(one.group, one.slot), n_slots
    return directory.move(one.group, one.slot), n_slots
