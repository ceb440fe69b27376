"""Outer, semi, anti and as-of joins in CQL: which words mean which, and which condition becomes what."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from braidstream.errors import InputError, QueryError
from braidstream.model.join_kinds import JoinKind
from braidstream.query import Match, Query, Schema, parse
from braidstream.query.builder import kind_named
from braidstream.query.evolution import lack

SECOND = 1_000_000
NEAR = "S.ts BETWEEN R.ts + INTERVAL {} SECONDS AND R.ts + INTERVAL 2 SECONDS"


def query(streams: dict[str, Schema], joined: str, rest: str = "", select: str = "R.v", on: str = "R.k = S.k") -> Query:
    return parse(f"SELECT {select} FROM R [RANGE 2 S] {joined} S [RANGE 3 S] ON {on} {rest}", streams)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("JOIN", JoinKind.INNER),
        ("INNER JOIN", JoinKind.INNER),
        ("left join", JoinKind.LEFT),
        ("LEFT OUTER JOIN", JoinKind.LEFT),
        ("RIGHT JOIN", JoinKind.RIGHT),
        ("RIGHT OUTER JOIN", JoinKind.RIGHT),
        ("FULL JOIN", JoinKind.FULL),
        ("FULL OUTER JOIN", JoinKind.FULL),
        ("SEMI JOIN", JoinKind.SEMI),
        ("LEFT SEMI JOIN", JoinKind.SEMI),
        ("ANTI JOIN", JoinKind.ANTI),
        ("LEFT ANTI JOIN", JoinKind.ANTI),
        ("ASOF JOIN", JoinKind.ASOF),
        ("ASOF LEFT JOIN", JoinKind.ASOF_LEFT),
    ],
)
def test_the_words_of_a_join_say_its_kind(words: str, kind: JoinKind, streams: dict[str, Schema]) -> None:
    assert query(streams, words).kind is kind


PYSPARK = {
    JoinKind.INNER: ["inner"],
    JoinKind.LEFT: ["left", "leftouter", "left_outer"],
    JoinKind.RIGHT: ["right", "rightouter", "right_outer"],
    JoinKind.FULL: ["outer", "full", "fullouter", "full_outer"],
    JoinKind.SEMI: ["semi", "leftsemi", "left_semi"],
    JoinKind.ANTI: ["anti", "leftanti", "left_anti"],
}
"""Its names, without "cross"."""


@pytest.mark.parametrize(("kind", "how"), [(kind, how) for kind, names in PYSPARK.items() for how in names])
def test_pysparks_names_say_the_same_kinds(kind: JoinKind, how: str) -> None:
    assert kind_named(how) is kind
    assert kind_named(how.upper()) is kind


@pytest.mark.parametrize(
    ("how", "fix"),
    [
        ("cross", 'write how="inner" with allow="no-equality"'),
        ("right_semi", 'exchange the streams, and write how="semi"'),
        ("asof_right", 'exchange the streams, and write how="asof_left"'),
        ("lefft", "did you mean 'left'?"),
    ],
)
def test_what_is_no_kind_is_refused_with_what_to_write(how: str, fix: str) -> None:
    with pytest.raises(InputError, match="one of inner, left") as caught:
        kind_named(how)
    assert caught.value.fix == fix


def test_a_left_join_whose_interval_is_in_where_is_told_where_it_belongs(streams: dict[str, Schema]) -> None:
    timed = {name: replace(streams[name], time="ts") for name in "RS"}
    interval = "S.ts BETWEEN R.ts AND R.ts + INTERVAL 2 SECONDS"
    with pytest.raises(QueryError) as caught:
        parse(f"SELECT R.v FROM R LEFT JOIN S ON R.k = S.k WHERE {interval}", timed)
    assert caught.value.fix.endswith("or bound its time by an interval in ON")


@dataclass(frozen=True)
class Case:
    """A join and what becomes of its conditions."""

    what: str
    join: str
    on: str = "R.k = S.k"
    where: str = ""
    filters: dict[str, str] = field(default_factory=dict)
    matches: dict[str, str] = field(default_factory=dict)
    compared: tuple[Match, ...] = ()
    residual: tuple[str, ...] = ()


CASES = [
    Case("only an equality", "LEFT JOIN"),
    Case(
        "a condition of ON on the kept side decides a match, one on the other side filters it",
        "LEFT JOIN",
        "R.k = S.k AND R.v > 3 AND S.w < 9",
        filters={"S": "`w` < 9"},
        matches={"R": "`v` > 3"},
    ),
    Case(
        "the other way round for RIGHT",
        "RIGHT JOIN",
        "R.k = S.k AND R.v > 3 AND S.w < 9",
        filters={"R": "`v` > 3"},
        matches={"S": "`w` < 9"},
    ),
    Case(
        "both decide for FULL",
        "FULL JOIN",
        "R.k = S.k AND R.v > 3 AND S.w < 9",
        matches={"R": "`v` > 3", "S": "`w` < 9"},
    ),
    Case(
        "a row that cannot match is in no SEMI JOIN",
        "LEFT SEMI JOIN",
        "R.k = S.k AND R.v > 3",
        filters={"R": "`v` > 3"},
    ),
    Case("but it is in an ANTI JOIN", "LEFT ANTI JOIN", "R.k = S.k AND R.v > 3", matches={"R": "`v` > 3"}),
    Case(
        "WHERE filters rows of the kept side, and results by the other",
        "LEFT JOIN",
        where="R.v > 3 AND S.w < 9 AND S.k IS NULL",
        filters={"R": "`v` > 3"},
        residual=("`S`.`w` < 9", "`S`.`k` IS NULL"),
    ),
    Case(
        "WHERE filters results only after FULL",
        "FULL JOIN",
        where="R.v > 3 AND R.v < S.w",
        residual=("`R`.`v` > 3", "`R`.`v` < `S`.`w`"),
    ),
    Case(
        "WHERE after an as-of join filters what was chosen",
        "ASOF JOIN",
        where="R.v > 3 AND S.w < 9",
        filters={"R": "`v` > 3"},
        residual=("`S`.`w` < 9",),
    ),
    Case(
        "comparisons have the first stream's side first",
        "LEFT JOIN",
        "R.k = S.k AND R.v < S.w AND S.limit <= R.price",
        compared=(Match("`v`", "<", "`w`", "int"), Match("`price`", ">=", "`limit`", "double")),
    ),
    Case(
        "BETWEEN is two comparisons",
        "LEFT JOIN",
        "R.k = S.k AND S.w BETWEEN R.v AND R.v + 10",
        compared=(Match("`v`", "<=", "`w`", "int"), Match("`v` + 10", ">=", "`w`", "bigint")),
    ),
    Case(
        "an equality by <=> is a comparison",
        "LEFT JOIN",
        "R.k = S.k AND R.name <=> S.name",
        compared=(Match("`name`", "<=>", "`name`", "string"),),
    ),
    Case(
        "a second equal column of the kept side is a condition on a match",
        "LEFT JOIN",
        "R.k = S.k AND R.v = S.k",
        matches={"R": "`k` = CAST(`v` AS BIGINT)"},
    ),
    Case(
        "the function left() is no join",
        "LEFT JOIN",
        "left(R.name, 2) = left(S.name, 2) AND R.v > 3",
        matches={"R": "`v` > 3"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_what_becomes_of_conditions(case: Case, streams: dict[str, Schema]) -> None:
    found = query(streams, case.join, f"WHERE {case.where}" if case.where else "", on=case.on)
    assert {e.alias: e.filter for e in found.inputs if e.filter} == case.filters
    assert {e.alias: e.match for e in found.inputs if e.match} == case.matches
    assert found.on == case.compared
    assert found.residual == case.residual


@pytest.fixture
def timed(streams: dict[str, Schema]) -> dict[str, Schema]:
    return {name: replace(streams[name], time="ts") for name in "RS"}


@pytest.mark.parametrize("words", ["LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_an_interval_bounds_the_times_of_partners_and_is_no_comparison(words: str, timed: dict[str, Schema]) -> None:
    found = query(timed, words, on=f"R.k = S.k AND {NEAR.format(1)} AND R.v < S.w")
    assert [(gap.low_us, gap.high_us) for gap in found.gaps] == [(SECOND, 2 * SECOND)]
    assert found.on == (Match("`v`", "<", "`w`", "int"),)


def test_an_interval_is_a_condition_to_an_as_of_join(timed: dict[str, Schema]) -> None:
    found = query(timed, "ASOF JOIN", on="R.k = S.k AND S.ts >= R.ts - INTERVAL 1 SECOND")
    assert found.gaps == ()
    assert [match.operator for match in found.on] == ["<="]
    assert [entry.window_us for entry in found.inputs] == [2 * SECOND, 3 * SECOND]


@pytest.mark.parametrize("words", ["LEFT JOIN", "LEFT SEMI JOIN"])
def test_another_interval_is_another_query_even_if_windows_are_the_same(words: str, timed: dict[str, Schema]) -> None:
    one, other = (query(timed, words, on=f"R.k = S.k AND {NEAR.format(low)}") for low in (0, 1))
    assert [e.window_us for e in one.inputs] == [e.window_us for e in other.inputs]
    assert lack(one, one) == ""
    assert lack(one, other) == "it joins other times: which rows had a match followed from those until now"


def test_a_star_over_a_semi_join_has_the_first_streams_columns(streams: dict[str, Schema]) -> None:
    found = query(streams, "LEFT SEMI JOIN", select="*")
    assert [output.name for output in found.outputs] == list(streams["R"].names)
    assert len(query(streams, "LEFT JOIN", select="*").outputs) == len(streams["R"].names) + len(streams["S"].names)


def test_the_first_stream_of_an_as_of_join_needs_no_window(streams: dict[str, Schema]) -> None:
    found = parse("SELECT R.v, S.w FROM R ASOF JOIN S [RANGE 3 S] ON R.k = S.k", streams)
    assert [entry.window_us for entry in found.inputs] == [0, 3 * SECOND]


def test_kinds_conditions_and_sides_are_part_of_what_a_query_means(streams: dict[str, Schema]) -> None:
    found = [
        query(streams, "JOIN"),
        query(streams, "LEFT JOIN"),
        query(streams, "FULL JOIN"),
        query(streams, "LEFT JOIN", on="R.k = S.k AND R.v > 3"),
        query(streams, "LEFT JOIN", "WHERE R.v > 3"),
        query(streams, "LEFT JOIN", on="R.k = S.k AND R.v > S.w"),
        query(streams, "LEFT JOIN", on="R.k = S.k AND R.v < S.w"),
    ]
    assert len({one.fingerprint for one in found}) == len(found)
    assert query(streams, "LEFT OUTER JOIN").fingerprint == query(streams, "left join").fingerprint


def test_a_query_of_another_kind_is_another_query(streams: dict[str, Schema]) -> None:
    left, inner = query(streams, "LEFT JOIN"), query(streams, "JOIN")
    assert lack(inner, left) == "it is a LEFT JOIN; until now a JOIN"
    assert "other conditions on a match" in lack(left, query(streams, "LEFT JOIN", on="R.k = S.k AND R.v > S.w"))
    shorter = parse("SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 3 S] ON R.k = S.k", streams)
    assert "rows were kept for 2 seconds" in lack(left, shorter)
    assert lack(left, query(streams, "LEFT JOIN", "WHERE S.k IS NULL", select="R.v")) == "S.k was not stored"
