"""A regridder that never rests: random grids for random keys after every epoch, whatever they hold.

    Harness(..., regridder=RestlessGrids(hashes, seed=3))

What a regrid changes must never change a result. Keys of a flow under this one turn heavy and light again, their grids
grow and shrink in any dimension, and their cells move, between any two epochs; its output must be the oracle's.

Invariant: the same seed and epoch give the same grids, so a replayed epoch is decided again alike. Cost: O(keys).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from braidstream.kernels.families import dimensions_of, is_unkeyed_family
from braidstream.model.grids import Grid, Regrid
from braidstream.model.instructions import Decision
from braidstream.model.numbers import SlotId
from braidstream.model.reports import SlotReport
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.state.manifest import Manifest

__all__ = ["RestlessGrids"]


@dataclass(frozen=True)
class RestlessGrids:
    """Regrids some of the keys with these hashes; dimensions are at most `max_dim`."""

    hashes: Sequence[int]
    seed: int = 0
    max_dim: int = 4
    asked: Counter[str] = field(default_factory=Counter)
    """How often keys turned heavy, light, had their grid changed, or only their cells moved."""

    def advised(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]
    ) -> tuple[Manifest, list[Decision]]:
        """Other grids."""
        del reports
        rng = np.random.default_rng([self.seed, manifest.epoch + 1])
        families = sorted({store.family for store in stores if store.family})
        current = {grid.key: grid for grid in manifest.grids}
        next_id = max(manifest.notes.next_grid, manifest.notes.heavy.next_id)
        changes = []
        for key in ((family, hash_) for family in families for hash_ in self.hashes):
            change = self._change(key, current.get(key), next_id, manifest.n_slots, rng)
            if change is not None:
                changes.append(change)
                next_id += 1
        notes = changed(manifest.notes, next_grid=next_id)
        asked = [Decision(manifest.epoch, "restless", {}, tuple(changes))] if changes else []
        return manifest.with_notes(notes), asked

    def _change(
        self, key: tuple[str, int], now: Grid | None, next_id: int, n_slots: int, rng: np.random.Generator
    ) -> Regrid | None:
        kind = int(rng.integers(4))
        if kind == 0:
            return None
        if now is not None and kind == 1 and not is_unkeyed_family(key[0]):
            self.asked["light"] += 1
            return Regrid(*key, None)
        if now is not None and kind == 2:
            self.asked["moved"] += 1
            slots = tuple(SlotId(int(s)) for s in rng.integers(0, n_slots, len(now.slots)))
            return Regrid(*key, replace(now, slots=slots))
        self.asked["heavy" if now is None else "other"] += 1
        dims = tuple(int(n) for n in rng.integers(1, self.max_dim + 1, len(dimensions_of(key[0]))))
        slots = tuple(SlotId(int(s)) for s in rng.integers(0, n_slots, prod(dims)))
        return Regrid(*key, Grid(next_id, *key, dims, slots))
