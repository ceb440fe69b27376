"""From manifests to the figures by which state is pushed and cleaned up, and from the choice to the next manifest.

The choice is `control.overflow`'s; this counts and acts. A push is a change of numbers in the manifest that is about to
be committed. A clean-up is written into it as an intent, and carried out in the next epoch (or, at the end of a finite
flow, in a step of its own under the same epoch): so what an epoch puts out is decided before it begins, and a replay
puts out the same, however much time there seems to be to spare then.

Which state may be pushed: the inputs of joins whose results go to a sink. An intermediate result that came late could
not be joined on any more, and aggregates are of the window as it is; so what such joins read stays active, and with it
what shares a join with that (`spillable`). A group in which a key has a grid, or live rows in cells, stays active too
(`pinned_groups`): cells see rows that were stored before the key turned heavy, and know of no generations. What is in
cells stays too, and takes its room of the budget (`state.cell_memory`).

Cost: O(parts of the manifest) an epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from braidstream.control.overflow import GroupMemory, Overflow, fits_again, to_clean_up, to_join, to_spill
from braidstream.control.policies.merging import Generation
from braidstream.control.policies.spilling import GroupState
from braidstream.model.directory import Directory
from braidstream.model.stores import Join, Store, spillable
from braidstream.state import compaction, generations
from braidstream.state.cell_memory import bytes_in_cells
from braidstream.state.cells import address_of_grid
from braidstream.state.manifest import Manifest

__all__ = [
    "CLEANING",
    "RESUMED",
    "STEPS",
    "SUSPENDED",
    "Spiller",
    "intent",
    "pinned_groups",
    "resumption",
    "some_of",
]

CLEANING, STEPS, _MEASURES, _SOME = "cleaning", "steps", "spilling", "some"
RESUMED, SUSPENDED = "resumed", "suspended"
_URGENT = 2.0
"""A slot pushes in an epoch in which groups were moved only if it holds more than this many times its budget."""
_FIRST_RATE = float(8 << 20)
"""Bytes that a slot cleans up in a second, until that was measured."""


def pinned_groups(manifest: Manifest) -> set[int]:
    """The groups that may not be pushed: cells of one of their keys see what is stored in them, or the other way."""
    return {manifest.directory.at(address_of_grid(grid)).id for grid in (*manifest.grids, *manifest.retired)}


@dataclass(frozen=True)
class Spiller:
    """The budget of a flow's slots, and the state that it is about."""

    overflow: Overflow
    stores: frozenset[str]
    interval_s: float | None = None
    """How long an epoch is meant to take; None: there is no time to spare."""

    @classmethod
    def of(
        cls, overflow: Overflow, stores: Sequence[Store], joins: Sequence[Join], interval_s: float | None = None
    ) -> Spiller:
        """For the stores and joins of a plan."""
        return cls(overflow, spillable(stores, joins), interval_s)

    @property
    def shed_stores(self) -> frozenset[str]:
        """The stores whose rows may be dropped: none, they are pushed instead (`epoch.shedder` drops)."""
        return frozenset()

    def merges(
        self, manifest: Manifest, planned: Mapping[int, Sequence[compaction.SegmentMerge]]
    ) -> Mapping[int, Sequence[compaction.SegmentMerge]]:
        """The merges of the next epoch, given those that are due by size."""
        del manifest
        return planned

    def spare_s(self, elapsed_s: float) -> float:
        """The time that an epoch leaves until the next one is due."""
        return 0.0 if self.interval_s is None else max(self.interval_s - elapsed_s, 0.0)

    def remembered(self, manifest: Manifest, reports: Sequence[Mapping[str, Any]]) -> Manifest:
        """The manifest with what this epoch's reports say of each group: T_u and P_o, and how fast clean-ups were."""
        known = manifest.memory.get(_MEASURES, {})
        touched, outputs = dict(known.get("touched", {})), dict(known.get("outputs", {}))
        for report in reports:
            for group, arrived, matched in report["groups"]:
                if arrived:
                    touched[str(group)] = manifest.epoch
                outputs[str(group)] = outputs.get(str(group), 0) + matched
        rates = [r["cleaned_bytes"] / max(r["busy_s"], 1e-3) for r in reports if r.get("cleaned_bytes")]
        rate = known.get("rate", _FIRST_RATE)
        measures = {"touched": touched, "outputs": outputs, "rate": (rate + min(rates)) / 2 if rates else rate}
        return replace(manifest, memory={**manifest.memory, _MEASURES: measures})

    def decided(self, manifest: Manifest, before: Directory, spare_s: float, asked: Sequence[int] = ()) -> Manifest:
        """The manifest with what is pushed now, and what is to be cleaned up in the next epoch.

        `asked` are groups that the controller wants pushed, whether they fit or not.
        """
        if manifest.directory is not before and manifest.directory != before:
            manifest = _carried(manifest, before)
        asked = [group for group in asked if group not in pinned_groups(manifest)]
        manifest = self._spilled(manifest, asked)
        active, inactive = generations.sizes(manifest)
        if not inactive and active <= self.overflow.memory_bytes:
            return intent(manifest, (), 0)
        pushed = self._pushed(manifest, self.groups(manifest), before)
        manifest = self._spilled(manifest, pushed)
        pushed, groups = [*asked, *pushed], self.groups(manifest)
        rate = manifest.memory.get(_MEASURES, {}).get("rate", _FIRST_RATE)
        wanted = to_clean_up(groups, self.overflow, pushed, rate * spare_s, bytes_in_cells(manifest, self.stores))
        return intent(manifest, wanted, 0, to_join(groups, self.overflow, wanted, manifest.watermark))

    def _spilled(self, manifest: Manifest, groups: Sequence[int]) -> Manifest:
        if not groups:
            return manifest
        return generations.spilled(_begun_anew(manifest, groups), groups, self.stores)

    def groups(self, manifest: Manifest, stores: Collection[str] | None = None) -> list[GroupMemory]:
        """What each group holds of the state that may be pushed, or of some stores, and its measures."""
        known = manifest.memory.get(_MEASURES, {})
        touched, outputs = known.get("touched", {}), known.get("outputs", {})
        held, found = generations.account(manifest, self.stores if stores is None else stores), []
        watermark = manifest.watermark
        for group in manifest.directory.groups:
            own, key = held[group.id], str(group.id)
            past = watermark is not None and any(d < watermark for d in own.deadlines.values())
            state = GroupState(
                group.id,
                group.slot,
                int(own.active_bytes),
                float(outputs.get(key, 0)),
                int(touched.get(key, manifest.epoch)),
                bool(own.deadlines),
            )
            inactive = tuple(Generation(n, int(size), own.deadlines[n]) for n, size in sorted(own.sizes.items()))
            found.append(GroupMemory(state, int(own.inactive_bytes), len(inactive), past, inactive))
        return found

    def cleaned(self, manifest: Manifest, groups: Sequence[int], some: Mapping[int, Collection[int]]) -> Manifest:
        """The manifest after a clean-up of these groups: active again if they fit, else one inactive generation.

        Nothing is missing now, so what is past its deadline goes first. Of other groups `some` generations are one.
        """
        manifest = generations.joined(manifest, some)
        whole = generations.cleaned(manifest, groups, (), self.stores)
        live = generations.unexpired(whole.segments, whole.directory, whole.watermark)
        left = replace(whole, segments=live)
        taken = bytes_in_cells(left, self.stores)
        active = fits_again(self.groups(left), self.overflow, groups, taken) | pinned_groups(left)
        return intent(generations.cleaned(left, groups, set(groups) - active, self.stores), (), 0)

    def is_at_odds(self, manifest: Manifest) -> bool:
        """Whether state is pushed that may not be any more, because of queries that came since."""
        return bool(generations.pushed_stores(manifest) - self.stores)

    def incomplete(self, manifest: Manifest) -> list[int]:
        """The groups with results that may be missing, as many as one step of the last clean-up takes of each slot."""
        chosen, room = [], dict.fromkeys(range(manifest.n_slots), float(self.overflow.memory_bytes))
        stores = self.stores | generations.pushed_stores(manifest)
        for one in sorted(self.groups(manifest, stores), key=lambda one: (-one.bytes, one.state.group)):
            if one.is_incomplete and one.generations and room[one.state.slot] > 0:
                room[one.state.slot] -= one.bytes
                chosen.append(one.state.group)
        return sorted(chosen)

    def _pushed(self, manifest: Manifest, groups: Sequence[GroupMemory], before: Directory) -> list[int]:
        """What to push now. Relocation comes first: where groups were just moved, only what cannot wait (D-CAPE 6)."""
        taken = bytes_in_cells(manifest, self.stores)
        chosen = to_spill(groups, self.overflow, manifest.epoch, pinned_groups(manifest), taken)
        if not chosen or manifest.directory == before:
            return chosen
        held: dict[int, int] = defaultdict(int, taken)
        for one in groups:
            held[one.state.slot] += one.state.bytes
        urgent = {slot for slot, size in held.items() if size > _URGENT * self.overflow.memory_bytes}
        return [group for group in chosen if manifest.directory.by_id[group].slot in urgent]


def intent(
    manifest: Manifest, groups: Sequence[int], step: int, some: Mapping[int, Sequence[int]] | None = None
) -> Manifest:
    """The manifest with the intent to clean up groups: in the next epoch, or in a numbered step of its own.

    `some` has for other groups the generations that are to be cleaned up among themselves.
    """
    memory = {name: value for name, value in manifest.memory.items() if name != CLEANING}
    if groups or some:
        memory[CLEANING] = {"groups": list(groups), "step": step}
    if some:
        memory[CLEANING][_SOME] = {str(group): list(numbers) for group, numbers in some.items()}
    return replace(manifest, memory=memory)


def resumption(manifest: Manifest, joins: Mapping[str, int], step: int) -> Manifest:
    """The manifest with the intent to produce, in a numbered step, what suspended joins have not since an epoch."""
    return replace(manifest, memory={**manifest.memory, CLEANING: {"groups": [], "step": step, RESUMED: dict(joins)}})


def some_of(cleaning: Mapping[str, Any]) -> dict[int, frozenset[int]]:
    """Of an intent: the groups of which only some generations are cleaned up, and which."""
    whole = set(cleaning["groups"])
    some = {int(group): frozenset(numbers) for group, numbers in cleaning.get(_SOME, {}).items()}
    return {group: numbers for group, numbers in some.items() if group not in whole}


def _begun_anew(manifest: Manifest, groups: Sequence[int]) -> Manifest:
    """A pushed group's next generation has produced nothing yet."""
    known = manifest.memory.get(_MEASURES, {})
    outputs = {**known.get("outputs", {}), **{str(group): 0 for group in groups}}
    return replace(manifest, memory={**manifest.memory, _MEASURES: {**known, "outputs": outputs}})


def _carried(manifest: Manifest, before: Directory) -> Manifest:
    """The measures of groups after splits and merges: halves share, buddies add up."""
    known = manifest.memory.get(_MEASURES, {})
    touched: dict[str, int] = {}
    outputs: dict[str, float] = {}
    for group in manifest.directory.groups:
        whole = before.at(group.low)
        old = [whole] if whole.depth <= group.depth else [g for g in before.groups if group.low <= g.low <= group.high]
        share = 0.5 ** max(group.depth - whole.depth, 0)
        seen = [t for g in old if (t := known.get("touched", {}).get(str(g.id))) is not None]
        outputs[str(group.id)] = share * sum(known.get("outputs", {}).get(str(g.id), 0) for g in old)
        if seen:
            touched[str(group.id)] = max(seen)
    return replace(manifest, memory={**manifest.memory, _MEASURES: {**known, "touched": touched, "outputs": outputs}})
