"""Segments that a worker has mapped, kept from task to task: most of a window is looked at again in the next epoch.

Opening a file anew costs some tenths of a millisecond, and its pages have to be mapped again, one after the other.

Invariant: what is given is what a new look at the file would give: a file that is gone, or is another one than it was
(by number, size and time of change), is opened anew. Cost: what the last `_TASKS` tasks of this process have opened
stays mapped, which takes addresses and no memory of its own; the disk has a deleted file's room back when it goes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from braidstream.kernels.rows import Rows

__all__ = ["begin_task", "kept_open"]

_TASKS = 4
"""On one machine slots change places between the workers: so many tasks later a slot has mostly come again."""

_Known = tuple[tuple[int, int, int], Rows]


class _Kept(threading.local):
    """Of each thread that runs tasks: what its last tasks have opened, the newest last."""

    def __init__(self) -> None:
        self.tasks: deque[dict[str, _Known]] = deque([{}], maxlen=_TASKS)


_kept = _Kept()


def begin_task() -> None:
    """What was not used in the last tasks is given up."""
    _kept.tasks.append({})


def kept_open(path: str, opened: Callable[[], Rows]) -> Rows:
    """The rows of a local file that never changes, from the last tasks or opened now."""
    try:
        seen = Path(path).stat()
    except FileNotFoundError:
        return opened()
    now = (seen.st_ino, seen.st_size, seen.st_mtime_ns)
    for task in reversed(_kept.tasks):
        if path in task and task[path][0] == now:
            _kept.tasks[-1][path] = task[path]
            return task[path][1]
    rows = opened()
    _kept.tasks[-1][path] = now, rows
    return rows
