"""Fault points: named places where a process can be made to die, so that a crash test says where.

The engine calls `reach("before-manifest", epoch=7)`. That does nothing unless the environment says otherwise:

    BRAIDSTREAM_FAULT=before-manifest:7:kill     die by SIGKILL there, at epoch 7
    BRAIDSTREAM_FAULT=compaction:2:raise         raise InjectedFault there; where a point is reached without an epoch,
                                                 the number is the n-th time this process reaches it, from 1
    BRAIDSTREAM_FAULT=before-root:7:full         the disk is full there, at epoch 7: OSError, each time it is reached
    BRAIDSTREAM_FAULT=task-start:2:executor      in a task: kill the executor, the process that this worker's belong to
    BRAIDSTREAM_FAULT_ONCE=FILE                  strike only if FILE does not exist, and make it: a restart, or a task
                                                 retried in a fresh worker, then goes through with the same environment

The environment is read once, when the module is first imported; a fault that cannot be read is refused there. Cost
while unset: one comparison.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from braidstream.errors import InputError, nearest

__all__ = [
    "ACTIONS",
    "CHANGES",
    "DELIVERIES",
    "FEEDS",
    "ONCE_VARIABLE",
    "POINTS",
    "VARIABLE",
    "Fault",
    "InjectedFault",
    "armed",
    "reach",
]

POINTS = (
    "epoch-start",
    "after-join",
    "after-results",
    "before-manifest",
    "after-sections",
    "before-root",
    "after-manifest",
    "task-start",
    "task-before-segment",
    "task-after-segment",
    "task-after-section",
    "compaction",
    "spill",
    "clean-up-start",
    "clean-up",
    "clean-up-results",
    "clean-up-end",
)
"""The points of an epoch, and of clean-ups."""
CHANGES = ("change-prepared", "change-settled", "change-committed")
"""The points of a change of queries."""
DELIVERIES = ("delivery-put", "delivery-done")
"""The points of the delivery of one query's results: where the sink commits them next, and where it has."""
FEEDS = ("before-feed", "after-feed")
"""The points between a commit and the next flow of a job: before its results are named to that, and after."""
_ALL = (*POINTS, *CHANGES, *DELIVERIES, *FEEDS)
ACTIONS = ("kill", "raise", "executor", "full")
VARIABLE = "BRAIDSTREAM_FAULT"
ONCE_VARIABLE = "BRAIDSTREAM_FAULT_ONCE"


class InjectedFault(Exception):
    """Raised at a fault point because somebody asked for it: no part of the package's error tree."""

    def __init__(self, point: str, number: int) -> None:
        self.point, self.number = point, number
        super().__init__(f"injected fault at {point!r}, number {number}")

    def __reduce__(self) -> tuple[type[InjectedFault], tuple[str, int]]:
        return InjectedFault, (self.point, self.number)


@dataclass
class Fault:
    """A point, the epoch or the n-th time, and what happens there. `times` counts visits without an epoch."""

    point: str
    number: int
    action: str
    once: str | None = None
    times: int = field(default=0, init=False)

    @classmethod
    def parse(cls, text: str, once: str | None = None) -> Fault:
        """Read "point:number:action"."""
        parts = text.split(":")
        if len(parts) != 3 or not parts[1].isdecimal():
            raise InputError(f"{VARIABLE} is {text!r}", "point:number:action", "for example before-manifest:3:kill")
        point, number, action = parts
        if point not in _ALL:
            raise InputError(f"{VARIABLE} names no fault point: {point!r}", ", ".join(_ALL), nearest(point, _ALL))
        if action not in ACTIONS:
            raise InputError(f"{VARIABLE} names no action: {action!r}", " or ".join(ACTIONS), nearest(action, ACTIONS))
        return cls(point, int(number), action, once)

    def __str__(self) -> str:
        return f"{self.point}:{self.number}:{self.action}"


def reach(point: str, *, epoch: int | None = None) -> None:
    """Mark a fault point. Nothing happens unless a fault is armed for it."""
    if _fault is not None:
        _visit(_fault, point, epoch)


@contextmanager
def armed(text: str) -> Iterator[Fault]:
    """Arm a fault in this process only, for tests that stay in one process."""
    global _fault  # noqa: PLW0603  the one place where the module-level check changes
    before, _fault = _fault, Fault.parse(text)
    try:
        yield _fault
    finally:
        _fault = before


def _visit(fault: Fault, point: str, epoch: int | None) -> None:
    if point not in _ALL:
        raise InputError(f"no fault point is named {point!r}", ", ".join(_ALL), nearest(point, _ALL))
    if point != fault.point:
        return
    if epoch is None:
        fault.times += 1
    if fault.number == (fault.times if epoch is None else epoch) and _is_first(fault):
        _strike(fault)


def _is_first(fault: Fault) -> bool:
    """Whether the fault may strike; with a marker file, only the process that makes it may."""
    if fault.once is None:
        return True
    try:
        os.close(os.open(fault.once, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _strike(fault: Fault) -> NoReturn:
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"at {fault.point!r}")
    if fault.action == "executor":
        os.kill(_parent_of(os.getppid()), signal.SIGKILL)  # a worker's parent is Spark's daemon, and its parent the JVM
        os.kill(os.getpid(), signal.SIGKILL)
    raise InjectedFault(fault.point, fault.number)


def _parent_of(process: int) -> int:
    shown = subprocess.run(["ps", "-o", "ppid=", "-p", str(process)], capture_output=True, text=True, check=True)
    return int(shown.stdout)


def _from_environment(environment: Mapping[str, str]) -> Fault | None:
    text = environment.get(VARIABLE, "")
    return Fault.parse(text, environment.get(ONCE_VARIABLE) or None) if text else None


_fault = _from_environment(os.environ)
