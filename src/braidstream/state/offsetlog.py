"""Spark's own checkpoint of the streaming query, as far as a start depends on it: looked at, never written.

    metadata           the query's id
    offsets/N          what epoch N reads: a version, a line of settings, and one line for each source
    commits/N          written when epoch N is done
    sources/I/K        of a source of files: which files belong to its offset K; K.compact has all up to K

Spark writes each of them in the same way: `.NAME.UUID.tmp` with its checksum `..NAME.UUID.tmp.crc`, then a rename of
the one and of the other. A process that dies between two of these steps leaves such files, and Spark refuses to start
beside some of them; a machine that dies may leave an entry that is empty or ends in the middle.

On local disks Hadoop writes checksums beside these files. In object stores there are none, so the root of an epoch has
that of its `offsets/N` (`checksum`, `check_logged`); the other files only have to be readable there.

`leftovers` is what the next start may delete: such files, an entry of an epoch that was never committed and cannot be
read, and the whole folder while it has no entry at all. Anything else that is missing or damaged is refused by `check`,
by the name of its file. Cost: the entries since the last compact one.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.state.checksums import crc32
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest

__all__ = ["OffsetLog"]

_CRC = b"crc\0"
"""How Hadoop's files of checksums begin; then the bytes for each, and one for each piece."""
_RESTORE = "restore the whole folder from one copy with the manifests, or start again with a new checkpoint"


class OffsetLog:
    """The folder that Spark was given as its checkpoint."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self.folder = files, folder
        self._synced: dict[str, int] = {}

    def last(self, log: str) -> int:
        """The last epoch in one of the logs; -1 when there is none."""
        return max((int(name) for name in self._files.names(f"{self.folder}/{log}") if name.isdigit()), default=-1)

    def last_begun(self, latest: int) -> int:
        """The last epoch whose offsets were logged and can be read, or should be."""
        last = self.last("offsets")
        return last - 1 if last > latest and not _is_offsets(self._lines(f"offsets/{last}")) else last

    def leftovers(self, latest: int) -> list[str]:
        """Files that a crash has left, by name, where `latest` is the last epoch that was committed."""
        found = [name for folder in self._tree(self.folder) for name in self._strays(folder)]
        begun, done = self.last("offsets"), self.last("commits")
        if begun > latest and not _is_offsets(self._lines(f"offsets/{begun}")):
            found += self._with_sum("offsets", str(begun))
        if 0 <= done <= latest and not _is_entry(self._lines(f"commits/{done}")):
            found += self._with_sum("commits", str(done))
        if self.last_begun(latest) >= 0:
            known = self._reached(self.last_begun(latest))
            for source in self._files.folders(f"{self.folder}/sources"):
                if source in known:
                    found += self._unread(f"sources/{source}", known[source])
        return found

    def is_unused(self, latest: int) -> bool:
        """Whether no epoch was ever begun, so that nothing is lost with the folder."""
        return latest < 0 and self.last_begun(latest) < 0 and self.last("commits") < 0

    def check(self, latest: int) -> None:
        """Refuse a log that does not fit the manifests, or from which Spark could not go on."""
        last, committed = self.last_begun(latest), self.last("commits")
        if latest > last:
            raise DamagedState(
                self._files.path(self.folder),
                f"Spark's offset log ends at epoch {last}, the state at epoch {latest}",
                "restore both from one copy, or start again with a new checkpoint; nothing was changed",
            )
        if last < 0:
            return
        if committed > last:
            raise self._damaged(f"offsets/{committed}", "is missing: its epoch was committed")
        self._check_entries(last)

    def unsynced(self, epoch: int) -> list[str]:
        """The paths, with those of folders, that the disk must have before the state of an epoch: Spark waits for none.

        Each is given once. After a power failure a commit may be missing, which Spark makes up for; an offset may not.
        """
        if epoch < 0 or self._synced.get("") == epoch or not self._files.exists(self.folder):
            return []
        found = [] if self._synced else [*self._with_sum("", "metadata"), "", self.folder]
        found += [*self._with_sum("offsets", str(epoch)), f"{self.folder}/offsets"]
        for source, reached in self._reached(epoch).items():
            folder, since = f"sources/{source}", self._synced.get(source, -1)
            listed = self._files.names(f"{self.folder}/{folder}")
            new = [name for name in listed if (n := name.removesuffix(".compact")).isdigit() and int(n) > since]
            found += [path for name in new for path in self._with_sum(folder, name)]
            found += [f"{self.folder}/{folder}", *([f"{self.folder}/sources"] if since < 0 else [])]
            self._synced[source] = reached
        self._synced[""] = epoch
        return [self._files.path(path) for path in dict.fromkeys(found)]

    def check_epoch(self, epoch: int) -> None:
        """Refuse a log from which Spark could not go on after an epoch, if all later ones were cut off."""
        if self._files.exists(self.folder):
            self._check_entries(epoch)

    def checksum(self, epoch: int) -> int | None:
        """Of what is logged of an epoch; None where nothing is."""
        try:
            return crc32(self._files.read(f"{self.folder}/offsets/{epoch}"))
        except FileNotFoundError:
            return None

    def check_logged(self, epoch: int) -> None:
        """Refuse an entry that is not what was logged when its epoch was committed, of the last two up to an epoch."""
        for one in (epoch - 1, epoch):
            logged = _logged(self._files, one)
            if logged is not None and self.checksum(one) != logged:
                raise self._damaged(f"offsets/{one}", "is damaged (its checksum does not fit)")

    def cut(self, epoch: int) -> list[str]:
        """Cut off all that came after an epoch: commits before offsets, so that no epoch seems done that has none.

        Of a source of files what was listed since, as far back as its list was not compacted. Gives the folders.
        """
        sources = self._reached(epoch)
        for log in ("commits", "offsets"):
            later = (int(name) for name in self._files.names(f"{self.folder}/{log}") if name.isdigit())
            self._delete(log, [str(one) for one in sorted(later, reverse=True) if one > epoch])
        for source, reached in sources.items():
            names = self._files.names(f"{self.folder}/sources/{source}")
            compacted = (int(n.removesuffix(".compact")) for n in names if n.endswith(".compact"))
            last = max([reached, *compacted])
            later = (int(name) for name in names if name.isdigit())
            self._delete(f"sources/{source}", [str(one) for one in sorted(later, reverse=True) if one > last])
        return [f"{self.folder}/{name}" for name in ("commits", "offsets", *(f"sources/{own}" for own in sources))]

    def _delete(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            for file in self._with_sum(folder, name):
                self._files.delete(file)

    def all_damage(self) -> Iterator[DamagedState]:
        """Every file of the log that is not what was written, as far as its checksum tells."""
        for folder in self._tree(self.folder):
            below = folder.removeprefix(self.folder).removeprefix("/")
            for name in self._files.names(folder):
                if not name.startswith(".") and (damage := self._damage_of(f"{below}/{name}" if below else name)):
                    yield damage

    def _damage_of(self, name: str) -> DamagedState | None:
        try:
            return None if self._is_intact(name) else self._unfit(name)
        except DamagedState as unreadable:
            return unreadable

    def _is_intact(self, name: str) -> bool:
        """Whether a file fits the checksums beside it, which Hadoop writes on local disks, where there are any."""
        folder, _, base = f"{self.folder}/{name}".rpartition("/")
        try:
            sums, content = self._files.read(f"{folder}/.{base}.crc"), self._files.read(f"{folder}/{base}")
        except FileNotFoundError:
            return True
        if sums[:4] != _CRC or len(sums) < 8 or (size := int(struct.unpack(">i", sums[4:8])[0])) < 1:
            return True  # Hadoop reads a file beside such a one as if there were none
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        return sums[8:] == b"".join(struct.pack(">I", zlib.crc32(piece)) for piece in pieces)

    def _check_entries(self, last: int) -> None:
        """What Spark reads where an epoch is the last one: two entries of offsets, and those of sources."""
        self._readable("metadata", _is_json)
        for epoch in range(max(last - 1, 0), last + 1):
            self._readable(f"offsets/{epoch}", _is_offsets)
        for source, reached in self._reached(last).items():
            self._check_source(source, reached)

    def _check_source(self, source: str, reached: int) -> None:
        """The entries of a source of files, from the last compact one to where the offsets have come."""
        folder = f"sources/{source}"
        names = set(self._files.names(f"{self.folder}/{folder}"))
        for offset in range(reached, -1, -1):
            if f"{offset}.compact" in names:
                self._readable(f"{folder}/{offset}.compact", _is_entry)
                return
            self._readable(f"{folder}/{offset}", _is_entry)

    def _reached(self, epoch: int) -> dict[str, int]:
        """For each source of files, by its number, the entry up to which an epoch has read it."""
        found = {}
        lines = self._lines(f"offsets/{epoch}")
        for source, line in enumerate(lines[2:] if lines[:1] == ["v1"] else ()):
            plain = _parsed(line)
            if isinstance(plain, dict) and isinstance(plain.get("logOffset"), int):
                found[str(source)] = plain["logOffset"]
        return found

    def _unread(self, folder: str, reached: int) -> Iterator[str]:
        """Entries of a source that no epoch has come to, and that cannot be read."""
        for name in self._files.names(f"{self.folder}/{folder}"):
            number = name.removesuffix(".compact")
            if number.isdigit() and int(number) > reached and not _is_entry(self._lines(f"{folder}/{name}")):
                yield from self._with_sum(folder, name)

    def _with_sum(self, folder: str, name: str) -> list[str]:
        below = f"{self.folder}/{folder}" if folder else self.folder
        there = set(self._files.names(below))
        return [f"{below}/{one}" for one in (name, f".{name}.crc") if one in there]

    def _strays(self, folder: str) -> Iterator[str]:
        """Files on their way when the process died, and checksums of nothing."""
        names = set(self._files.names(folder))
        for name in sorted(names):
            is_on_its_way = name.startswith(".") and name.removesuffix(".crc").endswith(".tmp")
            is_sum_of_nothing = name.startswith(".") and name.endswith(".crc") and name[1:-4] not in names
            if is_on_its_way or is_sum_of_nothing:
                yield f"{folder}/{name}"

    def _tree(self, folder: str) -> Iterator[str]:
        yield folder
        for name in self._files.folders(folder):
            yield from self._tree(f"{folder}/{name}")

    def _lines(self, name: str) -> list[str]:
        try:
            return self._files.read(f"{self.folder}/{name}").decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def _readable(self, name: str, is_whole: Any) -> None:
        lines = self._lines(name)
        if not self._is_intact(name):
            raise self._unfit(name)
        if not is_whole(lines):
            there = self._files.exists(f"{self.folder}/{name}")
            raise self._damaged(name, "is damaged" if there else "is missing")

    def _unfit(self, name: str) -> DamagedState:
        folder, _, base = name.rpartition("/")
        sums = self._files.path(f"{self.folder}/{folder}/.{base}.crc" if folder else f"{self.folder}/.{base}.crc")
        return self._damaged(name, f"is damaged, or its checksum {sums} is")

    def _damaged(self, name: str, wrong: str) -> DamagedState:
        path = self._files.path(f"{self.folder}/{name}")
        return DamagedState(path, f"this file of Spark's offset log {wrong}", f"{_RESTORE}; nothing was changed")


def _logged(files: Files, epoch: int) -> int | None:
    """What the root of an epoch says; None where there is no root, or one that is damaged, which others tell."""
    if files.objects is None:
        return None
    try:
        return Manifest.read(files, epoch, whole=False).notes.logged
    except (DamagedState, CheckpointMismatch):
        return None


def _is_json(lines: list[str]) -> bool:
    return isinstance(_parsed("\n".join(lines)), dict)


def _is_entry(lines: list[str]) -> bool:
    """A version, then a line of JSON for each thing, or "-" for none; of later versions no more is known."""
    is_versioned = bool(lines) and lines[0].startswith("v") and lines[0][1:].isdigit()
    return is_versioned and (lines[0] != "v1" or all(line == "-" or _parsed(line) is not None for line in lines[1:]))


def _is_offsets(lines: list[str]) -> bool:
    """An entry with its settings and at least one source."""
    return _is_entry(lines) and len(lines) > 2


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
