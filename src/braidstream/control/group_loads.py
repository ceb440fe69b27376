"""The loads of groups: an array for each figure, and an object for each group that somebody asks for.

A mapping to policies, which look at the groups of few slots; sums over all groups or slots are NumPy's.
Invariant: every group of the directory has an entry, in the order of addresses. Cost: O(groups) once, in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from braidstream.model.directory import Directory
from braidstream.model.numbers import GroupId, SlotId

__all__ = ["GroupLoad", "GroupLoads"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """One group, averaged over the epochs of the view; state as at its end."""

    group: GroupId
    slot: SlotId
    rows: float
    matches: float
    demand_s: float
    stored_bytes: int
    inactive_bytes: int = 0


@dataclass(frozen=True, eq=False)
class GroupLoads(Mapping[GroupId, GroupLoad]):
    """The load of each group of a directory, by its id."""

    directory: Directory
    rows: F64
    matches: F64
    demand_s: F64
    stored_bytes: I64
    inactive_bytes: I64

    @classmethod
    def of(cls, loads: Mapping[GroupId, GroupLoad], directory: Directory) -> GroupLoads:
        """Of any mapping; a group that is not in it has no load."""
        if isinstance(loads, GroupLoads):
            return loads
        ids = cast("list[GroupId]", directory.columns().ids.tolist())
        listed = [loads.get(id_, GroupLoad(id_, SlotId(0), 0.0, 0.0, 0.0, 0)) for id_ in ids]
        return cls(
            directory,
            np.array([one.rows for one in listed], dtype=np.float64),
            np.array([one.matches for one in listed], dtype=np.float64),
            np.array([one.demand_s for one in listed], dtype=np.float64),
            np.array([one.stored_bytes for one in listed], dtype=np.int64),
            np.array([one.inactive_bytes for one in listed], dtype=np.int64),
        )

    @cached_property
    def _made(self) -> dict[int, GroupLoad]:
        return {}

    def __getitem__(self, group: GroupId) -> GroupLoad:
        return self.at(self.directory.columns().positions[group])

    def __contains__(self, group: object) -> bool:
        return group in self.directory.by_id

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self.directory.by_id)

    def __len__(self) -> int:
        return len(self.directory)

    def at(self, position: int) -> GroupLoad:
        """The load of the group at a position of the directory's columns."""
        if position not in self._made:
            self._made[position] = self.some([position])[0]
        return self._made[position]

    def some(self, positions: Sequence[int] | npt.NDArray[np.integer]) -> list[GroupLoad]:
        """The loads of the groups at some positions."""
        own, known = np.asarray(positions, dtype=np.intp), self.directory.columns()
        reals, wholes = (self.rows, self.matches, self.demand_s), (self.stored_bytes, self.inactive_bytes)
        return list(map(GroupLoad, *(one[own].tolist() for one in (known.ids, known.slots, *reals, *wholes))))

    def of_slot(self, slot: SlotId) -> list[GroupLoad]:
        """The loads of a slot's groups, in the order of the hash space."""
        return self.some(self.directory.columns().of_slot(slot))

    def by_slot(self, numbers: I64, n_slots: int) -> I64:
        """The sum of a whole figure over the groups of each slot below `n_slots`."""
        slots = self.directory.columns().slots
        sums = np.zeros(max(n_slots, int(slots.max(initial=-1)) + 1), dtype=np.int64)
        np.add.at(sums, slots, numbers)
        return sums[:n_slots]
