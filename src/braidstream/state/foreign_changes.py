"""Results that somebody else has deleted or changed since they were delivered, as far as the checkpoint knows them.

Every ledger names the files that its epoch has put into folders, with size, time of modification and checksum; so the
results of the last `keep` epochs are known, and older ones are the user's. A start looks at names, sizes and times, and
reads a file only where its time is another one: a copy that was put back is no change.

A file that slots wrote has the checksum that they reported. One that Spark wrote is read once more when it has been
delivered (`sealed`), while it is still in memory; on object stores, where that would be a download, it has none, and of
such only another size is told.

Nothing is refused and nothing is repaired: results belong to the user. Cost: a listing of each folder, and the files
that were touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from braidstream.errors import DamagedState
from braidstream.model.snapshots import UNSEALED, Placed
from braidstream.model.values import changed
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.seals import file_checksum

__all__ = ["foreign_changes", "sealed"]

_SHOWN = 3
_AT_ONCE = 8
_OWNED = "_braidstream.json"


def foreign_changes(files: Files) -> tuple[str, ...]:
    """What to say of folders of results, a line each; `files` is the checkpoint."""
    known: dict[str, dict[str, Placed]] = {}
    for epoch in Manifest.epochs(files):
        for folder, placed in _delivered(files, epoch).items():
            known.setdefault(folder, {}).update({one.name: one for one in placed})
    return tuple(line for folder, own in known.items() if (line := _told(folder, own)))


def sealed(placed: Mapping[str, tuple[Placed, ...]]) -> Mapping[str, tuple[Placed, ...]]:
    """What was put into folders just now, with the checksums that nobody knows so far."""
    return {folder: _sealed(Files(folder), own) for folder, own in placed.items()}


def _sealed(files: Files, placed: tuple[Placed, ...]) -> tuple[Placed, ...]:
    if not files.has_renames or all(one.checksum != UNSEALED for one in placed):
        return placed

    def seal(one: Placed) -> Placed:
        if one.checksum != UNSEALED:
            return one
        with suppress(FileNotFoundError):  # somebody has taken it away already, which the next start tells
            return changed(one, checksum=file_checksum(files, one.name)[0])
        return one

    with ThreadPoolExecutor(min(len(placed), _AT_ONCE)) as pool:
        return tuple(pool.map(seal, placed))


def _delivered(files: Files, epoch: int) -> Mapping[str, tuple[Placed, ...]]:
    try:
        return Manifest.read(files, epoch).delivered
    except DamagedState:
        return {}  # others refuse it


def _told(folder: str, known: Mapping[str, Placed]) -> str:
    found = Files(folder)
    stamps = found.stamps("")
    if _OWNED not in stamps:
        return ""  # the whole folder was taken away, which is told otherwise
    gone = sorted(name for name in known if name not in stamps)
    changed = sorted(_changed(found, known, stamps))
    parts = [f"{word} {_listed(names)}" for word, names in (("deleted", gone), ("changed", changed)) if names]
    if not parts:
        return ""
    return (
        f"the results in {folder} are not as they were delivered: somebody has {' and '.join(parts)}; the flow goes "
        "on, and what was there does not come again"
    )


def _changed(files: Files, known: Mapping[str, Placed], stamps: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    for name, one in known.items():
        size, modified_ns = stamps.get(name, (one.bytes, one.modified_ns))
        if size != one.bytes or (modified_ns != one.modified_ns and not _fits(files, one)):
            yield name


def _fits(files: Files, one: Placed) -> bool:
    """Whether a file is the one that was delivered, as far as is known."""
    return one.checksum == UNSEALED or one.checksum == file_checksum(files, one.name, one.checksum)[0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
