"""Budgets on Spark: pushed state, the last clean-up of a finite flow, what results say of themselves, crashes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import InputError
from braidstream.lab.testing import oracle
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.spark.flow import Flow
from tests.spark.child import WINDOW_SECONDS
from tests.spark.stage import SCHEMA, SECOND, declare, in_order, pairs, rows_of, some_epochs, write
from tests.spark.test_crash import run

pytestmark = pytest.mark.spark

QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE UNBOUNDED], S [RANGE 60 SECONDS] WHERE R.k = S.k"
WINDOWS = (None, 60)


def test_a_finite_flow_ends_when_nothing_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """Its results say which of them were recovered, and in which epoch; more files later, and it goes on."""
    epochs = some_epochs(1, n_epochs=6)
    calls: dict[int, int] = {}

    def take(frame: DataFrame, epoch: int) -> None:
        calls[epoch] = frame.count()

    def once() -> Any:
        flow = declare(Flow(spark, slots=2, groups=8, memory="6 KB"), {name: tmp_path / name for name in "RS"})
        flow.query(QUERY, name="told", recovered=True).to("parquet", path=str(tmp_path / "out"))
        flow.query(QUERY.replace("R.v AS rv", "R.v + 0 AS rv"), name="made", recovered=True).to(
            "json", path=str(tmp_path / "json")
        )
        flow.query(QUERY, name="called").to(take)
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return handle

    write(tmp_path, epochs[:4])
    handle = once()
    steps = [entry for entry in handle.progress if entry.step]
    assert max(entry.spilled_groups for entry in handle.progress) > 0
    assert sum(sum(entry.recovered.values()) for entry in steps) > 0
    write(tmp_path, epochs[4:])
    once()
    expected = in_order((r["k"], r["v"], s["v"]) for r, s in pairs(epochs, WINDOWS))
    for found in (pq.read_table(tmp_path / "out", ignore_prefixes=["_"]), from_json(tmp_path / "json")):
        rows = found.to_pylist()
        assert in_order((row["k"], row["rv"], row["sv"]) for row in rows) == expected
        assert {row["recovered"] for row in rows} == {True, False}
        assert {row["epoch"] for row in rows} <= set(range(6))
        plain = [row for row in rows if not row["recovered"]]
        assert all(row["epoch"] >= epoch_of(epochs, "R", row["rv"]) for row in plain)
    assert sum(calls.values()) == len(expected)
    assert min(calls) < 0
    assert not (tmp_path / "ck" / "staged").is_dir() or not any((tmp_path / "ck" / "staged").iterdir())


def from_json(folder: Path) -> pa.Table:
    lines = [line for file in folder.glob("part-*") for line in file.read_text().splitlines()]
    return pa.Table.from_pylist([json.loads(line) for line in lines])


def epoch_of(epochs: Any, stream: str, v: int) -> int:
    return next(i for i, epoch in enumerate(epochs) if any(row["v"] == v for row in epoch[stream]))


def test_the_last_stage_of_a_type_2_query_is_pushed_and_the_first_is_not(spark: SparkSession, tmp_path: Path) -> None:
    epochs = some_epochs(2, n_epochs=6, rows=12)
    for seed, epoch in enumerate(epochs):
        epoch["T"] = [{**row, "k": row["v"] % 5} for row in some_epochs(seed + 50, n_epochs=1, rows=12)[0]["R"]]
        for row in epoch["T"]:
            row["ts"] += seed * 30 * SECOND
    flow = declare(Flow(spark, slots=2, groups=8, memory="4 KB"), write(tmp_path, epochs))
    text = (
        "SELECT R.v AS rv, S.v AS sv, T.v AS tv FROM R [RANGE 50 SECONDS], S [RANGE 50 SECONDS], T [RANGE UNBOUNDED] "
        "WHERE R.k = S.k AND S.name = T.name"
    )
    query = flow.query(text, name="q").to("memory")
    shown = flow.explain()
    assert "memory: 0.003906 MB of active state a slot" in shown
    assert shown.count("is never pushed") == 2
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    windows = {"R": 50 * SECOND, "S": 50 * SECOND, "T": None}
    streams = [oracle.Stream(n, [row for e in epochs for row in e[n]], w) for n, w in windows.items()]
    found = oracle.join(streams, [("R.k", "S.k"), ("S.name", "T.name")])
    assert sum(sum(entry.recovered.values()) for entry in handle.progress) > 0
    assert rows_of(query.sink.table()) == in_order((c["R"]["v"], c["S"]["v"], c["T"]["v"]) for c in found)  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_process_killed_in_its_last_clean_up_ends_it_first(tmp_path: Path) -> None:
    """Results were delivered, the manifest was not written; then more files come before the next start."""
    epochs = some_epochs(3, n_epochs=5, rows=200)
    plain = [{n: [{c: row[c] for c in ("k", "v", "ts")} for row in rows] for n, rows in e.items()} for e in epochs]
    schema = pa.schema([field for field in SCHEMA if field.name != "name"])
    write(tmp_path, plain[:3], schema)
    options = ("--slots", "2", "--memory", "3 KB")
    code, _, _ = run(tmp_path, *options, BRAIDSTREAM_FAULT="clean-up-results:2:kill")
    assert code == -signal.SIGKILL
    write(tmp_path, plain[3:], schema)
    code, shown, errors = run(tmp_path, *options)
    assert code == 0, errors[-2000:]
    streams = [BatchStream(name, tmp_path / name, WINDOW_SECONDS * SECOND) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    difference = same_rows(tmp_path / "out", expected)
    assert difference, str(difference)
    assert shown["recovered"] > 0
    assert shown["totals"]["q.matches"] == expected.num_rows


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"memory": "much"}, "the size is 'much'"),
        ({"memory": 0}, "memory is 0"),
        ({"on_overflow": "burn"}, "on_overflow is 'burn'"),
        ({"spill_share": 1.5}, "spill_share is 1.5"),
        ({"idle_after": -1}, "idle_after is -1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_budget_that_is_none_is_refused(spark: SparkSession, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Flow(spark, **options)


def test_results_with_columns_of_those_names_cannot_tell(spark: SparkSession, tmp_path: Path) -> None:
    flow = declare(Flow(spark), write(tmp_path, some_epochs(4, n_epochs=1)))
    with pytest.raises(InputError, match="has an output 'epoch' of its own"):
        flow.query("SELECT R.v AS epoch FROM R [RANGE 1 SECOND], S [RANGE 1 SECOND] WHERE R.k = S.k", recovered=True)


def test_the_default_budget_is_a_share_of_the_executors_memory(spark: SparkSession) -> None:
    assert Flow(spark).overflow.memory_bytes == (2 << 30) // 2 // 2
