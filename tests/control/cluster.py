"""A cluster of constant load for the controller's tests: groups with costs, slots with paces, reports of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braidstream.control.controller import Controller
from braidstream.control.remembered import Memory
from braidstream.model.directory import HASH_BITS, Directory, Group
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Decision, Instruction, apply


def placed(placement: Sequence[Sequence[int]], n_groups: int) -> Directory:
    """A directory of `n_groups` groups with the named groups at each slot."""
    directory = Directory.of(n_groups)
    for slot, groups in enumerate(placement):
        for group in groups:
            directory = directory.move(group, slot)
    return directory


def placement(directory: Directory, n_slots: int) -> list[list[int]]:
    """The groups of each slot, by id."""
    return [sorted(group.id for group in directory.of_slot(slot)) for slot in range(n_slots)]


def report(
    slot: int,
    groups: Mapping[int, float],
    *,
    epoch: int = 0,
    pace: float = 1.0,
    sizes: Mapping[int, int] | None = None,
    matches: Mapping[int, int] | None = None,
) -> SlotFigures:
    """A report of a slot whose groups took so many seconds of work (at pace 1); a second is 1,000 rows."""
    sizes, matches = sizes or {}, matches or {}
    parts = tuple(
        GroupFigures(g, int(1000 * s), matches.get(g, 0), int(1000 * s), sizes.get(g, 0), s * pace)
        for g, s in groups.items()
    )
    return SlotFigures(
        slot,
        epoch,
        sum(p.rows for p in parts),
        sum(p.matches for p in parts),
        sum(p.stored_bytes for p in parts),
        sum(p.busy_s for p in parts),
        parts,
    )


@dataclass
class ConstantLoad:
    """Work spread over the hash space that never changes, on slots whose paces never change.

    Each hash interval of the finest `leaves` has its seconds of work (at pace 1), rows and bytes.
    """

    directory: Directory
    n_slots: int
    seconds: Sequence[float]
    rows: Sequence[int]
    sizes: Sequence[int]
    paces: Sequence[float]
    memory: Memory = field(default_factory=Memory)
    measures: GroupMeasures = field(default_factory=GroupMeasures)
    epoch: int = 0

    def reports(self) -> list[SlotFigures]:
        """What the slots say of the next epoch."""
        return [self._report(slot) for slot in range(self.n_slots)]

    def reorganize(self, controller: Controller, seed: int = 0) -> list[Decision]:
        """One reorganization epoch: report, decide, apply."""
        reports, before = self.reports(), self.directory
        self.measures = self.measures.counted(brought(reports), before, self.epoch)
        decisions, self.memory = controller.decide(
            reports, before, self.n_slots, self.memory, float(self.epoch), seed, self.measures
        )
        self.directory, self.n_slots = apply(before, self.n_slots, instructions_of(decisions))
        self.measures = self.measures.carried(before, self.directory)
        self.epoch += 1
        return decisions

    def busy(self) -> list[float]:
        """The seconds each slot is busy in an epoch."""
        return [report.busy_s for report in self.reports()]

    def _report(self, slot: int) -> SlotFigures:
        parts = tuple(self._part(group, self._pace(slot)) for group in self.directory.of_slot(slot))
        rows, size, busy = (sum(getattr(p, name) for p in parts) for name in ("rows", "stored_bytes", "busy_s"))
        return SlotFigures(slot, self.epoch, rows, 0, size, busy, parts)

    def _pace(self, slot: int) -> float:
        return self.paces[slot % len(self.paces)]

    def _part(self, group: Group, pace: float) -> GroupFigures:
        bits = len(self.seconds).bit_length() - 1
        first, last = group.low >> (HASH_BITS - bits), group.high >> (HASH_BITS - bits)
        share = slice(first, last + 1)
        width = 1.0 if group.depth <= bits else 2.0 ** (bits - group.depth)
        rows, size = int(sum(self.rows[share]) * width), int(sum(self.sizes[share]) * width)
        return GroupFigures(group.id, rows, 0, rows, size, sum(self.seconds[share]) * width * pace)


def brought(reports: Sequence[SlotFigures]) -> list[GroupFigures]:
    """What the reports say of groups."""
    return [part for report in reports for part in report.groups]


def measured(reports: Sequence[SlotFigures], directory: Directory) -> GroupMeasures:
    """The measures when these reports are the first."""
    return GroupMeasures().counted(brought(reports), directory, reports[0].epoch)


def instructions_of(decisions: Sequence[Decision]) -> list[Instruction]:
    """All instructions of the decisions, in their order."""
    return [one for decision in decisions for one in decision.instructions]
