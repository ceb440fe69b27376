"""The join tactics side by side on real tuples: CPU time for a tuple while the window grows.

A tactic keeps the windows of one group and joins an epoch's new tuples with them. Three are compared, by name: the
block nested loop of WSJ IV-D without tuning, the same with tuning, and the engine's default (sorted runs and binary
search). All see the same tuples and must find the same number of matches; the time is this process's CPU time in steady
state, with windows installed as after a move, so nothing of the filling is measured.

Cost: untuned, every new tuple looks at the whole opposite window, which sets the length of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from braidstream.control.directory import Directory
from braidstream.kernels.blocks import BlockJoin, Columns
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.join import Pool, composites, gather
from braidstream.kernels.rows import HASH, TIME, Rows, merge, sort_rows
from braidstream.workloads.keys import BModelKeys, Keys

__all__ = ["TACTICS", "THETA_BLOCKS", "Measured", "Tactic", "draw_tuples", "measure"]

THETA_BLOCKS = 384
"""WSJ's theta of 1.5 MB in blocks of 4 KB."""


class Tactic(Protocol):
    """One way to join the tuples of a group."""

    def install(self, sides: Sequence[Columns]) -> None:
        """Begin with these windows."""

    def epoch(self, sides: Sequence[Columns], before: int) -> int:
        """Join new tuples and drop those older than `before`; the number of matches."""


class _Blocks:
    """The block nested loop, one epoch: push both sides, flush, expire."""

    def __init__(self, window_us: int, theta_blocks: int | None) -> None:
        self.join = BlockJoin((window_us, window_us), Directory.of(1), theta_blocks)

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


def draw_tuples(n: int, first_us: int, last_us: int, keys: Keys, rng: np.random.Generator) -> Columns:
    """n tuples at even times in [first_us, last_us)."""
    hashes, _ = hash_columns([pa.array(keys.draw(n, rng))])
    times = np.linspace(first_us, last_us, n, endpoint=False).astype(np.int64)
    return {"hash": hashes, "time": times, "row": np.arange(n, dtype=np.int64)}


def measure(
    name: str, window_rows: int, *, epoch_rows: int = 2400, n_epochs: int = 3, seed: int = 1, keys: Keys | None = None
) -> Measured:
    """The CPU time of one tactic for a tuple, with windows of `window_rows` tuples a side: the best of the epochs."""
    chosen = keys or BModelKeys()
    rng = np.random.default_rng(seed)
    epoch_us = 1_000_000
    window_us = epoch_us * window_rows // epoch_rows
    tactic = TACTICS[name](window_us)
    tactic.install([draw_tuples(window_rows, -window_us, 0, chosen, rng) for _ in (0, 1)])
    spent, n_matches = [], 0
    for epoch in range(n_epochs):
        start_us = epoch * epoch_us
        sides = [draw_tuples(epoch_rows, start_us, start_us + epoch_us, chosen, rng) for _ in (0, 1)]
        began = time.process_time()
        n_matches += tactic.epoch(sides, start_us + epoch_us - window_us)
        spent.append(time.process_time() - began)
    return Measured(name, window_rows, min(spent) / (2 * epoch_rows) * 1e6, n_matches)
