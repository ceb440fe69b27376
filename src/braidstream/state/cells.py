"""The cells of heavy keys in a manifest: which there are, where they are, and what each sees of the stored rows.

A segment of cells has codes instead of parts. A grid that was replaced is *retired*: it stays in the manifest for as
long as live slices were written under it, because its dimensions say which cells of the present grid see them
(`kernels.stripes` has the rule). What was stored before a key turned heavy stays in the segments of its group; the slot
of that group never looks at it while the key is heavy, since no new row of that key reaches it.

Invariants: every cell is at a slot below the number of slots; a code is never used again; every live code belongs to a
grid of the manifest. Cost: O(grids + cells) for a change; what a cell reads follows the rows of its key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from braidstream.kernels.families import dimensions_of, is_unkeyed_family, stage_of
from braidstream.kernels.join import gather
from braidstream.kernels.rows import HASH, U64, Rows
from braidstream.kernels.sizes import whole
from braidstream.kernels.stripes import HeavyKeys, Layout, split_code, store_of, stripes, use_name
from braidstream.model.directory import Group, address_of
from braidstream.model.grids import Grid, Regrid
from braidstream.model.numbers import Address, SlotId
from braidstream.model.snapshots import SHARED, Key
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.segments import open_segment

__all__ = [
    "Cells",
    "Reader",
    "address_of_grid",
    "heavy_keys",
    "is_unit",
    "layout_of",
    "may_have_grid",
    "may_hold",
    "pruned",
    "regridded",
    "resettled",
    "without_families",
]


def layout_of(grid: Grid) -> Layout:
    """A grid as the kernels know it."""
    return Layout(grid.id, grid.hash, dimensions_of(grid.family), grid.dims)


def address_of_grid(grid: Grid) -> Address:
    """Where the grid's key is while it is light."""
    return address_of(stage_of(grid.family), grid.hash)


def heavy_keys(manifest: Manifest) -> dict[str, HeavyKeys]:
    """Where rows of heavy keys go, by family."""
    by_family: dict[str, dict[Layout, Sequence[int]]] = defaultdict(dict)
    for grid in manifest.grids:
        by_family[grid.family][layout_of(grid)] = grid.slots
    return {family: HeavyKeys.of(placed) for family, placed in by_family.items()}


def regridded(manifest: Manifest, changes: Iterable[Regrid]) -> Manifest:
    """The manifest with other grids. Nothing is copied: what is stored stays where it is."""
    current = {grid.key: grid for grid in manifest.grids}
    retired = list(manifest.retired)
    for change in changes:
        if change.grid is not None and not may_have_grid(manifest, change.family, change.hash):
            continue
        old = current.pop((change.family, change.hash), None)
        if old is not None and (change.grid is None or change.grid.id != old.id):
            retired.append(old)
        if change.grid is not None:
            current[change.family, change.hash] = change.grid
    return pruned(manifest.laid_out(grids=tuple(current.values()), retired=tuple(retired)))


def may_have_grid(manifest: Manifest, family: str, key: int) -> bool:
    """Whether a key has a grid or may get one: not while its group has inactive generations, which cells do not see.

    The rows of a join without an equality are never in groups.
    """
    if is_unkeyed_family(family) or any(grid.key == (family, key) for grid in manifest.grids):
        return True
    group = manifest.directory.at(address_of(stage_of(family), key))
    segments = manifest.live((group.stage, group.slot))
    return not any(part.generation and part.meets(group) for segment in segments for part in segment.parts)


def without_families(manifest: Manifest, families: Iterable[str]) -> Manifest:
    """The manifest in which keys of other families are light: after queries came or went."""
    known = set(families)
    return regridded(manifest, [Regrid(g.family, g.hash, None) for g in manifest.grids if g.family not in known])


def is_unit(code: int) -> bool:
    """Whether a code is the slot of a biclique's unit: grids are numbered from 1."""
    return split_code(code)[0] == 0


def pruned(manifest: Manifest) -> Manifest:
    """The manifest without retired grids that no live slice refers to."""
    if not manifest.retired:
        return manifest
    alive = {split_code(code)[0] for segment in manifest.live(SHARED) for code, _ in segment.cells}
    return replace(manifest, retired=tuple(grid for grid in manifest.retired if grid.id in alive))


def resettled(manifest: Manifest, n_slots: int) -> Manifest:
    """The manifest with `n_slots` slots: cells of slots that are gone go to those with the fewest cells."""
    held = [0] * n_slots
    for grid in manifest.grids:
        for slot in grid.slots:
            if slot < n_slots:
                held[slot] += 1
    grids = []
    for grid in manifest.grids:
        slots = list(grid.slots)
        for cell, slot in enumerate(slots):
            if slot >= n_slots:
                slots[cell] = SlotId(held.index(min(held)))
                held[slots[cell]] += 1
        grids.append(replace(grid, slots=tuple(slots)))
    return manifest.laid_out(n_slots=n_slots, grids=tuple(grids))


@dataclass(frozen=True)
class Cells:
    """The grids of a manifest, by what one asks for."""

    manifest: Manifest

    @cached_property
    def layouts(self) -> dict[int, Layout]:
        """Current and retired ones, by id."""
        return {grid.id: layout_of(grid) for grid in (*self.manifest.grids, *self.manifest.retired)}

    @cached_property
    def current(self) -> dict[int, Grid]:
        """The current grids, by id."""
        return {grid.id: grid for grid in self.manifest.grids}

    def slot_of(self, code: int) -> SlotId | None:
        """The slot of a code; None when its grid is retired."""
        grid, cell = split_code(code)
        if is_unit(code):
            return SlotId(cell)
        return self.current[grid].slots[cell] if grid in self.current else None

    def of_slot(self, slot: SlotId) -> list[int]:
        """The codes of a slot's cells, ascending."""
        codes = (
            layout_of(grid).code(cell)
            for grid in self.manifest.grids
            for cell, where in enumerate(grid.slots)
            if where == slot
        )
        return sorted(codes)

    def elsewhere(self, codes: Iterable[int], own: Key) -> list[Segment]:
        """What cells with these codes may see that is not in their own section: slices from before their grids.

        Of a grid that is settled there are none. A file may be here and in their own section, with other cells of it.
        """
        young = [grid for id_ in {split_code(code)[0] for code in codes} if (grid := self.current.get(id_)) is not None]
        young = [grid for grid in young if grid.id not in self.manifest.settled]
        homes = {(g.stage, g.slot) for g in map(self._group_of, young)}
        return [s for key in sorted({SHARED, *homes} - {own}) for s in self.manifest.live(key)] if young else []

    def _group_of(self, grid: Grid) -> Group:
        return self.manifest.directory.at(address_of_grid(grid))

    def home(self, store: str, hash_: int) -> SlotId:
        """The slot where rows of a store with grids are while their key is light."""
        return self.manifest.directory.at(address_of(self._stages[store], hash_)).slot

    @cached_property
    def _stages(self) -> dict[str, int]:
        grids = (*self.manifest.grids, *self.manifest.retired)
        return {store_of(name): stage_of(g.family) for g in grids for name in dimensions_of(g.family)}

    @cached_property
    def heavy(self) -> dict[str, frozenset[int]]:
        """The heavy hashes of each store."""
        found: dict[str, set[int]] = defaultdict(set)
        for grid in self.manifest.grids:
            for dimension in dimensions_of(grid.family):
                found[store_of(dimension)].add(grid.hash)
        return {store: frozenset(hashes) for store, hashes in found.items()}

    def without_heavy(self, segment: Segment) -> Segment:
        """A segment of groups that was written just now: it has no rows of keys that are heavy, and says so."""
        heavy = self.heavy.get(segment.store, frozenset())
        absent = (hash_ for hash_ in heavy if any(part.first <= hash_ <= part.last for part in segment.parts))
        return replace(segment, given=tuple(sorted({*segment.given, *absent})))

    def returned(self, store: str) -> frozenset[int]:
        """The light hashes of which a store has rows in cells, from when they were heavy."""
        grids = (grid for grid in self.manifest.retired if store in dimensions_of(grid.family))
        return frozenset(grid.hash for grid in grids) - self.heavy.get(store, frozenset())


@dataclass(frozen=True)
class Reader:
    """Reads what cells (or light keys that were heavy) see of the stored rows of one dimension."""

    files: Files
    cells: Cells
    store: str
    use: int
    window_us: int | None

    def seen(self, codes: Sequence[int], segments: Sequence[Segment]) -> Iterator[Rows]:
        """What the current cells with these codes see, in rows with these codes."""
        own = set(codes)
        for segment in segments:
            if segment.use == self.use and (found := [code for code, _ in segment.cells if code in own]):
                yield self._gather(segment, np.array(found, dtype=np.uint64))
        yield from self.seen_elsewhere(codes, segments)

    def seen_elsewhere(self, codes: Sequence[int], segments: Sequence[Segment]) -> Iterator[Rows]:
        """What they see of slices that were written under other layouts."""
        wanted: dict[int, list[int]] = defaultdict(list)
        for code in codes:
            grid, cell = split_code(code)
            wanted[grid].append(cell)
        for grid, found in wanted.items():
            yield from self._seen_of(self.cells.layouts[grid], found, segments)

    def returned(self, hashes: Sequence[int], segments: Sequence[Segment]) -> Iterator[Rows]:
        """What light keys see of the cells they had when they were heavy, in rows with their hashes."""
        for hash_ in hashes:
            yield from self._seen_of(Layout(-1, hash_), [0], [segment for segment in segments if segment.cells])

    @property
    def _dimension(self) -> str:
        return use_name(self.store, self.use)

    def _seen_of(self, layout: Layout, wanted: Sequence[int], segments: Sequence[Segment]) -> Iterator[Rows]:
        """What cells of one layout see of slices that were written under others."""
        for segment in segments:
            if segment.parts:
                if may_hold(segment, layout.hash):
                    rows = self._gather(segment, np.array([layout.hash], dtype=np.uint64))
                    yield from self._striped(rows, layout, wanted)
                continue
            for code, _ in segment.cells:
                grid, cell = split_code(code)
                old = self.cells.layouts[grid]
                if grid == layout.id or old.hash != layout.hash:
                    continue
                if use_name(self.store, segment.use) != old.source(self._dimension):
                    continue
                seers = [one for one in wanted if layout.sees(one, old, cell, self._dimension)]
                if seers:
                    yield from self._striped(self._gather(segment, np.array([code], dtype=np.uint64)), layout, seers)

    def _gather(self, segment: Segment, hashes: U64) -> Rows:
        rows = open_segment(self.files, segment)
        return rows.take(gather(rows, hashes, self.cells.manifest.watermark, self.window_us))

    def _striped(self, rows: Rows, layout: Layout, wanted: Sequence[int]) -> Iterator[Rows]:
        """The rows of each cell's stripe, in the cell's code. All have one hash, so they stay sorted by time."""
        if not len(rows):
            return
        numbers = stripes(rows.table) if layout.dims else None
        for cell in wanted:
            table = rows.table
            modulus, remainder = layout.stripe(cell, self._dimension)
            if numbers is not None and modulus > 1:
                table = table.filter(pa.array(numbers % np.uint64(modulus) == np.uint64(remainder)))
            if table.num_rows:
                yield _coded(table, layout.code(cell))


def may_hold(segment: Segment, hash_: int) -> bool:
    """Whether a segment of groups may have live rows of a key."""
    return hash_ not in segment.given and any(part.first <= hash_ <= part.last for part in segment.parts)


def _coded(table: pa.Table, code: int) -> Rows:
    codes = np.full(table.num_rows, code, dtype=np.uint64).view(np.int64)
    return Rows(whole(table.set_column(table.column_names.index(HASH), HASH, pa.array(codes))))
