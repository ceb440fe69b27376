"""Outputs for rows on which an expression fails: windows of one stream, texts as conditions, what parts are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.jobs.checking import _sinks, check_job
from braidstream.jobs.form import read
from braidstream.query import Schema, parse
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


def test_a_check_asks_for_the_tables_and_topics_that_a_run_writes(tmp_path: Path) -> None:
    """And a topic has a name that Kafka takes."""
    for name in "RS":
        write(tmp_path, name, 0, [])
    file = job(tmp_path, {"q": f"SELECT 1 div R.v AS one {FROM} WHERE CAST(R.s AS int) = S.v"}, ["q"])
    topic = 'bad = { format = "kafka", options = { "kafka.bootstrap.servers" = "host:9092", topic = "{stream}-bad" } }'
    table = 'late = { format = "jdbc", options = { url = "jdbc:derby:db", dbtable = "late_{stream}" } }'
    own = 'bad = { format = "json", path = "bad-q" }'
    file.write_text(file.read_text().replace(own, f"{topic}\n{table}"))
    declared = read(file)
    schemas = {name: Schema.from_ddl("id int, s string, v int, ts timestamp") for name in "RS"}
    made = _sinks(declared, {"q": parse(declared.queries["q"].cql, schemas, "q")})
    named = {place.partition("] ")[2]: dict(sink.target.options) for place, sink in made.items()}
    assert [named[f"late {one}"]["dbtable"] for one in "RS"] == ["late_R", "late_S"]
    assert [named[f"bad {one}"]["topic"] for one in ("R", "S", "R+S")] == ["R-bad", "S-bad", "R-S-bad"]
