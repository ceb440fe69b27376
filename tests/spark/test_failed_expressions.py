"""Rows of which an expression of a query fails go to its output, each once; the answer is the join over the others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream.jobs.checking import check_job
from braidstream.jobs.form import read, start

pytestmark = pytest.mark.spark

Rows = Sequence[tuple[str | None, int | None, int]]
"""Of a stream: s, v and the minute."""
JOB = """
[flow]
checkpoint = "ck"
final = {final}
slots = 2
groups = 4
[streams.R]
format = "json"
path = "R"
schema = "s string, v int, ts timestamp"
time = "ts"
options = {{ maxFilesPerTrigger = 1 }}
[streams.S]
format = "json"
path = "S"
schema = "s string, v int, ts timestamp"
time = "ts"
options = {{ maxFilesPerTrigger = 1 }}
"""
QUERY = """
[queries.{name}]
cql = "{cql}"
sink = {{ format = "parquet", path = "{name}" }}
"""
FROM = "FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR]"


def write(folder: Path, stream: str, number: int, rows: Rows) -> None:
    (folder / stream).mkdir(exist_ok=True)
    lines = (json.dumps({"s": s, "v": v, "ts": f"2026-01-01T00:{minute:02d}:00Z"}) for s, v, minute in rows)
    file = folder / stream / f"{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in this order


def job(folder: Path, queries: Mapping[str, str], bad: Sequence[str] = (), *, final: bool = False) -> Path:
    text = JOB.format(final=str(final).lower())
    for name, cql in queries.items():
        text += QUERY.format(name=name, cql=cql)
        text += f'bad = {{ format = "json", path = "bad-{name}" }}\n' if name in bad else ""
    file = folder / "job.toml"
    file.write_text(text)
    return file


def run(spark: SparkSession, file: Path) -> Any:
    handle = start(read(file), spark)
    handle.await_termination()
    return handle


def results(spark: SparkSession, folder: Path, name: str) -> list[tuple[Any, ...]]:
    found = [tuple(row) for row in spark.read.parquet(str(folder / name)).collect()]
    return sorted(found, key=str)


def bad(folder: Path, name: str) -> list[tuple[str, str, Any]]:
    """Of each bad row the part of the output that it is in, the reason, and the row."""
    found = []
    for part in (folder / f"bad-{name}").glob("stream=*/part-*"):
        for line in part.read_text().splitlines():
            one = json.loads(line)
            assert one["query"] == name
            found.append((part.parent.name.removeprefix("stream="), one["reason"], json.loads(one["row"])))
    return sorted(found, key=str)


@pytest.mark.slow
def test_keys_conditions_and_outputs_that_fail_of_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "R", 0, [("1", 1, 0), ("x", 2, 0), (None, 3, 0), ("2", 0, 1), ("7", 6, 1)])
    write(tmp_path, "R", 1, [("y", 4, 2), ("3", 5, 2)])
    write(tmp_path, "S", 0, [("1", 1, 0), ("1", 0, 1), ("2", 7, 1)])
    write(tmp_path, "S", 1, [("3", 5, 2), ("z", 5, 2)])
    queries = {
        "key": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE CAST(R.s AS int) = CAST(S.s AS int)",
        "left": "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 1 HOUR] LEFT JOIN S [RANGE 1 HOUR]"
        " ON CAST(R.s AS int) = S.v WHERE R.v > 0 AND 10 / R.v < 9",
        "parts": f"SELECT R.v AS rv, 10 / S.v AS part, CAST(R.s AS int) + 1 AS n, CAST(R.s AS int) AS m {FROM}"
        " WHERE R.s = S.s AND 8 div (R.v + S.v - 7) >= -9",
        "plain": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE R.s = S.s",
    }
    file = job(tmp_path, queries, ["key", "left", "parts"], final=True)
    check_job(read(file))
    handle = run(spark, file)
    assert results(spark, tmp_path, "key") == [(0, 7), (1, 0), (1, 1), (5, 5)]
    assert [(where, why, row["s"]) for where, why, row in bad(tmp_path, "key")] == [
        ("R", "CAST(s AS INT) cannot be computed", "x"),
        ("R", "CAST(s AS INT) cannot be computed", "y"),
        ("S", "CAST(s AS INT) cannot be computed", "z"),
    ]
    print(results(spark, tmp_path, "left"), bad(tmp_path, "left"))
    print(results(spark, tmp_path, "parts"), bad(tmp_path, "parts"))
    print(results(spark, tmp_path, "plain"))
    print([p.bad for p in handle.progress], handle.totals, [p.warnings for p in handle.progress])
    assert 0
