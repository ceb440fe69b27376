"""The block nested-loop tactic of WSJ IV-D, with fine tuning.

It stands beside the default tactic (sorting and binary search, `join`) for two uses: predicates without an equality
inside a group, where every pair must be looked at, and the paper's comparison with and without tuning.

Each stream's window of a group is a sequence of blocks in temporal order. New tuples fill the *head block*; they are
*fresh* until they have been joined, which happens when their block is full or the buffer has no more tuples
(`flush`). A pair of tuples is then produced exactly once:

- joining the fresh tuples of one side leaves out the fresh ones of the other, which will be joined in their turn;
- a block that expires is joined with the opposite fresh tuples first, because it will not be there in their turn.

*Fine tuning*: with an equality on the key hash, a group of more than 2 theta blocks is split into mini-groups by
further bits of the hash, and a mini-group below theta is merged with its buddy when the two together are below 2
theta. The table is the router's `Directory`, handed in (kernels know nothing of the control plane; `Buckets` is what
they use of it). `skip_bits` says how many leading bits all hashes of the group share.

Invariant: between calls every mini-group has at most 2 theta blocks, unless its tuples share one hash or `max_depth`
bits. Cost: a block against a block, or many, is one NumPy comparison; `comparisons` counts pairs of tuples. Untuned, a
tuple costs the opposite window; tuned, at most 2 theta blocks. Known limitation: a small push spread over many
mini-groups costs a few NumPy calls for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from braidstream.model.numbers import GroupId

__all__ = ["BLOCK_ROWS", "BlockJoin", "Buckets", "Matches", "block_pairs", "equal_hashes"]

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Columns = Mapping[str, npt.NDArray[Any]]
"""Tuples by column: "hash", "time" (microseconds) and "row" (the caller's name for the tuple), and any others."""
Predicate = Callable[[Columns, Columns], Flags]
"""Takes left and right tuples, one as a column and the other as a row; says, elementwise, which pairs match."""

BLOCK_ROWS = 64
"""Tuples in a block: 4 KB of 64 bytes each (WSJ VI-A)."""
COMPARISONS_AT_ONCE = 1 << 18
"""Pairs compared in one operation: their flags take 256 KB and stay in the cache."""
_TALL = 256
"""At most so many of the fewer tuples at once: the rows of flags are long, and so is NumPy's inner loop."""

Table = TypeVar("Table", bound="Buckets")


class Buckets(Protocol):
    """What the tactic needs of an extendible-hash table: `model.directory.Directory` has it."""

    @property
    def groups(self) -> Sequence[Any]:
        """The buckets in the order of the hash space."""

    @property
    def by_id(self) -> Mapping[GroupId, Any]:
        """The buckets by identity."""

    @property
    def lows(self) -> U64:
        """The smallest hash of each bucket, ascending."""

    def split(self: Table, group: GroupId) -> Table:
        """The table with a bucket halved; the lower half keeps the identity."""

    def merge(self: Table, group: GroupId) -> Table:
        """The table with a bucket and its buddy as one; the lower half's identity remains."""

    def buddy(self, group: GroupId) -> Any | None:
        """The bucket that can be merged with this one."""


@dataclass(frozen=True)
class Matches:
    """Pairs of tuples, by their `row` on each side."""

    left: I64
    right: I64

    def __len__(self) -> int:
        return len(self.left)

    @classmethod
    def of(cls, parts: Sequence[tuple[I64, I64]]) -> Matches:
        """The pairs of all parts."""
        empty = np.empty(0, dtype=np.int64)
        return cls(np.concatenate([empty, *(p[0] for p in parts)]), np.concatenate([empty, *(p[1] for p in parts)]))


def equal_hashes(left: Columns, right: Columns) -> Flags:
    """The equality of key hashes."""
    return np.asarray(left["hash"] == right["hash"])


def block_pairs(
    left: Columns,
    right: Columns,
    windows: tuple[int | None, int | None] = (None, None),
    predicate: Predicate = equal_hashes,
) -> Iterator[tuple[I64, I64]]:
    """The positions of all pairs for which the predicate and the windows hold, a bounded number of comparisons at once.

    Pair (l, r) is within the windows iff the newer is at most the older's window later: -W_l <= l.time - r.time <= W_r.
    """
    is_flipped = len(left["time"]) > len(right["time"])
    few, many = (right, left) if is_flipped else (left, right)
    n_few, n_many = len(few["time"]), len(many["time"])
    tall = max(1, min(n_few, _TALL))
    wide = COMPARISONS_AT_ONCE // tall
    for top in range(0, n_few, tall):
        rows = {name: values[top : top + tall, None] for name, values in few.items()}
        for start in range(0, n_many, wide):
            columns = {name: values[None, start : start + wide] for name, values in many.items()}
            flags = predicate(columns, rows) if is_flipped else predicate(rows, columns)
            at = np.flatnonzero(flags)
            if at.size:
                row, column = np.divmod(at, flags.shape[1])
                found = (column + start, row + top) if is_flipped else (row + top, column + start)
                yield _within(left, right, found, windows)


def _within(
    left: Columns, right: Columns, found: tuple[I64, I64], windows: tuple[int | None, int | None]
) -> tuple[I64, I64]:
    """The pairs whose times are within the windows."""
    gap = left["time"][found[0]] - right["time"][found[1]]
    keep = np.ones(len(gap), dtype=np.bool_)
    if windows[0] is not None:
        keep &= gap >= -windows[0]
    if windows[1] is not None:
        keep &= gap <= windows[1]
    return found[0][keep], found[1][keep]


class _Window:
    """One side of a mini-group: blocks in temporal order, the newest last; rows from `fresh` on are still unjoined."""

    def __init__(self, block_rows: int, columns: Columns | None = None) -> None:
        self.block_rows = block_rows
        self.columns: dict[str, npt.NDArray[Any]] = dict(columns or {})
        self.start = 0
        self.stop = self.fresh = len(self.columns["time"]) if self.columns else 0

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def n_blocks(self) -> int:
        return -(-len(self) // self.block_rows)

    @property
    def full(self) -> int:
        """Where the head block begins, or the end when every block is full."""
        return self.stop - len(self) % self.block_rows

    def view(self, start: int, stop: int) -> Columns:
        return {name: values[start:stop] for name, values in self.columns.items()}

    def all(self) -> Columns:
        return self.view(self.start, self.stop)

    def append(self, tuples: Columns) -> None:
        n = len(tuples["time"])
        self._reserve(n, tuples)
        for name, values in tuples.items():
            self.columns[name][self.stop : self.stop + n] = values
        self.stop += n

    def expired(self, before: int) -> int:
        """Where the blocks end whose tuples are all older than `before`; blocks behind a younger one wait for it."""
        n_old = 0
        times = self.columns["time"][self.start : self.full] if len(self) else np.empty(0, dtype=np.int64)
        if len(times):
            newest = times.reshape(-1, self.block_rows).max(axis=1)
            young = np.flatnonzero(newest >= before)
            n_old = int(young[0]) if young.size else len(newest)
            if n_old == len(newest) and self.full < self.stop and self._head_newest() < before:
                return self.stop
        elif len(self) and self._head_newest() < before:
            return self.stop
        return self.start + n_old * self.block_rows

    def drop(self, stop: int) -> None:
        self.start = stop

    def _head_newest(self) -> int:
        return int(self.columns["time"][self.full : self.stop].max())

    def _reserve(self, n: int, like: Columns) -> None:
        """Room for n more rows; the space of dropped blocks is used again once half of it is free."""
        capacity = len(self.columns["time"]) if self.columns else 0
        if self.stop + n <= capacity:
            return
        room = max(2 * (len(self) + n), 4 * self.block_rows)
        kept = {name: np.empty(room, dtype=values.dtype) for name, values in like.items()}
        for name, values in self.columns.items():
            kept[name][: len(self)] = values[self.start : self.stop]
        self.columns, self.fresh, self.stop, self.start = kept, self.fresh - self.start, len(self), 0


@dataclass
class _MiniGroup:
    """A mini-partition-group: the windows of both sides over the same hashes."""

    sides: tuple[_Window, _Window]

    @property
    def n_blocks(self) -> int:
        return self.sides[0].n_blocks + self.sides[1].n_blocks


@dataclass
class BlockJoin:
    """The windows of one group and their join. Not shared between threads; one for each group of a slot.

    `theta_blocks` None: no tuning, the group is one mini-group (and the predicate need not be an equality).
    """

    windows: tuple[int | None, int | None]
    table: Buckets
    theta_blocks: int | None = None
    block_rows: int = BLOCK_ROWS
    skip_bits: int = 0
    max_depth: int = 24
    predicate: Predicate = equal_hashes
    comparisons: int = field(default=0, init=False)
    n_splits: int = field(default=0, init=False)
    n_merges: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._minis = {bucket.id: self._empty() for bucket in self.table.groups}
        self._dirty: set[GroupId] = set()

    def install(self, side: int, tuples: Columns) -> None:
        """Take over tuples, in temporal order, that were joined elsewhere: the state of a group that moved here."""
        for mini, part in self._parts(tuples):
            window = self._minis[mini].sides[side]
            if window.fresh < window.stop:
                raise ValueError(f"mini-group {mini} has fresh tuples: flush before state is installed")
            window.append(part)
            window.fresh = window.stop
            self._split_large(mini)

    def push(self, side: int, tuples: Columns) -> Matches:
        """Take tuples of one side into their head blocks, join the blocks that are full, and tune."""
        found: list[tuple[I64, I64]] = []
        for mini, part in self._parts(tuples):
            window = self._minis[mini].sides[side]
            window.append(part)
            self._dirty.add(mini)
            if window.fresh < window.full:
                found += self._join_fresh(mini, side, window.full)
            found += self._split_large(mini)
        return Matches.of(found)

    def flush(self) -> Matches:
        """The buffer has no more tuples: join what is fresh."""
        found: list[tuple[I64, I64]] = []
        for mini in sorted(self._dirty):
            found += self._join_all_fresh(mini)
        self._dirty.clear()
        return Matches.of(found)

    def expire(self, side: int, before: int) -> Matches:
        """Drop the blocks of one side that are older than `before` as a whole, joined with what is fresh opposite."""
        found: list[tuple[I64, I64]] = []
        for mini in list(self._minis):
            if mini in self._minis:
                found += self._expire(mini, side, before)
        found += self._merge_small()
        return Matches.of(found)

    def sizes(self) -> list[int]:
        """The blocks of each mini-group, in the order of the hash space."""
        return [self._minis[bucket.id].n_blocks for bucket in self.table.groups]

    def __len__(self) -> int:
        """How many tuples are held."""
        return sum(len(side) for mini in self._minis.values() for side in mini.sides)

    def _empty(self) -> _MiniGroup:
        return _MiniGroup((_Window(self.block_rows), _Window(self.block_rows)))

    def _shifted(self, hashes: npt.NDArray[Any]) -> U64:
        return np.asarray(hashes, dtype=np.uint64) << np.uint64(self.skip_bits)

    def _parts(self, tuples: Columns) -> Iterator[tuple[GroupId, Columns]]:
        """The tuples of each mini-group, their order kept."""
        if not len(tuples["time"]):
            return
        if len(self._minis) == 1:
            yield self.table.groups[0].id, tuples
            return
        at = np.searchsorted(self.table.lows, self._shifted(tuples["hash"]), side="right") - 1
        order = np.argsort(at, kind="stable")
        groups = self.table.groups
        present, starts = np.unique(at[order], return_index=True)
        ordered = {name: values[order] for name, values in tuples.items()}
        for bucket, start, stop in zip(present, starts, [*starts[1:], len(at)], strict=True):
            yield groups[bucket].id, {name: values[start:stop] for name, values in ordered.items()}

    def _join_fresh(self, mini: GroupId, side: int, stop: int) -> list[tuple[I64, I64]]:
        """Join the fresh tuples of one side up to `stop` with the opposite ones that are not fresh."""
        window, other = self._minis[mini].sides[side], self._minis[mini].sides[1 - side]
        fresh, window.fresh = window.view(window.fresh, stop), stop
        return self._pairs(side, fresh, other.view(other.start, other.fresh))

    def _join_all_fresh(self, mini: GroupId) -> list[tuple[I64, I64]]:
        if mini not in self._minis:
            return []
        first, second = self._minis[mini].sides
        return self._join_fresh(mini, 0, first.stop) + self._join_fresh(mini, 1, second.stop)

    def _expire(self, mini: GroupId, side: int, before: int) -> list[tuple[I64, I64]]:
        window, other = self._minis[mini].sides[side], self._minis[mini].sides[1 - side]
        stop = window.expired(before)
        if stop == window.start:
            return []
        found = self._join_fresh(mini, side, stop) if window.fresh < stop else []  # a head block that was never joined
        found += self._pairs(side, window.view(window.start, stop), other.view(other.fresh, other.stop))
        window.drop(stop)
        return found

    def _pairs(self, side: int, own: Columns, other: Columns) -> list[tuple[I64, I64]]:
        self.comparisons += len(own["time"]) * len(other["time"]) if own and other else 0
        if not own or not other:
            return []
        left, right = (own, other) if side == 0 else (other, own)
        return [(left["row"][a], right["row"][b]) for a, b in block_pairs(left, right, self.windows, self.predicate)]

    def _split_large(self, mini: GroupId) -> list[tuple[I64, I64]]:
        """Split a mini-group of more than 2 theta blocks, and its halves, until they are small enough."""
        if self.theta_blocks is None or not self._is_splittable(mini):
            return []
        found = self._join_all_fresh(mini)
        pending = [mini]
        while pending:
            one = pending.pop()
            if self._is_splittable(one):
                pending += [one, self._split(one)]
        return found

    def _is_splittable(self, mini: GroupId) -> bool:
        if self._minis[mini].n_blocks <= 2 * (self.theta_blocks or 0) or self.table.by_id[mini].depth >= self.max_depth:
            return False
        hashes = [side.all()["hash"] for side in self._minis[mini].sides if len(side)]
        return any(len(h) and (h != hashes[0][0]).any() for h in hashes)

    def _split(self, mini: GroupId) -> GroupId:
        """Halve a mini-group without fresh tuples; the identity of the upper half."""
        before = set(self.table.by_id)
        self.table = self.table.split(mini)
        upper = next(iter(set(self.table.by_id) - before))
        boundary = np.uint64(self.table.by_id[upper].low)
        halves = [_divided(side, self._shifted(side.all()["hash"]) >= boundary) for side in self._sides_with_rows(mini)]
        self._minis[mini] = _MiniGroup((halves[0][0], halves[1][0]))
        self._minis[upper] = _MiniGroup((halves[0][1], halves[1][1]))
        self.n_splits += 1
        return upper

    def _sides_with_rows(self, mini: GroupId) -> tuple[_Window, _Window]:
        """Both windows, an untouched one with the other's columns (so that it can be divided)."""
        first, second = self._minis[mini].sides
        for window, other in ((first, second), (second, first)):
            if not window.columns:
                window.columns = {name: values[:0].copy() for name, values in other.columns.items()}
        return first, second

    def _merge_small(self) -> list[tuple[I64, I64]]:
        """Merge each mini-group below theta with its buddy, where the two together stay below 2 theta."""
        found: list[tuple[I64, I64]] = []
        while self.theta_blocks is not None:
            pair = self._small_pair(self.theta_blocks)
            if pair is None:
                break
            found += self._join_all_fresh(pair[0]) + self._join_all_fresh(pair[1])
            self._merge(*pair)
        return found

    def _small_pair(self, theta: int) -> tuple[GroupId, GroupId] | None:
        for bucket in self.table.groups:
            size = self._minis[bucket.id].n_blocks
            buddy = self.table.buddy(bucket.id) if size < theta else None
            if buddy is not None and size + self._minis[buddy.id].n_blocks < 2 * theta:
                return bucket.id, buddy.id
        return None

    def _merge(self, mini: GroupId, buddy: GroupId) -> None:
        one, other = self._minis.pop(mini), self._minis.pop(buddy)
        self.table = self.table.merge(mini)
        kept = next(i for i in (mini, buddy) if i in self.table.by_id)
        sides = [_united(a, b) for a, b in zip(one.sides, other.sides, strict=True)]
        self._minis[kept] = _MiniGroup((sides[0], sides[1]))
        self.n_merges += 1


def _divided(window: _Window, is_upper: Flags) -> tuple[_Window, _Window]:
    rows = window.all()
    lower = {name: values[~is_upper] for name, values in rows.items()}
    upper = {name: values[is_upper] for name, values in rows.items()}
    return _Window(window.block_rows, lower), _Window(window.block_rows, upper)


def _united(one: _Window, other: _Window) -> _Window:
    """The rows of both, in temporal order again."""
    if not len(one) or not len(other):
        return one if len(one) else other
    both = {name: np.concatenate([values, other.all()[name]]) for name, values in one.all().items()}
    order = np.argsort(both["time"], kind="stable")
    return _Window(one.block_rows, {name: values[order] for name, values in both.items()})
