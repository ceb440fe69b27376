"""From slots' reports to the controller's figures and decisions.

The controller decides, `state.acting` carries it out in the manifest that is about to be committed. No state is copied:
the next epoch's slots open the segments of their groups, wherever these were written. D-CAPE's relocation protocol
(5.2) needs no messages here: the epoch boundary is the moment at which inputs are held and in-flight tuples are
drained, and the manifest is the hand-over.

Reports between two reorganizations wait in the manifest's notes, so the decisions are the same whether or not the
driver was restarted, or an epoch replayed, in between. Cost: a few numbers for each slot and epoch, and for each group
once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from braidstream.control.controller import Controller
from braidstream.model.figures import GroupFigures, SlotFigures, folded
from braidstream.model.instructions import Decision
from braidstream.model.numbers import GroupId, SlotId, slot_ids
from braidstream.model.reports import SlotReport
from braidstream.model.values import changed
from braidstream.state.cell_memory import bytes_in_cells
from braidstream.state.generations import account
from braidstream.state.manifest import Manifest
from braidstream.state.notes import KeptFigures

__all__ = ["Reorganizer", "slot_figures"]


@dataclass
class Reorganizer:
    """Collects reports over a reorganization epoch, in the manifest, and has the controller decide at its end."""

    controller: Controller
    seed: int = 0
    clock: Callable[[], float] = time.time
    """Seconds that go on over restarts: the minimal time-span between adaptations is measured with it."""

    @classmethod
    def of(cls, controller: Controller, interval_s: float | None, memory_bytes: int | None = None) -> Reorganizer:
        """For a flow with an epoch every `interval_s` seconds: that is their length unless the settings say another.

        So with the budget of a slot. Groups with inactive generations may be moved here: see `state.generations`.
        """
        settings = replace(controller.settings, move_spilled=True)
        if settings.epoch_s is None and interval_s is not None:
            settings = replace(settings, epoch_s=interval_s)
        if settings.memory_bytes is None and memory_bytes is not None:
            settings = replace(settings, memory_bytes=memory_bytes)
        return cls(replace(controller, settings=settings))

    def advised(self, manifest: Manifest, reports: Sequence[SlotReport]) -> tuple[Manifest, list[Decision]]:
        """The manifest with what the controller remembers, and what it decides if this is a reorganization epoch."""
        collected = folded([*self._waiting(manifest), *slot_figures(manifest, reports)])
        if not self.controller.is_due(manifest.epoch):
            return manifest.with_notes(changed(manifest.notes, reports=KeptFigures(collected))), []
        made, remembered = self.controller.decide(
            collected,
            manifest.directory,
            manifest.n_slots,
            manifest.notes.controller,
            self.clock(),
            self.seed,
            manifest.notes.measures,
        )
        notes = changed(manifest.notes, controller=remembered, reports=KeptFigures())
        return manifest.with_notes(notes), made

    def _waiting(self, manifest: Manifest) -> list[SlotFigures]:
        """The reports of this reorganization epoch so far, unless a restart has changed the slots since."""
        every = self.controller.settings.every
        kept = manifest.notes.reports.figures
        if {report.slot for report in kept} != set(range(manifest.n_slots)):
            return []
        return [report for report in kept if report.epoch // every == manifest.epoch // every]


def slot_figures(manifest: Manifest, reports: Sequence[SlotReport]) -> list[SlotFigures]:
    """What the controller is told: the figures of each slot, the stages of an epoch added up.

    Each stage has groups of its own, so a stage's time is shared out among them.
    """
    rows: dict[GroupId, int] = defaultdict(int)
    matches: dict[GroupId, int] = defaultdict(int)
    busy: dict[SlotId, float] = defaultdict(float)
    of_group: dict[GroupId, float] = defaultdict(float)
    executors: dict[SlotId, str] = {}
    for report in reports:
        busy[report.slot] += report.busy_s
        executors[report.slot] = report.executor
        pace_s = report.busy_s / (report.units or 1)  # no group can give away what its slot does for cells
        for one in report.groups:
            rows[one.group] += one.rows
            matches[one.group] += one.matches
            of_group[one.group] += pace_s * (one.rows + one.matches)
    stored, taken, work_s = account(manifest), bytes_in_cells(manifest), _work_s(reports)
    made = []
    for slot in slot_ids(manifest.n_slots):
        groups = manifest.directory.of_slot(slot)
        entries = tuple(
            GroupFigures(
                g.id,
                rows[g.id],
                matches[g.id],
                stored[g.id].active_rows,
                int(stored[g.id].active_bytes),
                of_group[g.id],
                int(stored[g.id].inactive_bytes),
            )
            for g in groups
        )
        made.append(
            SlotFigures(
                slot,
                manifest.epoch,
                sum(entry.rows for entry in entries),
                sum(entry.matches for entry in entries),
                sum(entry.stored_bytes for entry in entries) + taken.get(slot, 0),
                busy[slot],
                entries,
                executors.get(slot, manifest.executors.get(slot, "")),
                work_s=None if work_s is None else work_s.get(slot, 0.0),
            )
        )
    return made


def _work_s(reports: Sequence[SlotReport]) -> dict[SlotId, float] | None:
    """By slot the seconds that its rows and matches take at the mean pace of their stage; None: there is one stage."""
    if len({report.stage for report in reports}) < 2:
        return None
    busy: dict[int, float] = defaultdict(float)
    work: dict[tuple[SlotId, int], int] = defaultdict(int)
    for report in reports:
        busy[report.stage] += report.busy_s
        work[report.slot, report.stage] += report.units
    totals = {stage: sum(n for (_, at), n in work.items() if at == stage) for stage in busy}
    found: dict[SlotId, float] = defaultdict(float)
    for (slot, stage), units in work.items():
        found[slot] += busy[stage] * units / max(totals[stage], 1)
    return found
