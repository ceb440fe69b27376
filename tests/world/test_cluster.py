"""A standalone cluster for real: `braid run` on it in three ways, faults, executors that come and go.

Workers have networks and folders of their own; the checkpoint and the Delta table are in a bucket.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidstream.state.files import Files
from tests.world.cluster import WORKERS, Cluster, Job, kill_all, made_archive, obstacle, running
from tests.world.faults import Feed, answers, committed, fault_run, n_in_table, wait

MOST_ROWS = 60_000
"""Of each stream, to keep executors at work."""

pytestmark = [pytest.mark.spark, pytest.mark.world, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    before, n_failed = dict(os.environ), request.session.testsfailed
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    try:
        with running(net=int(os.environ.get("NET", "222"))) as made:
            os.environ.update(made.s3.environment)
            yield made
            if request.session.testsfailed > n_failed:
                made.keep_logs()
    finally:
        os.environ.clear()
        os.environ.update(before)


def ended(job: Job, *command: str) -> str:
    """A run that goes through; what it wrote."""
    log = job.cluster.folder / f"{job.name}.log"
    process = job.start(*command, log=log)
    try:
        process.wait(400)
    except subprocess.TimeoutExpired:
        kill_all(process)
        raise AssertionError(log.read_text(errors="replace")[-5000:]) from None
    kill_all(process)
    assert process.returncode == 0, log.read_text(errors="replace")[-5000:]
    return log.read_text(errors="replace")


def submit(*arguments: str) -> list[str]:
    """The command line of docs/deploy.md."""
    braid = [sys.executable, "-m", "braidstream"]
    entry = subprocess.run([*braid, "entry"], capture_output=True, text=True, check=True).stdout.strip()
    return [str(Path(sys.executable).with_name("spark-submit")), *arguments, entry]


@pytest.mark.acceptance
def test_a_job_goes_on_by_braid_run_by_spark_submit_and_with_an_archive(cluster: Cluster) -> None:
    # nothing is killed here: executors that unpack an archive beside others' work are given their time
    job = Job(cluster, "available", limit=100_000, more={"spark.network.timeout": "120s"})
    feed = Feed(job, per_s=20, keys=50)
    feed.send(300)
    ended(job)
    feed.send(100)
    settings = [f for name, value in job.settings.items() for f in ("--conf", f"{name}={value}")]
    ended(job, *submit(*settings), "run", str(job.file))
    feed.send(100)
    own = ["--archives", f"{made_archive(cluster.folder)}#env", "--conf", "spark.pyspark.python=env/bin/python"]
    own += ["--conf", f"spark.pyspark.driver.python={sys.executable}", "--conf", "spark.executorEnv.PYTHONPATH="]
    ended(job, *submit(*settings, *own), "run", str(job.file))
    expected = feed.expected()
    assert len(expected) > 1000
    for sink, found in answers(job).items():
        assert found == expected, sink
    assert Files(f"{job.root}/ck").names("segments"), "state is in the bucket"


def test_faults_lose_nothing_and_repeat_nothing(cluster: Cluster) -> None:
    """The short form: one fault of each sort in its time, a driver's start apart."""
    kinds = ["executor killed", "S3 server killed, started again", "driver killed", "worker killed, another started"]
    fault_run(cluster, kinds, len(kinds), 150, seed=1, per_s=10)


@pytest.mark.acceptance
def test_executors_come_and_go_and_fetch_the_state_of_their_slots_once(cluster: Cluster) -> None:
    """Dynamic allocation: one executor, more as tasks wait, one again in a silence, then more that find no copies."""
    own = {"enabled": "true", "shuffleTracking.enabled": "true", "minExecutors": "1", "maxExecutors": "3"}
    # idle for longer than an epoch takes beside others' work: who has slots in every epoch stays
    own |= {"executorIdleTimeout": "30s", "cachedExecutorIdleTimeout": "30s", "schedulerBacklogTimeout": "1s"}
    own |= {"shuffleTracking.timeout": "30s"}
    more = {f"spark.dynamicAllocation.{name}": value for name, value in own.items()}
    # six slots on one core: the last of them wait for longer than that second, without much to do
    job = Job(cluster, "1 second", limit=2_000, slots=6, more=more)
    feed, log = Feed(job, per_s=20, keys=2000), cluster.folder / f"{job.name}.log"
    process = job.start(log=log)

    def until_it(condition: Callable[[], bool], what: str) -> None:
        wait(condition, log, what, 400, lambda: process.poll() is not None)

    def until_executors(n: int) -> None:
        sent = [0.0]

        def there() -> bool:
            if n > 1 and time.monotonic() > sent[0] + 5 and len(feed.rows["r"]) < MOST_ROWS:
                feed.send(2_000)
                sent[0] = time.monotonic()
            return sum(len(cluster.executors(worker)) for worker in WORKERS) == n

        until_it(there, f"there are {n} executors")

    def fetched() -> list[int]:
        lines = [line for line in log.read_text(errors="replace").split("\n")[:-1] if line.startswith("{")]
        return [entry["fetched"] for line in lines if "fetched" in (entry := json.loads(line))]

    try:
        feed.send(100)
        until_it(lambda: committed(job) >= 0, "the first commit")
        until_executors(3)
        until_executors(1)
        n_before = len(fetched())
        until_executors(3)

        n_sent = [0]

        def is_quiet() -> bool:
            if len(fetched()) >= n_sent[0]:  # a few rows for each epoch, so that there is one
                feed.send(20)
                n_sent[0] = len(fetched()) + 1
            return len(fetched()) > n_before + 6 and not any(fetched()[-3:])

        until_it(is_quiet, "epochs that fetch nothing")
        expected = feed.expected()
        until_it(lambda: n_in_table(job) == len(expected), "all results are there")
    finally:
        kill_all(process)
    assert any(fetched()[n_before:]), "who was not there before had to fetch"
    print("segments fetched in each epoch:", fetched())
    for sink, found in answers(job).items():
        assert found == expected, sink


@pytest.mark.acceptance
@pytest.mark.timeout(2100)
def test_thirty_faults_in_ten_minutes(cluster: Cluster) -> None:
    fault_run(cluster, None, 30, 600, seed=1, per_s=10)
