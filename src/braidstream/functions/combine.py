"""Putting results back together in the order of the stream: GSDM's S-Merge and OS-Join.

A node that combines knows which windows to expect, because the node that partitioned them tells it. It lets results go
in that order. Where one is missing it waits, holding what came after, until the stream's newest window is more than the
time-out later; then it gives the window up, counts it, and goes on. A result that comes after that is dropped.

Invariant: every expected window is emitted once, or given up once, in the order of the stream. State: what waits. Cost:
binary search and one copy of the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from braidstream.functions.window_batch import I64, Array, WindowBatch, ordered

__all__ = ["Waiting", "join_parts", "settle"]


@dataclass(frozen=True)
class Waiting:
    """What a combining node holds between epochs."""

    expected: WindowBatch
    """Windows that are neither emitted nor given up: number and time stamp only."""
    held: tuple[tuple[WindowBatch, ...], ...]
    """Results that wait for one before them, by child."""


@dataclass
class Settled:
    """What an epoch lets go: results by child, those of one window in every child at once; and the counts."""

    children: list[list[WindowBatch]]
    waiting: Waiting
    given_up: int = 0
    late: int = 0
    missing: list[int] = field(default_factory=list)
    """The numbers of the windows that were given up."""


def settle(
    expected: WindowBatch, arrived: Sequence[Sequence[WindowBatch]], needed: int, timeout_us: int, now: int | None
) -> Settled:
    """Let go what is complete or overdue. `arrived` has the results of each child; a window needs `needed` of them."""
    late = 0
    known: list[list[tuple[WindowBatch, I64]]] = []
    count = np.zeros(len(expected), dtype=np.int64)
    for batches in arrived:
        mine = []
        for batch in batches:
            at = np.searchsorted(expected.seq, batch.seq)
            there = np.zeros(len(batch), dtype=np.bool_)
            inside = at < len(expected)
            there[inside] = expected.seq[at[inside]] == batch.seq[inside]
            late += int((~there).sum())
            kept = batch if there.all() else batch.take(there)
            count[at[there]] += 1
            mine.append((kept, at[there]))
        known.append(mine)
    complete = count >= needed
    passes = complete if now is None else complete | (now - expected.ts > timeout_us)
    stop = len(expected) if passes.all() else int(np.argmin(passes))
    missing = expected.seq[:stop][~complete[:stop]].tolist()
    going = [_chosen(mine, lambda at: (at < stop) & complete[np.minimum(at, len(complete) - 1)]) for mine in known]
    held = tuple(tuple(_chosen(mine, lambda at: at >= stop)) for mine in known)
    waiting = Waiting(expected.take(slice(stop, None)), held)
    return Settled(going, waiting, len(missing), late, missing)


def _chosen(batches: list[tuple[WindowBatch, I64]], choose: Callable[[I64], Array]) -> list[WindowBatch]:
    found = []
    for batch, at in batches:
        mask = choose(at)
        if mask.all():
            found.append(batch)
        elif mask.any():
            found.append(batch.take(mask))
    return [batch for batch in found if len(batch)]


def join_parts(children: Sequence[Sequence[WindowBatch]], most_bytes: int) -> list[list[WindowBatch]]:
    """The sub-windows of the same windows side by side: lists with one batch a child, all of the same windows."""
    columns = [ordered(batches) for batches in children]
    if not columns or not columns[0]:
        return []
    n_rows = sum(len(batch) for batch in columns[0])
    row_bytes = sum(batch.nbytes for column in columns for batch in column) // n_rows
    at_once = max(most_bytes // max(row_bytes, 1), 1)
    cuts = {0, *range(at_once, n_rows, at_once), n_rows}
    for column in columns:
        cuts |= set(np.cumsum([len(batch) for batch in column]).tolist())
    edges = sorted(cuts)
    return [[_rows(column, begin, end) for column in columns] for begin, end in itertools.pairwise(edges)]


def _rows(column: Sequence[WindowBatch], begin: int, end: int) -> WindowBatch:
    """Rows of a list of batches that lie within one of them."""
    for batch in column:
        if begin < len(batch):
            return batch.take(slice(begin, end))
        begin, end = begin - len(batch), end - len(batch)
    raise IndexError(begin)
