"""Pairs without an equality, against every pair looked at: by sorting and in blocks, to the edges of 64 bits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.kernels.join import LIMIT
from braidstream.kernels.pairs import Pairing, Side
from braidstream.kernels.rows import HASH, MASK, TIME, Rows
from braidstream.model.stores import Comparison, Join, JoinBand, JoinGap, JoinInput

LEAST, MOST = -(1 << 63), (1 << 63) - 1
WHOLE = st.one_of(
    st.none(), st.integers(-8, 8), st.sampled_from([LEAST, LEAST + 1, LEAST + 5, MOST, MOST - 1, MOST - 5])
)
REAL = st.one_of(
    st.none(), st.integers(-8, 8).map(float), st.floats(-9, 9), st.sampled_from([float("nan"), np.inf, -np.inf, 1e300])
)
BOUNDS = st.one_of(st.none(), st.integers(-9, 9))
TIMES = st.integers(0, 20)


def table(draw: Any, numbers: Any) -> Rows:
    rows = draw(
        st.lists(st.tuples(TIMES, numbers, st.sampled_from([None, "a", "b", "c"]), st.integers(0, 1)), max_size=14)
    )
    rows.sort(key=lambda row: row[0])
    kind = pa.int64() if numbers is WHOLE else pa.float64()
    columns = [
        pa.array([7] * len(rows), pa.int64()),
        pa.array([row[0] for row in rows], pa.int64()),
        pa.array([row[3] for row in rows], pa.int64()),
        pa.array([row[1] for row in rows], kind, from_pandas=False),
        pa.array([row[2] for row in rows], pa.string()),
    ]
    return Rows(pa.table(columns, names=[HASH, TIME, MASK, "x", "s"]))


def joined(draw: Any, *, is_whole: bool) -> Join:
    windows = [draw(st.one_of(st.none(), st.integers(0, 12))) for _ in range(2)]
    inputs = tuple(JoinInput(i, w, draw(st.sampled_from([None, 0]))) for i, w in enumerate(windows))
    bands = []
    for _ in range(draw(st.integers(0, 2))):
        low, high = draw(BOUNDS), draw(BOUNDS)
        bands.append(
            JoinBand("x", "x", low, high, draw(st.booleans()), is_whole=is_whole, slack=0 if is_whole else 2.0**-46)
        )
    on = (Comparison("s", draw(st.sampled_from(["<", ">=", "!=", "<=>"])), "s"),) if draw(st.booleans()) else ()
    gaps = (JoinGap(0, 1, *draw(st.tuples(BOUNDS, BOUNDS))),) if draw(st.booleans()) else ()
    return Join("q", inputs, (), pa.schema([]), on=on, gaps=gaps, is_unkeyed=True, bands=tuple(bands))


def expected(join: Join, rows: tuple[Rows, Rows]) -> tuple[Counter[Any], Counter[Any]]:
    """The pairs that must be found, and those that may be."""
    left, right = (one.table.to_pylist() for one in rows)
    must: Counter[Any] = Counter()
    may: Counter[Any] = Counter()
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            fits = in_time(join, a[TIME], b[TIME]) and all(compared(one.operator, a["s"], b["s"]) for one in join.on)
            passes = all(one.bit is None or row[MASK] & 1 for one, row in zip(join.inputs, (a, b), strict=True))
            if fits and passes:
                must[i, j] += all(in_band(band, a["x"], b["x"]) for band in join.bands)
                may[i, j] += all(in_band(band, a["x"], b["x"], near=True) for band in join.bands)
    return +must, +may


def in_time(join: Join, left: int, right: int) -> bool:
    first, second = (entry.window_us for entry in join.inputs)
    apart = right - left
    fits = (first is None or apart <= first) and (second is None or -apart <= second)
    for gap in join.gaps:
        fits = fits and (gap.low_us is None or apart >= gap.low_us) and (gap.high_us is None or apart <= gap.high_us)
    return fits


def in_band(band: JoinBand, left: Any, right: Any, *, near: bool = False) -> bool:
    if left is None or right is None:
        return False
    value = left + right if band.is_sum else left - right
    if isinstance(value, float) and not np.isfinite([left, right]).all():
        return near or (np.isnan(value) and band.high is None)  # NaN is larger than all other numbers
    room = 1e-9 * (1 + abs(left) + abs(right)) if near and isinstance(value, float) else 0
    return (band.low is None or value >= band.low - room) and (band.high is None or value <= band.high + room)


def compared(operator: str, left: str | None, right: str | None) -> bool:
    if operator == "<=>":
        return left == right
    if left is None or right is None:
        return False
    return {"<": left < right, ">=": left >= right, "!=": left != right}[operator]


@pytest.mark.parametrize("is_whole", [True, False], ids=["whole numbers", "doubles"])
@given(st.data(), st.booleans(), st.sampled_from([1, 3, LIMIT]), st.sampled_from([0, 1]))
def test_pairs_are_those_that_every_pair_looked_at_gives(
    is_whole: bool, data: st.DataObject, sorts: bool, limit: int, place: int
) -> None:
    join = joined(data.draw, is_whole=is_whole)
    rows = (table(data.draw, WHOLE if is_whole else REAL), table(data.draw, WHOLE if is_whole else REAL))
    sides = [Side(one, i, join.inputs[i].bit) for i, one in enumerate(rows)]
    base = Pairing.of(join, limit)
    pairing = Pairing(base.low_us, base.high_us, base.bands, base.on, limit, sorts)
    found: Counter[Any] = Counter()
    for at, other in pairing.within(sides[place], sides[1 - place]):
        assert pairing.band is None or len(at) <= limit
        pairs = zip(at.tolist(), other.tolist(), strict=True)
        found.update(pairs if place == 0 else ((b, a) for a, b in pairs))
    must, may = expected(join, rows)
    assert not must - found
    assert not found - may
