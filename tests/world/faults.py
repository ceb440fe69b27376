"""Faults on a running cluster, one after the other at random, and what they cost: `python -m tests.world.faults`.

A job joins two topics that grow all the time, and a supervisor starts it again whenever it ends. Faults come at their
times whatever the job does meanwhile; each that has an end (a network that heals, a process that resumes) has it some
seconds later. When the rain is over, the answer in Kafka, Delta and PostgreSQL is compared with DuckDB's.
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
from tests.world.cluster import WORKERS, Cluster, Job, kill_all, running
from tests.world.servers import until

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SILENT_S = 40.0
"""Longer than all time-outs: of executors' heartbeats, of the master for its workers."""
SLOW_S = 15.0
PATIENCE_S = 600.0


class Feed:
    """Rows for both topics, all the time; remembers what it sent."""

    def __init__(self, job: Job, per_s: float, keys: int) -> None:
        self._job, self._per_s, self._keys = job, per_s, keys
        self.rows: dict[str, list[tuple[int, int, datetime]]] = {"r": [], "s": []}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> Feed:
        self._thread.start()
        return self

    def end(self) -> None:
        """No more; all that was sent has arrived."""
        self._ended.set()
        self._thread.join(PATIENCE_S)

    def send(self, n: int) -> None:
        """Some rows at once."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._job.cluster.kafka.servers})
        self._produce(producer, n)
        assert producer.flush(60) == 0

    def _produce(self, producer: Any, n: int) -> None:
        for stream, topic in self._job.topics.items():
            random = Random(f"{stream} {len(self.rows[stream])}")
            for _ in range(n):
                v = len(self.rows[stream])
                at = BEGIN + timedelta(seconds=v / self._per_s, milliseconds=random.randint(0, 3000))
                row = (random.randrange(self._keys), v, at)
                producer.produce(topic, json.dumps({"k": row[0], "v": v, "ts": at.isoformat()}))
                self.rows[stream].append(row)

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
        while not self._ended.wait(0.5):
            self._produce(producer, max(int(self._per_s / 2), 1))
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0, "not all rows have arrived"

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
        self._thread.start()

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
    back_s: float | None = None
    """Until the next commit."""
    lost: int = 0
    starts: int = 0
    replayed: int = 0
    what: str = ""
    """Whom it met, and what is known of it."""


@dataclass
class Rain:
    """Faults of a run."""

    cluster: Cluster
    job: Job
    supervisor: Supervisor
    random: Random
    began: float = field(default_factory=time.monotonic)
    entries: list[Entry] = field(default_factory=list)
    _healing: list[threading.Timer] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)
    _seen: int = -1

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
            "driver killed": self.driver,
        }

    def strike(self, kind: str) -> None:
        """One fault, noted with what was committed before."""
        with suppress(OSError):
            self._seen = max(self._seen, committed(self.job))
        entry = Entry(
            kind, time.monotonic() - self.began, self._seen, None, 0, self.supervisor.n_starts, self.supervisor.replayed
        )
        self.entries.append(entry)
        print(f"{entry.at_s:6.0f} s  epoch {entry.epoch:4d}  {kind}", flush=True)
        self.kinds[kind]()

    def watch(self, until_s: float) -> None:
        """Wait, noting the commits that come."""
        while time.monotonic() - self.began < until_s:
            self.look()
            time.sleep(0.5)

    def look(self) -> None:
        """Note what is committed now."""
        try:
            now = committed(self.job)
        except OSError:
            return
        if now < self._seen and self.entries:
            self.entries[-1].lost = max(self.entries[-1].lost, self._seen - now)
        if now > self._seen:
            self._seen = now
            for entry in self.entries:
                if entry.back_s is None and now > entry.epoch:
                    entry.back_s = time.monotonic() - self.began - entry.at_s

    def end(self) -> None:
        """All is healed."""
        for timer in self._healing:
            timer.join()

    def _later(self, seconds: float, what: str, then: Callable[[], Any]) -> None:
        def heal() -> None:
            then()
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
        def found() -> list[tuple[int, int]]:
            return [(worker, pid) for worker in WORKERS for pid in self.cluster.executors(worker)]

        until(lambda: bool(found()), "there is an executor to kill")
        worker, pid = self.random.choice(found())
        self.entries[-1].what = str(worker)
        os.kill(pid, signal.SIGKILL)

    def driver(self) -> None:
        until(lambda: self.supervisor.runs, "there is a driver to kill")
        self.supervisor.kill()

    def worker(self) -> None:
        own = self._worker()
        self.cluster.tool("kill", own)
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
            n_lost = int(self.cluster.tool("lost", own))
            entry.what = f"{own}, {n_lost} packets lost"
            self.cluster.tool("fast", own)

        self.cluster.tool("slow", own)
        self._later(SLOW_S, own, fast)

    def server(self, server: Any) -> None:
        what = self._free([type(server).__name__])
        self.entries[-1].what = ""
        server.kill()
        self._later(3, what, server.start)

    def table(self, after: Supervisor) -> str:
        """What happened, for people."""
        lines = ["| fault | worker | at | after epoch | epochs lost | epochs replayed | result |"]
        lines.append("| --- | --- | ---: | ---: | ---: | ---: | --- |")
        ends = [*self.entries[1:], Entry("", 0, 0, None, 0, after.n_starts, after.replayed)]
        for entry, following in zip(self.entries, ends, strict=True):
            starts, replayed = following.starts - entry.starts, following.replayed - entry.replayed
            again = f"driver started {starts} x, " if starts else ""
            result = again + ("did not go on" if entry.back_s is None else f"next commit after {entry.back_s:.0f} s")
            cells = [entry.fault, entry.what, f"{entry.at_s:.0f} s", entry.epoch, entry.lost, replayed, result]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
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
    """Faults at even distances; the answer must be DuckDB's. Gives the table."""
    random = Random(seed)
    job = Job(cluster, "1 second", limit=4000)
    feed, supervisor = Feed(job, per_s, keys=50).start(), Supervisor(job)
    rain = Rain(cluster, job, supervisor, random)
    try:
        wait(lambda: committed(job) >= 2, supervisor, "the first epochs are committed")
        rain.began = time.monotonic()
        names = list(rain.kinds)
        chosen = kinds or names + [random.choice(names) for _ in range(n_faults - len(names))]
        if kinds is None:
            random.shuffle(chosen)
        for place, kind in enumerate(chosen):
            rain.watch(place * seconds / n_faults)
            rain.strike(kind)
        rain.watch(seconds)
        rain.end()
        feed.end()
        expected = feed.expected()
        wait(lambda: rain.look() or n_in_table(job) >= len(expected), supervisor, "all results are there")
    finally:
        rain.end()
        feed.end()
        supervisor.end()
    table = rain.table(supervisor)
    print(f"\n{table}\n", flush=True)
    for sink, found in answers(job).items():
        outcome = "equal to DuckDB's, each once" if found == expected else "NOT THE SAME"
        print(f"{sink}: {len(found)} rows, {outcome}", flush=True)
        assert len(found) == len(expected), (sink, len(found), len(expected))
        assert found == expected, sink
    assert not any(entry.lost for entry in rain.entries)
    return table


def wait(condition: Callable[[], Any], supervisor: Supervisor, what: str) -> None:
    """Wait for a condition; what the driver wrote is shown if it does not come."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if condition():
                return
        time.sleep(0.5)
    raise AssertionError(f"{what} within {PATIENCE_S:g} s; the driver's log ends:\n" + tail(supervisor.log))


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
