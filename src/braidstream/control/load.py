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

*Noise* is what of a slot's demand may be chance: its standard error over the epochs of the view, times `certainty`.
Chance is measured by how much slots' shares of an epoch differ from epoch to epoch, the slot's own or that of all slots
together, whichever is more; an epoch that is larger than others is not chance. Policies act only beyond it, so a load
that stays the same on average moves nothing.

Invariant: the groups' demands of a slot add up to at most the slot's; every group of the directory and every slot below
n_slots is in the view, with zeros where nothing was reported. Cost: O(reports) in NumPy, independent of the number of
tuples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.control.group_loads import GroupLoad, GroupLoads
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import FigureColumns, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.numbers import BEFORE_FIRST, EpochNumber, GroupId, SlotId, slot_ids

__all__ = ["GroupLoad", "SlotLoad", "View", "even_s", "observe", "occupancy"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


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
    noise_s: float = 0.0
    """How much of the demand may be chance."""

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
        return self.loads.of_slot(slot)

    @cached_property
    def loads(self) -> GroupLoads:
        """The loads of all groups, as arrays in the order of the directory."""
        return GroupLoads.of(self.groups, self.directory)

    @cached_property
    def whole_bytes(self) -> npt.NDArray[np.int64]:
        """What each slot has in memory and on disk."""
        return self.loads.by_slot(self.loads.stored_bytes + self.loads.inactive_bytes, self.n_slots)

    def suppliers(self, settings: Settings) -> list[SlotLoad]:
        """The slots that surely have more work than they can do, and enough for it to matter, in slot order."""
        busy = [slot for slot in self.slots if slot.occupancy > settings.supplier_above]
        return [slot for slot in busy if slot.demand_s >= settings.least_s and self._is_sure(slot)]

    def _is_sure(self, slot: SlotLoad) -> bool:
        """Whether it is no chance that the slot has so much to do."""
        return not slot.noise_s or slot.demand_s - slot.noise_s > min(self.even_s, self.length_s)

    def consumers(self, settings: Settings) -> list[SlotLoad]:
        """The slots with time to spare, in slot order."""
        return [slot for slot in self.slots if slot.occupancy < settings.consumer_below]

    def with_slot(self) -> View:
        """The view with one more, empty slot."""
        return replace(self, slots=(*self.slots, SlotLoad(SlotId(self.n_slots), 0.0, 0.0, 0.0, 0.0, 0.0, 0)))


def observe(
    reports: Sequence[SlotFigures] | FigureColumns,
    directory: Directory,
    n_slots: int,
    measures: GroupMeasures,
    clock_s: float,
    settings: Settings,
) -> View:
    """The view of a reorganization epoch's reports."""
    columns = reports if isinstance(reports, FigureColumns) else FigureColumns.of(reports)
    epochs = np.unique(columns.epochs)
    n_epochs = max(len(epochs), 1)
    bare = _bare_loads(columns, n_slots, n_epochs)
    even = even_s(bare)
    length_s = settings.epoch_s if settings.epoch_s is not None else even
    full = _summed(columns.slots, _occupancies(columns, length_s, settings), n_slots) / n_epochs
    shares = (full.tolist(), (settings.certainty * _errors(columns, n_slots)).tolist())
    slots = tuple(
        replace(one, occupancy=share, noise_s=error * one.demand_s)
        for one, share, error in zip(bare, *shares, strict=True)
    )
    groups = _group_loads(slots, columns, directory, n_epochs)
    last = EpochNumber(int(epochs[-1])) if len(epochs) else BEFORE_FIRST
    return View(last, clock_s, directory, slots, groups, length_s, even, settings.epoch_s is not None, measures)


def _errors(columns: FigureColumns, n_slots: int) -> F64:
    """The standard error of each slot's busy time, as a share of it; 0 where one epoch is all there is."""
    epochs, at = np.unique(columns.epochs, return_inverse=True)
    if len(epochs) < 2:
        return np.zeros(n_slots)
    busy = np.zeros((len(epochs), n_slots))
    known = columns.slots < n_slots
    np.add.at(busy, (at[known], columns.slots[known]), columns.busy_s[known])
    means = busy.mean(axis=1, keepdims=True)
    shares = (busy / np.where(means > 0, means, 1.0))[means[:, 0] > 0]
    if len(shares) < 2:
        return np.zeros(n_slots)
    middle = shares.mean(axis=0)
    variation = shares.std(axis=0, ddof=1) / np.where(middle > 0, middle, 1.0)
    worked = variation[middle > 0]
    errors: F64 = np.maximum(variation, np.sqrt(np.mean(worked**2))) / np.sqrt(len(shares))
    return errors


def even_s(slots: Sequence[SlotLoad]) -> float:
    """How long the same work would take if every slot were busy equally long, at its own pace."""
    speeds = [slot.work / slot.demand_s for slot in slots if slot.pace is not None]
    if not speeds:
        return 0.0
    n_unknown = len(slots) - len(speeds)  # slots without work: taken to be as fast as the others on average
    return sum(slot.work for slot in slots) / (sum(speeds) + n_unknown * sum(speeds) / len(speeds))


def occupancy(report: SlotFigures, length_s: float, settings: Settings) -> float:
    """How full the slot's buffer was at the end of the epoch, from 0 to 1."""
    return float(_occupancies(FigureColumns.of([report]), length_s, settings)[0])


def _occupancies(columns: FigureColumns, length_s: float, settings: Settings) -> F64:
    buffered = np.minimum(1.0, columns.backlog_bytes / settings.buffer_bytes)
    if length_s <= 0:
        late = np.zeros(len(buffered))
    else:
        late = np.minimum(1.0, np.maximum(0.0, columns.busy_s - length_s) / (settings.buffer_epochs * length_s))
    return np.where(np.isnan(columns.backlog_bytes), late, buffered)


def _bare_loads(columns: FigureColumns, n_slots: int, n_epochs: int) -> list[SlotLoad]:
    """The slots' loads without their occupancy, which needs the length of the epoch."""
    busy = _summed(columns.slots, columns.busy_s, n_slots) / n_epochs
    rows = _summed(columns.slots, columns.rows, n_slots) / n_epochs
    matches = _summed(columns.slots, columns.matches, n_slots) / n_epochs
    work = _summed(columns.slots, columns.work_s, n_slots) / n_epochs  # not a number where it is not known
    last = dict(zip(columns.slots.tolist(), range(len(columns.slots)), strict=True))
    growth = _growths(columns)
    found = [SlotLoad(slot, 0.0, 0.0, 0.0, 0.0, 0.0, 0) for slot in slot_ids(n_slots)]
    for slot in (slot for slot in slot_ids(n_slots) if slot in last):
        work_s, demand_s = float(work[slot]), float(busy[slot]) * growth.get(slot, 1.0)
        found[slot] = SlotLoad(
            slot,
            0.0,
            demand_s,
            float(busy[slot]),
            float(rows[slot]),
            float(matches[slot]),
            int(columns.bytes[last[slot]]),
            columns.executors[last[slot]],
            None if isnan(work_s) else work_s,
        )
    return found


def _growths(columns: FigureColumns) -> dict[int, float]:
    """By slot with a backlog, arrived over joined tuples: above 1 when the backlog grew."""
    backlogs: dict[int, list[tuple[float, int]]] = {}
    if np.isnan(columns.backlog_rows).all():
        return {}
    for slot, backlog, rows in zip(
        columns.slots.tolist(), columns.backlog_rows.tolist(), columns.rows.tolist(), strict=True
    ):
        backlogs.setdefault(slot, []).append((backlog, rows))
    found = {}
    for slot, own in backlogs.items():
        joined, grown = sum(rows for _, rows in own[1:]), own[-1][0] - own[0][0]
        found[slot] = 1.0 if joined == 0 or np.isnan(grown) else max(0.0, (joined + grown) / joined)
    return found


def _group_loads(slots: Sequence[SlotLoad], columns: FigureColumns, directory: Directory, n_epochs: int) -> GroupLoads:
    """Of each group what its slot says of it; what other slots say of it counts only for what these had to do."""
    said = _Said.of(columns, len(slots))
    rows, matches = (said.summed(one) / n_epochs for one in (columns.group_rows, columns.group_matches))
    demand = _demands(slots, said, said.summed(columns.group_busy_s) / n_epochs, rows + matches)
    known = directory.columns()
    places, is_known = known.found(said.groups)
    own = is_known.nonzero()[0]
    own = own[known.slots[places[own]] == said.slots[own]]
    reals, wholes = np.zeros((3, len(known))), np.zeros((2, len(known)), dtype=np.int64)
    reals[:, places[own]] = rows[own], matches[own], demand[own]
    wholes[:, places[own]] = columns.stored_bytes[said.last[own]], columns.inactive_bytes[said.last[own]]
    return GroupLoads(directory, *reals, *wholes)


@dataclass(frozen=True, eq=False)
class _Said:
    """What slots say of groups, each pair of them once, in the order in which they are first named."""

    slots: I64
    groups: I64
    entries: I64
    """Which entries of the columns are about a slot that is there."""
    pairs: I64
    """For each entry which pair it is about."""
    last: I64
    """The last entry of each pair."""

    @classmethod
    def of(cls, columns: FigureColumns, n_slots: int) -> _Said:
        entries = np.flatnonzero(columns.group_slots < n_slots)
        slots, (ids, groups) = columns.group_slots[entries], np.unique(columns.groups[entries], return_inverse=True)
        _, first, pairs = np.unique(slots * len(ids) + groups, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        pairs, first = rank[pairs], first[order]
        last = np.empty(len(order), dtype=np.int64)
        last[pairs] = entries  # the last one stays
        return cls(slots[first], ids[groups[first]], entries, pairs, last)

    def summed(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sum of a figure for each pair."""
        return _summed(self.pairs, numbers[self.entries], len(self.slots))


def _demands(slots: Sequence[SlotLoad], said: _Said, busy: F64, works: F64) -> F64:
    """The seconds of work that arrive at each group: its time, as far as that was told apart, else by its work."""
    slot_busy = np.array([slot.busy_s for slot in slots])
    totals = np.array([slot.rows + slot.matches for slot in slots])
    growth = np.array([slot.demand_s / slot.busy_s if slot.busy_s > 0 else 1.0 for slot in slots])
    untold = (_summed(said.slots, busy, len(slots)) <= 0) & (totals > 0)
    by_work = slot_busy[said.slots] * works / np.where(totals > 0, totals, 1.0)[said.slots]
    busy = np.where(untold[said.slots], by_work, busy)
    sums = _summed(said.slots, busy, len(slots))
    fit = np.minimum(1.0, np.where(sums > 0, slot_busy / np.where(sums > 0, sums, 1.0), 1.0))
    demands: F64 = busy * growth[said.slots] * fit[said.slots]
    return demands


def _summed(places: I64, numbers: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """The sum of the numbers at each place below `n`, added one after the other."""
    sums = np.zeros(n, dtype=numbers.dtype)
    fits = places < n
    np.add.at(sums, places[fits], numbers[fits])
    return sums
