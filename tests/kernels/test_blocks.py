"""The block tactic against a nested loop, whatever the order of pushes, flushes and expiries."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.kernels.blocks import BlockJoin, Columns, Matches, block_pairs
from braidstream.model.directory import Directory
from tests.scale import examples


def columns(hashes: list[int], times: list[int], first_row: int = 0) -> Columns:
    rows = np.arange(first_row, first_row + len(hashes), dtype=np.int64)
    return {"hash": np.array(hashes, dtype=np.uint64), "time": np.array(times, dtype=np.int64), "row": rows}


def within(left: int, right: int, windows: tuple[int | None, int | None]) -> bool:
    """The newest of two tuples is at most the older's window later."""
    older_window = windows[1] if left >= right else windows[0]
    return older_window is None or abs(left - right) <= older_window


def nested_loop(left: list[tuple[int, int]], right: list[tuple[int, int]], windows: tuple[int, int]) -> Counter:
    """Every (row, row) of equal hashes within the windows."""
    return Counter(
        (i, j)
        for i, (lh, lt) in enumerate(left)
        for j, (rh, rt) in enumerate(right)
        if lh == rh and within(lt, rt, windows)
    )


def pairs_of(found: list[Matches]) -> Counter:
    return Counter((int(a), int(b)) for one in found for a, b in zip(one.left, one.right, strict=True))


def spread(key: int) -> int:
    """A hash whose leading bits vary with the key."""
    return (key * 0x9E3779B97F4A7C15) & (2**64 - 1)


steps = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 30), max_size=12), st.booleans(), st.booleans()),
    max_size=25,
)


@given(
    steps=steps,
    windows=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    block_rows=st.integers(1, 5),
    theta=st.one_of(st.none(), st.integers(1, 4)),
    skip_bits=st.sampled_from([0, 3]),
)
@settings(max_examples=examples(300), deadline=None)
def test_every_pair_comes_out_exactly_once(
    steps: list[tuple[int, list[int], bool, bool]],
    windows: tuple[int, int],
    block_rows: int,
    theta: int | None,
    skip_bits: int,
) -> None:
    """Time goes on by one a step; after any step blocks may expire while heads are fresh, and fresh tuples may wait."""
    join = BlockJoin(windows, Directory.of(1), theta, block_rows, skip_bits)
    seen: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    found: list[Matches] = []
    for now, (side, keys, do_flush, do_expire) in enumerate(steps):
        hashes = [spread(key) >> skip_bits for key in keys]
        found.append(join.push(side, columns(hashes, [now] * len(keys), len(seen[side]))))
        seen[side].extend((h, now) for h in hashes)
        if do_expire:
            found += [join.expire(one, now + 1 - windows[one]) for one in (0, 1)]
        if do_flush:
            found.append(join.flush())
        if theta is not None:
            assert max(join.sizes()) <= 2 * theta or _is_stuck(join, theta)
    found.append(join.flush())
    assert pairs_of(found) == nested_loop(*seen, windows)


def _is_stuck(join: BlockJoin, theta: int) -> bool:
    """Only mini-groups of a single hash may be too large."""
    large = [mini for mini in join._minis.values() if mini.n_blocks > 2 * theta]
    return all(len({int(h) for side in mini.sides if len(side) for h in side.all()["hash"]}) == 1 for mini in large)


@given(
    left=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=40),
    right=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=40),
    windows=st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.one_of(st.none(), st.integers(0, 9))),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_predicate_without_equality(
    left: list[tuple[int, int]], right: list[tuple[int, int]], windows: tuple[int | None, int | None]
) -> None:
    """`left.value < right.value`: no hash could find these pairs."""
    sides = [
        {**columns([0] * len(side), [t for _, t in side]), "value": np.array([v for v, _ in side], dtype=np.int64)}
        for side in (left, right)
    ]
    found = block_pairs(*sides, windows, lambda a, b: a["value"] < b["value"])
    got = Counter((int(a), int(b)) for x, y in found for a, b in zip(x, y, strict=True))
    assert got == Counter(
        (i, j)
        for i, (lv, lt) in enumerate(left)
        for j, (rv, rt) in enumerate(right)
        if lv < rv and within(lt, rt, windows)
    )


def test_many_blocks_are_compared_in_bounded_steps() -> None:
    """A million pairs, several operations: every one of them is found."""
    n = 1000
    side = columns([7] * n, list(range(n)))
    found = list(block_pairs(side, side))
    assert len(found) > 1
    assert sum(len(a) for a, _ in found) == n * n


def test_an_expiring_block_meets_the_opposite_fresh_tuples() -> None:
    """
    left   [7 at 0, 7 at 1] a full block, joined with nothing
    right  7 at 5, fresh: its head block has room for another
    At time 20 the left block expires; without the rule its pairs with the fresh tuple would be lost.
    """
    join = BlockJoin((10, 10), Directory.of(1), block_rows=2)
    found = [join.push(0, columns([7, 7], [0, 1])), join.push(1, columns([7], [5]))]
    assert pairs_of(found) == Counter()
    assert pairs_of([join.expire(0, before=10)]) == Counter([(0, 0), (1, 0)])
    assert pairs_of([join.flush()]) == Counter()
    assert len(join) == 1


def test_mini_groups_split_when_the_window_grows_and_merge_when_it_shrinks() -> None:
    """The table doubles and halves with the window (WSJ figure 4b)."""
    rng = np.random.default_rng(1)
    join = BlockJoin((1000, 1000), Directory.of(1), theta_blocks=4, block_rows=8)
    sizes = []
    for now, n in enumerate([400] * 5 + [4] * 5):
        for side in (0, 1):
            hashes = rng.integers(0, 2**63, n).astype(np.uint64) << np.uint64(1)
            join.push(side, {"hash": hashes, "time": np.full(n, now), "row": np.arange(n)})
        join.flush()
        for side in (0, 1):
            join.expire(side, before=now - 2)
        sizes.append(join.sizes())
        assert max(sizes[-1]) <= 8
    assert len(sizes[0]) > 4
    assert len(sizes[4]) > len(sizes[0])
    assert len(sizes[-1]) == 1
    assert join.n_merges == join.n_splits


def test_one_hash_cannot_be_split() -> None:
    join = BlockJoin((1000, 1000), Directory.of(1), theta_blocks=1, block_rows=2)
    join.push(0, columns([42] * 50, [0] * 50))
    assert join.sizes() == [25]


@pytest.mark.parametrize("theta", [None, 2])
def test_tuning_looks_at_fewer_pairs_and_finds_the_same(theta: int | None) -> None:
    rng = np.random.default_rng(2)
    join = BlockJoin((10**6, 10**6), Directory.of(1), theta, block_rows=16)
    found = []
    for now in range(20):
        for side in (0, 1):
            keys = rng.integers(0, 200, 50).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            found.append(join.push(side, {"hash": keys, "time": np.full(50, now), "row": np.arange(50) + 50 * now}))
    found.append(join.flush())
    rng = np.random.default_rng(2)
    drawn = rng.integers(0, 200, (20, 2, 50))
    counts = [Counter(drawn[:, side].ravel().tolist()) for side in (0, 1)]
    assert sum(len(one) for one in found) == sum(counts[0][k] * counts[1][k] for k in counts[0])
    every_pair = 1000 * 1000
    assert join.comparisons == every_pair if theta is None else join.comparisons < every_pair / 4
