"""The local disk as far as a power failure is concerned: what was written, and what is surely there.

Files are written as they come and remembered; `settle` has the disk take all of them, several at once, before somebody
names one of them in what he reports or commits. A name is as sure as its folder: `sync_folders` takes these. With
`durability = "process"` nobody waits for the disk: a process may die anywhere, and only a machine may not.

Object stores have an object when its upload has ended; nothing is to be done there.

Invariant: when `settle` has returned, the content of every file that this process closed before is on the disk.
Cost: one fsync a file, up to eight at once, and one a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

__all__ = ["settle", "sync_files", "sync_folders", "written"]

_AT_ONCE = 8
_MOST = 1 << 12
"""So many files are remembered; where nobody settles (in tools), older ones are forgotten."""

_WAITING: dict[str, None] = {}


def written(path: str) -> None:
    """A file was closed, and its content may still be in memory only."""
    _WAITING[path] = None
    if len(_WAITING) > _MOST:
        _WAITING.pop(next(iter(_WAITING)))


def settle(*, durable: bool) -> None:
    """Have the disk take what this process wrote since the last time; or only forget it."""
    waiting = list(_WAITING)
    _WAITING.clear()
    if durable:
        sync_files(waiting)


def sync_files(paths: Iterable[str]) -> None:
    """Have the disk take the content of files; one that is gone needs nothing."""
    listed = list(paths)
    if len(listed) < 2:
        for path in listed:
            _sync(path)
        return
    with ThreadPoolExecutor(min(len(listed), _AT_ONCE)) as pool:
        list(pool.map(_sync, listed))


def sync_folders(paths: Iterable[str]) -> None:
    """Have the disk take which files are in folders."""
    sync_files(dict.fromkeys(paths))


def _sync(path: str) -> None:
    with suppress(FileNotFoundError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
