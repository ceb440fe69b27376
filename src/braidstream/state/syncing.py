"""The local disk as far as a power failure is concerned: what was written, and what is surely there.

Files are written as they come and remembered; `settle` has the disk take all of them, several at once, before somebody
names one of them in what he reports or commits; `begin` has it begin with that, while other work goes on. A name is as
sure as its folder: `sync_folders` takes these. With `durability = "process"` nobody waits for the disk: a process may
die anywhere, and only a machine may not.

Object stores have an object when its upload has ended; nothing is to be done there.

Several flows may run in one process, each in a thread of its own: who settles waits for all that was written before,
also for what another thread is about to sync, and who does not wait forgets what its own thread wrote.

Invariant: when `settle` has returned, the content of every file that this process closed before is on the disk.
Cost: one fsync a file, up to eight at once, and one a folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

__all__ = ["begin", "settle", "sync_files", "sync_folders", "written"]

_AT_ONCE = 8
_MOST = 1 << 12
"""So many files are remembered; where nobody settles (in tools), older ones are forgotten."""


@dataclass(frozen=True)
class _Written:
    thread: int
    begun: Future[None] | None = None
    """Who syncs it already."""


_WAITING: dict[str, _Written] = {}
_LOCK = threading.Lock()


def written(path: str) -> None:
    """A file was closed, and its content may still be in memory only."""
    with _LOCK:
        _WAITING[path] = _Written(threading.get_ident())
        if len(_WAITING) > _MOST:
            _WAITING.pop(next(iter(_WAITING)))


def begin(*, durable: bool) -> None:
    """Have the disk begin with what was written so far; nobody waits for it before `settle`."""
    if durable:
        with _LOCK:
            for path, one in _unbegun():
                _WAITING[path] = replace(one, begun=_pool(os.getpid()).submit(_sync, path))


def settle(*, durable: bool) -> None:
    """Have the disk take what this process wrote since the last time; or only forget what this thread wrote."""
    with _LOCK:
        if not durable:
            for path in [path for path, one in _WAITING.items() if one.thread == threading.get_ident()]:
                del _WAITING[path]
            return
        begun = {path: one for path, one in _WAITING.items() if one.begun is not None}
        done: Future[None] = Future()
        own = {path: replace(one, begun=done) for path, one in _unbegun()}
        _WAITING.update(own)
    try:
        sync_files(own)
        done.set_result(None)
        for one in begun.values():
            if one.begun is not None:
                one.begun.result()
    finally:
        if not done.done():
            done.set_exception(OSError("a file could not be synced"))
        with _LOCK:
            for path, one in (*own.items(), *begun.items()):
                if _WAITING.get(path) is one:
                    del _WAITING[path]


def _unbegun() -> list[tuple[str, _Written]]:
    return [(path, one) for path, one in _WAITING.items() if one.begun is None]


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
