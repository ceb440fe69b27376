"""What a checkpoint belongs to, and the number of its format: `flow.json`.

    {"format": 3, "checksum": "1c291ca3", "flow": "...", "name": "...", "streams": {...}, "queries": {...}}

| format | version | what came |
| 1 | 0.1.0 | manifests in one file (`manifests/N.json`), or as trees |
| 2 | 0.2.0 | checksums of segments, staged files and of this file |
| 3 | 0.3.0 | xxh3 in the place of CRC-32 for segments, staged files, windows of functions and results |

An older one is read, and brought up to date by the first start, after a copy of its metadata (`before-format-3/`); a
newer one is refused. Results know a flow by its id, so a changed bit here is as bad as one in the state: the checksum
is of all other fields.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.state import syncing
from braidstream.state.files import Files

__all__ = ["FORMAT", "IDENTITY", "Identity", "upgrade"]

IDENTITY = "flow.json"
FORMAT = 3
_UNSEALED = 1
"""The last format without a checksum."""


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to."""

    flow: str
    """Unique: made with the checkpoint."""
    name: str
    streams: Mapping[str, Mapping[str, str]]
    """For each stream: its schema, time column and the like, as text."""
    queries: Mapping[str, str]
    """The fingerprint of each query."""

    @classmethod
    def new(cls, name: str, streams: Mapping[str, Mapping[str, str]], queries: Mapping[str, str]) -> Identity:
        """The identity of a checkpoint about to be made."""
        return cls(uuid.uuid4().hex, name, streams, queries)

    @classmethod
    def read(cls, files: Files) -> Identity:
        """That of a checkpoint; FileNotFoundError when there is none."""
        content = files.read(IDENTITY)
        try:
            plain = json.loads(content)
            number = _checked_format(files, plain)
            if number > _UNSEALED and plain.pop("checksum") != _checksum({"format": number, **plain}):
                raise ValueError("its checksum does not fit")
            return cls(**plain)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedState(files.path(IDENTITY), f"the checkpoint's identity is damaged ({error})") from None

    def write(self, files: Files) -> None:
        """Write it, or replace what is there."""
        plain = {"format": FORMAT, **self.__dict__}
        sealed = {"format": FORMAT, "checksum": _checksum(plain), **self.__dict__}
        files.replace(IDENTITY, json.dumps(sealed, indent=1).encode())

    def check(self, other: Identity, where: str) -> None:
        """Refuse `other`, a flow about to start, when this checkpoint belongs to something else."""
        for what, ours, theirs in (("query", self.queries, other.queries), ("stream", self.streams, other.streams)):
            for name in sorted({*ours, *theirs}):
                if ours.get(name) != theirs.get(name):
                    raise CheckpointMismatch(
                        f"the checkpoint {where} belongs to another flow: {what} {name!r} "
                        + _difference(ours.get(name), theirs.get(name)),
                        "the same streams and queries as when the checkpoint was made",
                        "start with a new checkpoint folder, or undo the change",
                    )


def upgrade(files: Files, folders: tuple[str, ...]) -> int | None:
    """Bring an older checkpoint up to date, after a copy of its metadata; its format before, None if it is of today.

    The identity is the last that is copied, and the last that is changed: a start that dies here is repeated.
    """
    try:
        number = int(json.loads(files.read(IDENTITY))["format"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    if number >= FORMAT:
        return None
    copies, identity = f"before-format-{FORMAT}", Identity.read(files)
    files.make(*(f"{copies}/{folder}" for folder in folders))
    names = [f"{folder}/{name}" for folder in folders for name in files.names(folder)]
    for name in (*names, IDENTITY):
        files.replace(f"{copies}/{name}", files.read(name))
    if files.has_renames:
        syncing.sync_folders(files.path(folder) for folder in (*(f"{copies}/{own}" for own in folders), copies, ""))
    identity.write(files)
    return number


def _checked_format(files: Files, plain: dict[str, Any]) -> int:
    number = plain.pop("format")
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"its format is {number!r}")
    if number > FORMAT:
        raise CheckpointMismatch(
            f"{files.path(IDENTITY)}: the checkpoint is of format {number}",
            f"a format that this version knows: up to {FORMAT}",
            "use the version of braidstream that wrote it, or a later one",
        )
    return number


def _checksum(plain: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(plain, sort_keys=True).encode()):08x}"


def _difference(ours: Any, theirs: Any) -> str:
    if ours is None:
        return "is not in it"
    if theirs is None:
        return "is in it, but not in this flow"
    if isinstance(ours, Mapping):
        fields = (
            f"{key} is {theirs.get(key)!r}, there {ours.get(key)!r}" for key in ours if ours[key] != theirs.get(key)
        )
        return "differs: " + "; ".join(fields)
    return "is another query"
