"""Delta and Iceberg tables beside a checkpoint that was rolled back: refused, or exact once they are taken back too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.cli.rollback import rollback
from braidstream.errors import SinkError
from braidstream.spark.iceberg_sink import open_catalog
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from tests.spark.stage import write
from tests.world.test_sinks import EPOCHS, EXPECTED, Place, started

pytestmark = [pytest.mark.spark, pytest.mark.world]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_was_not_taken_back_with_a_rollback_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """It has marks of later epochs, and would take other results of these numbers for those that it has."""
    place = Place(kind, tmp_path, request)
    write(tmp_path, EPOCHS)
    started(spark, tmp_path, place)
    last = Manifest.epochs(Files(str(tmp_path / "ck")))[-1]
    rollback(str(tmp_path / "ck"), last - 1, sinks_restored=True, dry_run=False)
    with pytest.raises(SinkError, match=f"up to epoch {last}, the checkpoint is at epoch {last - 1}"):
        started(spark, tmp_path, place)
    assert place.rows() == EXPECTED
    if kind == "iceberg":
        restored(place, last - 1)
        started(spark, tmp_path, place)
        assert place.rows() == EXPECTED


def restored(place: Place, epoch: int) -> None:
    """As the message of the refusal says."""
    options = {"table": place.declared["table"]}
    table = open_catalog(place.declared["path"], options).load_table(place.declared["table"])
    at = next(one for one in table.metadata.snapshots if one.summary["braidstream.epoch"] == str(epoch))
    name = next(one for one in table.properties if one.endswith(".q.epoch"))
    table.manage_snapshots().rollback_to_snapshot(at.snapshot_id).commit()
    with table.transaction() as transaction:
        transaction.set_properties({name: str(epoch)})
