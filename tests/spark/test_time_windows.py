"""Counts by windows of time on Spark, of a join and of a stream alone, against Spark's own batch query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.spark.flow import Flow
from tests.spark import stage
from tests.spark.test_intervals import JOB

pytestmark = pytest.mark.spark

ITEMS = "window.start AS s, window.end AS e, COUNT(*) AS n, COUNT(DISTINCT R.name) AS names, AVG(R.v) AS mean"


def batch(spark: SparkSession, folder: Path, text: str) -> list[tuple[Any, ...]]:
    for name in "RS":
        spark.read.schema(stage.DDL).parquet(str(folder / name)).createOrReplaceTempView(name)
    return stage.in_order(tuple(row) for row in spark.sql(text).collect())


@pytest.mark.parametrize("directly", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_counts_in_windows_of_time_are_those_of_sparks_batch_query(
    spark: SparkSession, tmp_path: Path, directly: bool
) -> None:
    epochs = stage.some_epochs(seed=11 + directly, n_epochs=3)
    paths = stage.write(tmp_path / "in", epochs)
    flow = stage.declare(Flow(spark, slots=2), paths, directly=directly)
    on = "R.k = S.k AND S.ts BETWEEN R.ts - INTERVAL 4 SECONDS AND R.ts + INTERVAL 9 SECONDS AND R.v % 7 <> S.v % 7"
    texts = {
        "joined": f"SELECT R.name AS name, {ITEMS} FROM R JOIN S ON {on} GROUP BY R.name, window(S.ts, '20 seconds')",
        "alone": f"SELECT R.name AS name, {ITEMS} FROM R WHERE R.v > 3 "
        "GROUP BY R.name, window(R.ts, '20 seconds', '5 seconds')",
    }
    queries = {name: flow.query(text, name).to("memory") for name, text in texts.items()}
    assert "in windows of 20 seconds, one every 5 seconds: each is put out once" in flow.explain()
    flow.start(tmp_path / "ck", final=True).await_termination()
    for name, text in texts.items():
        table = queries[name].table()
        assert table is not None
        found = table.drop_columns(["epoch", "watermark"]).to_pylist()
        own = [tuple(v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for v in row.values()) for row in found]
        assert stage.in_order(own) == batch(spark, tmp_path / "in", text)


def test_check_warns_of_hours_that_fall_back_to_nothing(tmp_path: Path) -> None:
    stage.write(tmp_path / "in", stage.some_epochs(seed=1, n_epochs=1))
    text = "SELECT COUNT(*) AS n FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.k GROUP BY "
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(text=f"{text}date_trunc('HOUR', S.ts)"))
    (warning,) = jobs.check(jobs.read(job)).warnings
    assert "for totals that are put out once, write GROUP BY window(" in warning


@pytest.mark.slow
def test_a_start_warns_of_them_too(spark: SparkSession, tmp_path: Path) -> None:
    paths = stage.write(tmp_path / "in", stage.some_epochs(seed=1, n_epochs=1))
    flow = stage.declare(Flow(spark, slots=2), paths)
    text = "SELECT COUNT(*) AS n FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.k GROUP BY hour(S.ts)"
    flow.query(text, "hourly").to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert any(one.startswith("query 'hourly' groups by HOUR(S.ts) over windows that slide") for one in handle.warnings)
