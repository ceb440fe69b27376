"""From the slots' reports to grids: the frequent keys are tracked, and the rule of `control.regridding` decides.

Slots report the largest runs of keys among their new rows, and of cells how many rows each got. The driver adds them to
one tracker a store (`control.heavy`), which is kept in the manifest's notes; so a replayed epoch is decided alike, and
a restart goes on where it was. A key's tuples are counted, not their replicas: of each dimension only the cells whose
other coordinates are 0. The rule is told the light load too: the rows of all other keys by slot, a moving average.

Invariant: grids change only in the manifest that is about to be committed. Cost: O(keys reported + heavy keys) for an
epoch, whatever the number of keys.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from braidstream.control.heavy import Tracker, candidates
from braidstream.control.regridding import GridSettings, decide, light_loads
from braidstream.epoch.single_grids import single_grid_changes
from braidstream.kernels.families import dimensions_of, is_unkeyed_family, stage_of
from braidstream.kernels.stripes import split_code, store_of
from braidstream.model.directory import address_of
from braidstream.model.grids import Family
from braidstream.model.instructions import Decision
from braidstream.model.numbers import SlotId
from braidstream.model.reports import Frequent, SlotReport
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.state.cells import Cells, may_have_grid
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Heavy

__all__ = ["WEIGHT", "GridRouter"]

WEIGHT = 0.3
"""How much the last epoch counts among the rows of light keys."""


@dataclass(frozen=True)
class GridRouter:
    """Gives keys of a flow grids when they are heavy, and takes them when they are light again."""

    settings: GridSettings = field(default_factory=GridSettings)

    def advised(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]
    ) -> tuple[Manifest, list[Decision]]:
        """What is known of frequent keys after the reports of an epoch, in the manifest, and changes of grids."""
        if manifest.n_slots == 1 and not manifest.grids:
            return manifest, []
        trackers = self._tracked(manifest, stores, reports)
        known, found = manifest.notes.heavy, self._families(manifest, stores, trackers)
        others = _others(known.others, manifest.n_slots, found, reports)
        light = light_loads(found, others, manifest.grids)
        plan = decide(found, light, manifest.n_slots, manifest.grids, known.next_id, self.settings)
        families = {store.family for store in stores if store.family}
        single = list(single_grid_changes(manifest, families, trackers, plan.next_id))
        decisions = [
            Decision(manifest.epoch, "grids", change.figures, (change.regrid,), change.reason)
            for change in (*plan.changes, *single)
            if change.regrid.grid is None or may_have_grid(manifest, change.regrid.family, change.regrid.hash)
        ]
        kept = {name: tracker.unasked() for name, tracker in trackers.items()}
        heavy = Heavy(kept, plan.next_id + len(single), tuple(round(rows, 1) for rows in others))
        return manifest.with_notes(changed(manifest.notes, heavy=heavy)), decisions

    def _tracked(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]
    ) -> dict[str, Tracker]:
        seen = _frequent(manifest, stores, reports)
        clock, n_slots = max(manifest.newest.values(), default=0), self.settings.fineness(manifest.n_slots)
        tracked = {}
        for store in (store for store in stores if store.family):
            before = manifest.notes.heavy.trackers.get(store.name)
            if before is None or before.window != store.window_us:
                before = Tracker.of(n_slots, store.window_us)
            tracked[store.name] = before.resized(n_slots).seen(seen.get(store.index, []), clock)
        return tracked

    def _families(self, manifest: Manifest, stores: Sequence[Store], trackers: Mapping[str, Tracker]) -> list[Family]:
        families = []
        for name in sorted({s.family for s in stores if s.family and not is_unkeyed_family(s.family)}):
            own = [trackers[store_of(dimension)] for dimension in dimensions_of(name)]
            held = [grid.hash for grid in manifest.grids if grid.family == name]
            slot_of = partial(_slot_of, manifest, stage_of(name))
            found = candidates(own, 8 * manifest.n_slots, slot_of, held)
            families.append(Family(name, tuple(float(tracker.rows) for tracker in own), tuple(found)))
        return families


def _others(
    before: Sequence[float], n_slots: int, families: Sequence[Family], reports: Sequence[SlotReport]
) -> list[float]:
    """Of late, by slot: the new rows in groups of keys that are no candidates."""
    known = np.array([one.hash for family in families for one in family.candidates], dtype=np.uint64)
    rows = [0.0] * n_slots
    for report in (report for report in reports if report.slot < n_slots):
        rows[report.slot] += report.groups.all_rows
        for frequent in report.frequent.values():
            is_candidate = np.isin(frequent.hashes.unsigned, known)
            rows[report.slot] -= int(frequent.counts.array[is_candidate].sum())
    if len(before) != n_slots:
        return rows
    return [WEIGHT * new + (1 - WEIGHT) * old for new, old in zip(rows, before, strict=True)]


def _slot_of(manifest: Manifest, stage: int, key: int) -> SlotId:
    return manifest.directory.at(address_of(stage, key)).slot


def _frequent(manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]) -> dict[int, list[Frequent]]:
    """What the slots report of each store: keys of groups, and keys of cells."""
    found: dict[int, list[Frequent]] = defaultdict(list)
    for report in reports:
        for store, frequent in report.frequent.items():
            found[store].append(frequent)
    for store, counts in _in_cells(manifest, stores, reports).items():
        found[store].append(Frequent.of(sum(counts.values()), tuple(counts.items())))
    return found


def _in_cells(manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]) -> dict[int, dict[int, int]]:
    """The new tuples of keys that were heavy in the epoch, by store and hash."""
    layouts = Cells(manifest).layouts
    counted = {
        (layout.id, store.index): {layout.code(cell) for cell in layout.counted_cells(store.name)}
        for layout in layouts.values()
        for store in stores
        if store.name in layout.names
    }
    found: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for report in reports:
        for cell in report.cells:
            grid = split_code(cell.code)[0]
            if cell.use == 0 and cell.code in counted.get((grid, cell.store), ()):
                found[cell.store][layouts[grid].hash] += cell.rows
    return found
