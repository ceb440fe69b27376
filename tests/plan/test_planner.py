"""Plans are made of queries and the shapes of streams alone: no session, no analyzer but the one that is given."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from braidstream.errors import QueryError
from braidstream.lab.testing.expressions import DuckTypes, spark_type
from braidstream.plan.explain import explain
from braidstream.plan.planner import Plan, make_plan
from braidstream.plan.shapes import StreamShape
from braidstream.query import Column, Query, Schema, parse

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int32()), ("v", pa.float64()), ("s", pa.string()), ("ts", pa.int64())])
COLUMNS = Schema(tuple(Column(field.name, spark_type(field.type)) for field in SCHEMA))
CHAIN = "FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS], C [RANGE 9 SECONDS] WHERE A.k = B.k AND B.j = C.j"


def query(text: str, name: str = "q") -> Query:
    return parse(text, dict.fromkeys("ABC", COLUMNS), name)


def planned(*queries: Query, readable: frozenset[str] | None = None) -> Plan:
    shapes = {name: StreamShape(name, SCHEMA, "ts", readable=readable) for name in "ABC"}
    return make_plan(shapes, queries, {}, types=DuckTypes(dict.fromkeys("ABC", SCHEMA)))


def test_aggregates_over_different_keys_say_that_they_enumerate() -> None:
    asked = query(f"SELECT A.k, SUM(C.v) AS total {CHAIN} GROUP BY A.k")
    plan = planned(asked)
    shown = explain("flow", {name: StreamShape(name, SCHEMA, "ts") for name in "ABC"}, [asked], plan, {})
    assert "3-way join on different keys, 2 stages" in shown
    assert "enumerates composites" in shown


def test_an_aggregate_query_without_types_is_refused() -> None:
    shapes = {name: StreamShape(name, SCHEMA, "ts") for name in "ABC"}
    with pytest.raises(QueryError, match="nobody says of which types"):
        make_plan(
            shapes, [query("SELECT COUNT(*) AS n FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] WHERE A.k = B.k")], {}
        )


@pytest.mark.parametrize(
    ("text", "readable", "expected"),
    [
        ("A.k = B.k", {"k", "v", "ts"}, {"A", "B"}),
        ("A.k = B.k", {"k", "ts"}, set()),
        ("A.k + 1 = B.k", {"k", "v", "ts"}, {"B"}),
        ("A.j = B.k", {"k", "j", "v", "ts"}, {"A", "B"}),
        ("A.k = B.k AND A.s = 'x'", {"k", "v", "s", "ts"}, {"B"}),
    ],
    ids=[
        "plain keys are read directly",
        "an output that only Spark reads is not",
        "a computed key is not",
        "a key that is widened is",
        "a filtered stream is not",
    ],
)
def test_a_stream_is_read_directly_where_its_files_give_all_that_is_needed(
    text: str, readable: set[str], expected: set[str]
) -> None:
    asked = query(f"SELECT A.v AS a, B.v AS b FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS] WHERE {text}")
    used = [branch.stream for branch in planned(asked).branches if branch.stores]
    plan = planned(asked, readable=frozenset(readable))
    assert {name for name in plan.direct if name in used} == expected
    assert not planned(asked).direct


def test_queries_in_any_order_share_the_stores_of_equal_keys() -> None:
    texts = ["A.k = B.k", "B.k = C.k", "A.j = C.j", "A.k = C.k"]
    random.shuffle(texts)
    queries = []
    for number, text in enumerate(texts):
        left, right = text[0], text[6]
        windows = f"{left} [RANGE {number + 1} SECONDS], {right} [RANGE 9 SECONDS]"
        queries.append(query(f"SELECT {left}.v AS a, {right}.s AS b FROM {windows} WHERE {text}", f"q{number}"))
    plan = planned(*queries)
    keys = [(store.stream, store.key) for store in plan.stores]
    assert len(keys) == len(set(keys)) == 5
    for join, asked in zip(plan.joins, queries, strict=True):
        for entry, own in zip(join.inputs, asked.inputs, strict=True):
            assert plan.stores[entry.store].stream == own.stream
            assert entry.window_us == own.window_us <= plan.stores[entry.store].window_us
