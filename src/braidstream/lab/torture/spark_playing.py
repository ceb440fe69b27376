"""A story played by `braid run` on Spark: real processes, killed at fault points and at random times.

The story's epochs are cut into acts. Before an act the files of its epochs are written, one a stream and epoch, and the
job file is changed: other slots, memory, router, controller, and queries that come or go. A process runs the job; in
most acts it, a worker or all of its processes are killed by SIGKILL, a write fails, or the disk is full at a point, so
that the process ends with exit code 3 and says why. The last act runs until the input is read. A query
that comes or goes does so after the epoch that was committed last.

Invariant: what is compared is what a reader of the folders sees. Cost: some ten seconds an act.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from braidstream.errors import BraidstreamError
from braidstream.lab.torture.asking import cql
from braidstream.lab.torture.comparing import compare
from braidstream.lab.torture.playing import Outcome, Wrong
from braidstream.lab.torture.soak import Clock
from braidstream.lab.torture.story import Ask, Options, Story
from braidstream.lab.workloads.stream_files import append_files
from braidstream.model.faults import ONCE_VARIABLE, POINTS, VARIABLE
from braidstream.model.values import changed
from braidstream.state.checkpoint import Checkpoint

__all__ = ["play_on_spark"]

LIMIT_S = 240.0
_MOST_EPOCHS = 6
_FAILED, _NO_SPACE = 3, "No space left on device"
"""How a process ends that could not write, and what it says."""
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TASK_POINTS = (
    "task-start",
    "task-before-segment",
    "task-after-segment",
    "task-after-section",
    "compaction",
    "clean-up",
)


@dataclass(frozen=True)
class Act:
    """One run of the job: it can read epochs before `end`; how it dies, and its line of [flow]."""

    end: int
    fault: str = ""
    """point:epoch:kill, point:epoch:full, point:epoch:full once, `time`, or none."""
    delay_s: float = 0.0
    flow: tuple[tuple[str, Any], ...] = ()
    is_last: bool = False

    @property
    def point(self) -> str:
        """Where it is struck."""
        return self.fault.partition(":")[0]

    @property
    def is_full(self) -> bool:
        """Whether what strikes is an error of the disk."""
        return ":full" in self.fault

    @property
    def is_once(self) -> bool:
        """Whether it strikes once, so that what is tried again goes through."""
        return self.fault.endswith((":kill", " once"))


def play_on_spark(story: Story, folder: Path) -> Outcome:
    """Play a story in a folder of its own."""
    outcome = Outcome()
    try:
        _SparkPlay(story, folder, outcome.met).through()
    except Wrong as wrong:
        outcome.wrong = str(wrong)
    except Exception:
        outcome.wrong = "the play failed:\n" + traceback.format_exc(limit=-8)
    return outcome


class _SparkPlay:
    """One play."""

    def __init__(self, story: Story, folder: Path, met: Counter[str]) -> None:
        self.random, self.met, self.folder = Random(f"spark {story.seed}"), met, folder
        options = Options(final=story.options.final)
        self.story = changed(story, epochs=story.epochs[:_MOST_EPOCHS], options=options, events=())
        self.acts = self._drawn_acts()
        self.lives = {ask.name: self._life(ask) for ask in story.asks}
        self.asks = {ask.name: changed(ask, begin=0, end=None) for ask in story.asks}
        self.n_written = 0

    def through(self) -> None:
        """All acts, and the comparison."""
        for number, act in enumerate(self.acts):
            self._declare(number)
            self._write(act)
            self._run(act, number)
        if self._committed() < len(self.story.epochs) - 1:
            raise Wrong(f"the last epoch that was committed is {self._committed()} of {len(self.story.epochs)}")
        story = changed(self.story, asks=tuple(self.asks.values()))
        compare(story, self, self.met, Wrong)

    def _drawn_acts(self) -> list[Act]:
        n_epochs, random = len(self.story.epochs), self.random
        cuts = sorted(random.sample(range(1, n_epochs), min(random.choice([1, 1, 2]), n_epochs - 1)))
        acts, begin = [], 0
        for end in [*cuts, n_epochs]:
            is_last = end == n_epochs
            if not is_last or random.random() < 0.3:
                epoch = random.randrange(begin, end)
                at = f"{random.choice(POINTS)}:{epoch}"
                fault = random.choice([f"{at}:kill"] * 4 + ["time"] * 4 + [f"{at}:full", f"{at}:full once"] + [""])
                acts.append(Act(end, fault, random.uniform(0, 4), self._drawn_flow()))
            if is_last:
                acts.append(Act(end, flow=self._drawn_flow(), is_last=True))
            begin = end
        return acts

    def _drawn_flow(self) -> tuple[tuple[str, Any], ...]:
        random = self.random
        flow: dict[str, Any] = {
            "slots": random.randint(1, 4),
            "router": random.choice(["auto", "auto", "hash", "grid"]),
        }
        if random.random() < 0.5:
            flow["memory"] = random.choice(["1 kB", "4 kB", "1 MB"])
        return tuple(flow.items())

    def _life(self, ask: Ask) -> tuple[int, int]:
        """The acts that a query is declared in."""
        if ask.is_permanent:
            return 0, len(self.acts)
        begin = self.random.randrange(len(self.acts))
        return begin, self.random.choice([len(self.acts), self.random.randint(begin + 1, len(self.acts))])

    def _declare(self, number: int) -> None:
        """The job file of an act; queries that come or go do so after what is committed."""
        now = self._committed() + 1
        for name, (begin, end) in self.lives.items():
            if begin == number:
                self.asks[name] = changed(self.asks[name], begin=now)
                self.met["event: declared later"] += number > 0
            if end == number:
                self.asks[name] = changed(self.asks[name], end=now)
                self.met["event: declared no longer"] += 1
        there = [ask for name, ask in self.asks.items() if self.lives[name][0] <= number < self.lives[name][1]]
        (self.folder / "job.toml").write_text(self._job(self.acts[number], there), encoding="utf-8")

    def _job(self, act: Act, asks: list[Ask]) -> str:
        final = act.is_last and self.story.options.final
        flow = {"checkpoint": "ck", "groups": 6, "keep": 3, "final": final, **dict(act.flow)}
        lines = ["[flow]", *(f"{name} = {json.dumps(value)}" for name, value in flow.items())]
        for name, delay in self.story.delays_us.items():
            schema = f"k {self.story.key}, j long, v long, ts timestamp"
            lines += [
                f"[streams.{name}]",
                'format = "parquet"',
                f'path = "{name}"',
                f'schema = "{schema}"',
                'time = "ts"',
            ]
            lines += [
                f'delay = "{delay // 1_000_000} seconds"',
                'order = "name"',
                "options = { maxFilesPerTrigger = 1 }",
            ]
        for ask in asks:
            lines += [f"[queries.{ask.name}]", f"cql = {json.dumps(cql(ask))}"]
            lines += ['allow = "no-equality"'] if ask.kind == "unkeyed" else []
            lines.append(f'sink = {{ format = "parquet", path = "out/{ask.name}" }}')
        return "\n".join(lines)

    def _write(self, act: Act) -> None:
        for number in range(self.n_written, act.end):
            for name, table in self.story.tables(number).items():
                append_files(self.folder / name, [table])
        self.n_written = max(self.n_written, act.end)

    def _run(self, act: Act, number: int) -> None:
        process, errors = self._started(act, number)
        try:
            is_killed = self._waited(act, process, number)
        finally:
            _kill_group(process)
            process.wait()
        self.met["event: a process"] += 1
        told = errors.read_text(errors="replace")
        if is_killed:
            at = "a random time" if act.fault == "time" else act.point
            self.met[f"fault: SIGKILL at {at}"] += 1
        elif act.is_full and process.returncode == _FAILED and _NO_SPACE in told:
            self.met[f"fault: {'a write failed' if act.is_once else 'full disk'} at {act.point}"] += 1
        elif process.returncode != 0:
            raise Wrong(f"act {number} {act} ended with exit code {process.returncode}: {told[-3000:]}")
        elif self._was_struck(number):
            what = "a write of a task failed" if act.is_full else "a worker killed"
            self.met[f"fault: {what} at {act.point}"] += 1

    def _started(self, act: Act, number: int) -> tuple[subprocess.Popen[bytes], Path]:
        errors = self.folder / f"act-{number}.err"
        inherited = {name: value for name, value in os.environ.items() if name not in (VARIABLE, ONCE_VARIABLE)}
        inherited |= {"SPARK_SUBMIT_OPTS": _JVM, "SPARK_LOCAL_IP": "127.0.0.1"}
        if ":" in act.fault:
            inherited[VARIABLE] = act.fault.removesuffix(" once")
        if act.is_once:
            inherited[ONCE_VARIABLE] = str(self.folder / f"struck-{number}")
        command = [sys.executable, "-m", "braidstream", "run", str(self.folder / "job.toml"), "--quiet"]
        settings = ["--master", "local[2,3]", "--conf", "spark.ui.enabled=false"]
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*command, *settings],
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
                env=inherited,
            )
        return process, errors

    def _waited(self, act: Act, process: subprocess.Popen[bytes], number: int) -> bool:
        """Until the process ends, or is killed; whether it was."""
        clock = Clock()  # which does not count the time in which this process was itself stopped
        before, kill_at = self._committed(), None
        while process.poll() is None:
            now, _ = clock.look()
            if now > LIMIT_S:
                raise Wrong(f"act {number} {act} has not ended after {LIMIT_S:.0f} s")
            if act.fault == "time" and kill_at is None and (self._committed() > before or act.delay_s < 1):
                kill_at = now + act.delay_s * (4 if act.delay_s < 1 else 0.5)
            if kill_at is not None and now > kill_at:
                _kill_group(process)
                process.wait()
                return True
            time.sleep(0.05)
        return process.returncode == -signal.SIGKILL and self._was_struck(number)

    def _was_struck(self, number: int) -> bool:
        return (self.folder / f"struck-{number}").exists()

    def _committed(self) -> int:
        """The last epoch with a manifest; -1 before the first."""
        try:
            return Checkpoint(str(self.folder / "ck")).latest().epoch
        except (BraidstreamError, OSError):  # none yet, or it changes while one looks
            return -1


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The JVM outlives its driver by a moment: the next process must not meet it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
