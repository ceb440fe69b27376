"""One flow on Spark for a long time, with a fault every minute: nothing grows, and at the end the answer is DuckDB's.

    soak(folder, minutes=15)

Two streams arrive, a file a second. `braid run` joins them: an inner join, a left join, an aggregate. Every minute one
thing happens in turn: a worker is killed, all processes stand still for some seconds, a worker is killed again, and
every fourth time the driver is killed and the job started again with other slots. Memory of driver, JVM and workers,
and the files of the checkpoint by folder, are looked at every few seconds.

Invariant: rows arrive in the order of time; none is late. Cost: its minutes; about a core.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import BraidstreamError
from braidstream.lab.bench.process_memory import memory_mb
from braidstream.lab.bench.processes import tree
from braidstream.lab.testing.batch import BatchStream, batch_join, batch_join_of_kind, same_rows
from braidstream.state.checkpoint import Checkpoint

__all__ = ["SERIES", "Soak", "soak"]

SECOND = 1_000_000
WINDOW_S = 20
KEYS = 150
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
FAULTS = ("a worker killed", "all processes stopped for 4 s", "a worker killed", "the driver killed")
SERIES = ("driver MB", "JVM MB", "workers MB", "segments", "manifests", "sections", "offset log", "other files")
_LIMIT_S = 300.0
_QUERIES = {
    "pairs": "SELECT A.v AS a, B.v AS b {} A.k = B.k",
    "alone": "SELECT A.v AS a, B.v AS b FROM A [RANGE {w} SECONDS] LEFT JOIN B [RANGE {w} SECONDS] "
    "ON A.k = B.k AND A.v % 4 = 0",
    "counts": "SELECT A.k AS k, COUNT(*) AS n {} A.k = B.k GROUP BY A.k",
}


@dataclass
class Soak:
    """What was seen: samples of (seconds, figures), faults with their second, and whether the answer was right."""

    minutes: float
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    rows: int = 0
    results: int = 0
    epochs: int = 0
    wrong: str = ""

    def growth(self) -> dict[str, float]:
        """Of each series, the mean of the last third beside that of the middle one."""
        third = len(self.samples) // 3
        middle, last = self.samples[third : 2 * third], self.samples[2 * third :]

        def mean(some: list[tuple[float, dict[str, float]]], name: str) -> float:
            return sum(figures[name] for _, figures in some) / max(len(some), 1)

        return {name: round(mean(last, name) / max(mean(middle, name), 1.0), 3) for name in SERIES}

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        plain = {name: getattr(self, name) for name in ("minutes", "rows", "results", "epochs", "wrong", "faults")}
        return {**plain, "growth": self.growth(), "samples": self.samples}


def soak(folder: Path, minutes: float, seed: int = 0, tell: Callable[[str], None] = print) -> Soak:
    """Run it in a folder of its own."""
    run = _Run(folder, Random(f"soak {seed}"), Soak(minutes), tell)
    try:
        run.through()
    finally:
        run.kill()
    return run.seen


class _Run:
    """The flow, its input and its processes."""

    def __init__(self, folder: Path, random: Random, seen: Soak, tell: Callable[[str], None]) -> None:
        self.folder, self.random, self.seen, self.tell = folder, random, seen, tell
        self.began, self.n_files = time.monotonic(), 0
        self.process: subprocess.Popen[bytes] | None = None
        for name in "AB":
            (folder / name).mkdir(parents=True)

    def through(self) -> None:
        """All minutes, then the rest of the input, then the comparison."""
        self._arrive(1)
        self._start(slots=2)
        next_fault, next_sample, turn = 60.0, 0.0, 0
        while (now := time.monotonic() - self.began) < self.seen.minutes * 60:
            self._arrive(int(now))
            if now >= next_sample:
                self._sample(now)
                next_sample = now + 5
            if now >= next_fault:
                self._fault(FAULTS[turn % len(FAULTS)], now)
                next_fault, turn = next_fault + 60, turn + 1
            self._revive()
            time.sleep(0.2)
        self._end()
        self._compare()

    def kill(self) -> None:
        """End all processes."""
        if self.process is not None:
            _signal(self.process, signal.SIGKILL)
            self.process.wait()

    def _arrive(self, second: int) -> None:
        while self.n_files < second:
            for name in "AB":
                n = self.random.randint(20, 40)
                times = sorted(self.random.randrange(SECOND) + self.n_files * SECOND for _ in range(n))
                keys = [min(int(self.random.paretovariate(0.7)), KEYS) for _ in range(n)]
                values = [self.random.randrange(1000) for _ in range(n)]
                beside = self.folder / f"{name}.arriving"
                pq.write_table(pa.table([keys, values, pa.array(times)], schema=SCHEMA), beside)
                beside.rename(self.folder / name / f"{self.n_files:06d}.parquet")
                self.seen.rows += n
            self.n_files += 1

    def _start(self, slots: int, *, final: bool = False) -> None:
        job = self.folder / "job.toml"
        job.write_text(_job(slots, final=final), encoding="utf-8")
        command = [sys.executable, "-m", "braidstream", "run", str(job), "--quiet", "--master", "local[2,4]"]
        with (self.folder / "errors.txt").open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=1g"],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def _revive(self) -> None:
        """What has died of a fault is started again."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.seen.faults.append((time.monotonic() - self.began, f"ended with {self.process.returncode}"))
            self._start(self.random.randint(1, 4))

    def _fault(self, what: str, now: float) -> None:
        assert self.process is not None
        self.seen.faults.append((round(now, 1), what))
        self.tell(f"{now:,.0f} s: {what}")
        if what == "the driver killed":
            _signal(self.process, signal.SIGKILL)
            self.process.wait()
            self._start(self.random.randint(1, 4))
        elif what.startswith("all"):
            _signal(self.process, signal.SIGSTOP)
            time.sleep(4)
            _signal(self.process, signal.SIGCONT)
        elif workers := self._processes()["workers MB"]:
            os.kill(self.random.choice(workers), signal.SIGKILL)

    def _processes(self) -> dict[str, list[int]]:
        assert self.process is not None
        found: dict[str, list[int]] = {"driver MB": [self.process.pid], "JVM MB": [], "workers MB": []}
        for process in tree(self.process.pid):
            try:
                command = (Path("/proc") / str(process) / "cmdline").read_bytes()
            except OSError:
                continue
            if b"pyspark.daemon" in command:
                found["workers MB"].append(process)
            elif b"java\0" in command:
                found["JVM MB"].append(process)
        return found

    def _sample(self, now: float) -> None:
        figures = {who: round(sum(memory_mb(one)["rss"] for one in own), 1) for who, own in self._processes().items()}
        folders = Counter[str]()
        names = {"segments": "segments", "manifests": "manifests", "sections": "sections"}
        for path, _, files in os.walk(self.folder / "ck"):
            parts = Path(path).relative_to(self.folder / "ck").parts
            is_log = any(part.startswith("offsets") for part in parts)
            folders["offset log" if is_log else names.get(parts[0] if parts else "", "other files")] += len(files)
        self.seen.samples.append((round(now, 1), {**dict.fromkeys(SERIES, 0.0), **figures, **folders}))

    def _end(self) -> None:
        """The rest is read by a last run, which closes the checkpoint."""
        assert self.process is not None
        _signal(self.process, signal.SIGKILL)
        self.process.wait()
        self._start(2, final=True)
        try:
            self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.seen.wrong = "the last run did not end"
        if self.process.returncode:
            self.seen.wrong = (self.folder / "errors.txt").read_text(errors="replace")[-2000:]

    def _compare(self) -> None:
        streams = tuple(BatchStream(name, self.folder / name, WINDOW_S * SECOND) for name in "AB")
        select, keys = {"a": "A.v", "b": "B.v"}, [("A.k", "B.k")]
        expected = {
            "pairs": batch_join(streams, keys, select),
            "alone": batch_join_of_kind("left", (streams[0], streams[1]), keys, select, ["A.v % 4 = 0"]),
        }
        for name, rows in expected.items():
            same = same_rows(self.folder / "out" / name, rows)
            self.seen.results += rows.num_rows
            if not same:
                self.seen.wrong += f"{name}: {same}\n"
        try:
            self.seen.epochs = Checkpoint(str(self.folder / "ck")).latest().epoch
        except (BraidstreamError, OSError) as error:
            self.seen.wrong += str(error)


def _job(slots: int, *, final: bool) -> str:
    window = f"FROM A [RANGE {WINDOW_S} SECONDS], B [RANGE {WINDOW_S} SECONDS] WHERE"
    flow: dict[str, Any] = {"checkpoint": "ck", "slots": slots, "groups": 8, "keep": 5, "final": final}
    flow["epoch"] = "available" if final else "2 seconds"
    lines = ["[flow]", *(f"{name} = {json.dumps(value)}" for name, value in flow.items())]
    for name in "AB":
        lines += [f"[streams.{name}]", 'format = "parquet"', f'path = "{name}"', 'time = "ts"', 'delay = "0 seconds"']
        lines += ['schema = "k long, v long, ts timestamp"', 'order = "name"']
    for name, text in _QUERIES.items():
        cql = text.replace("{w}", str(WINDOW_S)).replace("{}", window)
        lines += [f"[queries.{name}]", f"cql = {json.dumps(cql)}"]
        lines.append(f'sink = {{ format = "parquet", path = "out/{name}" }}')
    return "\n".join(lines)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
