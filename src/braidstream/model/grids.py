"""Grids: how one heavy key is spread over many slots (SHC 3.2), as values.

A *family* is a set of stores that are joined with each other. A heavy key of a family has a grid with one dimension a
store; a row of store i belongs to one of `dims[i]` stripes and goes to every cell with that coordinate in dimension i.
A composite therefore meets in exactly one cell. Dimensions may be any numbers, not only powers of two.

This file has the values: `Grid`, what is known of a family's keys (`Candidate`, `Family`), and what follows from it
(`Regrid`, `Change`, `GridPlan`). The rules are `grid_paper` and `grid_even`; `regrid.decide` asks one of them.

Units. All counts of one decision cover the same span (the stream so far, or the windows), and so must the slots' light
load: *load* is tuples received plus matches produced, the measure of SHC's bounds and of ours. Who wants a match to
weigh less than a tuple gives matches, a candidate's and those in the light load, in tuples' worth.

Invariant: `len(slots) == prod(dims)`, cells in row-major order. A grid's id is unique in a flow and never used again;
other dimensions mean another id, the same dimensions at other slots do not. Cost: O(cells).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod
from typing import ClassVar

from braidstream.errors import InputError
from braidstream.model.numbers import FIRST_SLOT, SlotId

__all__ = ["Candidate", "Change", "Family", "Grid", "GridPlan", "Regrid", "cell_load", "coordinates", "slot_loads"]


@dataclass(frozen=True)
class Grid:
    """The cells of one heavy key: `dims[i]` stripes of store i, and the slot of each cell in row-major order."""

    id: int
    family: str
    hash: int
    """The key's hash, unsigned."""
    dims: tuple[int, ...]
    slots: tuple[SlotId, ...]
    label: str = ""
    """The key's value as people know it."""

    def __post_init__(self) -> None:
        if not self.dims or min(self.dims) < 1 or len(self.slots) != prod(self.dims):
            raise InputError(
                f"a grid of dimensions {self.dims} with {len(self.slots)} slots",
                "dimensions of at least 1 and one slot for each cell",
                "give prod(dims) slots, in row-major order",
            )

    @property
    def key(self) -> tuple[str, int]:
        """What the grid is for: the family and the hash."""
        return self.family, self.hash

    @property
    def shape(self) -> str:
        """The dimensions for people, such as 2x4."""
        return "x".join(map(str, self.dims))

    def cells(self) -> Iterator[tuple[tuple[int, ...], SlotId]]:
        """Each cell's coordinates and slot."""
        return zip(coordinates(self.dims), self.slots, strict=True)

    def as_json(self) -> dict[str, object]:
        """A plain form for people's tools."""
        return {**asdict(self), "dims": list(self.dims), "slots": list(self.slots)}


@dataclass(frozen=True)
class Candidate:
    """A frequent key of a family: its tuples in each store, and the slot of its group, where it is while light."""

    hash: int
    counts: tuple[float, ...]
    slot: SlotId = FIRST_SLOT
    label: str = ""
    matches: float | None = None
    """Its matches in the span of the counts, where measured; None: every tuple meets every other."""

    @property
    def tuples(self) -> float:
        """N(b): its tuples in all stores."""
        return sum(self.counts)

    @property
    def results(self) -> float:
        """OUT(b): its matches, measured or those of the Cartesian product."""
        return float(prod(self.counts)) if self.matches is None else self.matches

    @property
    def weight(self) -> float:
        """Its load while it is light: every tuple is received once."""
        return self.tuples + self.results


@dataclass(frozen=True)
class Family:
    """What is known of one family's keys: totals of its stores, and its most frequent keys."""

    name: str
    totals: tuple[float, ...]
    candidates: tuple[Candidate, ...]

    @property
    def tuples(self) -> float:
        """N: all tuples of the span."""
        return sum(self.totals)


@dataclass(frozen=True)
class Regrid:
    """Give a key of a family another grid, or none: then it is light again. An equal id means that cells move only."""

    kind: ClassVar[str] = "regrid"
    family: str
    hash: int
    grid: Grid | None

    def as_json(self) -> dict[str, object]:
        """A plain form."""
        return {
            "kind": self.kind,
            "family": self.family,
            "hash": self.hash,
            "grid": self.grid.as_json() if self.grid else None,
        }


@dataclass(frozen=True)
class Change:
    """One regrid, with the figures it follows from and the reason in words."""

    regrid: Regrid
    figures: Mapping[str, float]
    reason: str


@dataclass(frozen=True)
class GridPlan:
    """All grids from now on, the next free id, and what changed. Without changes the grids are those of before."""

    grids: tuple[Grid, ...]
    next_id: int
    changes: tuple[Change, ...] = ()
    figures: Mapping[str, float] | None = None
    """The expected balance before and after: largest and mean load of the slots."""

    @property
    def regrids(self) -> tuple[Regrid, ...]:
        """The instructions."""
        return tuple(change.regrid for change in self.changes)


def coordinates(dims: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The coordinates of the cells, in row-major order."""
    return product(*(range(n) for n in dims))


def cell_load(candidate: Candidate, dims: Sequence[int]) -> float:
    """The expected load of one cell: a stripe of every store, and its share of the matches."""
    received = sum(count / n for count, n in zip(candidate.counts, dims, strict=True))
    return received + candidate.results / prod(dims)


def slot_loads(floor: Sequence[float], gridded: Sequence[tuple[Candidate, Grid]]) -> list[float]:
    """The expected load of each slot: `floor`, and the cells of the grids."""
    loads = list(floor)
    for candidate, grid in gridded:
        load = cell_load(candidate, grid.dims)
        for slot in grid.slots:
            if slot < len(loads):
                loads[slot] += load
    return loads
