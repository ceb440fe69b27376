"""Grids of heavy keys (SHC 3): which cells a row goes to, and which stored rows a cell sees after a change.

The rows of a heavy key are spread over a grid with one dimension for each *use* of a store in its family (a family is
the stores that are joined with each other). A row has a *stripe number*, a hash of what is stored of it; its coordinate
along its own dimension is the stripe number modulo the cells there, and it is repeated to all cells with that
coordinate. So a composite meets in exactly one cell. A cell has a *code*, grid id and cell number, which takes the
place of the key hash in the rows of cells: rows of two cells never meet.

One rule for every change of a grid. A stored slice knows the layout p' and the cell c' it was written for; what was
written while the key was light has the layout without dimensions. The cell c of the layout p sees, of the dimension i,
exactly the rows with

    stripe mod p_i == c_i    and, in slices with    c'_k == c_k mod p'_k    for every other dimension k of p'

where c_k is 0 for a dimension that p does not have. The second condition picks one of the replicas of each row. So any
layout can follow any other, for any numbers of cells; nothing is copied at the change, and no chain of changes has to
be followed.

Invariant (`tests/kernels/test_cells.py`): after any changes, a cell of the current layout sees every row of its stripe
exactly once, and no other. Cost: a dozen NumPy operations on the rows of heavy keys; for the others one binary search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.kernels.hashing import hash_columns, hashable, is_text
from braidstream.kernels.rows import I64, TIME, U64, payload_names, user_name
from braidstream.kernels.sizes import one_chunk

__all__ = ["CELL_BITS", "HeavyKeys", "Layout", "split_code", "store_of", "stripes", "use_name"]

CELL_BITS = 20
"""A code is the grid's id and these bits for the cell."""
_USE = "\x1f"
_LONG = 1024
"""Bytes of a text that count for its stripe number."""


def use_name(store: str, use: int) -> str:
    """The name of a dimension: a store, and a number where a join uses it more than once."""
    return store if use == 0 else f"{store}{_USE}{use}"


def store_of(dimension: str) -> str:
    """The store of a dimension."""
    return dimension.partition(_USE)[0]


def split_code(code: int) -> tuple[int, int]:
    """The grid's id and the cell of a code."""
    return code >> CELL_BITS, code & ((1 << CELL_BITS) - 1)


@dataclass(frozen=True)
class Layout:
    """The grid of a key: its dimensions' names and sizes. Without dimensions: a light key, whose code is its hash."""

    id: int
    hash: int
    names: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()

    @property
    def cells(self) -> int:
        """How many cells it has."""
        return prod(self.dims)

    def code(self, cell: int) -> int:
        """What takes the place of the hash in the rows of a cell."""
        return (self.id << CELL_BITS | cell) if self.dims else self.hash

    def coordinates(self, cell: int) -> dict[str, int]:
        """The coordinate of a cell along each dimension (cells are numbered row by row)."""
        found = np.unravel_index(cell, self.dims) if self.dims else ()
        return {name: int(at) for name, at in zip(self.names, found, strict=True)}

    def source(self, dimension: str) -> str | None:
        """Which of its dimensions holds what `dimension` of another layout wants: the same use, or the first one."""
        store = store_of(dimension)
        return next((name for name in (dimension, store) if name in self.names), None)

    def sees(self, cell: int, other: Layout, other_cell: int, dimension: str) -> bool:
        """Whether a cell sees, of one dimension, what was stored for a cell of another layout: the rule's second part.

        The rows that it sees there are those of `stripe(cell, dimension)`.
        """
        own, source = self.coordinates(cell), other.source(dimension)
        sizes = dict(zip(other.names, other.dims, strict=True))
        theirs = other.coordinates(other_cell)
        return all(at == own.get(name, 0) % sizes[name] for name, at in theirs.items() if name != source)

    def stripe(self, cell: int, dimension: str) -> tuple[int, int]:
        """(modulus, remainder) of the stripe numbers of a cell's rows along a dimension."""
        sizes = dict(zip(self.names, self.dims, strict=True))
        return sizes.get(dimension, 1), self.coordinates(cell).get(dimension, 0)

    def counted_cells(self, dimension: str) -> list[int]:
        """Cells that together hold every row of a dimension once: the others' coordinates are 0."""
        own = self.names.index(dimension)
        stride = prod(self.dims[own + 1 :])
        return [at * stride for at in range(self.dims[own])]

    def producing_cells(self, dimensions: Iterable[str]) -> list[int]:
        """The cells in which a join over some of the dimensions produces: the coordinates of the others are 0."""
        joined = set(dimensions)
        ranges = [range(p if name in joined else 1) for name, p in zip(self.names, self.dims, strict=True)]
        grid = np.meshgrid(*[np.arange(len(r)) for r in ranges], indexing="ij")
        return sorted(np.ravel_multi_index([axis.ravel() for axis in grid], self.dims).tolist())


def stripes(table: pa.Table) -> U64:
    """The stripe number of each row: a hash of its time and its columns, but not of the engine's own.

    The columns are taken by name and NULLs leave no trace, so that it does not matter whether a row was stored before
    or after other queries asked for further columns.
    """
    names = sorted(payload_names(table), key=user_name)
    chosen = [TIME, *(name for name in names if hashable(table.schema.field(name).type))]
    return hash_columns([_beginnings(one_chunk(table, name)) for name in chosen])[0]


def _beginnings(values: pa.Array) -> pa.Array:
    """Of long texts only how they begin: hashing takes a step for each 32 bytes of the longest."""
    if not is_text(values.type) or not len(values) or (pc.max(pc.binary_length(values)).as_py() or 0) <= _LONG:
        return values
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    return pc.binary_slice(values.cast(pa.large_binary() if large else pa.binary()), 0, _LONG)


@dataclass(frozen=True)
class HeavyKeys:
    """The current grids of one family, for routing: where each row of a heavy key is repeated to."""

    layouts: tuple[Layout, ...]
    slots: tuple[Sequence[int], ...]
    """The slot of each cell, for each layout."""

    @classmethod
    def of(cls, placed: Mapping[Layout, Sequence[int]]) -> HeavyKeys:
        """Layouts of distinct keys with the slots of their cells."""
        ordered = sorted(placed, key=lambda layout: layout.hash)
        return cls(tuple(ordered), tuple(placed[layout] for layout in ordered))

    @cached_property
    def hashes(self) -> U64:
        """The heavy hashes, ascending."""
        return np.array([layout.hash for layout in self.layouts], dtype=np.uint64)

    def find(self, hashes: U64) -> tuple[I64, I64]:
        """The rows whose key is heavy, and which key each has."""
        at = np.searchsorted(self.hashes, hashes)
        at[at == len(self.hashes)] = 0
        rows = np.flatnonzero(self.hashes[at] == hashes)
        return rows, at[rows]

    def spread(self, keys: I64, stripe: U64, dimension: int) -> tuple[I64, U64, npt.NDArray[np.uint16]]:
        """Rows repeated along a dimension: which row each is of, its code, and its slot."""
        sizes, inner, copies = self._shape(dimension)
        rows = np.repeat(np.arange(len(keys)), copies[keys])
        key = keys[rows]
        first = np.cumsum(copies[keys]) - copies[keys]
        copy = np.arange(len(rows)) - first[rows]
        coordinate = (stripe % sizes[keys].astype(np.uint64)).astype(np.int64)[rows]
        outside, inside = np.divmod(copy, inner[key])
        cells = (outside * sizes[key] + coordinate) * inner[key] + inside
        codes = (self._ids[key] << CELL_BITS | cells).view(np.uint64)
        return rows, codes, self._slots[self._starts[key] + cells]

    def _shape(self, dimension: int) -> tuple[I64, I64, I64]:
        """Of each key: the cells along the dimension, the cells behind each of them, the cells a row is repeated to."""
        sizes = np.array([layout.dims[dimension] for layout in self.layouts], dtype=np.int64)
        inner = np.array([prod(layout.dims[dimension + 1 :]) for layout in self.layouts], dtype=np.int64)
        return sizes, inner, np.array([layout.cells for layout in self.layouts], dtype=np.int64) // sizes

    @cached_property
    def _ids(self) -> I64:
        return np.array([layout.id for layout in self.layouts], dtype=np.int64)

    @cached_property
    def _starts(self) -> I64:
        counts = np.array([layout.cells for layout in self.layouts], dtype=np.int64)
        return np.cumsum(counts) - counts

    @cached_property
    def _slots(self) -> npt.NDArray[np.uint16]:
        return np.concatenate([np.asarray(slots, dtype=np.uint16) for slots in self.slots])
