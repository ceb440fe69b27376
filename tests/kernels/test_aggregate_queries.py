"""Aggregate queries in CQL against the oracle: every aggregate, on one key and on several, factored and enumerated.

They are planned and run in this process, without Spark, with crashes, restarts and moving groups in between, which is
why there can be many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, many_streams
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import QUIET, often_compacted, with_a_fault
from tests.scale import examples

SOME = settings(max_examples=examples(50), deadline=None, suppress_health_check=QUIET)
BEFORE_ALL = -(1 << 60)
FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@dataclass(frozen=True)
class Wanted:
    """An aggregate query over a case, in CQL and as the oracle takes it."""

    text: str
    aggregates: list[oracle.Aggregate]
    group_by: list[str]
    checks: list[stories.Residual]


def wanted(case: Case, data: st.DataObject) -> Wanted:
    """COUNT(*) and up to four more, with or without GROUP BY, filters and predicates between streams."""
    names = [stream.name for stream in case.streams]
    columns = st.builds("{}.{}".format, st.sampled_from(names), st.sampled_from(["v", "j"]))
    chosen = data.draw(st.lists(st.tuples(st.sampled_from(FUNCTIONS), columns), max_size=4), label="aggregates")
    group_by = data.draw(st.lists(columns | KEYS_OF(names), max_size=2, unique=True), label="group by")
    where, checks = stories.predicates(data.draw, names)
    outputs = [f"{column} AS g{i}" for i, column in enumerate(group_by)]
    outputs += ["COUNT(*) AS n", *(f"{function}({column}) AS a{i}" for i, (function, column) in enumerate(chosen))]
    text = f"SELECT {', '.join(outputs)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}{where}"
    text += f" GROUP BY {', '.join(group_by)}" if group_by else ""
    return Wanted(text, [oracle.Aggregate("COUNT"), *(oracle.Aggregate(f, c) for f, c in chosen)], group_by, checks)


def KEYS_OF(names: Sequence[str]) -> st.SearchStrategy[str]:  # noqa: N802  a strategy
    return st.builds("{}.k".format, st.sampled_from(names))


def expected(case: Case, query: Wanted, n_epochs: int, begin: int) -> dict[Any, Any]:
    """The groups and their values after some epochs, of what arrived from epoch `begin` on."""
    seen = {s.name: [row for epoch in case.epochs[:n_epochs] for row in epoch.get(s.name, ())] for s in case.streams}
    spoken = all(seen.values())
    at = min(max(r["ts"] for r in own) - case.delays_us[n] for n, own in seen.items()) if spoken else BEFORE_ALL
    own = {
        s.name: [row for epoch in case.epochs[begin:n_epochs] for row in epoch.get(s.name, ())] for s in case.streams
    }
    streams = [oracle.Stream(s.name, own[s.name], s.window_us) for s in case.streams]
    found = oracle.aggregate(
        streams, case.equalities, query.aggregates, watermark_us=at, group_by=query.group_by, residuals=query.checks
    )
    n = len(query.group_by)
    return {row[:n]: row[n:] for row in found}


def check(case: Case, query: Wanted, results: Sequence[Any], begin: int = 0, end: int | None = None) -> None:
    """After each epoch in which the query is there, what is left of all updates is what the oracle says."""
    n = len(query.group_by)
    view: dict[Any, Any] = {}
    last = len(case.epochs) if end is None else end
    assert {row["epoch"] for row in results} <= set(range(begin, last))
    for epoch in range(begin, last):
        own = [tuple(row.values()) for row in results if row["epoch"] == epoch]
        assert n or len(own) == 1
        view |= {row[:n]: row[n:-2] for row in own}
        assert len({row[:n] for row in own}) == len(own)
        live = {group: values for group, values in view.items() if values[0] or not n}
        right = expected(case, query, epoch + 1, begin)
        assert live.keys() == right.keys()
        for group, values in right.items():
            assert live[group] == pytest.approx(values), (epoch, group)


CASES = {
    "one key": many_streams(max_rows=6, max_epochs=5).filter(
        lambda c: c.schema.field("j").type == "int64" and all(p.endswith(".k") for e in c.equalities for p in e)
    ),
    "different keys": many_streams(min_streams=3, max_rows=6, max_epochs=5).filter(
        lambda c: any(not p.endswith(".k") for e in c.equalities for p in e)
    ),
}


_ENOUGH = 20


@pytest.mark.parametrize("keys", CASES)
def test_every_aggregate_is_the_oracles_after_every_epoch_whatever_crashes(keys: str) -> None:
    ways: set[tuple[int, bool]] = set()

    @SOME
    @given(CASES[keys], st.integers(1, 4), stories.STATISTICS, st.data())
    def holds(case: Case, slots: int, statistics: Any, data: st.DataObject) -> None:
        query = wanted(case, data)
        schemas = {stream.name: case.schema for stream in case.streams}
        with TemporaryDirectory() as folder, often_compacted():
            harness = QueryHarness(
                folder, schemas, {"q": query.text}, statistics=statistics, slots=slots,
                delays_us=case.delays_us, groups=8,
            )  # fmt: skip
            kind = 2 if harness.plan.trees else 1
            ways.add((kind, harness.plan.aggregates[0].enumeration is None))
            stories.live_through(harness, case, data)
            check(case, query, harness.results("q"))

    holds()
    both = {(1, True), (1, False)} if keys == "one key" else {(2, False)}
    assert ways >= both if SOME.max_examples >= _ENOUGH else ways & both  # few examples need not have both
    assert (2, True) not in ways


def base_of(case: Case) -> str:
    """A query that reads all streams throughout, so that the watermark is that of all."""
    return f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"


@pytest.mark.parametrize("keys", CASES)
def test_aggregates_come_and_go_at_random_epochs(keys: str) -> None:
    """Each is of what arrived since it was submitted, after every epoch until it is withdrawn."""

    @settings(SOME, max_examples=examples(25))
    @given(CASES[keys], st.integers(1, 4), stories.STATISTICS, st.data())
    def holds(case: Case, slots: int, statistics: Any, data: st.DataObject) -> None:
        schemas = {stream.name: case.schema for stream in case.streams}
        lives: dict[str, tuple[Wanted, int, int]] = {}
        with TemporaryDirectory() as folder, often_compacted():
            harness = QueryHarness(
                folder, schemas, {"base": base_of(case)}, statistics=statistics, slots=slots,
                delays_us=case.delays_us, groups=4, controller=restless(data.draw(st.integers(0, 999), label="seed")),
            )  # fmt: skip
            for number, epoch in enumerate(case.epochs):
                there = [name for name, (_, _, end) in lives.items() if end > number]
                if there and data.draw(st.booleans(), label="withdraw"):
                    name = data.draw(st.sampled_from(there), label="which")
                    lives[name] = (*lives[name][:2], number)
                    harness.withdraw(name)
                if data.draw(st.booleans(), label="submit"):
                    query, name = wanted(case, data), f"q{len(lives)}"
                    lives[name] = (query, number, len(case.epochs))
                    harness.submit(name, query.text)
                rows = tables(case, epoch)
                if data.draw(st.booleans(), label="crash"):
                    with_a_fault(harness, data.draw(st.sampled_from(stories.POINTS), label="point"), number, rows)
                    harness.restart(data.draw(st.none() | st.integers(1, 4), label="slots"))
                if harness.manifest.epoch < number:
                    harness.epoch(rows)
            for name, (query, begin, end) in lives.items():
                check(case, query, harness.results(name), begin, end)

    holds()
