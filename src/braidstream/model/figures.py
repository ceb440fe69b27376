"""The figures of a slot and an epoch that policies see: the controller's only sight of the cluster.

The driver makes them of slots' reports (`model.reports`) and of what the manifest says of groups.
`rows` counts the tuples joined in the epoch, `busy_s` the seconds spent on them, `bytes` the active state held at its
end: what is probed. `inactive_bytes` are a group's generations on disk that are not cleaned up yet.

A slot that buffers tuples of its own (WSJ's slaves, in the simulator) also says how much it left unjoined. On Spark a
slot leaves nothing behind, its backlog shows as busy time (see `load`), and `backlog_rows` stays None.

There are two forms. `SlotFigures` and `GroupFigures` are objects, for simulators and small cases. `FigureColumns` has
the same as arrays, and that is what the controller reads. Between two reorganizations the figures wait in the manifest
as columns too (`WaitingFigures`), so that a restart forgets none of them: of slots a few numbers an epoch, of groups
sums only, whatever the number of epochs. What groups hold does not wait: it is read when the controller is asked.

Cost: O(groups), in NumPy where there are no objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from braidstream.model.numbers import EpochNumber, GroupId, SlotId, slot_ids
from braidstream.model.packed_numbers import Column
from braidstream.model.values import Json, Value, changed

__all__ = [
    "FigureColumns",
    "GroupFigures",
    "SlotFigures",
    "StoredColumns",
    "WaitingFigures",
    "figures_from_rows",
]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupFigures:
    """One group's share of an epoch. A slot that cannot tell its groups' times apart leaves every `busy_s` 0."""

    group: GroupId
    rows: int
    matches: int
    stored_rows: int
    stored_bytes: int
    busy_s: float
    inactive_bytes: int = 0


@dataclass(frozen=True)
class SlotFigures:
    """One slot's epoch."""

    slot: SlotId
    epoch: EpochNumber
    rows: int
    matches: int
    bytes: int
    busy_s: float
    groups: tuple[GroupFigures, ...]
    executor: str = ""
    backlog_rows: int | None = None
    backlog_bytes: int | None = None
    work_s: float | None = None
    """Where a flow has several stages: the seconds that slots take on average for such work as this slot's. A row or a
    match of one stage costs what it costs, so the paces of slots with other shares of the stages compare by this."""


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """What groups hold: ids ascending, active bytes and bytes of inactive generations."""

    groups: I64
    active_bytes: I64
    inactive_bytes: I64


@dataclass(frozen=True, eq=False)
class FigureColumns:
    """Figures of several slots and epochs: an entry for each `SlotFigures`, and one for each `GroupFigures` of them.

    Entries are in the order of epochs; what is not known is nan.
    """

    slots: I64
    epochs: I64
    rows: I64
    matches: I64
    bytes: I64
    busy_s: F64
    work_s: F64
    backlog_rows: F64
    backlog_bytes: F64
    executors: Sequence[str]
    groups: I64
    group_slots: I64
    group_rows: I64
    group_matches: I64
    group_busy_s: F64
    stored_bytes: I64
    inactive_bytes: I64

    @classmethod
    def of(cls, reports: Sequence[SlotFigures]) -> FigureColumns:
        """Of objects."""
        listed = sorted(reports, key=lambda report: report.epoch)
        parts = [(report.slot, part) for report in listed for part in report.groups]
        return cls(
            _whole([one.slot for one in listed]),
            _whole([one.epoch for one in listed]),
            _whole([one.rows for one in listed]),
            _whole([one.matches for one in listed]),
            _whole([one.bytes for one in listed]),
            _real([one.busy_s for one in listed]),
            _real([one.work_s for one in listed]),
            _real([one.backlog_rows for one in listed]),
            _real([one.backlog_bytes for one in listed]),
            [one.executor for one in listed],
            _whole([part.group for _, part in parts]),
            _whole([slot for slot, _ in parts]),
            _whole([part.rows for _, part in parts]),
            _whole([part.matches for _, part in parts]),
            _real([part.busy_s for _, part in parts]),
            _whole([part.stored_bytes for _, part in parts]),
            _whole([part.inactive_bytes for _, part in parts]),
        )


class WaitingFigures(Value, frozen=True):
    """The figures of epochs that wait for a reorganization: those of slots epoch by epoch, of groups their sums."""

    epochs: tuple[EpochNumber, ...] = ()
    n_slots: int = 0
    rows: Column = Column()
    """Of each slot in the first epoch, then of each in the second one, and so on; so are the next three."""
    matches: Column = Column()
    busy_s: Column = Column()
    work_s: Column = Column()
    """Not a number where there is none."""
    groups: Column = Column()
    """Ids, ascending."""
    group_slots: Column = Column()
    """Where each group was in the last epoch."""
    group_rows: Column = Column()
    group_matches: Column = Column()
    group_busy_s: Column = Column()

    @classmethod
    def of(cls, reports: Sequence[SlotFigures]) -> WaitingFigures:
        """Of objects: what policies see of them."""
        made, n_slots = cls(), max((report.slot + 1 for report in reports), default=0)
        for epoch in sorted({report.epoch for report in reports}):
            made = made.plus(_of_epoch(epoch, n_slots, [report for report in reports if report.epoch == epoch]))
        return made

    def plus(self, other: WaitingFigures) -> WaitingFigures:
        """These, and those of later epochs of as many slots. A group that is elsewhere since is counted anew."""
        if not self.epochs:
            return other
        ids = np.union1d(self.groups.whole, other.groups.whole)
        slots = _spread(ids, self, self.group_slots.whole)
        slots[np.searchsorted(ids, other.groups.whole)] = other.group_slots.whole
        stays = _spread(ids, self, self.group_slots.whole) == slots
        return WaitingFigures(
            (*self.epochs, *other.epochs),
            self.n_slots,
            Column.of(np.concatenate([self.rows.whole, other.rows.whole])),
            Column.of(np.concatenate([self.matches.whole, other.matches.whole])),
            Column.of(np.concatenate([self.busy_s.real, other.busy_s.real])),
            Column.of(np.concatenate([self.work_s.real, other.work_s.real])),
            Column.of(ids),
            Column.of(slots),
            Column.of(_spread(ids, self, self.group_rows.whole) * stays + _spread(ids, other, other.group_rows.whole)),
            Column.of(
                _spread(ids, self, self.group_matches.whole) * stays + _spread(ids, other, other.group_matches.whole)
            ),
            Column.of(
                _spread(ids, self, self.group_busy_s.real) * stays + _spread(ids, other, other.group_busy_s.real)
            ),
        )

    def since(self, epoch: EpochNumber) -> WaitingFigures:
        """Without what was before an epoch. Sums of groups are not told apart: they stay as long as any epoch does."""
        n_gone = sum(one < epoch for one in self.epochs)
        if n_gone in (0, len(self.epochs)):
            return WaitingFigures() if n_gone else self
        begin = n_gone * self.n_slots
        return changed(
            self,
            epochs=self.epochs[n_gone:],
            rows=Column.of(self.rows.whole[begin:]),
            matches=Column.of(self.matches.whole[begin:]),
            busy_s=Column.of(self.busy_s.real[begin:]),
            work_s=Column.of(self.work_s.real[begin:]),
        )

    def columns(self, stored: StoredColumns, taken: Mapping[SlotId, int], executors: Sequence[str]) -> FigureColumns:
        """What the controller reads: with what groups hold now, and what else `taken` says that slots hold."""
        n_epochs, last = len(self.epochs), max(len(self.epochs) - 1, 0) * self.n_slots
        groups, slots = self.groups.whole, self.group_slots.whole
        at = np.minimum(np.searchsorted(stored.groups, groups), max(len(stored.groups) - 1, 0))
        is_known = stored.groups[at] == groups if len(stored.groups) else np.zeros(len(groups), dtype=np.bool_)
        active, inactive = (
            np.where(is_known, one[at], 0) if len(one) else np.zeros(len(groups), dtype=np.int64)
            for one in (stored.active_bytes, stored.inactive_bytes)
        )
        held = np.zeros(len(self.rows), dtype=np.int64)
        np.add.at(held, last + slots, active)
        for slot in slot_ids(self.n_slots):
            held[last + slot] += taken.get(slot, 0)
        nothing = np.full(len(held), np.nan)
        return FigureColumns(
            np.tile(np.arange(self.n_slots), n_epochs),
            np.repeat(np.array(self.epochs, dtype=np.int64), self.n_slots),
            self.rows.whole,
            self.matches.whole,
            held,
            self.busy_s.real,
            self.work_s.real,
            nothing,
            nothing,
            [*[""] * last, *executors],
            groups,
            slots,
            self.group_rows.whole,
            self.group_matches.whole,
            self.group_busy_s.real,
            active,
            inactive,
        )

    def figures(self) -> tuple[SlotFigures, ...]:
        """The same as objects, without state; the groups of a slot with its last epoch. For small cases."""
        columns = self.columns(StoredColumns(_whole([]), _whole([]), _whole([])), {}, [""] * self.n_slots)
        parts: dict[int, list[GroupFigures]] = {}
        rows = (columns.group_rows.tolist(), columns.group_matches.tolist(), columns.group_busy_s.tolist())
        for group, slot, n_rows, matches, busy_s in zip(
            columns.groups.tolist(), columns.group_slots.tolist(), *rows, strict=True
        ):
            parts.setdefault(slot, []).append(GroupFigures(GroupId(group), n_rows, matches, 0, 0, busy_s))
        return tuple(
            SlotFigures(
                SlotId(int(columns.slots[at])),
                EpochNumber(int(columns.epochs[at])),
                int(columns.rows[at]),
                int(columns.matches[at]),
                0,
                float(columns.busy_s[at]),
                tuple(parts.get(int(columns.slots[at]), ())) if columns.epochs[at] == self.epochs[-1] else (),
                work_s=None if np.isnan(columns.work_s[at]) else float(columns.work_s[at]),
            )
            for at in range(len(columns.slots))
        )


def figures_from_rows(rows: Json) -> list[SlotFigures]:
    """The figures that manifests of 0.1.0 carry: fields in the order of the dataclasses, groups last.

    TypeError where there are too few or too many.
    """
    return [replace(SlotFigures(*row[:-1]), groups=tuple(GroupFigures(*part) for part in row[-1])) for row in rows]


def _of_epoch(epoch: EpochNumber, n_slots: int, reports: Sequence[SlotFigures]) -> WaitingFigures:
    """Those of one epoch. A slot without a report did nothing."""
    slots = [one.slot for one in reports]
    whole, real = np.zeros((2, n_slots), dtype=np.int64), np.zeros((2, n_slots))
    whole[:, slots] = [[one.rows for one in reports], [one.matches for one in reports]]
    real[:, slots] = [_real([one.busy_s for one in reports]), _real([one.work_s for one in reports])]
    parts = sorted(((part, one.slot) for one in reports for part in one.groups), key=lambda part: part[0].group)
    return WaitingFigures(
        (epoch,),
        n_slots,
        Column.of(whole[0]),
        Column.of(whole[1]),
        Column.of(real[0]),
        Column.of(real[1]),
        Column.of(_whole([part.group for part, _ in parts])),
        Column.of(_whole([slot for _, slot in parts])),
        Column.of(_whole([part.rows for part, _ in parts])),
        Column.of(_whole([part.matches for part, _ in parts])),
        Column.of(_real([part.busy_s for part, _ in parts])),
    )


def _spread(ids: I64, of: WaitingFigures, numbers: npt.NDArray[np.number]) -> npt.NDArray[np.number]:
    """Numbers of some groups, as those of more: 0 for the others."""
    made = np.zeros(len(ids), dtype=numbers.dtype)
    made[np.searchsorted(ids, of.groups.whole)] = numbers
    return made


def _whole(numbers: Sequence[int]) -> I64:
    return np.array(numbers, dtype=np.int64)


def _real(numbers: Sequence[float | None]) -> F64:
    return np.array([np.nan if one is None else one for one in numbers], dtype=np.float64)
