"""What changes between two declarations, and what the state of one query has not for another. Without any engine."""

from __future__ import annotations

import pytest

from braidstream.model.declarations import Declared, Target
from braidstream.query import Query, Schema, parse
from braidstream.query.evolution import Held, added_columns, compare, lack

COLUMNS = "k long, j long, v long, w string, ts timestamp"
SCHEMAS = {name: Schema.from_ddl(COLUMNS) for name in "RST"}
TEXT = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k AND R.v > 1"
CHAIN = (
    "SELECT R.v AS a, T.v AS b FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS], T [RANGE 9 SECONDS] "
    "WHERE R.k = S.k AND S.j = T.j"
)


def parsed(text: str, name: str) -> Query:
    return parse(text, SCHEMAS, name)


def declared(text: str, to: str = "out", **more: object) -> Declared:
    return Declared(parsed(text, "q").fingerprint, text, Target("parquet", to), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "old", "new", "told"),
    [
        (TEXT, "R.v AS rv", "R.v + 1 AS rv", ""),
        (TEXT, "R.v AS rv", "R.v AS other", ""),
        (TEXT, ", S.v AS sv", "", ""),
        (TEXT, "RANGE 30 SECONDS], S", "RANGE 20 SECONDS], S", ""),
        (TEXT, "R.v > 1", "R.v > 1 AND R.v < S.v", ""),
        (TEXT, "R.v AS rv", "R.w AS rv", "R.w was not stored"),
        (
            TEXT,
            "RANGE 30 SECONDS], S",
            "RANGE 31 SECONDS], S",
            "the window of R is 31 seconds, rows were kept for 30 s",
        ),
        (TEXT, "RANGE 30 SECONDS], S", "RANGE UNBOUNDED], S", "the window of R is unbounded"),
        (TEXT, "R.v > 1", "R.v > 2", "the condition on R is another"),
        (TEXT, " AND R.v > 1", "", "the condition on R is another"),
        (TEXT, "R.k = S.k", "R.j = S.k", "it joins on other keys"),
        (
            TEXT,
            "S.v AS sv FROM R [RANGE 30 SECONDS], S ",
            "S.v AS sv FROM R [RANGE 30 SECONDS], T S ",
            "it reads R, T S",
        ),
        (TEXT, "SELECT R.v AS rv, S.v AS sv", "SELECT COUNT(*) AS n", "what an aggregate keeps is made for its text"),
        (CHAIN, "R.v AS a", "2 * R.v AS a", ""),
        (CHAIN, "R [RANGE 9", "R [RANGE 8", "the window of R is 8 seconds, rows were kept for 9 seconds"),
        (CHAIN, "S.j = T.j", "S.k = T.j", "it joins on other keys"),
    ],
)
def test_what_state_has_not(text: str, old: str, new: str, told: str) -> None:
    assert old in text
    found = lack(parsed(text, "q"), parsed(text.replace(old, new), "q"))
    assert found.startswith(told)
    assert bool(found) is bool(told)


OTHER, THIRD = TEXT.replace("R.v AS rv", "R.w AS rv"), TEXT.replace("R.k = S.k", "R.j = S.j")
THEN = {"q": declared(TEXT), "p": declared(OTHER, "p")}


@pytest.mark.parametrize(
    ("held", "now", "steps"),
    [
        pytest.param(Held(THEN), THEN, [], id="nothing"),
        pytest.param(Held(THEN), {"q": THEN["q"]}, [("withdraw", "p")], id="one fewer"),
        pytest.param(Held(THEN), {**THEN, "r": declared(TEXT, "r")}, [("add", "r")], id="one more"),
        pytest.param(Held(THEN), {"r": THEN["q"], "p": THEN["p"]}, [("rename", "r")], id="another name"),
        pytest.param(Held(THEN), {"p": THEN["q"], "q": THEN["p"]}, [("replace", "p"), ("replace", "q")], id="swapped"),
        pytest.param(Held(THEN), {**THEN, "q": declared(TEXT, "new")}, [("redirect", "q")], id="another sink"),
        pytest.param(
            Held(THEN), {**THEN, "q": declared(TEXT, recovered=True)}, [("redirect", "q")], id="results say more"
        ),
        pytest.param(
            Held(THEN), {**THEN, "q": declared(TEXT, bad=Target("json", "bad"))}, [("redirect", "q")], id="bad rows"
        ),
        pytest.param(Held({"q": THEN["q"]}), {"q": declared(OTHER)}, [("replace", "q")], id="another text"),
        pytest.param(Held({"q": Declared(THEN["q"].fingerprint)}), {"q": THEN["q"]}, [], id="no note of the text"),
        pytest.param(Held({"q": Declared("x")}), {"q": THEN["q"]}, [("replace", "q")], id="no note, another query"),
        pytest.param(Held(THEN, withdrawn=["p"]), THEN, [], id="withdrawn while it ran"),
        pytest.param(Held(THEN, withdrawn=["p"]), {"q": THEN["q"]}, [], id="withdrawn, and left out"),
        pytest.param(
            Held(THEN, withdrawn=["p"]), {**THEN, "p": declared(THIRD)}, [("add", "p")], id="withdrawn, and new"
        ),
        pytest.param(Held(THEN, {"s": declared(TEXT)}), THEN, [], id="submitted while it ran"),
        pytest.param(Held(THEN, {"s": THEN["q"]}), {**THEN, "s": declared(TEXT)}, [], id="submitted, and declared"),
        pytest.param(
            Held(THEN, {"s": THEN["q"]}), {**THEN, "s": THEN["p"]}, [("replace", "s")], id="submitted as another"
        ),
        pytest.param(
            Held({"q": THEN["q"]}, {"p": declared(TEXT)}, first={"p": THEN["p"].fingerprint}), THEN, [],
            id="declared at first, then withdrawn and submitted as another",
        ),
    ],
)  # fmt: skip
def test_steps(held: Held, now: dict[str, Declared], steps: list[tuple[str, str]]) -> None:
    assert [(step.kind, step.name) for step in compare(held, now, parsed, 7)] == steps


@pytest.mark.parametrize(
    ("then", "now", "added"),
    [
        ("struct<k:bigint>", "struct<k:bigint>", []),
        ("struct<k:bigint>", "struct<a:string,k:bigint,b:array<int>>", ["a string", "b array<int>"]),
        ("struct<k:bigint>", "struct<k:int>", None),
        ("struct<k:bigint,v:int>", "struct<k:bigint>", None),
        ("", "struct<k:bigint>", None),
    ],
)
def test_columns_that_a_stream_has_more(then: str, now: str, added: list[str] | None) -> None:
    assert added_columns(then, now) == added
