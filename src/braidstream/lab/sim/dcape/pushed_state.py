"""The join with generations (D-CAPE 4): state that was pushed to disk is not probed, and clean-up finds what it missed.

All tuples are kept, in size tiers, each tier sorted by hash; a *boundary* (group, tick) says that the group's tuples up
to that tick were pushed then. So generation k of a group is what arrived between two of its boundaries, the last one is
active, and a push moves no row. New tuples are joined with the active generation of their group only.

Clean-up (4.2) goes through the generations in their order: with P the union of those before, and P_k the next, the
missing results are those with at least one tuple of P and one of P_k. Equation 1 of the paper gives all results with a
tuple of P_k, by one term for each stream; that is what the kernel's `composites` computes, for any number of streams.
Taking away V_k leaves out those whose tuples are all of P_k. What the paper's own way through the terms would take is
counted beside (`terms`).

Invariant: normal and recovered results together are the results of the join of everything, each once
(tests/lab/sim/test_dcape_join.py compares with the oracle). Cost: a tick probes O(log ticks) tiers for its new keys;
clean-up reads the pushed groups once for each generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.join import Composites, Pool, composites, gather
from braidstream.kernels.rows import HASH, I64, TIME, U64, Rows, distinct, merge
from braidstream.lab.sim.dcape.streams import ROW
from braidstream.lab.sim.dcape.terms import terms_of

__all__ = ["GenerationJoin", "Recovered"]

Take = Callable[[Sequence[Pool], Composites], None]
_NEVER = np.iinfo(np.int64).max
_SCHEMA = pa.schema([(name, pa.int64()) for name in (HASH, TIME, ROW)])


@dataclass(frozen=True)
class Recovered:
    """What clean-up did, for each group: results found, results formed and removed again (V_k, they are known), tuples
    that probe and partial results of the terms of equation 1, tuples read from disk, and tuples that were in memory."""

    results: I64
    removed: I64
    probing: I64
    partial: I64
    from_disk: I64
    in_memory: I64


@dataclass
class GenerationJoin:
    """The symmetric m-way join of all groups. `take` is shown all results where they are wanted, not only counted."""

    lows: U64
    n_streams: int = 3
    take: Take | None = None
    _tiers: list[list[Rows]] = field(default_factory=list)
    _boundaries: list[I64] = field(default_factory=list)
    """The k-th array has the k-th boundary of every group, or never."""

    def __post_init__(self) -> None:
        self._tiers = [[] for _ in range(self.n_streams)]
        self._last = np.full(len(self.lows), -1, dtype=np.int64)

    def push(self, new: Sequence[Rows]) -> I64:
        """Join the tuples of a tick, keep them, and count the results of each group."""
        hashes = distinct([rows.hashes for rows in new])
        pools = [Pool(self._active(stream, hashes), rows) for stream, rows in enumerate(new)]
        found = np.zeros(len(self.lows), dtype=np.int64)
        for some in composites(pools, [None] * self.n_streams):
            found += self._by_group(pools, some)
            if self.take is not None:
                self.take(pools, some)
        for stream, rows in enumerate(new):
            _add(self._tiers[stream], rows)
        return found

    def spill(self, groups: Iterable[int], tick: int) -> None:
        """Push the groups' tuples up to and with `tick`: they become an inactive generation."""
        for group in groups:
            level = int(sum(int(b[group] != _NEVER) for b in self._boundaries))
            if level == len(self._boundaries):
                self._boundaries.append(np.full(len(self.lows), _NEVER, dtype=np.int64))
            self._boundaries[level][group] = tick
            self._last[group] = tick

    def clean_up(self) -> Recovered:
        """Find the results that are missing between the generations. The state itself stays as it is."""
        everything = [self._pushed(stream) for stream in range(self.n_streams)]
        generations = [self._generation(rows) for rows in everything]
        keys = distinct([rows.hashes for rows in everything])
        results, formed, probing, partial = (np.zeros(len(self.lows), dtype=np.int64) for _ in range(4))
        for k in range(1, len(self._boundaries) + 1):
            pools = [_pool(rows, of, k) for rows, of in zip(everything, generations, strict=True)]
            terms = terms_of(pools, keys, self._with_new(pools)[self._groups(keys)])
            probing += self._of_keys(keys, terms.probing)
            partial += self._of_keys(keys, terms.partial)
            for some in composites(pools, [None] * self.n_streams):
                missing = _spanning(pools, some)
                formed += self._by_group(pools, some)
                results += self._by_group(pools, missing)
                if self.take is not None:
                    self.take(pools, missing)
        return Recovered(results, formed - results, probing, partial, *self._volumes(everything))

    def _active(self, stream: int, hashes: U64) -> Rows:
        """The active tuples of a stream with one of the keys."""
        parts = []
        for tier in self._tiers[stream]:
            rows = gather(tier, hashes, None, None)
            parts.append(tier.take(rows[tier.times[rows] > self._last[self._groups(tier.hashes[rows])]]))
        return merge(parts, _SCHEMA)

    def _pushed(self, stream: int) -> Rows:
        """All tuples of the groups that were ever pushed."""
        parts = [tier.take(np.flatnonzero(self._last[self._groups(tier.hashes)] >= 0)) for tier in self._tiers[stream]]
        return merge(parts, _SCHEMA)

    def _groups(self, hashes: U64) -> I64:
        return np.searchsorted(self.lows, hashes, side="right").astype(np.int64) - 1

    def _generation(self, rows: Rows) -> I64:
        """How many boundaries of its group are behind each tuple."""
        groups = self._groups(rows.hashes)
        found = np.zeros(len(rows), dtype=np.int64)
        for boundary in self._boundaries:
            found += rows.times > boundary[groups]
        return found

    def _by_group(self, pools: Sequence[Pool], some: Composites) -> I64:
        new = pools[some.source].new
        return self._of_keys(new.hashes, np.bincount(some.index[some.source] - some.offset, minlength=len(new)))

    def _of_keys(self, hashes: U64, counts: I64) -> I64:
        """The sums of what is counted for each of the hashes, by group."""
        return np.bincount(self._groups(hashes), weights=counts, minlength=len(self.lows)).astype(np.int64)

    def _with_new(self, pools: Sequence[Pool]) -> npt.NDArray[np.bool_]:
        """Which groups have new tuples."""
        has_new = np.zeros(len(self.lows), dtype=np.bool_)
        for pool in pools:
            has_new[self._groups(pool.new.hashes)] = True
        return has_new

    def _volumes(self, everything: Sequence[Rows]) -> tuple[I64, I64]:
        """By group, how many of the tuples are on disk and how many in memory."""
        counts = np.zeros((2, len(self.lows)), dtype=np.int64)
        for rows in everything:
            groups = self._groups(rows.hashes)
            is_active = rows.times > self._last[groups]
            for place, which in enumerate((~is_active, is_active)):
                counts[place] += np.bincount(groups[which], minlength=len(self.lows))
        return counts[0], counts[1]


def _pool(rows: Rows, generations: I64, k: int) -> Pool:
    """Generation k as the new tuples, those before it as the stored ones."""
    return Pool(rows.take(np.flatnonzero(generations < k)), rows.take(np.flatnonzero(generations == k)))


def _spanning(pools: Sequence[Pool], some: Composites) -> Composites:
    """Those of the composites that have a tuple of an earlier generation."""
    spans = np.zeros(len(some), dtype=np.bool_)
    for stream, index in enumerate(some.index):
        spans |= index < len(pools[stream].stored)
    rows = tuple(one[spans] for one in some.index)
    return Composites(some.source, rows, some.offset, some.times_and_deadlines)


def _add(tiers: list[Rows], rows: Rows) -> None:
    """Size tiers: a tier is merged with the one before as soon as it is half as large."""
    if not len(rows):
        return
    tiers.append(rows)
    while len(tiers) > 1 and 2 * len(tiers[-1]) >= len(tiers[-2]):
        last = tiers.pop()
        tiers.append(merge([tiers.pop(), last]))
