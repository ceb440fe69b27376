"""The directory: an extendible-hash table from the leading bits of a key hash to a group, and from a group to a slot.

One class serves three papers: WSJ's routing table and its fine tuning inside a slave (IV-D), D-CAPE's partition groups,
and DHTJoin's domain partitioning to partners (section 6).

Each stage of a flow has groups and slots of its own (DHTJoin 3.3.2), in one table all the same: what the directory maps
is an *address*, `stage << 64 | hash`. The addresses of one stage are its *region*. A prefix holds the stage above the
leading bits of the hash, so splits, merges and moves, and whoever asks whose an address is, need not know of stages.
Only where addresses meet arrays of hashes are regions told apart (`Region`).

Invariant: the groups cover the addresses of every region exactly once; a group of depth d is the set of hashes of one
stage whose d leading bits are those of its prefix. WSJ uses the least significant bits; we use the leading ones, so
that a group, its halves and its quarters are contiguous ranges of rows sorted by hash, and a split moves no data.

A directory is a value: `split`, `merge` and `move` return another one. Cost: O(number of groups) each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.model.numbers import Address, GroupId, SlotId

__all__ = ["HASH_BITS", "Directory", "Group", "Range", "Region", "address_of"]

HASH_BITS = 64
_HASHES = (1 << HASH_BITS) - 1


def address_of(stage: int, hash_: int) -> Address:
    """The address of a hash in the region of a stage."""
    return Address(stage << HASH_BITS | hash_)


@dataclass(frozen=True, order=True)
class Range:
    """The hashes of one stage with the same `depth` leading bits; `prefix` is the stage with these bits behind it."""

    prefix: int
    depth: int

    @property
    def stage(self) -> int:
        """The stage whose region it lies in."""
        return self.prefix >> self.depth

    @property
    def low(self) -> Address:
        """Its smallest address."""
        return Address(self.prefix << (HASH_BITS - self.depth))

    @property
    def high(self) -> Address:
        """Its largest address (inclusive)."""
        return Address(((self.prefix + 1) << (HASH_BITS - self.depth)) - 1)

    @property
    def first(self) -> int:
        """Its smallest hash."""
        return (self.prefix << (HASH_BITS - self.depth)) & _HASHES

    @property
    def last(self) -> int:
        """Its largest hash (inclusive)."""
        return (((self.prefix + 1) << (HASH_BITS - self.depth)) - 1) & _HASHES

    def meets(self, other: Range) -> bool:
        """Whether the two share addresses: one is then within the other."""
        return self.low <= other.high and other.low <= self.high

    def prefix_at(self, stage: int) -> int:
        """The prefix of the same hashes in the region of another stage."""
        return stage << self.depth | (self.prefix & ((1 << self.depth) - 1))


@dataclass(frozen=True, order=True)
class Group(Range):
    """A range of addresses, and the slot that holds its state."""

    id: GroupId
    slot: SlotId

    @property
    def buddy_prefix(self) -> int:
        """The prefix of the group that this one was, or would have been, split from together with (WSJ IV-D)."""
        return self.prefix ^ 1


@dataclass(frozen=True)
class Region:
    """The groups of one stage, in the order of the hash space: where addresses meet arrays of hashes."""

    groups: tuple[Group, ...]

    @property
    def depth(self) -> int:
        """The global depth: how many leading bits the table looks at."""
        return max((group.depth for group in self.groups), default=0)

    @cached_property
    def lows(self) -> npt.NDArray[np.uint64]:
        """The smallest hash of each group, ascending: group boundaries for binary search."""
        return np.array([group.first for group in self.groups], dtype=np.uint64)

    @cached_property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each group."""
        return np.array([group.slot for group in self.groups], dtype=np.int32)

    def table(self) -> npt.NDArray[np.int32]:
        """For each value of the `depth` leading bits, the position of its group in `groups`."""
        depth = self.depth
        widths = [1 << (depth - group.depth) for group in self.groups]
        return np.repeat(np.arange(len(self.groups), dtype=np.int32), widths)

    def locate(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The position in `groups` of each hash."""
        if self.depth == 0:
            return np.zeros(len(hashes), dtype=np.int32)
        return self.table()[(hashes >> np.uint64(HASH_BITS - self.depth)).astype(np.int64)]


@dataclass(frozen=True)
class Directory:
    """The groups of all stages, in the order of their addresses."""

    groups: tuple[Group, ...]
    next_id: GroupId

    @classmethod
    def deferred(cls, load: Callable[[], Directory]) -> Directory:
        """A directory that is read when it is first looked at."""
        made = object.__new__(cls)
        object.__setattr__(made, "_load", load)
        return made

    def __getattr__(self, name: str) -> Any:
        if name in ("groups", "next_id") and "_load" in self.__dict__:
            found = self.__dict__["_load"]()
            object.__setattr__(self, "groups", found.groups)
            object.__setattr__(self, "next_id", found.next_id)
            return self.__dict__[name]
        raise AttributeError(name)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The groups as columns."""
        return {
            "stage": np.array([group.stage for group in self.groups], dtype="<i4"),
            "first": np.array([group.first for group in self.groups], dtype="<u8"),
            "depth": np.array([group.depth for group in self.groups], dtype="<u1"),
            "id": np.array([group.id for group in self.groups], dtype="<i8"),
            "slot": np.array([group.slot for group in self.groups], dtype="<i4"),
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, npt.NDArray[Any]], next_id: GroupId) -> Directory:
        """From them."""
        rows = zip(*(columns[name].tolist() for name in ("stage", "first", "depth", "id", "slot")), strict=True)
        groups = (
            Group(stage << depth | (first >> (HASH_BITS - depth) if depth else 0), depth, GroupId(id_), SlotId(slot))
            for stage, first, depth, id_, slot in rows
        )
        return cls(tuple(groups), next_id)

    @classmethod
    def of(cls, n_groups: int, n_slots: int = 1, n_stages: int = 1) -> Directory:
        """For each stage `n_groups` groups of (nearly) equal size, dealt to the slots in contiguous runs."""
        return cls((), GroupId(0)).with_stages(range(n_stages), n_groups, n_slots)

    def with_stages(self, stages: Iterable[int], n_groups: int, n_slots: int) -> Directory:
        """The directory with a region for each of these stages that has none."""
        depth = max(n_groups - 1, 0).bit_length()
        n_wide = (1 << depth) - n_groups  # that many groups are one bit shallower, so that the space is covered
        shapes = [(i, depth - 1) for i in range(n_wide)] + [(i, depth) for i in range(2 * n_wide, 1 << depth)]
        equal = [Group(p, d, GroupId(i), SlotId(i * n_slots // n_groups)) for i, (p, d) in enumerate(shapes)]
        made = self
        for stage in sorted(set(stages) - self.regions.keys()):
            made = made._with_region(stage, equal)
        return made

    def with_copy(self, stage: int) -> Directory:
        """The directory with a region for a stage that has none: groups and slots as those of stage 0."""
        return self._with_region(stage, self.region(0).groups)

    def _with_region(self, stage: int, shapes: Sequence[Group]) -> Directory:
        added = [replace(g, prefix=g.prefix_at(stage), id=GroupId(self.next_id + i)) for i, g in enumerate(shapes)]
        return replace(self._with(added, set()), next_id=GroupId(self.next_id + len(added)))

    @cached_property
    def by_id(self) -> dict[GroupId, Group]:
        """The groups by their identity."""
        return {group.id: group for group in self.groups}

    @cached_property
    def regions(self) -> Mapping[int, Region]:
        """The groups of each stage, by stage."""
        found: dict[int, list[Group]] = defaultdict(list)
        for group in self.groups:
            found[group.stage].append(group)
        return {stage: Region(tuple(own)) for stage, own in found.items()}

    def region(self, stage: int) -> Region:
        """The groups of one stage; none where no store is kept at it."""
        return self.regions.get(stage, _NOWHERE)

    @cached_property
    def lows(self) -> npt.NDArray[np.uint64]:
        """The smallest hash of each group, where there is one stage only."""
        return np.array([group.low for group in self.groups], dtype=np.uint64)

    def at(self, address: Address) -> Group:
        """The group of one address."""
        return self.groups[bisect_right(self._plain_lows, address) - 1]

    @cached_property
    def _plain_lows(self) -> list[Address]:
        return [group.low for group in self.groups]

    def of_slot(self, slot: SlotId, stage: int | None = None) -> tuple[Group, ...]:
        """The groups of one slot, of one stage or of all."""
        groups = self.groups if stage is None else self.region(stage).groups
        return tuple(group for group in groups if group.slot == slot)

    def move(self, group: GroupId, slot: SlotId) -> Directory:
        """The directory with `group` at `slot`."""
        return self._with([replace(self.by_id[group], slot=slot)], {group})

    def split(self, group: GroupId, slot: SlotId | None = None) -> Directory:
        """Split a group by its next bit: the lower half keeps its identity, the upper one is new and goes to `slot`."""
        whole = self.by_id[group]
        if whole.depth >= HASH_BITS:
            raise ValueError(f"group {group} holds a single hash value and cannot be split")
        lower = replace(whole, prefix=whole.prefix * 2, depth=whole.depth + 1)
        target = whole.slot if slot is None else slot
        upper = replace(lower, prefix=lower.prefix + 1, id=self.next_id, slot=target)
        return replace(self._with([lower, upper], {group}), next_id=GroupId(self.next_id + 1))

    def buddy(self, group: GroupId) -> Group | None:
        """The group that `group` can be merged with: its buddy, if it has the same depth."""
        own = self.by_id[group]
        same = (g for g in self.groups if g.depth == own.depth and g.prefix == own.buddy_prefix and own.depth > 0)
        return next(same, None)

    def merge(self, group: GroupId) -> Directory:
        """Merge a group with its buddy; the lower half's identity and the slot of `group` remain."""
        own, buddy = self.by_id[group], self.buddy(group)
        if buddy is None:
            raise ValueError(f"group {group} has no buddy of its depth")
        lower = min(own, buddy)
        merged = Group(lower.prefix // 2, lower.depth - 1, lower.id, own.slot)
        return self._with([merged], {own.id, buddy.id})

    def resized(self, n_slots: int) -> Directory:
        """The same groups over `n_slots` slots: groups stay where they can, the others fill up the emptiest slots.

        Each region is spread by itself.
        """
        regions = (_resized(region.groups, n_slots) for region in self.regions.values())
        return replace(self, groups=tuple(sorted((g for groups in regions for g in groups), key=lambda g: g.low)))

    def _with(self, added: Iterable[Group], removed: set[GroupId]) -> Directory:
        left = [group for group in self.groups if group.id not in removed]
        return replace(self, groups=tuple(sorted([*left, *added], key=lambda g: g.low)))


_NOWHERE = Region(())


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
        kept.append(replace(group, slot=SlotId(slot)))
    return kept
