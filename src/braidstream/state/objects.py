"""Folders in an object store (S3), with what such a store has in the place of renames: puts that are conditional.

    manifests/0000000008.root      `add` creates it (If-None-Match), so one process commits epoch 7
    manifests/0000000009.root      while its owner only claims it: 40 bytes that no reader takes for a file

An object is seen when it is complete, and a listing shows what is there. `add` creates an object or fails. `replace`
looks at the object, then at the lease, then puts on the condition that the object is still the one it saw (If-Match).
So what an owner of the past puts came before the takeover, or fails, provided that its successor writes the same object
when it takes over: `Checkpoint` does so with the last root, and claims the next one (`claim`).

Some names come again after a rollback: roots, the marks of whole epochs, the intent of a rollback. Such an object is
added over a claim of one's own, which is made before the look at the lease and is gone once a successor has claimed the
name. It is taken away by a claim in its place, on the condition that it is the one that was seen before that look
(`take_away`). So a late put or delete by an owner of the past fails, or finds its own work. Claims stay, but for those
of roots below the oldest one: no rollback goes back to before it, so these names never come again (`forget_claim`).

A put whose answer was lost may have been done: what is there is compared, and only then done again. Other deletes have
no condition. They are of names that were listed, or committed as dropped, while the lease was held, and that never come
again, so late ones take nothing from a successor.

Settings are the environment's, as other clients have them: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and so on.
Cost: one request for each call, two for `replace`, and for `add` of a name that comes again; a rename is a copy by the
server, and a delete.
"""

from __future__ import annotations

import errno
import io
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store
from pyarrow import fs

from braidstream.errors import InputError
from braidstream.replies import ANSWER_S, answer_within

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["Objects", "object_system"]

_CLAIM = b"claimed "
_CLAIM_BYTES = len(_CLAIM) + 32
_AGAIN = re.compile(r"(\.root|/_epochs/[^/]+|/rollback\.json)$")
"""Names that come again: of roots, of marks (`state.whole_epochs`), of an intent (`state.begun_rollback`)."""
_MISSING = (NotFoundError, FileNotFoundError)
"""obstore raises the one or the other, by version."""
_FORBIDDEN = re.compile(r"status code: 40[13]\b")
_PATIENCE_S = 120.0
_PAUSE_S = 0.5
_BUFFER, _LITTLE = 8 << 20, 1 << 20
"""What is moved at once of a whole object, and of one that is read in parts."""


def object_system(root: str) -> tuple[fs.FileSystem, str]:
    """The file system and the path of an address in an object store."""
    path = root.partition("://")[2].strip("/")
    if not path:
        raise InputError(f"{root} names no bucket", "an address like s3://bucket/folder")
    return fs.PyFileSystem(Objects(_s3_store)), path


@lru_cache(maxsize=16)
def _s3_store(bucket: str) -> Any:
    endpoint = _endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    client: ClientConfig = {"timeout": timedelta(seconds=30), "connect_timeout": timedelta(seconds=5)}
    retry: RetryConfig = {"retry_timeout": timedelta(seconds=_PATIENCE_S), "max_retries": 20}
    retry["backoff"] = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2}
    client["allow_http"] = endpoint.startswith("http://")
    return S3Store(bucket, region=region, client_options=client, retry_config=retry, **options)


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


class Objects(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system for pyarrow over the stores of buckets; a path is `bucket/key`."""

    def __init__(self, store: Callable[[str], Any]) -> None:
        self._store = store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objects) and other._store is self._store

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._store)

    # What `Files` asks beyond a file system

    def add(self, path: str, content: bytes, check: Callable[[], None]) -> None:
        """Create an object; FileExistsError when it is there.

        Where the name comes again, over a claim of one's own, if `check` refuses nothing once that is made; a claim
        that another has made void is made anew.
        """
        if not _AGAIN.search(path):
            if self._put_if(path, content, "create") is None:
                raise FileExistsError(path)
            return
        is_there = False
        while not is_there:
            try:
                tag = self.claim(path)
            except FileExistsError:
                if self._tag_if_ours(path, content) is None:
                    raise
                return
            check()
            is_there = self._put_if(path, content, {"e_tag": tag}) is not None

    def claim(self, path: str) -> str:
        """Take a name for an object to come: who looked before, or has no lease, cannot create it. Gives its tag.

        An earlier claim is void. FileExistsError when the object is there.
        """
        mine = _new_claim()
        while True:
            seen = self._seen(path)
            if seen is not None and not _is_claim(path, seen["size"]):
                raise FileExistsError(path)
            tag = self._put_if(path, mine, "create" if seen is None else {"e_tag": seen["e_tag"]})
            if tag is not None:
                return tag

    def take_away(self, path: str, check: Callable[[], None]) -> None:
        """Put a claim in the place of an object, or of another's claim, if it was there before `check`.

        Whoever is about to create it, or to take it away, then fails.
        """
        is_gone = False
        while not is_gone:
            expected = self.tag(path)
            check()
            mode = "create" if expected is None else {"e_tag": expected}
            is_gone = self._put_if(path, _new_claim(), mode) is not None

    def forget_claim(self, path: str) -> None:
        """Delete a claim on a name that never comes again."""
        seen = self._seen(path)
        if seen is not None and _is_claim(path, seen["size"]):
            self.delete_file(path)

    def comes_again(self, path: str) -> bool:
        """Whether there may be another object of that name after a rollback."""
        return _AGAIN.search(path) is not None

    def replace(self, path: str, content: bytes, check: Callable[[], None], tag: str | None = None) -> None:
        """Put an object if it is the one that was there before `check`, which refuses who may not.

        With a tag, only if it is the object of that tag; FileExistsError when it is another one.
        """
        while True:
            expected = tag or self.tag(path)
            check()
            if self._put_if(path, content, "create" if expected is None else {"e_tag": expected}) is not None:
                return
            if tag is not None:
                raise FileExistsError(path)

    def tag(self, path: str) -> str | None:
        """What tells an object from those before and after it under its name; None when there is none."""
        seen = self._seen(path)
        return None if seen is None else str(seen["e_tag"])

    def ask(self, path: str) -> None:
        """What is in a folder is asked for, with little patience: OSError where no answer comes, or a refusal."""
        shown = _endpoint() or "Amazon's own address"
        try:
            answer_within(ANSWER_S, lambda: self._one_below(path))
        except futures.TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"S3 at {shown} does not answer within {ANSWER_S:g} s", path) from None
        except OSError as error:
            if "error sending request" not in str(error):
                raise
            raise TimeoutError(errno.ETIMEDOUT, f"S3 at {shown} cannot be reached", path) from None

    def _put_if(self, path: str, content: bytes, mode: Any) -> str | None:
        """The tag of the object that was put; None where the condition does not hold."""
        store, key = self._at(path)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with _told(path):
                try:
                    return str(obstore.put(store, key, content, mode=mode, use_multipart=False)["e_tag"])
                except (AlreadyExistsError, PreconditionError, *_MISSING) as error:
                    if mode == "create" and isinstance(error, _MISSING):
                        raise  # there is no such bucket
                    return self._tag_if_ours(path, content)
                except GenericError as error:  # also a conflict of two puts, and an answer that was lost
                    ours = self._tag_if_ours(path, content)
                    if ours is not None or time.monotonic() >= deadline or _is_lasting(error):
                        if ours is None:
                            raise
                        return ours
            time.sleep(_PAUSE_S)

    def _tag_if_ours(self, path: str, content: bytes) -> str | None:
        store, key = self._at(path)
        try:
            found = obstore.get(store, key)
            return str(found.meta["e_tag"]) if bytes(found.bytes()) == content else None
        except _MISSING:
            return None

    def _at(self, path: str) -> tuple[Any, str]:
        bucket, _, key = path.partition("/")
        return self._store(bucket), key

    def _seen(self, path: str) -> Any:
        store, key = self._at(path)
        with _told(path):
            try:
                return obstore.head(store, key) if key else None
            except _MISSING:
                return None

    # The file system

    def get_type_name(self) -> str:
        """For people."""
        return "braidstream-objects"

    def normalize_path(self, path: str) -> str:
        """As it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Objects, and folders that have any."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        seen = self._seen(path)
        if seen is not None and not _is_claim(path, seen["size"]):
            return _info_of(path, seen)
        folders, files = self._listed(path)
        return fs.FileInfo(path, fs.FileType.Directory if folders or files else fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """What is in a folder, not below it."""
        folders, files = self._listed(selector.base_dir)
        made = [fs.FileInfo(name, fs.FileType.Directory) for name in folders]
        return made + [_info_of(name, seen) for name, seen in files.items()]

    def _listed(self, path: str) -> tuple[list[str], dict[str, Any]]:
        store, key = self._at(path.rstrip("/"))
        bucket = path.partition("/")[0]
        with _told(path):
            found = obstore.list_with_delimiter(store, f"{key}/" if key else None)
        folders = [f"{bucket}/{name.rstrip('/')}" for name in found["common_prefixes"]]
        files = {f"{bucket}/{one['path']}": one for one in found["objects"] if one["path"] != key}
        return folders, {name: seen for name, seen in files.items() if not _is_claim(name, seen["size"])}

    def create_dir(self, path: str, recursive: bool) -> None:
        """Folders are there when something is in them."""
        del recursive
        self._at(path)

    def delete_dir(self, path: str) -> None:
        """Delete all objects below."""
        store, _ = self._at(path)
        with _told(path):
            obstore.delete(store, self._below(path))

    delete_dir_contents = delete_dir

    def _below(self, path: str) -> list[str]:
        store, key = self._at(path.rstrip("/"))
        with _told(path):
            return [str(one["path"]) for part in obstore.list(store, f"{key}/") for one in part]

    def _one_below(self, path: str) -> None:
        """One request, however much there is."""
        store, key = self._at(path.rstrip("/"))
        with _told(path):
            next(iter(obstore.list(store, f"{key}/" if key else None, chunk_size=1)), None)

    def delete_root_dir_contents(self) -> None:
        """Refused."""
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        """Delete an object, if it is there."""
        store, key = self._at(path)
        with _told(path):
            try:
                obstore.delete(store, key)
            except _MISSING:
                return

    def move(self, src: str, dest: str) -> None:
        """Copy, then delete: an object, or all below a folder."""
        if self._seen(src) is not None:
            self.copy_file(src, dest)
            self.delete_file(src)
            return
        self.copy_folder(src, dest)
        self.delete_dir(src)

    def copy_folder(self, src: str, dest: str) -> None:
        """Copy all objects below a folder, within its bucket."""
        names, bucket = self._below(src), src.partition("/")[0]
        if not names:
            raise FileNotFoundError(src)
        for name in names:
            with suppress(FileNotFoundError):  # it has gone since, or is what other clients mark a folder by
                self.copy_file(f"{bucket}/{name}", dest + f"{bucket}/{name}"[len(src) :])

    def copy_file(self, src: str, dest: str) -> None:
        """By the server, within a bucket."""
        (store, key), (_, new) = self._at(src), self._at(dest)
        with _told(src):
            obstore.copy(store, key, new)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """An object from its beginning: a small one in memory, of others a part at a time."""
        store, key = self._at(path)
        with _told(path):
            found = obstore.get(store, key)
            if _is_claim(path, found.meta["size"]):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if found.meta["size"] <= _BUFFER:
                return pa.BufferReader(pa.py_buffer(found.bytes()))
        return self._parts(path, _BUFFER)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """An object to read parts of."""
        return self._parts(path, _LITTLE)

    def _parts(self, path: str, at_once: int) -> pa.NativeFile:
        store, key = self._at(path)
        with _told(path):
            return pa.PythonFile(_Opened(obstore.open_reader(store, key, buffer_size=at_once), path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """A new object, which is there when it is closed."""
        del metadata
        store, key = self._at(path)
        with _told(path):
            return pa.PythonFile(_Opened(obstore.open_writer(store, key, buffer_size=_BUFFER), path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Refused: objects do not grow."""
        raise NotImplementedError


class _Opened(io.RawIOBase):
    """obstore's reader or writer, as Python knows files."""

    def __init__(self, opened: Any, path: str) -> None:
        self._opened, self._path = opened, path

    def readable(self) -> bool:
        return hasattr(self._opened, "read")

    def writable(self) -> bool:
        return hasattr(self._opened, "write")

    def seekable(self) -> bool:
        return hasattr(self._opened, "seek")

    def read(self, size: int = -1) -> bytes:
        with _told(self._path):
            return bytes(self._opened.read(None if size < 0 else size))

    def write(self, content: Any) -> int:
        with _told(self._path):
            return int(self._opened.write(bytes(content)))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._opened.seek(offset, whence))

    def tell(self) -> int:
        return int(self._opened.tell())

    def close(self) -> None:
        if not self.closed:
            super().close()
            with _told(self._path):
                self._opened.close()


def _info_of(path: str, seen: Any) -> fs.FileInfo:
    return fs.FileInfo(path, fs.FileType.File, size=seen["size"], mtime=seen["last_modified"])


def _is_claim(path: str, size: int) -> bool:
    return size == _CLAIM_BYTES and _AGAIN.search(path) is not None


def _new_claim() -> bytes:
    return _CLAIM + uuid.uuid4().hex.encode()


def _is_lasting(error: Exception) -> bool:
    """Whether to ask again would not help."""
    return any(text in str(error) for text in ("NoSuchBucket", "InvalidBucketName", "NotImplemented"))


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Errors of the store as those of a file system, with the path."""
    try:
        yield
    except _MISSING:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except (PermissionDeniedError, UnauthenticatedError):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path) from None
    except BaseError as error:
        text = " ".join(str(error).split())  # listing tells neither from other failures
        if "<Code>NoSuchBucket<" in text:
            raise FileNotFoundError(errno.ENOENT, f"there is no bucket {path.partition('/')[0]}", path) from None
        if _FORBIDDEN.search(text):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path) from None
        raise OSError(errno.EIO, text[:300], path) from error
