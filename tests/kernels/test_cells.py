"""The rule of grids, alone: after any changes of layout a cell sees every row of its stripe once, and no other."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.rows import HASH, TIME
from braidstream.kernels.stripes import HeavyKeys, Layout, split_code, store_of, stripes, use_name
from tests.scale import examples

NAMES = ("R", "R" + use_name("", 1), "S", "T")


@st.composite
def layouts(draw: st.DrawFn) -> list[Layout]:
    """Layouts that follow each other: light ones, and grids over changing families of any size."""
    made = []
    for i in range(draw(st.integers(1, 6))):
        names = tuple(sorted(draw(st.sets(st.sampled_from(NAMES), max_size=3))))
        names = tuple(n for n in names if store_of(n) in names)  # a second use only beside the first
        dims = tuple(draw(st.integers(1, 5)) for _ in names)
        made.append(Layout(i, 99, names, dims))
    return made


@settings(max_examples=examples(300), deadline=None)
@given(layouts(), st.integers(0, 2**32))
def test_a_cell_sees_every_row_of_its_stripe_once(changes: list[Layout], seed: int) -> None:
    """Rows are written under each layout in turn; the cells of the last one see all that was written so far."""
    rng = np.random.default_rng(seed)
    slices: Counter[tuple[Layout, int, str, tuple[int, int]]] = Counter()
    rows: dict[str, list[tuple[int, int]]] = {name: [] for name in ("R", "S", "T")}
    for layout in changes:
        for store, known in rows.items():
            for _ in range(3):
                row = (len(known), int(rng.integers(1 << 20)))
                dimensions = [name for name in layout.names if store_of(name) == store]
                if layout.names and not dimensions:
                    continue  # a store that this family does not have gets no rows in its grid
                known.append(row)
                for cell, dimension in product(range(layout.cells), dimensions or [store]):
                    modulus, remainder = layout.stripe(cell, dimension)
                    if row[1] % modulus == remainder:
                        slices[layout, cell, dimension, row] += 1
    current = changes[-1]
    for cell, dimension in product(range(current.cells), current.names or rows):
        modulus, remainder = current.stripe(cell, dimension)
        seen: Counter[tuple[int, int]] = Counter()
        for (layout, old_cell, source, row), times in slices.items():
            if source == (layout.source(dimension) if layout.names else store_of(dimension)) and current.sees(
                cell, layout, old_cell, dimension
            ):
                seen[row] += times * (row[1] % modulus == remainder)
        assert +seen == Counter(row for row in rows[store_of(dimension)] if row[1] % modulus == remainder)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4))
def test_any_two_rows_of_a_key_meet_in_one_cell(shapes: list[tuple[int, int, int]]) -> None:
    placed = {Layout(i, 10 * i, ("R", "S", "T"), dims): range(prod(dims)) for i, dims in enumerate(shapes)}
    heavy = HeavyKeys.of(placed)
    rng = np.random.default_rng(0)
    keys = rng.integers(0, len(shapes), 20)
    numbers = [rng.integers(0, 2**63, 20).astype(np.uint64) for _ in range(3)]
    homes = []
    for dimension in range(3):
        rows, codes, slots = heavy.spread(keys, numbers[dimension], dimension)
        assert [split_code(int(code))[1] for code in codes] == slots.tolist()
        assert np.bincount(rows).tolist() == [prod(shapes[k]) // shapes[k][dimension] for k in keys]
        homes.append([set(codes[rows == row].tolist()) for row in range(20)])
    for a, b, c in product(range(20), repeat=3):
        met = homes[0][a] & homes[1][b] & homes[2][c]
        assert len(met) == (keys[a] == keys[b] == keys[c])


def test_only_heavy_hashes_are_found() -> None:
    heavy = HeavyKeys.of({Layout(1, 2**64 - 1, ("R",), (2,)): [0, 1], Layout(2, 5, ("R",), (1,)): [1]})
    rows, keys = heavy.find(np.array([4, 5, 6, 2**64 - 1, 5], dtype=np.uint64))
    assert rows.tolist() == [1, 3, 4]
    assert [heavy.layouts[key].id for key in keys] == [2, 1, 2]


def test_the_stripe_number_depends_on_what_is_stored_and_not_on_what_else_could_be() -> None:
    """Not on the engine's columns, nor on the order of columns, nor on columns that are NULL; but on values."""
    plain = pa.table({HASH: [1, 2], TIME: [5, 5], "v": [1, 2], "w": ["x", "y"]})
    wide = pa.table({HASH: [7, 7], "w": ["x", "y"], "u": pa.array([None, None], pa.int32()), "v": [1, 2], TIME: [5, 5]})
    assert stripes(plain).tolist() == stripes(wide).tolist()
    assert len({*stripes(plain).tolist(), *stripes(plain.set_column(2, "v", pa.array([2, 1]))).tolist()}) == 4


def test_cells_that_count_and_cells_that_produce() -> None:
    layout = Layout(1, 9, ("R", "S", "T"), (2, 3, 2))
    assert layout.counted_cells("S") == [0, 2, 4]
    assert layout.producing_cells(["R", "S"]) == [0, 2, 4, 6, 8, 10]
    assert layout.producing_cells(["R", "S", "T"]) == list(range(12))
