"""All files of a checkpoint compared with what was written: `braid verify`. It only reads.

Looked at are the identity, every kept manifest with its routing table, ledger and sections, every segment that one of
them refers to, and Spark's log. What is damaged is told file by file, the rest is looked at all the same. A checkpoint
that a flow is writing to may be verified: what was retired or replaced meanwhile does not count. Of a remote checkpoint
the files themselves are read, not this machine's copies.

Cost: one pass over all bytes, at the speed of the disk or of the checksum (many GB a second).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from braidstream.errors import CheckpointMismatch, DamagedState, InputError
from braidstream.model.snapshots import UNSEALED
from braidstream.state.begun_rollback import INTENT, begun_rollback
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.gaps import gap
from braidstream.state.kept import ledger_of
from braidstream.state.manifest import FileRef, Manifest
from braidstream.state.seals import file_checksum

__all__ = ["Damage", "Found", "misfit", "verify"]


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


@dataclass
class Found:
    """What was looked at, and what is wrong."""

    files: int = 0
    bytes: int = 0
    unsealed: int = 0
    """Files of versions without checksums, of which only the size was looked at."""
    epochs: list[int] = field(default_factory=list)
    damaged: list[Damage] = field(default_factory=list)

    def add(self, damage: DamagedState | Damage) -> None:
        """Note a damage, once for each file."""
        one = damage
        if isinstance(one, DamagedState):
            one = Damage(one.path, one.wrong.removeprefix(f"{one.path}: "))
        if one.path not in {known.path for known in self.damaged}:
            self.damaged.append(one)


@dataclass(frozen=True)
class _Expected:
    name: str
    bytes: int
    checksum: int
    epoch: int
    """The last one that needs it."""
    ledger: FileRef | None
    """By which its manifest is known."""


def verify(checkpoint: Checkpoint, told: Callable[[int, int], object] = lambda done, total: None) -> Found:
    """Look at everything; `told` is told of the bytes that were read, and of those that there are."""
    files, found = checkpoint.files, Found()
    files.direct = True
    try:
        if checkpoint.identity() is None:
            there = "is no checkpoint" if files.exists() else "does not exist"
            raise InputError(f"{checkpoint.root} {there}", "the folder of a checkpoint", "check the path")
    except DamagedState as error:
        found.add(error)
    expected = dict[str, _Expected]()
    for epoch in Manifest.epochs(files):
        expected |= {one.name: one for one in _of_epoch(checkpoint, epoch, found)}
    total, done = sum(one.bytes for one in expected.values()), 0
    for one in expected.values():
        _look(files, one, found, lambda n, done=done: told(done + n, total))  # type: ignore[misc]
        done += one.bytes
        told(done, total)
    if (lost := gap(files, Manifest.epochs(files))) is not None:
        found.add(lost)
    for damage in checkpoint.log.all_damage():
        found.add(damage)
    if (contradiction := misfit(checkpoint)) is not None:
        found.add(contradiction)
    if (begun := begun_rollback(files)) is not None:
        found.add(Damage(files.path(INTENT), begun))
    return found


def _of_epoch(checkpoint: Checkpoint, epoch: int, found: Found) -> Sequence[_Expected]:
    """The segments of an epoch; where its manifest was replaced meanwhile, that of now is looked at again."""
    while True:
        ledger, own = ledger_of(checkpoint.files, epoch), Found()
        expected = [replace(one, ledger=ledger) for one in _of_manifest(checkpoint, epoch, own)]
        if not own.damaged or ledger_of(checkpoint.files, epoch) == ledger:
            break
    found.files += own.files
    found.epochs += own.epochs
    for damage in own.damaged:
        found.add(damage)
    return expected


def _of_manifest(checkpoint: Checkpoint, epoch: int, found: Found) -> Iterator[_Expected]:
    """The segments of a manifest, as far as it can be read; what cannot is noted, unless it was retired meanwhile."""
    files = checkpoint.files
    manifest = _read(files, epoch, found)
    if manifest is None:
        return
    found.files += len(manifest.own_files()) + 1
    for entry in manifest.sections.entries().values():
        try:
            section = entry.section
        except DamagedState as error:
            if epoch in Manifest.epochs(files):
                found.add(error)
            continue
        found.files += entry.ref is not None
        sums = section.checksums()
        yield from (_Expected(name, size, sums[name], epoch, None) for name, size in section.sizes().items())


def _read(files: Files, epoch: int, found: Found) -> Manifest | None:
    """A manifest; one whose ledger or routing table is damaged names its sections all the same."""
    for whole in (True, False):
        try:
            manifest = Manifest.read(files, epoch, whole=whole)
            break
        except DamagedState as error:
            if epoch in Manifest.epochs(files):
                found.add(error)
        except CheckpointMismatch as error:
            found.add(Damage(files.path(""), error.wrong))
            return None
    else:
        return None
    try:
        _ = manifest.directory.next_id
    except DamagedState as error:
        if epoch in Manifest.epochs(files):
            found.add(error)
        return manifest
    if whole:
        found.epochs.append(epoch)
    return manifest


def _look(files: Files, one: _Expected, found: Found, told: Callable[[int], object]) -> None:
    read = 0

    def piece(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        told(read)

    found.files += 1
    try:
        if one.checksum == UNSEALED:
            found.unsealed += 1
            checksum, size = UNSEALED, files.size(one.name)
            if size is None:
                raise FileNotFoundError(one.name)
        else:
            checksum, size = file_checksum(files, one.name, one.checksum, piece)
    except FileNotFoundError:
        if one.epoch in Manifest.epochs(files) and ledger_of(files, one.epoch) == one.ledger:
            found.add(Damage(files.path(one.name), "this segment is missing"))
        return
    except DamagedState as error:
        found.add(error)
        return
    found.bytes += size
    if size != one.bytes:
        found.add(Damage(files.path(one.name), f"this segment has {size} bytes, {one.bytes} bytes were written"))
    elif checksum != one.checksum:
        found.add(Damage(files.path(one.name), "this segment is damaged (its checksum does not fit)"))


def misfit(checkpoint: Checkpoint) -> DamagedState | None:
    """How manifests and Spark's log contradict each other; one that is damaged is there all the same.

    A flow may commit an epoch between the two looks; then it is looked at again.
    """
    while there := Manifest.epochs(checkpoint.files):
        try:
            checkpoint.check_offsets(there[-1])
        except DamagedState as error:
            if Manifest.epochs(checkpoint.files)[-1:] == there[-1:]:
                return error
            continue
        break
    return None
