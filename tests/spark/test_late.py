"""Late rows: counted, sent to an output of their own, and not joined."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing import oracle
from braidstream.spark.flow import Flow
from tests.spark.stage import SECOND, declare, in_order, pairs, rows_of, some_epochs, write

pytestmark = pytest.mark.spark

QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k"
DELAY = 5


def epochs_with_late_rows() -> list[dict[str, list[dict[str, Any]]]]:
    """Some rows come much too late, some a little, and some without a time."""
    random = Random(5)
    epochs = some_epochs(5, n_epochs=3, rows=25)
    for epoch in epochs:
        for rows in epoch.values():
            for row in rows:
                lateness = random.choice([0, 0, 0, 3, 20, 50, None])
                row["ts"] = None if lateness is None else max(row["ts"] - lateness * SECOND, 0)
    return epochs


@pytest.mark.parametrize("directly", [True, False], ids=["files read directly", "rows from Spark"])
def test_late_rows_are_counted_and_put_aside(spark: SparkSession, tmp_path: Path, directly: bool) -> None:
    epochs = epochs_with_late_rows()
    flow = declare(Flow(spark, slots=3, groups=5), write(tmp_path, epochs), directly=directly, delay=f"{DELAY} seconds")
    query = flow.query(QUERY, name="q").to("memory").late("parquet", path=str(tmp_path / "late"))
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()

    timed = [{name: [r for r in rows if r["ts"] is not None] for name, rows in epoch.items()} for epoch in epochs]
    on_time, late = oracle.split_late(timed, dict.fromkeys("RS", DELAY * SECOND))
    expected = in_order((r["v"], s["v"]) for r, s in pairs([on_time], (30, 30)))  # type: ignore[list-item]
    assert rows_of(query.sink.table()) == expected  # type: ignore[union-attr]
    assert expected
    put_aside = spark.read.parquet(str(tmp_path / "late"))
    assert set(put_aside.columns) == {"k", "v", "name", "ts", "stream"}
    for name in "RS":
        untimed = [row for epoch in epochs for row in epoch[name] if row["ts"] is None]
        mine = [(row["v"], row["k"], row["name"]) for row in [*late[name], *untimed]]
        found = put_aside.where(f"stream = '{name}'").select("v", "k", "name").collect()
        assert in_order(tuple(row) for row in found) == in_order(mine)
        assert len(late[name]) > 3
        assert handle.totals[f"{name}.late"] == len(mine)
        assert sum(p.late.get(name, 0) for p in handle.progress) == len(mine)
        assert handle.totals[f"{name}.rows"] == sum(len(epoch[name]) for epoch in epochs)
    keyless = sum(row["k"] is None for epoch in epochs for rows in epoch.values() for row in rows)
    assert sum(handle.totals[f"{name}.keyless"] for name in "RS") == keyless


def test_a_stream_that_is_silent_holds_the_watermark_back(spark: SparkSession, tmp_path: Path) -> None:
    """R goes on for three epochs; then S says what happened at the beginning, and nothing has been forgotten."""
    epochs = some_epochs(6, n_epochs=3)
    silent = [{"R": epoch["R"], "S": []} for epoch in epochs] + [{"R": [], "S": epochs[0]["S"]}]
    flow = declare(Flow(spark, slots=2, groups=5), write(tmp_path, silent))
    query = flow.query(QUERY, name="q").to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert [p.watermark for p in handle.progress][:3] == [None] * 3
    expected = in_order((r["v"], s["v"]) for r, s in pairs(silent, (30, 30)))
    assert rows_of(query.sink.table()) == expected  # type: ignore[union-attr]
    assert expected
