"""The instructions: what the controller asks for, and what each does to the directory.

An instruction is a frozen dataclass; `apply` is the one place that says what it means, as a pure change of directory
and number of slots. Whoever acts on instructions (the manifest on Spark, the master in the simulator) uses `apply`,
so the two cannot disagree. A new kind of instruction is a dataclass with a `kind` and a case in `_applied`.

Spill, CleanUp and Shed change neither directory nor slots: they say what becomes of state where it is. `apply` checks
that the group exists; whoever keeps the state acts on them (`state.acting`).

Invariant: `apply` returns a directory that covers the hash space exactly once, with every group at a slot below
`n_slots`, or raises `IllegalInstruction` and changes nothing.

Slots are numbered densely from 0 (a slot is a Spark partition), so only the last slot can go, and only when it holds
no group; cells of grids that it holds are placed elsewhere (`state.cells.resettled`). A Regrid changes no group: the
manifest carries it out (`state.cells.regridded`).

Cost: O(groups) for each instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

from braidstream.errors import RunError
from braidstream.model.dead_rows import Filter
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.model.grids import Regrid
from braidstream.model.numbers import EpochNumber, GroupId, SlotId

__all__ = [
    "AddSlot",
    "CleanUp",
    "Decision",
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


@dataclass(frozen=True)
class Move:
    """Hand a group, with its state, to another slot."""

    kind: ClassVar[str] = "move"
    group: GroupId
    slot: SlotId


@dataclass(frozen=True)
class Split:
    """Split a group by its next hash bit; the upper half is a new group at `slot`."""

    kind: ClassVar[str] = "split"
    group: GroupId
    slot: SlotId


@dataclass(frozen=True)
class Merge:
    """Merge a group with its buddy, at the slot of `group`."""

    kind: ClassVar[str] = "merge"
    group: GroupId


@dataclass(frozen=True)
class AddSlot:
    """One more slot, empty."""

    kind: ClassVar[str] = "add_slot"


@dataclass(frozen=True)
class RemoveSlot:
    """Give up the last slot, which must hold no group."""

    kind: ClassVar[str] = "remove_slot"
    slot: SlotId


@dataclass(frozen=True)
class Spill:
    """Make a group's active state an inactive generation on disk; its next tuples start a new one (D-CAPE 4)."""

    kind: ClassVar[str] = "spill"
    group: GroupId
    forced: bool = False
    """Whether its slot had room: asked for to make room for more productive groups of other slots (D-CAPE 6)."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    for instruction in instructions:
        directory, n_slots = _applied(directory, n_slots, instruction)
    return directory, n_slots


def instruction_to_json(instruction: Instruction) -> dict[str, object]:
    """A plain form."""
    if isinstance(instruction, Regrid):
        return instruction.as_json()
    if isinstance(instruction, Shed):
        return {"kind": instruction.kind, "by": instruction.by, "held_bytes": instruction.held_bytes}
    return {"kind": instruction.kind, **asdict(instruction)}


def slots_touched(directory: Directory, instructions: Sequence[Instruction]) -> frozenset[SlotId]:
    """The slots whose groups the instructions change. Two decisions with none in common do not disturb each other."""
    touched: set[SlotId] = set()
    for one in instructions:
        if isinstance(one, (Move, Split, Merge, Spill, CleanUp)) and one.group in directory.by_id:
            touched.add(directory.by_id[one.group].slot)
        if isinstance(one, (Move, Split, RemoveSlot)):
            touched.add(one.slot)
        if isinstance(one, Merge) and one.group in directory.by_id:
            buddy = directory.buddy(one.group)
            touched.update({buddy.slot} if buddy else ())
    return frozenset(touched)


@dataclass(frozen=True)
class _Check:
    """The legality checks of one instruction."""

    instruction: Instruction
    directory: Directory
    n_slots: int

    def group(self, group: GroupId) -> None:
        if group not in self.directory.by_id:
            raise IllegalInstruction(self.instruction, f"there is no group {group}", "a group of the directory")

    def slot(self, slot: SlotId) -> None:
        if not 0 <= slot < self.n_slots:
            raise IllegalInstruction(
                self.instruction, f"there is no slot {slot}", f"a slot from 0 to {self.n_slots - 1}"
            )

    def keeps_directory(self, instruction: Spill | CleanUp | Shed | Regrid) -> None:
        if isinstance(instruction, (Spill, CleanUp)):
            self.group(instruction.group)
        elif isinstance(instruction, Regrid) and instruction.grid is not None:
            for slot in instruction.grid.slots:
                self.slot(slot)

    def splittable(self, group: GroupId) -> None:
        if self.directory.by_id[group].depth >= HASH_BITS:
            raise IllegalInstruction(self.instruction, f"group {group} is a single hash value", "a group to be halved")

    def has_buddy(self, group: GroupId) -> None:
        if self.directory.buddy(group) is None:
            raise IllegalInstruction(self.instruction, f"group {group} has no buddy of its depth", "two equal siblings")

    def removable(self, slot: SlotId) -> None:
        if slot != self.n_slots - 1 or self.n_slots == 1:
            raise IllegalInstruction(self.instruction, f"slot {slot} is not the last of several", "the last slot")
        if self.directory.of_slot(slot):
            raise IllegalInstruction(
                self.instruction, f"slot {slot} still holds groups", "an empty slot: Move them first"
            )


def _applied(directory: Directory, n_slots: int, instruction: Instruction) -> tuple[Directory, int]:
    check = _Check(instruction, directory, n_slots)
    if isinstance(instruction, AddSlot):
        return directory, n_slots + 1
    if isinstance(instruction, RemoveSlot):
        check.removable(instruction.slot)
        return directory, n_slots - 1
    if isinstance(instruction, (Spill, CleanUp, Shed, Regrid)):
        check.keeps_directory(instruction)
        return directory, n_slots
    check.group(instruction.group)
    if isinstance(instruction, Merge):
        check.has_buddy(instruction.group)
        return directory.merge(instruction.group), n_slots
    check.slot(instruction.slot)
    if isinstance(instruction, Split):
        check.splittable(instruction.group)
        return directory.split(instruction.group, instruction.slot), n_slots
    return directory.move(instruction.group, instruction.slot), n_slots
