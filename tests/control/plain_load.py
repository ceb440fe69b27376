"""The load of a cluster, read report by report and group by group: slow, and what `control.load.observe` must give."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from braidstream.control.group_loads import GroupLoad
from braidstream.control.load import SlotLoad, View, even_s
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.numbers import BEFORE_FIRST, GroupId, SlotId, slot_ids


def plainly_observed(
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
        replace(
            one,
            occupancy=_mean_occupancy(by_slot[one.slot], length_s, len(epochs), settings),
            noise_s=settings.certainty * one.demand_s * error,
        )
        for one, error in zip(bare, _errors(by_slot, epochs, n_slots), strict=True)
    )
    groups = _group_loads(slots, by_slot, directory, max(len(epochs), 1))
    last = epochs[-1] if epochs else BEFORE_FIRST
    return View(last, clock_s, directory, slots, groups, length_s, even, settings.epoch_s is not None, measures)


def _errors(by_slot: Mapping[SlotId, Sequence[SlotFigures]], epochs: Sequence[int], n_slots: int) -> list[float]:
    """Of each slot the standard error of its share of the epochs' time, relative to the share."""
    shares: dict[int, list[float]] = {slot: [] for slot in range(n_slots)}
    for epoch in epochs:
        busy = [sum(r.busy_s for r in by_slot[slot] if r.epoch == epoch) for slot in slot_ids(n_slots)]
        if (mean := sum(busy) / max(n_slots, 1)) > 0:
            for slot, seconds in enumerate(busy):
                shares[slot].append(seconds / mean)
    n = len(shares[0]) if n_slots else 0
    if n < 2:
        return [0.0] * n_slots
    variations = [stdev(own) / (fmean(own) or 1.0) for own in shares.values()]
    worked = [v for v, own in zip(variations, shares.values(), strict=True) if fmean(own) > 0]
    common = math.sqrt(fmean(v * v for v in worked))
    return [max(own, common) / math.sqrt(n) for own in variations]


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
