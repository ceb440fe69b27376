"""The memory of a program's processes, sampled from /proc while it runs.

Three kinds of processes count: this one (`driver`), the JVM below it (`jvm`), and Spark's Python workers (`worker`, the
largest of them). Of each there is `rss` as the system counts it, `anonymous` (what only the process itself can give
back) and `mapped` (files; the system takes their pages away when it needs them).

Invariant: only processes below this one are looked at. Cost: a few file reads every `interval_s`; the processes are
listed twice a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from braidstream.lab.bench.processes import tree

__all__ = ["KINDS", "Sampler", "Sizes", "memory_mb"]

KINDS = ("rss", "anonymous", "mapped")
_FIELDS = {"VmRSS": "rss", "RssAnon": "anonymous", "RssFile": "mapped"}
_LIST_EVERY_S = 0.5

Sizes = dict[str, float]
"""MB by kind."""


def memory_mb(process: int) -> Sizes:
    """What a process has now; zeros when it is gone."""
    try:
        lines = (Path("/proc") / str(process) / "status").read_text().splitlines()
    except OSError:
        lines = []
    found = {_FIELDS[name]: int(line.split()[1]) / 1024 for line in lines if (name := line.split(":")[0]) in _FIELDS}
    return {kind: found.get(kind, 0.0) for kind in KINDS}


@dataclass
class Sampler:
    """Samples until its block ends. `course` has for each moment (monotonic time, who, sizes)."""

    interval_s: float = 0.02
    kept: int | None = None
    """How many samples are kept, the last ones; None: all. For who measures whether this process grows."""
    course: deque[tuple[float, str, Sizes]] = field(init=False)
    _stopped: bool = False

    def __enter__(self) -> Sampler:
        self.course = deque(maxlen=self.kept)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()

    def peak(self, who: str, begin: float = 0.0, end: float = float("inf")) -> Sizes:
        """The largest sizes between two moments, each kind by itself; zeros when there was no such process."""
        some = [sizes for moment, one, sizes in self.course.copy() if one == who and begin <= moment <= end]
        return {kind: round(max((sizes[kind] for sizes in some), default=0.0), 1) for kind in KINDS}

    def _run(self) -> None:
        listed, known = -_LIST_EVERY_S, dict[str, list[int]]()
        while not self._stopped:
            now = time.monotonic()
            if now - listed >= _LIST_EVERY_S:
                listed, known = now, _processes()
            for who, processes in known.items():
                sizes = [memory_mb(process) for process in processes]
                self.course.append((now, who, {kind: max(size[kind] for size in sizes) for kind in KINDS}))
            time.sleep(self.interval_s)


def _processes() -> dict[str, list[int]]:
    """The processes of each sort at or below this one."""
    found: dict[str, list[int]] = {"driver": [os.getpid()]}
    for process in tree(os.getpid()):
        try:
            command = (Path("/proc") / str(process) / "cmdline").read_bytes()
        except OSError:
            continue
        who = "worker" if b"pyspark.worker" in command else "jvm" if b"java\0" in command else None
        if who is not None:
            found.setdefault(who, []).append(process)
    return found
