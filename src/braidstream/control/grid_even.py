"""Our rule: the grids whose largest slot load, in tuples received plus matches, is smallest.

SHC's rule (`grid_paper`) is right up to a factor of 2 in each dimension, counts cells instead of weighing them, and
calls a key heavy by its tuples alone; but a key with a hundredth of the tuples may have a tenth of the matches. Here a
key's *weight* is its load where it is not spread, and one search settles all three questions:

- *Which keys*: those above a share of the mean load, from the whole of it down to `heavy_above`. The first share that
  reaches `goal` (largest over mean) is taken, so no more keys than necessary are heavy.
- *Which dimensions*: for a *grain* (a share of the mean load, several are tried) each key gets the cheapest grid whose
  cells weigh no more, of all dimensions with at most `4 p` cells. Cheapest means with the least replication.
- *Where*: cells are placed heaviest first, each on the least loaded slot, on top of the slots' light load. A key that
  is too small to be spread gets a single cell: it is placed, not spread.

Hysteresis. Dimensions stay where all of them can, or where they are still nearly as cheap, cells where the slot has
room for them, and nothing is changed at all unless the largest expected load falls by `margin` (by twice as much where
the goal is reached already). So a constant distribution causes at most one change: the next search finds nothing that
is better by the margin. A key is light again below half of `heavy_above`.

Invariant: cells are at slots below p; a key without tuples has no grid. Cost: O(heavy keys x shapes) once, of the
shapes only those that can be the cheapest, and O(cells log p) for each of some fifty trials; at reorganizations only
and independent of the stream's length and its number of keys.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from math import prod
from typing import cast

import numpy as np
import numpy.typing as npt

from braidstream.model.grids import Candidate, Change, Family, Grid, GridPlan, Regrid, cell_load, slot_loads
from braidstream.model.numbers import SlotId, slot_ids

__all__ = ["EvenSettings", "others_load", "plan"]

_GRAINS = (2.0, 1.5, 1.25, 1.1, 1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1)
_THRESHOLDS = (1.0, 0.5, 0.25, 0.1)
_CELLS_A_SLOT = 4
_NEARLY = 1.2
"""Dimensions and slots are kept while within this factor of the best."""
_ALIKE = 1.05
"""Trials whose largest loads are within this factor differ by their replication only."""

_FIRST_SHAPES = 256
"""So many shapes are priced at first."""

F64 = npt.NDArray[np.float64]
Key = tuple[str, int]


@dataclass(frozen=True)
class EvenSettings:
    """When grids change."""

    goal: float = 1.2
    """Largest over mean load at which no further keys are made heavy."""
    heavy_above: float = 0.05
    """No key with less than this share of the mean slot load gets a grid; below half of it, it loses its grid."""
    margin: float = 0.15
    """Grids change only if the largest expected load falls by this share, or twice of it where the goal is reached."""
    least: float = 1000.0
    """No key with less load than this (tuples and matches) gets a grid."""


@dataclass(frozen=True)
class _Layout:
    """One trial: the dimensions and the slots of the keys' cells, and the slots' expected loads."""

    dims: Mapping[Key, tuple[int, ...]]
    slots: Mapping[Key, Sequence[SlotId]]
    loads: Sequence[float]

    @cached_property
    def largest(self) -> float:
        return max(self.loads)

    @cached_property
    def mean(self) -> float:
        return sum(self.loads) / len(self.loads)


def plan(
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

    @cached_property
    def even(self) -> float:
        """The mean load of the slots if nothing were replicated."""
        return (sum(self.floor) + sum(self._weights.values())) / self.n_slots

    @cached_property
    def _weights(self) -> dict[Key, float]:
        return {key: one.weight for key, one in self.keys.items()}

    @cached_property
    def _prices(self) -> dict[Key, _Priced]:
        """What is known of the shapes of keys that were heavy in a trial."""
        return {}

    @cached_property
    def _cell_loads(self) -> dict[tuple[Key, tuple[int, ...]], float]:
        """The loads of cells that some trial had."""
        return {}

    def current(self) -> _Layout:
        """The grids of now, without those whose keys are light again."""
        limit = self.settings.heavy_above / 2 * self.even
        stay = {k: g for k, g in self.held.items() if k in self.keys and self._weights[k] > limit}
        loads = slot_loads(self._lights(stay), [(self.keys[k], g) for k, g in stay.items()])
        return _Layout({k: g.dims for k, g in stay.items()}, {k: g.slots for k, g in stay.items()}, loads)

    def is_homeless(self, layout: _Layout) -> bool:
        """Whether a cell is at a slot that is gone."""
        return any(max(slots) >= self.n_slots for slots in layout.slots.values())

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
            if key[0] in self.known and key not in chosen.dims:
                reason = f"key {held.label or held.hash}: light again"
                changes.append(Change(Regrid(*key, None), figures | self._share(key), reason))
        for key, dims in chosen.dims.items():
            before = self.held.get(key)
            label = "" if chosen is now else self.keys[key].label
            if before is not None and before.dims == dims:
                grid = Grid(before.id, *key, dims, tuple(chosen.slots[key]), label or before.label)
            else:
                grid = Grid(next_id, *key, dims, tuple(chosen.slots[key]), label)
                next_id += 1
            kept.append(grid)
            if before is None or (before.dims, before.slots) != (grid.dims, grid.slots):
                changes.append(Change(Regrid(*key, grid), figures | self._share(key), _reason(before, grid)))
        return GridPlan(tuple(kept), next_id, tuple(changes), figures)

    def _share(self, key: Key) -> dict[str, float]:
        weight = self._weights.get(key, 0.0)
        return {"weight_over_mean": weight / max(self.even, 1e-9)}

    def _heavy(self, threshold: float) -> list[Key]:
        """The keys above the threshold, and those that have a grid and are not light again."""
        limit, low = threshold * self.even, self.settings.heavy_above / 2 * self.even
        return [
            key
            for key, weight in self._weights.items()
            if (weight > limit and weight >= self.settings.least) or (key in self.held and weight > low)
        ]

    def _best_grain(self, heavy: Sequence[Key]) -> _Layout:
        """Of the trials whose largest load is nearly the smallest, one that keeps all dimensions, then the cheapest."""
        lights = self._lights(dict.fromkeys(heavy))
        free = [self._laid_out(heavy, lights, grain * self.even, _NEARLY) for grain in _GRAINS]
        kept = [self._laid_out(heavy, lights, grain * self.even, None) for grain in _GRAINS] if self.held else []
        limit = _ALIKE * min(trial.largest for trial in [*kept, *free])
        alike = [trial for trial in kept if trial.largest <= limit] or [one for one in free if one.largest <= limit]
        return min(alike, key=lambda trial: trial.mean)

    def _laid_out(self, heavy: Sequence[Key], lights: Sequence[float], limit: float, slack: float | None) -> _Layout:
        """Each key with its cheapest grid of cells up to `limit`, cells placed heaviest first.

        A grid that is there keeps its dimensions if they are within `slack` of that; without slack, in any case.
        """
        dims = {key: self._dims(key, limit, slack) for key in heavy}
        loads = {key: self._cell_load(key, own) for key, own in dims.items()}
        ordered = sorted(dims, key=lambda key: (-loads[key], key))
        to_come = sum(chain.from_iterable(repeat(loads[key], prod(dims[key])) for key in ordered))
        room, slots = _Room(list(lights), to_come), dict.fromkeys(dims, cast("Sequence[SlotId]", ()))
        for key in ordered:
            held = self.held.get(key)
            homes = held.slots if held is not None and held.dims == dims[key] else None
            slots[key] = room.place(loads[key], prod(dims[key]), homes)
        return _Layout(dims, slots, room.loads)

    def _dims(self, key: Key, limit: float, slack: float | None) -> tuple[int, ...]:
        held = self.held.get(key)
        if held is not None and slack is None:
            return held.dims
        if key not in self._prices:
            self._prices[key] = _Priced.of(self.keys[key], self.n_slots, min(_GRAINS) * self.even)
        cheapest, cost = self._prices[key].cheapest(limit)
        if held is None or slack is None:
            return cheapest
        load = self._cell_load(key, held.dims)
        is_near = load <= slack * limit and load * prod(held.dims) <= slack * cost
        return held.dims if is_near else cheapest

    def _cell_load(self, key: Key, dims: tuple[int, ...]) -> float:
        known = self._cell_loads.get((key, dims))
        if known is None:
            known = self._cell_loads[key, dims] = cell_load(self.keys[key], dims)
        return known

    def _lights(self, heavy: Mapping[Key, object]) -> list[float]:
        """The slots' loads of everything but the heavy keys."""
        loads = list(self.floor)
        for (key, one), weight in zip(self.keys.items(), self._weights.values(), strict=True):
            if key not in heavy and one.slot < len(loads):
                loads[one.slot] += weight
        return loads


class _Room:
    """The slots' loads while cells are placed."""

    def __init__(self, loads: list[float], to_come: float) -> None:
        self.loads = loads
        self.limit = _NEARLY * (sum(loads) + to_come) / len(loads)
        self.heap = list(zip(loads, slot_ids(len(loads)), strict=True))
        heapq.heapify(self.heap)

    def place(self, load: float, n_cells: int, homes: Sequence[SlotId] | None) -> list[SlotId]:
        """The slots of cells that weigh the same: their homes where there is room, else the least loaded ones."""
        if homes is None:
            return [self._to_least(load) for _ in range(n_cells)]
        return [self._to_home(load, home) for home in homes]

    def _to_home(self, load: float, home: SlotId) -> SlotId:
        if home >= len(self.loads) or self.loads[home] + load > self.limit:
            return self._to_least(load)
        self.loads[home] += load
        heapq.heappush(self.heap, (self.loads[home], home))
        return home

    def _to_least(self, load: float) -> SlotId:
        heap, loads = self.heap, self.loads
        while heap[0][0] != loads[heap[0][1]]:  # entries of slots that got something since are stale
            heapq.heappop(heap)
        slot = heap[0][1]
        loads[slot] += load
        heapq.heapreplace(heap, (loads[slot], slot))
        return slot


@dataclass(frozen=True)
class _Priced:
    """The shapes of a key that are worth looking at, by ascending load of a cell: each costs less than those before."""

    loads: list[float]
    totals: list[float]
    """The load of all cells together."""
    shapes: list[tuple[int, ...]]
    lightest: tuple[tuple[int, ...], float]
    """The shape with the lightest cells, and its total: where no shape is within the limit."""

    @classmethod
    def of(cls, one: Candidate, n_slots: int, least: float) -> _Priced:
        """Of a key, for limits from `least` on.

        Cells n_i along store i, N together, cost at least m (N^(m-1) counts)^(1/m) + results. So shapes are looked at
        in the order of N, until one is within `least` and costs less than any with more cells can.
        """
        most, m = _CELLS_A_SLOT * n_slots, len(one.counts)
        shapes, n_cells = _shapes(m, most)
        n = min(len(shapes), _FIRST_SHAPES)
        while True:
            loads = (np.array(one.counts) / shapes[:n]).sum(axis=1) + one.results / n_cells[:n]
            totals = loads * n_cells[:n]
            fits = totals[loads <= least]
            further = m * (float(n_cells[n - 1]) ** (m - 1) * prod(one.counts)) ** (1 / m) + one.results
            if n == len(shapes) or (len(fits) and fits.min() < further * (1 - 1e-9)):
                return cls._frontier(loads, totals, shapes)
            n = min(len(shapes), 4 * n)

    @classmethod
    def _frontier(cls, loads: F64, totals: F64, shapes: npt.NDArray[np.int64]) -> _Priced:
        cheaper = np.argsort(totals, kind="stable")
        rank = np.empty(len(totals), dtype=np.int64)
        rank[cheaper] = np.arange(len(totals))
        by_load = np.argsort(loads, kind="stable")
        least = np.minimum.accumulate(rank[by_load])
        steps = np.flatnonzero(np.append(True, least[1:] < least[:-1]))
        chosen = cheaper[least[steps]]
        lightest = int(np.argmin(loads))
        return cls(
            loads[by_load[steps]].tolist(),
            totals[chosen].tolist(),
            [tuple(shape) for shape in shapes[chosen].tolist()],
            (tuple(shapes[lightest].tolist()), float(totals[lightest])),
        )

    def cheapest(self, limit: float) -> tuple[tuple[int, ...], float]:
        """The dimensions with the least total of those whose cells are within the limit, and that total.

        Where none is, those with the lightest cells.
        """
        at = bisect_right(self.loads, limit) - 1
        return (self.shapes[at], self.totals[at]) if at >= 0 else self.lightest


@lru_cache(maxsize=32)
def _shapes(m: int, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All dimensions of at most `most` cells, few cells first, and their cells; beyond 3 stores powers of two only."""
    steps = np.arange(1, most + 1) if m <= 3 else 1 << np.arange(most.bit_length())
    shapes, n_cells = np.ones((1, 0), dtype=np.int64), np.ones(1, dtype=np.int64)
    for _ in range(m):
        n_steps = np.searchsorted(steps, most // n_cells, side="right")
        begins = np.repeat(np.cumsum(n_steps) - n_steps, n_steps)
        added = steps[np.arange(len(begins)) - begins]
        shapes = np.column_stack([np.repeat(shapes, n_steps, axis=0), added])
        n_cells = np.repeat(n_cells, n_steps) * added
    order = np.argsort(n_cells, kind="stable")  # of as many cells the shapes are ascending already
    return shapes[order], n_cells[order]


def _floor(
    families: Sequence[Family],
    keys: Mapping[Key, Candidate],
    light: Sequence[float] | None,
    n_slots: int,
    held: Mapping[Key, Grid],
) -> tuple[float, ...]:
    """The slots' light load without the candidates; where it was not measured, that of the other keys spread evenly."""
    if light is None:
        return (sum(others_load(family) for family in families) / n_slots,) * n_slots
    floor = [float(load) for load in light[:n_slots]] + [0.0] * (n_slots - len(light))
    for key, one in keys.items():
        if key not in held and one.slot < n_slots:
            floor[one.slot] = max(0.0, floor[one.slot] - one.weight)
    return tuple(floor)


def others_load(family: Family) -> float:
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
