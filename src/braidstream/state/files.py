"""Access to a folder on any file system that pyarrow reaches, given by path or URI.

Local folders are memory-mapped, so opening a segment copies nothing. Elsewhere a file is fetched once into a local copy
in the executor's temporary folder and mapped from there; `fetched` counts those misses. State that an executor wrote
stays there as a copy, so a slot that stays where it is misses nothing (`state.copies`). A copy may be lost or torn with
the machine: who finds that it does not fit its checksum gives it up for the file itself (`forget`). Files are written
under a name of their own and never changed, except manifests, which are replaced atomically (write beside, then
rename).

With a gate, a folder that its owner may lose (`state.lease`), every change is one rename or link out of the gate or
into it. When the gate is gone nothing is changed, and `LeaseLost` is raised. In S3 puts are conditional instead
(`state.objects`); what else pyarrow reaches has neither.

`copy+file:///path` names a local folder that is treated like a remote one; the tests use it.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from braidstream.errors import DamagedState, InputError, LeaseLost, RunError
from braidstream.state import copies

if TYPE_CHECKING:
    from braidstream.state.objects import Objects

__all__ = ["COPY", "Files", "unwritable"]

COPY = "copy+"
_CHUNK = 1 << 24
_LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_OBJECTS = ("s3://", "s3a://")
_LOST = (errno.EIO, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENXIO, errno.EBADMSG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Files:
    """A folder. Paths given to its methods are relative to it. `run`: the start of a flow that it is opened in."""

    def __init__(self, root: str, cache: str | None = None, run: str | None = None) -> None:
        self.root, self.run = root, run
        self._system, self._base = _resolve(root.removeprefix(COPY))
        self.is_local = isinstance(self._system, fs.LocalFileSystem) and not root.startswith(COPY)
        own = hashlib.sha256(self._base.encode()).hexdigest()[:16]
        self._cache = Path(cache or tempfile.gettempdir()) / "braidstream-copies" / own
        self.fetched = 0
        self.direct = False
        """Whether copies are passed by: for who asks what is there, and not what is here."""
        self.gate: str | None = None
        self.check: Callable[[], None] = lambda: None
        """Refuses an owner who has lost the folder; asked before objects are replaced."""
        self._expected: dict[str, str | None] = {}
        """Tags of objects."""

    @property
    def has_renames(self) -> bool:
        """Whether a rename is one step: on file systems, not on object stores."""
        return isinstance(self._system, fs.LocalFileSystem)

    @property
    def objects(self) -> Objects | None:
        """The object store, if it is one whose puts may be conditional."""
        return self._system.handler if isinstance(self._system, fs.PyFileSystem) else None

    def ask(self) -> None:
        """Of an object store: OSError where it does not answer soon, has no such bucket, or refuses to list it."""
        if self.objects is not None:
            self.objects.ask(self._base)

    def path(self, name: str) -> str:
        """The path that the file system knows."""
        return f"{self._base}/{name}" if name else self._base

    def address(self, name: str) -> str:
        """The path as Spark knows it."""
        return self.path(name) if self.objects is None else f"s3a://{self.path(name)}"

    def make(self, *names: str) -> None:
        """Create folders."""
        for name in names:
            self._system.create_dir(self.path(name), recursive=True)

    def exists(self, name: str = "") -> bool:
        """Whether a file or folder is there."""
        return bool(self._system.get_file_info(self.path(name)).type != fs.FileType.NotFound)

    def size(self, name: str) -> int | None:
        """The size of a file, None when it is missing."""
        info = self._system.get_file_info(self.path(name))
        return info.size if info.type == fs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """The files in a folder, sorted; empty when there is no such folder."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        return sorted(info.base_name for info in self._system.get_file_info(selector) if info.is_file)

    def sizes(self, folder: str) -> dict[str, int]:
        """The files in a folder with their sizes."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        return {info.base_name: info.size for info in self._system.get_file_info(selector) if info.is_file}

    def listed(self) -> list[fs.FileInfo]:
        """All files below the root, however deep; the root itself where it is a file."""
        root = self._system.get_file_info(self.path(""))
        if root.is_file:
            return [root]
        selector = fs.FileSelector(self.path(""), allow_not_found=True, recursive=True)
        return [info for info in self._system.get_file_info(selector) if info.is_file]

    def stamps(self, folder: str) -> dict[str, tuple[int, int]]:
        """The files in a folder with their sizes, and when they were modified, in nanoseconds."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        found = (info for info in self._system.get_file_info(selector) if info.is_file)
        return {info.base_name: (info.size, info.mtime_ns or 0) for info in found}

    def folders(self, folder: str) -> list[str]:
        """The folders in a folder, sorted; empty when there is no such folder."""
        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        found = self._system.get_file_info(selector)
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def read(self, name: str) -> bytes:
        """All of a file; `DamagedState` where the disk does not give it."""
        with self.legible(name), self._system.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def content(self, name: str, fits: Callable[[bytes], bool]) -> bytes:
        """All of a file that is never changed; a copy that does not fit is given up for the file itself."""
        if self.is_local or self.direct:
            return self.read(name)
        found = self._copied(name)
        return self._copied(name) if not fits(found) and self.forget(name) else found

    def _copied(self, name: str) -> bytes:
        with self.map(name) as copy:
            return bytes(copy.read())

    @contextmanager
    def legible(self, name: str) -> Iterator[None]:
        """What a disk cannot read, or may not, is damaged; other errors are of the network, or pass."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if not self.has_renames or error.errno not in _LOST:
                raise
            raise DamagedState(
                self.path(name),
                f"this file cannot be read ({os.strerror(error.errno)})",
                "look at the disk and the file's permissions; else restore it from a copy. Nothing was changed",
            ) from error

    def open(self, name: str) -> pa.NativeFile:
        """A file to read parts of, such as its footer: nothing is fetched that is not asked for."""
        return self._system.open_input_file(self.path(name))

    def replace(self, name: str, content: bytes, gate: str | None = None) -> None:
        """Write a file so that others see the old content or the new, never a part."""
        if self.objects is not None:
            self.objects.replace(self.path(name), content, self.check, self._expected.pop(name, None))
            return
        if not self.has_renames:
            with self._system.open_output_stream(self.path(name)) as stream:
                stream.write(content)  # object stores show an object when it is complete
            return
        with self._through(gate or self.gate):
            self._beside(name, content, gate or self.gate).replace(self.path(name))

    def note(self, name: str, content: bytes) -> None:
        """Write a file that may be lost with the machine: as `replace`, but nothing waits for the disk."""
        if not self.has_renames:
            self.replace(name, content)
            return
        with self._through(self.gate):
            self._beside(name, content, self.gate, sync=False).replace(self.path(name))

    def expect(self, name: str) -> None:
        """Let the next `replace` of an object fail, FileExistsError, if it is not the one that is there now."""
        if self.objects is not None:
            self._expected[name] = self.objects.tag(self.path(name))

    def claim(self, name: str) -> None:
        """Let nobody but this folder's owner add an object; FileExistsError when it is there already."""
        if self.objects is not None:
            self.objects.claim(self.path(name))

    def add(self, name: str, content: bytes) -> None:
        """Write a file that is not there yet; FileExistsError when it is, and then it stays as it is."""
        if self.objects is not None:
            self.objects.add(self.path(name), content, self.check)
            return
        if not self.has_renames:
            if self.exists(name):
                raise FileExistsError(self.path(name))
            self.replace(name, content)
            return
        with self._through(self.gate):
            beside = self._beside(name, content, self.gate)
            try:
                Path(self.path(name)).hardlink_to(beside)
            except OSError as error:
                if error.errno not in _NO_LINKS or self.exists(name):
                    raise
                beside.replace(self.path(name))
            finally:
                beside.unlink(missing_ok=True)

    def _beside(self, name: str, content: bytes, gate: str | None, *, sync: bool = True) -> Path:
        """The content in a file of the same file system, on its way."""
        target = Path(self.path(name))
        beside = (target.parent if gate is None else Path(self.path(gate))) / f".{target.name}.{uuid.uuid4().hex}"
        with beside.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        return beside

    @contextmanager
    def _through(self, gate: str | None) -> Iterator[None]:
        """What fails because the gate is gone fails for that reason."""
        try:
            yield
        except FileNotFoundError:
            if gate is not None and not self.exists(gate):
                raise LeaseLost(self.root) from None
            raise

    def create(self, name: str) -> pa.NativeFile:
        """Open a new file for writing."""
        return self._system.open_output_stream(self.path(name), compression=None)

    @contextmanager
    def creating(self, name: str) -> Iterator[pa.NativeFile]:
        """A new file to write; of a remote one a local copy stays, for who writes state is who reads it next."""
        if self.is_local:
            with self.create(name) as sink:
                yield sink
            return
        with self._new_copy(name) as beside:
            with pa.OSFile(str(beside), "wb") as sink:
                yield sink
            with beside.open("rb") as source, self.create(name) as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)

    def reading(self, name: str) -> pa.NativeFile:
        """A file to read from its beginning, piece by piece; of a remote one the copy, unless they are passed by."""
        if self.is_local or self.direct:
            return self._system.open_input_stream(self.path(name), compression=None)
        return self.map(name)

    def map(self, name: str) -> pa.NativeFile:
        """Open a file for reading, memory-mapped; a remote one is fetched first."""
        if self.is_local:
            return pa.memory_map(self.path(name))
        if self.direct:
            return self.open(name)
        copy = self._cache / name
        with suppress(FileNotFoundError):  # it may go at any time
            copies.used(copy)
            return pa.memory_map(str(copy))
        return self._fetched(name)

    def is_here(self, name: str) -> bool:
        """Whether a look at a file fetches nothing."""
        return self.is_local or (not self.direct and (self._cache / name).exists())

    def forget(self, name: str) -> bool:
        """Give up the local copy of a file, which may be torn; whether there are copies at all."""
        if self.is_local or self.direct:
            return False
        (self._cache / name).unlink(missing_ok=True)
        return True

    def move(self, name: str, other: Files, new_name: str) -> None:
        """Move a file to another folder of the same file system."""
        with self._through(self.gate):
            self._system.move(self.path(name), other.path(new_name))

    def delete(self, name: str) -> None:
        """Delete a file, or do nothing when it is gone; also its local copy."""
        if self.objects is not None and self.objects.comes_again(self.path(name)):
            if self.exists(name):
                self.bar(name)
        else:
            with suppress(FileNotFoundError):
                self._system.delete_file(self.path(self._taken(name)))
        (self._cache / name).unlink(missing_ok=True)

    def bar(self, name: str) -> None:
        """In an object store: no object of that name is there, nor is one added by who was about to do it."""
        if self.objects is not None:
            self.objects.take_away(self.path(name), self.check)

    def forget_claim(self, name: str) -> None:
        """In an object store: delete what is left of a name that was deleted and never comes again."""
        if self.objects is not None:
            self.objects.forget_claim(self.path(name))

    def _taken(self, name: str) -> str:
        """The name of a file or folder after it was moved into the gate, out of everybody's sight."""
        if self.gate is None or not self.has_renames:
            return name
        taken = f"{self.gate}/{uuid.uuid4().hex}"
        with self._through(self.gate):
            Path(self.path(name)).rename(self.path(taken))
        return taken

    def drop_copies(self) -> None:
        """Drop the local copies of files that are gone, but none that is fresh: others may be at it."""
        if self.is_local or not self._cache.exists():
            return
        before, there = time.time() - copies.FRESH_S, dict[str, set[str]]()
        for copy in self._cache.rglob("*"):
            with suppress(FileNotFoundError):
                if copy.is_file() and copy.stat().st_mtime < before:
                    folder = str(copy.parent.relative_to(self._cache))
                    if folder not in there:
                        there[folder] = set(self.names(folder))
                    if copy.name not in there[folder]:
                        copy.unlink()

    def delete_folder(self, name: str) -> None:
        """Delete a folder with all that is in it, or do nothing when it is gone."""
        try:
            self._system.delete_dir(self.path(self._taken(name)))
        except FileNotFoundError:
            return

    def _fetched(self, name: str) -> pa.NativeFile:
        """A new copy, mapped before it may go: it may be larger than all that copies may take."""
        with self._system.open_input_stream(self.path(name)) as source, self._new_copy(name) as beside:
            with beside.open("wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
            mapped = pa.memory_map(str(beside))
        self.fetched += 1
        return mapped

    @contextmanager
    def _new_copy(self, name: str) -> Iterator[Path]:
        """Where to write a local copy; it appears under its name when it is complete."""
        copy = self._cache / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        beside = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}")
        try:
            yield beside
            n_bytes = beside.stat().st_size
            beside.replace(copy)
            copies.added(self._cache.parent, n_bytes)
        finally:
            beside.unlink(missing_ok=True)


def unwritable(error: OSError, root: str) -> RunError | None:
    """The error as one for the user, where it will not pass by itself: a full disk, or a folder one may not write."""
    if error.errno not in _LASTING:
        return None
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    where = error.filename or root
    return RunError(
        f"{where} cannot be written: {os.strerror(error.errno)}",
        "room on the disk" if is_full else "a folder that this process may write to",
        ("free some space" if is_full else "change its permissions")
        + ", then start again with the same checkpoint; nothing is lost",
    )


@lru_cache(maxsize=16)
def _resolve(root: str) -> tuple[fs.FileSystem, str]:
    if root.startswith(_OBJECTS):
        return _object_system(root)
    if "://" in root or root.startswith("file:"):
        one_slash = root.startswith("file:/") and not root.startswith("file://")
        try:
            system, base = fs.FileSystem.from_uri(root.replace("file:", "file://", 1) if one_slash else root)
        except pa.ArrowInvalid as error:
            raise InputError(f"{root}: {error}", "a path, or an address like s3://bucket/folder") from None
        return system, base.rstrip("/")
    return fs.LocalFileSystem(), str(Path(root).absolute())


def _object_system(root: str) -> tuple[fs.FileSystem, str]:
    if importlib.util.find_spec("obstore") is None:
        raise InputError(
            f"{root}: folders in S3 need the package obstore, which is not installed",
            "the extra braidstream[s3], here and on every executor",
            "pip install 'braidstream[s3]'",
        )
    from braidstream.state.objects import object_system  # noqa: PLC0415  (an extra)

    return object_system(root)
