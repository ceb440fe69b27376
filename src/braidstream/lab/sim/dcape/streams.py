"""D-CAPE's input (3.4): m streams of tuples whose keys repeat at a stated pace, group by group.

Two numbers make a stream. The *tuple range* R is a number of tuples of one stream, the *join ratio* r says how often a
key occurs in each stream within them. So a group with the share 1/G of the tuples has R / (G r) keys, and in the k-th
range a new tuple of a three-way join meets about (k r)^2 results: 4 and 16 for r = 2, the paper's example. (The paper
does not say whether the 30,000 tuples of a range are those of one stream or of all together; one stream is the reading
with fewer results, and the one with which the numbers it states for figure 11 are of the right order.)

Tuples arrive as a Poisson process; those of one tick carry the tick as their time. A key is placed into the hash range
of its group, so that the engine's directory is the paper's table of partitions.

Invariant: the same seed gives the same tuples, whatever the cluster does with them. Cost: O(tuples), drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.rows import HASH, I64, TIME, U64, Rows, sort_rows
from braidstream.model.directory import Directory

__all__ = ["ROW", "Streams"]

ROW = "row"
"""The column that numbers a stream's tuples: a result is a tuple of these numbers."""

Floats = npt.NDArray[np.float64]


def even_shares(n_groups: int) -> Callable[[float], Floats]:
    """Every group gets the same share of the tuples at any time."""
    return lambda _time_s: np.full(n_groups, 1 / n_groups)


@dataclass(frozen=True)
class Streams:
    """The tuples of a run. `shares` says which share of the tuples each group gets at a time (in seconds)."""

    ratios: tuple[float, ...]
    """The join ratio of each group."""
    gap_s: float
    """The mean time between two tuples of one stream."""
    tuple_range: int
    duration_s: float
    tick_s: float = 5.0
    n_streams: int = 3
    shares: Callable[[float], Floats] | None = None
    seed: int = 1

    @property
    def n_groups(self) -> int:
        """How many partition groups there are."""
        return len(self.ratios)

    @property
    def n_ticks(self) -> int:
        """How many ticks the run has."""
        return round(self.duration_s / self.tick_s)

    @property
    def n_tuples(self) -> int:
        """How many tuples all streams have together."""
        return sum(len(hashes) for hashes, _ in self._drawn)

    @cached_property
    def lows(self) -> U64:
        """The first hash of each group, ascending; the group's id is its place."""
        return np.array([group.low for group in Directory.of(self.n_groups).groups], dtype=np.uint64)

    def of_tick(self, tick: int) -> list[Rows]:
        """The tuples of every stream that arrive in a tick."""
        return [self._rows(stream, tick) for stream in range(self.n_streams)]

    @cached_property
    def _drawn(self) -> list[tuple[U64, I64]]:
        """For each stream its key hashes in the order of arrival, and where each tick begins."""
        rng = np.random.default_rng(self.seed)
        return [self._draw(rng) for _ in range(self.n_streams)]

    @cached_property
    def _n_keys(self) -> I64:
        keys = self.tuple_range / self.n_groups / np.array(self.ratios)
        return np.maximum(1, np.rint(keys)).astype(np.int64)

    @cached_property
    def _steps(self) -> U64:
        """The distance of two keys of a group in the hash space."""
        widths = np.array([group.high - group.low for group in Directory.of(self.n_groups).groups], dtype=np.uint64)
        return widths // self._n_keys.astype(np.uint64)

    def _draw(self, rng: np.random.Generator) -> tuple[U64, I64]:
        counts = rng.poisson(self.tick_s / self.gap_s, self.n_ticks)
        groups = self._groups(counts, rng)
        keys = (rng.random(len(groups)) * self._n_keys[groups]).astype(np.uint64)
        return self.lows[groups] + keys * self._steps[groups], np.append(0, np.cumsum(counts)).astype(np.int64)

    def _groups(self, counts: I64, rng: np.random.Generator) -> I64:
        shares = self.shares or even_shares(self.n_groups)
        drawn = rng.random(int(counts.sum()))
        found = np.empty(len(drawn), dtype=np.int64)
        begin = 0
        for tick, count in enumerate(counts.tolist()):
            edges = np.cumsum(shares(tick * self.tick_s))
            part = drawn[begin : begin + count] * edges[-1]
            found[begin : begin + count] = np.searchsorted(edges, part, side="right")
            begin += count
        return np.minimum(found, self.n_groups - 1)

    def _rows(self, stream: int, tick: int) -> Rows:
        hashes, starts = self._drawn[stream]
        begin, end = int(starts[tick]), int(starts[tick + 1])
        columns = {
            HASH: hashes[begin:end].view(np.int64),
            TIME: np.full(end - begin, tick, dtype=np.int64),
            ROW: np.arange(begin, end, dtype=np.int64),
        }
        return sort_rows(pa.table(columns))


def mixed(parts: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Join ratios: so many groups with this ratio, so many with that."""
    return tuple(ratio for count, ratio in parts for _ in range(count))
