"""The checkpoint of a flow: a folder with an identity, Spark's offset log, manifests, and segments.

    flow.json            what the checkpoint belongs to: the flow's id, its streams and queries
    offsets/             Spark's own checkpoint of the streaming query
    manifests/N.json     one for each of the last epochs
    segments/*.arrow     state
    staged/              results on their way to a sink

Commit order: segments, results, manifest, Spark's offset commit. A crash anywhere replays the epoch from the manifest
before it; what the lost attempt wrote is an orphan, and is swept at the next start. Old manifests and the segments that
only they refer to are retired after `keep` epochs.

Nothing is deleted unless every kept manifest could be read: a damaged checkpoint stays as it is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.state import manifest as manifests
from braidstream.state import segments
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, manifest_name

__all__ = ["IDENTITY", "STAGED", "Checkpoint", "Identity"]

IDENTITY, OFFSETS, STAGED = "flow.json", "offsets", "staged"
FORMAT = 1


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


class Checkpoint:
    """A checkpoint folder."""

    def __init__(self, root: str, keep: int = 10) -> None:
        self.root, self.keep = root, keep
        self.files = Files(root)
        self._kept: dict[int, frozenset[str]] = {}

    @property
    def offsets(self) -> str:
        """Where Spark keeps its offset log."""
        base = self.root.removeprefix("copy+")
        return f"{base}/{OFFSETS}" if "://" in base else self.files.path(OFFSETS)

    def identity(self) -> Identity | None:
        """What the checkpoint belongs to; None when there is none yet."""
        try:
            plain = json.loads(self.files.read(IDENTITY))
            if plain.pop("format") != FORMAT:
                raise ValueError("it was written by another version")
            return Identity(**plain)
        except FileNotFoundError:
            if any(epoch >= 0 for epoch in Manifest.epochs(self.files)):  # else it died while it was made
                raise DamagedState(self.files.path(IDENTITY), "the checkpoint's identity is missing") from None
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedState(self.files.path(IDENTITY), f"the checkpoint's identity is damaged ({error})") from None

    def _is_unborn(self) -> bool:
        """Whether the process died while it made the checkpoint: nothing but the first manifest is there."""
        return Manifest.epochs(self.files) == [-1] and not self.files.exists(OFFSETS)

    def create(self, identity: Identity, first: Manifest) -> None:
        """Make an empty checkpoint; what Spark has logged for one that never committed an epoch does not count."""
        self.files.delete_folder(OFFSETS)
        self.files.make("", manifests.FOLDER, segments.FOLDER, STAGED)
        first.write(self.files)
        plain = {"format": FORMAT, **identity.__dict__}
        self.files.replace(IDENTITY, json.dumps(plain, indent=1).encode())

    def latest(self) -> Manifest:
        """The last committed manifest."""
        epochs = Manifest.epochs(self.files)
        if not epochs:
            raise DamagedState(self.files.path(manifests.FOLDER), "no manifest is left")
        return Manifest.read(self.files, epochs[-1])

    def committed(self, epoch: int) -> bool:
        """Whether an epoch's manifest is there."""
        return self.files.exists(manifest_name(epoch))

    def check_offsets(self, latest: int) -> None:
        """Refuse a checkpoint whose manifests and whose offset log do not fit together."""
        last, committed = self._last_in("offsets"), self._last_in("commits")
        if committed > latest:
            raise DamagedState(
                self.files.path(manifest_name(committed)),
                f"this manifest is missing: Spark's log has committed epoch {committed}, the state ends at {latest}",
            )
        if latest > last:
            raise DamagedState(
                self.files.path(OFFSETS),
                f"Spark's offset log ends at epoch {last}, the state at epoch {latest}",
                "restore both from one copy, or start again with a new checkpoint; nothing was changed",
            )
        if last > latest + 1:
            raise DamagedState(
                self.files.path(manifest_name(last - 1)),
                f"the state ends at epoch {latest}, Spark's offset log at epoch {last}",
            )

    def _last_in(self, log: str) -> int:
        """The last epoch in one of Spark's logs."""
        return max((int(name) for name in self.files.names(f"{OFFSETS}/{log}") if name.isdigit()), default=-1)

    def verify(self, latest: Manifest) -> None:
        """Refuse to start when a segment of the last manifest is missing or has another size."""
        for segment in latest.segments:
            size = self.files.size(segment.name)
            if size != segment.bytes:
                what = "is missing" if size is None else f"has {size} bytes, its manifest says {segment.bytes}"
                raise DamagedState(self.files.path(segment.name), f"this segment {what}")

    def commit(self, manifest: Manifest) -> None:
        """Write a manifest: the commit of its epoch."""
        manifest.write(self.files)
        self._kept[manifest.epoch] = _names(manifest)

    def retire(self, latest: int) -> None:
        """After a commit: drop manifests older than `keep` epochs, and the segments that only they refer to."""
        for old in sorted(epoch for epoch in self._kept if epoch <= latest - self.keep):
            for name in self._kept[old] - self._kept[old + 1]:
                self.files.delete(name)
            self.files.delete(manifest_name(old))
            del self._kept[old]

    def sweep(self) -> int:
        """At a start: delete what no kept manifest refers to. Gives the number of files deleted.

        Folders are made again: what copies a checkpoint may leave out empty ones.
        """
        self.files.make(segments.FOLDER, STAGED)
        self._kept = {epoch: _names(Manifest.read(self.files, epoch)) for epoch in Manifest.epochs(self.files)}
        kept = frozenset().union(*self._kept.values())
        orphans = [
            name
            for folder in (segments.FOLDER, STAGED)
            for name in (f"{folder}/{base}" for base in self.files.names(folder))
            if name not in kept
        ]
        for name in orphans:
            self.files.delete(name)
        return len(orphans)


def _names(manifest: Manifest) -> frozenset[str]:
    return frozenset(segment.name for segment in manifest.segments)
