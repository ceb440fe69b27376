"""From manifests to the figures by which state is pushed and cleaned up.

The choice is `control.overflow`'s, and `state.acting` carries it out; this counts. A clean-up that is decided now is
carried out in the next epoch (or, at the end of a finite flow, in a step of its own under the same epoch): so what an
epoch puts out is decided before it begins, and a replay puts out the same, however much time there seems to be then.

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
from dataclasses import dataclass, field

from braidstream.control.overflow import (
    GroupMemory,
    Overflow,
    clean_up_decisions,
    fits_again,
    push_decisions,
    to_clean_up,
    to_join,
    to_spill,
)
from braidstream.control.policies.generation_tiers import Generation
from braidstream.control.policies.spilling import GroupState
from braidstream.model.directory import Directory
from braidstream.model.instructions import Decision
from braidstream.model.numbers import GroupId, SlotId, slot_ids
from braidstream.model.reports import CleanUpReport, Report
from braidstream.model.stores import Join, Store, closed_stores, spillable
from braidstream.model.undecided import owed_in, span_of
from braidstream.model.values import changed
from braidstream.state import generations
from braidstream.state.acting import intent, pinned_groups, settled
from braidstream.state.cell_memory import bytes_in_cells
from braidstream.state.manifest import Manifest

__all__ = ["Spiller"]

_URGENT = 2.0
"""A slot pushes in an epoch in which groups were moved only if it holds more than this many times its budget."""


@dataclass(frozen=True)
class Spiller:
    """The budget of a flow's slots, and the state that it is about."""

    overflow: Overflow
    stores: frozenset[str]
    interval_s: float | None = None
    """How long an epoch is meant to take; None: there is no time to spare."""
    closed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of these stores those of which rows are decided when they close, each with all that its partners are in."""

    @classmethod
    def of(
        cls, overflow: Overflow, stores: Sequence[Store], joins: Sequence[Join], interval_s: float | None = None
    ) -> Spiller:
        """For the stores and joins of a plan."""
        names = spillable(stores, joins)
        closed = {store: own for store, own in closed_stores(stores, joins).items() if store in names}
        return cls(overflow, names, interval_s, closed)

    @property
    def shed_stores(self) -> frozenset[str]:
        """The stores whose rows may be dropped: none, they are pushed instead (`epoch.shedder` drops)."""
        return frozenset()

    @property
    def shed_windows(self) -> Mapping[str, int | None] | None:
        """The same with their windows; None: nothing is ever dropped."""
        return None

    def spare_s(self, elapsed_s: float) -> float:
        """The time that an epoch leaves until the next one is due."""
        return 0.0 if self.interval_s is None else max(self.interval_s - elapsed_s, 0.0)

    def remembered(self, manifest: Manifest, reports: Sequence[Report]) -> Manifest:
        """The manifest with what this epoch's reports say of how fast clean-ups are."""
        known = manifest.notes.measures
        cleaned = (report for report in reports if isinstance(report, CleanUpReport) and report.bytes)
        rates = [report.bytes / max(report.busy_s, 1e-3) for report in cleaned]
        if not rates:
            return manifest
        rate = (known.rate + min(rates)) / 2
        return manifest.with_notes(changed(manifest.notes, measures=changed(known, rate=rate)))

    def pushes(self, manifest: Manifest, before: Directory) -> list[Decision]:
        """What to push now. Relocation comes first: where groups were just moved, only what cannot wait (D-CAPE 6)."""
        groups, taken = self.groups(manifest), bytes_in_cells(manifest, self.stores)
        chosen = to_spill(groups, self.overflow, manifest.epoch, pinned_groups(manifest), taken)
        if chosen and manifest.directory != before:
            held: dict[SlotId, int] = defaultdict(int, taken)
            for one in groups:
                held[one.state.slot] += one.state.bytes
            urgent = {slot for slot, size in held.items() if size > _URGENT * self.overflow.memory_bytes}
            chosen = [group for group in chosen if manifest.directory.by_id[group].slot in urgent]
        return push_decisions(groups, self.overflow, manifest.epoch, chosen, taken)

    def clean_ups(self, manifest: Manifest, pushed: Collection[GroupId], spare_s: float) -> list[Decision]:
        """What the next epoch is to clean up, after what was pushed now."""
        groups, room = self.groups(manifest), manifest.notes.measures.rate * spare_s
        wanted = to_clean_up(groups, self.overflow, list(pushed), room, bytes_in_cells(manifest, self.stores))
        some = to_join(groups, self.overflow, wanted, manifest.watermark)
        return clean_up_decisions(groups, manifest.epoch, wanted, some)

    def sheds(self, manifest: Manifest) -> list[Decision]:
        """What to drop for good: nothing (`epoch.shedder` drops)."""
        del manifest
        return []

    def accounted(self, manifest: Manifest, sheds: Sequence[Decision]) -> Manifest:
        """The manifest with what is known of the state after all decisions."""
        del sheds
        return manifest

    def may_push(self, manifest: Manifest) -> frozenset[GroupId]:
        """The groups that may be pushed when somebody asks for it."""
        return frozenset(manifest.directory.by_id) - pinned_groups(manifest)

    def is_at_ease(self, manifest: Manifest) -> bool:
        """Whether nothing is pushed, and all state fits into the budget of one slot."""
        active, inactive = generations.sizes(manifest)
        return not inactive and active <= self.overflow.memory_bytes

    def groups(self, manifest: Manifest, stores: Collection[str] | None = None) -> list[GroupMemory]:
        """What each group holds of the state that may be pushed, or of some stores, and its measures."""
        measures = manifest.notes.measures
        held, found = generations.account(manifest, self.stores if stores is None else stores), []
        watermark = manifest.watermark
        for group in manifest.directory.groups:
            own = held[group.id]
            past = watermark is not None and any(d < watermark for d in own.deadlines.values())
            state = GroupState(
                group.id,
                group.slot,
                int(own.active_bytes),
                measures.outputs.get(group.id, 0.0),
                measures.touched.get(group.id, manifest.epoch),
                bool(own.deadlines),
            )
            inactive = tuple(Generation(n, int(size), own.deadlines[n]) for n, size in sorted(own.sizes.items()))
            found.append(GroupMemory(state, int(own.inactive_bytes), len(inactive), past, inactive))
        return found

    def cleaned(
        self, manifest: Manifest, groups: Sequence[GroupId], some: Mapping[GroupId, Collection[int]]
    ) -> Manifest:
        """The manifest after a clean-up of these groups: active again if they fit, else one inactive generation.

        Nothing is missing now, so what is past its deadline goes first. Of other groups `some` generations are one.
        """
        manifest = generations.joined(manifest, some)
        whole = generations.cleaned(manifest, groups, (), self.stores)
        left = whole
        taken = bytes_in_cells(left, self.stores)
        active = fits_again(self.groups(left), self.overflow, groups, taken) | pinned_groups(left)
        return intent(settled(left, groups, set(groups) - active, self.stores, self.closed), (), 0)

    def is_at_odds(self, manifest: Manifest) -> bool:
        """Whether state is pushed that may not be any more, because of queries that came since."""
        return bool(generations.pushed_stores(manifest) - self.stores)

    def incomplete(self, manifest: Manifest) -> list[GroupId]:
        """The groups with results that may be missing, as many as one step of the last clean-up takes of each slot.

        State that may not be pushed any more has been cleaned up once it is active, whatever else its group has pushed.
        """
        chosen, room = [], dict.fromkeys(slot_ids(manifest.n_slots), float(self.overflow.memory_bytes))
        others = generations.pushed_stores(manifest) - self.stores
        barred = generations.account(manifest, others) if others else {}
        missing = {one.state.group for one in self.groups(manifest) if one.is_incomplete and one.generations}
        missing |= {group for group, held in barred.items() if held.deadlines} | self._undecided(manifest)
        for one in sorted(self.groups(manifest, self.stores | others), key=lambda one: (-one.bytes, one.state.group)):
            if one.state.group in missing and room[one.state.slot] > 0:
                room[one.state.slot] -= one.bytes
                chosen.append(one.state.group)
        return sorted(chosen)

    def _undecided(self, manifest: Manifest) -> set[GroupId]:
        """The groups with rows that may have closed and are not decided."""
        known = manifest.notes.undecided
        late = {
            store: [one for one in ranges if one[3] is None or one[3] != manifest.watermark]
            for store, ranges in known.items()
        }
        if manifest.watermark is None or not any(late.values()):
            return set()
        groups = manifest.directory.groups
        return {one.id for one in groups if any(True for store in late for _ in owed_in(late, store, span_of(one)))}
