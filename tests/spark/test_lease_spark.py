"""The same job started twice, as real processes: one runs, the other is refused or takes over, no result is lost.

Rows arrive all the time. After every overlap, and after every takeover from a process that was stopped (SIGSTOP, its
JVM and workers with it), what runs catches up with all that arrived, and the results are what DuckDB's join gives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.errors import CheckpointInUse, DamagedState
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import STREAM_SCHEMA
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.lease import TTL_VARIABLE

pytestmark = pytest.mark.spark

SECOND = 1_000_000
WINDOW = 40
WINDOWS = f"FROM R [RANGE {WINDOW} SECONDS], S [RANGE {WINDOW} SECONDS]"
JOB = f"""
[flow]
checkpoint = "ck"
epoch = "1 second"
slots = 2
groups = 4
keep = 3

[streams.R]
format = "parquet"
path = "R"
schema = "k long, v long, ts timestamp"
time = "ts"

[streams.S]
format = "parquet"
path = "S"
schema = "k long, v long, ts timestamp"
time = "ts"

[queries.q]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv {WINDOWS} WHERE R.k = S.k"
sink = {{ format = "parquet", path = "out" }}
"""
LIMIT_S = 900.0


@dataclass
class Stage:
    """A folder with a job, the files of its streams, and the processes that run it."""

    folder: Path
    random: Random
    n_files: int = 0
    n_rows: int = 0
    ttl_s: int = 30
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in "RS":
            (self.folder / name).mkdir()
        (self.folder / "job.toml").write_text(JOB, encoding="utf-8")
        self.arrive()

    def arrive(self) -> None:
        """Some more rows of both streams."""
        n = self.random.randint(5, 40)
        for name in "RS":
            times = sorted(self.random.randrange(2 * SECOND) + 2 * SECOND * self.n_files for _ in range(n))
            rows = [{"k": self.random.randint(0, 9), "v": self.n_rows + i, "ts": t} for i, t in enumerate(times)]
            beside = self.folder / f"{name}-arriving"
            pq.write_table(pa.Table.from_pylist(rows, STREAM_SCHEMA), beside)
            beside.rename(self.folder / name / f"{self.n_files:05d}.parquet")
        self.n_files += 1
        self.n_rows += n

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        """`braid run`, in a process group of its own; a stopped one loses its lease after `ttl_s`."""
        command = [sys.executable, "-m", "braidstream", "run", str(self.folder / "job.toml"), "--quiet"]
        settings = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        errors = (self.folder / f"{len(self.processes)}.err").open("w")
        made = subprocess.Popen(
            [*command, *settings, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, TTL_VARIABLE: str(self.ttl_s)},
        )
        self.processes.append(made)
        return made

    def said(self, process: subprocess.Popen[str]) -> str:
        return (self.folder / f"{self.processes.index(process)}.err").read_text()

    def read(self) -> int:
        """How many rows of the slower stream were read, by the last commit."""
        try:
            totals = Checkpoint(str(self.folder / "ck")).latest().totals
        except (DamagedState, OSError):  # none yet, or it changes while one looks
            return 0
        return min(totals.get("R.rows", 0), totals.get("S.rows", 0))

    def check(self) -> None:
        """What runs reads all that has arrived; the results are DuckDB's."""
        self.until(lambda: self.read() == self.n_rows)
        streams = [BatchStream(name, self.folder / name, WINDOW * SECOND) for name in "RS"]
        expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
        difference = same_rows(self.folder / "out", expected)
        assert difference, str(difference)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, [self.said(process)[-2000:] for process in self.processes[-2:]]
            time.sleep(0.1)

    def pause(self, most_s: float) -> None:
        """Let a random time pass, in which rows may arrive."""
        time.sleep(self.random.uniform(0, most_s))
        if self.random.random() < 0.7:
            self.arrive()

    def lives(self) -> list[subprocess.Popen[str]]:
        return [process for process in self.processes if process.poll() is None]

    def signal(self, process: subprocess.Popen[str], number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def visible(self) -> dict[str, bytes]:
        seen = [*(self.folder / "ck" / "manifests").glob("[0-9]*.root"), *(self.folder / "out").glob("*.*")]
        seen += [path for path in Path(Checkpoint(str(self.folder / "ck")).offsets).rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in seen}

    def end(self) -> None:
        for process in self.lives():
            self.signal(process, signal.SIGKILL)
            process.wait()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Any]:
    made = Stage(tmp_path, Random(os.environ.get("BRAIDSTREAM_SEED", "1")))
    yield made
    made.end()


def refused(stage: Stage, process: subprocess.Popen[str]) -> None:
    """The process ends with exit code 2, and says who has the checkpoint."""
    stage.until(lambda: process.poll() is not None)
    assert process.returncode == 2, stage.said(process)
    assert "is in use by process" in stage.said(process)
    assert "since" in stage.said(process)


def overlap(stage: Stage) -> None:
    """A second start meets a running job, one that starts too, or one that is ended or killed in these moments."""
    running, kind = stage.lives(), stage.random.random()
    if not running:
        first = stage.run()
        stage.pause(6)
        second = stage.run()
        stage.until(lambda: len(stage.lives()) < 2 or stage.read() == stage.n_rows)
        stage.until(lambda: len(stage.lives()) < 2)
        refused(stage, second if first.poll() is None else first)
    elif kind < 0.4:
        stage.pause(2)
        refused(stage, stage.run())
    else:
        stage.run("--wait", "200s")
        stage.pause(8)
        number = stage.random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        stage.signal(running[0], number)
        stage.until(lambda: running[0].poll() is not None)
        assert running[0].returncode in (-signal.SIGKILL, 130), stage.said(running[0])
    stage.pause(1)
    stage.check()
    if kind < 0.25:
        for process in stage.lives():
            stage.signal(process, signal.SIGKILL)
            process.wait()


def stop(stage: Stage, *, is_going_on: bool) -> None:
    """The process group of the running job is stopped; another takes over; the first wakes up, and only says so."""
    running = (stage.lives() or [stage.run()])[0]
    stage.arrive()
    stage.until(lambda: stage.read() == stage.n_rows)  # it has the lease
    stage.pause(2)
    time.sleep(stage.random.uniform(0, 1))
    stage.signal(running, signal.SIGSTOP)
    stage.arrive()
    other = stage.run("--wait", "200s")
    if is_going_on:
        stage.until(lambda: stage.read() == stage.n_rows)
    else:
        stage.check()
        stage.signal(other, signal.SIGTERM)
        stage.until(lambda: other.poll() is not None)
    before = stage.visible()
    stage.signal(running, signal.SIGCONT)
    if is_going_on:
        stage.arrive()
    stage.until(lambda: running.poll() is not None)
    assert running.returncode == 3, stage.said(running)
    assert "was taken over" in stage.said(running)
    assert "Traceback" not in stage.said(running)
    if is_going_on:
        stage.check()
        assert other.poll() is None, stage.said(other)
    else:
        assert stage.visible() == before, "it changed something after it had lost the checkpoint"


def test_a_second_start_in_one_process_is_refused_and_the_first_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(tmp_path, Random(3))
    job = jobs.read(tmp_path / "job.toml")
    handle = jobs.start(job, spark)
    try:
        for flow in (jobs.build(job, spark), handle._launch.flow):  # type: ignore[union-attr]
            with pytest.raises(CheckpointInUse, match=f"process {os.getpid()} "):
                flow.start(tmp_path / "ck", warm=False)
        stage.arrive()
        stage.check()
        assert handle.is_active
    finally:
        handle.stop()
    again = jobs.start(job, spark)
    again.stop()
    jobs.start(job, spark).kill()
    jobs.refuse_running(job)


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.acceptance)])
def test_the_same_job_started_twice_loses_nothing(stage: Stage, n: int) -> None:
    for number in range(n):
        overlap(stage)
        print(f"overlap {number + 1}: {stage.n_rows} rows of each stream, as DuckDB", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, pytest.param(20, marks=pytest.mark.acceptance)])
def test_a_stopped_process_that_wakes_up_after_a_takeover_changes_nothing(stage: Stage, n: int) -> None:
    stage.ttl_s = 3
    for number in range(n):
        stop(stage, is_going_on=stage.random.random() < 0.5)
        print(f"takeover {number + 1}: {stage.n_rows} rows of each stream, as DuckDB", flush=True)
