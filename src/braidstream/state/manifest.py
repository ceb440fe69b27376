"""The manifest: the snapshot of an epoch. Writing it is the commit.

It alone defines routing and state of the next epoch: the directory, the grids of heavy keys, the number of slots, the
segments with the parts of the hash space (or the cells) that are live in each, the watermark, and the memory of the
controller. It is JSON behind a line with its checksum; reading one runs nobody's code.

Invariants: a part lies within one group (`fitted` keeps that true when groups are split), in the region of the stage
that its store is joined at, and the live parts of the segments of one store do not overlap: every stored tuple is live
in exactly one segment. A part belongs to one generation: 0 is active, what slots probe; others were pushed
(`state.generations`) and are read by clean-up only.
Size: O(groups x log(epochs in the window)), whatever the stream holds.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.model.directory import Directory, Group
from braidstream.model.grids import Grid
from braidstream.model.numbers import EpochNumber, GroupId, SlotId
from braidstream.model.parts import Part, Segment, SegmentForm
from braidstream.model.values import Value
from braidstream.state.files import Files
from braidstream.state.notes import Notes, encoded_note, read_note

__all__ = ["Manifest", "Part", "Segment", "manifest_name"]

FOLDER = "manifests"
_UNKNOWN = "unknown field"
"""How msgspec says that a field is in the JSON and not in the schema."""


@dataclass(frozen=True)
class Manifest:
    """The snapshot after `epoch`."""

    epoch: EpochNumber
    directory: Directory
    n_slots: int
    segments: tuple[Segment, ...] = ()
    newest: Mapping[str, int] = field(default_factory=dict)
    """The largest event time seen of each stream."""
    watermark: int | None = None
    executors: Mapping[SlotId, str] = field(default_factory=dict)
    """Where each slot last ran."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Counters since the first epoch."""
    notes: Notes = field(default_factory=Notes)
    """What those who decide remember."""
    grids: tuple[Grid, ...] = ()
    """The grids of the keys that are heavy now (`state.cells`)."""
    retired: tuple[Grid, ...] = ()
    """Earlier grids that live cells still refer to."""

    def by_slot(self) -> dict[SlotId, list[tuple[Segment, int]]]:
        """For each slot the segments that hold active state of its groups, with the number of its rows in them."""
        found: dict[SlotId, list[tuple[Segment, int]]] = defaultdict(list)
        for segment in (segment.active for segment in self.segments):
            rows: dict[SlotId, int] = defaultdict(int)
            for part in segment.parts:
                rows[self.directory.at(part.low).slot] += part.rows
            for slot, n_rows in rows.items():
                found[slot].append((segment, n_rows))
        return found

    def of_slot(self, slot: SlotId) -> list[Segment]:
        """The segments that hold active state of a slot's groups, with their active parts."""
        return [segment for segment, _ in self._by_slot.get(slot, ())]

    @cached_property
    def _by_slot(self) -> dict[SlotId, list[tuple[Segment, int]]]:
        return self.by_slot()

    def with_notes(self, notes: Notes) -> Manifest:
        """The manifest with other notes."""
        return replace(self, notes=notes)

    def fitted(self, directory: Directory) -> Manifest:
        """The manifest with another directory; parts that a split has divided are divided with it."""
        segments = tuple(replace(s, parts=_fit(s.parts, directory)) for s in self.segments)
        return replace(self, directory=directory, segments=segments)

    def write(self, files: Files, *, pending: bool = False, is_new: bool = False) -> None:
        """Commit; or, when pending, only show tasks what has been reached so far in the epoch.

        A new one is added, FileExistsError if it is there already; others are replaced.
        """
        body = _ENCODER.encode(_Form.of(self))
        put = files.add if is_new else files.replace
        put(manifest_name(self.epoch, pending=pending), _sealed(body))

    @classmethod
    def read(cls, files: Files, epoch: int, *, pending: bool = False) -> Manifest:
        """The manifest of an epoch; `DamagedState` when it is missing or damaged."""
        name = manifest_name(epoch, pending=pending)
        try:
            content = files.read(name)
        except FileNotFoundError:
            raise DamagedState(files.path(name), "this manifest is missing") from None
        try:
            body = content.partition(b"\n")[2].removesuffix(b"\n")
            if content != _sealed(body):
                raise ValueError("its checksum does not fit")
            return _DECODER.decode(body).manifest()
        except (ValueError, TypeError, msgspec.MsgspecError) as error:
            if _UNKNOWN in str(error):
                raise CheckpointMismatch(
                    f"{files.path(name)}: this manifest has what this version does not know ({error})",
                    "a manifest of this version or of an earlier one",
                    "use the version of braidstream that wrote it",
                ) from None
            raise DamagedState(files.path(name), f"this manifest is damaged ({error})") from None

    @staticmethod
    def epochs(files: Files) -> list[EpochNumber]:
        """The epochs whose manifests are kept, ascending."""
        stems = (name.removesuffix(".json") for name in files.names(FOLDER) if name.endswith(".json"))
        return sorted(EpochNumber(int(stem) - 1) for stem in stems if stem.isdigit())


def _fit(parts: Iterable[Part], directory: Directory) -> tuple[Part, ...]:
    fitted: list[Part] = []
    for part in parts:
        if directory.at(part.low).high >= part.high:
            fitted.append(part)
            continue
        inside = [group for group in directory.groups if part.meets(group)]
        # The share of rows is an estimate until the segment is compacted.
        shares = [(g, max(part.rows >> (g.depth - part.depth), 1)) for g in inside]
        fitted += [Part(g.prefix, g.depth, rows, part.generation) for g, rows in shares]
    return tuple(fitted)


def _sealed(body: bytes) -> bytes:
    return b"%08x\n%s\n" % (zlib.crc32(body), body)


def manifest_name(epoch: int, *, pending: bool = False) -> str:
    """The file of an epoch's manifest. The first, of no epoch yet (-1), is number 0."""
    return f"{FOLDER}/pending.json" if pending else f"{FOLDER}/{epoch + 1:010d}.json"


class _DirectoryForm(Value, frozen=True):
    groups: tuple[tuple[int, int, GroupId, SlotId], ...]
    next_id: GroupId


class _Form(Value, frozen=True, kw_only=True):
    """A manifest in JSON."""

    epoch: EpochNumber
    n_slots: int
    newest: Mapping[str, int]
    watermark: int | None
    totals: Mapping[str, int]
    memory: Notes
    directory: _DirectoryForm
    executors: Mapping[SlotId, str]
    segments: tuple[SegmentForm, ...]
    grids: tuple[Grid, ...] = ()
    retired: tuple[Grid, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest) -> _Form:
        directory = manifest.directory
        groups = tuple((g.prefix, g.depth, g.id, g.slot) for g in directory.groups)
        return cls(
            epoch=manifest.epoch,
            n_slots=manifest.n_slots,
            newest=manifest.newest,
            watermark=manifest.watermark,
            totals=manifest.totals,
            memory=manifest.notes,
            directory=_DirectoryForm(groups, directory.next_id),
            executors=manifest.executors,
            segments=tuple(segment.as_form() for segment in manifest.segments),
            grids=manifest.grids,
            retired=manifest.retired,
        )

    def manifest(self) -> Manifest:
        return Manifest(
            self.epoch,
            Directory(tuple(Group(*row) for row in self.directory.groups), self.directory.next_id),
            self.n_slots,
            tuple(Segment.from_form(form) for form in self.segments),
            self.newest,
            self.watermark,
            self.executors,
            self.totals,
            self.memory.renewed(),
            self.grids,
            self.retired,
        )


_ENCODER = msgspec.json.Encoder(enc_hook=encoded_note)
_DECODER = msgspec.json.Decoder(_Form, dec_hook=read_note)
