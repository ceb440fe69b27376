"""A checkpoint that version 0.1.0 wrote goes on, and the union of its epochs and ours is the batch join.

`fixtures/checkpoint_0_1_0.zip` was written on Spark by 0.1.0: six epochs of two streams with a hot key, two queries on
different keys, a grid of the hot key, and pushed groups that are owed results. It was stopped between two epochs. Where
its files lay stands as `@ROOT@` in the logs of Spark's file sources. The folder `more` has rows that came later.
"""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.spark.flow import Flow

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).with_name("fixtures") / "checkpoint_0_1_0.zip"
SECOND = 1_000_000
LATER = 4_000_000_000
"""Spark's file source takes files in the order in which they were modified."""
KEYS = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 40 SECONDS], S [RANGE 50 SECONDS] WHERE R.k = S.k"
NAMES = (
    "SELECT R.g AS g, R.v AS rv, S.v AS sv FROM R [RANGE 60 SECONDS], S [RANGE 60 SECONDS] "
    "WHERE R.g = S.g AND R.v < S.v"
)


def unpacked(folder: Path) -> Path:
    """The checkpoint, its streams and results, as if 0.1.0 had written them here."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    for log in (folder / "ck" / "offsets" / "sources").rglob("*"):
        if log.is_file():
            log.write_text(log.read_text().replace("@ROOT@", str(folder)))
    return folder


def flow_in(folder: Path, spark: SparkSession, **options: object) -> Flow:
    """The flow that 0.1.0 was running."""
    flow = Flow(spark, **{"slots": 4, "groups": 16, "router": "auto", "memory": "12 KB", **options})  # type: ignore[arg-type]
    for name in "RS":
        ddl = "k long, g string, v long, ts timestamp"
        flow.files(name, folder / name, schema=ddl, time="ts", options={"maxFilesPerTrigger": "1"})
    flow.query(KEYS, name="keys").to("parquet", path=str(folder / "keys"))
    flow.query(NAMES, name="names").to("parquet", path=str(folder / "names"))
    return flow


def expected(folder: Path, key: str, windows: tuple[int, int], outputs: dict[str, str], **more: str) -> pa.Table:
    streams = [BatchStream(n, folder / n, w * SECOND) for n, w in zip("RS", windows, strict=True)]
    return batch_join(streams, [(f"R.{key}", f"S.{key}")], outputs, **more)


@pytest.mark.parametrize("slots", [pytest.param(4, marks=pytest.mark.slow), 3], ids="with {} slots".format)
def test_a_checkpoint_of_0_1_0_with_a_grid_and_pushed_groups_goes_on(
    slots: int, spark: SparkSession, tmp_path: Path
) -> None:
    folder = unpacked(tmp_path)
    for name in "RS":
        for i, file in enumerate(sorted((folder / "more" / name).glob("*.parquet"))):
            os.utime(shutil.copy(file, folder / name / f"later-{i}.parquet"), (time.time(), LATER + i))
    handle = flow_in(folder, spark, slots=slots).start(folder / "ck", warm=False)
    handle.await_termination()
    assert handle.progress[0].epoch == 6
    assert handle.totals["R.late"] + handle.totals["S.late"] == 0
    found = same_rows(folder / "keys", expected(folder, "k", (40, 50), {"rv": "R.v", "sv": "S.v"}))
    assert found, str(found)
    wanted = expected(folder, "g", (60, 60), {"g": "R.g", "rv": "R.v", "sv": "S.v"})
    wanted = wanted.filter(pc.less(wanted.column("rv"), wanted.column("sv")))
    found = same_rows(folder / "names", wanted)
    assert found, str(found)
