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

A directory is a value: `split`, `merge` and `move` return another one. What it holds are columns
(`model.group_columns`); a `Group` is made when somebody asks for it. A directory may also be *deferred*: its columns
are read when they are first needed. Cost: O(groups) for a change, in NumPy; O(log groups) to find an address; a Python
object a group only where `groups` or the groups of a slot are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt

from braidstream.model.group_columns import HASH_BITS, GroupColumns, equal_shapes, replaced, resized_slots
from braidstream.model.numbers import Address, GroupId, SlotId

__all__ = [
    "HASH_BITS",
    "Directory",
    "Group",
    "GroupColumns",
    "Range",
    "Region",
    "address_of",
    "enough_groups",
    "halved",
    "united",
]

_TABLE_BITS = 16
"""Hashes are looked up in a table of up to 2^16 entries, in deeper regions by binary search."""
_HASHES = (1 << HASH_BITS) - 1


def address_of(stage: int, hash_: int) -> Address:
    """The address of a hash in the region of a stage."""
    return Address(stage << HASH_BITS | hash_)


def enough_groups(n_slots: int) -> int:
    """As many groups as make the slots' shares of a region even, to an eighth: a power of two, 64 and eight a slot.

    Fewer leave some slots with up to twice the work of others, however even the load is.
    """
    return max(64, 1 << (8 * n_slots - 1).bit_length())


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


class Region:
    """The groups of one stage, in the order of the hash space: where addresses meet arrays of hashes."""

    def __init__(self, directory: Directory, begin: int, end: int) -> None:
        self._directory, self._bounds = directory, (begin, end)
        self._columns = directory.columns().taken(slice(begin, end))

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Region) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(self._columns)

    def __repr__(self) -> str:
        return f"Region({self.groups!r})"

    def columns(self) -> GroupColumns:
        """Its groups as arrays."""
        return self._columns

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Its groups."""
        return self._directory.groups_at(range(*self._bounds))

    @cached_property
    def depth(self) -> int:
        """The global depth: how many leading bits the table looks at."""
        return int(self._columns.depths.max(initial=0))

    @property
    def lows(self) -> npt.NDArray[np.uint64]:
        """The smallest hash of each group, ascending: group boundaries for binary search."""
        return self._columns.firsts

    @property
    def slots(self) -> npt.NDArray[np.int32]:
        """The slot of each group."""
        return self._columns.slots

    def table(self) -> npt.NDArray[np.int32]:
        """For each value of the `depth` leading bits, the position of its group in `groups`."""
        widths = np.int64(1) << (self.depth - self._columns.depths.astype(np.int64))
        return np.repeat(np.arange(len(self), dtype=np.int32), widths)

    @cached_property
    def _kept_table(self) -> npt.NDArray[np.int32]:
        return self.table()

    def locate(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """The position in `groups` of each hash."""
        if self.depth == 0:
            return np.zeros(len(hashes), dtype=np.int32)
        if self.depth > _TABLE_BITS:
            return (np.searchsorted(self.lows, hashes, side="right") - 1).astype(np.int32)
        return self._kept_table[(hashes >> np.uint64(HASH_BITS - self.depth)).astype(np.int64)]


class Directory:
    """The groups of all stages, in the order of their addresses. `next_id` is that of the next new group."""

    def __init__(self, groups: Iterable[Group], next_id: GroupId) -> None:
        self._held = (_columns_of(groups), next_id)

    @classmethod
    def from_columns(cls, columns: GroupColumns, next_id: GroupId) -> Directory:
        """Of columns in the order of their addresses."""
        made = cls.__new__(cls)
        made._held = (columns, next_id)
        return made

    @classmethod
    def deferred(cls, load: Callable[[], Directory]) -> Directory:
        """The directory that `load` gives, called once, when something of it is needed."""
        made = cls.__new__(cls)
        made._load = load
        return made

    @classmethod
    def of(cls, n_groups: int, n_slots: int = 1, n_stages: int = 1, shares: Sequence[int] = ()) -> Directory:
        """For each stage `n_groups` groups of (nearly) equal size, dealt to the slots in contiguous runs.

        Slots get as many each, or by their shares (D-CAPE 5.2's initial distributions).
        """
        return cls((), GroupId(0)).with_stages(range(n_stages), n_groups, n_slots, shares)

    _load: Callable[[], Directory]

    @cached_property
    def _held(self) -> tuple[GroupColumns, GroupId]:
        return self._load()._held

    def columns(self) -> GroupColumns:
        """The groups as arrays: what a compact file needs, with `next_id`."""
        return self._held[0]

    @property
    def next_id(self) -> GroupId:
        """The id of the next new group."""
        return self._held[1]

    @property
    def is_loaded(self) -> bool:
        """Whether its columns are there: of a deferred one, whether somebody has needed them."""
        return "_held" in self.__dict__

    def __len__(self) -> int:
        return len(self.columns())

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Directory) and self._held == other._held)

    def __hash__(self) -> int:
        return hash(self._held)

    def __repr__(self) -> str:
        return f"Directory({self.groups!r}, {self.next_id})" if self.is_loaded else "Directory.deferred(...)"

    def __reduce__(self) -> tuple[Callable[[GroupColumns, GroupId], Directory], tuple[GroupColumns, GroupId]]:
        return Directory.from_columns, self._held

    def with_stages(self, stages: Iterable[int], n_groups: int, n_slots: int, shares: Sequence[int] = ()) -> Directory:
        """The directory with a region for each of these stages that has none."""
        made = self
        for stage in sorted(set(stages) - self.regions.keys()):
            made = made._with_region(stage, *equal_shapes(n_groups, n_slots, shares))
        return made

    def with_copy(self, stage: int) -> Directory:
        """The directory with a region for a stage that has none: groups and slots as those of stage 0."""
        first = self.region(0).columns()
        return self._with_region(stage, first.firsts, first.depths, first.slots)

    def _with_region(
        self,
        stage: int,
        firsts: npt.NDArray[np.uint64],
        depths: npt.NDArray[np.uint8],
        slots: npt.NDArray[np.int32],
    ) -> Directory:
        next_id = GroupId(self.next_id + len(firsts))
        stages = np.full(len(firsts), stage, dtype=np.int32)
        added = GroupColumns(stages, firsts, depths, np.arange(self.next_id, next_id), slots)
        return Directory.from_columns(self.columns().plus(added), next_id)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All groups, as objects: for policies and for small cases."""
        return tuple(map(_group, *(one.tolist() for one in self.columns().arrays())))

    @cached_property
    def _made(self) -> dict[int, Group]:
        return {}

    def group_at(self, position: int) -> Group:
        """The group at one position of the columns."""
        if "groups" in self.__dict__:
            return self.groups[position]
        if position not in self._made:
            self._made[position] = _group(*(int(one[position]) for one in self.columns().arrays()))
        return self._made[position]

    def groups_at(self, positions: Sequence[int] | npt.NDArray[np.integer]) -> tuple[Group, ...]:
        """The groups at some positions."""
        if "groups" in self.__dict__:
            return tuple(self.groups[at] for at in positions)
        own = np.asarray(positions, dtype=np.intp)
        return tuple(map(_group, *(one[own].tolist() for one in self.columns().arrays())))

    @cached_property
    def by_id(self) -> Mapping[GroupId, Group]:
        """The groups by their identity."""
        return _ById(self)

    @cached_property
    def regions(self) -> Mapping[int, Region]:
        """The groups of each stage, by stage."""
        return {stage: Region(self, *bounds) for stage, bounds in self.columns().bounds.items()}

    def region(self, stage: int) -> Region:
        """The groups of one stage; none where no store is kept at it."""
        return self.regions.get(stage) or Region(self, 0, 0)

    @property
    def lows(self) -> npt.NDArray[np.uint64]:
        """The smallest hash of each group, where there is one stage only."""
        if self.columns().stages.any():
            raise ValueError("the addresses of several stages do not fit into 64 bits: ask the region of each")
        return self.columns().firsts

    def at(self, address: Address) -> Group:
        """The group of one address."""
        return self.group_at(self.columns().position_at(address >> HASH_BITS, address & _HASHES))

    def of_slot(self, slot: SlotId, stage: int | None = None) -> tuple[Group, ...]:
        """The groups of one slot, of one stage or of all."""
        own = self.columns().of_slot(slot)
        if stage is not None:
            begin, end = self.columns().bounds.get(stage, (0, 0))
            own = own[np.searchsorted(own, begin) : np.searchsorted(own, end)]
        return self.groups_at(own)

    def count_of_slot(self, slot: SlotId) -> int:
        """How many groups a slot has."""
        return len(self.columns().of_slot(slot))

    def move(self, group: GroupId, slot: SlotId) -> Directory:
        """The directory with `group` at `slot`."""
        return self.moved({group: slot})

    def moved(self, slots: Mapping[GroupId, SlotId]) -> Directory:
        """The directory with each of these groups at its slot."""
        made, columns = self.columns().slots.copy(), self.columns()
        for group, slot in slots.items():
            made[columns.position_of(group)] = slot
        return Directory.from_columns(columns.with_slots(made), self.next_id)

    def split(self, group: GroupId, slot: SlotId | None = None) -> Directory:
        """Split a group by its next bit: the lower half keeps its identity, the upper one is new and goes to `slot`."""
        whole = self.by_id[group]
        halves = halved(whole, self.next_id, whole.slot if slot is None else slot)
        return self.changed(halves, [group], GroupId(self.next_id + 1))

    def buddy(self, group: GroupId) -> Group | None:
        """The group that `group` can be merged with: its buddy, if it has the same depth."""
        found = self.columns().buddy_of(self.columns().position_of(group))
        return None if found is None else self.group_at(found)

    def shaped(self, prefix: int, depth: int) -> Group | None:
        """The group of exactly this range, if there is one."""
        wanted = Range(prefix, depth)
        found = self.at(wanted.low)
        return found if (found.prefix, found.depth) == (prefix, depth) else None

    def merge(self, group: GroupId) -> Directory:
        """Merge a group with its buddy; the lower half's identity and the slot of `group` remain."""
        own, buddy = self.by_id[group], self.buddy(group)
        if buddy is None:
            raise ValueError(f"group {group} has no buddy of its depth")
        return self.changed([united(own, buddy)], [own.id, buddy.id], self.next_id)

    def resized(self, n_slots: int) -> Directory:
        """The same groups over `n_slots` slots: groups stay where they can, the others fill up the emptiest slots.

        Each region is spread by itself.
        """
        regions = [resized_slots(region.slots, n_slots) for region in self.regions.values()]
        slots = np.concatenate(regions) if regions else self.columns().slots
        return Directory.from_columns(self.columns().with_slots(slots), self.next_id)

    def changed(self, added: Iterable[Group], removed: Collection[GroupId], next_id: GroupId) -> Directory:
        """The directory without some groups and with others, which cover the same addresses. O(groups), in one go."""
        columns = self.columns()
        gone = [columns.position_of(group) for group in removed]
        return Directory.from_columns(replaced(columns, gone, _columns_of(added)), next_id)


class _ById(Mapping[GroupId, Group]):
    """The groups of a directory by id, each made when it is asked for."""

    def __init__(self, directory: Directory) -> None:
        self._directory, self._positions = directory, directory.columns().positions

    def __getitem__(self, group: GroupId) -> Group:
        return self._directory.group_at(self._positions[group])

    def __contains__(self, group: object) -> bool:
        return group in self._positions

    def __iter__(self) -> Iterator[GroupId]:
        return iter(cast("Mapping[GroupId, int]", self._positions))

    def __len__(self) -> int:
        return len(self._positions)


def halved(whole: Group, upper: GroupId, slot: SlotId) -> tuple[Group, Group]:
    """The halves of a group by its next bit; the upper one has the id `upper` and goes to `slot`."""
    if whole.depth >= HASH_BITS:
        raise ValueError(f"group {whole.id} holds a single hash value and cannot be split")
    lower = replace(whole, prefix=whole.prefix * 2, depth=whole.depth + 1)
    return lower, replace(lower, prefix=lower.prefix + 1, id=upper, slot=slot)


def united(own: Group, buddy: Group) -> Group:
    """A group and its buddy as one: the identity of the lower, at the slot of `own`."""
    lower = min(own, buddy)
    return Group(lower.prefix // 2, lower.depth - 1, lower.id, own.slot)


def _group(stage: int, first: int, depth: int, id_: int, slot: int) -> Group:
    return Group(stage << depth | first >> (HASH_BITS - depth), depth, GroupId(id_), SlotId(slot))


def _columns_of(groups: Iterable[Group]) -> GroupColumns:
    return GroupColumns.of_rows((g.stage, g.first, g.depth, g.id, g.slot) for g in groups)
