"""The grid of a join without an equality: all rows have one key, which is spread over all slots (SHC 3.2).

The dimensions are those with the least largest load of a slot, where a cell's load is the rows that it receives, a
stripe of each input, and its share of the pairs. Pairs are many and cheap (`PAIR`), so that for all but small windows
every slot gets a cell: a x b = p with a : b as near to |R| : |S| as the divisors of p allow, which is SHC's optimum
sqrt(|R| |S| / p) rows a side. Without counts yet the inputs count as equal.

Unlike the grid of a heavy key it is there from the beginning, and stays as long as the join. It changes where another
one has `MARGIN` less load, or as much and so many fewer rows: after slots came or went, or when the inputs turn out to
be of other sizes.

Invariant: cells are at distinct slots below p. Cost: O(shapes of at most p cells), some thousand for a thousand slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from braidstream.model.grids import Change, Grid, Regrid
from braidstream.model.numbers import slot_ids

__all__ = ["MARGIN", "PAIR", "dims_for", "relaid"]

PAIR = 1 / 500
"""What a pair costs in the worth of a row: some nanoseconds in a block, where a row is routed and stored in a few
microseconds."""
MARGIN = 0.15
_EQUAL = 1e5
"""The rows that an input counts as before any is known."""


def dims_for(counts: Sequence[float], n_slots: int) -> tuple[int, ...]:
    """The dimensions with the least load, and of several with it those with the fewest copies of rows."""
    shapes = _shapes(len(counts), n_slots)
    loads = _loads(_known(counts), shapes)
    best = np.flatnonzero(loads <= loads.min() * (1 + 1e-9))
    fewest = best[np.argmin(shapes[best].sum(axis=1))]
    return tuple(int(n) for n in shapes[fewest])


def relaid(
    family: str, hash_: int, counts: Sequence[float], n_slots: int, now: Grid | None, next_id: int
) -> Change | None:
    """The grid of a family where it has none, or one with too much load; None where it stays as it is."""
    dims = dims_for(counts, n_slots)
    made = Grid(next_id, family, hash_, dims, tuple(slot_ids(n_slots)[: prod(dims)]), "all rows")
    load = _load(counts, made)
    if now is None:
        return Change(Regrid(family, hash_, made), {"load": load}, "a join without an equality has all rows on a grid")
    before = _load(counts, now)
    rows_before, rows = (_load(counts, grid, pair=0.0) for grid in (now, made))
    is_better = load < (1 - MARGIN) * before or (load <= before and rows < (1 - MARGIN) * rows_before)
    if max(now.slots) < n_slots and not is_better:
        return None
    figures = {"load_before": before, "load": load, "rows_before": rows_before, "rows": rows, "slots": float(n_slots)}
    return Change(Regrid(family, hash_, made), figures, f"{made.shape} cells have less load than {now.shape}")


def _load(counts: Sequence[float], grid: Grid, pair: float = PAIR) -> float:
    """The largest load of a slot, where a pair counts as so much of a row."""
    (cell,) = _loads(_known(counts), np.array([grid.dims]), pair)
    return float(cell) * max(Counter(grid.slots).values())


def _known(counts: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array([max(count, 1.0) for count in counts] if any(counts) else [_EQUAL] * len(counts))


def _loads(
    counts: npt.NDArray[np.float64], shapes: npt.NDArray[np.int64], pair: float = PAIR
) -> npt.NDArray[np.float64]:
    """The load of a cell of each shape."""
    return np.asarray((counts / shapes).sum(axis=1) + pair * counts.prod() / shapes.prod(axis=1))


@lru_cache(maxsize=16)
def _shapes(m: int, most: int) -> npt.NDArray[np.int64]:
    return np.array(list(_all_shapes(m, most)), dtype=np.int64)


def _all_shapes(m: int, most: int) -> Iterator[tuple[int, ...]]:
    """All dimensions with at most so many cells."""
    if m == 0:
        yield ()
        return
    for first in range(1, most + 1):
        yield from ((first, *rest) for rest in _all_shapes(m - 1, most // first))
