"""What the engine decides and sorts by in a query without an equality, and which queries are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from braidstream.errors import InputError, QueryError
from braidstream.query import Query, Schema, join, parse
from braidstream.query.bands import NO_EQUALITY
from braidstream.query.evolution import lack
from braidstream.query.meaning import Typed

COLUMNS = "k bigint, x int, y double, f float, d decimal(10,2), s string, day date, ts timestamp"
STREAMS = dict.fromkeys("RST", replace(Schema.from_ddl(COLUMNS), time="ts"))


def read(where: str, select: str = "R.k, S.k AS k2", **options: Any) -> Query:
    text = f"SELECT {select} FROM R [RANGE 1 S], S [RANGE 2 S]" + (f" WHERE {where}" if where else "")
    return parse(text, STREAMS, allow=NO_EQUALITY, **options)


BANDS = {
    "ABS(R.x - S.x) < 5": ("x", "x", -4, 4, False),
    "5 > ABS(S.x - R.x)": ("x", "x", -4, 4, False),
    "ABS(S.x - R.x + 1) <= 5": ("x", "x", -4, 6, False),
    "R.x < S.k": ("x", "k", None, -1, False),
    "R.x + 3 >= S.x": ("x", "x", -3, None, False),
    "S.x BETWEEN R.x - 1 AND R.x + 2.5": ("x", "x", -2, 1, False),
    "R.x + S.x > 10": ("x", "x", 11, None, True),
    "10 - R.x > S.x": ("x", "x", None, 9, True),
    "-R.x + S.x < -3": ("x", "x", 4, None, False),
    "R.x - S.x = 3": ("x", "x", 3, 3, False),
    "R.day <= S.day": ("day", "day", None, 0, False),
    "R.x < S.x AND R.x > S.x - 4": ("x", "x", -3, -1, False),
}


@pytest.mark.parametrize("where", BANDS)
def test_bounds_between_whole_numbers_are_all_that_is_left_of_a_conjunct(where: str) -> None:
    query = read(where)
    (band,) = query.bands
    assert (band.left, band.right) == tuple(f"`{name}`" for name in BANDS[where][:2])
    assert (band.low, band.high, band.is_sum) == BANDS[where][2:]
    assert band.is_whole
    assert (query.on, query.residual) == ((), ())


@pytest.mark.parametrize("where", ["ABS(R.y - S.y) < 5", "R.f - S.x < 1", "R.d + S.d >= 1.5"])
def test_bounds_between_other_numbers_leave_the_predicate_to_spark(where: str) -> None:
    query = read(where)
    (band,) = query.bands
    assert not band.is_whole
    assert len(query.residual) == 1


@pytest.mark.parametrize(
    ("where", "operators"),
    [
        ("R.s < S.s", ["<"]),
        ("R.x <> S.x", ["!="]),
        ("R.k <=> S.k", ["<=>"]),
        ("R.y >= S.y AND R.s > S.s", [">=", ">"]),
    ],
)
def test_comparisons_of_other_values_are_decided_by_the_engine(where: str, operators: list[str]) -> None:
    query = read(where)
    assert [match.operator for match in query.on] == operators
    assert query.residual == ()


@pytest.mark.parametrize(
    "where",
    [
        "R.s LIKE S.s",
        "R.x * S.x > 3",
        "R.x < S.x OR R.k < 3",
        "ABS(R.x - S.x) > 3",
        "ABS(R.x - S.x) < R.k",
        "R.x + S.x - R.k < 3",
    ],
)
def test_anything_else_is_left_to_spark(where: str) -> None:
    query = read(where)
    assert (query.on, query.bands) == ((), ())
    assert len(query.residual) == 1


def test_no_predicate_at_all_is_a_product_within_the_windows() -> None:
    query = read("")
    assert query.is_unkeyed
    assert (query.on, query.bands, query.residual) == ((), (), ())
    assert read("R.x = 3 AND S.x > R.x").inputs[0].filter == "`x` = 3"


def test_the_narrowest_band_comes_first() -> None:
    found = read("R.k < S.k AND ABS(R.x - S.x) < 100 AND ABS(R.y - S.y) < 1").bands
    assert [band.left for band in found] == ["`y`", "`x`", "`k`"]


def test_a_query_is_known_again_however_its_conjuncts_are_arranged() -> None:
    one, other = read("R.x < S.x AND R.s < S.s"), read("R.s < S.s AND R.x < S.x")
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != read("R.x <= S.x AND R.s < S.s").fingerprint
    assert "other conditions on a match" in lack(one, read("R.x <= S.x AND R.s < S.s"))
    assert not lack(one, other)


class Wrapping:
    """Spark without ANSI mode, as far as it is asked here."""

    def is_ansi(self) -> bool:
        return False

    def type_of(self, inputs: Any, sql: str, *, aggregated: bool = False) -> Typed:
        raise AssertionError(sql)

    def same(self, *_: Any) -> bool:
        return True

    def check(self, *_: Any) -> None:
        """All of it can be computed."""


def test_where_whole_numbers_wrap_around_their_differences_are_sparks() -> None:
    assert read("ABS(R.x - S.x) < 5", meaning=Wrapping()).bands == ()
    assert len(read("ABS(R.y - S.y) < 5", meaning=Wrapping()).bands) == 1


def test_it_is_refused_unless_it_is_allowed() -> None:
    text = "SELECT R.k FROM R [RANGE 1 S], S [RANGE 1 S] WHERE R.x < S.x"
    with pytest.raises(QueryError, match="no join predicate connects S with R") as refused:
        parse(text, STREAMS)
    assert 'allow = "no-equality"' in refused.value.fix
    assert "|R| x |S| / p pairs on p slots" in refused.value.fix
    assert join("R", "S").window("1 s").where("R.x < S.x").parse(STREAMS, allow=NO_EQUALITY).is_unkeyed
    with pytest.raises(InputError, match="allow is 'no_equality'"):
        parse(text, STREAMS, allow="no_equality")
    assert not parse(text.replace("<", "="), STREAMS, allow=NO_EQUALITY).is_unkeyed


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("SELECT R.k FROM R [RANGE 1 S], S [RANGE 1 S], T [RANGE 1 S] WHERE R.x < S.x", "no join predicate"),
        ("SELECT R.k FROM R [RANGE 1 S], S [RANGE 1 S], T [RANGE 1 S] WHERE R.k = S.k AND T.x < S.x", "connects T"),
        ("SELECT R.k FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.x < S.x", "no join predicate"),
        ("SELECT R.k FROM R [RANGE 1 S] LEFT SEMI JOIN S [RANGE 1 S] ON R.x < S.x", "no join predicate"),
        ("SELECT COUNT(*) AS n FROM R [RANGE 1 S], S [RANGE 1 S] WHERE R.x < S.x", "aggregates over a join without"),
        (
            "SELECT window.start AS w, COUNT(*) AS n FROM R [RANGE 1 S], S [RANGE 1 S] GROUP BY window(R.ts, '1 hour')",
            "aggregates over a join without",
        ),
    ],
    ids=["three streams", "one of three", "left", "semi", "aggregates", "windows of time"],
)
def test_other_shapes_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(QueryError, match=wrong):
        parse(text, STREAMS, allow=NO_EQUALITY)
