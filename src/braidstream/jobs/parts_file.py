"""`parts.json`, in the checkpoint of a job with functions and queries: its parts, what feeds what, and from where.

    {"parts": ["0-functions-spectra", "1-queries"],
     "feeds": {"spectra": "0-functions-spectra in ck/feeds/spectra/files"}}

It says that all feeds are there, so it is written after them, and on the disk before anything of a part is.

Invariant: a process that dies while it is written leaves a checkpoint that can be made. Cost: one small file, once.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from braidstream.errors import DamagedState
from braidstream.jobs.form import FEEDS, PARTS
from braidstream.state import syncing
from braidstream.state.files import Files

__all__ = ["is_part", "others_in", "read_parts", "write_parts"]


def read_parts(root: Files) -> dict[str, Any] | None:
    """What a checkpoint was made with; None where it is none of such a job."""
    found = _content(root)
    if found is None:
        return None
    if not _is_whole(found):
        raise _damaged(root, "it has another form")
    return dict(found)


def is_part(checkpoint: Files) -> bool:
    """Whether a checkpoint is a part of such a job; somebody's file of that name beside it says nothing of that."""
    if not checkpoint.has_renames:
        return False
    place = Path(checkpoint.path("")).resolve()
    found = _content(Files(str(place.parent)))
    return _is_whole(found) and place.name in found["parts"]


def _content(root: Files) -> Any:
    if not root.has_renames or not root.exists(PARTS):
        return None  # such a job is in no object store
    try:
        return json.loads(root.read(PARTS))
    except ValueError as error:
        raise _damaged(root, str(error)) from None


def _damaged(root: Files, why: str) -> DamagedState:
    return DamagedState(root.path(PARTS), f"what the parts of the job are is damaged ({why})")


def _is_whole(found: Any) -> bool:
    if not isinstance(found, Mapping):
        return False
    parts, feeds = found.get("parts"), found.get("feeds")
    has_parts = isinstance(parts, list) and all(isinstance(one, str) for one in parts)
    return has_parts and isinstance(feeds, Mapping) and all(isinstance(one, str) for one in feeds.values())


def write_parts(root: Files, described: Mapping[str, Any]) -> None:
    """Write it, and have the disk take that it is there."""
    root.make("")
    root.replace(PARTS, json.dumps(described).encode())
    syncing.sync_folders(root.path(name) for name in ("", ".."))


def others_in(root: Files) -> Collection[str]:
    """What else is in the folder, but for feeds and what was left of an attempt to write the file."""
    return {one for one in (*root.names(""), *root.folders("")) if one != FEEDS and not one.startswith(f".{PARTS}.")}
