"""The process that workers are forked from: what they need is there, and where it is not they are PySpark's."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.spark import worker_daemon


@pytest.mark.spark
def test_workers_of_a_local_session_find_what_they_need_imported(spark: SparkSession) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys
        from pathlib import Path

        before = [name for name in ("braidstream.slot.task", "pyarrow.parquet", "pandas") if name in sys.modules]
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": before, "parent": [parent[2]] * len(before)})

    found = spark.range(1).coalesce(1).mapInArrow(seen, "found string, parent string").collect()
    assert [row.found for row in found] == ["braidstream.slot.task", "pyarrow.parquet", "pandas"]
    assert {row.parent for row in found} == {"braidstream.spark.worker_daemon"}


def test_without_what_is_needed_it_is_pysparks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    managed = list[str]()
    monkeypatch.setattr(worker_daemon, "manager", lambda: managed.append("begun"))
    monkeypatch.setattr(worker_daemon, "_NEEDED", ("a.package.that.is.not.there",))
    worker_daemon.main()
    assert managed == ["begun"]
