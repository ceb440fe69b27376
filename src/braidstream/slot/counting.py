"""Shedding in a slot: the sample of keys is stored apart, and results are counted with it.

The sample's rows are written as segments of their own (`stored`) and are never given up, so that what is missing of
their results tells what is missing of all (`control.estimate`). `Counting` has the counts of one slot and epoch, which
its report carries to the driver.

Cost: O(results), a few NumPy operations each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from braidstream.control.estimate import Counts
from braidstream.kernels.join import Composites, Pool
from braidstream.kernels.rows import I64, U64, Rows
from braidstream.kernels.sampling import BUCKETS, buckets, is_sampled, marks
from braidstream.model.dead_rows import Filter
from braidstream.model.directory import Group
from braidstream.model.reports import SampleCounts
from braidstream.model.stores import Join, Store
from braidstream.slot.deciding import Decided
from braidstream.state.filters import filter_of
from braidstream.state.manifest import Manifest, Segment
from braidstream.state.segments import Place

__all__ = ["Counting", "stored"]

F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def stored(place: Place, rows: Rows, store: Store, bits: int) -> list[Segment]:
    """Write rows of a store that may be shed: the sample's in a segment of their own."""
    sampled = is_sampled(rows.hashes, bits)
    if sampled.all() or not sampled.any():
        return [place.write(rows, store.name, store.window_us, sample=bool(sampled[0]))]
    return [
        place.write(rows.take(np.flatnonzero(sampled == is_sample)), store.name, store.window_us, sample=is_sample)
        for is_sample in (False, True)
    ]


class Counting:
    """A slot's counts of one epoch: what the estimate of completeness needs, for each query."""

    def __init__(self, manifest: Manifest, groups: Sequence[Group], lows: U64, stores: frozenset[str]) -> None:
        self._filter = filter_of(manifest) or Filter()
        self._stores, self._groups, self._lows = stores, groups, lows
        self._touched = np.array([_is_touched(self._filter, group) for group in groups], dtype=np.bool_)
        self._expected = {} if manifest.notes.shedding is None else manifest.notes.shedding.expected
        self._counts: dict[str, Counts] = {}
        self._weights: dict[str, F64] = {}
        self._marked: list[tuple[Pool, Flags]] = []

    @property
    def bits(self) -> int:
        """The sample: 2^-bits of the keys."""
        return self._filter.bits

    def counts(self, join: Join, names: Sequence[str]) -> bool:
        """Whether the results of a join over these stores are counted: some of its inputs may be shed."""
        return join.target is None and not join.lives and not self._stores.isdisjoint(names)

    def begin(self, join: Join, new: Sequence[U64]) -> None:
        """Count the new tuples that may miss something, given their hashes."""
        groups = [np.searchsorted(self._lows, hashes, side="right") - 1 for hashes in new]
        self._of(join.query).at_risk += sum(int(self._touched[group].sum()) for group in groups)

    def close(self, join: Join) -> None:
        """Count groups in which a row that closes may be dead."""
        self._of(join.query).at_risk += int(self._touched.sum())

    def add(self, join: Join, pools: Sequence[Pool], found: Composites) -> None:
        """Count a batch of results."""
        hashes = pools[found.source].new.hashes[found.index[found.source] - found.offset]
        self._add(join, hashes, lambda at: self._is_marked(pools, found, at))

    def add_decided(self, join: Join, decided: Decided) -> None:
        """Count rows that are put out without a match, at the first or with the newest one."""
        if decided.is_keyless:
            self._of(join.query).exact += len(decided)
        elif len(decided):
            self._add(join, decided.rows.hashes, lambda at: marks(decided.rows.table)[at])

    def _add(self, join: Join, hashes: U64, marked: Callable[[I64], Flags]) -> None:
        """Count results by the hashes of their keys; `marked` tells which would be missing if they were not sampled."""
        counts = self._of(join.query)
        group = np.searchsorted(self._lows, hashes, side="right") - 1
        at = np.flatnonzero(self._touched[group])
        counts.exact += len(hashes) - len(at)
        if not len(at):
            return
        sampled = is_sampled(hashes[at], self.bits)
        bucket, weight = buckets(hashes[at]), self._weights[join.query][group[at]]
        counts.n_found += int((~sampled).sum())
        counts.found += np.bincount(bucket[~sampled], weight[~sampled], BUCKETS)
        passes = sampled & ~marked(at)
        counts.all += np.bincount(bucket[sampled], minlength=BUCKETS)
        counts.kept += np.bincount(bucket[passes], weight[passes], BUCKETS)
        counts.n_kept += int(passes.sum())

    def sent(self) -> dict[str, SampleCounts]:
        """For the report: counts by query."""
        return {query: counts.as_sent() for query, counts in self._counts.items()}

    def _of(self, query: str) -> Counts:
        if query not in self._counts:
            self._counts[query] = Counts()
            shares = self._expected.get(query, [1.0] * len(self._filter.pieces))
            places = [self._filter.place(group.low) for group in self._groups]
            self._weights[query] = 1 / np.array([shares[place] for place in places])
        return self._counts[query]

    def _is_marked(self, pools: Sequence[Pool], found: Composites, at: I64) -> Flags:
        """Which of the results have a component that the filter would have dropped."""
        marked = np.zeros(len(at), dtype=np.bool_)
        for pool, index in zip(pools, found.index, strict=True):
            known = next((values for one, values in self._marked if one is pool), None)
            if known is None:
                known = np.append(marks(pool.stored.table), marks(pool.new.table))
                self._marked.append((pool, known))
            marked |= known[index[at]]
        return marked


def _is_touched(filter_: Filter, group: Group) -> bool:
    """Whether some row of the group may be dead."""
    return any(
        (piece.floors or piece.caps or piece.intake < 1.0)
        and piece.low <= group.high
        and (following is None or following.low > group.low)
        for piece, following in zip(filter_.pieces, [*filter_.pieces[1:], None], strict=True)
    )
