"""The search for even grids as it is written down: every shape of every key priced for every trial, cell by cell.

Slow, and what `control.grid_even` must give.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from braidstream.control.grid_even import EvenSettings
from braidstream.model.grids import Candidate, Change, Family, Grid, GridPlan, Regrid, cell_load, slot_loads
from braidstream.model.numbers import FIRST_SLOT, SlotId, slot_ids

_GRAINS = (2.0, 1.5, 1.25, 1.1, 1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
_THRESHOLDS = (1.0, 0.5, 0.25, 0.1)
_CELLS_A_SLOT = 4
_NEARLY = 1.2
"""Dimensions and slots are kept while within this factor of the best."""
_ALIKE = 1.05
"""Trials whose largest loads are within this factor differ by their replication only."""

Key = tuple[str, int]


@dataclass(frozen=True)
class _Layout:
    """One trial: the grids of the keys, and the slots' expected loads."""

    grids: Mapping[Key, Grid]
    loads: tuple[float, ...]

    @property
    def largest(self) -> float:
        return max(self.loads)

    @property
    def mean(self) -> float:
        return sum(self.loads) / len(self.loads)


def plainly_planned(
    families: Sequence[Family],
    light: Sequence[float] | None,
    n_slots: int,
    grids: Sequence[Grid],
    next_id: int,
    settings: EvenSettings,
) -> GridPlan:
    """The grids of all families with the least largest load, or those of now where the margin is not reached."""
    search = _Search.of(families, light, n_slots, grids, settings)
    now = search.current()
    margin = settings.margin if now.largest > settings.goal * now.mean else 2 * settings.margin
    wanted = (1 - margin) * now.largest
    if not search.is_homeless(now):
        if search.even >= wanted or (best := search.best()).largest >= wanted:  # no grids are better than even ones
            return search.changed(now, now, next_id)
        return search.changed(now, best, next_id)
    return search.changed(now, search.best(), next_id)


@dataclass(frozen=True)
class _Search:
    """The keys and loads of one decision."""

    keys: Mapping[Key, Candidate]
    floor: tuple[float, ...]
    """The slots' loads without any candidate."""
    held: Mapping[Key, Grid]
    """The grids of now."""
    known: frozenset[str]
    """The families that were looked at; grids of others stay."""
    settings: EvenSettings

    @classmethod
    def of(
        cls,
        families: Sequence[Family],
        light: Sequence[float] | None,
        n_slots: int,
        grids: Sequence[Grid],
        settings: EvenSettings,
    ) -> _Search:
        """The search over what is known."""
        held = {grid.key: grid for grid in grids}
        keys = {(family.name, one.hash): one for family in families for one in family.candidates}
        floor = _floor(families, keys, light, n_slots, held)
        return cls(keys, floor, held, frozenset(family.name for family in families), settings)

    @property
    def n_slots(self) -> int:
        """How many slots there are."""
        return len(self.floor)

    @property
    def even(self) -> float:
        """The mean load of the slots if nothing were replicated."""
        return (sum(self.floor) + sum(one.weight for one in self.keys.values())) / self.n_slots

    def current(self) -> _Layout:
        """The grids of now, without those whose keys are light again."""
        limit = self.settings.heavy_above / 2 * self.even
        stay = {k: g for k, g in self.held.items() if k in self.keys and self.keys[k].weight > limit}
        return _Layout(stay, tuple(slot_loads(self._lights(stay), [(self.keys[k], g) for k, g in stay.items()])))

    def is_homeless(self, layout: _Layout) -> bool:
        """Whether a cell is at a slot that is gone."""
        return any(slot >= self.n_slots for grid in layout.grids.values() for slot in grid.slots)

    def best(self) -> _Layout:
        """The best trial with as few heavy keys as reach the goal."""
        found: _Layout | None = None
        for threshold in (*_THRESHOLDS, self.settings.heavy_above):
            trial = self._best_grain(self._heavy(max(threshold, self.settings.heavy_above)))
            if found is None or trial.largest < 0.98 * found.largest:
                found = trial
            if found.largest <= self.settings.goal * found.mean:
                break
        assert found is not None  # there is always a threshold
        return found

    def changed(self, now: _Layout, chosen: _Layout, next_id: int) -> GridPlan:
        """The plan that makes `chosen` of the grids held."""
        changes, kept = [], [grid for key, grid in self.held.items() if key[0] not in self.known]
        figures = {"largest_before": now.largest, "largest": chosen.largest, "mean": chosen.mean}
        for key, held in self.held.items():
            if key[0] in self.known and key not in chosen.grids:
                reason = f"key {held.label or held.hash}: light again"
                changes.append(Change(Regrid(*key, None), figures | self._share(key), reason))
        for key, grid in chosen.grids.items():
            before = self.held.get(key)
            if before is not None and before.dims == grid.dims:
                grid = replace(grid, id=before.id, label=grid.label or before.label)  # noqa: PLW2901
            else:
                grid = replace(grid, id=next_id)  # noqa: PLW2901
                next_id += 1
            kept.append(grid)
            if before is None or (before.dims, before.slots) != (grid.dims, grid.slots):
                changes.append(Change(Regrid(*key, grid), figures | self._share(key), _reason(before, grid)))
        return GridPlan(tuple(kept), next_id, tuple(changes), figures)

    def _share(self, key: Key) -> dict[str, float]:
        weight = self.keys[key].weight if key in self.keys else 0.0
        return {"weight_over_mean": weight / max(self.even, 1e-9)}

    def _heavy(self, threshold: float) -> list[Key]:
        """The keys above the threshold, and those that have a grid and are not light again."""
        limit, low = threshold * self.even, self.settings.heavy_above / 2 * self.even
        return [
            key
            for key, one in self.keys.items()
            if (one.weight > limit and one.weight >= self.settings.least) or (key in self.held and one.weight > low)
        ]

    def _best_grain(self, heavy: Sequence[Key]) -> _Layout:
        """Of the trials whose largest load is nearly the smallest, one that keeps all dimensions, then the cheapest."""
        priced = {key: _priced(self.keys[key], self.n_slots) for key in heavy}
        free = [self._laid_out(priced, grain * self.even, _NEARLY) for grain in _GRAINS]
        kept = [self._laid_out(priced, grain * self.even, None) for grain in _GRAINS] if self.held else []
        limit = _ALIKE * min(trial.largest for trial in [*kept, *free])
        alike = [trial for trial in kept if trial.largest <= limit] or [one for one in free if one.largest <= limit]
        return min(alike, key=lambda trial: trial.mean)

    def _laid_out(self, priced: Mapping[Key, _Priced], limit: float, slack: float | None) -> _Layout:
        """Each key with its cheapest grid of cells up to `limit`, cells placed heaviest first.

        A grid that is there keeps its dimensions if they are within `slack` of that; without slack, in any case.
        """
        dims = {key: self._dims(key, prices, limit, slack) for key, prices in priced.items()}
        cells = sorted(
            ((cell_load(self.keys[k], d), k, i) for k, d in dims.items() for i in range(prod(d))),
            key=lambda cell: (-cell[0], cell[1], cell[2]),
        )
        room = _Room(self._lights(dims), sum(load for load, _, _ in cells))
        slots: dict[Key, list[SlotId]] = {key: [FIRST_SLOT] * prod(d) for key, d in dims.items()}
        for load, key, i in cells:
            held = self.held.get(key)
            home = held.slots[i] if held is not None and held.dims == dims[key] else None
            slots[key][i] = room.place(load, home)
        grids = {k: Grid(0, *k, dims[k], tuple(slots[k]), self.keys[k].label) for k in dims}
        return _Layout(grids, tuple(room.loads))

    def _dims(self, key: Key, prices: _Priced, limit: float, slack: float | None) -> tuple[int, ...]:
        cheapest, cost = prices.cheapest(limit)
        held = self.held.get(key)
        if held is None:
            return cheapest
        load = cell_load(self.keys[key], held.dims)
        is_near = slack is None or (load <= slack * limit and load * prod(held.dims) <= slack * cost)
        return held.dims if is_near else cheapest

    def _lights(self, heavy: Mapping[Key, object]) -> list[float]:
        """The slots' loads of everything but the heavy keys."""
        loads = list(self.floor)
        for key, one in self.keys.items():
            if key not in heavy and one.slot < len(loads):
                loads[one.slot] += one.weight
        return loads


class _Room:
    """The slots' loads while cells are placed."""

    def __init__(self, loads: list[float], to_come: float) -> None:
        self.loads = loads
        self.limit = _NEARLY * (sum(loads) + to_come) / len(loads)
        self.heap = list(zip(loads, slot_ids(len(loads)), strict=True))
        heapq.heapify(self.heap)

    def place(self, load: float, home: SlotId | None) -> SlotId:
        """The slot of a cell: its home where there is room, else the least loaded one."""
        fits = home is not None and home < len(self.loads) and self.loads[home] + load <= self.limit
        slot = home if fits and home is not None else self._least()
        self.loads[slot] += load
        heapq.heappush(self.heap, (self.loads[slot], slot))
        return slot

    def _least(self) -> SlotId:
        while True:  # entries of slots that got something since are stale
            load, slot = heapq.heappop(self.heap)
            if load == self.loads[slot]:
                return slot


@dataclass(frozen=True)
class _Priced:
    """Every shape of a key: the load of a cell, and of all cells together."""

    shapes: npt.NDArray[np.int64]
    loads: npt.NDArray[np.float64]
    totals: npt.NDArray[np.float64]

    def cheapest(self, limit: float) -> tuple[tuple[int, ...], float]:
        """The dimensions with the least total of those whose cells are within the limit, and that total.

        Where none is, those with the lightest cells.
        """
        fits = np.flatnonzero(self.loads <= limit)
        at = fits[np.argmin(self.totals[fits])] if len(fits) else np.argmin(self.loads)
        return tuple(int(n) for n in self.shapes[at]), float(self.totals[at])


def _priced(one: Candidate, n_slots: int) -> _Priced:
    shapes = _shapes(len(one.counts), _CELLS_A_SLOT * n_slots)
    n_cells = shapes.prod(axis=1)
    loads = (np.array(one.counts) / shapes).sum(axis=1) + one.results / n_cells
    return _Priced(shapes, loads, loads * n_cells)


@lru_cache(maxsize=32)
def _shapes(m: int, most: int) -> npt.NDArray[np.int64]:
    """All dimensions of at most `most` cells, few cells first; for more than 3 stores powers of two only."""
    steps = range(1, most + 1) if m <= 3 else [1 << i for i in range(most.bit_length())]
    shapes: list[tuple[int, ...]] = [()]
    for _ in range(m):
        shapes = [(*shape, n) for shape in shapes for n in steps if prod(shape) * n <= most]
    return np.array(sorted(shapes, key=lambda shape: (prod(shape), shape)), dtype=np.int64)


def _floor(
    families: Sequence[Family],
    keys: Mapping[Key, Candidate],
    light: Sequence[float] | None,
    n_slots: int,
    held: Mapping[Key, Grid],
) -> tuple[float, ...]:
    """The slots' light load without the candidates; where it was not measured, that of the other keys spread evenly."""
    if light is None:
        return (sum(_others(family) for family in families) / n_slots,) * n_slots
    floor = [float(load) for load in light[:n_slots]] + [0.0] * (n_slots - len(light))
    for key, one in keys.items():
        if key not in held and one.slot < n_slots:
            floor[one.slot] = max(0.0, floor[one.slot] - one.weight)
    return tuple(floor)


def _others(family: Family) -> float:
    """The load of the keys that are no candidates, as far as it can be told.

    Their tuples are known. Each of them has fewer rows than the candidates have, so of the matches that their tuples
    would have with keys as frequent as the least candidates (the lowest tenth is left out: keys that fade), half is
    taken. Without that, every candidate would look heavy where no key is.
    """
    counts = [one.counts for one in family.candidates]
    tuples = [max(0.0, total - sum(c[i] for c in counts)) for i, total in enumerate(family.totals)]
    if not counts:
        return sum(tuples)
    least = [sorted(c[i] for c in counts)[len(counts) // 10] for i in range(len(tuples))]
    matches = min(rest * prod(least[:i] + least[i + 1 :]) for i, rest in enumerate(tuples))
    return sum(tuples) + matches / 2


def _reason(before: Grid | None, grid: Grid) -> str:
    name = f"key {grid.label or grid.hash}"
    if before is None:
        return f"{name}: heavy, grid {grid.shape}"
    if before.dims == grid.dims:
        return f"{name}: cells of grid {grid.shape} move"
    return f"{name}: grid {before.shape} becomes {grid.shape}"
