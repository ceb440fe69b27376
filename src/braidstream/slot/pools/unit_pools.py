"""The pools of a biclique unit: what is stored here of one side, and the rows of the other side that probe it.

Segments of units have the real key hashes, and one cell, whose code is the slot. Rows that probe are joined and
forgotten. They are joined with stored rows in the windows of the query. Two new rows meet in a unit of each side, and
are joined where the earlier one is stored: the window of the side that probes is cut so that it must not be the
earlier.

Invariant: a pair is produced once. Cost: that of `slot.pools.group_pools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from braidstream.kernels.biclique import PROBE, STORED
from braidstream.kernels.join import Pool, gather
from braidstream.kernels.rows import U64, Rows
from braidstream.model.stores import Join, Store
from braidstream.slot.pools.group_pools import made_pool
from braidstream.state.cells import is_unit
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.section import Section
from braidstream.state.segments import Place, open_segment

__all__ = ["BicliquePools"]


class BicliquePools:
    """What a slot joins in one epoch as a unit. `new` has the new rows by store, and by whether they are stored."""

    def __init__(
        self,
        files: Files,
        manifest: Manifest,
        section: Section,
        stores: Sequence[Store],
        new: Mapping[tuple[int, int], Rows],
    ) -> None:
        self._files, self._stores, self._watermark = files, stores, manifest.watermark
        self._stored = {store: rows for (store, use), rows in new.items() if use == STORED}
        self._probes = {store: rows for (store, use), rows in new.items() if use == PROBE}
        own = [s for s in section.live(manifest.watermark) if s.use == STORED and s.cells and is_unit(s.cells[0][0])]
        self._segments = {store.name: [s for s in own if s.store == store.name] for store in stores}

    def of(self, join: Join) -> Iterator[tuple[list[Pool], list[int | None]]]:
        """The pools of the join's inputs and their windows, for each side that is stored here and probed now."""
        windows = [entry.window_us for entry in join.inputs]
        if not self._probes:
            return
        for place, entry in enumerate(join.inputs):
            probes = self._probes.get(join.inputs[1 - place].store)
            if probes is None:
                continue
            probing = Pool(Rows(probes.table.slice(0, 0)), probes)
            stored = made_pool(self._gathered(entry.store, probes.distinct_hashes(), join.since), None)
            if stored is not None:
                yield _ordered(place, stored, probing), windows
            new = self._stored.get(entry.store)
            if new is not None:
                is_first = self._stores[entry.store].places[0] == 0
                cut = list(windows)
                cut[1 - place] = 0 if is_first else -1
                yield _ordered(place, Pool(Rows(new.table.slice(0, 0)), new), probing), cut

    def write(self, place: Place) -> list[Segment]:
        """The new rows that are stored here, as segments."""
        stores = self._stores
        return [place.write_unit(rows, stores[i].name, STORED, stores[i].window_us) for i, rows in self._stored.items()]

    def _gathered(self, store: int, hashes: U64, since: int) -> list[Rows]:
        window_us, found = self._stores[store].window_us, []
        for segment in self._segments[self._stores[store].name]:
            if segment.first_epoch > since:
                rows = open_segment(self._files, segment)
                found.append(rows.take(gather(rows, hashes, self._watermark, window_us)))
        return found


def _ordered(place: int, own: Pool, probing: Pool) -> list[Pool]:
    return [own, probing] if place == 0 else [probing, own]
