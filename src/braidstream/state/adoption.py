"""Adoption: a regrid made physical. Cells take over what they see of slices that were written under other layouts.

After a regrid, cells read the slices of earlier grids, and of the time when the key was light, through a stripe filter.
Adoption rewrites these rows once, under the codes of the present cells, and takes them off where they were: cells of
retired grids are dropped from their segments, and a segment of groups notes the key as *given*. Likewise a key that is
light again takes its rows back from the cells it had.

A slice is seen by several cells, so it is taken off only when all of them have their share: an adoption of one key and
store is carried out by all slots with cells of the key in one epoch, and counts only if all of them report it (a slot
without rows in an epoch does not run). Otherwise nothing changes, and it is tried again.

Invariant: every stored row is live in one layout, before and after. Cost: once for each regrid, about what the cells
read in one epoch anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from braidstream.kernels.rows import Rows, merge
from braidstream.kernels.stripes import Layout, split_code, store_of, use_name
from braidstream.model.directory import Group, address_of
from braidstream.model.numbers import SlotId
from braidstream.model.reports import SlotReport
from braidstream.model.snapshots import SHARED
from braidstream.state.cells import Cells, Reader, address_of_grid, layout_of, may_hold
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.sections import Entry
from braidstream.state.segments import Place

__all__ = ["Adoption", "adopted", "plan", "run", "settled", "sources"]

EVERY = 2
"""Adoptions are tried in every so many epochs, because the segments that they read cannot be merged in the same one."""


@dataclass(frozen=True)
class Adoption:
    """One key's rows of one store are taken over, from these segments, by the cells of a grid (None: it is light)."""

    number: int
    """Which of the epoch's adoptions."""
    hash: int
    store: str
    uses: tuple[int, ...]
    grid: int | None
    slots: frozenset[int]
    sources: tuple[Segment, ...]
    codes: frozenset[int]
    """The cells of retired grids that are taken over."""
    window_us: int | None


def plan(
    manifest: Manifest, windows: Mapping[str, int | None], epoch: int, barriers: Iterable[int] = ()
) -> tuple[Adoption, ...]:
    """What is to be adopted in an epoch: for each key and store the slices of one stretch between barriers."""
    if epoch % EVERY:
        return ()
    between, cells, made = sorted(barriers), Cells(manifest), list[Adoption]()
    for layout, store, uses in _takers(cells):
        slots = _slots(cells, layout, store)
        stretches: dict[int, list[tuple[Segment, list[int]]]] = defaultdict(list)
        for segment, codes in _foreign_slices(cells, layout, store):
            stretches[bisect_left(between, segment.first_epoch)].append((segment, codes))
        for _, found in sorted(stretches.items())[:1]:
            given = frozenset(code for _, codes in found for code in codes)
            grid = layout.id if layout.dims else None
            sources = tuple(segment for segment, _ in found)
            made.append(Adoption(len(made), layout.hash, store, uses, grid, slots, sources, given, windows.get(store)))
    return tuple(made)


def settled(manifest: Manifest) -> frozenset[int]:
    """The grids whose keys have no slices left that were written under other layouts."""
    cells, found = Cells(manifest), set(manifest.settled)
    young = [grid for grid in manifest.grids if grid.id not in found]
    for layout in map(layout_of, young):
        stores = {store_of(name) for name in layout.names}
        if not any(_foreign_slices(cells, layout, store) for store in stores):
            found.add(layout.id)
    return frozenset(found)


def run(place: Place, manifest: Manifest, task: Adoption) -> list[Segment]:
    """What the slot takes over, as segments."""
    cells, made = Cells(manifest), []
    first, last = min(s.first_epoch for s in task.sources), max(s.epoch for s in task.sources)
    for use in task.uses:
        reader = Reader(place.files, cells, task.store, use, task.window_us)
        rows = [part for part in _taken(reader, cells, place.slot, task) if len(part)]
        if rows and task.grid is None:
            made.append(cells.without_heavy(place.write(merge(rows), task.store, task.window_us, first)))
        elif rows:
            made.append(place.write_cells(merge(rows), task.store, use, task.window_us, first))
    return [replace(segment, epoch=last) for segment in made]


def adopted(manifest: Manifest, tasks: Sequence[Adoption], reports: Sequence[SlotReport]) -> Manifest:
    """The manifest after the adoptions that all their slots have reported: sections that they touch are rewritten."""
    for task in tasks:
        done = {report.slot: report.adopted[task.number] for report in reports if task.number in report.adopted}
        if task.slots <= done.keys():
            names = {source.name for source in task.sources}
            made = [segment for segments in done.values() for segment in segments]
            manifest = _taken_over(manifest, task, names, made)
    return manifest


def _taken_over(manifest: Manifest, task: Adoption, names: Collection[str], made: Sequence[Segment]) -> Manifest:
    dealt = manifest.layout.dealt(made)
    homes = {SHARED, *((g.stage, g.slot) for g in _groups_of(manifest, task))}
    sections = {}
    for key in sorted(homes | dealt.keys()):
        section = manifest.section(key)
        live = section.live(manifest.watermark)
        own = (_without(s, task) if s.name in names else s for s in live) if key in homes else live
        held = tuple(segment for segment in own if segment.is_live)
        there = {segment.name for segment in held}  # where an epoch is folded again they are
        segments = (*held, *(segment for segment in dealt.get(key, ()) if segment.name not in there))
        if segments != live:
            sections[key] = Entry(section=section.with_segments(segments))
    return replace(manifest, sections=manifest.sections.with_entries(sections))


def _groups_of(manifest: Manifest, task: Adoption) -> set[Group]:
    """The groups of the key at all stages: it is the home of one of them."""
    return {manifest.directory.at(address_of(stage, task.hash)) for stage in manifest.directory.regions}


def _takers(cells: Cells) -> Iterator[tuple[Layout, str, tuple[int, ...]]]:
    """The keys that may have slices under other layouts: heavy ones, and light ones that were heavy."""
    for grid in cells.manifest.grids:
        if grid.id in cells.manifest.settled:
            continue
        layout = layout_of(grid)
        for store in dict.fromkeys(store_of(name) for name in layout.names):
            yield layout, store, tuple(use for use in range(len(layout.names)) if use_name(store, use) in layout.names)
    stores = {store_of(name) for grid in cells.manifest.retired for name in layout_of(grid).names}
    for store in sorted(stores):
        for hash_ in sorted(cells.returned(store)):
            yield Layout(-1, hash_), store, (0,)


def _slots(cells: Cells, layout: Layout, store: str) -> frozenset[int]:
    if layout.dims:
        return frozenset(cells.current[layout.id].slots)
    return frozenset([cells.home(store, layout.hash)])


def _foreign_slices(cells: Cells, layout: Layout, store: str) -> list[tuple[Segment, list[int]]]:
    """The segments with slices of a key that were written under other layouts, and the cells of these."""
    manifest, keys = cells.manifest, {SHARED}
    if layout.dims:
        group = manifest.directory.at(address_of_grid(cells.current[layout.id]))
        keys.add((group.stage, group.slot))
    found = ((s, _foreign(cells, layout, store, s)) for key in sorted(keys) for s in manifest.live(key))
    return [(segment, codes) for segment, codes in found if codes is not None]


def _foreign(cells: Cells, layout: Layout, store: str, segment: Segment) -> list[int] | None:
    """The cells of a segment that were written under other layouts of the key; None when there is nothing of it."""
    if segment.store != store:
        return None
    if segment.parts:
        return [] if layout.dims and may_hold(segment, layout.hash) else None
    found = [
        code
        for code, _ in segment.cells
        if split_code(code)[0] != layout.id and cells.layouts[split_code(code)[0]].hash == layout.hash
    ]
    return found or None


def _taken(reader: Reader, cells: Cells, slot: SlotId, task: Adoption) -> Iterator[Rows]:
    if task.grid is None:
        yield from reader.returned([task.hash], task.sources)
        return
    own = [code for code in cells.of_slot(slot) if split_code(code)[0] == task.grid]
    yield from reader.seen_elsewhere(own, task.sources)


def _without(segment: Segment, task: Adoption) -> Segment:
    if segment.parts:
        return replace(segment, given=tuple(sorted({*segment.given, task.hash})))
    return segment.without_cells(task.codes)


def sources(tasks: Collection[Adoption]) -> frozenset[str]:
    """The segments that are read by adoptions, and so are not to be merged in the same epoch."""
    return frozenset(segment.name for task in tasks for segment in task.sources)
