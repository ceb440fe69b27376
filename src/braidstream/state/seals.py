"""Checksums of files that are written once: counted while the bytes pass, checked when a file is first opened.

Whoever names a file says its checksum there: a section that of its segments, a report that of what a slot has staged, a
root that of its sections. `check_seal` reads a file once for each process and start of a flow; what was changed, cut or
put in its place since is refused by name, before anything looks into it.

The checksum is xxh3, or CRC-32 of what format 2 wrote (`state.checksums`). `UNSEALED` stands where a version wrote the
file that had none. Cost: a pass over the bytes, tens of gigabytes a second, when they are written and when they are
first read; copying them into a small buffer, which stays in the cache, takes longer than counting them. `seal_seconds`
is the sum of both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from braidstream.errors import DamagedState
from braidstream.model.snapshots import UNSEALED
from braidstream.state import syncing
from braidstream.state.checksums import MADE_NOW, Checksum, seal_seconds, spend
from braidstream.state.files import Files

__all__ = ["SealedFile", "check_seal", "file_checksum", "seal_seconds", "sealing"]

_PIECE = 1 << 18
"""Of a file that is checked: what fits the cache of a core, since it is looked at right after it was copied."""
_SMALL = 1 << 14
"""Fewer bytes than these wait to be written and counted with others."""
_MANY = 1 << 14
"""So many files are remembered as checked."""
_CHECKED: dict[tuple[str | None, str, str, int], None] = {}


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...
    def close(self) -> None: ...


class SealedFile:
    """A file to write, as Python and Arrow do, that knows its size and checksum.

    Parquet is written in a few large pieces and dozens of some bytes; these wait for each other.
    """

    def __init__(self, sink: _Sink, path: str | None = None) -> None:
        self._sink, self._path = sink, path
        self._sum, self._small = Checksum(), bytearray()
        self.size, self.closed = 0, False

    @classmethod
    def create(cls, files: Files, name: str) -> SealedFile:
        """A new file of a folder."""
        return cls(files.create(name), files.path(name) if files.has_renames else None)

    @property
    def checksum(self) -> int:
        """Of all that was written so far."""
        self.flush()
        return self._sum.value

    def write(self, data: bytes) -> int:
        """Write all of it."""
        view = memoryview(data)
        self.size += view.nbytes
        if view.nbytes < _SMALL:
            self._small += data
            if len(self._small) >= _PIECE:
                self.flush()
        else:
            self.flush()
            self._pass(view)
        return view.nbytes

    def flush(self) -> None:
        """What waits goes on."""
        if self._small:
            waiting, self._small = bytes(self._small), bytearray()
            self._pass(waiting)

    def _pass(self, data: bytes | memoryview) -> None:
        self._sum.update(data)
        self._sink.write(data)

    def close(self) -> None:
        """Close it; what makes it durable is `syncing.settle`."""
        if not self.closed:
            self.flush()
            self.closed = True
            self._sink.close()
            if self._path is not None:
                syncing.written(self._path)


@contextmanager
def sealing(files: Files, name: str) -> Iterator[SealedFile]:
    """A new file of the state to write (`Files.creating`)."""
    with files.creating(name) as sink:
        yield (sealed := SealedFile(sink))
        sealed.flush()
        sealed.closed = True
    if files.has_renames:
        syncing.written(files.path(name))


def check_seal(
    files: Files, name: str, checksum: int, size: int | None = None, what: str = "segment", run: str | None = None
) -> None:
    """Refuse a file that is not the one that was written; once for each process and run, if one is named."""
    seen = (run, files.root, name, checksum)
    if seen in _CHECKED and files.is_here(name):  # a copy that has gone since comes again from what is there now
        return
    damage = _damage(files, name, checksum, size, what)
    if damage is not None and files.forget(name):
        damage = _damage(files, name, checksum, size, what)
    if damage is not None:
        raise damage
    if run is not None:
        _CHECKED[seen] = None
    if len(_CHECKED) > _MANY:
        del _CHECKED[next(iter(_CHECKED))]


def _damage(files: Files, name: str, checksum: int, size: int | None, what: str) -> DamagedState | None:
    """What is wrong with a file, or with its copy; of one without a checksum nothing is known."""
    if checksum == UNSEALED:
        return None
    try:
        found, n_bytes = file_checksum(files, name, checksum)
    except FileNotFoundError:
        return DamagedState(files.path(name), f"this {what} is missing")
    except DamagedState as damage:
        return damage
    if size is not None and n_bytes != size:
        return DamagedState(files.path(name), f"this {what} has {n_bytes} bytes, {size} bytes were written")
    if found != checksum:
        return DamagedState(files.path(name), f"this {what} is damaged (its checksum does not fit)")
    return None


class _Buffer(threading.local):
    """What the files that a thread checks pass through."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_PIECE))


_BUFFER = _Buffer()


def file_checksum(
    files: Files, name: str, like: int = MADE_NOW, told: Callable[[int], object] | None = None
) -> tuple[int, int]:
    """The checksum and the size of a file as it is, by the method of another checksum; `told` is told of every piece.

    It is read and not mapped: of a bad sector a read says so, a look at mapped memory ends the process.
    """
    found, size, view = Checksum(like), 0, _BUFFER.view
    with files.legible(name), files.reading(name) as source:
        while n_bytes := _read(source, view):
            found.update(view[:n_bytes])
            size += n_bytes
            if told is not None:
                told(n_bytes)
    return found.value, size


def _read(source: pa.NativeFile, view: memoryview) -> int:
    began = time.perf_counter()
    n_bytes: int = source.readinto(view)
    spend(time.perf_counter() - began)
    return n_bytes
