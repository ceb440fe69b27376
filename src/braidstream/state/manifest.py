"""The manifest: the snapshot of an epoch. Writing its root is the commit.

It alone defines routing and state of the next epoch. It is a tree of files, so that a task reads what the task needs:

    manifests/N.root      small: epoch, watermark, counters, what is remembered of queries, grids, and which files the
                          rest is in, with their checksums
    manifests/*.routing   the directory as columns: what routing tasks look up; kept as long as it does not change
    manifests/*.ledger    what only the driver reads: what those who decide remember of groups and slots, and which
                          files the manifest before referred to and this one does not
    sections/*.section    for each stage and slot its groups, and what is live of them where (`state.section`)

Everything but the root is written first, under names of its own; what an attempt left that was lost is an orphan. Files
that did not change are referred to again. Each is sealed by a checksum; reading one runs nobody's code.

Manifests of 0.1.0 (`manifests/N.json`, all in one) are read too, and are written in this form from then on.

Invariants: a part lies within one group, in the region of the stage that its store is joined at, and the live parts of
the segments of one store do not overlap: every stored tuple is live in exactly one segment. A part belongs to one
generation: 0 is active, what slots probe; others were pushed (`state.generations`) and are read by clean-up only.
Size: O(groups x log(epochs in the window)), whatever the stream holds; the root some 30 bytes a slot.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np

from braidstream.errors import CheckpointMismatch, DamagedState
from braidstream.model.directory import Directory, Group
from braidstream.model.faults import reach
from braidstream.model.grids import Grid
from braidstream.model.group_columns import GroupColumns
from braidstream.model.numbers import EpochNumber, GroupId, SlotId
from braidstream.model.parts import Part, Segment, SegmentForm
from braidstream.model.snapshots import SHARED, Figures, Key, Placed
from braidstream.model.values import Value
from braidstream.state.files import Files
from braidstream.state.notes import Ledger, Notes, encoded_note, read_note
from braidstream.state.packed import check, is_packed, is_whole, pack, unpack
from braidstream.state.section import Section
from braidstream.state.sections import Layout, Sections, fitted_segment, merged_segments

__all__ = ["FOLDER", "Manifest", "Part", "Segment", "manifest_name", "old_name"]

FOLDER = "manifests"
ReadT = TypeVar("ReadT")
_ROOT, _OLD = ".root", ".json"
_COMMITTED, _PENDING = "root", "pending"  # the kinds of roots, in their first lines
_UNKNOWN = "unknown field"
"""How msgspec says that a field is in the JSON and not in the schema."""


class FileRef(Value, frozen=True):
    """A file that a root refers to."""

    name: str
    checksum: int


@dataclass(frozen=True)
class Manifest:
    """The snapshot after `epoch`."""

    epoch: EpochNumber
    directory: Directory
    n_slots: int
    sections: Sections = field(default_factory=Sections)
    """May be given as segments, which are dealt to sections then."""
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
    settled: frozenset[int] = frozenset()
    """The grids whose keys have no slices left from before them: cells need not look elsewhere."""
    dropped: frozenset[str] = field(default=frozenset(), compare=False)
    """Files that the manifest before referred to, and this one does not."""
    delivered: Mapping[str, tuple[Placed, ...]] = field(default_factory=dict, compare=False)
    """By folder: the files of results that its epoch has put there, and steps after it."""
    scratch: frozenset[str] = field(default=frozenset(), compare=False)
    """Sections that were written on the way to it."""
    routing: tuple[FileRef, Directory] | None = field(default=None, compare=False, repr=False)
    """The file of a directory that was written or read."""
    ledger: FileRef | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.sections, Sections):
            made = Sections.of(self.layout, self.sections)
            object.__setattr__(self, "sections", made)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest):
            return NotImplemented
        plain = ("epoch", "directory", "n_slots", "newest", "watermark", "executors", "totals", "notes")
        layout = ("grids", "retired", "settled")
        alike = all(getattr(self, name) == getattr(other, name) for name in (*plain, *layout))
        return alike and (self.sections.are_those_of(other.sections) or set(self.segments) == set(other.segments))

    __hash__ = None  # type: ignore[assignment]

    @property
    def layout(self) -> Layout:
        """Who has what."""
        return Layout(self.directory, self.grids)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All that is live, each file once. Reads every section: not for the path of an epoch."""
        return merged_segments(
            s for entry in self.sections.entries().values() for s in entry.section.live(self.watermark)
        )

    def live(self, key: Key) -> tuple[Segment, ...]:
        """What is live in a section."""
        entry = self.sections.get(key)
        return () if entry is None else entry.section.live(self.watermark)

    def section(self, key: Key) -> Section:
        """A section; one that holds nothing where there is none."""
        entry = self.sections.get(key)
        if entry is not None:
            return entry.section
        stage, slot = key
        return Section(stage, SlotId(slot), () if key == SHARED else self.directory.of_slot(SlotId(slot), stage))

    def of_slot(self, slot: SlotId) -> list[Segment]:
        """The segments that hold active state of a slot's groups, of all stages, with their active parts."""
        live = (
            segment.active for entry in self.sections.of_slot(slot) for segment in entry.section.live(self.watermark)
        )
        return [segment for segment in live if segment.parts]

    def figures(self) -> dict[Key, Figures]:
        """What each section holds."""
        return self._figures

    @cached_property
    def _figures(self) -> dict[Key, Figures]:
        return {key: entry.figures(self.watermark, self.epoch) for key, entry in self.sections.entries().items()}

    def with_notes(self, notes: Notes) -> Manifest:
        """The manifest with other notes."""
        return replace(self, notes=notes)

    def with_segments(self, segments: Iterable[Segment]) -> Manifest:
        """The manifest with other state, its parts divided with the groups, dealt to sections anew."""
        return replace(
            self, sections=Sections.of(self.layout, (fitted_segment(one, self.directory) for one in segments))
        )

    def mapped(self, change: Callable[[tuple[Segment, ...]], tuple[Segment, ...]], keys: Iterable[Key]) -> Manifest:
        """The manifest with the live segments of some sections changed."""

        def changed_section(section: Section) -> Section:
            live = section.live(self.watermark)
            made = change(live)
            return section if made is live or made == live else section.with_segments(made)

        sections = self.sections.mapped(changed_section, keys)
        return self if sections is self.sections else replace(self, sections=sections)

    def swept(self, keys: Iterable[Key], is_kept: Callable[[Segment], bool]) -> Manifest:
        """The manifest with some sections written anew without what has expired, and with what is kept of the rest."""

        def left(section: Section) -> Section:
            segments = tuple(segment for segment in section.live(self.watermark) if is_kept(segment))
            return section if segments == section.segments else section.with_segments(segments)

        sections = self.sections.mapped(left, list(keys))
        return self if sections is self.sections else replace(self, sections=sections)

    def laid_out(
        self,
        directory: Directory | None = None,
        n_slots: int | None = None,
        grids: tuple[Grid, ...] | None = None,
        retired: tuple[Grid, ...] | None = None,
    ) -> Manifest:
        """The manifest with another layout; sections that it touches are dealt anew, and parts divided with groups."""
        directory = self.directory if directory is None else directory
        n_slots = self.n_slots if n_slots is None else n_slots
        grids = self.grids if grids is None else grids
        retired = self.retired if retired is None else retired
        after = Layout(directory, grids)

        sections = self.sections.laid_out(self.layout, after, lambda one: fitted_segment(one, directory), n_slots)
        return replace(
            self,
            directory=directory,
            n_slots=n_slots,
            grids=grids,
            retired=retired,
            sections=sections,
            settled=self.settled & {grid.id for grid in grids},
        )

    def fitted(self, directory: Directory) -> Manifest:
        """The manifest with another directory; parts that a split has divided are divided with it."""
        return self.laid_out(directory)

    def write(
        self, files: Files, *, pending: bool = False, is_new: bool = False, sync: Callable[[], None] | None = None
    ) -> Manifest:
        """Commit; or, when pending, only show tasks what has been reached so far in the epoch.

        A new one is added, FileExistsError if it is there already; others are replaced. `sync` has the disk take all
        that the root refers to, before it is written. What is given back is the same manifest, which knows its files.
        """
        made = self.prepared(files)
        assert made.routing is not None
        ledger = self.ledger if pending and self.ledger is not None else _written_ledger(files, self)
        if sync is not None:
            sync()
        reach("before-root", epoch=self.epoch)
        put = files.add if is_new else files.replace
        content = _packed_root(made, made.routing[0], ledger, _PENDING if pending else _COMMITTED)
        put(manifest_name(self.epoch, pending=pending), content)
        if not pending and not is_new:
            files.delete(old_name(self.epoch))
        return replace(made, ledger=ledger)

    def prepared(self, files: Files) -> Manifest:
        """The same manifest, with files for its sections and its directory."""
        sections, routing = self.sections.written(files, self.epoch), self.routing
        reach("after-sections", epoch=self.epoch)
        if routing is None or (routing[1] is not self.directory and routing[1] != self.directory):
            routing = _written_routing(files, self.epoch, self.directory), self.directory
        if sections is self.sections and routing is self.routing:
            return self
        scratch = self.scratch | sections.files_since(self.sections)
        return replace(self, sections=sections, routing=routing, scratch=scratch)

    @classmethod
    def read(cls, files: Files, epoch: int, *, pending: bool = False, whole: bool = True) -> Manifest:
        """The manifest of an epoch; `DamagedState` when it is missing or damaged.

        A task does not need the whole: the directory and sections are read when somebody asks for them, and the ledger
        is left out.
        """
        name, content = _content(files, epoch, pending=pending)
        if not is_packed(content) and name.endswith(_OLD):
            return _guarded(files, name, lambda: _of_epoch(_read_old(content), epoch), "manifest")
        kind = _PENDING if pending else _COMMITTED
        return _guarded(files, name, lambda: _of_epoch(_read_root(files, content, kind, whole), epoch), "manifest")

    def own_files(self) -> tuple[str, ...]:
        """The files that no other manifest refers to, in the order in which they may be deleted: the root first."""
        if self.ledger is None:
            return (old_name(self.epoch),)
        return manifest_name(self.epoch), self.ledger.name

    def shared_files(self) -> Iterator[str]:
        """The files that other manifests may refer to as well; one that several sections refer to more than once."""
        if self.routing is not None:
            yield self.routing[0].name
        yield from self.sections.names()

    @staticmethod
    def epochs(files: Files) -> list[EpochNumber]:
        """The epochs whose manifests are kept, ascending."""
        stems = {name.rpartition(".")[0] for name in files.names(FOLDER) if name.endswith((_ROOT, _OLD))}
        return sorted(EpochNumber(int(stem) - 1) for stem in stems if stem.isdigit())


def manifest_name(epoch: int, *, pending: bool = False) -> str:
    """The root of an epoch's manifest. The first, of no epoch yet (-1), is number 0."""
    return f"{FOLDER}/pending{_ROOT}" if pending else f"{FOLDER}/{epoch + 1:010d}{_ROOT}"


def old_name(epoch: int) -> str:
    """The same as 0.1.0 has named it; it counts where there is none of today."""
    return f"{FOLDER}/{epoch + 1:010d}{_OLD}"


def _content(files: Files, epoch: int, *, pending: bool) -> tuple[str, bytes]:
    names = [manifest_name(epoch, pending=pending), *([] if pending else [old_name(epoch)])]
    for name in names:
        with suppress(FileNotFoundError):
            return name, files.read(name)
    raise DamagedState(files.path(names[0]), "this manifest is missing")


def _guarded(files: Files, name: str, read: Callable[[], ReadT], what: str) -> ReadT:
    """What is read; what cannot be is told by the file's name."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, msgspec.MsgspecError) as error:
        if _UNKNOWN in str(error):
            raise CheckpointMismatch(
                f"{files.path(name)}: this {what} has what this version does not know ({error})",
                f"a {what} of this version or of an earlier one",
                "use the version of braidstream that wrote it",
            ) from None
        raise DamagedState(files.path(name), f"this {what} is damaged ({error})") from None


class _Root(Value, frozen=True, kw_only=True):
    """A root's JSON."""

    epoch: EpochNumber
    n_slots: int
    newest: Mapping[str, int]
    watermark: int | None
    totals: Mapping[str, int]
    notes: Notes
    hosts: tuple[str, ...]
    """The executors; a column says which each slot ran on."""
    routing: FileRef
    ledger: FileRef
    grids: tuple[Grid, ...] = ()
    retired: tuple[Grid, ...] = ()
    settled: tuple[int, ...] = ()


class _LedgerForm(Value, frozen=True, kw_only=True):
    """A ledger's JSON."""

    notes: Ledger
    dropped: tuple[str, ...] = ()
    delivered: Mapping[str, tuple[Placed, ...]] = {}


def _of_epoch(read: Manifest, epoch: int) -> Manifest:
    """Nobody names a root, so its checksum does not tell it from another one."""
    if read.epoch != epoch:
        raise ValueError(f"it is that of epoch {read.epoch}, not of epoch {epoch}")
    return read


def _packed_root(manifest: Manifest, routing: FileRef, ledger: FileRef, kind: str) -> bytes:
    hosts = tuple(dict.fromkeys(manifest.executors.values()))
    place = {host: at for at, host in enumerate(hosts)}
    root = _Root(
        epoch=manifest.epoch,
        n_slots=manifest.n_slots,
        newest=manifest.newest,
        watermark=manifest.watermark,
        totals=manifest.totals,
        notes=manifest.notes.without_ledger(),
        hosts=hosts,
        routing=routing,
        ledger=ledger,
        grids=manifest.grids,
        retired=manifest.retired,
        settled=tuple(sorted(manifest.settled)),
    )
    columns = manifest.sections.index()
    columns["ran.slot"] = np.fromiter(manifest.executors.keys(), dtype="<i4", count=len(manifest.executors))
    columns["ran.host"] = np.array([place[host] for host in manifest.executors.values()], dtype="<i2")
    return pack(kind, _ENCODER.encode(root), columns)


def _read_root(files: Files, content: bytes, kind: str, whole: bool) -> Manifest:
    raw, columns = unpack(kind, content)
    root = _ROOTS.decode(raw)
    ran = zip(columns.pop("ran.slot").tolist(), columns.pop("ran.host").tolist(), strict=True)
    directory = Directory.deferred(lambda: _read_routing(files, root.routing))
    notes, ledger = root.notes, _LedgerForm(notes=Ledger())
    if whole:
        ledger = _read_ledger(files, root.ledger)
        notes = notes.with_ledger(ledger.notes)
    return Manifest(
        root.epoch,
        directory,
        root.n_slots,
        Sections(None, columns, files),
        root.newest,
        root.watermark,
        {SlotId(slot): root.hosts[at] for slot, at in ran},
        root.totals,
        notes,
        root.grids,
        root.retired,
        frozenset(root.settled),
        frozenset(ledger.dropped),
        ledger.delivered,
        frozenset(),
        (root.routing, directory),
        root.ledger,
    )


def _put(files: Files, epoch: int, kind: str, content: bytes) -> FileRef:
    name = f"{FOLDER}/{epoch + 1:010d}-{uuid.uuid4().hex[:16]}.{kind}"
    files.add(name, content)
    return FileRef(name, check(content))


def _got(files: Files, ref: FileRef, what: str) -> bytes:
    try:
        content = files.content(ref.name, lambda one: is_whole(one, ref.checksum))
    except FileNotFoundError:
        raise DamagedState(files.path(ref.name), f"this {what} is missing") from None
    if not is_packed(content) or _guarded(files, ref.name, lambda: check(content), what) != ref.checksum:
        raise DamagedState(files.path(ref.name), f"this {what} is damaged (it is not the one that the manifest names)")
    return content


_GROUPS = ("stage", "first", "depth", "id", "slot")
"""The columns of a routing table, in the order of `GroupColumns`."""


def _written_routing(files: Files, epoch: int, directory: Directory) -> FileRef:
    columns = dict(zip(_GROUPS, directory.columns().arrays(), strict=True))
    return _put(files, epoch, "routing", pack("routing", b'{"next_id": %d}' % directory.next_id, columns))


def _read_routing(files: Files, ref: FileRef) -> Directory:
    content = _got(files, ref, "routing table")

    def read() -> Directory:
        raw, columns = unpack("routing", content)
        groups = GroupColumns(*(columns[name] for name in _GROUPS))
        return Directory.from_columns(groups, GroupId(msgspec.json.decode(raw)["next_id"]))

    return _guarded(files, ref.name, read, "routing table")


def _written_ledger(files: Files, manifest: Manifest) -> FileRef:
    dropped = tuple(sorted(manifest.dropped))
    form = _LedgerForm(notes=manifest.notes.ledger(), dropped=dropped, delivered=manifest.delivered)
    return _put(files, manifest.epoch, "ledger", pack("ledger", _ENCODER.encode(form), {}))


def _read_ledger(files: Files, ref: FileRef) -> _LedgerForm:
    content = _got(files, ref, "ledger")
    return _guarded(files, ref.name, lambda: _LEDGERS.decode(unpack("ledger", content)[0]), "ledger")


class _DirectoryForm(Value, frozen=True):
    groups: tuple[tuple[int, int, GroupId, SlotId], ...]
    next_id: GroupId


class _Form(Value, frozen=True, kw_only=True):
    """A manifest of 0.1.0, in JSON behind a line with its checksum."""

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


def _read_old(content: bytes) -> Manifest:
    body = content.partition(b"\n")[2].removesuffix(b"\n")
    if content != b"%08x\n%s\n" % (zlib.crc32(body), body):
        raise ValueError("its checksum does not fit")
    form = _DECODER.decode(body)
    groups = tuple(Group(*row) for row in form.directory.groups)
    layout = Layout(Directory(groups, form.directory.next_id), form.grids)
    return Manifest(
        form.epoch,
        layout.directory,
        form.n_slots,
        Sections.of(layout, (_of_node(Segment.from_form(one)) for one in form.segments)),
        form.newest,
        form.watermark,
        form.executors,
        form.totals,
        form.memory.renewed(),
        form.grids,
        form.retired,
    )


def _of_node(segment: Segment) -> Segment:
    """A segment; the files of a function's nodes had no parts, and all of them was live."""
    if segment.is_live:
        return segment
    return replace(segment, parts=(Part(0, 0, segment.rows),), deadline=_FOREVER)


_FOREVER = 1 << 62
_ENCODER = msgspec.json.Encoder(enc_hook=encoded_note)
_DECODER = msgspec.json.Decoder(_Form, dec_hook=read_note)
_ROOTS = msgspec.json.Decoder(_Root, dec_hook=read_note)
_LEDGERS = msgspec.json.Decoder(_LedgerForm, dec_hook=read_note)
