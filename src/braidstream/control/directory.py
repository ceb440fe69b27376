"""The directory: an extendible-hash table from the leading bits of a key hash to a group, and from a group to a slot.

One class serves three papers: WSJ's routing table and its fine tuning inside a slave (IV-D), D-CAPE's partition groups,
and DHTJoin's domain partitioning to partners (section 6).

Invariant: the groups cover the 64-bit hash space exactly once; a group of depth d is the set of hashes whose d leading
bits equal its prefix. WSJ uses the least significant bits; we use the leading ones, so that a group, its halves and its
quarters are contiguous ranges of rows sorted by hash, and a split moves no data.

A directory is a value: `split`, `merge` and `move` return another one. Cost: O(number of groups) each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["HASH_BITS", "Directory", "Group"]

HASH_BITS = 64


@dataclass(frozen=True, order=True)
class Group:
    """The hashes whose `depth` leading bits are `prefix`, and the slot that holds their state."""

    prefix: int
    depth: int
    id: int
    slot: int

    @property
    def low(self) -> int:
        """The smallest hash of the group."""
        return self.prefix << (HASH_BITS - self.depth)

    @property
    def high(self) -> int:
        """The largest hash of the group (inclusive)."""
        return ((self.prefix + 1) << (HASH_BITS - self.depth)) - 1

    @property
    def buddy_prefix(self) -> int:
        """The prefix of the group that this one was, or would have been, split from together with (WSJ IV-D)."""
        return self.prefix ^ 1


@dataclass(frozen=True)
class Directory:
    """The groups, in the order of the hash space."""

    groups: tuple[Group, ...]
    next_id: int

    @classmethod
    def of(cls, n_groups: int, n_slots: int = 1) -> Directory:
        """`n_groups` groups of (nearly) equal size, dealt to the slots in contiguous runs."""
        depth = max(n_groups - 1, 0).bit_length()
        n_wide = (1 << depth) - n_groups  # that many groups are one bit shallower, so that the space is covered
        shapes = [(i, depth - 1) for i in range(n_wide)] + [(i, depth) for i in range(2 * n_wide, 1 << depth)]
        return cls(tuple(Group(p, d, i, i * n_slots // n_groups) for i, (p, d) in enumerate(shapes)), n_groups)

    @property
    def depth(self) -> int:
        """The global depth: how many leading bits the table looks at."""
        return max(group.depth for group in self.groups)

    @cached_property
    def by_id(self) -> dict[int, Group]:
        """The groups by their identity."""
        return {group.id: group for group in self.groups}

    @cached_property
    def lows(self) -> npt.NDArray[np.uint64]:
        """The smallest hash of each group, ascending: group boundaries for binary search."""
        return np.array([group.low for group in self.groups], dtype=np.uint64)

    @cached_property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each group, in the order of the hash space."""
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

    def at(self, hash_: int) -> Group:
        """The group of one hash."""
        return self.groups[bisect_right(self._plain_lows, hash_) - 1]

    @cached_property
    def _plain_lows(self) -> list[int]:
        return [group.low for group in self.groups]

    def of_slot(self, slot: int) -> tuple[Group, ...]:
        """The groups of one slot."""
        return tuple(group for group in self.groups if group.slot == slot)

    def move(self, group: int, slot: int) -> Directory:
        """The directory with `group` at `slot`."""
        return self._with([replace(self.by_id[group], slot=slot)], {group})

    def split(self, group: int, slot: int | None = None) -> Directory:
        """Split a group by its next bit: the lower half keeps its identity, the upper one is new and goes to `slot`."""
        whole = self.by_id[group]
        if whole.depth >= HASH_BITS:
            raise ValueError(f"group {group} holds a single hash value and cannot be split")
        lower = replace(whole, prefix=whole.prefix * 2, depth=whole.depth + 1)
        target = whole.slot if slot is None else slot
        upper = replace(lower, prefix=lower.prefix + 1, id=self.next_id, slot=target)
        return replace(self._with([lower, upper], {group}), next_id=self.next_id + 1)

    def buddy(self, group: int) -> Group | None:
        """The group that `group` can be merged with: its buddy, if it has the same depth."""
        own = self.by_id[group]
        same = (g for g in self.groups if g.depth == own.depth and g.prefix == own.buddy_prefix and own.depth > 0)
        return next(same, None)

    def merge(self, group: int) -> Directory:
        """Merge a group with its buddy; the lower half's identity and the slot of `group` remain."""
        own, buddy = self.by_id[group], self.buddy(group)
        if buddy is None:
            raise ValueError(f"group {group} has no buddy of its depth")
        lower = min(own, buddy)
        merged = Group(lower.prefix // 2, lower.depth - 1, lower.id, own.slot)
        return self._with([merged], {own.id, buddy.id})

    def resized(self, n_slots: int) -> Directory:
        """The same groups over `n_slots` slots: groups stay where they can, the others fill up the emptiest slots."""
        most = -(-len(self.groups) // n_slots)
        held = [0] * n_slots
        kept: list[Group] = []
        homeless: list[Group] = []
        for group in self.groups:
            stays = group.slot < n_slots and held[group.slot] < most
            (kept if stays else homeless).append(group)
            if stays:
                held[group.slot] += 1
        for group in homeless:
            slot = held.index(min(held))
            held[slot] += 1
            kept.append(replace(group, slot=slot))
        return replace(self, groups=tuple(sorted(kept, key=lambda g: g.low)))

    def as_json(self) -> dict[str, Any]:
        """A plain form for the manifest."""
        return {"groups": [[g.prefix, g.depth, g.id, g.slot] for g in self.groups], "next_id": self.next_id}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Directory:
        """The directory of a manifest."""
        return cls(tuple(Group(*entry) for entry in plain["groups"]), plain["next_id"])

    def _with(self, added: Iterable[Group], removed: set[int]) -> Directory:
        left = [group for group in self.groups if group.id not in removed]
        return replace(self, groups=tuple(sorted([*left, *added], key=lambda g: g.low)))
