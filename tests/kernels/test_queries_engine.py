"""Continuous queries in CQL on the engine without Spark, against the oracle: every shape, with crashes in between.

The texts are parsed and planned as a flow does; random rates make the planner choose among all trees. Streams are read
out of order, with unequal and unbounded windows, filters and predicates between streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, many_streams
from braidstream.query.tree import Leaf, Node
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import BUDGETS, SPILLS
from tests.kernels.test_streams_join import QUIET, crowded, leftovers, often_compacted, with_a_fault
from tests.scale import examples

SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIET)
FEW = settings(SOME, max_examples=examples(30))
SLOTS, GROUPS = st.integers(1, 4), st.integers(1, 16)


def is_type_2(case: Case) -> bool:
    return any(not column.endswith(".k") for pair in case.equalities for column in pair)


ONE_KEY = many_streams(max_rows=6, max_epochs=6).filter(lambda case: not is_type_2(case))
MANY_KEYS = many_streams(min_streams=3, max_streams=5, max_rows=6, max_epochs=6).filter(is_type_2)


def harness_of(folder: str, case: Case, texts: dict[str, str], **options: Any) -> QueryHarness:
    schemas = {stream.name: case.schema for stream in case.streams}
    return QueryHarness(folder, schemas, texts, **{"delays_us": case.delays_us, **options})


def query_of(case: Case, data: st.DataObject) -> tuple[str, Counter[Any]]:
    """A query over all streams of a case, and its results."""
    where, checks = stories.predicates(data.draw, [stream.name for stream in case.streams])
    text = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    return text + where, stories.joined(case.streams, case.equalities, checks)


@SOME
@given(MANY_KEYS, SLOTS, GROUPS, stories.STATISTICS, st.data())
def test_queries_on_different_keys_survive_crashes(
    case: Case, slots: int, groups: int, statistics: Any, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    options: dict[str, Any] = {"slots": slots, "groups": groups, "statistics": statistics}
    if data.draw(st.booleans(), label="hashes collide"):
        options["hash_keys"] = crowded(3)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, **options)
        stories.live_through(harness, case, data)
        assert stories.found(harness, "q") == expected
        assert leftovers(harness) == []


@FEW
@given(ONE_KEY, SLOTS, GROUPS, st.data())
def test_queries_on_one_key_survive_crashes(case: Case, slots: int, groups: int, data: st.DataObject) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, slots=slots, groups=groups)
        assert not harness.plan.trees
        stories.live_through(harness, case, data)
        assert stories.found(harness, "q") == expected
        assert leftovers(harness) == []


@FEW
@given(MANY_KEYS, SLOTS, stories.STATISTICS, st.integers(0, 12), st.data())
def test_joins_suspended_for_silent_streams_lose_nothing_at_crashes(
    case: Case, slots: int, statistics: Any, silence: int, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(
            folder, case, {"q": text}, slots=slots, statistics=statistics, silence_us=silence * stories.SECOND
        )
        stories.live_through(harness, case, data, last_words=True)
        assert stories.found(harness, "q") == expected


@FEW
@given(MANY_KEYS, SLOTS, stories.STATISTICS, st.integers(0, 999), st.data())
def test_a_controller_that_never_rests_changes_no_result_of_a_tree(
    case: Case, slots: int, statistics: Any, seed: int, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, slots=slots, statistics=statistics, controller=restless(seed))
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert stories.found(harness, "q") == expected


TEMPLATES = {
    "two": (("A", "B"), [("A.k", "B.k")]),
    "two, another key": (("A", "B"), [("A.j", "B.j")]),
    "three on one key": (("A", "B", "C"), [("A.k", "B.k"), ("B.k", "C.k")]),
    "a chain": (("A", "B", "C"), [("A.k", "B.k"), ("B.j", "C.j")]),
    "another chain": (("C", "A", "B"), [("A.k", "C.j"), ("C.k", "B.k")]),
    "two of three": (("B", "C"), [("B.k", "C.k")]),
}


@settings(SOME, max_examples=examples(50))
@given(many_streams(min_streams=3, max_streams=3, max_rows=8, max_epochs=7), SLOTS, st.data())
def test_queries_come_and_go_at_random_epochs(case: Case, slots: int, data: st.DataObject) -> None:
    """Each sees exactly what arrives while it is there. One query reads all streams throughout, so no row is late."""
    case = replace(case, equalities=(("A.k", "B.k"), ("B.k", "C.k")))
    base = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    lives: dict[str, tuple[Any, int, int]] = {}
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"base": base}, slots=slots, silence_us=data.draw(SILENCES, label="silence"))
        for number, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="changes")):
                change(harness, case, lives, number, data)
            rows = tables(case, epoch)
            if data.draw(st.booleans(), label="crash"):
                with_a_fault(harness, data.draw(st.sampled_from(stories.POINTS)), number, rows)
                harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
        harness.epoch(stories.words_of_all(case))
        assert stories.found(harness, "base") == stories.joined(case.streams, case.equalities, [])
        for name, (template, begin, end) in lives.items():
            assert stories.found(harness, name) == seen_by(case, template, begin, end), name
        assert leftovers(harness) == []


@settings(SOME, max_examples=examples(40))
@given(many_streams(min_streams=3, max_streams=3, max_rows=8, max_epochs=7), SLOTS, SPILLS, st.data())
def test_what_pushed_state_and_suspended_joins_owe_is_delivered_when_queries_change(
    case: Case, slots: int, spills: dict[str, Any], data: st.DataObject
) -> None:
    """Whoever goes has got all that it is owed by then; some queries make that state is not pushed any more."""
    case = replace(case, equalities=(("A.k", "B.k"), ("B.k", "C.k")))
    base = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    lives: dict[str, tuple[Any, int, int]] = {}
    silence = data.draw(SILENCES, label="silence")
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"base": base}, slots=slots, silence_us=silence, **spills)
        for number, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="changes")):
                change(harness, case, lives, number, data)
                for name in (name for name, (_, _, end) in lives.items() if end == number):
                    template, begin, end = lives[name]
                    assert stories.found(harness, name) == seen_by(case, template, begin, end), name
            rows = tables(case, epoch)
            if data.draw(st.booleans(), label="crash"):
                with_a_fault(harness, data.draw(st.sampled_from(stories.POINTS)), number, rows)
                harness._overflow = data.draw(st.none() | BUDGETS, label="budget") or harness._overflow
                harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
        harness.finish()
        assert stories.found(harness, "base") == stories.joined(case.streams, case.equalities, [])
        for name, (template, begin, end) in lives.items():
            assert stories.found(harness, name) == seen_by(case, template, begin, end), name
        assert leftovers(harness) == []


SILENCES = st.sampled_from([None, None, 0, 5 * stories.SECOND])


def change(
    harness: QueryHarness,
    case: Case,
    lives: dict[str, Any],
    number: int,
    data: st.DataObject,
    templates: Mapping[str, Any] = TEMPLATES,
) -> None:
    """A query is submitted, or one that is there is withdrawn."""
    there = [name for name, (_, _, end) in lives.items() if end > number]
    if there and data.draw(st.booleans(), label="withdraw"):
        name = data.draw(st.sampled_from(there), label="which")
        template, begin, _ = lives[name]
        lives[name] = (template, begin, number)
        harness.withdraw(name)
        return
    names, equalities = templates[data.draw(st.sampled_from(sorted(templates)), label="template")]
    windows = {name: data.draw(st.none() | st.integers(0, 25), label="window") for name in names}
    windows = {name: None if w is None else w * stories.SECOND for name, w in windows.items()}
    where, checks = stories.predicates(data.draw, names)
    outputs = ", ".join(f"{name}.v AS {name}v, {name}.k AS {name}k" for name in names)
    text = f"SELECT {outputs} FROM {stories.from_clause(case, windows)} WHERE {stories.equal(equalities)}{where}"
    own = f"q{len(lives)}"
    lives[own] = ((windows, equalities, checks), number, len(case.epochs))
    harness.submit(own, text)


def seen_by(case: Case, template: Any, begin: int, end: int) -> Counter[Any]:
    windows, equalities, checks = template
    streams = [
        oracle.Stream(name, [row for epoch in case.epochs[begin:end] for row in epoch.get(name, ())], window)
        for name, window in windows.items()
    ]
    return stories.joined(streams, equalities, checks)


SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
CHAIN = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS], C [RANGE 9 SECONDS] "
    "WHERE A.k = B.k AND B.j = C.j"
)


def rows(*values: int, time: int = 0) -> pa.Table:
    return pa.table([[1] * len(values), [1] * len(values), list(values), [time] * len(values)], schema=SCHEMA)


def test_a_submitted_chain_does_not_see_what_came_before_in_stores_it_shares(tmp_path: Any) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"first": CHAIN})
    harness.epoch({"A": rows(1), "B": rows(2)})
    harness.submit("second", CHAIN)
    harness.epoch({"B": rows(3), "C": rows(4)})
    harness.epoch({"A": rows(5)})
    assert stories.found(harness, "first") == Counter([(1, 2, 4), (1, 3, 4), (5, 2, 4), (5, 3, 4)])
    assert stories.found(harness, "second") == Counter([(5, 3, 4)])


def test_a_submitted_chain_that_resumes_does_not_see_what_came_before_either(tmp_path: Any) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"first": CHAIN}, silence_us=0)
    assert str(harness.plan.trees["first"]) == "((A ⋈ B) ⋈ C)"
    harness.epoch({"A": rows(1), "B": rows(2)})
    harness.submit("second", CHAIN)
    harness.epoch({"A": rows(5), "B": rows(6)})
    harness.epoch({"A": rows(7)})
    assert harness.manifest.notes.suspended == {"first:(A⋈B)": 0, "second:(A⋈B)": 1}
    harness.epoch({"C": rows(4)})
    assert stories.found(harness, "first") == Counter((a, b, 4) for a in (1, 5, 7) for b in (2, 6))
    assert stories.found(harness, "second") == Counter([(5, 6, 4), (7, 6, 4)])


@pytest.mark.parametrize("slots", [1, 4])
def test_a_join_of_a_later_stage_resumes_where_nothing_new_comes_to_it(tmp_path: Any, slots: int) -> None:
    """A and B were joined before D fell silent, C came meanwhile: the first stage has nothing to make up for."""
    text = (
        "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d FROM A [RANGE 60 SECONDS], B [RANGE 60 SECONDS], "
        "C [RANGE 60 SECONDS], D [RANGE 60 SECONDS] WHERE A.k = B.k AND B.j = C.j AND C.k = D.k"
    )
    harness = QueryHarness(tmp_path, dict.fromkeys("ABCD", SCHEMA), {"q": text}, silence_us=0, slots=slots)
    assert str(harness.plan.trees["q"]) == "(((A ⋈ B) ⋈ C) ⋈ D)"
    harness.epoch({"A": rows(1), "B": rows(2)})
    harness.epoch({"C": rows(3)})
    assert harness.manifest.notes.suspended == {"q:(A⋈B)": 0, "q:((A⋈B)⋈C)": 0}
    harness.epoch({"D": rows(4)})
    assert stories.found(harness, "q") == Counter([(1, 2, 3, 4)])


def test_a_query_withdrawn_and_submitted_again_under_its_name_starts_from_nothing(tmp_path: Any) -> None:
    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"first": CHAIN, "again": CHAIN})
    harness.epoch({"A": rows(1), "B": rows(2)})
    harness.withdraw("again")
    harness.submit("again", CHAIN)
    harness.epoch({"C": rows(3)})
    assert stories.found(harness, "first") == Counter([(1, 2, 3)])
    assert stories.found(harness, "again") == Counter()
    harness.epoch({"A": rows(4), "B": rows(5)})
    assert stories.found(harness, "again") == Counter([(4, 5, 3)])


def test_the_tree_stays_what_it_was_whatever_is_known_later(tmp_path: Any) -> None:
    from braidstream.query.tree import Statistics

    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"q": CHAIN}, statistics=Statistics({"A": 1000.0}))
    assert str(harness.plan.trees["q"]) == "(A ⋈ (B ⋈ C))"
    harness.epoch({"B": rows(1), "C": rows(2)})
    harness._statistics = Statistics({"C": 1000.0})
    harness.restart()
    assert str(harness.plan.trees["q"]) == "(A ⋈ (B ⋈ C))"
    harness.epoch({"A": rows(3)})
    assert stories.found(harness, "q") == Counter([(3, 1, 2)])


@pytest.mark.parametrize("n_queries", [1, 10])
def test_equal_joins_are_enumerated_once_whatever_they_select(
    tmp_path: Any, n_queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braidstream.slot import task as slot

    calls: list[int] = []
    enumerated = slot.composites

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(1)
        return enumerated(*args, **named)

    monkeypatch.setattr(slot, "composites", counted)
    texts = {
        f"q{i}": f"SELECT A.v AS a{i}, B.v AS b FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] WHERE A.k = B.k"
        for i in range(n_queries)
    }
    texts["other"] = "SELECT A.v AS a, B.v AS b FROM A [RANGE 9 SECONDS], B [RANGE 8 SECONDS] WHERE A.k = B.k"
    harness = QueryHarness(tmp_path, dict.fromkeys("AB", SCHEMA), texts)
    harness.epoch({"A": rows(1, 2), "B": rows(3)})
    assert len(calls) == 2
    for name in texts:
        assert stories.found(harness, name) == Counter([(1, 3), (2, 3)])
        assert harness.manifest.totals[f"{name}.matches"] == 2


@pytest.mark.slow
def test_the_random_cases_have_results_and_trees_of_every_form() -> None:
    """Not a property of the engine: a test against cases without results would hold for an engine that does nothing."""
    sizes: list[int] = []
    forms: Counter[str] = Counter()

    @settings(SOME, max_examples=100, derandomize=True)
    @given(MANY_KEYS, stories.STATISTICS)
    def count(case: Case, statistics: Any) -> None:
        from braidstream.query import Schema, parse
        from braidstream.query.tree import plan_tree

        text = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
        schema = Schema.from_ddl("k long, j long, v long, ts timestamp")
        query = parse(text, {stream.name: schema for stream in case.streams})
        sizes.append(len(oracle.join(case.streams, case.equalities)))
        forms["flat" if query.type == 1 else form(plan_tree(query, statistics))] += 1

    count()
    assert sum(size > 0 for size in sizes) > len(sizes) / 3
    assert sum(size > 20 for size in sizes) > len(sizes) / 20
    assert forms["deep"] > 20
    assert forms["bushy"] > 5


def form(tree: Node) -> str:
    bushy = any(not isinstance(side, Leaf) for node in tree.nodes() for side in (node.left,)) and any(
        isinstance(node.left, Node) and isinstance(node.right, Node) for node in tree.nodes()
    )
    return "bushy" if bushy else "deep"
