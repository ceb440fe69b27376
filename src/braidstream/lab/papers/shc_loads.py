"""Exact loads of p slots under each router: what every slot receives and produces when two streams are joined.

The streams are cut into epochs. Every row has a key, and a stripe number for grids and units; nothing is sampled or
averaged, except that of the pairs that one epoch's new tuples form with each other, join-biclique is charged half on
either side. Load is tuples received plus matches produced (SHC 2.2), summed over the stream.

- *hash*: a key's rows go to the slot of its group in a `Directory`.
- *biclique* (BiStream, SHC 2.3): half of the slots store R, half S, in `subgroups` by key. A row is stored at one unit
  of its subgroup and probes all units of the other side's subgroup.
- *paper*, *even*: hash until a key is heavy; then its grid. Slots report their most frequent keys, `control.heavy`
  tracks them, `control.regridding` decides after every epoch: the code that runs on Spark. As there, ours is told the
  slots' light load, a moving average. A key that turns heavy was light until then, and the epochs before count.

Cost: O(epochs x rows of heavy keys + keys), a second for a million rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.control.heavy import MOST_ENTRIES, Frequent, Tracker, candidates
from braidstream.control.regridding import GridSettings, decide, imbalance, light_loads
from braidstream.epoch.regridder import WEIGHT
from braidstream.kernels.hashing import hash_columns
from braidstream.model.directory import Directory
from braidstream.model.grids import Family, Grid
from braidstream.model.numbers import SlotId

__all__ = ["Loads", "Streams", "biclique", "bound", "gridded", "hashed", "subgroup_choices", "tuple_bound"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GROUPS = 1024
"""Groups of the directory: a power of two and many a slot, so that its own unevenness does not show."""
CANDIDATES_A_SLOT = 8
"""How many keys are looked at for each slot, as on Spark."""


@dataclass(frozen=True)
class Loads:
    """What each slot received and produced over the stream."""

    received: Floats
    matches: Floats
    regrids: int = 0
    grids: tuple[Grid, ...] = ()

    @property
    def total(self) -> Floats:
        """Tuples received plus matches."""
        return self.received + self.matches

    @property
    def imbalance(self) -> float:
        """Largest over mean."""
        return imbalance(self.total.tolist())

    @property
    def largest(self) -> float:
        """The load of the most loaded slot."""
        return float(self.total.max())


@dataclass(frozen=True)
class Streams:
    """Two streams of keys in [0, domain), in their order of arrival."""

    left: Ints
    right: Ints
    domain: int
    epochs: int = 50
    seed: int = 1

    @property
    def sides(self) -> tuple[Ints, Ints]:
        """Both."""
        return self.left, self.right

    @property
    def rows(self) -> int:
        """N: all tuples."""
        return len(self.left) + len(self.right)

    @property
    def largest_share(self) -> float:
        """N(b)/N of the most frequent key, over both streams."""
        counts = [np.bincount(side, minlength=self.domain) for side in self.sides]
        return float((counts[0] + counts[1]).max() / self.rows)

    @property
    def out(self) -> float:
        """OUT: all matches."""
        left, right = (np.bincount(side, minlength=self.domain).astype(np.float64) for side in self.sides)
        return float(left @ right)

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The hash of each key of the domain, as the engine computes it."""
        return hash_columns([pa.array(np.arange(self.domain, dtype=np.int64))])[0]

    def slots(self, n_slots: int) -> Ints:
        """The light slot of each key of the domain."""
        region = Directory.of(GROUPS, n_slots).region(0)
        return region.slots[region.locate(self.hashes)].astype(np.int64)

    def epoch_counts(self) -> list[tuple[Ints, Ints]]:
        """How many rows of each key came, for each epoch and side."""
        cuts = [np.array_split(side, self.epochs) for side in self.sides]
        return [
            (np.bincount(a, minlength=self.domain), np.bincount(b, minlength=self.domain))
            for a, b in zip(*cuts, strict=True)
        ]

    def stripes(self) -> tuple[list[Ints], list[Ints]]:
        """For each side and key, the stripe numbers of its rows in their order of arrival."""
        rng = np.random.default_rng([self.seed, 7])
        both = []
        for side in self.sides:
            order = np.argsort(side, kind="stable")
            numbers = rng.integers(1 << 40, size=len(side))[order]
            both.append(np.split(numbers, np.cumsum(np.bincount(side, minlength=self.domain))[:-1]))
        return both[0], both[1]


def tuple_bound(streams: Streams, n_slots: int) -> float:
    """N/p + sqrt(OUT/p): the tuples that a slot receives, in SHC's bound up to a constant."""
    return streams.rows / n_slots + float(np.sqrt(streams.out / n_slots))


def bound(streams: Streams, n_slots: int) -> float:
    """SHC's bound on tuples, and an even share of the matches."""
    return tuple_bound(streams, n_slots) + streams.out / n_slots


def hashed(streams: Streams, n_slots: int) -> Loads:
    """Parallel hash join."""
    slots = streams.slots(n_slots)
    left, right = (np.bincount(side, minlength=streams.domain).astype(np.float64) for side in streams.sides)
    return Loads(_sums(slots, left + right, n_slots), _sums(slots, left * right, n_slots))


def subgroup_choices(n_slots: int) -> list[int]:
    """In how many subgroups the units of a side can be organized."""
    half = n_slots // 2
    return [n for n in range(1, half + 1) if half % n == 0]


def biclique(streams: Streams, n_slots: int, subgroups: int) -> Loads:
    """Join-biclique: R is stored at slots [0, p/2), S at the others."""
    half, width = n_slots // 2, n_slots // 2 // subgroups
    rng = np.random.default_rng([streams.seed, 11])
    group_of = (streams.hashes % np.uint64(subgroups)).astype(np.int64)
    counts = [np.bincount(side, minlength=streams.domain).astype(np.float64) for side in streams.sides]
    received, matches = np.zeros(n_slots), np.zeros(n_slots)
    for own, (side, other) in enumerate(((streams.left, counts[1]), (streams.right, counts[0]))):
        unit = own * half + group_of[side] * width + rng.integers(width, size=len(side))
        received += np.bincount(unit, minlength=n_slots)
        matches += np.bincount(unit, weights=other[side] / 2, minlength=n_slots)
        probes = np.bincount(group_of, weights=other, minlength=subgroups)
        received[own * half : (own + 1) * half] += np.repeat(probes, width)
    return Loads(received, matches)


def gridded(streams: Streams, n_slots: int, settings: GridSettings) -> Loads:
    """Hash until a key is heavy, then its grid, decided anew after every epoch."""
    run = _Gridded(streams, n_slots, settings)
    for new in streams.epoch_counts():
        run.epoch(*new)
    return Loads(run.received, run.matches, run.regrids, run.grids)


class _Gridded:
    """The state of one run: counts so far, trackers, grids, loads."""

    def __init__(self, streams: Streams, n_slots: int, settings: GridSettings) -> None:
        self.n_slots, self.settings = n_slots, settings
        self.hashes, self.slots, self.stripes = streams.hashes, streams.slots(n_slots), streams.stripes()
        self.key_of = {int(h): key for key, h in enumerate(self.hashes)}
        self.counts = [np.zeros(streams.domain, np.int64) for _ in range(2)]
        self.trackers = [Tracker.of(n_slots) for _ in range(2)]
        self.grids: tuple[Grid, ...] = ()
        self.next_id, self.clock, self.regrids = 1, 0, 0
        self.others = np.zeros(0)
        self.received, self.matches = np.zeros(n_slots), np.zeros(n_slots)

    def epoch(self, left: Ints, right: Ints) -> None:
        """Join an epoch's rows by the grids of now, then decide."""
        before = [self.counts[0].copy(), self.counts[1].copy()]
        self.counts = [before[0] + left, before[1] + right]
        heavy = np.array([self.key_of[grid.hash] for grid in self.grids], dtype=np.int64)
        self._light((left, right), before, heavy)
        for key, grid in zip(heavy.tolist(), self.grids, strict=True):
            self._grid(key, grid, before)
        self.clock += 1
        self.trackers = [
            tracker.seen(self._reports(new, heavy), self.clock)
            for tracker, new in zip(self.trackers, (left, right), strict=True)
        ]
        self._decide(left + right, heavy)

    def _light(self, new: tuple[Ints, Ints], before: Sequence[Ints], heavy: Ints) -> None:
        rows = (new[0] + new[1]).astype(np.float64)
        pairs = self.counts[0].astype(np.float64) * self.counts[1] - before[0].astype(np.float64) * before[1]
        rows[heavy] = pairs[heavy] = 0.0
        self.received += _sums(self.slots, rows, self.n_slots)
        self.matches += _sums(self.slots, pairs, self.n_slots)

    def _grid(self, key: int, grid: Grid, before: Sequence[Ints]) -> None:
        """A cell receives its stripes of both sides, and joins each pair in which it has a new row."""
        after, old = [], []
        for side in range(2):
            stripe = self.stripes[side][key][: self.counts[side][key]] % grid.dims[side]
            after.append(np.bincount(stripe, minlength=grid.dims[side]).astype(np.float64))
            old.append(np.bincount(stripe[: before[side][key]], minlength=grid.dims[side]).astype(np.float64))
        received = np.add.outer(after[0] - old[0], after[1] - old[1]).ravel()
        pairs = (np.outer(after[0], after[1]) - np.outer(old[0], old[1])).ravel()
        np.add.at(self.received, list(grid.slots), received)
        np.add.at(self.matches, list(grid.slots), pairs)

    def _reports(self, new: Ints, heavy: Ints) -> list[Frequent]:
        """What slots report: their largest counts, and heavy keys in any case."""
        reports = [
            Frequent.of(int(new[heavy].sum()), tuple((int(self.hashes[k]), int(new[k])) for k in heavy if new[k]))
        ]
        light = new.copy()
        light[heavy] = 0
        for slot in range(self.n_slots):
            keys = np.flatnonzero((self.slots == slot) & (light > 0))
            keys = keys[np.argsort(-light[keys], kind="stable")]
            left_out = int(light[keys[MOST_ENTRIES]]) if len(keys) > MOST_ENTRIES else 0
            listed = tuple((int(self.hashes[k]), int(light[k])) for k in keys[:MOST_ENTRIES])
            reports.append(Frequent.of(int(light[keys].sum()), listed, left_out))
        return reports

    def _slot_of(self, hash_: int) -> SlotId:
        return SlotId(int(self.slots[self.key_of[hash_]]))

    def _decide(self, new: Ints, heavy: Ints) -> None:
        held = [grid.hash for grid in self.grids]
        n_candidates = CANDIDATES_A_SLOT * self.n_slots
        found = candidates(self.trackers, n_candidates, self._slot_of, held)
        family = Family("rs", tuple(float(tracker.rows) for tracker in self.trackers), tuple(found))
        known = np.array([self.key_of[one.hash] for one in found], dtype=np.int64)
        self.others = self._others(new, np.union1d(heavy, known))
        light = light_loads([family], self.others.tolist(), self.grids)
        plan = decide([family], light, self.n_slots, self.grids, self.next_id, self.settings)
        self.grids, self.next_id = plan.grids, plan.next_id
        self.regrids += len(plan.changes)

    def _others(self, new: Ints, known: Ints) -> Floats:
        """Of late, by slot: the new rows of keys that are no candidates (`epoch.regridder`)."""
        rows = new.astype(np.float64)
        rows[known] = 0.0
        sums = _sums(self.slots, rows, self.n_slots)
        return WEIGHT * sums + (1 - WEIGHT) * self.others if len(self.others) else sums


def _sums(slots: Ints, weights: Floats, n_slots: int) -> Floats:
    """The weights added up by slot."""
    return np.asarray(np.bincount(slots, weights=weights, minlength=n_slots), np.float64)
