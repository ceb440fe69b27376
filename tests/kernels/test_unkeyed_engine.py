"""Joins without an equality on the engine without Spark, against the nested loop: any predicate, crashes, other slots.

`v` numbers the rows, `k` and `j` are long or text with NULLs; predicates are bands, comparisons, what only Spark can
evaluate (here DuckDB), several of them, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.epoch.regridder import GridRouter
from braidstream.kernels import pairs
from braidstream.kernels.families import is_unkeyed_family
from braidstream.kernels.hashing import UNKEYED_HASH
from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case, two_streams
from braidstream.model.stores import spillable
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import harness_of
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import QUIET, leftovers, often_compacted
from tests.scale import examples

SOME = settings(max_examples=examples(80), deadline=None, suppress_health_check=QUIET)
FEW = settings(SOME, max_examples=examples(30))
SLOTS = st.integers(1, 6)
CASES = two_streams(max_rows=14)
Check = Callable[[oracle.Composite], Any]


def is_long(case: Case, column: str) -> bool:
    return bool(pa.types.is_int64(case.schema.field(column).type))


def compared(*values: Any) -> bool:
    return all(value is not None for value in values)


def predicates(case: Case) -> list[tuple[str, Check]]:
    """All kinds of them over the columns of a case."""
    found: list[tuple[str, Check]] = [
        ("ABS(R.v - S.v) < 4", lambda c: abs(c["R"]["v"] - c["S"]["v"]) < 4),
        ("R.v < S.v", lambda c: c["R"]["v"] < c["S"]["v"]),
        ("R.v + S.v >= 12.5", lambda c: c["R"]["v"] + c["S"]["v"] >= 12.5),
        ("S.v BETWEEN R.v - 1 AND R.v + 3", lambda c: c["R"]["v"] - 1 <= c["S"]["v"] <= c["R"]["v"] + 3),
        ("R.v <> S.v", lambda c: c["R"]["v"] != c["S"]["v"]),
        ("R.v * S.v > 20", lambda c: c["R"]["v"] * c["S"]["v"] > 20),
        ("CAST(R.v AS DOUBLE) / 4 < S.v - 2", lambda c: c["R"]["v"] / 4 < c["S"]["v"] - 2),
        ("R.v % 2 = 0", lambda c: c["R"]["v"] % 2 == 0),
        ("R.v = 3 OR S.v > R.v", lambda c: c["R"]["v"] == 3 or c["S"]["v"] > c["R"]["v"]),
        ("R.k <=> S.k", lambda c: c["R"]["k"] == c["S"]["k"]),
        ("R.k <= S.k", lambda c: compared(c["R"]["k"], c["S"]["k"]) and c["R"]["k"] <= c["S"]["k"]),
    ]
    if is_long(case, "j"):
        found.append(("R.j - 1 < S.j", lambda c: compared(c["R"]["j"], c["S"]["j"]) and c["R"]["j"] - 1 < c["S"]["j"]))
    return found


def query_of(case: Case, data: st.DataObject) -> tuple[str, Counter[Any]]:
    """A query without an equality, and its results."""
    chosen = data.draw(st.lists(st.sampled_from(predicates(case)), max_size=3), label="predicates")
    where = " AND ".join(f"({text})" for text, _ in chosen)
    text = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)}" + (f" WHERE {where}" if where else "")
    return text, stories.joined(case.streams, [], [check for _, check in chosen])


@SOME
@given(CASES, SLOTS, st.integers(1, 16), st.data())
def test_joins_without_an_equality_survive_crashes_and_other_slots(
    case: Case, slots: int, groups: int, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    regridder = data.draw(st.sampled_from([None, GridRouter(), "restless"]), label="regridder")
    if regridder == "restless":
        regridder = RestlessGrids([int(UNKEYED_HASH)], data.draw(st.integers(0, 99)), max_dim=3)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, slots=slots, groups=groups, regridder=regridder)
        stories.live_through(harness, case, data)
        assert stories.found(harness, "q") == expected
        assert leftovers(harness) == []


@FEW
@given(CASES, SLOTS, st.data())
def test_queries_without_an_equality_come_and_go_beside_one_with_a_key(
    case: Case, slots: int, data: st.DataObject
) -> None:
    """A stream joined with itself has two dimensions; what comes later sees what arrives later."""
    first, expected = query_of(case, data)
    own = "SELECT a.v AS av, b.v AS bv FROM R [RANGE 5 SECONDS] a, R [RANGE 9 SECONDS] b WHERE a.v < b.v + 2"
    keyed = f"SELECT R.v AS rv, S.v AS sv FROM {stories.from_clause(case)} WHERE R.v = S.v"
    at = data.draw(st.integers(0, len(case.epochs)), label="submitted before")
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": first, "k": keyed}, slots=slots, regridder=GridRouter())
        for number, epoch in enumerate(case.epochs):
            if number == at:
                harness.submit("own", own)
            harness.epoch(tables(case, epoch))
        if at < len(case.epochs):
            harness.withdraw("q")
        assert stories.found(harness, "q") == expected
        later = [row for epoch in case.epochs[at:] for row in epoch["R"]]
        twice = [oracle.Stream(a, later, w * stories.SECOND) for a, w in (("a", 5), ("b", 9))]
        pairs_ = oracle.join(twice, [], [lambda c: c["a"]["v"] < c["b"]["v"] + 2])
        if at < len(case.epochs):
            assert stories.found(harness, "own") == Counter(oracle.project(pairs_, ["a.v", "b.v"]))
        both = oracle.join(case.streams, [("R.v", "S.v")])
        assert stories.found(harness, "k") == Counter(oracle.project(both, ["R.v", "S.v"]))


@FEW
@given(CASES, st.integers(1, 3), SPILLS, st.integers(0, 99), st.data())
def test_budget_and_controller_leave_them_whole(
    case: Case, slots: int, spills: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    """What they join is never pushed; what others join beside them is, whatever group their key is in."""
    text, expected = query_of(case, data)
    keyed = f"SELECT R.v AS rv, S.v AS sv FROM {stories.from_clause(case)} WHERE R.v = S.v"
    with TemporaryDirectory() as folder, often_compacted():
        options = {**spills, "controller": restless(seed)}
        harness = harness_of(folder, case, {"q": text, "k": keyed}, slots=slots, groups=2, **options)
        stories.live_through(harness, case, data)
        harness.finish()
        assert stories.found(harness, "q") == expected
        both = oracle.join(case.streams, [("R.v", "S.v")])
        assert stories.found(harness, "k") == Counter(oracle.project(both, ["R.v", "S.v"]))
        pushed = spillable(harness.plan.stores, harness.plan.joins)
        assert pushed == {store.name for store in harness.plan.stores if not store.is_unkeyed}


def test_intervals_say_how_long_rows_are_kept(tmp_path: Path) -> None:
    text = "SELECT A.x AS a, B.x AS b FROM A, B WHERE A.x <> B.x AND B.ts BETWEEN A.ts AND A.ts + INTERVAL 2 SECONDS"
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text})
    assert [entry.window_us for entry in harness.plan.joins[0].inputs] == [2_000_000, 0]
    for second in range(9):
        harness.epoch({"A": rows(second, 1, 2), "B": rows(second, 1, 2)})
    held = {store.stream: store.name for store in harness.plan.stores}
    live = harness.manifest.segments
    assert sum(s.rows for s in live if s.store == held["B"]) < sum(s.rows for s in live if s.store == held["A"]) < 2 * 9
    moments = [(second * 1_000_000 + x, x) for second in range(9) for x in (1, 2)]
    expected = Counter((x, y) for at, x in moments for then, y in moments if x != y and 0 <= then - at <= 2_000_000)
    assert stories.found(harness, "q") == expected


SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
BAND = "SELECT A.x AS a, B.x AS b FROM A [RANGE 100 SECONDS], B [RANGE 100 SECONDS] WHERE ABS(A.x - B.x) <= 1"


def rows(second: int, *numbers: int) -> pa.Table:
    table = {"x": list(numbers), "s": [str(n) for n in numbers], "ts": [second * 1_000_000 + n for n in numbers]}
    return pa.table(table, schema=SCHEMA)


def grid_of(harness: QueryHarness) -> tuple[tuple[int, ...], int]:
    (grid,) = (grid for grid in harness.manifest.grids if is_unkeyed_family(grid.family))
    return grid.dims, len(set(grid.slots))


def test_the_grid_is_there_from_the_start_and_laid_out_anew_over_other_slots(tmp_path: Path) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": BAND}, slots=4, regridder=GridRouter())
    assert grid_of(harness) == ((2, 2), 4)
    harness.epoch({"A": rows(0, *range(40)), "B": rows(0, *range(40))})
    for slots, dims in ((6, {(2, 3), (3, 2)}), (1, {(1, 1)}), (8, {(2, 4), (4, 2)})):
        harness.restart(slots=slots)
        found, n_slots = grid_of(harness)
        assert found in dims
        assert n_slots == slots
        harness.epoch({"A": rows(slots, slots), "B": rows(slots)})
    expected = Counter((a, b) for a in [*range(40), 6, 1, 8] for b in range(40) if abs(a - b) <= 1)
    assert stories.found(harness, "q") == expected


def test_the_grid_follows_the_sizes_of_the_streams(tmp_path: Path) -> None:
    """Of a stream with few rows every slot has all of them, and the other is not repeated."""
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": BAND}, slots=4, regridder=GridRouter())
    harness.epoch({"A": rows(0, *range(3)), "B": rows(0, *range(3000))})
    assert grid_of(harness) == ((1, 4), 4)
    assert any("cells have less load" in one.reason for one in harness.runner.flow.decider.decisions)


@pytest.mark.parametrize("predicate", ["ABS(A.x - B.x) <= 1", "A.s < B.s"], ids=["band", "blocks"])
def test_an_epoch_looks_at_its_new_rows_only(tmp_path: Path, predicate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of one row looks at one row's candidates, however many there are in the windows."""
    looked: list[int] = []
    kept, holds = pairs.Pairing._kept, pairs.Pairing._holds

    def candidates(self: Any, needles: Any, rows_: Any, at: Any, found: Any) -> Any:
        looked.append(len(at) if self.band is not None else 0)
        return kept(self, needles, rows_, at, found)

    def compared_(self: Any, left: Any, right: Any) -> Any:
        flags = holds(self, left, right)
        looked.append(flags.size)
        return flags

    monkeypatch.setattr(pairs.Pairing, "_kept", candidates)
    monkeypatch.setattr(pairs.Pairing, "_holds", compared_)
    text = BAND.replace("ABS(A.x - B.x) <= 1", predicate)
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text}, slots=2)
    for epoch in range(4):
        harness.epoch({"A": rows(epoch, *range(100)), "B": rows(epoch, *range(100))})
    looked.clear()
    harness.epoch({"A": rows(5, 50)})
    assert sum(looked) == (4 * 3 if "ABS" in predicate else 4 * 100)


def test_segments_are_sorted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    whole = pairs.Side.sorted

    def counted(self: Any, band: Any) -> Any:
        asked.append(len(self.rows))
        return whole(self, band)

    monkeypatch.setattr(pairs.Side, "sorted", counted)
    harness, sorted_ = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": BAND}), []
    for epoch in range(12):
        asked.clear()
        harness.epoch({"A": rows(epoch, *range(50)), "B": rows(epoch, *range(50))})
        sorted_.append(sum(asked))
    assert min(sorted_[6:]) <= 3 * 50  # new rows, and what was stored last; at times also what was merged
    assert sum(sorted_) < sum(50 * 2 * epoch for epoch in range(12))
