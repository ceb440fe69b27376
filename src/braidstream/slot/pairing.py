"""Joins without an equality in a slot: the new rows of its cells against the stored ones of the other input.

All rows of such a join are in the cells of one grid (SHC's, with a single key), so a pair meets in one cell. There the
new rows of each input meet the stored rows of the other, slice by slice, and those of the second input the new ones of
the first: a pair comes in the epoch in which its later row arrives, once. Slices are mapped, not copied.

Where the join has a band, each slice is searched in the order of its number (`kernels.pairs`). Segments never change,
so a worker keeps that order for as long as there is room (`MOST_BYTES`): an epoch then sorts what the one before has
stored or merged, not the window.

Invariant: no more than one slice and one batch of pairs is held at a time. Cost: see `kernels.pairs`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np

from braidstream.kernels.join import UNBOUNDED, Composites, Pool, Widths, batch_bytes, limit_of
from braidstream.kernels.pairs import Pairing, Side, Sorted
from braidstream.kernels.rows import I64, Rows
from braidstream.model.stores import Join
from braidstream.slot.pools.cell_pools import CellPools
from braidstream.slot.sharing import CompositeBatch

__all__ = ["MOST_BYTES", "pairs_of"]

MOST_BYTES = 64 << 20
"""What the orders of slices that a worker remembers take at most: 16 bytes a row."""
_MOST = 512
"""How many of them it remembers at most."""


def pairs_of(
    join: Join, cells: CellPools, taken: Sequence[Collection[str]], piece_bytes: int | None
) -> Iterator[tuple[int, CompositeBatch]]:
    """The pairs that this epoch's new rows complete, batch by batch, with the code of their cell."""
    for code, new in cells.new_of_cells(join):
        for place, rows in enumerate(new):
            if rows is None:
                continue
            needles = Side(rows, place, join.inputs[place].bit)
            fits = partial(Pairing.of(join).may_meet, needles)
            for name, stored in cells.slices(join, 1 - place, code, fits):
                pool = Pool(stored, _none_of(stored))
                for found in _met(join, needles, pool, stored, taken, piece_bytes, f"{name}:{code}" if name else ""):
                    yield code, found
            other = new[0]
            if place == 1 and other is not None:
                for found in _met(join, needles, Pool(_none_of(other), other), other, taken, piece_bytes):
                    yield code, found


def _met(
    join: Join,
    needles: Side,
    pool: Pool,
    rows: Rows,
    taken: Sequence[Collection[str]],
    piece_bytes: int | None,
    name: str = "",
) -> Iterator[CompositeBatch]:
    """The pairs of needles and rows, which `pool` has."""
    place, other = needles.place, Side(rows, 1 - needles.place, join.inputs[1 - needles.place].bit)
    own = Pool(_none_of(needles.rows), needles.rows)
    pools = [own, pool] if place == 0 else [pool, own]
    widths = Widths(pools, taken, batch_bytes(piece_bytes))
    pairing = Pairing.of(join, limit_of(pools, piece_bytes))
    for at, found in pairing.within(needles, other, _remembered(pairing, other, name)):
        index = (at, found) if place == 0 else (found, at)
        made = Composites(place, index, 0, partial(_times_and_deadlines, join, pools, index))
        for piece in widths.cut(made):
            yield CompositeBatch(pools, piece)


def _none_of(rows: Rows) -> Rows:
    return Rows(rows.table.slice(0, 0))


def _times_and_deadlines(join: Join, pools: Sequence[Pool], index: Sequence[I64]) -> tuple[I64, I64]:
    times = [pool.holder(at)[0].times[at] for pool, at in zip(pools, index, strict=True)]
    spans = (UNBOUNDED if entry.window_us is None else entry.window_us for entry in join.inputs)
    ends = [own + span for own, span in zip(times, spans, strict=True)]
    return np.maximum(*times), np.minimum(*ends)


_orders: OrderedDict[tuple[str, str, bool], Sorted] = OrderedDict()


def _remembered(pairing: Pairing, side: Side, name: str) -> Sorted | None:
    """A slice in the order of the join's band, remembered by its name; None where it has none, or there is no band."""
    band = pairing.band
    if band is None or not name:
        return None
    key = (name, band.left if side.place == 0 else band.right, band.is_whole)
    if key not in _orders:
        _orders[key] = side.sorted(band)
        while len(_orders) > _MOST or (len(_orders) > 1 and sum(o.nbytes for o in _orders.values()) > MOST_BYTES):
            _orders.popitem(last=False)
    _orders.move_to_end(key)
    return _orders[key]
