"""Random streams keep their promises, and reach the corners they are there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy

from braidstream.lab.testing.oracle import join, split_late
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from tests.scale import examples

CASES = two_streams() | many_streams()


@settings(max_examples=examples(80), deadline=None)
@given(CASES)
def test_epochs_are_the_rows_in_order_of_arrival_and_none_is_late(case: Case) -> None:
    on_time, late = split_late(case.epochs, case.delays_us)
    assert not any(late.values())
    assert on_time == {stream.name: list(stream.rows) for stream in case.streams}


@settings(max_examples=examples(40), deadline=None)
@given(CASES)
def test_every_stream_is_a_table_of_its_schema(case: Case) -> None:
    for stream in case.streams:
        table = case.table(stream.name)
        assert table.schema.equals(case.schema)
        assert table.num_rows == len(stream.rows)


@settings(max_examples=examples(40), deadline=None)
@given(many_streams())
def test_equalities_connect_all_streams(case: Case) -> None:
    reached = {"A"}
    for left, right in case.equalities:
        assert left[0] in reached
        reached.add(right[0])
    assert reached == {stream.name for stream in case.streams}


def rows(case: Case) -> list[dict]:
    return [row for stream in case.streams for row in stream.rows]


CORNERS: list[tuple[str, Callable[[Case], bool]]] = [
    (
        "rows out of order",
        lambda c: any(s.rows[i]["ts"] > s.rows[i + 1]["ts"] for s in c.streams for i in range(len(s.rows) - 1)),
    ),
    ("a duplicate row", lambda c: any(list(s.rows).count(row) > 1 for s in c.streams for row in s.rows)),
    ("a NULL key", lambda c: any(row["k"] is None for row in rows(c))),
    ("a string key", lambda c: any(isinstance(row["k"], str) for row in rows(c))),
    ("a composite key", lambda c: len(c.equalities) > len(c.streams) - 1),
    ("other names on the two sides", lambda c: any(left[-1] != right[-1] for left, right in c.equalities)),
    ("an unbounded and a bounded window", lambda c: len({s.window_us is None for s in c.streams}) == 2),
    ("unequal windows", lambda c: len({s.window_us for s in c.streams}) > 1),
    ("an empty epoch between others", lambda c: any(not any(e.values()) for e in c.epochs[1:-1]) and bool(rows(c))),
    (
        "a stream silent to the last",
        lambda c: len(c.epochs) > 2 and any(not any(e[s.name] for e in c.epochs[:-1]) and s.rows for s in c.streams),
    ),
    ("a silent stream beside one that speaks", lambda c: len({bool(s.rows) for s in c.streams}) == 2),
    ("a hot key", lambda c: any(len(s.rows) > 5 and len({r["k"] for r in s.rows}) == 1 for s in c.streams)),
    (
        "a match on the very bound of a window",
        lambda c: any(
            abs(x["R"]["ts"] - x["S"]["ts"]) in {s.window_us for s in c.streams} - {0}
            for x in (join(c.streams, c.equalities) if c.streams[0].name == "R" else [])
        ),
    ),
    (
        "five streams on one attribute",
        lambda c: (
            len(c.streams) == 5 and all(left.endswith("k") and right.endswith("k") for left, right in c.equalities)
        ),
    ),
    (
        "a chain on different attributes",
        lambda c: [e[0][0] for e in c.equalities][:3] == ["A", "B", "C"] and c.equalities[1][0] != c.equalities[0][1],
    ),
    ("a star", lambda c: len(c.streams) > 3 and {e[0][0] for e in c.equalities} == {"A"}),
    ("results of four streams", lambda c: len(c.streams) == 4 and len(join(c.streams, c.equalities)) > 1),
]


def collected(strategy: SearchStrategy[Case], n: int) -> list[Case]:
    cases: list[Case] = []

    @settings(max_examples=n, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases


@pytest.fixture(scope="module")
def sample() -> list[Case]:
    return collected(two_streams(), 100) + collected(many_streams(), 200)


def test_most_cases_have_results(sample: list[Case]) -> None:
    assert sum(bool(join(case.streams, case.equalities)) for case in sample) > len(sample) / 2


@pytest.mark.parametrize("holds", [corner[1] for corner in CORNERS], ids=[corner[0] for corner in CORNERS])
def test_the_strategies_reach(holds: Callable[[Case], bool], sample: list[Case]) -> None:
    assert any(holds(case) for case in sample)
