"""Memory of a worker: what it has freed is given back before it adds up to much, and what stays is not looked through.

Arrow's pool and the C library keep freed memory for the next request. That is fast, but what a worker takes is then the
sum of the largest of all steps it ever did, not the largest step. So between steps a worker looks at what it has beyond
its start, and when that is more than `_KEPT` pieces (half of a slot's budget), it gives back what is free.

Invariant: nothing that is in use is touched. Cost: reading /proc/self/statm, some microseconds; giving back some
milliseconds, and page faults when the memory is needed again. With a large budget that hardly ever happens. Where there
is no /proc, nothing is known, and all is given back each time.
"""

from __future__ import annotations

import ctypes
import gc
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

__all__ = ["anonymous_bytes", "give_back", "spare_what_stays"]

_KEPT = 4
"""Pieces that a worker may have beyond its start; a piece is an eighth of the budget."""
_STATM = Path("/proc/self/statm")


def spare_what_stays(kind: str) -> None:
    """Once in a worker for each kind of task, when all it needs is imported: leave that to the collector no more.

    PySpark looks for garbage after every task, through all that modules have brought: 50 ms and more, during which the
    worker takes no other task.
    """
    _spared(kind, os.getpid())


@lru_cache(maxsize=16)
def _spared(kind: str, process: int) -> None:
    del kind, process
    gc.collect()
    gc.freeze()


def give_back(piece_bytes: int | None) -> bool:
    """Give back what is free, if the process has too much for pieces of this size; None is no limit."""
    if piece_bytes is None:
        return False
    now = anonymous_bytes()
    if now is not None and now - (_at_start(os.getpid()) or 0) <= _KEPT * piece_bytes:
        return False
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)
    return True


def anonymous_bytes() -> int | None:
    """What the process has that is not a file; None where the system does not say."""
    try:
        fields = _STATM.read_text().split()
    except OSError:
        return None
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


@lru_cache(maxsize=1)
def _at_start(process: int) -> int | None:
    """What the process had when it first asked; workers are forked, so it is known by the process."""
    del process
    return anonymous_bytes()


@lru_cache(maxsize=1)
def _trim() -> Any:
    """The C library's own way to give back; None where it has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
