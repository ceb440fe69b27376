"""Faults on a running cluster, one after the other at random, and what they cost: `python -m tests.world.faults`.

A job joins two topics that grow all the time, and a supervisor starts it again whenever it ends. Faults come at their
times whatever the job does meanwhile; each that has an end (a network that heals, a process that resumes) has it some
seconds later. When the rain is over, the answer in Kafka, Delta and PostgreSQL is compared with DuckDB's. Commits are
noted all the time: what a fault costs is the longest time without one until the next fault. What fails in a thread is
kept, and fails the run at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from tests.spark.stage import in_order
from tests.world import readers
from tests.world.cluster import NETWORK_S, WORKERS, Cluster, Job, kill_all, running
from tests.world.servers import until

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SILENT_S = NETWORK_S + 10.0
"""Longer than all time-outs: of executors' heartbeats, of the master for its workers."""
SLOW_S = 15.0
DRIVER_KILLED = "driver killed"
FIRST_S, SENT_S, LAST_S = 300.0, 120.0, 600.0
"""How long the first commits may take, the last rows to arrive at the broker, and all results after the last fault."""


class Feed:
    """Rows for both topics, all the time; remembers what it sent."""

    def __init__(self, job: Job, per_s: float, keys: int) -> None:
        self._job, self._per_s, self._keys = job, per_s, keys
        self.rows: dict[str, list[tuple[int, int, datetime]]] = {"r": [], "s": []}
        self._ended, self._failed = threading.Event(), list[str]()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> Feed:
        self._thread.start()
        return self

    def stop(self) -> None:
        """No more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(SENT_S + 10)

    def end(self) -> None:
        """No more; all that was sent has arrived."""
        self.stop()
        assert not self._thread.is_alive(), "the feed does not end"
        assert not self._failed, f"{len(self._failed)} rows have not arrived: {self._failed[0]}"

    def send(self, n: int) -> None:
        """Some rows at once."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._job.cluster.kafka.servers})
        self._produce(producer, n)
        n_left = producer.flush(60)
        assert n_left == 0, f"{n_left} rows have not arrived"
        assert not self._failed, self._failed[0]

    def _produce(self, producer: Any, n: int) -> None:
        for stream, topic in self._job.topics.items():
            random = Random(f"{stream} {len(self.rows[stream])}")
            for _ in range(n):
                v = len(self.rows[stream])
                at = BEGIN + timedelta(seconds=v / self._per_s, milliseconds=random.randint(0, 3000))
                row = (random.randrange(self._keys), v, at)
                message = json.dumps({"k": row[0], "v": v, "ts": at.isoformat()})
                producer.produce(topic, message, on_delivery=self._delivered)
                self.rows[stream].append(row)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _run(self) -> None:
        from confluent_kafka import Producer

        # idempotent: a broker that dies and comes back has each message once
        producer = Producer(
            {
                "bootstrap.servers": self._job.cluster.kafka.servers,
                "enable.idempotence": True,
                "delivery.timeout.ms": 240_000,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        try:
            while not self._ended.wait(0.5):
                self._produce(producer, max(int(self._per_s / 2), 1))
                producer.poll(0)
            if n_left := producer.flush(SENT_S):
                self._failed.append(f"{n_left} are still on their way")
        except Exception as error:
            self._failed.append(repr(error))

    def expected(self) -> list[tuple[Any, ...]]:
        """The join, by DuckDB."""
        tables = {
            stream: pa.table(list(zip(*rows, strict=True)), names=["k", "v", "ts"])
            for stream, rows in self.rows.items()
        }
        con = duckdb.connect()
        for stream, table in tables.items():
            con.register(stream, table)
        text = (
            "SELECT r.k, r.v, s.v FROM r JOIN s ON r.k = s.k "
            "AND r.ts - s.ts <= INTERVAL 20 SECONDS AND s.ts - r.ts <= INTERVAL 20 SECONDS"
        )
        return in_order(con.execute(text).fetchall())


class Supervisor:
    """Starts the job whenever it does not run."""

    def __init__(self, job: Job) -> None:
        self.job, self.log = job, job.cluster.folder / "driver.log"
        self.n_starts, self.replayed = 0, 0
        self._wanted, self._process = True, None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> Supervisor:
        self._thread.start()
        return self

    def _run(self) -> None:
        while self._wanted:
            self.n_starts += 1
            self._process: subprocess.Popen[bytes] | None = self.job.start(log=self.log)
            self._process.wait()
            kill_all(self._process)
            if self._wanted:
                with suppress(Exception):
                    self.replayed += begun(self.job) > committed(self.job)
                time.sleep(0.5)

    @property
    def runs(self) -> bool:
        """Whether there is a driver."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """The driver, by SIGKILL."""
        if self._process is not None:
            kill_all(self._process)

    def end(self) -> None:
        """The job ends after its epoch, and is not started again."""
        self._wanted = False
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
        if self._thread.is_alive():
            self._thread.join(60)
        self.kill()


def committed(job: Job) -> int:
    """The last epoch that is committed."""
    return max(Manifest.epochs(Files(f"{job.root}/ck")), default=-1)


def begun(job: Job) -> int:
    """The last epoch whose offsets are logged."""
    return Checkpoint(f"{job.root}/ck").log.last("offsets")


@dataclass
class Entry:
    """What is known of a fault."""

    fault: str
    at_s: float
    epoch: int
    lost: int = 0
    starts: int = 0
    replayed: int = 0
    """Epochs that a new driver began again, before this fault."""
    what: str = ""
    """Whom it met, and what is known of it."""


class Commits:
    """Every commit with its time, looked for all the time by a thread of its own; and whether one ever went away."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.last, self.lost = -1, 0
        self.times: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Commits:
        self._thread.start()
        return self

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            with suppress(Exception):  # the server may be the fault
                now = committed(self._job)
                self.lost = max(self.lost, self.last - now)
                if now > self.last:
                    self.last = now
                    self.times.append(time.monotonic())

    def longest_gap(self, begin: float, end: float) -> str:
        """The longest time between two commits of which a part is in a time; up to its end, where it goes beyond."""
        gaps = [(min(b, end) - a, b > end) for a, b in pairwise(list(self.times)) if b > begin and a < end]
        seconds, goes_on = max(gaps, default=(0.0, False))
        return f"{seconds:.0f} s{', and on' if goes_on else ''}"


@dataclass
class Rain:
    """Faults of a run."""

    cluster: Cluster
    job: Job
    supervisor: Supervisor
    commits: Commits
    random: Random
    began: float = field(default_factory=time.monotonic)
    entries: list[Entry] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What failed in threads of its own."""
    _healing: list[threading.Timer] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)

    @property
    def kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "executor killed": self.executor,
            "worker killed, another started": self.worker,
            f"worker stopped for {SILENT_S:g} s, resumed": self.zombie,
            f"network of a worker cut for {SILENT_S:g} s, healed": self.cut,
            f"packets of a worker delayed and lost for {SLOW_S:g} s": self.slow,
            "broker killed, started again": lambda: self.server(self.cluster.kafka),
            "S3 server killed, started again": lambda: self.server(self.cluster.s3),
            DRIVER_KILLED: self.driver,
        }

    def strike(self, kind: str) -> None:
        """One fault, noted with what was committed before."""
        at = time.monotonic() - self.began
        entry = Entry(
            kind, at, self.commits.last, self.commits.lost, self.supervisor.n_starts, self.supervisor.replayed
        )
        self.entries.append(entry)
        print(f"{entry.at_s:6.0f} s  epoch {entry.epoch:4d}  {kind}", flush=True)
        self.kinds[kind]()

    def wait(self, until_s: float) -> None:
        """Until some seconds have passed since it began."""
        time.sleep(max(until_s - (time.monotonic() - self.began), 0))

    def end(self) -> None:
        """All is healed."""
        for timer in self._healing:
            timer.join()

    def _later(self, seconds: float, what: str, then: Callable[[], Any]) -> None:
        def heal() -> None:
            try:
                then()
            except Exception as error:
                self.errors.append(f"{what}: {error!r}")
            finally:
                self._busy.discard(what)

        self._busy.add(what)
        timer = threading.Timer(seconds, heal)
        timer.start()
        self._healing.append(timer)

    def _free(self, names: Sequence[str]) -> str:
        """One that nothing is being done to; waited for, if all are being mended."""
        until(lambda: any(name not in self._busy for name in names), f"one of {names} is whole again")
        own = self.random.choice([name for name in names if name not in self._busy])
        self.entries[-1].what = own
        return own

    def _worker(self) -> str:
        return self._free([str(worker) for worker in WORKERS])

    def executor(self) -> None:
        def is_killed() -> bool:
            found = [(worker, pid) for worker in WORKERS for pid in self.cluster.executors(worker)]
            if not found:
                return False
            worker, pid = self.random.choice(found)
            self.entries[-1].what = str(worker)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
            return False

        until(is_killed, "there is an executor to kill")

    def driver(self) -> None:
        until(lambda: self.supervisor.runs, "there is a driver to kill")
        self.supervisor.kill()

    def worker(self) -> None:
        own = self._worker()
        self.cluster.kill_worker(own)
        self._later(3, own, lambda: self.cluster.tool("start", own))

    def zombie(self) -> None:
        own = self._worker()
        self.cluster.tool("stop", own)
        self._later(SILENT_S, own, lambda: self.cluster.tool("resume", own))

    def cut(self) -> None:
        own = self._worker()
        self.cluster.tool("cut", own)
        self._later(SILENT_S, own, lambda: self.cluster.tool("heal", own))

    def slow(self) -> None:
        own, entry = self._worker(), self.entries[-1]

        def fast() -> None:
            try:
                entry.what = f"{own}, {int(self.cluster.tool('lost', own))} packets lost"
            finally:
                self.cluster.tool("fast", own)

        self.cluster.tool("slow", own)
        self._later(SLOW_S, own, fast)

    def server(self, server: Any) -> None:
        what = self._free([type(server).__name__])
        self.entries[-1].what = ""
        server.kill()
        self._later(3, what, server.start)

    def table(self) -> str:
        """What happened, for people."""
        columns = ["fault", "worker", "at", "after epoch", "epochs lost", "drivers started"]
        columns += ["epochs that a new driver began again", "longest time without a commit until the next fault"]
        lines = [f"| {' | '.join(columns)} |", "| --- | --- |" + " ---: |" * (len(columns) - 2)]
        now = time.monotonic() - self.began
        last = Entry("", now, 0, self.commits.lost, self.supervisor.n_starts, self.supervisor.replayed)
        for entry, following in zip(self.entries, [*self.entries[1:], last], strict=True):
            gap = self.commits.longest_gap(self.began + entry.at_s, self.began + following.at_s)
            counts = [following.starts - entry.starts, following.replayed - entry.replayed]
            cells = [entry.fault, entry.what, f"{entry.at_s:.0f} s", entry.epoch, following.lost - entry.lost, *counts]
            lines.append("| " + " | ".join(map(str, [*cells, gap])) + " |")
        return "\n".join(lines)


def answers(job: Job) -> dict[str, list[Any]]:
    """What the sinks have, by clients of their own."""
    return {
        "Kafka": readers.kafka_rows(job.cluster.kafka, job.out),
        "Delta": readers.delta_rows(f"{job.root}/delta"),
        "PostgreSQL": readers.postgresql_rows(job.cluster.postgresql, job.name),
    }


def n_in_table(job: Job) -> int:
    return int((job.cluster.postgresql.psql(f"SELECT count(*) FROM {job.name}") or ["0"])[0])


def fault_run(cluster: Cluster, kinds: list[str] | None, n_faults: int, seconds: float, seed: int, per_s: float) -> str:
    """Faults in some seconds; the answer must be DuckDB's. Gives the table."""
    random = Random(seed)
    job = Job(cluster, "1 second", limit=4000)
    feed, supervisor, commits = Feed(job, per_s, keys=50), Supervisor(job), Commits(job)
    rain = Rain(cluster, job, supervisor, commits, random)
    try:
        feed.start()
        supervisor.start()
        commits.start()
        wait(lambda: commits.last >= 2, supervisor.log, "the first epochs are committed", FIRST_S)
        rain.began = time.monotonic()
        chosen = kinds or drawn(list(rain.kinds), n_faults, random)
        for kind, at_s in zip(chosen, times_of(chosen, seconds), strict=True):
            rain.wait(at_s)
            rain.strike(kind)
        rain.wait(seconds)
        rain.end()
        feed.end()
        expected = feed.expected()
        wait(lambda: n_in_table(job) >= len(expected), supervisor.log, "all results are there", LAST_S)
    finally:
        rain.end()
        feed.stop()
        supervisor.end()
        commits.end()
    table = rain.table()
    print(f"\n{told(cluster)}, load {os.getloadavg()[0]:.1f}\n\n{table}\n", flush=True)
    for sink, found in answers(job).items():
        outcome = "equal to DuckDB's, each once" if found == expected else "NOT THE SAME"
        print(f"{sink}: {len(found)} rows, {outcome}", flush=True)
        assert len(found) == len(expected), (sink, len(found), len(expected))
        assert found == expected, sink
    assert commits.lost == 0, "an epoch that was committed is gone"
    assert not rain.errors, rain.errors
    return table


def drawn(names: list[str], n: int, random: Random) -> list[str]:
    """Every kind of fault, and more of them at random."""
    chosen = names + [random.choice(names) for _ in range(n - len(names))]
    random.shuffle(chosen)
    return chosen


def times_of(kinds: Sequence[str], seconds: float) -> list[float]:
    """When each comes: at even distances, but for a driver, which takes as long to start as three others to pass."""
    weights = [3 if kind == DRIVER_KILLED else 1 for kind in kinds]
    return [seconds * sum(weights[:place]) / sum(weights) for place in range(len(kinds))]


def told(cluster: Cluster) -> str:
    """By what packets are delayed and lost in this kernel."""
    return f"packets by {cluster.tool('slows', '1').strip()}"


def wait(condition: Callable[[], Any], log: Path, what: str, patience_s: float, ends: Callable[[], Any] = bool) -> None:
    """Wait for a condition; what the driver wrote is shown if it does not come, or `ends` says that it will not."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and not ends():
        with suppress(OSError):
            if condition():
                return
        time.sleep(0.5)
    why = "the driver has ended" if ends() else f"not within {patience_s:g} s"
    raise AssertionError(f"{what}: {why}; the driver's log ends:\n" + tail(log))


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:] if log.exists() else ""


def main() -> None:
    """The long form, by hand."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--net", type=int, default=221)
    given = parser.parse_args()
    with running(given.net) as cluster:
        os.environ.update(cluster.s3.environment)
        fault_run(cluster, None, given.faults, given.minutes * 60, given.seed, per_s=10)


if __name__ == "__main__":
    main()
