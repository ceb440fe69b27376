"""Every epoch that is kept can be gone back to, however little Spark would keep of its own log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.cli.rollback import rollback
from braidstream.spark.flow import Flow
from braidstream.spark.session import retention
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from tests.spark.stage import declare, in_order, pairs, some_epochs, write

pytestmark = pytest.mark.spark

QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
N, KEEP = 8, 5
FORGETFUL = {
    "spark.sql.streaming.minBatchesToRetain": "1",
    "spark.sql.streaming.fileSource.log.compactInterval": "2",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0ms",
}


@pytest.fixture
def forgetful(spark: SparkSession) -> Iterator[SparkSession]:
    """A session whose queries forget all but the last epoch."""
    for name, value in FORGETFUL.items():
        spark.conf.set(name, value)
    yield spark
    for name in FORGETFUL:
        spark.conf.unset(name)


def ran(spark: SparkSession, folder: Path, *, directly: bool) -> None:
    flow = declare(Flow(spark, slots=2, groups=4), {name: folder / name for name in "RS"}, directly=directly)
    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    flow.start(folder / "ck", warm=False, keep=KEEP).await_termination()


@pytest.mark.parametrize("directly", [True, False], ids=["files that we read", "a stream that Spark reads"])
def test_the_oldest_epoch_that_is_kept_can_be_gone_back_to(
    forgetful: SparkSession, tmp_path: Path, directly: bool
) -> None:
    epochs = some_epochs(3, n_epochs=N, rows=8)
    write(tmp_path, epochs)
    ran(forgetful, tmp_path, directly=directly)
    oldest = N - KEEP
    assert Manifest.epochs(Files(str(tmp_path / "ck")))[0] == oldest
    rollback(str(tmp_path / "ck"), oldest, sinks_restored=False, dry_run=False)
    ran(forgetful, tmp_path, directly=directly)
    rows = forgetful.read.parquet(str(tmp_path / "out")).collect()
    assert in_order(tuple(row) for row in rows) == in_order(
        (r["k"], r["v"], s["v"]) for r, s in pairs(epochs, (10, 10))
    )


def test_spark_keeps_as_many_epochs_as_are_kept_and_never_fewer_than_the_session_says(spark: SparkSession) -> None:
    name = "spark.sql.streaming.minBatchesToRetain"
    assert retention(spark, 10) == {name: "100"}
    assert retention(spark, 200) == {name: "202"}
