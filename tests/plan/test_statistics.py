"""Trees of type-2 queries from what is known of the streams: a sample of files at first, then what was measured."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.workloads.stream_files import append_files
from braidstream.plan.statistics import better_trees, measured_statistics
from braidstream.query import Query, Schema, parse
from braidstream.query.tree import Statistics, plan_tree
from braidstream.spark.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000
DDL = "k long, j long, v long, ts timestamp"
SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
CHAIN = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 20 SECONDS], B [RANGE 20 SECONDS], C [RANGE 20 SECONDS] "
    "WHERE A.k = B.k AND B.j = C.j"
)


def rows(n: int, n_k: int, n_j: int, begin: int, rng: random.Random) -> pa.Table:
    """Tuples of ten seconds."""
    times = sorted(rng.randrange(10 * S) + begin * S for _ in range(n))
    keys = [[rng.randrange(own) for _ in range(n)] for own in (n_k, n_j)]
    return pa.table([*keys, list(range(n)), times], schema=SCHEMA)


def query() -> Query:
    return parse(CHAIN, dict.fromkeys("ABC", Schema.from_ddl(DDL)), "q")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("rates", "tree"),
    [({"A": 20, "B": 20, "C": 900}, "((A ⋈ B) ⋈ C)"), ({"A": 900, "B": 20, "C": 20}, "(A ⋈ (B ⋈ C))")],
    ids=["a fast stream at the end is joined last", "a fast stream at the beginning is joined last"],
)
def test_the_first_tree_follows_a_sample_of_the_files(
    spark: SparkSession, tmp_path: Path, rates: dict[str, int], tree: str
) -> None:
    flow = Flow(spark)
    for name, n in rates.items():
        append_files(tmp_path / name, [rows(n, 9, 9, 0, random.Random(name))])
        flow.files(name, tmp_path / name, schema=DDL, time="ts")
    flow.query(CHAIN)
    assert f"2 stages: {tree}" in flow.explain()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("n_k", "n_j", "tree"), [(1000, 3, "((A ⋈ B) ⋈ C)"), (3, 1000, "(A ⋈ (B ⋈ C))")], ids=["many k", "many j"]
)
def test_keys_that_seldom_meet_are_joined_first(
    spark: SparkSession, tmp_path: Path, n_k: int, n_j: int, tree: str
) -> None:
    flow = Flow(spark)
    for name in "ABC":
        append_files(tmp_path / name, [rows(800, n_k, n_j, 0, random.Random(name))])
        flow.files(name, tmp_path / name, schema=DDL, time="ts")
    flow.query(CHAIN)
    assert f"2 stages: {tree}" in flow.explain()


def test_what_was_measured_chooses_the_tree_of_a_query_submitted_later(tmp_path: Path) -> None:
    """k meets often and j seldom; the first tree was chosen without knowing."""
    rng = random.Random(3)
    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"q": CHAIN}, slots=2)
    given = {name: [rows(60, 2, 100, 10 * i, rng) for i in range(4)] for name in "ABC"}
    for i in range(4):
        harness.epoch({name: given[name][i] for name in "ABC"})
    tree = harness.plan.trees["q"]
    assert str(tree) == str(plan_tree(query(), Statistics())) == "((A ⋈ B) ⋈ C)"
    measured = measured_statistics(harness.manifest, [query()], {"q": tree})
    assert measured.rates == {name: pytest.approx(6, rel=0.3) for name in "ABC"}
    assert measured.distinct["A", "`k`"] == pytest.approx(2, rel=0.5)
    assert measured.distinct["B", "`j`"] > 30
    other, share = better_trees([query()], {"q": tree}, measured)["q"]
    assert str(other) == "(A ⋈ (B ⋈ C))"
    assert share < 0.2
    harness._statistics = measured
    harness.submit("later", CHAIN)
    assert {name: str(own) for name, own in harness.plan.trees.items()} == {"q": "((A ⋈ B) ⋈ C)", "later": str(other)}
    before = Counter(tuple(row.values()) for row in harness.results("q"))
    made = harness.manifest.totals["q:(A⋈B).produced"]
    harness.epoch({name: rows(60, 2, 100, 100, rng) for name in "ABC"})
    after = Counter(tuple(row.values()) for row in harness.results("q"))
    assert after - before == Counter(tuple(row.values()) for row in harness.results("later"))
    assert after != before
    produced = harness.manifest.totals
    assert 0 < produced["later:(B⋈C).produced"] * 3 < produced["q:(A⋈B).produced"] - made
