"""Wrong queries. In each text the mark » stands right before the token that the error must point at."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import QueryError
from braidstream.query import Schema, parse
from tests.scale import examples

RS = "FROM R [RANGE 1 S], S [RANGE 1 S]"
ON_K = f"{RS} WHERE R.k = S.k"


@dataclass(frozen=True)
class Wrong:
    """A wrong text, and what its error must say: what was wrong, and a part of the hint."""

    text: str
    says: str
    hint: str


WRONG = [
    # The text cannot be read
    Wrong("»SELEC R.v " + ON_K, "begins with 'SELEC'", "begin with SELECT"),
    Wrong(f"SELECT R.v {RS} WHERE R.k = S.k »AND", "cannot read the query at 'AND'", "check commas"),
    Wrong(f"SELECT R.v {RS} »WHERE", "cannot read the query at 'WHERE'", "check commas"),
    Wrong(f"SELECT (R.v + 1 »{ON_K}", "')' is missing", "check commas"),
    Wrong(f"SELECT R.v {ON_K}»)", "cannot read the query at ')'", "check commas"),
    Wrong(f"SELECT R.v {RS} WHERE R.k = S.k AND R.name = »'x", "a text in quotes is not closed", "add '"),
    Wrong(f"SELECT R.»`v {ON_K}", "a quoted name is not closed", "add `"),
    Wrong(f"SELECT R.v »/* all of it {ON_K}", "a comment is not closed", "add */"),
    Wrong(f"SELECT R.v {ON_K}»; SELECT S.w {ON_K}", "more than one statement", "one query for each"),
    Wrong("»DELETE FROM R", "begins with 'DELETE'", "begin with SELECT"),
    Wrong(f"»SELECT {ON_K}", "nothing is selected", "SELECT *"),
    Wrong("SELECT »1", "FROM is missing", "name the streams"),
    Wrong(f"SELECT R.v,», S.w {ON_K}", "nothing stands before the comma", "remove the comma"),
    Wrong(f"SELECT R.v», {ON_K}", "nothing stands after the comma", "remove the comma"),
    Wrong(f"SELECT »,R.v {ON_K}", "nothing stands before the comma", "remove the comma"),
    Wrong(f"SELECT coalesce(R.v»,) AS v {ON_K}", "nothing stands after the comma", "remove the comma"),
    Wrong("SELECT R.v FROM R [RANGE 1 S],», S [RANGE 1 S] WHERE R.k = S.k", "before the comma", "remove the comma"),
    Wrong(f"SELECT R.v, COUNT(*) AS n {ON_K} GROUP BY R.v»,", "nothing stands after the comma", "remove the comma"),
    # Windows
    Wrong("SELECT R.v FROM R [RANGE 1 S], »S WHERE R.k = S.k", "stream S has no window", "S [RANGE UNBOUNDED]"),
    Wrong("SELECT R.v FROM R [RANGE »10], S [RANGE 1 S] WHERE R.k = S.k", "10 has no unit", "10 seconds"),
    Wrong("SELECT R.v FROM R [RANGE »-5 S], S [RANGE 1 S] WHERE R.k = S.k", "-5 is negative", "write 5"),
    Wrong("SELECT R.v FROM R [RANGE 5 »secnods], S [RANGE 1 S] WHERE R.k = S.k", "'secnods'", "'seconds'?"),
    Wrong("SELECT R.v FROM R [RANGE 1 »MONTH], S [RANGE 1 S] WHERE R.k = S.k", "month varies", "30 days"),
    Wrong("SELECT R.v FROM R [RANGE»], S [RANGE 1 S] WHERE R.k = S.k", "length of time is missing", "10 seconds"),
    Wrong("SELECT R.v FROM R [RANGE »ten S], S [RANGE 1 S] WHERE R.k = S.k", "begin with a number", "10 seconds"),
    Wrong("SELECT R.v FROM R [»ROWS 10], S [RANGE 1 S] WHERE R.k = S.k", "number of rows", "[RANGE 10 SECONDS]"),
    Wrong(
        "SELECT R.v FROM R [»PARTITION BY k ROWS 1], S [RANGE 1 S] WHERE R.k = S.k",
        "number of rows",
        "[RANGE 10 SECONDS]",
    ),
    Wrong("SELECT R.v FROM R [»10 S], S [RANGE 1 S] WHERE R.k = S.k", "begin with RANGE", "[RANGE 10 SECONDS]"),
    Wrong("SELECT R.v FROM R [RANGE 9 S »SLIDE 1 S], S [RANGE 1 S] WHERE R.k = S.k", "SLIDE", "leave SLIDE out"),
    Wrong("SELECT R.v FROM R »[RANGE 1 S, S WHERE R.k = S.k", "the window is not closed", "add ]"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] S »[RANGE 1 S] WHERE R.k = S.k", "a second window", "comma between streams"),
    # Streams
    Wrong("SELECT R.v FROM R [RANGE 1 S],\n     »Sx [RANGE 1 S]\nWHERE R.k = Sx.k", "unknown stream 'Sx'", "'S'?"),
    Wrong("SELECT R.v FROM R [RANGE 1 S], »R [RANGE 1 S] WHERE R.k = R.k", "'R' stands twice", "AS R2"),
    Wrong("SELECT R.v FROM »R [RANGE 1 S] WHERE R.k = 1", "only one stream", "add a stream"),
    Wrong(
        "SELECT 1 AS x FROM "
        + ", ".join(f"{'»' if i == 9 else ''}R [RANGE 1 S] s{i}" for i in range(1, 10))
        + " WHERE "
        + " = ".join(f"s{i}.k" for i in range(1, 10)),
        "9 streams in FROM",
        "a query of their own",
    ),
    Wrong(
        "SELECT S.w FROM S [RANGE 1 S], »db.R [RANGE 1 S] WHERE R.k = S.k", "else than a stream", "R [RANGE 10 SECONDS]"
    ),
    Wrong("SELECT S.w FROM S [RANGE 1 S], »R [RANGE 1 S] x(a, b) WHERE x.a = S.k", "else than a stream", "R [RANGE"),
    Wrong("SELECT S.w FROM S [RANGE 1 S], (»SELECT * FROM R [RANGE 1 S]) x WHERE x.k = S.k", "subquery", "of its own"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] »RIGHT SEMI JOIN S [RANGE 1 S] ON R.k = S.k", "RIGHT SEMI", "exchange the st"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] »LEFT JOIN S [RANGE 1 S]", "LEFT JOIN without ON", "an equality"),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] »LEFT JOIN S [RANGE 1 S] USING (k)", "LEFT JOIN without ON", "ON R.k = S.k in"
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] »LEFT OTER JOIN S [RANGE 1 S] ON R.k = S.k",
        "cannot read",
        "did you mean 'OUTER'",
    ),
    Wrong("SELECT R.v FROM R »ASOF RIGHT JOIN S [RANGE 1 S] ON R.k = S.k", "ASOF RIGHT JOIN", "write ASOF LEFT JOIN"),
    Wrong("SELECT R.v FROM »R LEFT JOIN S ON R.k = S.k", "stream R has no window", "write R [RANGE 10 SECONDS]"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] LEFT JOIN »S [RANGE 1 S] ON R.v < S.w", "no join predicate", "to ON"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] LEFT JOIN »S [RANGE 1 S] ON R.v < S.w WHERE R.k = S.k", "no join", "to ON"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] LEFT JOIN »S ON R.k = S.k", "stream S has no window", "S [RANGE 10 SECONDS]"),
    Wrong(
        "SELECT R.v FROM »R [RANGE UNBOUNDED] LEFT JOIN S [RANGE 1 S] ON R.k = S.k",
        "LEFT JOIN keeps the rows of R, whose window never ends",
        "R [RANGE 10 SECONDS]",
    ),
    Wrong("SELECT S.w FROM R [RANGE 1 S] RIGHT JOIN »S [RANGE UNBOUNDED] ON R.k = S.k", "never ends", "S [RANGE"),
    Wrong("SELECT R.v FROM R ASOF JOIN »S ON R.k = S.k", "stream S has no window", "S [RANGE 10 SECONDS]"),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k »JOIN T [RANGE 1 S] ON R.k = T.k",
        "JOIN after a LEFT JOIN in a query of 3 streams",
        "a query of their own",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k »LEFT ANTI JOIN T [RANGE 1 S] ON R.k = T.k",
        "LEFT ANTI JOIN after a LEFT JOIN in a query of 3 streams",
        "a query of their own",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] »LEFT JOIN S [RANGE 1 S] LEFT JOIN T [RANGE 1 S] ON R.k = S.k AND R.k = T.k",
        "LEFT JOIN without ON",
        "LEFT JOIN ... ON",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON »R.k = T.k LEFT JOIN T [RANGE 1 S] ON R.k = T.k",
        "ON names T before it is joined",
        "name T in its own ON",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k LEFT JOIN »T [RANGE 1 S] ON R.v < T.k",
        "no equality in ON connects T with R, S",
        "add ... = T.key to ON",
    ),
    Wrong(
        "SELECT R.v FROM »R [RANGE UNBOUNDED] LEFT JOIN S [RANGE 1 S] ON R.k = S.k "
        "LEFT JOIN T [RANGE 1 S] ON S.k = T.k",
        "LEFT JOIN keeps the rows of R, whose window never ends",
        "R [RANGE 10 SECONDS]",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S], T [RANGE 1 S] »FULL JOIN S [RANGE 1 S] ON R.k = S.k WHERE R.k = T.k",
        "FULL JOIN in a query of 3 streams",
        "a query of their own",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S], T [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k AND »R.v > 3\n"
        "WHERE R.k = T.k",
        "ON of the LEFT JOIN has R.v > 3",
        "compute it in a stream",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S], T [RANGE 1 S] LEFT JOIN »S [RANGE 1 S] ON R.v < S.w WHERE R.k = T.k",
        "no equality in ON connects S with R, T",
        "to ON",
    ),
    Wrong(
        "SELECT R.v FROM »R [RANGE UNBOUNDED] JOIN T [RANGE 1 S] ON R.k = T.k LEFT JOIN S [RANGE 1 S] ON R.k = S.k",
        "never ends",
        "R [RANGE 10 SECONDS]",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k AND »R.v + S.w < 3",
        "cannot evaluate to decide what a match is",
        "WHERE takes any condition",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k AND (»R.v < S.w OR R.v > 9)",
        "cannot evaluate",
        "withColumn",
    ),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S] LEFT SEMI JOIN S [RANGE 1 S] ON R.k = S.k WHERE »S.w > 1",
        "WHERE names S, of which a LEFT SEMI JOIN has no columns",
        "move the condition to ON",
    ),
    Wrong(
        "SELECT R.v, »S.w FROM R [RANGE 1 S] LEFT ANTI JOIN S [RANGE 1 S] ON R.k = S.k",
        "S is not in the result of a LEFT ANTI JOIN",
        "leave S.w out",
    ),
    Wrong(
        "SELECT COUNT(*) AS »n FROM R [RANGE 1 S] LEFT JOIN S [RANGE 1 S] ON R.k = S.k",
        "aggregates over a LEFT JOIN are not supported",
        "aggregate them there",
    ),
    Wrong("SELECT R.v FROM R [RANGE 1 S] »NATURAL JOIN S [RANGE 1 S]", "NATURAL JOIN", "write JOIN"),
    Wrong("SELECT R.v FROM R [RANGE 1 S] JOIN S [RANGE 1 S] »USING (k)", "USING", "ON R.k = S.k"),
    # Names
    Wrong(f"SELECT R.»prise {ON_K}", "stream 'R' has no column 'prise'", "did you mean 'price'?"),
    Wrong(f"SELECT »prise {ON_K}", "no stream has a column 'prise'", "did you mean 'price'?"),
    Wrong(f"SELECT R.v {RS} WHERE R.k = S.»kk", "stream 'S' has no column 'kk'", "did you mean 'k'?"),
    Wrong(f"SELECT »k {ON_K}", "column 'k' is ambiguous", "R.k or S.k"),
    Wrong(f"SELECT »Q.v {ON_K}", "no stream or alias 'Q'", "R, S"),
    Wrong("SELECT »R.v FROM R [RANGE 1 S] a, S [RANGE 1 S] WHERE a.k = S.k", "no stream or alias 'R'", "write a.v"),
    Wrong(f"SELECT »Q.* {ON_K}", "no stream or alias 'Q'", "R, S"),
    Wrong(f"SELECT R.place.»town {ON_K}", "has no field 'town'", "city, zip"),
    Wrong(f"SELECT R.k, »S.k {ON_K}", "two output columns are named 'k'", "S.k AS S_k"),
    Wrong(f"SELECT R.v AS a, S.w AS »A {ON_K}", "two output columns are named 'A'", "another name"),
    # The join
    Wrong("SELECT R.v FROM R [RANGE 1 S], »S [RANGE 1 S]", "no join predicate connects S with R", "add R.k = S.k"),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S], »S [RANGE 1 S] WHERE R.k = S.k OR R.v = S.w", "no join predicate", "R.k = S.k"
    ),
    Wrong("SELECT R.v FROM R [RANGE 1 S], »S [RANGE 1 S] WHERE R.k < S.k", "no join predicate", "R.k = S.k"),
    Wrong("SELECT R.v FROM R [RANGE 1 S], »S [RANGE 1 S] WHERE R.k <=> S.k", "no join predicate", "R.k = S.k"),
    Wrong(
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S], »T [RANGE 1 S] WHERE R.k = S.k AND T.u > 1",
        "no join predicate connects T with R, S",
        "R.k = T.k",
    ),
    Wrong(
        f"SELECT R.v {RS} WHERE »R.k = S.name",
        "R.k (bigint) and S.name (string) do not compare",
        "CAST(R.k AS STRING)",
    ),
    Wrong("SELECT S.w FROM S [RANGE 1 S], T [RANGE 1 S] WHERE »S.labels = T.labels", "do not compare", "no map"),
    Wrong(f"SELECT R.v {RS} WHERE »my_hash(R.name) = S.k", "type of the join key", "CAST(MY_HASH(R.name) AS BIGINT)"),
    # Aggregates
    Wrong(f"SELECT »R.name, SUM(S.w) AS s {ON_K}", "neither aggregated nor in GROUP BY", "GROUP BY R.name"),
    Wrong(f"SELECT R.k, »R.name, SUM(S.w) AS s {ON_K} GROUP BY R.k", "R.name is neither", "MIN(R.name)"),
    Wrong(f"SELECT »*, COUNT(*) AS n {ON_K} GROUP BY R.k", "R.v is neither", "GROUP BY R.v"),
    Wrong(f"SELECT R.k {ON_K} »GROUP BY R.k", "GROUP BY without an aggregate", "COUNT(*)"),
    Wrong(f"SELECT R.k, »STDDEV(S.w) AS d {ON_K} GROUP BY R.k", "STDDEV is not supported", "SUM, COUNT"),
    Wrong(f"SELECT COUNT(»DISTINCT R.k) AS n {ON_K}", "COUNT(DISTINCT) over windows that slide", "GROUP BY window("),
    Wrong(f"SELECT »COUNT(R.k, R.v) AS n {ON_K}", "one argument", "one expression"),
    Wrong(f"SELECT »SUM(MAX(R.k)) AS n {ON_K}", "inside an aggregate", "once"),
    Wrong(f"SELECT SUM(R.v) »FILTER (WHERE R.v > 1) AS n {ON_K}", "FILTER", "CASE WHEN"),
    Wrong(f"SELECT SUM(R.v) »IGNORE NULLS AS n {ON_K}", "IGNORE", "CASE WHEN"),
    Wrong(f"SELECT R.v {ON_K} AND »COUNT(*) > 3", "cannot stand in WHERE", "SELECT"),
    Wrong(f"SELECT COUNT(*) AS n {ON_K} GROUP BY »MAX(R.v)", "cannot hold an aggregate", "leave it out"),
    Wrong(f"SELECT R.k, COUNT(*) AS n {ON_K} GROUP BY »7", "no position", "name the column"),
    Wrong(f"SELECT COUNT(*) AS n {ON_K} »GROUP BY ROLLUP (R.k)", "ROLLUP", "GROUP BY R.k"),
    Wrong(f"SELECT SUM(R.v) »OVER (ORDER BY R.ts) AS s {ON_K}", "OVER", "GROUP BY"),
    Wrong(f"SELECT COUNT(»R.*) AS n {ON_K}", "* is not supported inside", "name the columns"),
    # Clauses and functions that a continuous query cannot have
    Wrong(f"SELECT »DISTINCT R.v {ON_K}", "DISTINCT is not supported", "leave it out"),
    Wrong(f"SELECT R.v {ON_K} »ORDER BY R.v", "ORDER BY is not supported", "leave it out"),
    Wrong(f"SELECT S.limit {ON_K} »LIMIT 5", "LIMIT is not supported", "stop the flow"),
    Wrong(f"SELECT R.k, COUNT(*) AS n {ON_K} GROUP BY R.k »HAVING COUNT(*) > 1", "HAVING", "in the sink"),
    Wrong(f"SELECT R.v {ON_K} »UNION ALL SELECT S.w {ON_K}", "UNION is not supported", "one query for each"),
    Wrong(f"»WITH x AS (SELECT 1) SELECT R.v {ON_K}", "WITH is not supported", "stream of its own"),
    Wrong(f"SELECT R.v {ON_K} AND R.v IN (»SELECT 1)", "a subquery is not supported", "stream of its own"),
    Wrong(f"SELECT R.v {RS} »LATERAL VIEW explode(R.points) p AS q WHERE R.k = S.k", "LATERAL VIEW", "DataFrame"),
    Wrong(f"SELECT »explode(R.points) AS p {ON_K}", "several rows", "DataFrame"),
    Wrong(f"SELECT R.v, »rand() AS x {ON_K}", "RAND gives another value", "DataFrame of the stream"),
    Wrong(f"SELECT R.v {ON_K} AND R.ts < »current_timestamp()", "CURRENT_TIMESTAMP gives another", "DataFrame"),
    Wrong(f"SELECT R.v {ON_K} AND R.v = »:limit", "parameters", "the value itself"),
    Wrong(f"SELECT »* EXCEPT (v) {ON_K}", "EXCEPT after *", "list the columns"),
]


def place_of_mark(text: str) -> tuple[int, int]:
    lines = text[: text.index("»") + 1].splitlines()
    return len(lines), len(lines[-1])


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.text[:90])
def test_a_wrong_query_is_refused_at_its_place(wrong: Wrong, streams: dict[str, Schema]) -> None:
    with pytest.raises(QueryError) as caught:
        parse(wrong.text.replace("»", ""), streams)
    error = caught.value
    assert wrong.says in error.wrong
    assert wrong.hint in error.fix
    assert error.expected
    assert (error.line, error.column) == place_of_mark(wrong.text), str(error)


def test_the_place_is_that_of_the_users_text_after_windows_and_other_letters(streams: dict[str, Schema]) -> None:
    """Windows are taken out before parsing, and letters outside ASCII come before the mistake."""
    text = "SELECT 'größe' AS größe, R.v -- über\nFROM R [RANGE 10 S], S [RANGE\n 1 S]\nWHERE R.k = S.k AND R.nope = 1"
    with pytest.raises(QueryError) as caught:
        parse(text, streams)
    assert (caught.value.line, caught.value.column) == (4, 23)
    assert str(caught.value).splitlines()[1:3] == ["    WHERE R.k = S.k AND R.nope = 1", " " * 26 + "^"]


@pytest.mark.parametrize("text", ["", "  \n ", "-- nothing", ";"])
def test_an_empty_query_is_refused(text: str, streams: dict[str, Schema]) -> None:
    with pytest.raises(QueryError, match="the query is empty"):
        parse(text, streams)


def test_deep_nesting_is_refused(streams: dict[str, Schema]) -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        parse(f"SELECT {'(' * 3000}R.v{')' * 3000} AS v {ON_K}", streams)


def test_no_streams_at_all() -> None:
    with pytest.raises(QueryError, match="unknown stream 'R'"):
        parse(f"SELECT R.v {ON_K}", {})


KEYWORDS = ["SELECT", "FROM", "WHERE", "AND", "OR", "GROUP", "BY", "JOIN", "ON", "AS", "NOT", "IN", "BETWEEN", "LEFT"]
CLAUSES = [
    "ORDER",
    "DISTINCT",
    "CASE",
    "WHEN",
    "END",
    "OVER",
    "RANGE",
    "UNBOUNDED",
    "[RANGE 1 S]",
    "[RANGE",
    "GROUP BY",
]
NAMES = ["R", "S", "T", "R.k", "S.k", "R.v", "k", "x", "5", "-1", "'x'", ":x", "sum(", "count(*)", "lower(", "R.*"]
MARKS = ["*", "(", ")", ",", "=", "<", "[", "]", ";", ".", "`", "--", "/*", "?", "@", "->", "\n", "'"]


@settings(deadline=None, max_examples=examples(300))
@given(words=st.lists(st.sampled_from([*KEYWORDS, *CLAUSES, *NAMES, *MARKS]), max_size=25), begins_well=st.booleans())
def test_any_text_is_a_query_or_an_error_with_a_place(
    words: list[str], begins_well: bool, streams: dict[str, Schema]
) -> None:
    text = (f"SELECT R.v {ON_K} " if begins_well else "") + " ".join(words)
    error = error_of(text, streams)
    if error is not None:
        assert error.expected
        assert error.fix
    if error is not None and error.line:
        assert 1 <= error.column <= len(text.splitlines()[error.line - 1])


def error_of(text: str, streams: dict[str, Schema]) -> QueryError | None:
    try:
        parse(text, streams)
    except QueryError as error:
        return error
    return None
