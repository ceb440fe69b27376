"""Compiled inner loops and NumPy's give the same, for whatever arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from braidstream.kernels import loops
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.join import _pairs, gather
from braidstream.kernels.matching import Needles, Partners
from braidstream.kernels.routing import _by_slot
from braidstream.kernels.rows import HASH, TIME, Rows, _order, sort_rows

pytest.importorskip("numba")

HASHES = st.sampled_from([0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(0, 40) | st.integers(0, 2**64 - 1)
TIMES = st.sampled_from([-(2**62), 0, 2**62]) | st.integers(-20, 20)
SEEDS = st.integers(0, 2**32 - 1)


def both(compute: Callable[[], Any]) -> tuple[Any, Any]:
    with loops.only("native"):
        assert loops.native(0) is not None
        compiled = compute()
    with loops.only("numpy"):
        return compiled, compute()


def hashes_of(n: int) -> st.SearchStrategy[Any]:
    return arrays.arrays(np.uint64, n, elements=HASHES)


@given(st.integers(0, 60), st.data())
def test_rows_are_ordered_alike(n: int, data: st.DataObject) -> None:
    hashes = data.draw(hashes_of(n))
    times = data.draw(arrays.arrays(np.int64, n, elements=TIMES))
    compiled, plain = both(lambda: _order(hashes, times))
    assert sorted(compiled) == list(range(n))
    assert np.array_equal(hashes[compiled], hashes[plain])
    assert np.array_equal(times[compiled], times[plain])


@given(SEEDS, st.integers(1, 5000), st.integers(1, 2**62), st.booleans())
def test_long_runs_of_close_hashes_are_ordered_whatever_their_times(
    seed: int, n: int, span: int, ascending: bool
) -> None:
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, span, n).astype(np.uint64)
    times = np.arange(n) if ascending else rng.integers(0, 50, n)
    order = both(lambda: _order(hashes, times))[0]
    expected = np.lexsort((times, hashes))
    assert np.array_equal(order, expected)  # of equal rows the first stays first


def rows_of(n: int, data: st.DataObject) -> Rows:
    hashes, times = data.draw(hashes_of(n)), data.draw(arrays.arrays(np.int64, n, elements=TIMES))
    return sort_rows(pa.table({HASH: pa.array(hashes.view(np.int64)), TIME: pa.array(times)}))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 30), st.data())
def test_pairs_are_found_alike_and_no_batch_exceeds_the_limit(
    n_build: int, n_needles: int, limit: int, data: st.DataObject
) -> None:
    build = rows_of(n_build, data)
    needles = np.sort(data.draw(hashes_of(n_needles)))
    low, high = (data.draw(arrays.arrays(np.int64, n_needles, elements=TIMES)) for _ in range(2))

    def found() -> list[tuple[int, int]]:
        batches = list(_pairs(build, needles, low, high, limit))
        assert all(len(rows) <= limit for _, rows in batches)
        return [pair for at, rows in batches for pair in zip(at.tolist(), rows.tolist(), strict=True)]

    compiled, plain = both(found)
    assert compiled == plain
    expected = [
        (i, j)
        for i, h in enumerate(needles.tolist())
        for j, (own, t) in enumerate(zip(build.hashes.tolist(), build.times.tolist(), strict=True))
        if own == h and low[i] <= t <= high[i]
    ]
    assert compiled == expected


@given(st.integers(0, 40), st.integers(0, 40), st.data())
def test_what_has_no_match_is_found_alike(n_build: int, n_needles: int, data: st.DataObject) -> None:
    partners, needles = Partners(rows_of(n_build, data)), np.sort(data.draw(hashes_of(n_needles)))
    low, high = (data.draw(arrays.arrays(np.int64, n_needles, elements=TIMES)) for _ in range(2))
    asked = np.flatnonzero(data.draw(arrays.arrays(np.bool_, n_needles)))
    compiled, plain = both(lambda: partners.unmatched(Needles(needles, low, high, None), asked).tolist())
    own = list(zip(partners.rows.hashes.tolist(), partners.rows.times.tolist(), strict=True))
    assert compiled == plain
    fitting = [
        [at for at, (h, t) in enumerate(own) if h == needles[i] and low[i] <= t <= high[i]] for i in range(n_needles)
    ]
    assert compiled == [i for i in asked if not fitting[i]]
    for spans in both(lambda: partners.ranges(Needles(needles, low, high, None))):
        assert [list(range(first, last)) for first, last in zip(*spans, strict=True)] == fitting


@given(arrays.arrays(np.int64, st.integers(0, 40), elements=TIMES), TIMES, TIMES)
def test_times_between_two_are_found_alike(times: Any, low: int, high: int) -> None:
    compiled, plain = both(lambda: loops.between(times, low, high).tolist())
    assert compiled == plain == [i for i, time in enumerate(times) if low <= time < high]


@given(st.integers(0, 60), st.sets(HASHES, max_size=40), st.none() | TIMES, st.data())
def test_rows_are_gathered_alike(n: int, wanted: set[int], watermark: int | None, data: st.DataObject) -> None:
    hashes = np.sort(data.draw(hashes_of(n)))
    times = np.arange(n)
    rows = Rows(pa.table({HASH: pa.array(hashes.view(np.int64)), TIME: pa.array(times)}))
    asked = np.array(sorted(wanted), dtype=np.uint64)
    compiled, plain = both(lambda: gather(rows, asked, watermark, 10))
    assert compiled.tolist() == plain.tolist()


@given(st.integers(1, 300), st.data())
def test_rows_are_dealt_alike(n_slots: int, data: st.DataObject) -> None:
    slots = np.array(data.draw(st.lists(st.integers(0, n_slots - 1), max_size=60)), dtype=np.uint16)
    compiled, plain = both(lambda: _by_slot(slots, n_slots))
    assert [one.tolist() for one in compiled] == [one.tolist() for one in plain]


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "double": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(max_size=80)),
    "binary": (pa.binary(), st.binary(max_size=200)),
    "large": (pa.large_binary(), st.binary(max_size=100)),
}


@given(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3), st.integers(0, 20), st.data())
def test_keys_are_hashed_alike(kinds: list[str], n: int, data: st.DataObject) -> None:
    columns = []
    for kind in kinds:
        type_, values = VALUES[kind]
        drawn = data.draw(st.lists(st.none() | values, min_size=n + 2, max_size=n + 2))
        columns.append(pa.array(drawn, type_).slice(1, n))
    (compiled, there), (plain, there_too) = both(lambda: hash_columns(columns))
    assert compiled.tolist() == plain.tolist()
    assert there.tolist() == there_too.tolist()


WITHOUT = """
import sys
sys.modules["numba"] = None
from braidstream.kernels import loops
import numpy as np, pyarrow as pa
from braidstream.kernels.rows import HASH, TIME, sort_rows
n = 5000
rows = sort_rows(pa.table({HASH: np.arange(n)[::-1], TIME: np.zeros(n, dtype=np.int64)}))
assert (np.diff(rows.hashes) > 0).all() and loops.native(n) is None
print(loops.missing())
"""


def test_without_numba_numpy_does_it_and_says_so() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "Numba is not there" in ran.stdout


def test_small_arrays_do_not_load_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(loops.VARIABLE, raising=False)
    assert loops.native(1) is None
    assert loops.native(1 << 20) is not None
    monkeypatch.setenv(loops.VARIABLE, "numpy")
    assert loops.native(1 << 20) is None
    assert loops.missing() == "as BRAIDSTREAM_KERNELS says"
