"""The join tactics side by side on real tuples: CPU time for a tuple while the window grows.

A tactic keeps the windows of one group and joins an epoch's new tuples with them. Three are compared, by name: the
block nested loop of WSJ IV-D without tuning, the same with tuning, and the engine's default (sorted runs and binary
search). All see the same tuples and must find the same number of matches; the time is this process's CPU time in steady
state, with windows installed as after a move, so nothing of the filling is measured.

With tuning the cost of a tuple follows the size of the mini-groups, a sawtooth between theta and 2 theta: two lengths
of the window alone may catch one at the top of a tooth and the other at its bottom. `tuned_growth` therefore takes many
lengths, spread evenly over the positions between theta and 2 theta, and the same positions at windows 8 times as long.

Cost: untuned, every new tuple looks at the whole opposite window, which sets the length of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import numpy as np
import pyarrow as pa

from braidstream.kernels.blocks import BLOCK_ROWS, BlockJoin, Columns
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.join import Pool, composites, gather
from braidstream.kernels.rows import HASH, TIME, Rows, merge, sort_rows
from braidstream.lab.workloads.key_values import BModelKeys, Keys
from braidstream.model.directory import Directory

__all__ = [
    "TACTICS",
    "THETA_BLOCKS",
    "Growth",
    "Measured",
    "Tactic",
    "draw_tuples",
    "mean_growth",
    "measure",
    "tuned_growth",
]

THETA_BLOCKS = 384
"""WSJ's theta of 1.5 MB in blocks of 4 KB."""


class Tactic(Protocol):
    """One way to join the tuples of a group."""

    @property
    def comparisons(self) -> int:
        """Pairs of tuples looked at so far, where the tactic looks at pairs."""

    def install(self, sides: Sequence[Columns]) -> None:
        """Begin with these windows."""

    def epoch(self, sides: Sequence[Columns], before: int) -> int:
        """Join new tuples and drop those older than `before`; the number of matches."""


class _Blocks:
    """The block nested loop, one epoch: push both sides, flush, expire."""

    def __init__(self, window_us: int, theta_blocks: int | None) -> None:
        self.join = BlockJoin((window_us, window_us), Directory.of(1), theta_blocks)

    @property
    def comparisons(self) -> int:
        return self.join.comparisons

    def install(self, sides: Sequence[Columns]) -> None:
        for side, tuples in enumerate(sides):
            self.join.install(side, tuples)

    def epoch(self, sides: Sequence[Columns], before: int) -> int:
        pushed = [self.join.push(side, tuples) for side, tuples in enumerate(sides)]
        flushed = self.join.flush()
        expired = [self.join.expire(side, before) for side in (0, 1)]
        return sum(map(len, (*pushed, flushed, *expired)))


class _Sorted:
    """The default tactic over runs sorted by hash: one for each epoch, equal sizes merged, old ones dropped whole."""

    comparisons = 0

    def __init__(self, window_us: int) -> None:
        self.window_us = window_us
        self.runs: list[list[Rows]] = [[], []]

    def install(self, sides: Sequence[Columns]) -> None:
        self.runs = [[sort_rows(_table(tuples))] for tuples in sides]

    def epoch(self, sides: Sequence[Columns], before: int) -> int:
        new = [sort_rows(_table(tuples)) for tuples in sides]
        pools = [Pool(self._gathered(side, new[1 - side], before), new[side]) for side in (0, 1)]
        n_matches = sum(len(found) for found in composites(pools, (self.window_us, self.window_us)))
        for side in (0, 1):
            self._store(side, new[side], before)
        return n_matches

    def _gathered(self, side: int, opposite: Rows, before: int) -> Rows:
        hashes = opposite.distinct_hashes()
        parts = [run.take(gather(run, hashes, before, self.window_us)) for run in self.runs[side]]
        return merge(parts, opposite.table.schema)

    def _store(self, side: int, new: Rows, before: int) -> None:
        runs = [run for run in self.runs[side] if len(run) and run.times.max() >= before]
        runs.append(new)
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            runs[-2:] = [merge(runs[-2:])]
        self.runs[side] = runs


def _table(tuples: Columns) -> pa.Table:
    return pa.table({HASH: tuples["hash"].view(np.int64), TIME: tuples["time"], "row": tuples["row"]})


TACTICS: dict[str, Callable[[int], Tactic]] = {
    "blocks": lambda window_us: _Blocks(window_us, None),
    "blocks, tuned": lambda window_us: _Blocks(window_us, THETA_BLOCKS),
    "default": _Sorted,
}
"""The tactics by name, each made from the length of the window."""


@dataclass(frozen=True)
class Measured:
    """One tactic at one size of the window."""

    tactic: str
    window_rows: int
    cpu_us_per_tuple: float
    n_matches: int
    comparisons_per_tuple: float


def draw_tuples(n: int, first_us: int, last_us: int, keys: Keys, rng: np.random.Generator) -> Columns:
    """n tuples at even times in [first_us, last_us)."""
    hashes, _ = hash_columns([pa.array(keys.draw(n, rng))])
    times = np.linspace(first_us, last_us, n, endpoint=False).astype(np.int64)
    return {"hash": hashes, "time": times, "row": np.arange(n, dtype=np.int64)}


def measure(
    name: str, window_rows: int, *, epoch_rows: int = 2400, n_epochs: int = 3, seed: int = 1, keys: Keys | None = None
) -> Measured:
    """The CPU time of one tactic for a tuple, with windows of `window_rows` tuples a side: the best of the epochs."""
    return _measure(name, TACTICS[name], window_rows, epoch_rows, n_epochs, seed, keys or BModelKeys())


@dataclass(frozen=True)
class Growth:
    """The tuned tactic at one position between theta (0) and 2 theta (1): a window, and one `times` as long."""

    position: float
    short: Measured
    long: Measured

    @property
    def comparisons(self) -> float:
        """How many times as many pairs a tuple is compared in."""
        return self.long.comparisons_per_tuple / self.short.comparisons_per_tuple

    @property
    def cpu(self) -> float:
        """How many times the CPU time a tuple takes."""
        return self.long.cpu_us_per_tuple / self.short.cpu_us_per_tuple


def tuned_growth(
    n_positions: int,
    *,
    times: int = 8,
    theta_blocks: int = THETA_BLOCKS,
    epoch_rows: int = 2400,
    n_epochs: int = 3,
    seed: int = 1,
    keys: Keys | None = None,
) -> list[Growth]:
    """What a tuple costs with tuning in windows `times` as long, at positions spread evenly between theta and 2 theta.

    The shorter windows fill two mini-groups: theta to 2 theta of tuples a side, both sides together twice that.
    """
    theta_rows = theta_blocks * BLOCK_ROWS
    found = []
    for place in range(n_positions):
        position = (place + 0.5) / n_positions
        short, long = (
            _measure(
                f"blocks, theta {theta_blocks}",
                lambda window_us: _Blocks(window_us, theta_blocks),
                round(theta_rows * (1 + position)) * longer,
                epoch_rows,
                n_epochs,
                seed,
                keys or BModelKeys(),
            )
            for longer in (1, times)
        )
        found.append(Growth(position, short, long))
    return found


def mean_growth(found: Sequence[Growth]) -> tuple[float, float]:
    """The growth of pairs compared and of CPU time: the mean cost of the long windows over that of the short ones."""
    pairs, cpu = (
        fmean(getattr(one.long, name) for one in found) / fmean(getattr(one.short, name) for one in found)
        for name in ("comparisons_per_tuple", "cpu_us_per_tuple")
    )
    return pairs, cpu


def _measure(
    name: str,
    make: Callable[[int], Tactic],
    window_rows: int,
    epoch_rows: int,
    n_epochs: int,
    seed: int,
    keys: Keys,
) -> Measured:
    rng = np.random.default_rng(seed)
    epoch_us = 1_000_000
    window_us = epoch_us * window_rows // epoch_rows
    tactic = make(window_us)
    tactic.install([draw_tuples(window_rows, -window_us, 0, keys, rng) for _ in (0, 1)])
    spent, n_matches, before = [], 0, tactic.comparisons
    for epoch in range(n_epochs):
        start_us = epoch * epoch_us
        sides = [draw_tuples(epoch_rows, start_us, start_us + epoch_us, keys, rng) for _ in (0, 1)]
        began = time.process_time()
        n_matches += tactic.epoch(sides, start_us + epoch_us - window_us)
        spent.append(time.process_time() - began)
    n_tuples = 2 * epoch_rows
    compared = (tactic.comparisons - before) / (n_tuples * n_epochs)
    return Measured(name, window_rows, min(spent) / n_tuples * 1e6, n_matches, compared)
