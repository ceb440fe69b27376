"""A stream whose files come from another folder than those its checkpoint has read.

When the path of a file source changes, Spark fails at the start (`Wrong basePath`) if the last epoch had files of it,
and otherwise goes on without a word: its offsets only count, and its log of files only says which are known, so files
that were moved along are new, and are joined a second time. Both are refused before anything starts.

Cost: two small files of Spark's log for each stream of files. What cannot be read is not judged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from braidstream.errors import CheckpointMismatch
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files

__all__ = ["moved_streams", "refuse_moved_streams"]

_WILD = "*?[{"
_LOG = "_spark_metadata"


def refuse_moved_streams(store: Checkpoint, paths: Mapping[str, str | None], shown: str) -> None:
    """Refuse a stream that reads from another folder; `paths` has all streams, in the order of declaration."""
    for name, path, before in moved_streams(store, paths):
        raise CheckpointMismatch(
            f"stream {name!r} reads {path}, and the checkpoint {shown} has read {before}",
            "the folder that it has read: files elsewhere would be new to it, and joined again",
            "use the old path (a link in its place will do), or start with a new checkpoint folder",
        )


def moved_streams(store: Checkpoint, paths: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """The name of each such stream, its path, and the folder that was read before."""
    found = []
    for place, (name, path) in enumerate(paths.items()):
        last = None if path is None else _last_read(store.files, f"{store.log.folder}/sources/{place}")
        if path is None or last is None or any(c in path for c in _WILD):
            continue
        if (Path(path) / _LOG).is_dir():  # it is read by a log of files that may be anywhere
            continue
        own = _plain(path).rstrip("/")
        if not last.startswith(f"{own}/") and _scheme(path) == _scheme(last):
            found.append((name, path, last.rpartition("/")[0]))
    return found


def _last_read(files: Files, folder: str) -> str | None:
    """A file of the newest entry in a source's log."""
    try:
        numbered = {int(name.split(".")[0]): name for name in files.names(folder) if name.split(".")[0].isdigit()}
        entries = (files.read(f"{folder}/{numbered[n]}").decode().splitlines()[1:] for n in sorted(numbered)[::-1])
        lines = next((some for some in entries if some), None)
        return None if lines is None else _plain(unquote(json.loads(lines[-1])["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _plain(path: str) -> str:
    """Without `file:`, in whatever form; local ones absolute and resolved."""
    if path.startswith("file:"):
        path = "/" + path.removeprefix("file:").lstrip("/")
    return path if "://" in path else str(Path(path).resolve())


def _scheme(path: str) -> str:
    return path.partition("://")[0] if "://" in path and not path.startswith("file:") else ""
