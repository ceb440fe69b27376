"""The one decider: after every epoch it asks the controller, the grids and the budget, and has decisions carried out.

They are asked one after the other, each about the manifest that the decisions before have left: relocation comes before
pushes (D-CAPE 6), and what is cleaned up depends on what was pushed. Each gives decisions (`model.instructions`), with
figures and a reason; `state.acting` carries the instructions out. What is refused is a decision too, without
instructions, and all of them are shown by `handle.decisions`.

Invariant: everything that changes layout, grids, generations or the filter of dead rows passes here or through the
steps of `epoch.owed`; the same manifest and reports give the same decisions. Cost: O(groups + parts) an epoch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from braidstream.epoch.reorganizer import Reorganizer
from braidstream.epoch.spiller import Spiller
from braidstream.model.directory import Directory
from braidstream.model.instructions import Decision, Instruction, Spill
from braidstream.model.reports import Report, SlotReport, brought_by, slot_reports
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.state.acting import act, intent
from braidstream.state.manifest import Manifest

__all__ = ["Decider", "Regridder"]

_log = logging.getLogger("braidstream.controller")


class Regridder(Protocol):
    """Gives heavy keys their grids."""

    def advised(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]
    ) -> tuple[Manifest, list[Decision]]:
        """The manifest with what is known of frequent keys, and changes of grids."""
        ...


@dataclass(frozen=True)
class Decider:
    """Whom to ask; None is not asked."""

    reorganizer: Reorganizer | None = None
    """Where groups are, and how many slots there are."""
    regridder: Regridder | None = None
    """Which keys have grids."""
    spiller: Spiller | None = None
    """What is done with state beyond the budget."""
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=500))
    """What was decided recently, the newest last."""

    @property
    def stores(self) -> frozenset[str]:
        """The stores whose rows may be pushed or shed."""
        return frozenset() if self.spiller is None else self.spiller.stores

    def decide(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[Report], spare_s: float
    ) -> Manifest:
        """The manifest to commit after the reports of its epoch."""
        before, joined = manifest.directory, slot_reports(reports)
        manifest = self._measured(manifest, joined)
        if self.spiller is not None:
            manifest = self.spiller.remembered(manifest, reports)
        asked: list[Instruction] = []
        if self.reorganizer is not None:
            manifest, made = self.reorganizer.advised(manifest, joined)
            manifest, asked = self._done(manifest, [self._permitted(manifest, one) for one in made])
        if self.regridder is not None:
            manifest, made = self.regridder.advised(manifest, stores, joined)
            manifest, _ = self._done(manifest, made)
        if self.spiller is not None:
            manifest = self._within_budget(self.spiller, manifest, before, asked, spare_s)
        return manifest

    def _measured(self, manifest: Manifest, reports: Sequence[SlotReport]) -> Manifest:
        """The manifest with what the epoch brought to each group, where somebody chooses groups by it."""
        if self.reorganizer is None and self.spiller is None:
            return manifest
        measures = manifest.notes.measures.counted(brought_by(reports), manifest.directory, manifest.epoch)
        return manifest.with_notes(changed(manifest.notes, measures=measures))

    def _within_budget(
        self, spiller: Spiller, manifest: Manifest, before: Directory, asked: Sequence[Instruction], spare_s: float
    ) -> Manifest:
        manifest = intent(manifest, (), 0)
        if not spiller.is_at_ease(manifest):
            manifest, pushes = self._done(manifest, spiller.pushes(manifest, before))
            pushed = [one.group for one in (*asked, *pushes) if isinstance(one, Spill)]
            manifest, _ = self._done(manifest, spiller.clean_ups(manifest, pushed, spare_s))
        sheds = spiller.sheds(manifest)
        manifest, _ = self._done(manifest, sheds)
        return spiller.accounted(manifest, sheds)

    def _permitted(self, manifest: Manifest, decision: Decision) -> Decision:
        """A decision of the controller without pushes that are not possible."""
        spills = [one for one in decision.instructions if isinstance(one, Spill)]
        if not spills:
            return decision
        allowed = frozenset() if self.spiller is None else self.spiller.may_push(manifest)
        left = tuple(one for one in decision.instructions if not isinstance(one, Spill) or one.group in allowed)
        return replace(decision, instructions=left, refusal="" if left else "these groups may not be pushed")

    def _done(self, manifest: Manifest, made: Sequence[Decision]) -> tuple[Manifest, list[Instruction]]:
        """The manifest after decisions, which are noted, and their instructions."""
        for decision in made:
            self.decisions.append(decision.without_filters())
            _log.info("%s", decision.explain(), extra={"epoch": decision.epoch})
        instructions = [one for decision in made for one in decision.instructions]
        closed = {} if self.spiller is None else self.spiller.closed
        return act(manifest, instructions, self.stores, closed), instructions
