"""A checkpoint goes on: with other slots, in another time zone, on a state folder that is not local."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import same_rows
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from braidstream.state.files import Files
from tests.spark.stage import SECOND, declare, in_order, pairs, some_epochs, write

pytestmark = pytest.mark.spark

QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 40 SECONDS], S [RANGE UNBOUNDED] WHERE R.k = S.k"


def run(spark: SparkSession, folder: Path, paths: dict[str, Path], slots: int | None, root: str) -> Handle:
    flow = declare(Flow(spark, slots=slots, groups=11), paths)
    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    handle = flow.start(root, warm=False)
    handle.await_termination()
    return handle


@pytest.mark.parametrize(
    "remote", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["state on local disk", "state elsewhere"]
)
def test_four_then_seven_then_one_slot(spark: SparkSession, tmp_path: Path, remote: bool) -> None:
    """Runs of two epochs each; between them the number of slots changes."""
    root = f"copy+file://{tmp_path}/ck" if remote else str(tmp_path / "ck")
    epochs = some_epochs(4, n_epochs=8, rows=12)
    fetched = []
    for i, slots in enumerate([4, 7, 1, None]):
        paths = write(tmp_path, epochs[2 * i : 2 * i + 2])
        if i == 2:
            shutil.rmtree(copies_of(tmp_path / "ck"), ignore_errors=True)  # as on a machine of its own
        handle = run(spark, tmp_path, paths, slots, root)
        assert [p.slots for p in handle.progress] == [slots or 1] * 2
        assert handle.totals["epochs"] == 2 * i + 2
        fetched += [p.fetched for p in handle.progress]
    expected = pa.table(
        [
            list(column)
            for column in zip(*((r["k"], r["v"], s["v"]) for r, s in pairs(epochs, (40, None))), strict=True)
        ],
        names=["k", "rv", "sv"],
    )
    difference = same_rows(tmp_path / "out", expected)
    assert difference, difference
    # What a machine has written it need not fetch; what it has fetched it keeps.
    assert [n > 0 for n in fetched] == [False] * 4 + [remote] + [False] * 3
    assert expected.num_rows > 100


def copies_of(checkpoint: Path) -> Path:
    """Where local copies of a remote state folder are kept."""
    return Files(f"copy+file://{checkpoint}")._cache


def test_another_time_zone_reads_the_same_state(spark: SparkSession, tmp_path: Path) -> None:
    """Instants are part of the key, so they are stored; Spark hands them out in the session's zone."""
    instant = pa.timestamp("us", "UTC")
    schema = pa.schema([("at", instant), ("s", pa.struct([("at", instant)])), ("k", pa.int64()), ("ts", instant)])
    zone = spark.conf.get("spark.sql.session.timeZone")
    results: dict[int, list[Any]] = {}
    try:
        for i, name in enumerate(("America/New_York", "UTC", "Asia/Kolkata")):
            spark.conf.set("spark.sql.session.timeZone", name)
            rows = [{"at": k * SECOND, "s": {"at": k * SECOND}, "k": k, "ts": i * SECOND} for k in range(3)]
            paths = write(tmp_path, [{"R": rows, "S": rows}], schema)
            flow = declare(
                Flow(spark, slots=2),
                paths,
                directly=False,
                ddl="at timestamp, s struct<at:timestamp>, k long, ts timestamp",
            )
            text = (
                "SELECT R.k AS k FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.at = S.at AND R.k = S.k AND R.s = S.s"
            )
            flow.query(text, name="q").to(lambda frame, epoch: results.update({epoch: [r.k for r in frame.collect()]}))
            flow.start(tmp_path / "ck", warm=False).await_termination()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    # In epoch i each key meets i stored rows of either side, and itself.
    assert {epoch: in_order((k,) for k in ks) for epoch, ks in results.items()} == {
        epoch: in_order((k,) for k in range(3) for _ in range(2 * epoch + 1)) for epoch in range(3)
    }
