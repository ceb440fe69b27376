"""Filters, expressions and predicates between streams: what the slots do not compute, Spark finishes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream.spark.flow import Flow
from tests.spark.stage import declare, in_order, pairs, rows_of, some_epochs, write

pytestmark = pytest.mark.spark

EPOCHS = some_epochs(1)
WINDOWS = "FROM R [RANGE 20 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"

Pair = Callable[[Any, Any], Any]
QUERIES: dict[str, tuple[str, Pair, Pair]] = {
    "plain": (f"SELECT R.k, R.v AS rv, S.v AS sv {WINDOWS}", lambda r, s: True, lambda r, s: (r["k"], r["v"], s["v"])),
    "filtered": (
        f"SELECT R.v AS rv, S.v AS sv {WINDOWS} AND R.v % 2 = 0 AND S.name <> 'a'",
        lambda r, s: r["v"] % 2 == 0 and s["name"] != "a",
        lambda r, s: (r["v"], s["v"]),
    ),
    "filtered_otherwise": (
        f"SELECT R.v AS rv, S.v AS sv {WINDOWS} AND R.v > 10",
        lambda r, s: r["v"] > 10,
        lambda r, s: (r["v"], s["v"]),
    ),
    "residual": (
        f"SELECT R.v AS rv, S.v AS sv {WINDOWS} AND R.v < S.v AND R.name || 'x' <> S.name || 'x'",
        lambda r, s: r["v"] < s["v"] and r["name"] != s["name"],
        lambda r, s: (r["v"], s["v"]),
    ),
    "expressions": (
        f"SELECT R.v * 10 + S.v AS sum, upper(R.name) AS name, struct(R.v AS a, S.v AS b) AS both {WINDOWS}",
        lambda r, s: True,
        lambda r, s: (r["v"] * 10 + s["v"], r["name"].upper(), {"a": r["v"], "b": s["v"]}),
    ),
    "one_side_only": (f"SELECT R.v + 1 AS next {WINDOWS}", lambda r, s: True, lambda r, s: (r["v"] + 1,)),
    "constant": (f"SELECT 'hit' AS what {WINDOWS}", lambda r, s: True, lambda r, s: ("hit",)),
    "all": (
        f"SELECT * {WINDOWS}",
        lambda r, s: True,
        lambda r, s: (*(str(x) for x in r.values()), *(str(x) for x in s.values())),
    ),
}


@pytest.mark.parametrize("directly", [True, False], ids=["files read directly", "rows from Spark"])
def test_queries_of_every_form_give_what_python_says(spark: SparkSession, tmp_path: Path, directly: bool) -> None:
    flow = declare(Flow(spark, slots=3, groups=5), write(tmp_path, EPOCHS), directly=directly)
    queries = {name: flow.query(text, name=name).to("memory") for name, (text, _, _) in QUERIES.items()}
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    for name, (_, condition, output) in QUERIES.items():
        found = queries[name].sink.table()  # type: ignore[union-attr]
        if name == "all":
            found = found and found.set_column(3, "R_ts", found["R_ts"].cast("int64")).set_column(
                7, "S_ts", found["S_ts"].cast("int64")
            )
            shown = in_order(tuple(str(x) for x in row) for row in rows_of(found))
        else:
            shown = rows_of(found)
        expected = in_order(output(r, s) for r, s in pairs(EPOCHS, (20, 5), condition))
        assert shown == expected, name
        assert len(expected) > 5, name
        assert handle.totals[f"{name}.matches"] >= len(expected)


def test_a_stream_joined_with_itself_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    flow = declare(Flow(spark, slots=2, groups=4), write(tmp_path, EPOCHS))
    query = flow.query(
        "SELECT a.v AS first, b.v AS second FROM R [RANGE 5 SECONDS] AS a, R [RANGE 5 SECONDS] AS b "
        "WHERE a.k = b.k AND a.v < b.v"
    ).to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    doubled = [{"R": epoch["R"], "S": epoch["R"]} for epoch in EPOCHS]
    expected = in_order((r["v"], s["v"]) for r, s in pairs(doubled, (5, 5), lambda r, s: r["v"] < s["v"]))
    assert rows_of(query.sink.table()) == expected  # type: ignore[union-attr]
    assert expected
