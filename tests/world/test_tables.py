"""Tables that keep versions: an epoch that is done again sees the version that it saw."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.test_tables import epoch_that_is_done_again

pytestmark = [pytest.mark.spark, pytest.mark.world]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_epoch_that_is_done_again_sees_the_version_that_it_saw(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    epoch_that_is_done_again(spark, tmp_path, kind)
