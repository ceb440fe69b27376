"""Chord as a protocol: nodes that know a few others, and a network that loses, gains and repairs nodes.

Idea: each node keeps its predecessor, a list of successors and one finger for each power of two, and trusts none of
them: a node that does not answer is passed over, and the node that a finger names as a key's owner checks the claim
against its own predecessor. Stabilization (each node asks its successor who is before it) mends the circle first; the
fingers are only shortcuts and follow.

Invariant: once stabilization has nothing left to change, a lookup from any node finds the first live node at or after
the key. It gets there if fewer nodes in a row fail between two stabilizations than a successor list holds, and if no
node fails before those that joined through it have stabilized once.
Cost: about log2(n) / 2 messages a lookup; `bits` lookups a node to refresh its fingers.
Limitation: what a failed node stored is lost (windows are soft state); what a leaving node stored is handed on.
`Ring` computes the same answers for a settled network, vectorized; the tests hold the two against each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from braidstream.errors import InputError, RunError

__all__ = ["ChordNetwork", "ChordNode", "Lookup", "within"]


def within(key: int, after: int, until: int) -> bool:
    """Whether `key` lies in the circle's interval (after, until]; the whole circle when the ends are equal."""
    if after < until:
        return after < key <= until
    return key > after or key <= until


@dataclass(frozen=True)
class Lookup:
    """The answer of a lookup: the owner, and the nodes that the message visited, the first one included."""

    owner: int
    path: tuple[int, ...]

    @property
    def hops(self) -> int:
        """How many messages the lookup took."""
        return len(self.path) - 1


@dataclass
class ChordNode:
    """What one node knows. Every entry may be out of date."""

    id: int
    predecessor: int | None = None
    successors: list[int] = field(default_factory=list)
    fingers: list[int] = field(default_factory=list)
    stored: dict[int, list[Any]] = field(default_factory=dict)


class ChordNetwork:
    """The live nodes and the messages between them."""

    def __init__(self, bits: int, n_successors: int = 4) -> None:
        if bits < 1 or n_successors < 1:
            raise InputError(f"bits = {bits}, n_successors = {n_successors}", "both at least 1")
        self.bits, self.n_successors = bits, n_successors
        self.nodes: dict[int, ChordNode] = {}
        self.messages = 0

    @classmethod
    def settled(cls, ids: Iterable[int], bits: int, n_successors: int = 4) -> ChordNetwork:
        """A network of these nodes that has already stabilized."""
        network, circle = cls(bits, n_successors), sorted(set(ids))
        if circle and not 0 <= circle[0] <= circle[-1] < 1 << bits:
            raise InputError(f"identifiers {circle[0]} to {circle[-1]}", f"0 to 2^{bits} - 1")
        for at, node in enumerate(circle):
            starts = ((node + (1 << i)) % (1 << bits) for i in range(bits))
            fingers = [circle[bisect_left(circle, start) % len(circle)] for start in starts]
            after = [circle[(at + step) % len(circle)] for step in range(1, min(n_successors, len(circle) - 1) + 1)]
            network.nodes[node] = ChordNode(node, circle[at - 1], after or [node], fingers)
        return network

    def join(self, node: int, known: int | None = None) -> None:
        """A new node enters through any `known` live one; others learn of it by stabilization."""
        if node in self.nodes or not 0 <= node < 1 << self.bits:
            raise InputError(f"identifier {node} cannot join", f"a free identifier from 0 to 2^{self.bits} - 1")
        if self.nodes and known is None:
            known = next(iter(self.nodes))
        successor = node if known is None else self.find(known, node).owner
        self.nodes[node] = ChordNode(node, None, [successor], [successor] * self.bits)
        self._stabilize_node(self.nodes[node])

    def leave(self, node: int) -> None:
        """A node goes in good order: it hands its data to its successor and tells both neighbours."""
        gone = self.nodes.pop(self._live(node))
        heir = self._first_live(gone)
        if heir is None:
            return
        for key, data in gone.stored.items():
            self.nodes[heir].stored.setdefault(key, []).extend(data)
        self.messages += 2
        if self.nodes[heir].predecessor == node:
            self.nodes[heir].predecessor = gone.predecessor if gone.predecessor in self.nodes else None
        if gone.predecessor in self.nodes:
            before = self.nodes[gone.predecessor]
            before.successors = [heir, *(s for s in before.successors if s not in (node, heir))]

    def fail(self, node: int) -> None:
        """A node is gone without a word, and its data with it."""
        del self.nodes[self._live(node)]

    def find(self, source: int, key: int) -> Lookup:
        """Look up the owner of `key` from `source`, around nodes that do not answer."""
        at, path, is_claimed = self._live(source), [source], False
        while not self._owns(self.nodes[at], key, is_claimed):
            at, is_claimed = self._step(self.nodes[at], key, is_claimed)
            path.append(at)
            self.messages += 1
            if len(path) > 2 * len(self.nodes) + self.bits:
                raise RunError(f"the lookup of {key} from {source} does not end", "", "stabilize the network")
        return Lookup(at, tuple(path))

    def put(self, source: int, key: int, data: Any) -> Lookup:
        """Store `data` under `key` at its owner."""
        found = self.find(source, key)
        self.nodes[found.owner].stored.setdefault(key, []).append(data)
        return found

    def get(self, source: int, key: int) -> list[Any]:
        """What is stored under `key`."""
        return list(self.nodes[self.find(source, key).owner].stored.get(key, []))

    def stabilize(self) -> int:
        """Let every node repair what it knows until nothing changes; returns the number of rounds."""
        for round_ in range(1, 4 * len(self.nodes) + self.bits + 4):
            if not self.stabilize_once():
                self._fix_all_fingers()
                return round_
        raise RunError("the network does not settle", "", "keep longer successor lists: too many nodes failed in a row")

    def stabilize_once(self) -> bool:
        """One round: every node asks its successor who is before it. Whether anybody learned anything."""
        before = self._known()
        for node in sorted(self.nodes):
            self._stabilize_node(self.nodes[node])
        return self._known() != before

    def owner(self, key: int) -> int:
        """The right answer, known only to an observer of the whole network: the first live node at or after `key`."""
        return min(self.nodes, key=lambda node: (node - key) % (1 << self.bits))

    def _live(self, node: int) -> int:
        if node not in self.nodes:
            raise InputError(f"node {node} is not in the network", "the identifier of a live node")
        return node

    def _step(self, node: ChordNode, key: int, is_claimed: bool) -> tuple[int, bool]:
        """Where a node that does not own `key` passes the lookup on to, and whether as to the key's claimed owner."""
        before = node.predecessor
        if is_claimed and before is not None and before in self.nodes:
            return before, True  # a finger overshot a node that came later: the owner is further back
        gap = (key - node.id) % (1 << self.bits)
        interval = gap.bit_length() - 1
        nearest = node.fingers[interval]
        if nearest in self.nodes and nearest != node.id and within(key, node.id, nearest):
            return nearest, True
        for finger in reversed(node.fingers[: interval + 1]):
            if finger in self.nodes and finger != node.id and within(finger, node.id, key):
                return finger, False
        successor = self._next_known(node)
        if successor is None:
            raise RunError(f"node {node.id} knows no live node", "", "stabilize the network")
        return successor, within(key, node.id, successor)

    def _owns(self, node: ChordNode, key: int, is_claimed: bool) -> bool:
        """A node that knows no predecessor yet accepts a claim: it cannot refute it."""
        if node.predecessor is not None and node.predecessor in self.nodes:
            return within(key, node.predecessor, node.id)
        return is_claimed or key == node.id or self._first_live(node) is None

    def _first_live(self, node: ChordNode) -> int | None:
        return next((s for s in node.successors if s in self.nodes and s != node.id), None)

    def _known(self) -> list[tuple[int | None, tuple[int, ...]]]:
        return [(node.predecessor, tuple(node.successors)) for _, node in sorted(self.nodes.items())]

    def _stabilize_node(self, node: ChordNode) -> None:
        """Ask the first live successor for its predecessor and its list, then tell it about this node."""
        if node.predecessor not in self.nodes:
            node.predecessor = None
        successor = self._next_known(node)
        if successor is None:
            node.predecessor, node.successors = node.id, [node.id]
            return
        self.messages += 2
        between = self.nodes[successor].predecessor
        is_nearer = between is not None and between not in (node.id, successor) and within(between, node.id, successor)
        if between is not None and is_nearer and between in self.nodes:
            successor = between
        row = [successor, *(s for s in self.nodes[successor].successors if s in self.nodes and s != node.id)]
        node.successors = list(dict.fromkeys(row))[: self.n_successors]
        self._notify(self.nodes[successor], node.id)

    def _next_known(self, node: ChordNode) -> int | None:
        """The first live successor, or else the nearest live node that this one remembers from anywhere."""
        successor = self._first_live(node)
        if successor is not None:
            return successor
        remembered = [*([] if node.predecessor is None else [node.predecessor]), *node.fingers]
        others = [other for other in remembered if other in self.nodes and other != node.id]
        return min(others, key=lambda other: (other - node.id) % (1 << self.bits), default=None)

    def _notify(self, node: ChordNode, candidate: int) -> None:
        """`candidate` believes to be before `node`: take it if it is nearer, and hand over the keys that it owns."""
        known = node.predecessor if node.predecessor in self.nodes else None
        if known == candidate or (known not in (None, node.id) and not within(candidate, known, node.id)):
            return
        node.predecessor = candidate
        moving = [key for key in node.stored if not within(key, candidate, node.id)]
        for key in moving:
            self.nodes[candidate].stored.setdefault(key, []).extend(node.stored.pop(key))

    def _fix_all_fingers(self) -> None:
        for node in list(self.nodes.values()):
            node.fingers = self._found_fingers(node)

    def _found_fingers(self, node: ChordNode) -> list[int]:
        """Look every finger up; those within reach of the successor need no message."""
        fingers: list[int] = []
        successor = self._first_live(node)
        for i in range(self.bits):
            start = (node.id + (1 << i)) % (1 << self.bits)
            if successor is None:
                fingers.append(node.id)
            elif within(start, node.id, successor):
                fingers.append(successor)
            else:
                fingers.append(self.find(node.id, start).owner)
        return fingers
