"""Delta tables in folders of any name: written and read where they are, or refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.errors import InputError, TableError
from braidstream.spark.sinks import make_sink
from braidstream.spark.table_formats import check_table, source_of
from tests.spark.stage import in_order
from tests.world import readers
from tests.world.test_zombies import EXPECTED, Process

pytestmark = [pytest.mark.spark, pytest.mark.world]

FITTING = ("a b", "100%", "a%zz", "größe", "a#b", "a?b", "a{b}", 'a"b', "a<b>", "a`b", "a:b", "a*b", " a ")
REFUSED = {"a%25b": "%25", "a%20b": "%20", "%41": "%41", "a[b": "[", "b]": "]", "a^b": "^", "a|b": "|", "a\\b": "\\"}


@pytest.mark.parametrize("name", FITTING)
def test_a_table_is_written_and_read_whatever_its_folder_is_called(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    path = str(tmp_path / name / "lake")
    for _ in range(2):  # the second finds the epoch
        process = Process({"target": "delta", "path": path}, "now")
        process.sink.deliver(process.delivery(0))
    assert readers.delta_rows(path) == in_order(EXPECTED)
    table = source_of(spark, "T", "delta", path, None, {})
    found = table.frame(table.newest()).select("k", "rv", "sv").collect()
    assert in_order(tuple(one) for one in found) == in_order(EXPECTED)


def test_partitions_of_a_table_in_such_a_folder_have_their_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3, 4], "p": ["u v", "50%", "e/b", "100%25"]})
    for name in ("plain", "a b%"):
        path = str(tmp_path / name)
        deltalake.write_deltalake(path, rows, partition_by=["p"])
        found = source_of(spark, "T", "delta", path, None, {}).frame(None).select("x", "p").collect()
        assert sorted((one.x, one.p) for one in found) == [(1, "u v"), (2, "50%"), (3, "e/b"), (4, "100%25")]


def test_a_partition_that_spark_would_read_as_another_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its folder is `p=%C3%A9`, and Spark makes two letters of that."""
    deltalake.write_deltalake(str(tmp_path), pa.table({"x": [1], "p": ["é"]}), partition_by=["p"])
    with pytest.raises(TableError, match=r"a partition that Spark would read as another one: .*p=%C3%A9"):
        source_of(spark, "T", "delta", str(tmp_path), None, {}).frame(None)


def test_a_table_is_read_by_a_link_to_its_folder(spark: SparkSession, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "a b"), pa.table({"x": [1]}))
    (tmp_path / "link").symlink_to(tmp_path / "a b")
    found = source_of(spark, "T", "delta", str(tmp_path / "link"), None, {}).frame(None).collect()
    assert [one.x for one in found] == [1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_delta_rs_takes_for_another_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name / "lake")
    Path(path).mkdir(parents=True)
    for make in (lambda: make_sink("delta", path, {}), lambda: check_table("T", "delta", path, {})):
        with pytest.raises(InputError) as refused:
            make()
        assert f"because of {REFUSED[name]!r} in its path" in refused.value.wrong
        assert "without" in refused.value.expected
        assert refused.value.fix == "choose another path, or rename the folder"
    assert list(Path(path).iterdir()) == []
