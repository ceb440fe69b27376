"""The pools of a slot: for each input of a join, the stored rows that may match and the new rows.

Gathering reads each segment once for all joins that look at the same epochs. A join that was deferred since an epoch
takes what was stored after it as new, so that it produces exactly what it has not produced yet.

Rows of heavy keys are joined in cells (`slot.pools.cell_pools`), also those that were stored before the key turned
heavy. A key that is light again sees what was stored of it in cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from braidstream.kernels.join import Pool, gather
from braidstream.kernels.rows import U64, Rows, distinct, sort_rows
from braidstream.kernels.sizes import joined
from braidstream.model.snapshots import SHARED
from braidstream.model.stores import Join, Store
from braidstream.state.cells import Cells, Reader
from braidstream.state.files import Files
from braidstream.state.filters import filter_of, sift
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.section import Section
from braidstream.state.segments import open_segment, owned_index, owned_ranges, owned_rows

__all__ = ["Pools", "made_pool"]

_FEW = 2048
"""Rows of a segment from which on it is probed as it is: gathering small ones costs less than a side of their own."""
_MANY = 8
"""A segment of more than so many times the needles is not: only what is found of it is looked at."""


class Pools:
    """What one slot joins in one epoch."""

    def __init__(
        self,
        files: Files,
        manifest: Manifest,
        section: Section,
        stores: Sequence[Store],
        new: Mapping[int, Rows],
        joins: Sequence[Join],
        opened: dict[str, Rows] | None = None,
    ) -> None:
        self._files, self._stores, self._new, self._opened = files, stores, new, opened
        self._manifest, self._slot, self._cells = manifest, section.slot, Cells(manifest)
        self._watermark, self._shed = manifest.watermark, filter_of(manifest)
        self._groups = section.groups
        self._segments: dict[str, list[Segment]] = defaultdict(list)
        for segment in (segment.active for segment in section.live(manifest.watermark)):
            if segment.parts:
                self._segments[segment.store].append(segment)
        self._distinct = {index: rows.distinct_hashes() for index, rows in new.items()}
        self._partners, self._windows = _partners(joins), _windows(joins, stores)
        self._gathered: dict[tuple[int, int, bool], Pool | None] = {}
        self._whole: dict[tuple[int, str], Rows | None] = {}

    def sides(self, join: Join, deferred: int | None = None) -> list[list[Pool]]:
        """What is joined one after the other: pools of the join's inputs, disjoint in their composites.

        Of a join of two inputs a stored segment that is all this slot's is probed as it is, without gathering: its
        rows that are expired fit no new one. It then faces the new rows of the other input, and nothing else.
        """
        pools = self.of(join, deferred)
        found = [] if pools is None else [pools]
        if deferred is not None or not _may_be_direct(join):
            return found
        for place, entry in enumerate(join.inputs):
            other = self._new.get(join.inputs[1 - place].store)
            if other is None:
                continue
            for rows in self._direct(entry.store, join.since):
                facing = Pool(Rows(other.table.slice(0, 0)), other)
                stored = Pool(rows, Rows(rows.table.slice(0, 0)))
                found.append([stored, facing] if place == 0 else [facing, stored])
        return found

    def of(self, join: Join, deferred: int | None = None) -> list[Pool] | None:
        """The pools of a join's inputs, without what is probed directly; None when nothing can match."""
        if deferred is not None:
            return self._of_deferred(join, deferred)
        pools = []
        for entry in join.inputs:
            key = (entry.store, join.since, _may_be_direct(join))
            if key not in self._gathered:
                self._gathered[key] = self._pool(*key)
            pool = self._gathered[key]
            if pool is None:
                return None
            pools.append(pool)
        return pools

    def _pool(self, index: int, since: int, is_direct: bool) -> Pool | None:
        segments = [s for s in self._segments[self._stores[index].name] if s.first_epoch > since]
        if is_direct:
            segments = [segment for segment in segments if self._as_it_is(index, segment) is None]
        hashes = distinct([self._distinct[other] for other in sorted(self._partners[index]) if other in self._distinct])
        found = (self._gather(s, hashes, index) for s in segments if self._may_match(s, index))
        return made_pool([*found, *self._returned(index, hashes, since)], self._new.get(index))

    def _direct(self, index: int, since: int) -> Iterator[Rows]:
        """The segments of a store that are probed as they are."""
        for segment in self._segments[self._stores[index].name]:
            if segment.first_epoch > since and self._may_match(segment, index):
                rows = self._as_it_is(index, segment)
                if rows is not None:
                    yield rows

    def _as_it_is(self, index: int, segment: Segment) -> Rows | None:
        """A segment to probe directly; None where it is small or very large, has other columns than the new rows,
        or rows that are not this slot's or were shed."""
        if (index, segment.name) not in self._whole:
            self._whole[index, segment.name] = self._found_whole(index, segment)
        return self._whole[index, segment.name]

    def _found_whole(self, index: int, segment: Segment) -> Rows | None:
        new = self._new.get(index)
        n_needles = sum(len(self._new[other]) for other in self._partners[index] if other in self._new)
        if new is None or self._shed is not None or not _FEW <= segment.rows <= _MANY * n_needles:
            return None
        rows = self._open(segment)
        is_alike = rows.table.schema.equals(new.table.schema)
        return rows if is_alike and owned_ranges(rows, segment, self._groups) == [(0, len(rows))] else None

    def _open(self, segment: Segment) -> Rows:
        """A segment; one that is opened again in this epoch, for rows that close, stays open."""
        if self._opened is None:
            return open_segment(self._files, segment)
        if segment.name not in self._opened:
            self._opened[segment.name] = open_segment(self._files, segment)
        return self._opened[segment.name]

    def _may_match(self, segment: Segment, index: int) -> bool:
        """Whether the windows reach a segment: rows that others are still decided by are kept for longer."""
        window_us = self._windows[index]
        if self._watermark is None or window_us is None or self._stores[index].derived:
            return True
        return segment.newest + window_us >= self._watermark

    def _returned(self, index: int, hashes: U64 | None, after: int = -1, until: int | None = None) -> Iterator[Rows]:
        """Of keys of this slot that were heavy: what was stored in cells. `hashes`: the keys asked for, None is all."""
        store = self._stores[index]
        keys = [key for key in self._cells.returned(store.name) if self._cells.home(store.name, key) == self._slot]
        if hashes is not None and keys:
            keys = [key for key in keys if np.isin(np.uint64(key), hashes)]
        if not keys:
            return
        segments = [
            s
            for s in self._manifest.live(SHARED)
            if s.cells and s.store == store.name and s.first_epoch > after and (until is None or s.first_epoch <= until)
        ]
        yield from Reader(self._files, self._cells, store.name, 0, store.window_us).returned(keys, segments)

    def _of_deferred(self, join: Join, since: int) -> list[Pool] | None:
        """Rows that arrived after `since` are new; older ones are stored, where their key occurs among the new."""
        new = {}
        for entry in join.inputs:
            segments = [s for s in self._seen(entry.store, join) if s.first_epoch > since]
            arrived = [self._new[entry.store]] if entry.store in self._new else []
            returned = self._returned(entry.store, None, max(since, join.since))
            rows = [*(self._alive(s, entry.store) for s in segments), *returned, *arrived]
            present = [part.table for part in rows if len(part)]
            new[entry.store] = sort_rows(joined(present)) if present else None
        pools = []
        for place, entry in enumerate(join.inputs):
            others = [new[o.store] for at, o in enumerate(join.inputs) if at != place]
            hashes = distinct([rows.distinct_hashes() for rows in others if rows is not None])
            segments = [s for s in self._seen(entry.store, join) if s.first_epoch <= since]
            stored = [self._gather(s, hashes, entry.store) for s in segments]
            stored += self._returned(entry.store, hashes, join.since, since)
            pool = made_pool(stored, new[entry.store])
            if pool is None:
                return None
            pools.append(pool)
        return pools

    def _seen(self, index: int, join: Join) -> list[Segment]:
        """The segments of a store whose tuples arrived after the join's query was submitted."""
        return [s for s in self._segments[self._stores[index].name] if s.first_epoch > join.since]

    def _alive(self, segment: Segment, index: int) -> Rows:
        rows = owned_rows(self._open(segment), segment, self._groups)
        alive = rows.alive(self._watermark, self._windows[index])
        heavy = self._cells.heavy.get(segment.store)
        if heavy:
            light = ~np.isin(rows.hashes, np.array(sorted(heavy), dtype=np.uint64))
            alive = light if alive is None else alive & light
        return sift(rows if alive is None else Rows(rows.table.filter(pa.array(alive))), segment, self._shed)

    def _gather(self, segment: Segment, hashes: U64, index: int) -> Rows:
        rows = self._open(segment)
        found = gather(rows, hashes, self._watermark, self._windows[index])
        return sift(rows.take(owned_index(rows, found, segment, self._groups)), segment, self._shed)


def made_pool(parts: Sequence[Rows], new: Rows | None) -> Pool | None:
    """A pool of stored rows from several places, and new rows; None when there is neither."""
    present = [part.table for part in parts if len(part)]
    parts = ()  # so that what was gathered goes once it is put together
    if not present and new is None:
        return None
    if new is None:
        new = Rows(present[0].slice(0, 0))
    if not present:
        return Pool(Rows(new.table.slice(0, 0)), new)
    if len(present) == 1:
        return Pool(Rows(present[0]), new)
    together = joined(present)
    present.clear()
    return Pool(sort_rows(together), new)


def _may_be_direct(join: Join) -> bool:
    """Whether stored rows may be probed as they are: a row that has expired must not fit a new one."""
    return len(join.inputs) == 2 and not join.lives


def _windows(joins: Sequence[Join], stores: Sequence[Store]) -> dict[int, int | None]:
    """For each store the longest window that a join has for it; rows may be kept for longer than that.

    Where rows of the other input come late, that is as long as they are kept.
    """
    windows: dict[int, int | None] = {}
    for join, entry in ((one, entry) for one in joins for entry in one.inputs):
        own = stores[entry.store].window_us if join.is_late else entry.window_us
        known = windows.get(entry.store, -1)
        windows[entry.store] = None if own is None or known is None else max(own, known)
    return windows


def _partners(joins: Sequence[Join]) -> dict[int, set[int]]:
    """For each store the stores it is joined with."""
    partners: dict[int, set[int]] = defaultdict(set)
    for join in joins:
        for place, one in enumerate(join.inputs):
            partners[one.store] |= {other.store for at, other in enumerate(join.inputs) if at != place}
    return partners
