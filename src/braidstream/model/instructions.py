"""The instructions: what the controller asks for, and what each does to the directory.

An instruction is a frozen dataclass; `Draft.take` is the one place that says what it means, as a change of directory
and number of slots, and `apply` is that as a pure function. Whoever acts on instructions (the manifest on Spark, the
master in the simulator) uses `apply`, so the two cannot disagree. A new kind of instruction is a dataclass with a
`kind` and a case in `Draft`.

Spill, CleanUp and Shed change neither directory nor slots: they say what becomes of state where it is. `apply` checks
that the group exists; whoever keeps the state acts on them (`state.acting`).

Invariant: `apply` returns a directory that covers the hash space exactly once, with every group at a slot below
`n_slots`, or raises `IllegalInstruction` and changes nothing.

Slots are numbered densely from 0 (a slot is a Spark partition), so only the last slot can go, and only when it holds
no group; cells of grids that it holds are placed elsewhere (`state.cells.resettled`). A Regrid changes no group: the
manifest carries it out (`state.cells.regridded`).

Cost: O(1) for each instruction, and O(groups) once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import ClassVar, TypeVar, cast

from braidstream.errors import RunError
from braidstream.model.dead_rows import Filter
from braidstream.model.directory import HASH_BITS, Directory, Group, halved, united
from braidstream.model.grids import Regrid
from braidstream.model.numbers import EpochNumber, GroupId, SlotId

__all__ = [
    "AddSlot",
    "CleanUp",
    "Decision",
    "Draft",
    "IllegalInstruction",
    "Instruction",
    "Merge",
    "Move",
    "Regrid",
    "RemoveSlot",
    "Shed",
    "Spill",
    "Split",
    "apply",
    "instruction_to_json",
    "slots_touched",
]

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Move:
    """Hand a group, with its state, to another slot."""

    kind: ClassVar[str] = "move"
    group: GroupId
    slot: SlotId


@dataclass(frozen=True, slots=True)
class Split:
    """Split a group by its next hash bit; the upper half is a new group at `slot`."""

    kind: ClassVar[str] = "split"
    group: GroupId
    slot: SlotId


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge a group with its buddy, at the slot of `group`."""

    kind: ClassVar[str] = "merge"
    group: GroupId


@dataclass(frozen=True, slots=True)
class AddSlot:
    """One more slot, empty."""

    kind: ClassVar[str] = "add_slot"


@dataclass(frozen=True, slots=True)
class RemoveSlot:
    """Give up the last slot, which must hold no group."""

    kind: ClassVar[str] = "remove_slot"
    slot: SlotId


@dataclass(frozen=True, slots=True)
class Spill:
    """Make a group's active state an inactive generation on disk; its next tuples start a new one (D-CAPE 4)."""

    kind: ClassVar[str] = "spill"
    group: GroupId
    forced: bool = False
    """Whether its slot had room: asked for to make room for more productive groups of other slots (D-CAPE 6)."""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Produce the results that are missing between a group's generations, and make them one (D-CAPE 4.2)."""

    kind: ClassVar[str] = "clean_up"
    group: GroupId
    generations: tuple[int, ...] = ()
    """Only these among themselves; none are named: all of them."""


@dataclass(frozen=True)
class Shed:
    """Drop stored rows for good, by a filter that says which are dead (DHTJoin 2.2)."""

    kind: ClassVar[str] = "shed"
    by: str
    """Which rows go first."""
    held_bytes: float
    """What lived before."""
    filter: Filter = field(repr=False)


Instruction = Move | Split | Merge | AddSlot | RemoveSlot | Spill | CleanUp | Shed | Regrid


class IllegalInstruction(RunError):
    """An instruction that does not fit the directory it was applied to. `instruction` is the one."""

    def __init__(self, instruction: Instruction, wrong: str, expected: str) -> None:
        self.instruction = instruction
        fix = "decide again from the current directory; nothing was changed"
        super().__init__(f"cannot apply {instruction}: {wrong}", expected, fix)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one rule asked for at one epoch and on which figures. A refused decision has no instructions, only why."""

    epoch: EpochNumber
    rule: str
    figures: Mapping[str, float]
    instructions: tuple[Instruction, ...]
    reason: str = ""
    refusal: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the controller took the rule's suggestion."""
        return not self.refusal

    def without_filters(self) -> Decision:
        """To be remembered: a filter has an entry for each group."""
        left = tuple(replace(one, filter=Filter()) if isinstance(one, Shed) else one for one in self.instructions)
        return replace(self, instructions=left)

    def explain(self) -> str:
        """One line for the log: which rule, which figures, what follows."""
        figures = ", ".join(f"{name}={value:.4g}" for name, value in self.figures.items())
        asked = f"refused: {self.refusal}" if self.refusal else ", ".join(map(str, self.instructions))
        return f"epoch {self.epoch}, {self.rule}: {self.reason} [{figures}] -> {asked}"

    def as_json(self) -> dict[str, object]:
        """A plain form for people's tools: `braid run --json`."""
        told = {"epoch": self.epoch, "rule": self.rule, "figures": dict(self.figures)}
        plain = [instruction_to_json(one) for one in self.instructions]
        return {**told, "instructions": plain, "reason": self.reason, "refusal": self.refusal}


def apply(directory: Directory, n_slots: int, instructions: Iterable[Instruction]) -> tuple[Directory, int]:
    """The directory and the number of slots after the instructions, in their order."""
    draft = Draft(directory, n_slots)
    draft.take(instructions)
    return draft.directory(), draft.n_slots


def instruction_to_json(instruction: Instruction) -> dict[str, object]:
    """A plain form."""
    if isinstance(instruction, Regrid):
        return instruction.as_json()
    if isinstance(instruction, Shed):
        return {"kind": instruction.kind, "by": instruction.by, "held_bytes": instruction.held_bytes}
    return {"kind": instruction.kind, **asdict(instruction)}


def slots_touched(directory: Directory, instructions: Sequence[Instruction]) -> frozenset[SlotId]:
    """The slots whose groups the instructions change. Two decisions with none in common do not disturb each other."""
    touched: set[int] = set()
    columns = directory.columns()
    slots, positions = columns.plain_slots, columns.positions
    for one in instructions:
        if isinstance(one, (Move, Split, RemoveSlot)):
            touched.add(one.slot)
        if isinstance(one, (Move, Split, Merge, Spill, CleanUp)) and one.group in positions:
            at = positions[one.group]
            touched.add(slots[at])
            if isinstance(one, Merge) and (buddy := columns.buddy_of(at)) is not None:
                touched.add(slots[buddy])
    return cast("frozenset[SlotId]", frozenset(touched))


class Draft:
    """A directory while instructions change it: what differs from the one before, by group and by range."""

    def __init__(self, directory: Directory, n_slots: int) -> None:
        self.n_slots, self._before, self._next_id = n_slots, directory, directory.next_id
        self._groups: dict[GroupId, Group | None] = {}
        """Groups that are not as before; None: it is no more."""
        self._ranges: dict[tuple[int, int], GroupId | None] = {}
        """Whose a range is, by (prefix, depth), where that is not as before."""

    def take(self, instructions: Iterable[Instruction]) -> None:
        """All of the instructions in their order; or, where one is illegal, none of them."""
        kept = (self.n_slots, self._next_id)
        undo: list[Callable[[], object]] = []
        try:
            for one in instructions:
                self._take(one, undo)
        except IllegalInstruction:
            self.n_slots, self._next_id = kept
            for step in reversed(undo):
                step()
            raise

    def directory(self) -> Directory:
        """What the directory is now."""
        if not self._groups:
            return self._before
        known = self._before.by_id
        added = [group for group in self._groups.values() if group is not None]
        if self._next_id == self._before.next_id and not self._ranges:
            return self._before.moved({group.id: group.slot for group in added})
        return self._before.changed(added, [id_ for id_ in self._groups if id_ in known], self._next_id)

    def _take(self, one: Instruction, undo: list[Callable[[], object]]) -> None:
        if isinstance(one, AddSlot):
            self.n_slots += 1
        elif isinstance(one, RemoveSlot):
            self._check_removable(one)
            self.n_slots -= 1
        elif isinstance(one, (Spill, CleanUp, Shed, Regrid)):
            self._check_kept(one)
        elif isinstance(one, Merge):
            own = self._group(one, one.group)
            buddy = self._buddy(own)
            if buddy is None:
                raise IllegalInstruction(one, f"group {own.id} has no buddy of its depth", "two equal siblings")
            self._put([own, buddy], [united(own, buddy)], undo)
        elif isinstance(one, Split):
            own = self._group(one, one.group)
            self._check_slot(one, one.slot)
            if own.depth >= HASH_BITS:
                raise IllegalInstruction(one, f"group {own.id} is a single hash value", "a group to be halved")
            self._put([own], halved(own, self._next_id, one.slot), undo)
            self._next_id = GroupId(self._next_id + 1)
        else:
            own = self._group(one, one.group)
            self._check_slot(one, one.slot)
            _set(self._groups, own.id, replace(own, slot=one.slot), undo)

    def _put(self, gone: Iterable[Group], new: Iterable[Group], undo: list[Callable[[], object]]) -> None:
        for group in gone:
            _set(self._groups, group.id, None, undo)
            _set(self._ranges, (group.prefix, group.depth), None, undo)
        for group in new:
            _set(self._groups, group.id, group, undo)
            _set(self._ranges, (group.prefix, group.depth), group.id, undo)

    def _known(self, group: GroupId) -> Group | None:
        return self._groups[group] if group in self._groups else self._before.by_id.get(group)

    def _buddy(self, own: Group) -> Group | None:
        if own.depth == 0:
            return None
        wanted = (own.buddy_prefix, own.depth)
        if wanted in self._ranges:
            found = self._ranges[wanted]
            return None if found is None else self._known(found)
        before = self._before.shaped(*wanted)
        return None if before is None else self._known(before.id)

    def _group(self, one: Instruction, group: GroupId) -> Group:
        found = self._known(group)
        if found is None:
            raise IllegalInstruction(one, f"there is no group {group}", "a group of the directory")
        return found

    def _check_slot(self, one: Instruction, slot: SlotId) -> None:
        if not 0 <= slot < self.n_slots:
            raise IllegalInstruction(one, f"there is no slot {slot}", f"a slot from 0 to {self.n_slots - 1}")

    def _check_kept(self, one: Spill | CleanUp | Shed | Regrid) -> None:
        if isinstance(one, (Spill, CleanUp)):
            self._group(one, one.group)
        elif isinstance(one, Regrid) and one.grid is not None:
            for slot in one.grid.slots:
                self._check_slot(one, slot)

    def _check_removable(self, one: RemoveSlot) -> None:
        slot, known = one.slot, self._before.by_id
        if slot != self.n_slots - 1 or self.n_slots == 1:
            raise IllegalInstruction(one, f"slot {slot} is not the last of several", "the last slot")
        gone = sum(known[id_].slot == slot for id_ in self._groups if id_ in known)
        come = sum(group.slot == slot for group in self._groups.values() if group is not None)
        if self._before.count_of_slot(slot) - gone + come:
            raise IllegalInstruction(one, f"slot {slot} still holds groups", "an empty slot: Move them first")


def _set(of: dict[KeyT, ValueT], key: KeyT, value: ValueT, undo: list[Callable[[], object]]) -> None:
    """`of[key] = value`, and how to undo it."""
    undo.append(partial(of.__setitem__, key, of[key]) if key in of else partial(of.__delitem__, key))
    of[key] = value
