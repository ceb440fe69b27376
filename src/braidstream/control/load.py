"""Load: the reports of a reorganization epoch, read as one view of the cluster.

*Occupancy* (WSJ IV-C) is how full a slot's buffer was at the ends of the epochs, averaged, from 0 to 1. A slot with a
buffer says so itself: backlog over buffer. On Spark a slot keeps no tuple for later: what a WSJ slave would have left
in its buffer after `length_s` seconds, the slot goes on to join, and the epoch takes longer. The seconds beyond the
epoch's length are that backlog, and `buffer_epochs` epochs of them are a full buffer:

    occupancy = min(1, max(0, busy_s - length_s) / (buffer_epochs * length_s))

Without a trigger interval (process what is there, as fast as possible) no epoch is too long in itself. Its length is
then the time that an even spread of the same work would take, `even_s`: the mean of the slots' busy times, weighted
harmonically by their work, which is exact when slots differ in speed. The least loaded slot is never above it, so
while the load is uneven there is a consumer; when all are even nobody is a supplier.

*Demand* is the seconds of work that arrive at a slot or a group in one epoch: busy time, plus the growth of the backlog
at the slot's pace. It does not saturate where busy time does, and it is what the policies compare.

Invariant: the groups' demands of a slot add up to at most the slot's; every group of the directory and every slot below
n_slots is in the view, with zeros where nothing was reported. Cost: O(reports), independent of the number of tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.numbers import BEFORE_FIRST, EpochNumber, GroupId, SlotId, slot_ids

__all__ = ["GroupLoad", "SlotLoad", "View", "even_s", "observe", "occupancy"]


@dataclass(frozen=True)
class GroupLoad:
    """One group, averaged over the epochs of the view; state as at its end."""

    group: GroupId
    slot: SlotId
    rows: float
    matches: float
    demand_s: float
    stored_bytes: int
    inactive_bytes: int = 0


@dataclass(frozen=True)
class SlotLoad:
    """One slot, averaged over the epochs of the view; state as at its end."""

    slot: SlotId
    occupancy: float
    demand_s: float
    busy_s: float
    rows: float
    matches: float
    stored_bytes: int
    executor: str = ""
    work_s: float | None = None
    """What slots take on average for its work, where that is known by stage."""

    @property
    def work(self) -> float:
        """What the slot did, in units that do not depend on its speed."""
        return self.rows + self.matches if self.work_s is None else self.work_s

    @property
    def pace(self) -> float | None:
        """Seconds for one unit of work, where it did any."""
        return self.demand_s / self.work if self.work > 0 and self.demand_s > 0 else None


@dataclass(frozen=True)
class View:
    """What the policies see: the placement and the load on it."""

    epoch: EpochNumber
    clock_s: float
    directory: Directory
    slots: tuple[SlotLoad, ...]
    groups: Mapping[GroupId, GroupLoad]
    length_s: float
    """How long an epoch may take."""
    even_s: float
    """How long it would take if its work were spread evenly."""
    is_absolute: bool
    """Whether `length_s` is a given interval, so that all slots together can be too many or too few."""
    measures: GroupMeasures
    """The results and the last tuple of each group, since long before the view."""

    @property
    def n_slots(self) -> int:
        """How many slots there are."""
        return len(self.slots)

    def of_slot(self, slot: SlotId) -> list[GroupLoad]:
        """The groups of a slot, in the order of the hash space."""
        return [self.groups[group.id] for group in self.directory.of_slot(slot)]

    def suppliers(self, settings: Settings) -> list[SlotLoad]:
        """The slots with more work than they can do, in slot order."""
        return [slot for slot in self.slots if slot.occupancy > settings.supplier_above]

    def consumers(self, settings: Settings) -> list[SlotLoad]:
        """The slots with time to spare, in slot order."""
        return [slot for slot in self.slots if slot.occupancy < settings.consumer_below]

    def with_slot(self) -> View:
        """The view with one more, empty slot."""
        return replace(self, slots=(*self.slots, SlotLoad(SlotId(self.n_slots), 0.0, 0.0, 0.0, 0.0, 0.0, 0)))


def observe(
    reports: Sequence[SlotFigures],
    directory: Directory,
    n_slots: int,
    measures: GroupMeasures,
    clock_s: float,
    settings: Settings,
) -> View:
    """The view of a reorganization epoch's reports."""
    epochs = sorted({report.epoch for report in reports})
    by_slot: dict[SlotId, list[SlotFigures]] = defaultdict(list)
    for report in sorted(reports, key=lambda r: r.epoch):
        by_slot[report.slot].append(report)
    bare = [_bare_load(slot, by_slot[slot], max(len(epochs), 1)) for slot in slot_ids(n_slots)]
    even = even_s(bare)
    length_s = settings.epoch_s if settings.epoch_s is not None else even
    slots = tuple(
        replace(one, occupancy=_mean_occupancy(by_slot[one.slot], length_s, len(epochs), settings)) for one in bare
    )
    groups = _group_loads(slots, by_slot, directory, max(len(epochs), 1))
    last = epochs[-1] if epochs else BEFORE_FIRST
    return View(last, clock_s, directory, slots, groups, length_s, even, settings.epoch_s is not None, measures)


def even_s(slots: Sequence[SlotLoad]) -> float:
    """How long the same work would take if every slot were busy equally long, at its own pace."""
    speeds = [slot.work / slot.demand_s for slot in slots if slot.pace is not None]
    if not speeds:
        return 0.0
    n_unknown = len(slots) - len(speeds)  # slots without work: taken to be as fast as the others on average
    return sum(slot.work for slot in slots) / (sum(speeds) + n_unknown * sum(speeds) / len(speeds))


def occupancy(report: SlotFigures, length_s: float, settings: Settings) -> float:
    """How full the slot's buffer was at the end of the epoch, from 0 to 1."""
    if report.backlog_bytes is not None:
        return min(1.0, report.backlog_bytes / settings.buffer_bytes)
    if length_s <= 0:
        return 0.0
    return min(1.0, max(0.0, report.busy_s - length_s) / (settings.buffer_epochs * length_s))


def _mean_occupancy(reports: Sequence[SlotFigures], length_s: float, n_epochs: int, settings: Settings) -> float:
    return sum(occupancy(report, length_s, settings) for report in reports) / max(n_epochs, 1)


def _bare_load(slot: SlotId, reports: Sequence[SlotFigures], n_epochs: int) -> SlotLoad:
    """A slot's load without its occupancy, which needs the length of the epoch."""
    if not reports:
        return SlotLoad(slot, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    busy = sum(report.busy_s for report in reports) / n_epochs
    rows = sum(report.rows for report in reports) / n_epochs
    matches = sum(report.matches for report in reports) / n_epochs
    last = reports[-1]
    by_stage = [report.work_s for report in reports if report.work_s is not None]
    work_s = sum(by_stage) / n_epochs if len(by_stage) == len(reports) else None
    return SlotLoad(slot, 0.0, busy * _growth(reports), busy, rows, matches, last.bytes, last.executor, work_s)


def _growth(reports: Sequence[SlotFigures]) -> float:
    """Arrived over joined tuples: above 1 when the backlog grew."""
    first, last = reports[0].backlog_rows, reports[-1].backlog_rows
    joined = sum(report.rows for report in reports[1:])
    if first is None or last is None or joined == 0:
        return 1.0
    return max(0.0, (joined + last - first) / joined)


def _group_loads(
    slots: Sequence[SlotLoad], by_slot: Mapping[SlotId, Sequence[SlotFigures]], directory: Directory, n_epochs: int
) -> dict[GroupId, GroupLoad]:
    loads = {group.id: GroupLoad(group.id, group.slot, 0.0, 0.0, 0.0, 0) for group in directory.groups}
    for slot in slots:
        for load in _groups_of(slot, by_slot.get(slot.slot, ()), n_epochs):
            if load.group in loads and loads[load.group].slot == slot.slot:
                loads[load.group] = load
    return loads


def _groups_of(slot: SlotLoad, reports: Sequence[SlotFigures], n_epochs: int) -> list[GroupLoad]:
    parts: dict[GroupId, list[GroupFigures]] = defaultdict(list)
    for report in reports:
        for part in report.groups:
            parts[part.group].append(part)
    busy = {group: sum(p.busy_s for p in some) / n_epochs for group, some in parts.items()}
    works = {group: sum(p.rows + p.matches for p in some) / n_epochs for group, some in parts.items()}
    total = slot.rows + slot.matches
    if sum(busy.values()) <= 0 and total > 0:  # times not told apart: shared out by work
        busy = {group: slot.busy_s * work / total for group, work in works.items()}
    growth = slot.demand_s / slot.busy_s if slot.busy_s > 0 else 1.0
    fit = min(1.0, slot.busy_s / sum(busy.values())) if sum(busy.values()) > 0 else 1.0
    return [
        GroupLoad(
            group,
            slot.slot,
            sum(p.rows for p in some) / n_epochs,
            sum(p.matches for p in some) / n_epochs,
            busy[group] * growth * fit,
            some[-1].stored_bytes,
            some[-1].inactive_bytes,
        )
        for group, some in parts.items()
    ]
