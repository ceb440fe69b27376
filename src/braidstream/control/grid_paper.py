"""SHC's rule (3.2): which keys are heavy, which grids they get, and where new cells go.

A key is heavy when N(b) > N/p, light again when N(b) < (1/p - epsilon) N, and stays what it was in between. Its desired
dimensions are p_i(b) = n_i (p / OUT_H)^(1/m) with n_i its tuples in store i, m the stores, OUT_H = sum of the heavy
keys' results. A dimension is doubled while it is below half of what is desired and halved while above twice; a key that
turns heavy starts with the nearest powers of two. Cells that stay keep their slots; new ones go to the slot with the
fewest tasks, every slot having one task for its light keys.

Where the formula comes from, for m stores (the paper has m = 2): p(b) = p OUT(b) / OUT_H cells are shared out by work.
The tuples a cell receives, sum of n_i / p_i, under prod p_i = p(b) are fewest where all n_i / p_i are equal (Lagrange);
calling that lambda, p_i = n_i / lambda and lambda^m = prod n_i / p(b) = OUT_H / p. So p_i = n_i (p / OUT_H)^(1/m), and
a cell receives m (OUT_H / p)^(1/m) tuples: for m = 2 the paper's |R(b)| sqrt(p) / sqrt(OUT_H) and O(sqrt(OUT / p)).

A dimension cannot be below 1. For a primary key with 1 tuple and 1,000 foreign ones the formula desires 0.09 x 89 at
p = 8, where the paper (4.3.2) wants 1 x p(b). So a dimension that is desired below 1/2, which halving cannot reach, is
taken to be 1 and the others are desired anew with p(b) among them. From 1/2 up the formula stands as it is: in the
running example (3.3) it desires 0.707 x 2.828.

Invariant: dimensions are powers of two, within a factor of 2 of what is desired; a constant distribution causes no
change after the first, since doubling stops at half of the desired and halving at twice of it. At most
1 / (1/p - epsilon) keys are heavy. Cost: O(candidates + cells log slots).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import floor, log2, prod

from braidstream.model.grids import Candidate, Change, Family, Grid, GridPlan, Regrid, coordinates
from braidstream.model.numbers import SlotId, slot_ids

__all__ = ["desired_dims", "heavy_keys", "plan", "stepped"]


def plan(families: Sequence[Family], n_slots: int, grids: Sequence[Grid], next_id: int, epsilon: float) -> GridPlan:
    """The grids of all families by the paper's rule."""
    session = _Session(n_slots, grids, next_id)
    for family in families:
        session.consider(family, epsilon)
    known = {family.name for family in families}
    session.kept.extend(session.homed(grid) for grid in grids if grid.family not in known)
    return GridPlan(tuple(session.kept), session.next_id, tuple(session.changes))


def heavy_keys(family: Family, n_slots: int, heavy_now: Iterable[int], epsilon: float) -> list[Candidate]:
    """The heavy keys: above N/p, or heavy before and not below (1/p - epsilon) N."""
    now, above, below = set(heavy_now), family.tuples / n_slots, (1 / n_slots - epsilon) * family.tuples
    return [one for one in family.candidates if one.tuples > above or (one.hash in now and one.tuples >= below)]


def desired_dims(candidate: Candidate, heavy_results: float, n_slots: int) -> tuple[float, ...]:
    """The desired dimensions, not rounded; 1 where less than half is desired."""
    share = n_slots * candidate.results / heavy_results if heavy_results > 0 else 0.0
    free = [i for i, count in enumerate(candidate.counts) if count > 0]
    dims = [1.0] * len(candidate.counts)
    while free and share > 0:
        scale = (share / prod(candidate.counts[i] for i in free)) ** (1 / len(free))
        wanted = {i: candidate.counts[i] * scale for i in free}
        large = [i for i in free if wanted[i] >= 0.5]
        if len(large) == len(free):
            return tuple(wanted.get(i, 1.0) for i in range(len(dims)))
        free = large
    return tuple(dims)


def stepped(dims: Sequence[int], desired: Sequence[float]) -> tuple[int, ...]:
    """Each dimension doubled while below half of the desired one, halved while above twice."""
    return tuple(_stepped(now, wanted) for now, wanted in zip(dims, desired, strict=True))


def _stepped(now: int, wanted: float) -> int:
    while now < wanted / 2:
        now *= 2
    while now > 2 * wanted and now > 1:
        now = max(1, now // 2)
    return now


def _nearest(wanted: float) -> int:
    """The nearest power of two, by ratio; in the middle (up to rounding) the smaller one."""
    return 1 << max(0, floor(log2(wanted) + 0.5 - 1e-9)) if wanted > 0 else 1


class _Session:
    """One decision: the tasks of each slot so far, and the grids kept and changed."""

    def __init__(self, n_slots: int, grids: Sequence[Grid], next_id: int) -> None:
        self.n_slots, self.grids, self.next_id = n_slots, grids, next_id
        held = Counter(slot for grid in grids for slot in grid.slots)
        self.tasks = [1 + held[slot] for slot in slot_ids(n_slots)]
        self.heap = [(tasks, slot) for slot, tasks in zip(slot_ids(n_slots), self.tasks, strict=True)]
        heapq.heapify(self.heap)
        self.kept: list[Grid] = []
        self.changes: list[Change] = []

    def consider(self, family: Family, epsilon: float) -> None:
        """The grids of one family; those released first leave room for new ones."""
        before = {grid.hash: grid for grid in self.grids if grid.family == family.name}
        heavy = heavy_keys(family, self.n_slots, before, epsilon)
        results = sum(one.results for one in heavy)
        known, hashes = {one.hash: one.tuples for one in family.candidates}, {one.hash for one in heavy}
        for grid in (grid for key, grid in before.items() if key not in hashes):
            self._release(grid.slots)
            self._light(family, grid, known.get(grid.hash, 0.0))
        for one in heavy:
            self._grid(family, one, before.get(one.hash), desired_dims(one, results, self.n_slots))

    def homed(self, grid: Grid) -> Grid:
        """The grid with no cell at a slot that is gone."""
        slots = tuple(slot if slot < self.n_slots else self._fewest() for slot in grid.slots)
        return grid if slots == grid.slots else replace(grid, slots=slots)

    def _grid(self, family: Family, one: Candidate, old: Grid | None, desired: Sequence[float]) -> None:
        dims = stepped(old.dims, desired) if old else tuple(map(_nearest, desired))
        if old and dims == old.dims:
            home = self.homed(old)
            self.kept.append(home)
            if home is not old:
                self._changed(family, one, home, desired, f"slots of {_name(one)} are gone; their cells move")
            return
        placed = dict(old.cells()) if old else {}
        self._release([slot for cell, slot in placed.items() if not _within(cell, dims)])
        slots = tuple(self._kept(placed.get(cell)) for cell in coordinates(dims))
        grid = Grid(self.next_id, family.name, one.hash, dims, slots, one.label)
        self.next_id += 1
        self.kept.append(grid)
        came = f"grid {old.shape} becomes" if old else "heavy, grid"
        self._changed(family, one, grid, desired, f"{_name(one)}: {came} {grid.shape}")

    def _changed(self, family: Family, one: Candidate, grid: Grid, desired: Sequence[float], reason: str) -> None:
        figures = {"share": one.tuples / max(family.tuples, 1e-9), "heavy_above": 1 / self.n_slots}
        figures |= {f"desired_{i}": wanted for i, wanted in enumerate(desired)}
        self.changes.append(Change(Regrid(family.name, one.hash, grid), figures, reason))

    def _light(self, family: Family, grid: Grid, tuples: float) -> None:
        figures = {"share": tuples / max(family.tuples, 1e-9), "heavy_above": 1 / self.n_slots}
        reason = f"key {grid.label or grid.hash}: light again"
        self.changes.append(Change(Regrid(family.name, grid.hash, None), figures, reason))

    def _kept(self, slot: SlotId | None) -> SlotId:
        return slot if slot is not None and slot < self.n_slots else self._fewest()

    def _fewest(self) -> SlotId:
        while self.heap[0][0] != self.tasks[self.heap[0][1]]:  # what it had before it got or lost a task
            heapq.heappop(self.heap)
        slot = self.heap[0][1]
        self.tasks[slot] += 1
        heapq.heapreplace(self.heap, (self.tasks[slot], slot))
        return slot

    def _release(self, slots: Iterable[int]) -> None:
        for slot in slots:
            if slot < self.n_slots:
                self.tasks[slot] -= 1
                heapq.heappush(self.heap, (self.tasks[slot], SlotId(slot)))


def _within(cell: Sequence[int], dims: Sequence[int]) -> bool:
    return all(c < n for c, n in zip(cell, dims, strict=True))


def _name(one: Candidate) -> str:
    return f"key {one.label or one.hash}"
