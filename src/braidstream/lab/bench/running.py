"""A measured process: started, watched and read; ended, with all below it, when it takes too long or too much memory.

Memory is the sum over the process and all below it (a driver, its JVM, the Python workers), each counted by its
proportional share of pages, read from /proc whenever there are more pages than before; its peak is reported.

Invariant: when `run_process` returns, nothing that it started runs. Cost: a few file reads for each process, three
times a second. Reading shares walks through all pages of a process, which waits meanwhile where it maps memory;
counting pages does not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from braidstream.lab.bench.printed import Printed
from braidstream.lab.bench.processes import tree

__all__ = ["FAILED", "TIMED_OUT", "Run", "run_process"]

FAILED, TIMED_OUT = "failed", "timed out"
_NOTHING: Printed = {"epoch_ms": []}
_MORE, _SELDOM_S = 1.02, 5.0
"""By how much pages have grown, or how long ago it was, when their shares are read again."""
_LOOK_S, _LINGERS_S = 1.0, 10.0
"""How often a process is looked at, and how long what it has left may go on."""
_SIGNS = ("Error", "Exception", "Killed", "Caused by")


@dataclass(frozen=True)
class Run:
    """One process: what it printed, its peak of memory in MB, and why it failed, if it did."""

    printed: Printed
    peak_mb: float | None
    failure: str | None = None
    status: str = FAILED
    """What to call a failure."""


def run_process(
    command: Sequence[str], limit_s: float, most_mb: float | None = None, environment: Mapping[str, str] | None = None
) -> Run:
    """Run a command that prints JSON as its last line, with more variables in its environment."""
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    watch = _Memory(child.pid, most_mb)
    try:
        out, err = _said(child, limit_s)
    except subprocess.TimeoutExpired:
        return Run(_NOTHING, watch.stop(), f"not done after {limit_s:g} s", TIMED_OUT)
    finally:
        peak = watch.stop()
        _end(child)
    if watch.exceeded:
        return Run(_NOTHING, peak, f"needs more than {most_mb:,.0f} MB")
    if child.returncode != 0:
        return Run(_NOTHING, peak, _reason(err) or f"ended with {child.returncode}")
    printed: Printed = json.loads(out.splitlines()[-1])
    return Run(printed, peak)


def _said(child: subprocess.Popen[str], limit_s: float) -> tuple[str, str]:
    """What a process says until it ends; what it leaves behind, which may hold its output open, is not waited for."""
    began, ended = time.monotonic(), None
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=min(_LOOK_S, limit_s))
        now = time.monotonic()
        if child.poll() is None:
            if now - began >= limit_s:
                raise subprocess.TimeoutExpired(child.args, limit_s)
            continue
        ended = now if ended is None else ended
        if now - ended >= _LINGERS_S:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)


def _end(child: subprocess.Popen[str]) -> None:
    """End the process and all below it: they are one group, and a JVM may have left it."""
    below = tree(child.pid) if child.poll() is None else []
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in below:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _reason(errors: str) -> str:
    """The last line that names an error."""
    return next((line for line in reversed(errors.splitlines()) if any(sign in line for sign in _SIGNS)), "")[:300]


class _Memory:
    """Watches the memory of a process and all its children, and kills them when it is too much."""

    def __init__(self, pid: int, most_mb: float | None) -> None:
        self._pid, self._peak, self._most_mb = pid, 0.0, most_mb
        self.exceeded = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The peak in MB."""
        self._done.set()
        self._thread.join()
        return round(self._peak, 1)

    def _watch(self) -> None:
        most, looked = 0, 0.0
        while not self._done.wait(0.3):
            below = tree(self._pid)
            pages, now = sum(map(_n_pages, below)), time.monotonic()
            if pages <= _MORE * most and now - looked < _SELDOM_S:
                continue
            most, looked = max(most, pages), now
            self._peak = max(self._peak, sum(_share_mb(pid) for pid in below))
            if self._most_mb is not None and self._peak > self._most_mb:
                self.exceeded = True
                for process in below:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(process, signal.SIGKILL)
                return


def _n_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0


def _share_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0
    return 0.0
