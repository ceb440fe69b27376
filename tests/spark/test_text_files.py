"""JSON and CSV files of job files: rows that are not what the schema says stop the flow or go to their output."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream import JobError, RunError
from braidstream.jobs.checking import check_job
from braidstream.jobs.form import read, start

pytestmark = pytest.mark.spark

GOOD = [(1, 10, "2026-01-01T00:00:00Z"), (2, 20, "2026-01-01T00:01:00Z")]
WRONG = {
    "json": [
        '{"k": "no number", "v": 1, "ts": "2026-01-01T00:00:00Z"}',
        "no JSON",
        '{"k": 1, "v": 2, "ts": "no time"}',
    ],
    "csv": ["no number,1,2026-01-01T00:00:00Z", "1", "1,2,no time"],
}
JOB = """
[flow]
checkpoint = "ck"
slots = 2
[streams.R]
format = "{format}"
path = "R"
schema = "k long, v long, ts timestamp"
time = "ts"
{more}
[streams.S]
format = "{format}"
path = "S"
schema = "k long, v long, ts timestamp"
time = "ts"
[queries.q]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE {where}"
sink = {{ format = "parquet", path = "out" }}
"""
BAD = 'bad = { format = "json", path = "bad" }'
FAILED = 'bad = { format = "json", path = "failed" }'


def lines(format_: str) -> list[str]:
    if format_ == "csv":
        return [",".join(map(str, row)) for row in GOOD]
    return [json.dumps(dict(zip(("k", "v", "ts"), row, strict=True))) for row in GOOD]


def job(folder: Path, format_: str, more: str = "", where: str = "R.k = S.k", wrong: bool = True) -> Path:
    for name in "RS":
        (folder / name).mkdir()
        own = WRONG[format_] if wrong and name == "R" else []
        (folder / name / f"0.{format_}").write_text("\n".join([*own, *lines(format_)]) + "\n")
    file = folder / "job.toml"
    file.write_text(JOB.format(format=format_, more=more, where=where))
    return file


def run(spark: SparkSession, file: Path) -> None:
    start(read(file), spark).await_termination()


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_rows_that_cannot_be_read_go_to_their_output_each_once(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    file = job(tmp_path, format_, BAD)
    check_job(read(file))
    run(spark, file)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((one.k, one.rv, one.sv) for one in found) == [(1, 10, 10), (2, 20, 20)]
    kept = [json.loads(line) for part in (tmp_path / "bad").glob("part-*") for line in part.read_text().splitlines()]
    assert sorted(one["message"] for one in kept) == sorted(WRONG[format_])
    assert {one["file"].rpartition("/")[2] for one in kept} == {f"0.{format_}"}
    assert {one["reason"] for one in kept} == {f"no {format_.upper()} of k long, v long, ts timestamp"}


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_without_an_output_the_flow_stops_and_says_how_to_go_on(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    with pytest.raises(RunError) as failed:
        run(spark, job(tmp_path, format_))
    assert "bad = {" in failed.value.fix
    assert f"0.{format_}" in failed.value.wrong


@pytest.mark.slow
def test_an_expression_that_fails_on_a_row_stops_the_flow_and_the_hint_says_how_to_pass_over_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    where = "R.k = S.k AND {divide} < 5"
    file = job(tmp_path, "json", where=where.format(divide="1 / (R.v - 20)"), wrong=False)
    file.write_text(file.read_text().replace('time = "ts"', 'time = "ts"\noptions = { maxFilesPerTrigger = 1 }'))
    for name in "RS":
        for number, line in enumerate(lines("json")):
            path = tmp_path / name / f"{number}.json"
            path.write_text(f"{line}\n")
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark reads by time, and files of one time in any order
    with pytest.raises(RunError) as failed:
        run(spark, file)
    assert "DIVIDE_BY_ZERO" in failed.value.wrong
    assert "try_divide" in failed.value.fix
    assert "1 / (v - 20)" in failed.value.fix
    file.write_text(file.read_text().replace("1 / (R.v - 20)", "try_divide(1, R.v - 20)"))
    run(spark, file)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((one.k, one.rv, one.sv) for one in found) == [(1, 10, 10)]


@pytest.mark.slow
def test_a_mode_of_the_users_stays(spark: SparkSession, tmp_path: Path) -> None:
    run(spark, job(tmp_path, "json", 'options = { mode = "DROPMALFORMED" }'))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((one.k, one.rv, one.sv) for one in found) == [(1, 10, 10), (2, 20, 20)]


def test_a_mode_beside_an_output_is_refused(tmp_path: Path) -> None:
    file = job(tmp_path, "json", f'options = {{ Mode = "PERMISSIVE" }}\n{BAD}')
    with pytest.raises(JobError, match=r"\[streams.R\].*bad, and the option 'Mode'"):
        read(file)


@pytest.mark.parametrize("format_", ["orc", "rate"])
def test_an_output_for_what_is_no_text_is_refused(tmp_path: Path, format_: str) -> None:
    file = job(tmp_path, "json", BAD)
    file.write_text(file.read_text().replace('format = "json"\npath = "R"', f'format = "{format_}"\npath = "R"'))
    with pytest.raises(JobError, match=rf"\[streams.R\].*bad for a {format_} stream"):
        read(file)


def job_with_a_note(folder: Path, format_: str, stream: str = "", query: str = "") -> Path:
    """R has a note that no query uses, and that is no number once; two lines of its CSV are of other lengths."""
    file = job(folder, format_, stream, wrong=False)
    notes = (7, "no number")
    if format_ == "csv":
        text = [f"{line},{note}" for line, note in zip(lines("csv"), notes, strict=True)] + ["3,30", "4,5,6,7,8"]
    else:
        rows = [{**json.loads(line), "note": note} for line, note in zip(lines("json"), notes, strict=True)]
        text = [*map(json.dumps, rows), "3,30"]
    (folder / "R" / f"0.{format_}").write_text("\n".join(text) + "\n")
    told = file.read_text().replace("ts timestamp", "ts timestamp, note long", 1)
    file.write_text(told.replace("[queries.q]", f"[queries.q]\n{query}"))
    return file


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_column_that_no_query_uses_makes_no_row_bad(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    """Nor is it read; a line of another number of columns is found all the same."""
    run(spark, job_with_a_note(tmp_path, format_, BAD))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((one.k, one.rv, one.sv) for one in found) == [(1, 10, 10), (2, 20, 20)]
    assert unread(tmp_path / "bad") == (["3,30", "4,5,6,7,8"] if format_ == "csv" else ["3,30"])


@pytest.mark.slow
@pytest.mark.parametrize("query", ['late = { format = "json", path = "late" }', FAILED])
def test_an_output_for_whole_rows_uses_all_columns(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Late tuples have all, and so have rows on which an expression fails: one that cannot be read whole is bad."""
    file = job_with_a_note(tmp_path, "csv", BAD, query)
    file.write_text(file.read_text().replace("R.k = S.k", "R.k = S.k AND 1 / R.v < 5"))
    run(spark, file)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((one.k, one.rv, one.sv) for one in found) == [(1, 10, 10)]
    assert unread(tmp_path / "bad") == ["2,20,2026-01-01T00:01:00Z,no number", "3,30", "4,5,6,7,8"]


def unread(folder: Path) -> list[str]:
    """The messages of the rows in an output for bad ones."""
    found = (json.loads(line) for part in folder.glob("part-*") for line in part.read_text().splitlines())
    return sorted(one["message"] for one in found)
