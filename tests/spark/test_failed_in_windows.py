"""Outputs for rows on which an expression fails: of windows over one stream, and of texts that are conditions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.jobs.checking import check_job
from braidstream.jobs.form import read
from tests.spark.test_failed_expressions import FROM, bad, job, results, run, write

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_rows_of_windows_over_one_stream_and_what_is_counted_there_part(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "R", 0, [("1", 1, 0), ("x", 2, 1), ("5", 0, 2), ("7", 3, 3), ("y", 0, 4)])
    write(tmp_path, "S", 0, [("1", 1, 0)])
    counted = "SELECT COUNT(*) AS n, SUM(CAST(R.s AS int)) AS t FROM R"
    file = job(tmp_path, {"q": f"{counted} WHERE 10 div R.v > 0 GROUP BY window(R.ts, '1 hour')"}, ["q"], final=True)
    check_job(read(file))
    handle = run(spark, file)
    assert [row[:2] for row in results(spark, tmp_path, "q")] == [(2, 8)]
    assert [(where, why, row.get("v"), row.get("R", row)["s"]) for where, why, row in bad(tmp_path, "q")] == [
        ("R", "10 DIV v > 0 cannot be computed", 0, "5"),
        ("R", "10 DIV v > 0 cannot be computed", 0, "y"),
        ("R+window", "CAST(R.s AS INT) cannot be computed", None, "x"),
    ]
    assert handle.progress[0].bad == {"R": 2, "R+window": 1}


@pytest.mark.slow
def test_a_text_that_is_taken_for_a_condition_may_be_none(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "R", 0, [("true", 1, 0), ("x", 1, 1), ("false", 1, 1)])
    write(tmp_path, "S", 0, [("1", 1, 0)])
    run(spark, job(tmp_path, {"q": f"SELECT R.s AS s {FROM} WHERE NOT R.s AND R.v = S.v"}, ["q"]))
    assert results(spark, tmp_path, "q") == [("false",)]
    assert [row["s"] for _, _, row in bad(tmp_path, "q")] == ["x"]
