"""What a query computes of single rows: which of it may fail, and the parts of its conditions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from braidstream import QueryError
from braidstream.model.columns import FAILED
from braidstream.model.stores import Attempt, Passing
from braidstream.plan.attempts import may_fail, refuse_bad, shown_value
from braidstream.plan.planner import make_plan
from braidstream.plan.shapes import StreamShape
from braidstream.query import Schema, parse
from braidstream.query.pieces import conjuncts_of
from braidstream.query.predicates import conjunction

COLUMNS = pa.schema(
    [
        ("k", pa.int64()), ("i", pa.int32()), ("s", pa.string()), ("d", pa.decimal128(10, 2)), ("x", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")), ("e", pa.decimal128(38, 30)),
        ("b", pa.bool_()),
    ]
)  # fmt: skip
DDL = "k long, i int, s string, d decimal(10,2), x double, ts timestamp"
FROM = "FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR]"


@pytest.mark.parametrize(
    "text",
    [
        "CAST(`k` AS bigint)", "CAST(`i` AS bigint)", "CAST(`d` AS decimal(10,2))", "CAST(`ts` AS timestamp)",
        "CAST(`k` AS string)", "CAST(0 AS int)", "`k` > -3.5", "`s` = 'x'", "`k` IN (1, 2)", "`k` BETWEEN 1 AND `i`",
        "NOT (`k` = 1 OR `s` IS NOT NULL)", "CAST(127 AS tinyint)", "CAST(1000 AS smallint)", "CAST(1000 AS double)",
        "CAST(9.99 AS decimal(3,2))", "CAST(9 AS decimal(1))", "`d` > `k`", "`d` = 12.345", "`d` < `x`", "`e` > 1",
        "`d` > `e`", "-`x` > 1", "`k` > -9", "NOT `b`", "NOT (`b`) AND (`k` = 1 OR `b`) AND TRUE", "`s`",
        "(`s`)",
    ],
)  # fmt: skip
def test_columns_and_comparisons_of_one_family_do_not_fail(text: str) -> None:
    assert not may_fail(text, COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "CAST(`s` AS bigint)", "CAST(`k` AS int)", "CAST(`x` AS bigint)", "CAST(CAST(`s` AS INT) AS bigint)", "`s` > 3",
        "1 / `k` > 2", "`k` > 1 AND 1 / `i` > 2", "`ts` > '2026-01-01'", "lower(`s`) = 'x'",
        "`k` IN (1, `s`)", "`other`", "CAST(1000 AS tinyint)", "CAST(3000000000 AS int)", "CAST(10 AS decimal(3,2))",
        "CAST(9.996 AS decimal(3,2))", "`e` IN (1, `k`)", "`e` BETWEEN `i` AND 1",
        "`e` > 123456789", "-`k` > 1", "NOT `s`", "`s` OR `k` > 1", "NOT (`s`)", "`b` AND (`b` OR `s`)",
        "NOT CAST(`k` AS string)",
    ],
)  # fmt: skip
def test_anything_else_may_fail(text: str) -> None:
    assert may_fail(text, COLUMNS)


@pytest.mark.parametrize(
    "parts",
    [["a > 1"], ["a", "b"], ["a OR f(b)", "s = ')'", "x BETWEEN 1 AND 2"], ["x BETWEEN 1 AND 2"], ["(a) OR (b)"],
     ["(a) OR (b) AND (c)"], ["f(x) AND (b)"]],
)  # fmt: skip
def test_a_conjunction_is_taken_apart_as_it_was_put_together(parts: list[str]) -> None:
    assert conjuncts_of(conjunction(parts)) == tuple(sorted(parts))


def test_what_is_tried_of_a_stream_is_what_nobody_wants_to_stop_at() -> None:
    shapes = {name: StreamShape(name, COLUMNS, "ts") for name in "RS"}
    schemas = {name: Schema.from_ddl(DDL) for name in "RS"}
    mine = f"SELECT R.k AS k {FROM} WHERE CAST(R.s AS int) = S.i AND 1 / R.k > 2 AND R.i > 3"
    theirs = f"SELECT R.k AS k {FROM} WHERE R.k = S.k AND 1 / R.k > 2"
    queries = [parse(mine, schemas, "mine"), parse(theirs, schemas, "theirs")]
    late = {"R": COLUMNS.names}
    alone = make_plan(shapes, queries[:1], late, bad=["mine"]).branches[0]
    conditions = ("1 / `k` > 2", "`i` > 3")
    key = alone.stores[0].key[0]
    assert alone.attempts == (Attempt("mine", conditions, (key,)),)
    assert alone.tried == ("1 / `k` > 2", key)
    assert alone.tests == (Passing(conjunction(conditions), conditions),)
    assert alone.late_columns == (*COLUMNS.names, FAILED)
    assert FAILED not in alone.payload
    both = make_plan(shapes, queries, late, bad=["mine"]).branches[0]
    assert both.attempts == alone.attempts
    assert both.tried == (key,)
    nobody = make_plan(shapes, queries, late).branches
    assert [(one.attempts, one.tried, one.tests) for one in nobody] == [((), (), ())] * 2
    other = make_plan(shapes, queries, late, bad=["mine"]).branches[1]
    assert other.attempts == ()


def test_a_filter_that_is_remembered_and_that_nobody_has_is_not_computed() -> None:
    shapes = {name: StreamShape(name, COLUMNS, "ts") for name in "RS"}
    schemas = {name: Schema.from_ddl(DDL) for name in "RS"}
    query = parse(f"SELECT R.k AS k {FROM} WHERE R.k = S.k AND R.i > 3", schemas, "q")
    name = make_plan(shapes, [query], {}).stores[0].name
    remembered = {name: ("1 / `k` > 2", "`i` > 3", "all /* where CAST(s AS INT) can be computed */")}
    (store, _), (branch, _) = (made := make_plan(shapes, [query], {}, filters=remembered)).stores, made.branches
    assert store.filters == remembered[name]
    assert [(one.filter, one.conditions) for one in branch.tests] == [
        (text, ("false",)) for text in remembered[name] if text != "`i` > 3"
    ]


def test_expressions_are_shown_as_the_user_knows_them() -> None:
    assert shown_value("CAST(CAST(`s` AS INT) AS bigint)") == "CAST(s AS INT)"
    assert shown_value("CAST(`s` AS bigint)") == "CAST(s AS bigint)"
    assert shown_value("CAST(`R`.`s` AS INT) + 1") == "CAST(R.s AS INT) + 1"


LEFT = "FROM R [RANGE 1 HOUR] LEFT JOIN S [RANGE 1 HOUR]"
TOP = "FROM R [RANGE 1 HOUR] JOIN S [RANGE 1 HOUR] ON R.k = S.k LEFT JOIN Q [RANGE 1 HOUR]"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{LEFT} ON R.k = S.k AND 1 / R.k > 2", "1 / k > 2 may fail on a row: it is ON of a LEFT JOIN"),
        (f"{LEFT} ON R.k = S.k AND R.x < 1 / S.k", "1 / k may fail on a row: it is what ON of a LEFT JOIN compares"),
        (f"{TOP} ON CAST(S.s AS int) = Q.i", "it is a key of LEFT JOINs over other joins"),
        (f"{LEFT} ON R.k = S.k AND R.i > 2 AND R.x < S.x", ""),
        (f"{LEFT} ON CAST(R.s AS int) = S.i AND 1 / S.k > 2 WHERE 1 / R.k > 2", ""),
    ],
)
def test_what_would_be_put_out_all_the_same_is_refused(text: str, wrong: str) -> None:
    schemas = {name: Schema.from_ddl(DDL) for name in "RSQ"}
    query = parse(f"SELECT R.k AS k {text}", schemas, "q")
    if not wrong:
        refuse_bad(query, dict.fromkeys("RSQ", COLUMNS))
        return
    with pytest.raises(QueryError) as refused:
        refuse_bad(query, dict.fromkeys("RSQ", COLUMNS))
    assert wrong in refused.value.wrong
    assert refused.value.expected
    assert refused.value.fix
