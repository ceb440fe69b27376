"""Local copies of remote files: no more than a disk has room for.

An executor keeps what it wrote and what it fetched, so a slot that stays where it is fetches nothing. When the copies
of all checkpoints on a machine exceed the limit, those that were not used for longest go, down to nine tenths of it. A
copy that somebody has mapped stays readable for him; who asks for it later fetches it again, which progress counts.
What another process is just writing (names that begin with a dot) stays.

Cost: a walk over the copies after each tenth of the limit that this process has added.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["FRESH_S", "LIMIT_VARIABLE", "added", "trim", "used"]

LIMIT_VARIABLE = "BRAIDSTREAM_COPIES_MB"
"""How much of a machine's disk local copies may take, in MB."""
_LIMIT_MB = 10_240
FRESH_S = 600.0
"""For so long after the last byte of a file that is on its way somebody may be at it."""
_LOCK = threading.Lock()
_SINCE: dict[Path, int] = {}
"""What was added to a folder of copies since it was last walked over; nothing is known of one that is missing."""


def used(copy: Path) -> None:
    """Remember that a copy is in use; FileNotFoundError when it is gone."""
    os.utime(copy)


def added(folder: Path, n_bytes: int) -> None:
    """After a copy has come into a folder of copies: let the oldest go if there are too many."""
    limit = int(float(os.environ.get(LIMIT_VARIABLE, _LIMIT_MB)) * (1 << 20))
    with _LOCK:
        since = _SINCE.get(folder)
        if since is not None and since + n_bytes < limit // 10:
            _SINCE[folder] = since + n_bytes
            return
        _SINCE[folder] = 0
    trim(folder, limit)


def trim(folder: Path, limit: int) -> int:
    """Remove the copies that were not used for longest, if all of them exceed the limit; gives how many went."""
    found, fresh = sorted(_copies(folder)), time.time() - FRESH_S
    total, n_gone = sum(size for _, size, _ in found), 0
    if total <= limit:
        return 0
    for used_at, size, copy in found:
        if total <= limit * 9 // 10:
            break
        if Path(copy).name.startswith(".") and used_at > fresh:
            continue
        Path(copy).unlink(missing_ok=True)
        total, n_gone = total - size, n_gone + 1
    return n_gone


def _copies(folder: Path) -> Iterator[tuple[float, int, str]]:
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                one = os.stat(f"{path}/{name}")  # noqa: PTH116  (a path object for each of many files is slow)
                yield one.st_mtime, one.st_size, f"{path}/{name}"
