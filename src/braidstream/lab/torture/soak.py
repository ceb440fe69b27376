"""One flow on Spark for a long time, with a fault every minute: nothing grows, and at the end the answer is DuckDB's.

    soak(folder, minutes=15)

Two streams arrive, a file a second. `braid run` joins them: an inner join, a left join, an aggregate. Every minute one
thing happens in turn: a worker is killed, or all processes stand still for some seconds; in the fourth minute and every
twentieth from then on the driver is killed and the job started again with other slots, so that a driver lives long
enough for a leak to show. Memory of driver, JVM and workers, and the files of the checkpoint by folder, are looked at
every few seconds. Ctrl-C ends it early: what there is by then is compared.

Time is that of the soak: minutes in which it was itself stopped from outside (SIGSTOP, a machine that sleeps) are told
and count for nothing, neither as input, nor as faults that are due, nor against a limit.

Invariant: rows arrive in the order of time; none is late. Cost: its minutes; about a core with an epoch every two
seconds, and in proportion less with fewer.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import BraidstreamError, RunError
from braidstream.lab.bench.process_memory import memory_mb
from braidstream.lab.testing.batch import BatchStream, batch_join, batch_join_of_kind, same_rows
from braidstream.state.checkpoint import Checkpoint

__all__ = ["SERIES", "Soak", "soak"]

SECOND = 1_000_000
WINDOW_S = 20
KEYS = 150
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
WORKER, STOP, DRIVER = "a worker killed", "all processes stopped for 4 s", "the driver killed"
_DRIVER_EVERY = 20
SERIES = ("driver MB", "JVM MB", "workers MB", "segments", "manifests", "sections", "offset log", "other files")
_MOST = {
    "driver MB": 1.15, "JVM MB": 1.15, "workers MB": 1.25,
    "segments": 1.25, "manifests": 1.25, "sections": 1.25, "other files": 1.25,
}  # fmt: skip
"""How much larger the last third of a driver's life may be than the middle one, before it is called growth. Of the
offset log nothing is said: Spark deletes from it in steps, first after some 100 epochs."""
_SLACK = {"driver MB": 15.0, "JVM MB": 40.0, "workers MB": 40.0}
"""MB that are no growth whatever they were before."""
_FEW = 20.0
"""Likewise of files."""
_TOLD_S = 600.0
"""Of a shorter time nothing is said: a process that is warming up grows."""
_LIMIT_S = 600.0
_MOST_ENDS = 20
"""A job that ends so often without being killed does not run."""
_PAUSE_S = 15.0
"""A pass of the loop that took longer was stopped from outside: the longest that it does itself is a stop."""
_CONF = ("spark.ui.enabled=false", "spark.driver.memory=1g", "spark.network.timeout=3600s")
"""An executor that was stopped from outside for minutes is not taken for dead."""
_QUERIES = {
    "pairs": "SELECT A.v AS a, B.v AS b {} A.k = B.k",
    "alone": "SELECT A.v AS a, B.v AS b FROM A [RANGE {w} SECONDS] LEFT JOIN B [RANGE {w} SECONDS] "
    "ON A.k = B.k AND A.v % 4 = 0",
    "counts": "SELECT A.k AS k, COUNT(*) AS n {} A.k = B.k GROUP BY A.k",
}


Sample: TypeAlias = tuple[float, dict[str, float]]


@dataclass
class Soak:
    """What was seen: samples of (seconds, figures), faults with their second, and whether the answer was right."""

    minutes: float
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """When it was stopped from outside, and for how many seconds."""
    rows: int = 0
    results: int = 0
    epochs: int = 0
    wrong: str = ""

    def growth(self) -> dict[str, float]:
        """Of each series, the mean of the last third beside that of the middle one."""
        return _growth(self.samples)

    def growth_of_lives(self) -> list[dict[str, float]]:
        """The same within the life of each driver of ten minutes or more: a leak that every start hides."""
        return [_growth(life) for life in self._lives()]

    def grown(self) -> list[str]:
        """What has grown by more than `_MOST` and `_SLACK`, over all or within a driver's life, in words."""
        spans = {"over all": self.samples} if self.minutes * 60 >= _TOLD_S else {}
        spans |= {f"in the driver's life from {life[0][0]:,.0f} s on": life for life in self._lives()}
        return [f"{words}: {told}" for words, samples in spans.items() for told in _grown(samples)]

    def _lives(self) -> list[list[Sample]]:
        deaths = [second for second, what in self.faults if what == DRIVER or what.startswith("ended")]
        bounds = [0.0, *deaths, math.inf]
        lives = [[one for one in self.samples if a <= one[0] < b] for a, b in pairwise(bounds)]
        return [life for life in lives if life and life[-1][0] - life[0][0] >= _TOLD_S]

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        names = ("minutes", "rows", "results", "epochs", "wrong", "faults", "pauses")
        plain = {name: getattr(self, name) for name in names}
        growth = {"growth": self.growth(), "growth_of_lives": self.growth_of_lives(), "grown": self.grown()}
        return {**plain, **growth, "samples": self.samples}


def _thirds(samples: list[Sample], name: str) -> tuple[float, float]:
    """The means of the middle third and of the last one."""
    third = len(samples) // 3
    parts = samples[third : 2 * third], samples[2 * third :]
    middle, last = (sum(figures[name] for _, figures in part) / max(len(part), 1) for part in parts)
    return middle, last


def _growth(samples: list[Sample]) -> dict[str, float]:
    thirds = {name: _thirds(samples, name) for name in SERIES}
    return {name: round(last / max(middle, 1.0), 3) for name, (middle, last) in thirds.items()}


def _grown(samples: list[Sample]) -> Iterator[str]:
    for name, most in _MOST.items():
        middle, last = _thirds(samples, name)
        if last > most * middle and last - middle > _SLACK.get(name, _FEW):
            yield f"{name} from {middle:,.0f} to {last:,.0f}, more than {most:g} times as much"


def soak(
    folder: Path, minutes: float, seed: int = 0, tell: Callable[[str], None] = print, epoch_s: float = 2.0
) -> Soak:
    """Run it in a folder of its own, with an epoch every so many seconds."""
    run = _Run(folder, Random(f"soak {seed}"), Soak(minutes), tell, epoch_s)
    try:
        run.through()
    finally:
        run.kill()
    return run.seen


class Clock:
    """Seconds since it was made, without those in which nobody looked at it for long: this process stood still."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.began = self.last = monotonic()
        self.paused = 0.0

    def look(self) -> tuple[float, float]:
        """The time, and how long a pause ended just now (0 for none)."""
        now = self.monotonic()
        gap, self.last = now - self.last, now
        pause = gap if gap > _PAUSE_S else 0.0
        self.paused += pause
        return now - self.began - self.paused, pause


class _Run:
    """The flow, its input and its processes."""

    def __init__(
        self, folder: Path, random: Random, seen: Soak, tell: Callable[[str], None], epoch_s: float = 2.0
    ) -> None:
        self.folder, self.random, self.seen, self.tell, self.epoch_s = folder, random, seen, tell, epoch_s
        self.clock, self.n_files, self.n_ends = Clock(), 0, 0
        self.process: subprocess.Popen[bytes] | None = None
        for name in "AB":
            (folder / name).mkdir(parents=True)

    def through(self) -> None:
        """All minutes, then the rest of the input, then the comparison."""
        self._arrive(1)
        self._start(slots=2)
        try:
            self._minutes()
        except KeyboardInterrupt:
            self.seen.minutes = round(self._now() / 60, 1)
            self.tell(f"ended after {self.seen.minutes} minutes")
        self._end()
        self._compare()

    def _minutes(self) -> None:
        next_fault, next_sample, turn = 60.0, 0.0, 0
        while (now := self._now()) < self.seen.minutes * 60:
            self._arrive(int(now))
            if now >= next_sample:
                self._sample(now)
                next_sample = now + 5
            if now >= next_fault and self._fault(_due(turn), now):
                next_fault, turn = next_fault + 60, turn + 1
            self._revive()
            time.sleep(0.2)

    def _now(self) -> float:
        now, pause = self.clock.look()
        if pause:
            self.seen.pauses.append((round(now, 1), round(pause, 1)))
            self.tell(f"{now:,.0f} s: stopped from outside for {pause:,.0f} s")
        return now

    def kill(self) -> None:
        """End all processes."""
        if self.process is not None:
            for process, _ in _session(self.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
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
        job.write_text(_job(slots, final=final, epoch_s=self.epoch_s), encoding="utf-8")
        command = [sys.executable, "-m", "braidstream", "run", str(job), "--quiet", "--master", "local[2,4]"]
        with (self.folder / "errors.txt").open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, *(part for conf in _CONF for part in ("--conf", conf))],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def _revive(self) -> None:
        """What has died of a fault is started again."""
        assert self.process is not None
        if self.process.poll() is not None:
            self.seen.faults.append((round(self._now(), 1), f"ended with {self.process.returncode}"))
            self.n_ends += 1
            if self.n_ends > _MOST_ENDS:
                raise RunError(self._last_words(), "a job that runs on", "run the job of the message by itself")
            self._start(self.random.randint(1, 4))

    def _fault(self, what: str, now: float) -> bool:
        """Whether it could be done: with no worker there is none to kill yet."""
        assert self.process is not None
        workers = self._processes()["workers MB"]
        if what == WORKER and not workers:
            return False
        self.seen.faults.append((round(now, 1), what))
        self.tell(f"{now:,.0f} s: {what}")
        if what == DRIVER:
            self.kill()
            self._start(self.random.randint(1, 4))
        elif what == STOP:
            self._stop_for(4)
        else:
            os.kill(self.random.choice(workers), signal.SIGKILL)
        return True

    def _stop_for(self, seconds: float) -> None:
        assert self.process is not None
        stopped = [process for process, _ in _session(self.process.pid)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in stopped:
                with suppress(ProcessLookupError):
                    os.kill(process, number)
            time.sleep(seconds if number == signal.SIGSTOP else 0)

    def _processes(self) -> dict[str, list[int]]:
        assert self.process is not None
        found: dict[str, list[int]] = {"driver MB": [self.process.pid], "JVM MB": [], "workers MB": []}
        for process, command in _session(self.process.pid):
            if b"pyspark.worker" in command:
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
        self.kill()
        self._start(2, final=True)
        assert self.process is not None
        until = self._now() + _LIMIT_S
        while self.process.poll() is None and self._now() < until:
            time.sleep(0.2)
        if self.process.returncode is None:
            self.seen.wrong = "the last run did not end"
        if self.process.returncode:
            self.seen.wrong = self._last_words()

    def _last_words(self) -> str:
        return (self.folder / "errors.txt").read_text(errors="replace")[-2000:]

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


def _session(leader: int) -> Iterator[tuple[int, bytes]]:
    """The processes of a session with their commands; workers whose parent was killed are still of it."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in "ZX":
                yield int(entry.name), (entry / "cmdline").read_bytes()


def _due(turn: int) -> str:
    """The fault of a minute."""
    if turn % _DRIVER_EVERY == 3:
        return DRIVER
    return STOP if turn % 3 == 1 else WORKER


def _job(slots: int, *, final: bool, epoch_s: float = 2.0) -> str:
    window = f"FROM A [RANGE {WINDOW_S} SECONDS], B [RANGE {WINDOW_S} SECONDS] WHERE"
    flow: dict[str, Any] = {"checkpoint": "ck", "slots": slots, "groups": 8, "keep": 5, "final": final}
    flow["epoch"] = "available" if final else f"{epoch_s:g} seconds"
    lines = ["[flow]", *(f"{name} = {json.dumps(value)}" for name, value in flow.items())]
    for name in "AB":
        lines += [f"[streams.{name}]", 'format = "parquet"', f'path = "{name}"', 'time = "ts"', 'delay = "0 seconds"']
        lines += ['schema = "k long, v long, ts timestamp"']
    for name, text in _QUERIES.items():
        cql = text.replace("{w}", str(WINDOW_S)).replace("{}", window)
        lines += [f"[queries.{name}]", f"cql = {json.dumps(cql)}"]
        lines.append(f'sink = {{ format = "parquet", path = "out/{name}" }}')
    return "\n".join(lines)
