"""The streams of a simulation as counts: how many tuples, comparisons and matches each group has in each tick.

Simulating every tuple of 20 minutes at 6,000 tuples/s would take minutes and add nothing: what a slave does in an epoch
depends on counts. So the hash space is cut into fine intervals whose shares are drawn from the workload's keys, the
tuples of each stream in each interval and tick are drawn from Poisson distributions, and everything else is sums:

- the window of an interval at a tick is what arrived in the window's length before it;
- a group is a run of intervals; with tuning its mini-groups are the nodes of the binary tree over them that hold at
  most 2 theta and whose ancestors hold more (splitting above 2 theta and merging below it leave just these);
- comparisons of a mini-group in a tick: new of one side with the opposite window, and new with new;
- matches: the same, times the chance that two tuples of the interval have the same key.

A test compares the comparisons and the mini-groups with those that `kernels.blocks` counts on real tuples.

Invariant: the counts of a group are the sums of its halves', so splitting and merging groups changes no total, except
the comparisons without tuning. Cost: O(ticks * intervals) once for a rate, then O(ticks * levels) a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.hashing import hash_columns
from braidstream.lab.workloads.key_values import BModelKeys, Keys
from braidstream.model.directory import HASH_BITS

__all__ = ["TUPLE_BYTES", "Demand", "Rate", "Shares", "shares_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TUPLE_BYTES = 64
_SAMPLE = 1 << 21

Rate = Callable[[float], float]
"""Tuples a second of each stream, at a time in seconds."""


@dataclass(frozen=True)
class Shares:
    """How a stream's keys spread over the fine intervals of the hash space."""

    tuples: Floats
    """The share of the tuples in each interval."""
    same: Floats
    """The chance that two tuples of an interval have the same key."""

    @property
    def bits(self) -> int:
        """How many leading bits the intervals tell apart."""
        return len(self.tuples).bit_length() - 1


@lru_cache(maxsize=4)
def shares_of(keys: Keys = BModelKeys(), bits: int = 10, seed: int = 1) -> Shares:  # noqa: B008  (a frozen value)
    """The shares of a distribution of keys, from a sample of two million."""
    drawn = keys.draw(_SAMPLE, np.random.default_rng(seed))
    values, counts = np.unique(drawn, return_counts=True)
    hashes, _ = hash_columns([pa.array(values)])
    interval = (hashes >> np.uint64(HASH_BITS - bits)).astype(np.int64)
    n = np.bincount(interval, weights=counts, minlength=1 << bits)
    pairs = np.bincount(interval, weights=counts * (counts - 1.0), minlength=1 << bits)
    return Shares(n / _SAMPLE, pairs / np.maximum(n * (n - 1.0), 1.0))


class Demand:
    """What two streams ask of each group, tick by tick. Rows of the tables are groups, in the order of first asking."""

    def __init__(
        self,
        shares: Shares,
        rate: Rate,
        *,
        n_ticks: int,
        tick_s: float,
        window_s: float,
        theta_rows: int | None,
        seed: int = 1,
    ) -> None:
        self.shares, self.n_ticks, self.tick_s, self.theta_rows = shares, n_ticks, tick_s, theta_rows
        self.window_ticks = max(1, round(window_s / tick_s))
        expected = np.array([rate((tick + 0.5) * tick_s) * tick_s for tick in range(n_ticks)])
        rng = np.random.default_rng(seed)
        self._new = rng.poisson(expected[:, None, None] * shares.tuples, (n_ticks, 2, len(shares.tuples))).astype(float)
        self._window = _windows(self._new, self.window_ticks)
        self._rows_of: dict[tuple[int, int], int] = {}
        self._tables = np.zeros((4, 64, n_ticks + 1))

    def row_of(self, prefix: int, depth: int) -> int:
        """The table row of a group, made when first asked for."""
        if (prefix, depth) not in self._rows_of:
            row, totals = len(self._rows_of), self._group(prefix, depth)
            if row == self._tables.shape[1]:
                self._tables = np.concatenate([self._tables, np.zeros_like(self._tables)], axis=1)
            self._tables[:, row] = totals
            self._rows_of[prefix, depth] = row
        return self._rows_of[prefix, depth]

    def between(self, rows: Ints, first: int, last: int) -> Floats:
        """Tuples, comparisons and matches (rows of the result) of each group in ticks [first, last)."""
        return np.asarray(self._tables[:3, rows, last] - self._tables[:3, rows, first])

    def tuples_since(self, rows: Ints, firsts: Ints, last: int) -> Floats:
        """The tuples of each group in its own ticks [first, last)."""
        return np.asarray(self._tables[0, rows, last] - self._tables[0, rows, firsts])

    def stored(self, rows: Ints, tick: int) -> Floats:
        """The tuples in each group's windows at the start of a tick."""
        return np.asarray(self._tables[3, rows, min(tick, self.n_ticks - 1)])

    def _group(self, prefix: int, depth: int) -> Floats:
        """Running totals of tuples, comparisons, matches; and the tuples in the windows."""
        if depth > self.shares.bits:
            raise ValueError(f"a group of depth {depth} is finer than the simulation's {self.shares.bits} bits")
        width = 1 << (self.shares.bits - depth)
        part = slice(prefix * width, (prefix + 1) * width)
        new, window = self._new[:, :, part], self._window[:, :, part]
        matches = (_pairs(new, window) * self.shares.same[part]).sum(axis=1)
        totals = [new.sum(axis=(1, 2)), self._comparisons(new, window), matches]
        running = np.cumsum(np.pad(np.array(totals), ((0, 0), (1, 0))), axis=1)
        stored = np.pad(window.sum(axis=(1, 2)), (0, 1))
        return np.concatenate([running, stored[None]])

    def _comparisons(self, new: Floats, window: Floats) -> Floats:
        """Descend the tree of intervals while a node holds more than 2 theta, and count at the nodes that do not."""
        n_ticks, width = len(new), new.shape[2]
        total = np.zeros(n_ticks)
        reached = np.ones((n_ticks, 1), dtype=np.bool_)
        for level in range(width.bit_length()):
            nodes = (n_ticks, 2, 1 << level, -1)
            new_here, window_here = new.reshape(nodes).sum(axis=3), window.reshape(nodes).sum(axis=3)
            is_last = self.theta_rows is None or 1 << level == width
            is_large = window_here.sum(axis=1) > 2 * (self.theta_rows or 0)
            counted = reached if is_last else reached & ~is_large
            total += (_pairs(new_here, window_here) * counted).sum(axis=1)
            if is_last:
                break
            reached = np.repeat(reached & is_large, 2, axis=1)
        return total

    def mini_groups(self, prefix: int, depth: int, tick: int) -> list[float]:
        """The sizes of a group's mini-groups at a tick, in tuples."""
        width = 1 << (self.shares.bits - depth)
        sizes = self._window[tick, :, prefix * width : (prefix + 1) * width].sum(axis=0)
        return _leaves(sizes, 2.0 * self.theta_rows) if self.theta_rows is not None else [float(sizes.sum())]


def _pairs(new: Floats, window: Floats) -> Floats:
    """Pairs to look at: new of each stream with the other's window, and new with new."""
    return np.asarray(new[:, 0] * window[:, 1] + new[:, 1] * window[:, 0] + new[:, 0] * new[:, 1])


def _windows(new: Floats, window_ticks: int) -> Floats:
    """What arrived in the window before each tick."""
    running = np.cumsum(new, axis=0)
    before = np.concatenate([np.zeros_like(running[:1]), running[:-1]])
    window = before.copy()
    window[window_ticks:] -= before[:-window_ticks]
    return np.asarray(window)


def _leaves(sizes: Floats, most: float) -> list[float]:
    total = float(sizes.sum())
    if total <= most or len(sizes) == 1:
        return [total]
    half = len(sizes) // 2
    return _leaves(sizes[:half], most) + _leaves(sizes[half:], most)
