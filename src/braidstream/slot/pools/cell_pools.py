"""The cells of a slot in one epoch: the pools of their joins, and what is stored and reported of them.

Rows of cells have the cell's code in the place of the key hash, so the join's kernel needs to know nothing of grids. A
join over some of a family's stores produces only in cells whose other coordinates are 0, because its inputs are
repeated along those. Stored rows are gathered for the cells that got new rows of the other inputs, and only for them.

Invariant: a composite of a heavy key is produced in one cell, once. Cost: that of `slot.pools.group_pools`, and for
slices from before the last regrid a hash of each row that a cell looks at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from braidstream.kernels.families import input_uses
from braidstream.kernels.join import Pool
from braidstream.kernels.rows import U64, Rows, distinct, sort_rows
from braidstream.kernels.sizes import joined
from braidstream.kernels.stripes import split_code, use_name
from braidstream.model.reports import CellCount
from braidstream.model.stores import Join, Store
from braidstream.slot.pools.group_pools import made_pool
from braidstream.state.cells import Cells, Reader
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.section import Section
from braidstream.state.segments import Place, open_segment

__all__ = ["CellPools"]

Use = tuple[int, int]
"""A store and one of its uses."""
Fits = Callable[[int, int], bool]
"""Whether rows with times from one to another are asked for."""


class CellPools:
    """What the cells of one slot join in one epoch. `new` has the new rows by store and use."""

    def __init__(
        self,
        files: Files,
        manifest: Manifest,
        section: Section,
        stores: Sequence[Store],
        new: Mapping[Use, Rows],
        joins: Sequence[Join],
    ) -> None:
        self._files, self._stores, self._new, self._section = files, stores, new, section
        self._cells = Cells(manifest)
        self._distinct = {use: rows.distinct_hashes() for use, rows in new.items()}
        self._partners: dict[Use, set[Use]] = defaultdict(set)
        for join in joins:
            uses = input_uses(join)
            for one in uses:
                self._partners[one] |= set(uses) - {one}
        self._gathered: dict[tuple[Use, int], list[Rows]] = {}

    @property
    def codes(self) -> U64:
        """The codes of the cells that got new rows, ascending."""
        return np.unique(np.concatenate(list(self._distinct.values()))) if self._distinct else _NONE

    def of(self, join: Join, deferred: int | None = None) -> list[Pool] | None:
        """The pools of a join's inputs; None when nothing can match."""
        if not self._cells.manifest.grids or not self._stores[join.inputs[0].store].family:
            return None
        return self._of_new(join) if deferred is None else self._of_deferred(join, deferred)

    def new_of_cells(self, join: Join) -> Iterator[tuple[int, list[Rows | None]]]:
        """Each cell in which a join produces and that got new rows, with those of each input."""
        new = [self._producing(join, self._new[use]) if use in self._new else None for use in input_uses(join)]
        for code in distinct([rows.distinct_hashes() for rows in new if rows is not None]).tolist():
            yield code, [None if rows is None else _of_cell(rows, code) for rows in new]

    def slices(self, join: Join, place: int, code: int, fits: Fits) -> Iterator[tuple[str, Rows]]:
        """What a cell sees of the stored rows of an input, slice by slice: no more than one is held at a time.

        `fits` says by the times of a segment whether it is asked for. The slices of its own come with a name, by which
        they can be known again, and without a copy; those from before its grid have none.
        """
        use = input_uses(join)[place]
        segments = [s for s in self._seen(use, join) if fits(s.oldest, s.newest)]
        for segment in segments:
            is_own = segment.use == use[1] and any(code == own for own, _ in segment.cells)
            if is_own and (rows := _of_cell(open_segment(self._files, segment), code)) is not None:
                yield self._files.path(segment.name), rows
        for rows in self._reader(use).seen_elsewhere([code], segments):
            if len(rows):
                yield "", rows

    def write(self, place: Place) -> list[Segment]:
        """The new rows as segments."""
        stores = self._stores
        return [
            place.write_cells(rows, stores[store].name, use, stores[store].window_us)
            for (store, use), rows in self._new.items()
            if stores[store].kept
        ]

    def counts(self) -> tuple[CellCount, ...]:
        """How many new rows each cell has."""
        found: list[CellCount] = []
        for (store, use), rows in self._new.items():
            codes = self._distinct[store, use]
            counts = np.diff(rows.cuts(codes)).tolist()
            found += [CellCount(store, use, code, n) for code, n in zip(codes.tolist(), counts, strict=True)]
        return tuple(found)

    def _of_new(self, join: Join) -> list[Pool] | None:
        uses = input_uses(join)
        new = {use: self._producing(join, self._new[use]) for use in uses if use in self._new}
        if not any(len(rows) for rows in new.values()):
            return None
        return _pools([(self._stored(use, join.since), new.get(use)) for use in uses])

    def _stored(self, use: Use, since: int) -> list[Rows]:
        """The stored rows of cells that got new rows of the inputs that this use is joined with."""
        if (use, since) not in self._gathered:
            asked = [self._distinct[other] for other in sorted(self._partners[use]) if other in self._distinct]
            codes = np.unique(np.concatenate(asked)).tolist() if asked else []
            segments = [s for s in self._segments[self._stores[use[0]].name] if s.first_epoch > since]
            self._gathered[use, since] = list(self._reader(use).seen(codes, segments))
        return self._gathered[use, since]

    def _of_deferred(self, join: Join, since: int) -> list[Pool] | None:
        """What arrived after `since` is new, as in `Pools`; here for all cells of the slot."""
        uses = input_uses(join)
        family = self._stores[join.inputs[0].store].family
        own = [code for code in self._cells.of_slot(self._section.slot) if self._family(code) == family]
        new: dict[Use, Rows | None] = {}
        for use in uses:
            later = [s for s in self._seen(use, join) if s.first_epoch > since]
            parts = [*self._reader(use).seen(own, later), *([self._new[use]] if use in self._new else [])]
            tables = [part.table for part in parts if len(part)]
            merged = sort_rows(joined(tables)) if tables else None
            new[use] = None if merged is None else self._producing(join, merged)
        pools = []
        for use in uses:
            others = [rows.distinct_hashes() for other in uses if other != use and (rows := new[other]) is not None]
            codes = np.unique(np.concatenate(others)).tolist() if others else []
            earlier = [s for s in self._seen(use, join) if s.first_epoch <= since]
            pools.append((list(self._reader(use).seen(codes, earlier)), new[use]))
        return _pools(pools)

    def _seen(self, use: Use, join: Join) -> list[Segment]:
        """The segments of a store whose tuples arrived after the join's query was submitted."""
        return [s for s in self._segments[self._stores[use[0]].name] if s.first_epoch > join.since]

    def _producing(self, join: Join, rows: Rows) -> Rows:
        """Only the rows of cells in which the join produces."""
        dimensions = [use_name(self._stores[store].name, use) for store, use in input_uses(join)]
        codes = rows.distinct_hashes()
        layouts = {split_code(code)[0]: self._cells.layouts[split_code(code)[0]] for code in codes.tolist()}
        producing = [layout.code(cell) for layout in layouts.values() for cell in layout.producing_cells(dimensions)]
        kept = np.isin(codes, np.array(producing, dtype=np.uint64))
        if kept.all():
            return rows
        return rows.take(np.flatnonzero(np.repeat(kept, np.diff(rows.cuts(codes)))))

    def _reader(self, use: Use) -> Reader:
        store = self._stores[use[0]]
        return Reader(self._files, self._cells, store.name, use[1], store.window_us)

    def _family(self, code: int) -> str:
        return self._cells.current[split_code(code)[0]].family

    @cached_property
    def _segments(self) -> Mapping[str, Sequence[Segment]]:
        found: dict[str, list[Segment]] = defaultdict(list)
        own = self._section.live(self._cells.manifest.watermark)
        elsewhere = self._cells.elsewhere(self._cells.of_slot(self._section.slot), self._section.key)
        for segment in (*own, *elsewhere):
            found[segment.store].append(segment)
        return found


def _of_cell(rows: Rows, code: int) -> Rows | None:
    """The rows of one cell, which lie together; None where there are none."""
    begin, end = (int(np.searchsorted(rows.hashes, np.uint64(code), side=side)) for side in ("left", "right"))
    return Rows(rows.table.slice(begin, end - begin)) if begin < end else None


_NONE = np.empty(0, dtype=np.uint64)


def _pools(sides: Sequence[tuple[Sequence[Rows], Rows | None]]) -> list[Pool] | None:
    pools = [made_pool(stored, new) for stored, new in sides]
    return None if any(pool is None for pool in pools) else [pool for pool in pools if pool is not None]
