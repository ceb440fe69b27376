"""From slots' reports to the controller's figures and decisions.

The controller decides, `state.acting` carries it out in the manifest that is about to be committed. No state is copied:
the next epoch's slots open the segments of their groups, wherever these were written. D-CAPE's relocation protocol
(5.2) needs no messages here: the epoch boundary is the moment at which inputs are held and in-flight tuples are
drained, and the manifest is the hand-over.

Reports between two reorganizations wait in the manifest's notes, as columns, so the decisions are the same whether or
not the driver was restarted, or an epoch replayed, in between. What groups hold is asked for only when the controller
is. Cost: O(groups) in NumPy, and no object a group in epochs without a decision.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.model.figures import WaitingFigures
from braidstream.model.instructions import Decision
from braidstream.model.numbers import EpochNumber, SlotId, slot_ids
from braidstream.model.packed_numbers import Column
from braidstream.model.reports import SlotReport, brought_by
from braidstream.model.values import changed
from braidstream.state.cell_memory import bytes_in_cells
from braidstream.state.generations import stored_columns
from braidstream.state.manifest import Manifest
from braidstream.state.notes import KeptFigures

__all__ = ["Reorganizer", "epoch_figures"]

_PUSHING = ("spill_share", "idle_after", "push_by")
"""What is pushed, which the flow says and the controller may say otherwise."""


@dataclass
class Reorganizer:
    """Collects reports over a reorganization epoch, in the manifest, and has the controller decide at its end."""

    controller: Controller
    seed: int = 0
    clock: Callable[[], float] = time.time
    """Seconds that go on over restarts: the minimal time-span between adaptations is measured with it."""

    @classmethod
    def of(
        cls,
        controller: Controller,
        interval_s: float | None,
        memory_bytes: int | None = None,
        overflow: Overflow | None = None,
    ) -> Reorganizer:
        """For a flow with an epoch every `interval_s` seconds: that is their length unless the settings say another.

        So with the budget of a slot, and with what is pushed (`overflow`). Groups with inactive generations may be
        moved here: see `state.generations`.
        """
        settings = replace(controller.settings, move_spilled=True)
        if settings.epoch_s is None and interval_s is not None:
            settings = replace(settings, epoch_s=interval_s)
        if settings.memory_bytes is None and memory_bytes is not None:
            settings = replace(settings, memory_bytes=memory_bytes)
        if overflow is not None:
            own = {name: vars(overflow)[name] for name in _PUSHING if vars(settings)[name] is None}
            settings = replace(settings, **own)
        return cls(replace(controller, settings=settings))

    @classmethod
    def within(
        cls, controller: Controller | None, interval_s: float | None, overflow: Overflow, *, is_budgeted: bool
    ) -> Reorganizer | None:
        """The same if there is one, with the budget of slots where one was given or a policy weighs memory."""
        if controller is None:
            return None
        asked = controller.settings
        balances = is_budgeted or asked.disk != "none" or asked.delta is not None  # relocation before spilling
        return cls.of(controller, interval_s, overflow.memory_bytes if balances else None, overflow)

    def advised(self, manifest: Manifest, reports: Sequence[SlotReport]) -> tuple[Manifest, list[Decision]]:
        """The manifest with what the controller remembers, and what it decides if this is a reorganization epoch."""
        collected = self._waiting(manifest).plus(epoch_figures(manifest, reports))
        if not self.controller.is_due(manifest.epoch):
            return manifest.with_notes(changed(manifest.notes, reports=KeptFigures.of(collected))), []
        made, remembered = self.controller.decide(
            collected.columns(stored_columns(manifest), bytes_in_cells(manifest), _executors(manifest, reports)),
            manifest.directory,
            manifest.n_slots,
            manifest.notes.controller,
            self.clock(),
            self.seed,
            manifest.notes.measures,
        )
        notes = changed(manifest.notes, controller=remembered, reports=KeptFigures())
        return manifest.with_notes(notes), made

    def _waiting(self, manifest: Manifest) -> WaitingFigures:
        """The figures of this reorganization epoch so far, unless a restart has changed the slots since."""
        every = self.controller.settings.every
        kept = manifest.notes.reports.waiting
        if kept.n_slots != manifest.n_slots:
            return WaitingFigures()
        return kept.since(EpochNumber(manifest.epoch // every * every))


def epoch_figures(manifest: Manifest, reports: Sequence[SlotReport]) -> WaitingFigures:
    """What an epoch's reports say of slots and groups, the stages added up.

    Each stage has groups of its own, so a stage's time is shared out among them.
    """
    known, brought = manifest.directory.columns(), brought_by(reports)
    order, ids = known.sorted_ids
    at, is_known = known.found(brought.groups)
    at = at[is_known]
    # No group can give away what its slot does for cells.
    paces = np.array([report.busy_s / (report.units or 1) for report in reports])
    spent = np.repeat(paces, [len(report.groups) for report in reports]) * (brought.rows + brought.matches)
    rows, matches, busy_s = (_summed(at, one[is_known], len(known)) for one in (brought.rows, brought.matches, spent))
    n_slots, work_s = manifest.n_slots, _work_s(reports)
    slots = np.array([report.slot for report in reports], dtype=np.int64)
    works = [np.nan if work_s is None else work_s.get(slot, 0.0) for slot in slot_ids(n_slots)]
    return WaitingFigures(
        (manifest.epoch,),
        n_slots,
        Column.of(_summed(known.slots, rows, n_slots)),
        Column.of(_summed(known.slots, matches, n_slots)),
        Column.of(_summed(slots, np.array([report.busy_s for report in reports]), n_slots)),
        Column.of(np.array(works, dtype=np.float64)),
        *(Column.of(one) for one in (ids, *(one[order] for one in (known.slots, rows, matches, busy_s)))),
    )


def _summed(places: npt.NDArray[np.integer], numbers: npt.NDArray[np.number], n: int) -> npt.NDArray[np.number]:
    """The sum of the numbers at each place below `n`, added one after the other."""
    sums, fits = np.zeros(n, dtype=numbers.dtype), places < n
    np.add.at(sums, places[fits], numbers[fits])
    return sums


def _executors(manifest: Manifest, reports: Sequence[SlotReport]) -> list[str]:
    """Where each slot ran."""
    known = {**manifest.executors, **{report.slot: report.executor for report in reports}}
    return [known.get(slot, "") for slot in slot_ids(manifest.n_slots)]


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
