"""What the kept epochs need of a checkpoint's files: ledgers say what each has dropped, so nobody compares manifests.

A ledger is written with each manifest, also with one that takes the place of another (a clean-up at the end of the
input, other queries, a start). So its name tells whether a manifest that was read is still the one of its epoch.

Invariant: a file that is not among `kept_names` is an orphan, provided that no manifest is missing in between
(`state.gaps`). Cost: the names that the last manifest refers to, and those that were dropped since the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.state import segments
from braidstream.state.files import Files
from braidstream.state.manifest import FileRef, Manifest

__all__ = ["Kept", "kept_names", "ledger_of", "written_in"]


@dataclass(frozen=True)
class Kept:
    """A kept epoch: the files of its manifest alone, and those that it has dropped, which the one before refers to."""

    own: tuple[str, ...]
    dropped: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest) -> Kept:
        """That of a manifest."""
        return cls(manifest.own_files(), manifest.dropped)


def kept_names(read: Sequence[Manifest]) -> frozenset[str]:
    """All files that kept manifests refer to: those of the last, and what each has dropped since the one before.

    Of 0.1.0's, which have no ledgers, all.
    """
    found: set[str] = set()
    for manifest in read:
        found |= set(manifest.own_files())
        if manifest is read[-1] or manifest.ledger is None:
            found |= set(manifest.shared_files())
        if manifest is not read[0]:
            found |= manifest.dropped
    return frozenset(found)


def ledger_of(files: Files, epoch: int) -> FileRef | None:
    """The ledger of the manifest that an epoch has now; None where there is none, or one that cannot be read."""
    try:
        return Manifest.read(files, epoch, whole=False).ledger
    except (DamagedState, CheckpointMismatch):
        return None


def written_in(name: str) -> int:
    """The epoch in which a file was written, by its name; -2 where that does not tell."""
    folder, _, base = name.rpartition("/")
    number = base.partition("-")[0]
    return int(number) - (folder != segments.FOLDER) if number.isdecimal() else -2
