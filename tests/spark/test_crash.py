"""Processes die; the same command again gives the output of an undisturbed run.

Each story is a script: epochs of rows, and between them points at which the run dies. Every run is a child process with
a JVM of its own, so a story visits as many points as it can with one checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.testing.script import Abort, Rows, Script
from braidstream.lab.workloads import STREAM_SCHEMA
from braidstream.model.faults import ONCE_VARIABLE, VARIABLE
from tests.scale import some
from tests.spark.child import WINDOW_SECONDS

pytestmark = pytest.mark.spark

CHILD = Path(__file__).with_name("child.py")
CLUSTER = "local-cluster[3,1,1024]"
SECOND = 1_000_000
LIMIT_S = 250


def rows(epoch: int, n: int = 60) -> Rows:
    """Two seconds of event time on both streams, in order, with a hot key."""
    made: dict[str, list[dict[str, Any]]] = {}
    for name in "RS":
        random = Random(f"{name} {epoch}")
        times = sorted(random.randint(0, 2 * SECOND - 1) for _ in range(n))
        keys = [random.choice([7, random.randint(0, 40), random.randint(0, 40)]) for _ in range(n)]
        made[name] = [
            {"k": k, "v": epoch * n + i, "ts": epoch * 2 * SECOND + t}
            for i, (k, t) in enumerate(zip(keys, times, strict=True))
        ]
    return Rows(**made)


def child(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """A run of the flow, in a process group of its own."""
    home = Path(pyspark.__file__).parent
    inherited = {name: value for name, value in os.environ.items() if name not in {VARIABLE, ONCE_VARIABLE}}
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(folder), *arguments],
        env={**inherited, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder: Path, *arguments: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    """How a run ended: its return code, what it said of itself, and its errors."""
    process = child(folder, *arguments, **environment)
    out, err = process.communicate(timeout=LIMIT_S)
    kill_group(process)
    said = [line for line in out.splitlines() if line.startswith("{")]
    return process.returncode, json.loads(said[-1]) if said else {}, err


def kill_group(process: subprocess.Popen[str]) -> None:
    """The JVM outlives its Python driver by a moment: the next run must not meet it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def check_output(folder: Path, least_rows: int = 1000) -> None:
    """The sink's folder holds what an independent batch join of all the files gives."""
    streams = [BatchStream(name, folder / name, WINDOW_SECONDS * SECOND) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    difference = same_rows(folder / "out", expected)
    assert difference, str(difference)
    assert expected.num_rows > least_rows


def play(script: Script, folder: Path, *arguments: str) -> None:
    """Each act is a run; it ends as the script says, the last one in good order."""
    for act in script.acts():
        code, said, err = run(folder, *arguments, **act.environment)
        if act.fault is None:
            assert code == 0, err[-3000:]
            assert said["epochs"][-1] == act.end_epoch - 1
        else:
            assert code == (-signal.SIGKILL if act.fault.action == "kill" else 1), (str(act.fault), err[-3000:])


def script_of(folder: Path, deaths: Mapping[int, Abort], n_epochs: int) -> Script:
    """`deaths` says after which epoch's files the run is to die in that epoch."""
    steps: list[Any] = []
    for epoch in range(n_epochs):
        steps.append(rows(epoch))
        if epoch in deaths:
            steps.append(deaths[epoch])
    return Script(folder, dict.fromkeys("RS", STREAM_SCHEMA), steps)


def test_the_driver_dies_at_every_point_of_the_commit_protocol(tmp_path: Path) -> None:
    points = some(["epoch-start", "after-join", "before-root", "after-results", "after-sections", "after-manifest"], 1)
    script = script_of(tmp_path, {i + 1: Abort(point) for i, point in enumerate(points)}, n_epochs=len(points) + 2)
    play(script, tmp_path)
    check_output(tmp_path)


@pytest.mark.slow
def test_the_driver_dies_at_every_point_with_results_that_spark_writes(tmp_path: Path) -> None:
    """JSON goes through Spark and is moved into place: other files, the same promise."""
    points = ["after-join", "after-results", "before-manifest"]
    script = script_of(tmp_path, {i + 1: Abort(point) for i, point in enumerate(points)}, n_epochs=5)
    play(script, tmp_path, "--sink", "json")
    lines = [line for file in (tmp_path / "out").glob("part-*.json") for line in file.read_text().splitlines()]
    streams = [BatchStream(name, tmp_path / name, WINDOW_SECONDS * SECOND) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    difference = same_rows(pa.Table.from_pylist([json.loads(line) for line in lines]), expected)
    assert difference, str(difference)


@pytest.mark.slow
def test_a_task_fails_at_every_point(tmp_path: Path) -> None:
    """Local Spark does not try a task again: the epoch fails, and the next run makes up for it.

    Four segments are merged in epoch 4; what epochs 4 to 6 store is merged with them in epoch 7.
    """
    points = ["task-start", "compaction", "task-before-segment", "task-after-segment", "task-after-section"]
    script = script_of(tmp_path, {i + 3: Abort(p, "raise") for i, p in enumerate(points)}, n_epochs=10)
    play(script, tmp_path, "--slots", "3")
    check_output(tmp_path)


@pytest.mark.slow
def test_all_processes_die_at_random_times_while_slots_come_and_go(tmp_path: Path) -> None:
    random = Random(1)
    n_epochs = 20
    for _ in script_of(tmp_path, {}, n_epochs).acts():
        pass
    n_deaths = 0
    for slots in (4, 7, 1, 3, 5):
        process = child(tmp_path, "--slots", str(slots))
        before = committed(tmp_path)
        wait_for(process, lambda before=before: committed(tmp_path) > before)  # type: ignore[misc]
        time.sleep(random.uniform(0, 1.5))  # a random moment of a random epoch is the point of this test
        n_deaths += process.poll() is None
        kill_group(process)
        process.communicate()
    code, _, err = run(tmp_path, "--slots", "2")
    assert code == 0, err[-3000:]
    assert n_deaths >= 3
    assert committed(tmp_path) == n_epochs - 1
    check_output(tmp_path)


@pytest.mark.slow
def test_an_executor_is_killed_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    for _ in script_of(tmp_path, {}, 8).acts():
        pass
    fault = {VARIABLE: "task-before-segment:4:executor", ONCE_VARIABLE: str(tmp_path / "struck")}
    code, said, err = run(tmp_path, "--master", "local-cluster[2,1,1024]", "--slots", "4", **fault)
    assert code == 0, err[-3000:]
    assert (tmp_path / "struck").exists()
    assert said["epochs"] == list(range(8))
    check_output(tmp_path)


@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_256_slots_die_while_groups_move_state_is_pushed_and_a_key_is_split(tmp_path: Path) -> None:
    points = ["epoch-start", "after-join", "spill", "after-sections", "before-root", "after-manifest"]
    deaths = {i + 2: Abort(point) for i, point in enumerate(points)}
    script = script_of(tmp_path, deaths, n_epochs=len(points) + 3)
    seen = []
    for act in script.acts():
        options = ("--slots", "256", "--groups", "512", "--restless", "5", "--memory", "3 KB")
        code, said, err = run(tmp_path, *options, **act.environment)
        assert code == (0 if act.fault is None else -signal.SIGKILL), (str(act.fault), err[-3000:])
        seen.append(said)
    check_output(tmp_path)
    assert seen[-1]["moves"]
    assert seen[-1]["heavy"]
    assert seen[-1]["spilled"] or seen[-1]["recovered"]


@pytest.mark.slow
def test_slots_stay_where_their_state_is(tmp_path: Path) -> None:
    """Three executors, 20 epochs: at least 95% of the slots' tasks find their state on their own executor."""
    for _ in script_of(tmp_path, {}, 20).acts():
        pass
    code, said, err = run(tmp_path, "--master", CLUSTER, "--slots", "6")
    assert code == 0, err[-3000:]
    assert sum(said["ran"]) > 0.9 * 20 * 6  # a slot that no row reaches in an epoch has no task to run
    assert said["locality"] == sum(said["at_home"]) / sum(said["ran"])
    assert said["locality"] >= 0.95
    check_output(tmp_path)


def committed(folder: Path) -> int:
    """The last epoch whose manifest is there; -1 before the first."""
    found = [int(path.stem) for path in (folder / "ck" / "manifests").glob("[0-9]*.root")]
    return max(found, default=0) - 1


def wait_for(process: subprocess.Popen[str], condition: Any, seconds: float = 300) -> None:
    """Until the condition holds or the process ends."""
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
