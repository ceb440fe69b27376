"""The sections of a snapshot: by stage and slot, each read only when somebody asks for it.

A manifest names the file of each section in a table of columns, so a task that reads a manifest reads one section of
it, its own, and makes no object for the others. The driver knows of sections what slots report (`Figures`, and which
segments came and went), and reads one only to change it: a move, a split, a push rewrite the sections that they touch.

Invariants: a part is in the section of its group's slot and stage, a cell in that of its slot, a slice of a retired
grid in `SHARED`; so every stored tuple is live in exactly one section. What is not written yet has no file, and is
written before the manifest that refers to it. Cost: O(sections that change).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.kernels.families import stage_of
from braidstream.kernels.stripes import split_code
from braidstream.model.directory import Directory
from braidstream.model.grids import Grid
from braidstream.model.numbers import SlotId
from braidstream.model.parts import Part, Segment
from braidstream.model.snapshots import SHARED, Figures, Key, Ref
from braidstream.state.files import Files
from braidstream.state.section import Section

__all__ = ["Entry", "Layout", "Sections", "fitted_segment", "merged_segments"]


class Entry:
    """One section: a file, its content, or both, and what is known of it."""

    __slots__ = ("_figures", "_files", "_names", "_section", "ref")

    def __init__(
        self,
        ref: Ref | None = None,
        files: Files | None = None,
        section: Section | None = None,
        names: frozenset[str] | None = None,
        figures: Figures | None = None,
    ) -> None:
        self.ref, self._files, self._section, self._names, self._figures = ref, files, section, names, figures

    @property
    def section(self) -> Section:
        """Its content, read if it has not been."""
        if self._section is None:
            assert self.ref is not None
            assert self._files is not None
            self._section = Section.read(self._files, self.ref)
        return self._section

    @property
    def names(self) -> frozenset[str]:
        """The segments that it refers to."""
        if self._names is None:
            self._names = self.section.names
        return self._names

    def figures(self, watermark: int | None, epoch: int | None = None) -> Figures:
        """What it holds; as reported in the epoch, or else without what has expired since."""
        known = self._figures
        if known is None:
            self._figures = known = self.section.figures(watermark)
        is_past = known.earliest is not None and watermark is not None and known.earliest < watermark
        if is_past and (self.ref is None or self.ref.epoch != epoch):
            self._figures = known = self.section.figures(watermark)
        return known

    def files(self) -> list[str]:
        """Its own file, and the segments that it refers to."""
        return [*self.names, *([self.ref.name] if self.ref is not None else ())]

    def written(self, files: Files, epoch: int) -> Entry:
        """The same with a file."""
        if self.ref is not None:
            return self
        return Entry(self.section.write(files, epoch), files, self._section, self._names, self._figures)


@dataclass(frozen=True)
class Layout:
    """Who has what: the directory of groups, and the grids of heavy keys."""

    directory: Directory
    grids: Sequence[Grid] = ()

    def owners(self) -> Callable[[int], Key]:
        """The section of a cell by its code."""
        placed = {grid.id: (stage_of(grid.family), grid.slots) for grid in self.grids}

        def owner(code: int) -> Key:
            grid, cell = split_code(code)
            if grid == 0:
                return 0, cell
            if grid not in placed:
                return SHARED
            stage, slots = placed[grid]
            return stage, slots[cell]

        return owner

    def touched(self, other: Layout) -> set[Key]:
        """The sections in which two layouts differ."""
        found = set[Key]()
        if self.directory is not other.directory:
            found |= _moved(self.directory, other.directory)
        if self.grids is not other.grids:
            before, after = ({grid.id: grid for grid in one.grids} for one in (self, other))
            for id_ in before.keys() | after.keys():
                if before.get(id_) != after.get(id_):
                    for grid in (one[id_] for one in (before, after) if id_ in one):
                        found |= {(stage_of(grid.family), slot) for slot in grid.slots}
                    found.add(SHARED)
        return found

    def dealt(self, segments: Iterable[Segment]) -> dict[Key, list[Segment]]:
        """The segments of each section, with the parts and cells of that section."""
        owner, found = self.owners(), defaultdict[Key, list[Segment]](list)
        for segment in segments:
            parts, cells = defaultdict[Key, list[Part]](list), defaultdict[Key, list[tuple[int, int]]](list)
            for part in segment.parts:
                group = self.directory.at(part.low)
                parts[group.stage, group.slot].append(part)
            for cell in segment.cells:
                cells[owner(cell[0])].append(cell)
            for key in parts.keys() | cells.keys():
                found[key].append(replace(segment, parts=tuple(parts.get(key, ())), cells=tuple(cells.get(key, ()))))
        return found

    def sections(self, segments: Iterable[Segment], keys: Collection[Key] | None = None) -> dict[Key, Section]:
        """Sections made anew of segments: of these keys, and of all that hold something."""
        dealt = self.dealt(segments)
        stages = {stage for stage, _ in (keys or ()) if stage >= 0} | {stage for stage, _ in dealt if stage >= 0}
        wanted = set(dealt) | set(keys or ())
        groups: dict[Key, list[Any]] = defaultdict(list)
        for stage in stages:
            for group in self.directory.region(stage).groups:
                if keys is None or (stage, group.slot) in wanted:
                    groups[stage, group.slot].append(group)
        made = {}
        for key in wanted | (set(groups) if keys is None else set()):
            stage, slot = key
            made[key] = Section(stage, SlotId(slot), tuple(groups.get(key, ())), tuple(dealt.get(key, ())))
        return made


def _moved(before: Directory, after: Directory) -> set[Key]:
    """The stages and slots whose groups are not the same in two directories."""
    old, new = before.columns(), after.columns()
    alike = all(
        np.array_equal(getattr(old, name), getattr(new, name)) for name in ("stages", "firsts", "depths", "ids")
    )
    if not alike:
        return {(group.stage, group.slot) for group in set(before.groups) ^ set(after.groups)}
    at = np.flatnonzero(old.slots != new.slots)
    stages = old.stages[at].tolist()
    return {*zip(stages, old.slots[at].tolist(), strict=True), *zip(stages, new.slots[at].tolist(), strict=True)}


def merged_segments(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments of several sections, each file once."""
    found: dict[str, Segment] = {}
    for segment in segments:
        known = found.get(segment.name)
        found[segment.name] = segment if known is None else _together(known, segment)
    return tuple(found.values())


def _together(one: Segment, other: Segment) -> Segment:
    parts = tuple(sorted((*one.parts, *other.parts), key=lambda part: (part.low, part.generation)))
    given = tuple(sorted({*one.given, *other.given}))
    return replace(one, parts=parts, cells=tuple(sorted((*one.cells, *other.cells))), given=given)


def fitted_segment(segment: Segment, directory: Directory) -> Segment:
    """The segment with parts that lie within one group each."""
    parts = _fit(segment.parts, directory)
    return segment if parts == segment.parts else replace(segment, parts=parts)


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


_INDEX = ("stage", "slot", "epoch", "uid", "checksum", "size")
_TYPES = {"stage": "<i4", "slot": "<i4", "epoch": "<i4", "uid": "<u8", "checksum": "<u4", "size": "<u4"}


class Sections:
    """All sections of a snapshot. A value: changes give another one."""

    __slots__ = ("_entries", "_files", "_index")

    def __init__(
        self,
        entries: Mapping[Key, Entry] | None = None,
        index: Mapping[str, npt.NDArray[Any]] | None = None,
        files: Files | None = None,
    ) -> None:
        self._entries, self._index, self._files = dict(entries or {}), index, files

    @classmethod
    def of(cls, layout: Layout, segments: Iterable[Segment]) -> Sections:
        """Sections that are not written yet."""
        return cls({key: Entry(section=own) for key, own in layout.sections(segments).items()})

    def get(self, key: Key) -> Entry | None:
        """A section; None where there is none, and so no state."""
        if key not in self._entries and self._index is not None:
            at = np.flatnonzero((self._index["stage"] == key[0]) & (self._index["slot"] == key[1]))
            if len(at):
                self._entries[key] = self._from_index(int(at[0]))
        return self._entries.get(key)

    def _from_index(self, at: int) -> Entry:
        assert self._index is not None
        return Entry(Ref(*(int(self._index[name][at]) for name in _INDEX)), self._files)

    def entries(self) -> dict[Key, Entry]:
        """All of them, in order."""
        if self._index is not None:
            columns = (self._index[name].tolist() for name in _INDEX)
            for row in zip(*columns, strict=True):
                if (row[0], row[1]) not in self._entries:
                    self._entries[row[0], row[1]] = Entry(Ref(*row), self._files)
            self._entries = dict(sorted(self._entries.items()))
            self._index = None
        return self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self.entries())

    def of_slot(self, slot: int) -> list[Entry]:
        """The sections of a slot, of all stages."""
        if self._index is None:
            return [entry for (_, own), entry in self._entries.items() if own == slot]
        stages = self._index["stage"][self._index["slot"] == slot].tolist()
        found = (self.get((stage, slot)) for stage in stages)
        return [entry for entry in found if entry is not None]

    def with_entries(self, changes: Mapping[Key, Entry]) -> Sections:
        """With some others."""
        return Sections(dict(sorted({**self.entries(), **changes}.items()))) if changes else self

    def mapped(self, change: Callable[[Section], Section], keys: Iterable[Key]) -> Sections:
        """With some of them changed; those that stay the same keep their files."""
        made = {}
        for key in keys:
            entry = self.get(key)
            if entry is not None and (new := change(entry.section)) is not entry.section and new != entry.section:
                made[key] = Entry(section=new)
        return self.with_entries(made)

    def laid_out(self, before: Layout, after: Layout, fit: Callable[[Segment], Segment], n_slots: int) -> Sections:
        """The sections after the layout has changed: those that it touches are dealt anew."""
        touched = before.touched(after)
        gone = {key for key in self.entries() if key != SHARED and key[1] >= n_slots}
        touched |= gone
        if not touched:
            return self
        held = [entry.section for key in sorted(touched) if (entry := self.get(key)) is not None]
        segments = merged_segments(segment for section in held for segment in section.segments)
        made = after.sections([fit(segment) for segment in segments], touched)
        for key in made.keys() - touched:  # a slot that others' state comes to: what it has stays
            if (entry := self.get(key)) is not None:
                own = merged_segments((*entry.section.segments, *made[key].segments))
                made[key] = made[key].with_segments(own)
        left = {key: entry for key, entry in self.entries().items() if key not in gone}
        kept = {key: entry for key, entry in left.items() if key not in made}
        new = {key: Entry(section=section) for key, section in made.items() if key not in gone or section.segments}
        for key, entry in new.items():
            if key in left and left[key]._section == entry.section:
                new[key] = left[key]
        return Sections(dict(sorted({**kept, **new}.items())))

    def written(self, files: Files, epoch: int) -> Sections:
        """The same, each in a file."""
        if all(entry.ref is not None for entry in self.entries().values()):
            return self
        return Sections({key: entry.written(files, epoch) for key, entry in self.entries().items()})

    def are_those_of(self, other: Sections) -> bool:
        """Whether both are the same files."""
        if self is other:
            return True
        own, others = self.entries(), other.entries()
        return own.keys() == others.keys() and all(
            entry.ref is not None and entry.ref == others[key].ref for key, entry in own.items()
        )

    def files_since(self, before: Sections) -> frozenset[str]:
        """The files of sections that were not written before."""
        if before is self:
            return frozenset()
        own, others = self.entries(), before.entries()
        return frozenset(e.ref.name for key, e in own.items() if e.ref is not None and others.get(key) is not e)

    def index(self) -> dict[str, npt.NDArray[Any]]:
        """The table of their files."""
        refs = [entry.ref for entry in self.entries().values()]
        assert all(ref is not None for ref in refs)
        rows = [(r.stage, r.slot, r.epoch, r.uid, r.checksum, r.size) for r in refs if r is not None]
        columns = zip(*rows, strict=True) if rows else [()] * len(_INDEX)
        return {name: np.array(own, dtype=_TYPES[name]) for name, own in zip(_INDEX, columns, strict=True)}

    def names(self) -> Iterator[str]:
        """All files: sections and segments, a shared one more than once."""
        for entry in self.entries().values():
            yield from entry.files()
