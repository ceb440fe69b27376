"""Joins with intervals on the engine without Spark, against the oracle, in which an interval is just a predicate."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from braidstream.epoch.ending import is_ended
from braidstream.errors import QueryError
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing import oracle
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.testing.expressions import spark_type
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case, two_streams
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.model.join_kinds import JoinKind
from braidstream.query import Column, Schema, parse
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_queries_engine import MANY_KEYS, ONE_KEY, harness_of
from tests.kernels.test_spilled_join import SPILLS
from tests.kernels.test_streams_join import QUIET, crowded, leftovers, often_compacted
from tests.scale import examples

SECOND = 1_000_000
SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIET)
FEW = settings(SOME, max_examples=examples(25))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def intervals(draw: Any, names: list[str]) -> tuple[str, list[stories.Residual]]:
    """Bounds on the distance of neighbours, and of some other pairs; some strict, some to the microsecond."""
    pairs = list(pairwise(names))
    pairs += draw(
        st.lists(st.sampled_from([(a, b) for a in names for b in names if a != b]), max_size=2), label="pairs"
    )
    text, checks = "", []
    for a, b in pairs:
        low = draw(st.integers(-12, 8), label="low") * SECOND
        high = low + draw(st.integers(0, 15), label="length") * SECOND
        strict = draw(st.sampled_from(["", "", "low", "high"]), label="strict")
        if strict == "":
            text += f" AND {b}.ts BETWEEN {_plus(a, low)} AND {_plus(a, high)}"
        else:
            text += f" AND {b}.ts {'>' if strict == 'low' else '>='} {_plus(a, low)}"
            text += f" AND {_plus(a, high)} {'>' if strict == 'high' else '>='} {b}.ts"
        low, high = low + (strict == "low"), high - (strict == "high")
        checks.append(lambda c, a=a, b=b, lo=low, hi=high: lo <= c[b]["ts"] - c[a]["ts"] <= hi)
    return text, checks


def _plus(alias: str, us: int) -> str:
    return f"{alias}.ts {'-' if us < 0 else '+'} INTERVAL {abs(us) // SECOND} SECONDS"


def query_of(case: Case, data: st.DataObject) -> tuple[str, Counter[Any]]:
    """Some streams have a RANGE as well."""
    names = [stream.name for stream in case.streams]
    ranged = data.draw(st.sets(st.sampled_from(names)), label="with a range")
    where, checks = stories.predicates(data.draw, names)
    between, bounds = intervals(data.draw, names)
    entries = {
        n: f" [RANGE {s.window_us // SECOND} SECONDS]"
        for s in case.streams
        if (n := s.name) in ranged and s.window_us is not None
    }
    from_ = ", ".join(f"{name}{entries.get(name, '')}" for name in names)
    streams = [oracle.Stream(s.name, s.rows, s.window_us if s.name in entries else None) for s in case.streams]
    text = f"SELECT {stories.select(case)} FROM {from_} WHERE {stories.equal(case.equalities)}{where}{between}"
    return text, stories.joined(streams, case.equalities, [*checks, *bounds])


def started(folder: str, case: Case, text: str, expected: Counter[Any], **options: Any) -> QueryHarness:
    try:
        return harness_of(folder, case, {"q": text}, **options)
    except QueryError:
        assert not expected  # what contradicts itself is refused
        assume(False)
        raise


@SOME
@given(ONE_KEY, st.integers(1, 4), st.integers(1, 16), st.data())
def test_joins_with_intervals_survive_crashes(case: Case, slots: int, groups: int, data: st.DataObject) -> None:
    text, expected = query_of(case, data)
    options: dict[str, Any] = {"hash_keys": crowded(3)} if data.draw(st.booleans(), label="hashes collide") else {}
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, expected, slots=slots, groups=groups, **options)
        stories.live_through(harness, case, data)
        assert stories.found(harness, "q") == expected
        assert leftovers(harness) == []


@FEW
@given(MANY_KEYS, st.integers(1, 4), stories.STATISTICS, st.data())
def test_joins_of_several_stages_with_intervals_survive_crashes(
    case: Case, slots: int, statistics: Any, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, expected, slots=slots, statistics=statistics)
        stories.live_through(harness, case, data)
        assert stories.found(harness, "q") == expected


@FEW
@given(ONE_KEY, st.integers(1, 3), SPILLS, st.data())
def test_what_was_pushed_keeps_to_intervals_when_it_is_cleaned_up(
    case: Case, slots: int, spills: dict[str, Any], data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, expected, slots=slots, **spills)
        stories.live_through(harness, case, data)
        harness.finish()
        assert stories.found(harness, "q") == expected


def rows(*moments: int, key: int = 1) -> pa.Table:
    table = {"k": [key] * len(moments), "v": list(moments), "ts": [moment * SECOND for moment in moments]}
    return pa.table(table, schema=SCHEMA)


PAIRS = (
    "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k "
    "AND B.ts BETWEEN A.ts + INTERVAL {} SECONDS AND A.ts + INTERVAL {} SECONDS"
)


def test_state_is_kept_as_long_as_the_interval_needs_and_no_longer(tmp_path: Any) -> None:
    """A must wait 30 s for its B, B for nothing: whatever comes of A later is newer."""
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": PAIRS.format(10, 30)})
    stored = {store.stream: store.name for store in harness.plan.stores}
    held: dict[str, list[int]] = {"A": [], "B": []}
    for second in range(0, 100, 10):
        harness.epoch({"A": rows(second), "B": rows(second)})
        for stream, name in stored.items():
            held[stream].append(sum(s.rows for s in harness.manifest.segments if s.store == name))
    assert held["A"][-3:] == [4, 4, 4]
    assert held["B"][-3:] == [1, 1, 1]
    wanted = Counter((a, b) for a in range(0, 100, 10) for b in range(0, 100, 10) if 10 <= b - a <= 30)
    assert stories.found(harness, "q") == wanted


@pytest.mark.parametrize("long_run", [4, 40])
def test_times_are_found_in_short_and_long_runs_of_a_key(tmp_path: Any, long_run: int) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": PAIRS.format(3, 5)})
    harness.epoch({"A": rows(*range(long_run))})
    harness.epoch({"B": rows(*range(long_run + 9))})
    expected = Counter((a, b) for a in range(long_run) for b in range(long_run + 9) if 3 <= b - a <= 5)
    assert stories.found(harness, "q") == expected


def test_queries_that_differ_in_their_intervals_only_share_stores_and_not_composites(tmp_path: Any) -> None:
    texts = {"near": PAIRS.format(1, 3), "far": PAIRS.format(2, 3), "after": PAIRS.format(0, 3)}
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), texts)
    harness.epoch({"A": rows(0), "B": rows(0, 1, 2, 3, 4)})
    assert len(harness.plan.stores) == 2
    assert stories.found(harness, "near") == Counter([(0, 1), (0, 2), (0, 3)])
    assert stories.found(harness, "far") == Counter([(0, 2), (0, 3)])
    assert stories.found(harness, "after") == Counter([(0, 0), (0, 1), (0, 2), (0, 3)])


def test_an_interval_that_waits_longer_begins_anew_in_a_checkpoint(tmp_path: Any) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": PAIRS.format(1, 3)})
    harness.epoch({"A": rows(0), "B": rows(0)})
    (step,) = harness.evolve({"q": (PAIRS.format(1, 9), "q")})
    assert step.kind == "replace"
    assert "the window of A is 9 seconds, rows were kept for 3 seconds" in step.line


KINDS = st.sampled_from([JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI])


@SOME
@given(two_streams(max_rows=12), KINDS, st.integers(1, 3), st.data())
def test_joins_of_every_kind_take_intervals_and_are_decided_at_the_end_of_the_input(
    case: Case, kind: JoinKind, slots: int, data: st.DataObject
) -> None:
    between, checks = intervals(data.draw, ["R", "S"])
    columns = [f"{case.streams[place].name}.{c}" for place in kind.shown for c in ("v", "k", "j")]
    selected = ", ".join(f"{name} AS c{i}" for i, name in enumerate(columns))
    text = f"SELECT {selected} FROM R {kind.words} S ON {stories.equal(case.equalities)}{between}"
    streams = [oracle.Stream(s.name, s.rows, None) for s in case.streams]
    found = oracle.join_of_kind(kind.value, (streams[0], streams[1]), case.equalities, checks)
    expected = Counter(oracle.project(found, columns))
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, Counter(), slots=slots)
        stories.live_through(harness, case, data)
        while not is_ended(harness.manifest):
            point = data.draw(st.sampled_from([*POINTS, "none", "none"]), label="point")
            try:
                with armed(f"{point}:{len(case.epochs)}:raise") if point != "none" else nullcontext():
                    harness.finish(final=True)
            except InjectedFault:
                harness.restart(data.draw(st.integers(1, 3), label="slots"))
        assert stories.found(harness, "q") == expected


@FEW
@given(ONE_KEY, st.integers(2, 4), st.integers(0, 999), st.data())
def test_heavy_keys_on_grids_keep_to_intervals(case: Case, slots: int, seed: int, data: st.DataObject) -> None:
    text, expected = query_of(case, data)
    keys = pa.array({row["k"] for stream in case.streams for row in stream.rows} - {None}, case.schema.field("k").type)
    grids = RestlessGrids(hash_columns([keys])[0].tolist(), seed)
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, expected, slots=slots, regridder=grids)
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert stories.found(harness, "q") == expected


@FEW
@given(ONE_KEY.filter(lambda case: len(case.streams) == 2), st.integers(2, 4), st.data())
def test_a_biclique_keeps_to_intervals(case: Case, slots: int, data: st.DataObject) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = started(folder, case, text, expected, slots=slots, groups=1, biclique=1)
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert stories.found(harness, "q") == expected


def test_thousands_of_rows_with_an_interval_are_duckdbs(tmp_path: Any) -> None:
    draw = np.random.default_rng(5)
    data = {}
    for name in "AB":
        times = np.sort(draw.integers(0, 600 * SECOND, 5000))
        keys = np.minimum(draw.zipf(1.4, 5000), 300)
        data[name] = pa.table([pa.array(keys), pa.array(np.arange(5000)), pa.array(times)], schema=SCHEMA)
    low, high = 7 * SECOND + 1, 31 * SECOND - 1
    text = (
        "SELECT A.v AS a, B.v AS b FROM A, B WHERE A.k = B.k "
        "AND B.ts > A.ts + INTERVAL 7 SECONDS AND B.ts < A.ts + INTERVAL 31 SECONDS"
    )
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text}, slots=3)
    for begin in range(0, 5000, 500):
        harness.epoch({name: table.slice(begin, 500) for name, table in data.items()})
    wide = [BatchStream(name, table, 40 * SECOND) for name, table in data.items()]
    where = [f"epoch_us(B.ts) - epoch_us(A.ts) BETWEEN {low} AND {high}"]
    expected = batch_join(wide, [("A.k", "B.k")], {"a": "A.v", "b": "B.v"}, where)
    late = sum(progress.late.get(name, 0) for progress in harness.runner.progress for name in "AB")
    assert late == 0
    assert expected.num_rows > 10_000
    assert same_rows(pa.Table.from_pylist(harness.results("q")), expected)


def test_an_outer_row_is_put_out_once_the_interval_and_not_the_longer_window_has_passed(tmp_path: Any) -> None:
    text = (
        "SELECT A.v AS a, B.v AS b FROM A [RANGE 1 HOUR] LEFT JOIN B [RANGE 1 HOUR] ON A.k = B.k "
        "AND B.ts BETWEEN A.ts + INTERVAL 3 SECONDS AND A.ts + INTERVAL 5 SECONDS"
    )
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), {"q": text})
    found = []
    for second in range(8):
        harness.epoch({"A": rows(0) if second == 0 else rows(second, key=9), "B": rows(second, key=8)})
        found.append((0, None) in stories.found(harness, "q"))
    assert found == [False] * 6 + [True] * 2


class Earlier(QueryHarness):
    """A version that did not know which column is the time: an interval was a predicate like any other."""

    knows_times = False

    def _parsed(self, texts: Any) -> Any:
        if self.knows_times:
            return super()._parsed(texts)
        columns = tuple(Column(field.name, spark_type(field.type)) for field in SCHEMA)
        return {name: parse(text, dict.fromkeys(self.schemas, Schema(columns)), name) for name, text in texts.items()}


@pytest.mark.parametrize("streams", ["AB", "ABC"])
def test_a_checkpoint_from_before_intervals_were_read_goes_on(tmp_path: Any, streams: str) -> None:
    """What is stored has columns and lasts for times that the query does not need any more."""
    from_ = ", ".join(f"{name} [RANGE 20 SECONDS]" for name in streams)
    keys = "A.k = B.k" if streams == "AB" else "A.k = B.k AND B.v % 1 = C.v % 1"
    between = "B.ts >= A.ts + INTERVAL 2 SECONDS AND B.ts <= A.ts + INTERVAL 6 SECONDS"
    text = f"SELECT A.v AS a, B.v AS b FROM {from_} WHERE {keys} AND {between}"
    harness = Earlier(tmp_path, dict.fromkeys(streams, SCHEMA), {"q": text}, slots=2)
    before = harness._parsed({"q": text})["q"].fingerprint
    with often_compacted():
        for second in range(24):
            if second == 11:
                harness.knows_times = True
                harness.restart(slots=3)
                assert harness._parsed({"q": text})["q"].fingerprint == before
            harness.epoch({name: rows(second) if name != "C" or second == 0 else rows() for name in streams})
    times = range(24)
    expected = Counter((a, b) for a in times for b in times if 2 <= b - a <= 6 and (streams == "AB" or b <= 20))
    assert stories.found(harness, "q") == expected
