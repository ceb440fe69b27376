"""From slots' reports to the controller, and from its decisions to the next manifest.

The controller decides, this acts: a Move, Split, Merge, AddSlot or RemoveSlot is a change of the directory in the
manifest that is about to be committed; a Spill is left to `spark.spilling`, which acts on it. No state is copied: the
next epoch's slots open the segments of their groups, wherever these were written. D-CAPE's relocation protocol (5.2)
needs no messages here: the epoch boundary is the moment at which inputs are held and in-flight tuples are drained, and
the manifest is the hand-over.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from braidstream.control.controller import Controller
from braidstream.control.instructions import Decision, Instruction, Spill, apply
from braidstream.control.reports import GroupReport, SlotReport
from braidstream.state.generations import account
from braidstream.state.manifest import Manifest

__all__ = ["Reorganizer", "slot_reports"]

_MEMORY = "controller"
_log = logging.getLogger("braidstream.controller")


@dataclass
class Reorganizer:
    """Collects reports over a reorganization epoch and has the controller decide at its end."""

    controller: Controller
    seed: int = 0
    clock: Callable[[], float] = time.time
    """Seconds that go on over restarts: the minimal time-span between adaptations is measured with it."""
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=500))
    spills: list[int] = field(default_factory=list)
    """The groups that the last decision asks to push."""
    _reports: list[SlotReport] = field(default_factory=list)

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

    def reorganized(self, manifest: Manifest, reports: Sequence[Mapping[str, Any]]) -> Manifest:
        """The manifest to commit: as it is, or changed by what the controller decides."""
        self._reports += slot_reports(manifest, reports)
        self.spills = []
        if not self.controller.is_due(manifest.epoch):
            return manifest
        made, remembered = self.controller.decide(
            self._reports,
            manifest.directory,
            manifest.n_slots,
            manifest.memory.get(_MEMORY, {}),
            self.clock(),
            self.seed,
        )
        self._reports = []
        self.decisions.extend(made)
        for decision in made:
            _log.info("%s", decision.explain())
        decided = replace(manifest, memory={**manifest.memory, _MEMORY: remembered})
        instructions = [one for decision in made for one in decision.instructions]
        self.spills = [one.group for one in instructions if isinstance(one, Spill)]
        return _applied(decided, instructions)


def _applied(manifest: Manifest, instructions: Sequence[Instruction]) -> Manifest:
    if not instructions:
        return manifest
    directory, n_slots = apply(manifest.directory, manifest.n_slots, instructions)
    executors = {slot: where for slot, where in manifest.executors.items() if slot < n_slots}
    return replace(manifest.fitted(directory), n_slots=n_slots, executors=executors)


def slot_reports(manifest: Manifest, reports: Sequence[Mapping[str, Any]]) -> list[SlotReport]:
    """What the controller is told: one report a slot, the stages of an epoch added up."""
    rows: dict[int, int] = defaultdict(int)
    matches: dict[int, int] = defaultdict(int)
    busy: dict[int, float] = defaultdict(float)
    executors: dict[int, str] = {}
    for report in reports:
        busy[report["slot"]] += report["busy_s"]
        executors[report["slot"]] = report["executor"]
        for group, arrived, matched in report["groups"]:
            rows[group] += arrived
            matches[group] += matched
    stored = account(manifest)
    made = []
    for slot in range(manifest.n_slots):
        groups = manifest.directory.of_slot(slot)
        work = {g.id: rows[g.id] + matches[g.id] for g in groups}
        total = sum(work.values()) or 1
        entries = tuple(
            GroupReport(
                g.id,
                rows[g.id],
                matches[g.id],
                stored[g.id].active_rows,
                int(stored[g.id].active_bytes),
                busy[slot] * work[g.id] / total,
                int(stored[g.id].inactive_bytes),
            )
            for g in groups
        )
        made.append(
            SlotReport(
                slot,
                manifest.epoch,
                sum(entry.rows for entry in entries),
                sum(entry.matches for entry in entries),
                sum(entry.stored_bytes for entry in entries),
                busy[slot],
                entries,
                executors.get(slot, manifest.executors.get(slot, "")),
            )
        )
    return made
