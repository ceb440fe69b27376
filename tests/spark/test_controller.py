"""The controller on Spark: it changes no result, balances a cluster with a slow executor, and slots follow the load."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.epoch.progress import EpochProgress
from braidstream.errors import RunError
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.testing.restless import Restless
from braidstream.lab.workloads import Schedule, UniformKeys, append_files, poisson_arrivals
from braidstream.model.faults import armed
from braidstream.model.instructions import AddSlot, RemoveSlot
from braidstream.model.slowness import WORK_VARIABLE
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from tests.spark.slowed import EVERY, FACTOR, MOST_REORGANIZATIONS, N_SLOTS
from tests.spark.test_queries import SHAPES, World, select

pytestmark = pytest.mark.spark

AGGREGATE = """
SELECT A.y, COUNT(*) AS n, SUM(B.v) AS s FROM A [RANGE 20 SECONDS], B [RANGE 30 SECONDS] WHERE A.x = B.x GROUP BY A.y
"""


def files_in(folder: Path) -> Counter[Any]:
    """All rows below a sink's folder."""
    files = [file for file in folder.glob("*.parquet") if not file.name.startswith(("_", "."))]
    return Counter(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())


class Runs:
    """Starts of one flow over the same checkpoint: a chain of three streams, and an aggregate over two of them."""

    def __init__(self, spark: SparkSession, folder: Path, world: World, controller: Controller | None) -> None:
        self.spark, self.folder, self.world, self.controller = spark, folder, world, controller

    def __call__(self) -> Handle:
        flow = Flow(self.spark, slots=2, groups=4, controller=self.controller)
        names, windows, where, _ = SHAPES["a chain of three"]
        self.world.declare(flow, direct=True)
        flow.query(select(names, windows, where), name="chain").to("parquet", path=str(self.folder / "chain"))
        flow.query(AGGREGATE, name="sums").to("parquet", path=str(self.folder / "sums"))
        handle = flow.start(self.folder / "ck", warm=False)
        handle.await_termination()
        return handle

    def results(self, query: str) -> Counter[Any]:
        return files_in(self.folder / query)


@pytest.mark.slow
def test_a_controller_that_never_rests_and_a_driver_that_dies_change_no_result(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before the commit of an epoch that reorganizes, and after one; the run after each goes on from the manifest."""
    names, windows, _, equalities = SHAPES["a chain of three"]
    world = World(tmp_path, names, random.Random(21))
    for _ in range(8):
        world.epoch(14)
    calm = Runs(spark, tmp_path / "calm", world, None)
    calm()
    restless = Runs(spark, tmp_path / "restless", world, Controller(Settings(every=1), policies=(Restless(4),)))
    for fault in ("before-manifest:2:raise", "after-manifest:4:raise", "after-results:5:raise"):
        with armed(fault), pytest.raises(RunError, match="injected fault"):
            restless()
    last = restless()
    assert last.totals["epochs"] == 8
    assert {decision.rule for decision in last.decisions} == {"restless"}
    assert sum(len(decision.instructions) for decision in last.decisions) > 3
    assert restless.results("chain") == calm.results("chain") == world.expected(windows, equalities)
    assert restless.results("sums") == calm.results("sums")
    assert sum(calm.results("sums").values()) > 0


# ---- a slow executor


def slowness(busy_s: list[float], slow_slots: list[int]) -> float:
    """The makespan of an epoch over its balanced optimum: the same work spread so that all end together.

    Work that took `busy` seconds on an executor `f` times slower is `busy / f`; together they do sum(1 / f) of it a
    second.
    """
    factors = [FACTOR if slot in slow_slots else 1.0 for slot in range(len(busy_s))]
    work = sum(busy / factor for busy, factor in zip(busy_s, factors, strict=True))
    return max(busy_s) / (work / sum(1 / factor for factor in factors))


@pytest.mark.acceptance
def test_the_makespan_with_a_slow_executor_falls_within_five_reorganizations(tmp_path: Path) -> None:
    """Three executors, one of them slowed 3 times: in a process of its own, without and with the controller."""
    command = [sys.executable, "-m", "tests.spark.slowed", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told: Mapping[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    ratios = {}
    for name, run in told.items():
        assert len(run["slow_slots"]) == 1
        assert run["executors"] == N_SLOTS
        assert run["difference"].startswith("identical"), run["difference"]
        ratios[name] = [slowness(busy, run["slow_slots"]) for busy in run["busy_s"]]
        print(name, "makespan over optimum, epoch by epoch:", " ".join(f"{ratio:.2f}" for ratio in ratios[name]))
    print(*told["with"]["decisions"], sep="\n")
    after = EVERY * MOST_REORGANIZATIONS
    assert median(ratios["without"][after:]) > 1.8
    assert median(ratios["with"][:EVERY]) > 1.8
    assert median(ratios["with"][after:]) <= 1.3


# ---- executors follow slots


@pytest.mark.slow
def test_executors_that_hold_no_slot_are_given_up_and_asked_for_again(tmp_path: Path) -> None:
    """WSJ V-A, `release`: without it there are three executors all the time."""
    command = [sys.executable, "-m", "tests.spark.released", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told: Mapping[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    slots, executors = told["slots"], told["executors"]
    assert min(slots) == 1 < slots[-1], slots
    assert min(executors) < N_SLOTS, executors
    fewest_at = executors.index(min(executors))
    assert max(executors[fewest_at:]) > min(executors), executors
    assert told["difference"].startswith("identical"), told["difference"]


# ---- a load that rises and falls

EPOCH_S = 0.5
ROW_US = 20
LOW, HIGH = 8_000, 32_000  # rows of each stream in an epoch: 0.32 s and 1.28 s of work
N_LOW, N_HIGH, N_AFTER = 5, 10, 12


@pytest.fixture
def working(spark: SparkSession) -> Iterator[None]:
    """Slots for which every row is ROW_US microseconds of work."""
    environment = spark.sparkContext.environment
    environment[WORK_VARIABLE] = str(ROW_US)
    yield
    del environment[WORK_VARIABLE]


def rising_and_falling(folder: Path, n_epochs: int) -> None:
    """One file a second of event time; the rate is four times as high for N_HIGH of them."""
    rate = Schedule(((N_LOW, LOW), (N_HIGH, HIGH), (N_AFTER, LOW)))
    for seed, name in enumerate("RS"):
        times = poisson_arrivals(rate, seed=seed, seconds=n_epochs)
        keys = UniformKeys(100_000).draw(len(times), np.random.default_rng(seed))
        table = pa.table({"k": keys, "v": np.arange(len(times)), "ts": pa.array(times).cast(pa.timestamp("us", "UTC"))})
        ends = np.searchsorted(times, np.arange(1, n_epochs + 1) * 1_000_000)
        begins = np.concatenate([[0], ends[:-1]])
        pieces = zip(begins.tolist(), ends.tolist(), strict=True)
        append_files(folder / name, (table.slice(begin, end - begin) for begin, end in pieces))


def pause_of(progress: list[EpochProgress], changed: int) -> float:
    """What a change cost, in epochs of that load: the longer commit, and the longer epoch after it."""
    after = progress[changed + 1]
    same = [e for e in progress[1:] if abs(sum(e.rows.values()) / sum(after.rows.values()) - 1) < 0.5]
    usual_s = {step: median(e.seconds[step] for e in same) for step in ("commit", "total")}
    commit_s = progress[changed].seconds["commit"] - usual_s["commit"]
    return (commit_s + after.seconds["total"] - usual_s["total"]) / usual_s["total"]


@pytest.mark.acceptance
def test_slots_follow_a_load_that_rises_and_falls_four_times(
    spark: SparkSession, tmp_path: Path, working: None
) -> None:
    n_epochs = N_LOW + N_HIGH + N_AFTER
    rising_and_falling(tmp_path, n_epochs)
    control = Settings(every=1, epoch_s=EPOCH_S, declustering=True, shrink_below=0.8, groups_at_once=6, max_slots=6)
    flow = Flow(spark, slots=1, groups=24, controller=Controller(control))
    for name in "RS":
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, tmp_path / name, schema="k long, v long, ts timestamp", time="ts", options=options)
    text = "SELECT R.v AS r, S.v AS s FROM R [RANGE 3 SECONDS], S [RANGE 3 SECONDS] WHERE R.k = S.k"
    flow.query(text).to("parquet", path=str(tmp_path / "out"))
    handle = flow.start(tmp_path / "ck")
    handle.await_termination()

    progress = handle.progress
    changes = [
        decision.epoch
        for decision in handle.decisions
        if any(isinstance(one, AddSlot | RemoveSlot) for one in decision.instructions)
    ]
    for entry in progress:
        rows, total_s = sum(entry.rows.values()), entry.seconds["total"]
        busy = " ".join(f"{busy_s:.2f}" for busy_s in entry.busy_s)
        changed = f"; then {entry.slots} slots" if entry.epoch in changes else ""
        print(f"epoch {entry.epoch}: {rows} rows, {total_s:.2f} s, busy {busy}{changed}")
    slots = [entry.slots for entry in progress]
    assert len(slots) == n_epochs
    assert max(slots[:N_LOW]) == 1
    assert max(slots[N_LOW : N_LOW + N_HIGH + 1]) >= 3
    assert slots[-1] == 1
    streams = [BatchStream(name, tmp_path / name, 3_000_000) for name in "RS"]
    right = batch_join(streams, [("R.k", "S.k")], {"r": "R.v", "s": "S.v"})
    difference = same_rows(tmp_path / "out", right)
    assert difference, difference
    assert right.num_rows > 10_000
    pauses = [pause_of(progress, epoch) for epoch in changes]
    print("pause of each change, in epochs:", " ".join(f"{pause:.2f}" for pause in pauses))
    assert max(pauses) <= 1.0
