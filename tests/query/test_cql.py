"""Good queries and what they mean: a table of CQL texts and the parts of the Query that matter in each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.query import Aggregate, Input, KeyClass, Output, Query, Schema, parse
from braidstream.query.duration import describe_duration

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000

# Both as printed in the paper (sections 3.3.1 and 3.3.2).
Q1 = """Select sum (X.size)
      From X[range 10 min], Y[range 10 min], Z[range 10 min]
      Where X.dest = Y.dest = Z.dest"""
Q1_INTRODUCTION = """Select sum (X.size)
      From X[range 10 min], Y[range 10 min], Z[range 10 min]
      Where X.dest=Y.dest and Y.dest=Z.dest"""
Q2 = """Select Y.B, Z.C
      From X[range 5 min], Y[range 5 min], Z[range 5 min]
      Where X.B=Y.B and Y.C=Z.C"""


def test_q1_of_dhtjoin_is_of_type_1(streams: dict[str, Schema]) -> None:
    assert parse(Q1, streams, "q1") == Query(
        name="q1",
        text=Q1,
        inputs=(
            Input("X", "X", 10 * MINUTE, None, ("size",)),
            Input("Y", "Y", 10 * MINUTE, None, ()),
            Input("Z", "Z", 10 * MINUTE, None, ()),
        ),
        key_classes=(KeyClass((("X", "`dest`"), ("Y", "`dest`"), ("Z", "`dest`")), "string"),),
        join_edges=(),
        residual=(),
        outputs=(Output("sum(size)", "`sum(size)`"),),
        aggregates=(Aggregate("sum(size)", "sum", "`X`.`size`", ("X",)),),
    )
    assert parse(Q1, streams).type == 1
    assert parse(Q1, streams).fingerprint == parse(Q1_INTRODUCTION, streams).fingerprint


def test_q2_of_dhtjoin_is_of_type_2(streams: dict[str, Schema]) -> None:
    assert parse(Q2, streams, "q2") == Query(
        name="q2",
        text=Q2,
        inputs=(
            Input("X", "X", 5 * MINUTE, None, ()),
            Input("Y", "Y", 5 * MINUTE, None, ("B",)),
            Input("Z", "Z", 5 * MINUTE, None, ("C",)),
        ),
        key_classes=(),
        join_edges=(
            KeyClass((("X", "`B`"), ("Y", "`B`")), "int"),
            KeyClass((("Y", "`C`"), ("Z", "`C`")), "string"),
        ),
        residual=(),
        outputs=(Output("B", "`Y`.`B`", ("Y", "B")), Output("C", "`Z`.`C`", ("Z", "C"))),
    )
    assert parse(Q2, streams).type == 2


@dataclass(frozen=True)
class Case:
    """A text, and what the parts named in `means` are. Windows are short so that the lines are."""

    says: str
    text: str
    means: dict[str, Any] = field(default_factory=dict)


def keys(*members: str, type_: str) -> KeyClass:
    pairs = [member.split(".", 1) for member in members]
    return KeyClass(tuple((alias, sql) for alias, sql in pairs), type_)


RS = "FROM R [RANGE 1 S], S [RANGE 1 S]"
K = keys("R.`k`", "S.`k`", type_="bigint")
WINDOWED = "SELECT R.v FROM R {}, S [RANGE 1 S] WHERE R.k = S.k"

CASES = [
    Case(
        "windows in every unit and place",
        "SELECT R.v FROM R [RANGE 10 MINUTES] AS a JOIN S b [RANGE 1 HOUR] ON a.k = b.k, T c[range unbounded] "
        "WHERE b.k = c.k".replace("R.v", "a.v"),
        {"window_us": (10 * MINUTE, HOUR, None), "aliases": ("a", "b", "c"), "streams": ("R", "S", "T"), "type": 1},
    ),
    Case("a decimal length", WINDOWED.format("[RANGE 0.5 SECONDS]"), {"window_us": (500_000, SECOND)}),
    Case("a length of zero", WINDOWED.format("[RANGE 0 SECONDS]"), {"window_us": (0, SECOND)}),
    Case("the present instant", WINDOWED.format("[RANGE NOW]"), {"window_us": (0, SECOND)}),
    Case("days", WINDOWED.format("[RANGE 2 DAYS]"), {"window_us": (2 * DAY, SECOND)}),
    Case("microseconds", WINDOWED.format("[\n RANGE\t7 MICROSECONDS ]"), {"window_us": (7, SECOND)}),
    Case("two units", WINDOWED.format("[RANGE 1 HOUR 30 MIN]"), {"window_us": (90 * MINUTE, SECOND)}),
    Case(
        "names are found in any letter case and keep the declared spelling",
        "select t.ODD, r.K from r [range 1 s], T [range 1 s] where r.K = t.k",
        {"aliases": ("R", "T"), "output_sql": ("`T`.`Odd`", "`R`.`k`"), "names": ("Odd", "k")},
    ),
    Case(
        "unqualified columns where only one stream has them",
        f"SELECT v, w {RS} WHERE R.k = S.k AND price < limit",
        {"output_sql": ("`R`.`v`", "`S`.`w`"), "residual": ("`R`.`price` < `S`.`limit`",)},
    ),
    Case(
        "names that are keywords, or need quotes",
        "SELECT T.`odd name`, T.from, S.limit FROM S [RANGE 1 S], T [RANGE 1 S] WHERE S.k = T.k",
        {"output_sql": ("`T`.`odd name`", "`T`.`from`", "`S`.`limit`")},
    ),
    Case(
        "predicates on one stream become its filter, in a fixed order",
        f"SELECT R.v {RS} WHERE R.v > 3 AND R.k = S.k AND lower(R.name) <> 'x' AND S.w IS NOT NULL",
        {"filters": ("(LOWER(`name`) <> 'x') AND (`v` > 3)", "NOT `w` IS NULL"), "key_classes": (K,)},
    ),
    Case(
        "a filter's columns are not carried to the composites",
        f"SELECT S.w {RS} WHERE R.k = S.k AND R.v = 1",
        {"filters": ("`v` = 1", None), "columns": ((), ("w",))},
    ),
    Case(
        "OR over one stream is one filter",
        f"SELECT R.v {RS} WHERE (R.v = 1 OR R.v = 2) AND R.k = S.k",
        {"filters": ("`v` = 1 OR `v` = 2", None)},
    ),
    Case(
        "a condition on no stream filters the first",
        f"SELECT R.v {RS} WHERE 1 = 2 AND R.k = S.k AND TRUE",
        {"filters": ("1 = 2", None)},
    ),
    Case(
        "brackets elsewhere are indexes",
        f"SELECT R.points[0] AS p {RS} WHERE R.k = S.k AND S.labels['range 1'] = 2 AND R.points[1] > 0",
        {"output_sql": ("`R`.`points`[0]",), "filters": ("`points`[1] > 0", "`labels`['range 1'] = 2")},
    ),
    Case(
        "an index in ON is no window",
        "SELECT R.v FROM R [RANGE 1 S] JOIN S [RANGE 1 S] ON R.points[0] = S.w AND R.k = S.k",
        {"window_us": (SECOND, SECOND), "key_classes": (keys("R.`points`[0]", "S.`w`", type_="bigint"), K)},
    ),
    Case(
        "windows in comments and texts are no windows",
        f"SELECT '[RANGE 2 S]' AS t -- R [RANGE 3 S]\n {RS} /* [ROWS 5] */ WHERE R.k = S.k",
        {"window_us": (SECOND, SECOND), "output_sql": ("'[RANGE 2 S]'",)},
    ),
    Case(
        "other predicates between streams are residual",
        f"SELECT R.v {RS} WHERE R.k = S.k AND R.price BETWEEN S.limit AND S.limit * 2 AND R.name <=> S.name",
        {
            "residual": (
                "`R`.`price` BETWEEN `S`.`limit` AND `S`.`limit` * 2",
                "`R`.`name` IS NOT DISTINCT FROM `S`.`name`",
            ),
            "columns": (("v", "name", "price"), ("name", "limit")),
        },
    ),
    Case(
        "equality of an expression over two streams is residual",
        f"SELECT R.v {RS} WHERE R.k = S.k AND R.v + S.w = S.k",
        {"residual": ("`R`.`v` + `S`.`w` = `S`.`k`",)},
    ),
    Case(
        "a composite key",
        f"SELECT R.v {RS} WHERE R.k = S.k AND S.name = R.name",
        {"key_classes": (K, keys("R.`name`", "S.`name`", type_="string"))},
    ),
    Case(
        "keys of different number types are compared in the wider",
        f"SELECT R.v {RS} WHERE R.v = S.k",
        {"key_classes": (keys("R.`v`", "S.`k`", type_="bigint"),)},
    ),
    Case(
        "dates and timestamps compare as timestamps",
        f"SELECT R.v {RS} WHERE R.ts = S.day",
        {"key_classes": (keys("R.`ts`", "S.`day`", type_="timestamp"),)},
    ),
    Case(
        "key expressions",
        f"SELECT R.v {RS} WHERE lower(R.name) = S.name AND R.place.zip = S.w",
        {
            "key_classes": (
                keys("R.LOWER(`name`)", "S.`name`", type_="string"),
                keys("R.`place`.`zip`", "S.`w`", type_="int"),
            )
        },
    ),
    Case(
        "a key with an explicit type",
        f"SELECT R.v {RS} WHERE my_function(R.name) :: decimal(5, 1) = S.w",
        {"key_classes": (keys("R.CAST(MY_FUNCTION(`name`) AS DECIMAL(5, 1))", "S.`w`", type_="decimal(11,1)"),)},
    ),
    Case(
        "two members of one stream in a class become its filter",
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S] WHERE R.k = S.k AND R.v = S.k",
        {
            "key_classes": (keys("R.`k`", "S.`k`", type_="bigint"),),
            "filters": ("`k` = CAST(`v` AS BIGINT)", None),
        },
    ),
    Case(
        "whole numbers stay exact in a class that is compared as doubles",
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S], T [RANGE 1 S] WHERE R.k = T.k AND T.k = S.f",
        {
            "key_classes": (keys("R.`k`", "S.`f`", "T.`k`", type_="double"),),
            "residual": ("`R`.`k` = `T`.`k`",),
            "columns": (("k", "v"), (), ("k",)),
        },
    ),
    Case(
        "in a query of type 1, a class over some of the streams is residual",
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S], T [RANGE 1 S] WHERE R.k = S.k = T.k AND R.name = T.odd",
        {
            "type": 1,
            "key_classes": (keys("R.`k`", "S.`k`", "T.`k`", type_="bigint"),),
            "join_edges": (),
            "residual": ("`R`.`name` = `T`.`Odd`",),
        },
    ),
    Case(
        "a star of type 2",
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S], T [RANGE 1 S] WHERE R.k = S.k AND R.name = T.odd",
        {
            "type": 2,
            "key_classes": (),
            "join_edges": (K, keys("R.`name`", "T.`Odd`", type_="string")),
            "residual": (),
        },
    ),
    Case(
        "a chain of three in a pipeline of four",
        "SELECT a.v FROM R [RANGE 1 S] a, R [RANGE 1 S] b, R [RANGE 1 S] c, S [RANGE 1 S] "
        "WHERE a.k = b.k = c.k AND c.name = S.name",
        {
            "type": 2,
            "join_edges": (
                keys("a.`k`", "b.`k`", "c.`k`", type_="bigint"),
                keys("c.`name`", "S.`name`", type_="string"),
            ),
        },
    ),
    Case(
        "classes that meet later are one",
        "SELECT a.v FROM R [RANGE 1 S] a, R [RANGE 1 S] b, R [RANGE 1 S] c, R [RANGE 1 S] d "
        "WHERE a.k = b.k AND c.k = d.k AND d.k = a.k",
        {"type": 1, "key_classes": (keys("a.`k`", "b.`k`", "c.`k`", "d.`k`", type_="bigint"),)},
    ),
    Case(
        "a self join",
        "SELECT a.v AS v1, b.v AS v2 FROM R [RANGE 1 S] a, R [RANGE 2 S] b WHERE a.k = b.k AND a.ts < b.ts",
        {"streams": ("R",), "window_us": (SECOND, 2 * SECOND), "residual": ("`a`.`ts` < `b`.`ts`",)},
    ),
    Case(
        "eight streams",
        "SELECT s1.v FROM "
        + ", ".join(f"R [RANGE 1 S] s{i}" for i in range(1, 9))
        + " WHERE "
        + " = ".join(f"s{i}.k" for i in range(1, 9)),
        {"type": 1, "aliases": tuple(f"s{i}" for i in range(1, 9))},
    ),
    Case(
        "a parenthesised equality is a truth value, not a chain",
        f"SELECT R.v {RS} WHERE R.k = S.k AND (R.v = S.w) = true",
        {"residual": ("(`R`.`v` = `S`.`w`) = TRUE",)},
    ),
    Case(
        "a star over streams with columns of the same name",
        "SELECT * FROM X [RANGE 1 S], Z [RANGE 1 S] WHERE X.dest = Z.dest",
        {"names": ("X_dest", "size", "B", "Z_dest", "C"), "columns": (("dest", "size", "B"), ("dest", "C"))},
    ),
    Case(
        "the star of one stream",
        "SELECT Z.*, X.size * 2 AS twice, X.B FROM X [RANGE 1 S], Z [RANGE 1 S] WHERE X.dest = Z.dest",
        {"names": ("dest", "C", "twice", "B"), "columns": (("size", "B"), ("dest", "C"))},
    ),
    Case(
        "expressions without a name are named by their text",
        f"SELECT R.v + 1, upper(S.name), R.place.city {RS} WHERE R.k = S.k",
        {"names": ("v + 1", "upper(name)", "city")},
    ),
    Case(
        "parameters of a lambda are not columns",
        f"SELECT transform(R.points, k -> k + S.w) AS moved {RS} WHERE R.k = S.k",
        {"output_sql": ("TRANSFORM(`R`.`points`, k -> k + `S`.`w`)",), "columns": (("points",), ("w",))},
    ),
    Case(
        "every aggregate, grouped by the key",
        f"SELECT R.k AS key, SUM(R.v) AS s, COUNT(*) AS n, AVG(S.limit) AS a, MIN(R.name), MAX(R.v * S.w) AS m "
        f"{RS} WHERE R.k = S.k GROUP BY R.k",
        {
            "names": ("key", "s", "n", "a", "min(name)", "m"),
            "group_by": (Output("key", "`R`.`k`", ("R", "k")),),
            "aggregates": (
                Aggregate("s", "sum", "`R`.`v`", ("R",)),
                Aggregate("n", "count", None, ()),
                Aggregate("a", "avg", "`S`.`limit`", ("S",)),
                Aggregate("min(name)", "min", "`R`.`name`", ("R",)),
                Aggregate("m", "max", "`R`.`v` * `S`.`w`", ("R", "S")),
            ),
            "output_sql": ("`key`", "`s`", "`n`", "`a`", "`min(name)`", "`m`"),
            "columns": (("k", "v", "name"), ("w", "limit")),
        },
    ),
    Case(
        "expressions over aggregates, the same one computed once",
        f"SELECT SUM(R.v) / COUNT(*) AS mean, COUNT(1) AS n {RS} WHERE R.k = S.k",
        {
            "aggregates": (Aggregate("sum(v)", "sum", "`R`.`v`", ("R",)), Aggregate("count(*)", "count", None, ())),
            "output_sql": ("`sum(v)` / `count(*)`", "`count(*)`"),
        },
    ),
    Case(
        "GROUP BY an expression, a position, an alias, and a column that is not selected",
        f"SELECT R.v % 10 AS bucket, S.name, lower(R.name) AS low, COUNT(S.w) AS n {RS} WHERE R.k = S.k "
        "GROUP BY R.v % 10, 2, low, S.k",
        {
            "group_by": (
                Output("bucket", "`R`.`v` % 10"),
                Output("name", "`S`.`name`", ("S", "name")),
                Output("low", "LOWER(`R`.`name`)"),
                Output("k", "`S`.`k`", ("S", "k")),
            ),
            "aggregates": (Aggregate("n", "count", "`S`.`w`", ("S",)),),
            "output_sql": ("`bucket`", "`name`", "`low`", "`n`"),
        },
    ),
    Case(
        "a hidden group or aggregate never takes an output's name",
        f"SELECT MAX(R.v) AS k, SUM(S.w) + 0 AS `sum(w)` {RS} WHERE R.k = S.k GROUP BY R.k",
        {
            "group_by": (Output("k_2", "`R`.`k`", ("R", "k")),),
            "aggregates": (
                Aggregate("k", "max", "`R`.`v`", ("R",)),
                Aggregate("sum(w)_2", "sum", "`S`.`w`", ("S",)),
            ),
            "output_sql": ("`k`", "`sum(w)_2` + 0"),
        },
    ),
    Case(
        "the query of a job file",
        "SELECT R.k AS k, R.v AS rv, S.w AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k",
        {"names": ("k", "rv", "sv"), "key_classes": (K,), "window_us": (10 * SECOND, 10 * SECOND)},
    ),
    Case("a final semicolon", f"SELECT R.v {RS} WHERE R.k = S.k;", {"names": ("v",)}),
]

READ: dict[str, Any] = {
    "window_us": lambda query: tuple(one.window_us for one in query.inputs),
    "filters": lambda query: tuple(one.filter for one in query.inputs),
    "columns": lambda query: tuple(one.columns for one in query.inputs),
    "output_sql": lambda query: tuple(one.sql for one in query.outputs),
    "names": lambda query: tuple(one.name for one in query.outputs),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_a_query_means(case: Case, streams: dict[str, Schema]) -> None:
    query = parse(case.text, streams)
    found = {part: READ[part](query) if part in READ else getattr(query, part) for part in case.means}
    assert found == case.means


def test_spark_may_tell_the_type_of_a_key(streams: dict[str, Schema]) -> None:
    asked = []

    def type_of(stream: str, sql: str) -> str:
        asked.append((stream, sql))
        return "bigint"

    query = parse(f"SELECT R.v {RS} WHERE hash(R.name) = S.k", streams, type_of=type_of)
    assert query.key_classes == (keys("R.HASH(`name`)", "S.`k`", type_="bigint"),)
    assert asked == [("R", "HASH(`name`)")]


def test_a_query_tells_its_inputs_and_keys(streams: dict[str, Schema]) -> None:
    query = parse(f"SELECT R.v {RS} WHERE R.v = S.k", streams)
    assert query.input("S").stream == "S"
    assert query.key_classes[0].aliases == ("R", "S")
    assert query.key_classes[0].expression("R") == "`v`"
    assert not query.is_aggregate


SAME = [
    ("select r.v from r[range 1000 ms],s[range 1 second] where r.k=s.k", "white space, case and units"),
    ("SELECT v FROM R [RANGE 1 S] JOIN S [RANGE 1 S] ON S.k = R.k", "another spelling of the join"),
    ("SELECT `R`.`v` AS v FROM R [RANGE 1 S] INNER JOIN S [RANGE 1 S] ON (R.k = S.k) WHERE TRUE", "quotes, an alias"),
]
DIFFERENT = [
    f"SELECT R.v AS x {RS} WHERE R.k = S.k",
    f"SELECT R.k {RS} WHERE R.k = S.k",
    f"SELECT R.v {RS} WHERE R.k = S.k AND R.v > 1",
    f"SELECT R.v {RS} WHERE R.k = S.w",
    f"SELECT R.v {RS} WHERE R.k = S.k AND R.price < S.limit",
    "SELECT R.v FROM R [RANGE 2 S], S [RANGE 1 S] WHERE R.k = S.k",
    "SELECT R.v FROM R [RANGE UNBOUNDED], S [RANGE 1 S] WHERE R.k = S.k",
    f"SELECT SUM(R.v) AS v {RS} WHERE R.k = S.k",
]


@pytest.mark.parametrize(("text", "how"), SAME, ids=lambda value: value)
def test_the_fingerprint_is_that_of_the_meaning(text: str, how: str, streams: dict[str, Schema]) -> None:
    assert how
    assert parse(text, streams, "other").fingerprint == parse(f"SELECT R.v {RS} WHERE R.k = S.k", streams).fingerprint


def test_different_queries_have_different_fingerprints(streams: dict[str, Schema]) -> None:
    prints = [parse(text, streams).fingerprint for text in (f"SELECT R.v {RS} WHERE R.k = S.k", *DIFFERENT)]
    assert len(set(prints)) == len(prints)


def test_the_fingerprint_does_not_change_between_releases(streams: dict[str, Schema]) -> None:
    """A checkpoint is recognised by it: a change here makes every old checkpoint a stranger."""
    assert parse(Q1, streams).fingerprint == "e1d489709094450916982217bb1d14e8"


CONJUNCTS = ["R.k = S.k", "R.v > 3", "R.price < S.limit", "S.w IN (1, 2)", "R.name = S.name", "R.v <> 7"]
WORDS = ["SELECT", "FROM", "WHERE", "AND", "RANGE", "SECONDS", "IN", "AS", "SUM"]


@settings(deadline=None)
@given(order=st.permutations(CONJUNCTS), data=st.data())
def test_order_white_space_and_keyword_case_do_not_matter(
    order: list[str], data: st.DataObject, streams: dict[str, Schema]
) -> None:
    plain = "SELECT R.v AS x FROM R [RANGE 10 SECONDS] , S [RANGE 10 SECONDS] WHERE "
    pieces = (plain + " AND ".join(order)).split(" ")
    cased = [
        data.draw(st.sampled_from([word, word.lower(), word.capitalize()])) if word in WORDS else word
        for word in pieces
    ]
    text = "".join(piece + data.draw(st.sampled_from([" ", "\n", " \t ", " /* c */ "])) for piece in cased)
    assert parse(text, streams).fingerprint == parse(plain + " AND ".join(CONJUNCTS), streams).fingerprint


@settings(deadline=None)
@given(length_us=st.integers(0, 10**15), before=st.booleans())
def test_any_length_of_a_window_reads_back(length_us: int, before: bool, streams: dict[str, Schema]) -> None:
    window = f"[RANGE {describe_duration(length_us)}]"
    entry = f"R {window} AS a" if before else f"R AS a {window}"
    query = parse(f"SELECT a.v FROM {entry}, S [RANGE UNBOUNDED] WHERE a.k = S.k", streams)
    assert [one.window_us for one in query.inputs] == [length_us, None]
