"""The user's own text of an expression is found in the query, whatever the parser's library would make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from braidstream.errors import QueryError
from braidstream.query import Query, Schema, parse
from braidstream.query.meaning import Uncomputable

STREAMS = {
    "R": Schema.from_ddl("k long, s string, day date, js string, arr array<int>, st struct<a:int>, ts timestamp"),
    "S": Schema.from_ddl("k long, s string, day date, w double, ts timestamp"),
}


class Literally:
    """Takes nothing for the same, so that every text stays as it was written."""

    def same(self, inputs: Mapping[str, str], written: str, canonical: str, groups: Sequence[str] | None) -> bool:
        return False

    def compared(self, inputs: Mapping[str, str], left: str, right: str) -> tuple[str, str, str]:
        return "int", "int", "int"

    def check(self, inputs: Mapping[str, str], expressions: Sequence[str], conditions: Sequence[str]) -> None:
        if any("ROUNDD" in sql for sql in expressions):
            raise Uncomputable("no function roundd")


def parsed(select: str, where: str, meaning: Literally | None = None) -> Query:
    text = f"SELECT {select} FROM R [RANGE 1 SECOND], S [RANGE 1 SECOND] WHERE {where}"
    return parse(text, STREAMS, meaning=meaning or Literally())


OUTPUTS = [
    ("unix_date(R.day)", "unix_date(`R`.`day`)"),
    ("log10( s.W )", "log10( `S`.`w` )"),
    ("variant_get(parse_json(js), '$.a', 'int')", "variant_get(parse_json(`R`.`js`), '$.a', 'int')"),
    ("'it''s'", "'it''s'"),
    (r"r'a\'", r"r'a\'"),
    ('"q, from" || R.s', '"q, from" || `R`.`s`'),
    ("1L + R.st.a", "1L + `R`.`st`.a"),
    ("transform(arr, x -> x + S.k)", "TRANSFORM(`R`.`arr`, x -> x + `S`.`k`)"),
    ("CASE WHEN w > 1 THEN 'a' ELSE 'b' END", "CASE WHEN `S`.`w` > 1 THEN 'a' ELSE 'b' END"),
    ("R.s IS DISTINCT FROM S.s", "`R`.`s` IS DISTINCT FROM `S`.`s`"),
    ("nvl(R.s /* none, */, 'x')", "nvl(`R`.`s` , 'x')"),
    ("extract(SECOND FROM R.ts)", "EXTRACT(SECOND FROM `R`.`ts`)"),
]


@pytest.mark.parametrize(("written", "expected"), OUTPUTS)
@pytest.mark.parametrize("alias", ["", " AS x", " x"])
def test_an_output_keeps_its_text(written: str, expected: str, alias: str) -> None:
    query = parsed(f"R.k, {written}{alias}, S.k AS other", "R.k = S.k")
    assert " ".join(query.outputs[1].sql.split()) == expected


CONDITIONS = [
    ("R.s = 'it''s' AND unix_date(day1) > 3", ["`s` = 'it''s'", "unix_date(`day`) > 3"]),
    ("(R.k BETWEEN 1 AND 2L) AND nvl(R.s, '') <> ''", ["`k` BETWEEN 1 AND 2L", "nvl(`s`, '') <> ''"]),
    ("(nvl(R.s, 'a') = 'b' OR R.k = 1L AND R.k < 3)", ["nvl(`s`, 'a') = 'b' OR `k` = 1L AND `k` < 3"]),
    ("CASE WHEN R.k = 1 AND nvl(R.s, '') = '' THEN 1 END", ["CASE WHEN `k` = 1 AND nvl(`s`, '') = '' THEN 1 END"]),
]


@pytest.mark.parametrize(("written", "expected"), CONDITIONS)
def test_a_filter_keeps_its_text(written: str, expected: list[str]) -> None:
    query = parsed("R.k", f"R.k = S.k AND {written.replace('day1', 'R.day')}")
    joined = expected[0] if len(expected) == 1 else " AND ".join(f"({part})" for part in sorted(expected))
    assert query.input("R").filter == joined


def test_both_sides_of_an_equality_keep_their_texts() -> None:
    query = parsed("R.k", "( unix_date(R.day) ) = nvl(unix_date(S.day), 1L) AND R.s = S.s")
    assert query.key_classes[0].members == (("R", "unix_date(`day`)"), ("S", "nvl(unix_date(`day`), 1L)"))


def test_a_chain_of_equalities_keeps_its_texts() -> None:
    query = parsed("R.k", "nvl(R.k, 1L) = nvl(S.k, 2L) = R.k")
    assert query.key_classes[0].members == (("R", "nvl(`k`, 1L)"), ("S", "nvl(`k`, 2L)"))
    assert query.input("R").filter == "CAST(nvl(`k`, 1L) AS BIGINT) = CAST(`k` AS BIGINT)"


@pytest.mark.parametrize("condition", ["R.k = S.k IS NOT NULL", "R.k = S.k = true IS NULL", "R.k = S.k <=> true"])
def test_an_equality_inside_another_predicate_joins_nothing(condition: str) -> None:
    with pytest.raises(QueryError, match="no join predicate"):
        parsed("R.k", condition)


def test_what_spark_cannot_compute_is_refused() -> None:
    with pytest.raises(QueryError, match="no function roundd"):
        parsed("roundd(R.k)", "R.k = S.k")


def test_an_aggregate_that_would_be_rewritten_is_refused() -> None:
    with pytest.raises(QueryError, match="not supported in a query with aggregates"):
        parsed("sum(log10(S.w)) AS x", "R.k = S.k")
