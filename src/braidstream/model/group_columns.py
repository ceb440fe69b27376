"""The groups of a directory as columns: a NumPy array for each property, an entry for each group.

Thirty thousand groups are five arrays of together less than a megabyte, and nothing here makes a Python object a group.
`model.directory` has the views on top: `Group`, `Region`, `Directory`.

Invariant: entries are in the order of their addresses (stage, then first hash), and nobody writes to the arrays. Where
the groups cover their regions, as those of a directory do, the first hashes follow from the depths (`first_hashes`), so
a file may leave them out.

Cost: O(groups) for a change, in NumPy; O(log groups) to find an address.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

__all__ = ["HASH_BITS", "GroupColumns", "equal_shapes", "first_hashes", "replaced", "resized_slots"]

HASH_BITS = 64
_TYPES = {"stages": np.int32, "firsts": np.uint64, "depths": np.uint8, "ids": np.int64, "slots": np.int32}
_OF_SHAPES = ("bounds", "plain_depths", "plain_firsts", "positions", "sorted_ids")
"""What is known of columns whatever the slots are."""

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class GroupColumns:
    """Of each group: its stage, its smallest hash, how many leading bits it has fixed, its id and its slot."""

    stages: I32
    firsts: U64
    depths: U8
    ids: I64
    slots: I32

    def __post_init__(self) -> None:
        for name, kind in _TYPES.items():
            own = np.ascontiguousarray(self.__dict__[name], dtype=kind).view()
            if own.shape != (len(self.stages),):
                raise ValueError(f"columns of groups with {len(self.stages)} stages and {own.shape} {name}")
            own.flags.writeable = False
            self.__dict__[name] = own

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, int, int, int, int]]) -> GroupColumns:
        """Of (stage, first, depth, id, slot) in any order."""
        columns = list(zip(*rows, strict=True)) or [()] * len(_TYPES)
        made = (np.array(values, dtype=kind) for values, kind in zip(columns, _TYPES.values(), strict=True))
        return cls(*made).in_order()

    def __len__(self) -> int:
        return len(self.firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupColumns) and all(
            a is b or np.array_equal(a, b) for a, b in zip(self.arrays(), other.arrays(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(one.tobytes() for one in self.arrays()))

    def __reduce__(self) -> tuple[type[GroupColumns], tuple[npt.NDArray[Any], ...]]:
        return GroupColumns, self.arrays()

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """All columns, in the order of the fields."""
        return self.stages, self.firsts, self.depths, self.ids, self.slots

    def in_order(self) -> GroupColumns:
        """The same, sorted by address."""
        stages, firsts = self.stages, self.firsts
        follows = (stages[1:] > stages[:-1]) | ((stages[1:] == stages[:-1]) & (firsts[1:] > firsts[:-1]))
        return self if follows.all() else self.taken(np.lexsort((firsts, stages)))

    def taken(self, at: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> GroupColumns:
        """Some entries, by position."""
        return GroupColumns(*(one[at] for one in self.arrays()))

    def plus(self, other: GroupColumns) -> GroupColumns:
        """Both together."""
        pairs = zip(self.arrays(), other.arrays(), strict=True)
        return GroupColumns(*(np.concatenate(pair) for pair in pairs)).in_order()

    def with_slots(self, slots: I32) -> GroupColumns:
        """The same groups at other slots; what was found out of their shapes goes along."""
        made = replace(self, slots=slots)
        made.__dict__.update({name: self.__dict__[name] for name in _OF_SHAPES if name in self.__dict__})
        return made

    @cached_property
    def bounds(self) -> dict[int, tuple[int, int]]:
        """By stage, ascending: where its groups begin and end."""
        begins = [0, *(np.flatnonzero(self.stages[1:] != self.stages[:-1]) + 1).tolist()] if len(self) else []
        ends = [*begins[1:], len(self)]
        return {int(self.stages[begin]): (begin, end) for begin, end in zip(begins, ends, strict=False)}

    @cached_property
    def plain_firsts(self) -> list[int]:
        """The first hashes as integers of Python, for `bisect`: a single search costs a fraction of NumPy's."""
        return cast("list[int]", self.firsts.tolist())

    @cached_property
    def plain_depths(self) -> list[int]:
        """Likewise the depths."""
        return cast("list[int]", self.depths.tolist())

    @cached_property
    def positions(self) -> dict[int, int]:
        """By id: where the group is."""
        return dict(zip(self.ids.tolist(), range(len(self)), strict=True))

    @cached_property
    def sorted_ids(self) -> tuple[I64, I64]:
        """The positions in the order of ids, and the ids."""
        order = np.argsort(self.ids)
        return order, self.ids[order]

    def found(self, ids: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Of each id the position of its group, and whether there is one; otherwise the position says nothing."""
        order, known = self.sorted_ids
        if not len(known):
            return np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.bool_)
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        return order[at], known[at] == ids

    def position_of(self, group: int) -> int:
        """Where a group is; KeyError where there is none of this id."""
        if "positions" in self.__dict__:
            return self.positions[group]
        found = np.flatnonzero(self.ids == group)  # a dictionary of all is not worth it for a single question
        if not len(found):
            raise KeyError(group)
        return int(found[0])

    def position_at(self, stage: int, hash_: int) -> int:
        """Where the group of a hash in the region of a stage is."""
        if stage not in self.bounds:
            return int(np.searchsorted(self.stages, stage)) - 1
        return bisect_right(self.plain_firsts, hash_, *self.bounds[stage]) - 1

    def buddy_of(self, position: int) -> int | None:
        """Where the other half is of what the group at a position was, or would have been, split from, if it is one."""
        depth = self.plain_depths[position]
        if depth == 0:
            return None
        first = self.plain_firsts[position] ^ (1 << (HASH_BITS - depth))
        at = self.position_at(int(self.stages[position]), first)
        return at if self.plain_firsts[at] == first and self.plain_depths[at] == depth else None

    @cached_property
    def plain_slots(self) -> list[int]:
        """The slots as integers of Python, for who asks for many, one by one."""
        return cast("list[int]", self.slots.tolist())

    def located(self, stages: npt.NDArray[np.integer], hashes: U64) -> I64:
        """`position_at` for arrays: of each the position of its group."""
        found = np.searchsorted(self.stages, stages).astype(np.int64) - 1
        for stage, (begin, end) in self.bounds.items():
            own = np.flatnonzero(stages == stage)
            if len(own):
                found[own] = begin - 1 + np.searchsorted(self.firsts[begin:end], hashes[own], side="right")
        return found

    @cached_property
    def _by_slot(self) -> tuple[I64, I32]:
        order = np.argsort(self.slots, kind="stable")
        return order, self.slots[order]

    def of_slot(self, slot: int) -> I64:
        """The positions of a slot's groups, ascending."""
        order, slots = self._by_slot
        begin, end = np.searchsorted(slots, (slot, slot + 1))
        return order[begin:end]


def first_hashes(depths: npt.NDArray[np.unsignedinteger]) -> U64:
    """The smallest hash of each group, where groups in the order of their addresses cover their regions.

    A region ends where a sum of 64 bits overflows to 0, so one running sum does for all of them.
    """
    whole = depths == 0
    widths = np.uint64(1) << (np.uint64(HASH_BITS) - np.where(whole, 1, depths).astype(np.uint64))
    widths[whole] = 0
    return np.cumsum(widths, dtype=np.uint64) - widths


def equal_shapes(n_groups: int, n_slots: int, shares: Sequence[int] = ()) -> tuple[U64, U8, I32]:
    """First hashes, depths and slots of groups of (nearly) equal size, dealt to slots in contiguous runs.

    Slots get as many each, or by their shares.
    """
    depth = max(n_groups - 1, 0).bit_length()
    n_wide = (1 << depth) - n_groups  # that many groups are one bit shallower, so that the space is covered
    depths = np.full(n_groups, depth, dtype=np.uint8)
    depths[:n_wide] -= 1
    slots = np.arange(n_groups, dtype=np.int64) * n_slots // n_groups
    if shares:
        ends = np.cumsum(shares, dtype=np.int64) * n_groups // sum(shares)
        slots = np.searchsorted(ends, np.arange(n_groups), side="right")
    return first_hashes(depths), depths, slots.astype(np.int32)


def resized_slots(slots: I32, n_slots: int) -> I32:
    """The slots of a region's groups over `n_slots` slots: they stay where they can, others fill the emptiest slots.

    No slot keeps more than its even share; the first groups stay. Only those that go are looked at one by one.
    """
    most = -(-len(slots) // n_slots)
    stays = (slots < n_slots) & (_ranks(slots) < most)
    held = np.bincount(slots[stays], minlength=n_slots).tolist()
    emptiest = list(zip(held, range(n_slots), strict=True))
    heapq.heapify(emptiest)
    made = slots.copy()
    for at in np.flatnonzero(~stays).tolist():
        n_held, slot = emptiest[0]
        made[at] = slot
        heapq.heapreplace(emptiest, (n_held + 1, slot))
    return made


def _ranks(slots: I32) -> I64:
    """Of each group: how many before it are at its slot."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.searchsorted(ordered, ordered)
    ranks = np.empty(len(slots), dtype=np.int64)
    ranks[order] = np.arange(len(slots)) - begins
    return ranks


def replaced(columns: GroupColumns, gone: Sequence[int], added: GroupColumns) -> GroupColumns:
    """The columns without the groups at some positions, and with others."""
    left = np.ones(len(columns), dtype=np.bool_)
    left[list(gone)] = False
    return columns.taken(left).plus(added)
