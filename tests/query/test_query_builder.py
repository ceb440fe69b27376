"""The builder: the same queries without text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import braidstream.query as language
from braidstream.errors import InputError, QueryError
from braidstream.query import JoinBuilder, Schema, join, parse

SAME = [
    (
        join("R", "S").window("10 seconds", S=None).on("k").where("R.price < S.limit").select("R.v", "S.w AS width"),
        "SELECT R.v, S.w AS width FROM R [RANGE 10 SECONDS], S [RANGE UNBOUNDED] WHERE R.k = S.k AND R.price < S.limit",
    ),
    (
        join("R", "S", "T").window(timedelta(minutes=1)).on(R="v", S="w", T="from").on("k").where("T.u > 1"),
        "SELECT * FROM R [RANGE 1 MINUTE], S [RANGE 1 MINUTE], T [RANGE 1 MINUTE] "
        "WHERE R.v = S.w = T.from AND R.k = S.k = T.k AND T.u > 1",
    ),
    (
        join("R", "T").window("0 s").on(R="lower(name)", T="`odd name`").select("T.`odd name` AS x"),
        "SELECT T.`odd name` AS x FROM R [RANGE 0 S], T [RANGE 0 S] WHERE lower(R.name) = T.`odd name`",
    ),
    (
        join(a="R", b="R").window("1.5 s").on(a="place.zip", b="b.v").select("a.v AS a", "b.v AS b"),
        "SELECT a.v AS a, b.v AS b FROM R [RANGE 1.5 S] a, R [RANGE 1.5 S] b WHERE a.place.zip = b.v",
    ),
    (
        join("R", "S")
        .window("1 s")
        .on("k")
        .select("R.name", "count(*) AS n")
        .group_by("R.name")
        .select("sum(S.w) AS t"),
        "SELECT R.name, count(*) AS n, sum(S.w) AS t FROM R [RANGE 1 S], S [RANGE 1 S] WHERE R.k = S.k GROUP BY R.name",
    ),
    (
        join("R", "S").window("1 s").on(R="v % 2 = 0", S="w > 3").where("R.v > 1 OR R.v < 0", "S.w = 1").select("R.v"),
        "SELECT R.v FROM R [RANGE 1 S], S [RANGE 1 S] "
        "WHERE (R.v % 2 = 0) = (S.w > 3) AND (R.v > 1 OR R.v < 0) AND S.w = 1",
    ),
]

WRONG: list[tuple[Callable[[], object], str, str]] = [
    (lambda: join("R", "R"), "'R' stands twice", 'join(a="R", b="R")'),
    (lambda: join("R", R="S"), "'R' stands twice", "join(a="),
    (lambda: join("R", "S").window("1 s", "2 s"), "2 windows without an alias", 'S="1 hour"'),
    (lambda: join("R", "S").window(Sx="1 s"), "no stream 'Sx'", "did you mean 'S'?"),
    (lambda: join("R", "S").window("-1 s"), "negative", "write 1"),
    (lambda: join("R", "S").window(5), "not a length of time", '"5 seconds"'),  # type: ignore[arg-type]
    (lambda: join("R", "S").on(R="k"), "names one stream", "the other's key"),
    (lambda: join("R", "S").on(R="k", Q="k"), "no stream 'Q'", "R, S"),
    (lambda: join("R", "S").on(R="lower(", S="k"), "cannot read the key 'lower('", "on("),
    (lambda: join("R", "S").window(R="1 s").on("k").cql, "stream S has no window", "None for unbounded"),
]


@pytest.mark.parametrize(("built", "text"), SAME, ids=[text[:70] for _, text in SAME])
def test_a_built_query_means_what_its_text_means(built: JoinBuilder, text: str, streams: dict[str, Schema]) -> None:
    made, written = built.parse(streams, "q"), parse(text, streams, "q")
    assert made.fingerprint == written.fingerprint
    assert made.outputs == written.outputs
    assert made.name == "q"


def test_the_text_of_a_built_query() -> None:
    built = (
        join("R", b="odd stream", order="R")
        .window("90 min", b=None)
        .on("k")
        .where("R.v > 1")
        .select("R.v")
        .group_by("R.v")
    )
    assert built.cql.splitlines() == [
        "SELECT R.v",
        "FROM R [RANGE 90 MINUTES], `odd stream` [RANGE UNBOUNDED] AS b, R [RANGE 90 MINUTES] AS `order`",
        "WHERE R.k = b.k = `order`.k AND (R.v > 1)",
        "GROUP BY R.v",
    ]


def test_a_builder_is_a_value() -> None:
    base = join("R", "S").window("1 s")
    assert base.on("k") is not base
    assert base.on("k") == base.on("k")
    assert base.conditions == ()


@pytest.mark.parametrize(("build", "wrong", "fix"), WRONG, ids=[wrong for _, wrong, _ in WRONG])
def test_a_wrong_step_is_refused_at_once(build: Callable[[], object], wrong: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert wrong in caught.value.wrong
    assert caught.value.expected
    assert fix in caught.value.fix


def test_errors_of_the_language_point_into_the_built_text(streams: dict[str, Schema]) -> None:
    with pytest.raises(QueryError, match="did you mean 'price'") as caught:
        join("R", "S").window("1 s").on("k").where("R.prise > 1").parse(streams)
    assert caught.value.line == 3


def test_the_public_names_exist_and_are_sorted() -> None:
    assert all(hasattr(language, name) for name in language.__all__)
    assert language.__all__ == sorted(language.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
