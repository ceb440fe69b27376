"""Shedding on Spark: a part of the answer, each result once, and the flow says how large a part."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.spark.flow import Flow
from tests.spark.stage import declare, pairs, some_epochs, write
from tests.spark.test_spill import QUERY, WINDOWS

pytestmark = pytest.mark.spark


def test_a_flow_that_sheds_says_so(spark: SparkSession, tmp_path: Path) -> None:
    epochs = some_epochs(1, n_epochs=6)
    write(tmp_path, epochs)
    paths = {name: tmp_path / name for name in "RS"}
    flow = declare(Flow(spark, slots=2, groups=8, memory=600, on_overflow="shed", shed_by="random"), paths)
    flow.query(QUERY, name="q").to("parquet", path=str(tmp_path / "out"))
    assert "beyond it tuples are shed (random)" in flow.explain()
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    rows = pq.read_table(tmp_path / "out", ignore_prefixes=["_"]).to_pylist()
    found = Counter((row["k"], row["rv"], row["sv"]) for row in rows)
    expected = Counter((r["k"], r["v"], s["v"]) for r, s in pairs(epochs, WINDOWS))
    assert 0 < found.total() < expected.total()
    assert not found - expected
    told = handle.progress[-1].completeness_so_far["q"]
    assert told.low <= found.total() / expected.total() <= told.high
    assert sum(entry.shed_bytes for entry in handle.progress) > 0
