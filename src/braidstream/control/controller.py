"""The controller: reports of a reorganization epoch in, decisions out.

It reads the load, asks each policy in turn, and decides: a suggestion is refused while the minimal time-span since the
last adaptation has not passed (pushes to disk do not wait: the memory is needed now), while another kind of adaptation
was chosen in this epoch (D-CAPE 6: one at a time), when it touches a slot that an accepted one touches, or when it is
not legal. Refusals are decisions too, without instructions.

Everything is an argument: the same reports, directory, memory, measures, clock and seed give the same decisions, so an
epoch that Spark replays is decided the same way. Memory and measures belong into the manifest.

Cost: O(reports + groups log groups) once every `every` epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from braidstream.control.load import View, observe
from braidstream.control.policies import Policy, Suggestion
from braidstream.control.policies.declustering import Declustering, arriving_work, wish
from braidstream.control.policies.disk import memory_policies
from braidstream.control.policies.handing_over import Partners
from braidstream.control.policies.merging import Merging
from braidstream.control.policies.splitting import Splitting
from braidstream.control.policies.suppliers import Suppliers
from braidstream.control.policies.theta import Tuning
from braidstream.control.remembered import Memory, after, remember
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import FigureColumns, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import (
    AddSlot,
    Decision,
    Draft,
    IllegalInstruction,
    Instruction,
    Move,
    Split,
    slots_touched,
)
from braidstream.model.numbers import EpochNumber, SlotId
from braidstream.model.values import changed

__all__ = ["Controller", "default_policies"]


def default_policies(settings: Settings) -> tuple[Policy, ...]:
    """The policies that the settings switch on, in the order in which they are asked."""
    chosen: list[Policy] = [Declustering(settings)] if settings.declustering else []
    chosen.append(Suppliers(settings))
    if settings.splitting and settings.theta is None:
        chosen.append(Splitting(settings))
    if settings.delta is not None:
        chosen.append(Partners(settings))
    if settings.memory_bytes is not None:
        chosen.extend(memory_policies(settings))
    if settings.splitting and settings.delta is None:
        chosen.append(Merging(settings) if settings.theta is None else Tuning(settings))
    return tuple(chosen)


_NOTHING_MEASURED = GroupMeasures()


@dataclass(frozen=True)
class Controller:
    """Decides by its settings and policies. It keeps nothing: its memory goes in and comes out."""

    settings: Settings = field(default_factory=Settings)
    policies: tuple[Policy, ...] | None = None

    def is_due(self, epoch: EpochNumber) -> bool:
        """Whether `epoch` (from 0) ends a reorganization epoch."""
        return (epoch + 1) % self.settings.every == 0

    def decide(
        self,
        reports: Sequence[SlotFigures] | FigureColumns,
        directory: Directory,
        n_slots: int,
        memory: Memory | Mapping[str, object],
        clock_s: float,
        seed: int = 0,
        measures: GroupMeasures = _NOTHING_MEASURED,
    ) -> tuple[list[Decision], Memory]:
        """The decisions of a reorganization epoch, and the memory for the next.

        The measures are those of all epochs so far, these reports included. A memory may also be what 0.1.0 kept.
        """
        memory = memory if isinstance(memory, Memory) else msgspec.convert(memory, Memory, strict=False)
        view = observe(reports, directory, n_slots, measures, clock_s, self.settings)
        known = remember(memory, view)
        known = changed(known, wish=wish(view, known, self.settings))
        if view.epoch < 0:
            return [], known
        session = _Session(self.settings, view, known)
        rng = np.random.default_rng([seed, view.epoch])
        for policy in self.policies if self.policies is not None else default_policies(self.settings):
            for suggestion in policy.suggest(session.view, known, rng):
                session.consider(suggestion)
        return session.decisions, session.memory()


class _Session:
    """One reorganization epoch: what was accepted so far."""

    def __init__(self, settings: Settings, view: View, memory: Memory) -> None:
        self.settings, self.view, self.known = settings, view, memory
        self.decisions: list[Decision] = []
        self.accepted: list[Instruction] = []
        self.kinds: set[str] = set()
        self.touched: set[SlotId] = set()
        self.draft = Draft(view.directory, view.n_slots)

    def consider(self, suggestion: Suggestion) -> None:
        """Accept or refuse one suggestion."""
        slots = slots_touched(self.view.directory, suggestion.instructions)
        refusal = self._refusal(suggestion, slots)
        instructions = () if refusal else suggestion.instructions
        self.decisions.append(
            Decision(self.view.epoch, suggestion.rule, suggestion.figures, instructions, suggestion.reason, refusal)
        )
        if not refusal:
            self._accept(suggestion, slots)

    def memory(self) -> Memory:
        """The memory after the accepted instructions."""
        if not self.accepted:
            return self.known
        known = after(self.known, self.view, self.accepted)
        if self.kinds & {"grow", "shrink"}:
            known = changed(known, wish=(0, 0))
        if "grow" in self.kinds:
            known = changed(known, too_few={**known.too_few, self.draft.n_slots - 1: arriving_work(self.view)})
        if "load" in self.kinds:
            known = changed(known, yielded={**known.yielded, **self._yielding()})
        return known

    def _accept(self, suggestion: Suggestion, slots: frozenset[SlotId]) -> None:
        self.accepted.extend(suggestion.instructions)
        self.kinds.add(suggestion.kind)
        self.touched |= slots
        if AddSlot() in suggestion.instructions:
            self.view = self.view.with_slot()  # empty, so a consumer for this epoch's suppliers already

    def _refusal(self, suggestion: Suggestion, slots: frozenset[SlotId]) -> str:
        last_s = float("-inf") if self.known.last_s is None else self.known.last_s
        since_s = self.view.clock_s - last_s
        if since_s < self.settings.min_span_s and suggestion.kind != "spill":
            return f"{since_s:.3g} s since the last adaptation, less than {self.settings.min_span_s:.3g} s"
        others = self.kinds - {suggestion.kind, "grow"}
        if others:
            return f"one adaptation at a time, and this epoch's is for {', '.join(sorted(others))}"
        if not self.touched.isdisjoint(slots):
            return "it touches a slot that this epoch changes already"
        return self._illegality(suggestion)

    def _illegality(self, suggestion: Suggestion) -> str:
        """Why it is not legal; if it is, it is part of the draft from now on."""
        try:
            self.draft.take(suggestion.instructions)
        except IllegalInstruction as wrong:
            return wrong.wrong
        return ""

    def _yielding(self) -> dict[SlotId, float]:
        """The slots that yield load now, with their pace: memory balance leaves them alone until they are faster."""
        groups = [one.group for one in self.accepted if isinstance(one, (Move, Split))]
        known = [self.view.groups[group] for group in groups if group in self.view.groups]  # not halves split off now
        slots = [self.view.slots[load.slot] for load in known]
        return {slot.slot: slot.pace for slot in slots if slot.pace is not None}
