"""DHTJoin's q1 and q2 run as the paper writes them, from a job file."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.lab.testing import oracle
from braidstream.lab.workloads.stream_files import append_files

pytestmark = pytest.mark.spark

S = 1_000_000
MINUTE = 60 * S
JOB = '''
[flow]
checkpoint = "ck"
slots = 3

[streams.X]
format = "parquet"
path = "X"
schema = "dest long, size long, B long, ts timestamp"
time = "ts"
options = { maxFilesPerTrigger = "1" }

[streams.Y]
format = "parquet"
path = "Y"
schema = "dest long, B long, C long, ts timestamp"
time = "ts"
options = { maxFilesPerTrigger = "1" }

[streams.Z]
format = "parquet"
path = "Z"
schema = "dest long, C long, ts timestamp"
time = "ts"
options = { maxFilesPerTrigger = "1" }

[queries.q1]
cql = """
Select sum (X.size)
From X[range 10 min], Y[range 10 min], Z[range 10 min]
Where X.dest = Y.dest = Z.dest
"""
sink = { format = "parquet", path = "out/q1" }

[queries.q2]
cql = """
Select Y.B, Z.C
From X[range 5 min], Y[range 5 min], Z[range 5 min]
Where X.B=Y.B and Y.C=Z.C
"""
sink = { format = "parquet", path = "out/q2" }
'''
COLUMNS = {"X": ("dest", "size", "B"), "Y": ("dest", "B", "C"), "Z": ("dest", "C")}


def made(rng: random.Random, name: str, epoch: int) -> list[dict[str, Any]]:
    """Rows in the order of their times, the last at the end of the epoch, so that no row of the next is late."""
    times = [*sorted(rng.randint(0, 119) for _ in range(11)), 120]
    return [{**{c: rng.randint(0, 4) for c in COLUMNS[name]}, "ts": (epoch * 120 + t) * S} for t in times]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    files = sorted(f for f in folder.glob("*.parquet") if not f.name.startswith(("_", ".")))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_q1_and_q2_as_written(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(2)
    epochs = [{name: made(rng, name, epoch) for name in COLUMNS} for epoch in range(6)]
    for name, columns in COLUMNS.items():
        schema = pa.schema([*((c, pa.int64()) for c in columns), ("ts", pa.timestamp("us", "UTC"))])
        tables = ({c: [row[c] for row in epoch[name]] for c in schema.names} for epoch in epochs)
        append_files(tmp_path / name, [pa.table(table, schema=schema) for table in tables])
    (tmp_path / "job.toml").write_text(JOB)
    job = jobs.read(tmp_path / "job.toml")
    jobs.check(job)
    jobs.start(job, spark).await_termination()

    whole = {name: [row for epoch in epochs for row in epoch[name]] for name in COLUMNS}
    streams = [oracle.Stream(name, rows, 5 * MINUTE) for name, rows in whole.items()]
    expected = oracle.project(oracle.join(streams, [("X.B", "Y.B"), ("Y.C", "Z.C")]), ["Y.B", "Z.C"])
    assert Counter(tuple(row.values()) for row in rows_of(tmp_path / "out/q2")) == Counter(expected)

    sums = {row["epoch"]: row["sum(size)"] for row in rows_of(tmp_path / "out/q1")}
    assert sorted(sums) == list(range(6))
    for n in range(6):
        seen = [
            oracle.Stream(name, [row for epoch in epochs[: n + 1] for row in epoch[name]], 10 * MINUTE)
            for name in COLUMNS
        ]
        equalities = [("X.dest", "Y.dest"), ("Y.dest", "Z.dest")]
        wanted = [oracle.Aggregate("SUM", "X.size")]
        ((total,),) = oracle.aggregate(seen, equalities, wanted, watermark_us=(n + 1) * 120 * S)
        assert sums[n] == total, f"epoch {n}"
