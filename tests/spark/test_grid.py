"""Heavy keys on Spark: found by the engine itself and spread over the slots, with the results of the batch join."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.epoch.routers import Routing
from braidstream.errors import CheckpointMismatch, InputError
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from tests.spark.test_queries import SHAPES, World, results, select

pytestmark = pytest.mark.spark

DDL = "k long, v long, ts timestamp"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 20 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k"
HOT = 77


class Restless(Routing):
    """Grids that change after every epoch, whatever the keys hold."""

    def regridder(self) -> Any:
        numbers, letters = pa.array(range(-1, 7)), pa.array(list("abcde"))
        hashes = [*hash_columns([numbers])[0].tolist(), *hash_columns([letters])[0].tolist()]
        return RestlessGrids(hashes, seed=1, max_dim=3)


def hot_epochs(folder: Path, shares: list[float], rows: int = 600) -> None:
    """An epoch of ten seconds for each share of tuples that the hot key has; one file a stream."""
    rng = np.random.default_rng(3)
    for number, share in enumerate(shares, start=len(list((folder / "R").glob("*.parquet")))):
        for name in "RS":
            keys = np.where(rng.random(rows) < share, HOT, rng.integers(1000, 9000, rows))
            times = np.sort(rng.integers(number * 10_000_000, (number + 1) * 10_000_000, rows))
            table = pa.table([keys, rng.integers(0, 1 << 40, rows), times], schema=SCHEMA)
            append_files(folder / name, [table])


def run(spark: SparkSession, folder: Path, router: str, slots: int | None = None, **options: Any) -> Handle:
    flow = Flow(spark, slots=slots, groups=16, router=router, **options)
    for name in "RS":
        flow.files(name, folder / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    handle = flow.start(folder / "ck", warm=False)
    handle.await_termination()
    return handle


def check_results(folder: Path) -> None:
    windows = (("R", 20_000_000), ("S", 30_000_000))
    streams = [BatchStream(name, folder / name, window) for name, window in windows]
    expected = batch_join(streams, [("R.k", "S.k")], {"rv": "R.v", "sv": "S.v"})
    difference = same_rows(folder / "out", expected)
    assert difference, difference
    assert expected.num_rows > 10_000


def test_a_hot_key_is_found_spread_and_gathered_again(spark: SparkSession, tmp_path: Path) -> None:
    """Hot for four epochs, then gone; restarted with other slots while it is hot, and by hash at the end."""
    hot_epochs(tmp_path, [0.5, 0.5])
    handle = run(spark, tmp_path, "auto", slots=4)
    first, second = handle.progress
    (key,) = second.heavy
    assert key.key == str(HOT)
    assert 0.4 < key.share < 0.6
    assert f"heavy key {HOT}" in handle.explain()
    assert f"grid {key.shape} over {len(set(key.slots))} slots" in handle.explain()
    assert first.balance["matches"] > 3.5
    assert second.balance["matches"] < 1.7
    assert [type(one).__name__ for decision in handle.decisions for one in decision.instructions][:1] == ["Regrid"]
    hot_epochs(tmp_path, [0.5, 0.5])
    handle = run(spark, tmp_path, "grid", slots=3, rule="paper")
    assert handle.progress[-1].heavy
    assert max(slot for key in handle.progress[-1].heavy for slot in key.slots) < 3
    hot_epochs(tmp_path, [0.0] * 6)
    handle = run(spark, tmp_path, "auto")
    assert handle.progress[-1].heavy == ()
    hot_epochs(tmp_path, [0.3, 0.3])
    handle = run(spark, tmp_path, "hash")
    assert handle.progress[-1].heavy == ()
    check_results(tmp_path)


def test_router_hash_right_after_a_grid_finds_what_is_in_the_cells(spark: SparkSession, tmp_path: Path) -> None:
    hot_epochs(tmp_path, [0.5, 0.5])
    assert run(spark, tmp_path, "auto", slots=4).progress[-1].heavy
    hot_epochs(tmp_path, [0.5])
    assert run(spark, tmp_path, "hash").progress[-1].heavy == ()
    hot_epochs(tmp_path, [0.5, 0.5])
    assert run(spark, tmp_path, "auto").progress[-1].heavy
    check_results(tmp_path)


def test_biclique(spark: SparkSession, tmp_path: Path) -> None:
    """Every row is stored once and sent to the units of the other side; the checkpoint stays a biclique's."""
    hot_epochs(tmp_path, [0.5, 0.5])
    handle = run(spark, tmp_path, "biclique", slots=4, subgroups=1)
    assert [entry.indexed for entry in handle.progress] == [1200 * 3] * 2
    assert handle.progress[0].state_rows == 1200
    hot_epochs(tmp_path, [0.5, 0.2])
    run(spark, tmp_path, "biclique", subgroups=1)
    check_results(tmp_path)
    with pytest.raises(CheckpointMismatch, match="of a biclique"):
        run(spark, tmp_path, "auto")
    with pytest.raises(CheckpointMismatch, match="a biclique of 4"):
        run(spark, tmp_path, "biclique", slots=2)


@pytest.mark.parametrize("shape", ["a chain of three", "a star with one attribute of three"])
def test_grids_of_intermediate_results_and_of_joins_that_were_suspended(
    spark: SparkSession, tmp_path: Path, shape: str
) -> None:
    names, windows, where, equalities = SHAPES[shape]
    world = World(tmp_path, names, random.Random(7))
    for silent in ("", "C", "C", "C", "", ""):
        world.epoch(16, silent)
    flow = world.declare(Flow(spark, slots=3, groups=8, silence="5 seconds"), direct=True)
    flow.routing = Restless()
    query = flow.query(select(names, windows, where)).to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    manifest = handle._runner.manifest
    assert any(segment.cells for segment in manifest.segments)
    expected = world.expected(windows, equalities)
    assert sum(expected.values()) > 0
    assert results(query) == expected


def test_a_query_that_joins_another_stream_changes_the_grids_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Between two runs a third stream joins the family: grids over two stores are followed by grids over three."""
    world = World(tmp_path, "ABC", random.Random(8))
    text = "SELECT A.v AS a, B.v AS b FROM A [RANGE 20 SECONDS], B [RANGE 30 SECONDS] WHERE A.x = B.x"
    for _ in range(4):
        world.epoch(16)
    flow = world.declare(Flow(spark, slots=3, groups=8), direct=True)
    flow.routing = Restless()
    flow.query(text, name="two").to("parquet", path=str(tmp_path / "two"))
    handle = flow.start(tmp_path / "ck", epoch="0 seconds", warm=False)
    try:
        wait_for(handle, 3)
        flow.submit(select("ABC", [20 * 10**6] * 3, "A.x = B.x AND B.x = C.x"), name="three")
        families = {grid.family for grid in handle._runner.manifest.grids}
        for _ in range(3):
            world.epoch(16)
        wait_for(handle, 6)
        assert not families & {grid.family for grid in handle._runner.manifest.grids}
        flow.withdraw("three")
        for _ in range(2):
            world.epoch(16)
        wait_for(handle, 8)
    finally:
        handle.stop()
    table = batch_join(
        [BatchStream(name, tmp_path / name, w * 10**6) for name, w in (("A", 20), ("B", 30))],
        [("A.x", "B.x")],
        {"a": "A.v", "b": "B.v"},
    )
    difference = same_rows(tmp_path / "two", table)
    assert difference, difference


def wait_for(handle: Handle, epoch: int) -> None:
    """Until an epoch is committed."""
    while handle._runner.manifest.epoch < epoch:
        assert not handle.await_termination(timeout=0.2)


def test_what_explain_says_and_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    hot_epochs(tmp_path, [0.1])

    def flow(**options: Any) -> Flow:
        made = Flow(spark, slots=2, **options)
        for name in "RS":
            made.files(name, tmp_path / name, schema=DDL, time="ts")
        return made

    gridded = flow()
    gridded.query(QUERY).to("noop")
    assert "router auto: heavy keys on a grid of R[CAST(k AS bigint)] x S[CAST(k AS bigint)]" in gridded.explain()
    summed = flow()
    summed.query("SELECT R.k, COUNT(*) AS n FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.k GROUP BY R.k")
    assert "stays hash-routed: aggregates need all rows of a key in one slot" in summed.explain()
    hashed = flow(router="hash")
    hashed.query(QUERY).to("noop")
    assert "router hash: every key at one slot" in hashed.explain()
    itself = flow(router="biclique")
    itself.query("SELECT a.v AS v FROM R a [RANGE 1 HOUR], R b [RANGE 1 HOUR] WHERE a.k = b.k").to("noop")
    with pytest.raises(InputError, match="joins of two streams"):
        itself.start(tmp_path / "refused")
    for wrong in ({"router": "gird"}, {"router": "auto", "rule": "paper"}, {"router": "hash", "subgroups": 2}):
        with pytest.raises(InputError):
            flow(**wrong)
