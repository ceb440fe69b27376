"""Intervals on Spark: directly and by Spark, in zones in which days are not even, in one line, in a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import braidstream
from braidstream import jobs
from braidstream.spark.flow import Flow
from tests.spark import stage

pytestmark = pytest.mark.spark

S = stage.SECOND
TEXT = (
    "SELECT R.v AS r, S.v AS s FROM R JOIN S ON R.k = S.k "
    "AND S.ts BETWEEN R.ts + INTERVAL 3 SECONDS AND R.ts + INTERVAL 20 SECONDS"
)


def expected(epochs: stage.Epochs, low: int, high: int) -> list[tuple[Any, ...]]:
    def fits(r: Any, s: Any) -> bool:
        return low * S <= s["ts"] - r["ts"] <= high * S

    return stage.in_order((r["v"], s["v"]) for r, s in stage.pairs(epochs, (None, None), fits))


@pytest.mark.parametrize("directly", [True, False])
def test_an_interval_gives_what_python_says_and_explain_shows_windows(
    spark: SparkSession, tmp_path: Path, directly: bool
) -> None:
    epochs = stage.some_epochs(seed=directly, n_epochs=3)
    flow = stage.declare(Flow(spark, slots=2), stage.write(tmp_path / "in", epochs), directly=directly)
    query = flow.query(TEXT).to("memory")
    shown = flow.explain()
    assert "R: stream R, window 20 seconds" in shown
    assert "S: stream S, window 0 seconds" in shown
    assert "S comes 3 seconds to 20 seconds after R" in shown
    assert "Spark evaluates" not in shown
    flow.start(tmp_path / "ck").await_termination()
    assert stage.rows_of(query.table()) == expected(epochs, 3, 20)


@pytest.mark.parametrize("directly", [True, False])
def test_a_left_join_with_an_interval_is_read_directly_and_keeps_rows_without_a_match(
    spark: SparkSession, tmp_path: Path, directly: bool
) -> None:
    epochs = stage.some_epochs(seed=4 + directly, n_epochs=3)
    flow = stage.declare(Flow(spark, slots=2), stage.write(tmp_path / "in", epochs), directly=directly)
    query = flow.query(TEXT.replace(" JOIN ", " LEFT JOIN ")).to("memory")
    shown = flow.explain()
    assert ("Parquet files read in the routing task" in shown) == directly
    assert ("rows from Spark" in shown) != directly
    assert "S comes 3 seconds to 20 seconds after R" in shown
    assert "a match satisfies" not in shown
    flow.start(tmp_path / "ck", final=True).await_termination()
    matched = expected(epochs, 3, 20)
    without = {row["v"] for epoch in epochs for row in epoch["R"]} - {r for r, _ in matched}
    assert without
    assert stage.rows_of(query.table()) == stage.in_order([*matched, *((r, None) for r in without)])


def test_days_are_sparks_own_where_they_are_not_even(spark: SparkSession, tmp_path: Path) -> None:
    """Over the night of 2026-03-29, which has 23 hours in Berlin."""
    night = 1_774_738_800 * S  # 2026-03-29 00:00 in Berlin
    rows = {"R": [(1, 0)], "S": [(1, 22 * 3600), (2, 23 * 3600), (3, 24 * 3600), (4, 25 * 3600)]}
    epochs = [{n: [{"k": 1, "v": v, "name": "a", "ts": night + t * S} for v, t in own] for n, own in rows.items()}]
    paths = stage.write(tmp_path / "in", epochs)
    text = "SELECT S.v AS v FROM R, S WHERE R.k = S.k AND S.ts BETWEEN R.ts AND R.ts + INTERVAL 1 DAY"
    found = {}
    for zone in ("UTC", "Europe/Berlin"):
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            flow = stage.declare(Flow(spark, slots=2), paths, delay="2 days")
            query = flow.query(text).to("memory")
            flow.start(tmp_path / f"ck-{zone.partition('/')[0]}").await_termination()
            found[zone] = stage.rows_of(query.table())
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
    assert found == {"UTC": [(1,), (2,), (3,)], "Europe/Berlin": [(1,), (2,)]}


@pytest.mark.parametrize(("within", "low", "high"), [(("-5 seconds", "10 seconds"), -5, 10), (("+2 s", "9 s"), 2, 9)])
def test_a_pair_with_a_sign_is_an_interval_in_one_line(
    spark: SparkSession, tmp_path: Path, within: tuple[str, str], low: int, high: int
) -> None:
    epochs = stage.some_epochs(seed=7, n_epochs=2)
    paths = stage.write(tmp_path / "in", epochs)
    r, s = (spark.readStream.schema(stage.DDL).parquet(str(paths[name])) for name in "RS")
    joined = braidstream.join(r, s, on="k", within=within, select="left.v AS r, right.v AS s").to("memory")
    joined.start(tmp_path / "ck").await_termination()
    assert stage.rows_of(joined.table()) == expected(epochs, low, high)


JOB = """
[flow]
checkpoint = "ck"
[streams.R]
format = "parquet"
path = "in/R"
schema = "k long, v long, name string, ts timestamp"
time = "ts"
[streams.S]
format = "parquet"
path = "in/S"
schema = "k long, v long, name string, ts timestamp"
time = "ts"
[queries.pairs]
cql = "{text}"
sink = {{ format = "memory" }}
"""


def test_a_job_file_with_an_interval_is_checked_without_spark_and_bad_ones_are_refused(tmp_path: Path) -> None:
    stage.write(tmp_path / "in", stage.some_epochs(seed=1, n_epochs=1))
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(text=TEXT))
    query = jobs.check(jobs.read(job)).queries["pairs"]
    assert [entry.window_us for entry in query.inputs] == [20 * S, 0]
    job.write_text(JOB.format(text=TEXT.replace("20 SECONDS", "2 SECONDS")))
    with pytest.raises(braidstream.InputError, match="the lower bound is above the upper one"):
        jobs.check(jobs.read(job))
