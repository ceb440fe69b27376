"""Dissemination of a query to every node, over trees that the routing tables already contain.

Idea: a node that is responsible for a range of nodes hands parts of the range to nodes of its routing table, each of
which does the same with its part. On Chord (DHTJoin 3.1) the farthest finger inside the range takes everything from
itself to the range's end, then the next one, and so on: each part is at most half of the identifiers that were left. On
Pastry (3.4) a node hands every other digit of the next routing table row to the node it knows with that digit.
Both are a `Dissemination`: children of a node and a range. The tree is computed level by level for all nodes at once.

Invariant: ranges are disjoint and cover all nodes, so each node but the root gets exactly one message: n - 1 messages.
Depth: log2(n) when the identifiers are evenly spread, and on random identifiers still at most the levels of the tree of
distinct prefixes, about log2(n) plus a little. Cost: one binary search a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError, nearest
from braidstream.lab.overlay.ring import Ring, mix64

__all__ = ["DISSEMINATIONS", "ChordTree", "Dissemination", "PastryTree", "Tree", "disseminate", "dissemination_named"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Frontier:
    """Nodes that have just got the message, each with the range it must serve.

    The range is [low, low + span) in ring order; on Chord it begins with the node itself, on Pastry `row` is the number
    of digits that all of it shares.
    """

    node: Ints
    low: Ints
    span: Ints
    row: Ints

    def where(self, chosen: npt.NDArray[np.bool_] | Ints) -> Frontier:
        """A part of the frontier."""
        return Frontier(self.node[chosen], self.low[chosen], self.span[chosen], self.row[chosen])


@dataclass(frozen=True)
class Handover:
    """One message for each of some nodes, and the frontier that they are left with."""

    senders: Ints
    children: Frontier
    rest: Frontier


class Dissemination(Protocol):
    """A way to spread a message over the trees of a routing table."""

    def start(self, root: int) -> Frontier:
        """The root, responsible for everybody."""
        ...

    def hand_over(self, frontier: Frontier) -> Handover:
        """Let each node that serves more than itself hand over one more part of its range."""
        ...


@dataclass(frozen=True)
class Tree:
    """How a message spread: by node its parent (-1 for the root and for those not reached) and its depth (or -1)."""

    parent: Ints
    depth: Ints
    root: int

    @property
    def messages(self) -> int:
        """How many messages were received."""
        return int(np.count_nonzero(self.parent >= 0))

    @property
    def height(self) -> int:
        """The longest way from the root."""
        return int(self.depth.max())

    @property
    def fan_out(self) -> Ints:
        """How many messages each node sent to nodes that received them."""
        return np.bincount(self.parent[self.parent >= 0], minlength=len(self.parent))

    @property
    def reached(self) -> npt.NDArray[np.bool_]:
        """Which nodes have the message."""
        return self.depth >= 0

    def levels(self) -> list[Ints]:
        """The nodes of each depth, from the root down."""
        order = np.argsort(self.depth, kind="stable")
        order = order[np.count_nonzero(self.depth < 0) :]
        return np.split(order, np.cumsum(np.bincount(self.depth[order]))[:-1])

    def edges_of(self, values: Callable[[Ints, Ints], Ints]) -> Ints:
        """Sum `values(parent, child)` from the root to every reached node: arrival times from link delays."""
        total = np.zeros(len(self.parent), dtype=np.int64)
        for level in self.levels()[1:]:
            total[level] = total[self.parent[level]] + values(self.parent[level], level)
        return total


def disseminate(way: Dissemination, n_nodes: int, root: int, live: npt.NDArray[np.bool_] | None = None) -> Tree:
    """Spread a message from `root`; a node that is not live receives nothing, and its whole subtree with it."""
    parent, depth = np.full(n_nodes, -1, dtype=np.int64), np.full(n_nodes, -1, dtype=np.int64)
    depth[root] = 0
    frontier, level = way.start(root), 0
    while len(frontier.node):
        level += 1
        received: list[Frontier] = []
        while len((frontier := frontier.where(frontier.span > 1)).node):
            handed = way.hand_over(frontier)
            children, senders, frontier = handed.children, handed.senders, handed.rest
            if live is not None:
                arrives = live[children.node]
                children, senders = children.where(arrives), senders[arrives]
            parent[children.node], depth[children.node] = senders, level
            received.append(children)
        frontier = _joined(received) if received else frontier
    return Tree(parent, depth, root)


@dataclass(frozen=True)
class ChordTree:
    """DHTJoin 3.1: the embedded trees of the finger tables."""

    ring: Ring

    def start(self, root: int) -> Frontier:
        """The root serves the whole ring."""
        return _single(root, root, len(self.ring), 0)

    def hand_over(self, frontier: Frontier) -> Handover:
        """The farthest finger inside the range takes the range from itself to the end."""
        n, node = len(self.ring), frontier.node
        finger = self.ring.farthest(node, (node + frontier.span - 1) % n)
        own = (finger - node) % n
        children = Frontier(finger, finger, frontier.span - own, frontier.row)
        return Handover(node, children, Frontier(node, node, own, frontier.row))


@dataclass(frozen=True)
class PastryTree:
    """DHTJoin 3.4: prefix routing with digits of `digit_bits` bits. An entry is some node with the right prefix."""

    ring: Ring
    digit_bits: int = 1
    seed: int = 0

    def start(self, root: int) -> Frontier:
        """The root serves the whole identifier space, of which no digit is shared."""
        return _single(root, 0, len(self.ring), 0)

    def hand_over(self, frontier: Frontier) -> Handover:
        """Hand over the last digit's part of the range, or else the first one's, or else go on to the next row."""
        low, high = frontier.low, frontier.low + frontier.span
        own_low, own_high = self._same_digit(frontier.node, frontier.row)
        from_end, from_start = high > own_high, (high <= own_high) & (low < own_low)
        part_low, part_high = self._same_digit(np.where(from_end, high - 1, low), frontier.row)
        part_low, part_high = np.maximum(part_low, low), np.minimum(part_high, high)
        rest_low, rest_high = np.where(from_start, part_high, low), np.where(from_end, part_low, high)
        sends = from_end | from_start
        rest = Frontier(frontier.node, rest_low, rest_high - rest_low, frontier.row + ~sends)
        spans = (part_high - part_low)[sends]
        children = part_low[sends] + self._table_entry(frontier.node[sends], part_low[sends], spans)
        received = Frontier(children, part_low[sends], spans, frontier.row[sends] + 1)
        return Handover(frontier.node[sends], received, rest)

    def _same_digit(self, node: Ints, row: Ints) -> tuple[Ints, Ints]:
        """The range of all nodes that share `row` digits and the next one with `node`."""
        shift = np.maximum(self.ring.bits - (row + 1) * self.digit_bits, 0)
        prefix = self.ring.ids[node] >> shift
        low = np.searchsorted(self.ring.ids, prefix << shift)
        return low, np.searchsorted(self.ring.ids, (prefix + 1) << shift)

    def _table_entry(self, node: Ints, low: Ints, span: Ints) -> Ints:
        """Which of the nodes with the right digit the sender happens to know: any, but always the same one."""
        mixed = mix64((node * 1_000_003 + low + self.seed).astype(np.uint64))
        return (mixed % span.astype(np.uint64)).astype(np.int64)


DISSEMINATIONS = ("chord", "pastry")


def dissemination_named(name: str, ring: Ring) -> Dissemination:
    """The way of that name."""
    if name not in DISSEMINATIONS:
        raise InputError(f"unknown dissemination {name!r}", " or ".join(DISSEMINATIONS), nearest(name, DISSEMINATIONS))
    return ChordTree(ring) if name == "chord" else PastryTree(ring)


def _single(node: int, low: int, span: int, row: int) -> Frontier:
    return Frontier(*(np.array([value], dtype=np.int64) for value in (node, low, span, row)))


def _joined(parts: list[Frontier]) -> Frontier:
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("node", "low", "span", "row"))
    return Frontier(*columns)
