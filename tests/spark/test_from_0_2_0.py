"""A checkpoint that version 0.2.0 wrote (format 2) goes on, and the union of its epochs and ours is the batch join.

`fixtures/checkpoint_0_2_0.zip` was written on Spark by 0.2.0: six epochs of the streams of 0.1.0's fixture, the queries
of that one and a left join. A hot key has a grid, and nearly all other groups are pushed and owed results; rows of the
left join wait for that to be decided. The process was killed between two epochs. Results went to a function, since a
path would be in the checkpoint; that of Spark's log stands as `@ROOT@`.
"""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join_of_kind, same_rows
from braidstream.spark.flow import Flow
from braidstream.state.checkpoint import Checkpoint
from tests.spark.test_from_0_1_0 import KEYS, LATER, NAMES, SECOND, expected

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).with_name("fixtures") / "checkpoint_0_2_0.zip"
LEFT = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 20 SECONDS] LEFT JOIN S [RANGE 20 SECONDS] ON R.g = S.g AND R.v < S.v"


def unpacked(folder: Path) -> Path:
    """The checkpoint, its streams and results, as if 0.2.0 had written them here."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    for log in (folder / "ck" / "offsets" / "sources").rglob("*"):
        if log.is_file():
            log.write_text(log.read_text().replace("@ROOT@", str(folder)))
    for name in "RS":
        for i, file in enumerate(sorted((folder / "more" / name).glob("*.parquet"))):
            os.utime(shutil.copy(file, folder / name / f"later-{i}.parquet"), (time.time(), LATER + i))
    return folder


def by_epoch(folder: Path) -> Callable[[DataFrame, int], None]:
    """What results go to: a folder for each epoch, or step of a clean-up, which is replaced."""

    def write(results: DataFrame, number: int) -> None:
        results.write.mode("overwrite").parquet(str(folder / f"{number}"))

    return write


def flow_in(folder: Path, spark: SparkSession, *, slots: int) -> Flow:
    """The flow that 0.2.0 was running."""
    flow = Flow(spark, slots=slots, groups=16, router="auto", memory="12 KB")
    for name in "RS":
        ddl = "k long, g string, v long, ts timestamp"
        flow.files(name, folder / name, schema=ddl, time="ts", options={"maxFilesPerTrigger": "1"})
    for name, text in {"keys": KEYS, "names": NAMES, "left": LEFT}.items():
        flow.query(text, name=name).to(by_epoch(folder / name))
    return flow


def gathered(folder: Path) -> Path:
    """All results of a query in one folder."""
    together = folder.with_name(f"all-{folder.name}")
    together.mkdir()
    for file in folder.glob("*/*.parquet"):
        shutil.copy(file, together / f"{file.parent.name}-{file.name}")
    return together


@pytest.mark.parametrize("slots", [4, pytest.param(3, marks=pytest.mark.slow)], ids="with {} slots".format)
def test_a_checkpoint_of_0_2_0_with_a_grid_pushed_groups_and_undecided_rows_goes_on(
    slots: int, spark: SparkSession, tmp_path: Path
) -> None:
    folder = unpacked(tmp_path)
    before = Checkpoint(str(folder / "ck")).latest()
    assert (before.epoch, len(before.grids), list(before.notes.undecided)) == (5, 1, ["R[CAST(`g` AS string)]"])
    handle = flow_in(folder, spark, slots=slots).start(folder / "ck", warm=False, final=True)
    handle.await_termination()
    assert handle.progress[0].epoch in (5, 6), "it goes on where it was: with what is owed, or the next epoch"
    assert handle.totals["R.late"] + handle.totals["S.late"] == 0
    names = expected(folder, "g", (60, 60), {"g": "R.g", "rv": "R.v", "sv": "S.v"})
    for name, wanted in {
        "keys": expected(folder, "k", (40, 50), {"rv": "R.v", "sv": "S.v"}),
        "names": names.filter(pc.less(names.column("rv"), names.column("sv"))),
        "left": decided(folder),
    }.items():
        found = same_rows(gathered(folder / name), wanted)
        assert found, f"{name}: {found}"


def decided(folder: Path) -> pa.Table:
    """The left join of all rows, for the input is final."""
    left, right = (BatchStream(n, folder / n, 20 * SECOND) for n in "RS")
    return batch_join_of_kind("left", (left, right), [("R.g", "S.g")], {"rv": "R.v", "sv": "S.v"}, ["R.v < S.v"])
