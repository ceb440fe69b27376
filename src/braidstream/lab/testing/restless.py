"""A policy that never rests: random legal instructions at every reorganization, whatever the load.

    Controller(Settings(every=1), policies=(Restless(),))

What a controller changes must never change a result. A flow under this one is moved, split, merged, grown and shrunk
between any two epochs; its output is compared with the oracle's.

`RestlessSpiller` is the same for memory: it pushes and cleans up groups at random, whatever they hold.

Invariant: every instruction is legal after those before it, so the controller takes them all. Cost: O(groups).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.epoch.spiller import Spiller
from braidstream.model.directory import Directory
from braidstream.model.instructions import (
    AddSlot,
    CleanUp,
    Decision,
    Instruction,
    Merge,
    Move,
    RemoveSlot,
    Spill,
    Split,
)
from braidstream.model.numbers import GroupId, SlotId
from braidstream.state import generations
from braidstream.state.acting import intent, pinned_groups, settled
from braidstream.state.manifest import Manifest

__all__ = ["Restless", "RestlessSpiller"]


@dataclass(frozen=True)
class Restless:
    """Asks for up to `n_changes` changes each time; the number of slots stays at or below `max_slots`."""

    seed: int = 0
    n_changes: int = 4
    max_slots: int = 7
    max_depth: int = 12

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        """One suggestion with all changes of this time."""
        del memory, rng
        own = np.random.default_rng([self.seed, view.epoch])
        directory, n_slots, asked = view.directory, view.n_slots, list[Instruction]()
        for _ in range(int(own.integers(1, self.n_changes + 1))):
            more, directory, n_slots = self._change(directory, n_slots, own)
            asked += more
        return [Suggestion("restless", "load", tuple(asked), {"asked": float(len(asked))}, "it never rests")]

    def _change(
        self, directory: Directory, n_slots: int, rng: np.random.Generator
    ) -> tuple[list[Instruction], Directory, int]:
        """One change; where that kind is not legal now, a move."""
        group = directory.groups[int(rng.integers(len(directory.groups)))]
        slot, kind = SlotId(int(rng.integers(n_slots))), int(rng.integers(5))
        if kind == 0 and group.depth < self.max_depth:
            return [Split(group.id, slot)], directory.split(group.id, slot), n_slots
        if kind == 1 and directory.buddy(group.id) is not None:
            return [Merge(group.id)], directory.merge(group.id), n_slots
        if kind == 2 and n_slots < self.max_slots:
            return [AddSlot()], directory, n_slots + 1
        if kind == 3 and n_slots > 1:
            return _emptied(directory, SlotId(n_slots - 1), rng)
        return [Move(group.id, slot)], directory.move(group.id, slot), n_slots


def _emptied(directory: Directory, last: SlotId, rng: np.random.Generator) -> tuple[list[Instruction], Directory, int]:
    """Everything moved away from the last slot, and the slot removed."""
    asked: list[Instruction] = []
    for group in directory.of_slot(last):
        target = SlotId(int(rng.integers(last)))
        asked.append(Move(group.id, target))
        directory = directory.move(group.id, target)
    return [*asked, RemoveSlot(last)], directory, last


@dataclass(frozen=True)
class RestlessSpiller(Spiller):
    """Pushes and cleans up random groups after every epoch."""

    seed: int = 0

    def is_at_ease(self, manifest: Manifest) -> bool:
        """Never."""
        del manifest
        return False

    def pushes(self, manifest: Manifest, before: Directory) -> list[Decision]:
        """Some groups are pushed now."""
        del before
        rng, pinned = np.random.default_rng([self.seed, manifest.epoch]), pinned_groups(manifest)
        drawn = [group.id for group in manifest.directory.groups if rng.random() < 0.4]
        spills = tuple(Spill(group) for group in drawn if group not in pinned)
        return [Decision(manifest.epoch, "restless", {}, spills)] if spills else []

    def clean_ups(self, manifest: Manifest, pushed: Collection[GroupId], spare_s: float) -> list[Decision]:
        """Some groups are cleaned up in the next epoch, pushed just now or not, some only in part."""
        del pushed, spare_s
        rng = np.random.default_rng([self.seed, manifest.epoch, 2])
        asked = [CleanUp(group.id) for group in generations.held_groups(manifest) if rng.random() < 0.4]
        whole = {clean_up.group for clean_up in asked}
        for group, own in generations.account(manifest).items():
            numbers = tuple(number for number in sorted(own.sizes) if rng.random() < 0.6)
            if len(numbers) > 1 and group not in whole:
                asked.append(CleanUp(group, numbers))
        return [Decision(manifest.epoch, "restless", {}, tuple(asked))] if asked else []

    def cleaned(
        self, manifest: Manifest, groups: Sequence[GroupId], some: Mapping[GroupId, Collection[int]]
    ) -> Manifest:
        """Some groups are active again, the others stay one inactive generation, or have fewer."""
        manifest = generations.joined(manifest, some)
        rng = np.random.default_rng([self.seed, manifest.epoch, 1])
        drawn, pinned = [group for group in groups if rng.random() < 0.5], pinned_groups(manifest)
        inactive = [group for group in drawn if group not in pinned]
        return intent(settled(manifest, groups, inactive, self.stores, self.closed), (), 0)
