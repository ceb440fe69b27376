"""The local disk as far as a power failure is concerned: what was written, and what is surely there.

Files are written as they come and remembered; `settle` has the disk take all of them, several at once, before somebody
names one of them in what he reports or commits; `begin` has it begin with that, while other work goes on. A name is as
sure as its folder: `sync_folders` takes these. With `durability = "process"` nobody waits for the disk: a process may
die anywhere, and only a machine may not.

Object stores have an object when its upload has ended; nothing is to be done there.

Invariant: when `settle` has returned, the content of every file that this process closed before is on the disk.
Cost: one fsync a file, up to eight at once, and one a folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

__all__ = ["begin", "settle", "sync_files", "sync_folders", "written"]

_AT_ONCE = 8
_MOST = 1 << 12
"""So many files are remembered; where nobody settles (in tools), older ones are forgotten."""

_WAITING: dict[str, Future[None] | None] = {}
"""With who syncs it already."""


def written(path: str) -> None:
    """A file was closed, and its content may still be in memory only."""
    _WAITING[path] = None
    if len(_WAITING) > _MOST:
        _WAITING.pop(next(iter(_WAITING)))


def begin(*, durable: bool) -> None:
    """Have the disk begin with what was written so far; nobody waits for it before `settle`."""
    for path in [path for path, begun in _WAITING.items() if begun is None] if durable else ():
        _WAITING[path] = _pool(os.getpid()).submit(_sync, path)


def settle(*, durable: bool) -> None:
    """Have the disk take what this process wrote since the last time; or only forget it."""
    waiting = dict(_WAITING)
    _WAITING.clear()
    if durable:
        sync_files([path for path, begun in waiting.items() if begun is None])
        for begun in waiting.values():
            if begun is not None:
                begun.result()


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


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """Threads of this process; one that was forked has none of them."""
    del process
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="braidstream-sync")


def _sync(path: str) -> None:
    with suppress(FileNotFoundError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
