"""A folder that was copied: modification times say nothing about event times, and no row may be lost for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from braidstream.spark.flow import Flow
from braidstream.testing.batch import BatchStream, batch_join, same_rows
from braidstream.workloads import UniformKeys, write_stream

pytestmark = pytest.mark.spark

DDL = "k long, v long, ts timestamp"
SECOND = 1_000_000
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
FILTERED = QUERY + " AND R.v >= 0 AND S.v >= 0"
"""The same; but rows that are filtered come through Spark."""


def copied(folder: Path, times: Callable[[Random], float], n_files: int = 16, rows: int = 200) -> Path:
    """Two streams, 200 rows of two seconds a file; each file gets some modification time."""
    random = Random(str(folder.name))
    for seed, name in enumerate("RS"):
        made = write_stream(
            folder / name, rate=100, keys=UniformKeys(40), rows_per_file=rows, seed=seed, n_rows=n_files * rows
        )
        for file in made.files:
            moment = times(random)
            os.utime(file, (moment, moment))
    return folder


def shuffled(random: Random) -> float:
    return time.time() - random.uniform(0, 20 * 86_400)


def equal(_: Random) -> float:
    return 1_700_000_000.0


def files_flow(spark: SparkSession, folder: Path, query: str = QUERY, n: int = 2, **options: object) -> Flow:
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(
            name,
            folder / name,
            schema=DDL,
            time="ts",
            options={"maxFilesPerTrigger": str(n)},
            **options,  # type: ignore[arg-type]
        )
    flow.query(query, name="q").to("parquet", path=str(folder / "out"))
    return flow


def check_output(folder: Path) -> None:
    streams = [BatchStream("R", folder / "R", 10 * SECOND), BatchStream("S", folder / "S", 5 * SECOND)]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    assert expected.num_rows > 1000
    difference = same_rows(folder / "out", expected)
    assert difference, str(difference)


@pytest.mark.parametrize("query", [QUERY, FILTERED], ids=["files read directly", "rows from Spark"])
@pytest.mark.parametrize("times", [shuffled, equal])
def test_a_copied_folder_gives_the_whole_join(
    spark: SparkSession, tmp_path: Path, times: Callable[[Random], float], query: str
) -> None:
    copied(tmp_path, times)
    handle = files_flow(spark, tmp_path, query).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.rows"] == handle.totals["S.rows"] == 3200
    assert handle.totals["R.late"] == handle.totals["S.late"] == 0
    assert len(handle.progress) == 8
    check_output(tmp_path)
