"""A folder that was copied: modification times say nothing about event times, and no row may be lost for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.errors import RunError, StreamError
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import STREAM_SCHEMA, UniformKeys, write_stream
from braidstream.model.faults import VARIABLE, armed
from braidstream.spark.flow import Flow
from tests.spark.test_crash import check_output as child_output
from tests.spark.test_crash import run as child_run

pytestmark = pytest.mark.spark

DDL = "k long, v long, ts timestamp"
SECOND = 1_000_000
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
FILTERED = QUERY + " AND R.v >= 0 AND S.v >= 0"
"""The same; but rows that are filtered come through Spark."""


def copied(folder: Path, times: Callable[[Random], float], n_files: int = 8, rows: int = 200) -> Path:
    """Two streams, 200 rows of two seconds a file; each file gets some modification time."""
    random = Random(str(folder.name))
    for seed, name in enumerate("RS"):
        made = write_stream(
            folder / name, rate=100, keys=UniformKeys(40), rows_per_file=rows, seed=seed, n_rows=n_files * rows
        )
        for file in made.files:
            moment = times(random)
            os.utime(file, (moment, moment))
    return folder


def shuffled(random: Random) -> float:
    return time.time() - random.uniform(0, 20 * 86_400)


def equal(_: Random) -> float:
    return 1_700_000_000.0


def files_flow(spark: SparkSession, folder: Path, query: str = QUERY, n: int = 2, **options: object) -> Flow:
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(
            name,
            folder / name,
            schema=DDL,
            time="ts",
            options={"maxFilesPerTrigger": str(n)},
            **options,  # type: ignore[arg-type]
        )
    flow.query(query, name="q").to("parquet", path=str(folder / "out"))
    return flow


def check_output(folder: Path) -> None:
    streams = [BatchStream("R", folder / "R", 10 * SECOND), BatchStream("S", folder / "S", 5 * SECOND)]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    assert expected.num_rows > 1000
    difference = same_rows(folder / "out", expected)
    assert difference, str(difference)


@pytest.mark.parametrize("query", [QUERY, FILTERED], ids=["files read directly", "rows from Spark"])
@pytest.mark.parametrize("times", [shuffled, equal])
def test_a_copied_folder_gives_the_whole_join(
    spark: SparkSession, tmp_path: Path, times: Callable[[Random], float], query: str
) -> None:
    copied(tmp_path, times)
    handle = files_flow(spark, tmp_path, query).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.rows"] == handle.totals["S.rows"] == 1600
    assert handle.totals["R.late"] == handle.totals["S.late"] == 0
    assert len(handle.progress) == 4
    check_output(tmp_path)


@pytest.mark.parametrize("order", ["name", "modified"])
def test_in_another_order_the_delay_makes_up_for_it(spark: SparkSession, tmp_path: Path, order: str) -> None:
    """Names are in order here and need none; modification times are not, and the files say how long a delay must be."""
    copied(tmp_path, shuffled)
    handle = files_flow(spark, tmp_path, order=order).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.late"] == handle.totals["S.late"] == 0
    check_output(tmp_path)
    measured = handle.manifest.notes.delays
    assert all((us > 4 * SECOND) is (order == "modified") for us in measured.values())
    assert "measured from 8 files" in handle.explain()


def written(folder: Path, tables: list[pa.Table], random: Random) -> None:
    """Files in a random order of writing and of names."""
    folder.mkdir(parents=True)
    names = random.sample(range(1000), len(tables))
    for i in random.sample(range(len(tables)), len(tables)):
        kinds = [{}, {"use_deprecated_int96_timestamps": True}, {"write_statistics": False}]
        pq.write_table(tables[i], folder / f"{names[i]}.parquet", **random.choice(kinds))


def overlapping(random: Random, n_files: int = 6) -> list[pa.Table]:
    """Rows of four seconds around the two that a file is about; some files have no rows."""
    rows: list[list[dict[str, int]]] = [[] for _ in range(n_files)]
    for v in range(200 * n_files):
        at = v * 10_000
        place = min(max(at // (2 * SECOND) + random.choice([-1, 0, 0, 1]), 0), n_files - 1)
        rows[place].append({"k": random.randint(0, 39), "v": v, "ts": at})
    return [pa.Table.from_pylist(own, STREAM_SCHEMA) for own in [*rows, []]]


@pytest.mark.parametrize(
    "query", [QUERY, pytest.param(FILTERED, marks=pytest.mark.slow)], ids=["files read directly", "rows from Spark"]
)
def test_files_that_overlap_some_without_statistics_or_rows(spark: SparkSession, tmp_path: Path, query: str) -> None:
    random = Random(query)
    for name in "RS":
        written(tmp_path / name, overlapping(random), random)
    flow = files_flow(spark, tmp_path, query, n=1)
    assert "delay as measured from its files at the start" in flow.explain()
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.late"] == handle.totals["S.late"] == 0
    assert 0 < handle.manifest.notes.delays["R"] <= 6 * SECOND
    check_output(tmp_path)


def test_rows_without_a_time_column_are_late_and_it_is_said_why(spark: SparkSession, tmp_path: Path) -> None:
    copied(tmp_path, shuffled, n_files=6)
    pq.write_table(pa.table({"k": range(900), "v": range(900)}), tmp_path / "R" / "untimed.parquet")
    handle = files_flow(spark, tmp_path).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.late"] == 900
    assert handle.totals["S.late"] == 0
    told = [text for entry in handle.progress for text in entry.warnings]
    assert told
    assert all("stream R" in text and "900 of them have no time" in text and "delay" not in text for text in told)


@pytest.mark.slow
def test_a_backfill_that_dies_goes_on_with_files_that_came_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    """Three starts: one dies, one reads what is left and what came, one runs on; every file is read once."""
    copied(tmp_path, shuffled, n_files=16)
    held = {name: sorted((tmp_path / name).iterdir()) for name in "RS"}
    for name in "RS":  # those in the middle of the stream, the end, and what comes in the last start
        (tmp_path / f"held-{name}").mkdir()
        for file in [held[name][9], *held[name][12:]]:
            file.rename(tmp_path / f"held-{name}" / file.name)
    with armed("after-results:3:raise"), pytest.raises(RunError, match="injected fault"):
        files_flow(spark, tmp_path).start(tmp_path / "ck", warm=False).await_termination()
    for name in "RS":
        for number in (9, 12, 13):
            (tmp_path / f"held-{name}" / held[name][number].name).rename(held[name][number])
    handle = files_flow(spark, tmp_path).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert handle.totals["R.rows"] == handle.totals["S.rows"] == 14 * 200
    for name in "RS":
        for number in (14, 15):
            moved = (tmp_path / f"held-{name}" / held[name][number].name).rename(held[name][number])
            os.utime(moved)
    with pytest.raises(StreamError, match="the flow runs on"):
        files_flow(spark, tmp_path, order="time").start(tmp_path / "ck", epoch="0 seconds", warm=False)
    live = files_flow(spark, tmp_path, n=1).start(tmp_path / "ck", epoch="0 seconds", warm=False)
    while live.totals["R.rows"] + live.totals["S.rows"] < 2 * 3200:
        assert not live.await_termination(0.2)
    live.stop()
    assert live.totals["R.late"] == live.totals["S.late"] == 0
    check_output(tmp_path)


@pytest.mark.slow
def test_a_backfill_is_killed_and_goes_on(tmp_path: Path) -> None:
    """A process of its own, with a JVM of its own: killed in one epoch after its results, in another before."""
    for seed, name in enumerate("RS"):
        made = write_stream(
            tmp_path / name, rate=100, keys=UniformKeys(40), rows_per_file=200, seed=seed, n_rows=8 * 200
        )
        for file in made.files:
            moment = shuffled(Random(file.name + name))
            os.utime(file, (moment, moment))
    assert child_run(tmp_path, **{VARIABLE: "after-results:2:kill"})[0] == -signal.SIGKILL
    code, said, err = child_run(tmp_path)
    assert code == 0, err[-3000:]
    assert said["totals"]["R.late"] == said["totals"]["S.late"] == 0
    assert said["totals"]["epochs"] == 8
    child_output(tmp_path)


@pytest.mark.slow
def test_late_rows_are_warned_of_with_a_delay_that_helps(spark: SparkSession, tmp_path: Path) -> None:
    copied(tmp_path, shuffled)
    flow = files_flow(spark, tmp_path, order="modified", delay="1 second")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    late = {name: handle.totals[f"{name}.late"] for name in "RS"}
    assert all(n > 160 for n in late.values())
    for entry in handle.progress:
        said = {name for name in "RS" if entry.rows.get(name) and entry.late[name] > 0.01 * entry.rows[name]}
        assert said <= {text.split()[1].removesuffix(":") for text in entry.warnings}
        assert {name for name, n in entry.late.items() if n} == set(entry.late_by)
    needed = {name: max(entry.late_by.get(name, 0) for entry in handle.progress) for name in "RS"}
    remembered = {name: known.needed_us for name, known in handle.manifest.notes.lateness.items()}
    assert remembered == needed
    assert "and start with a new checkpoint" in handle.progress[-1].warnings[-1]

    again = Flow(spark, slots=2, groups=4)
    for name in "RS":
        again.files(
            name,
            tmp_path / name,
            schema=DDL,
            time="ts",
            options={"maxFilesPerTrigger": "2"},
            order="modified",
            delay=f"{needed[name]} microseconds",
        )
    again.query(QUERY, name="q").to("noop")
    second = again.start(tmp_path / "ck2", warm=False)
    second.await_termination()
    assert second.totals["R.late"] == second.totals["S.late"] == 0
    assert not any(entry.warnings for entry in second.progress)
