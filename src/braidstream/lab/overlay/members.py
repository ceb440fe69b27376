"""Who is in the ring: nodes that join and leave while queries run, by Chord's protocol (DHTJoin 2.1).

Idea: a node that joins finds its successor by a lookup; the circle is mended around it by rounds of stabilization
(`chord`), and from then on its keys are its own. A node that leaves tells both neighbours and is out at once. Either
way the entries of the keys that change hands go to their new owner in one message, with the query table for a node that
is new. Until they are there, tuples with such keys wait at the new owner; what still comes to the old one is sent on,
one more message, and a link keeps the order of its messages.

A query is disseminated over the fingers as the ring knows them: nodes that it has noticed to be gone are passed over,
those that have failed unnoticed are not (`peer_failures`).

Invariant: at any time one node joins the entries of a key, so that without failures every result comes, and once.
Changes of the ring wait for each other: one hands over at a time. Cost: what is handed over, and a round of
stabilization of all nodes until nothing changes.
Limitation: a source or a user is a node that neither joins late nor leaves; a node that has left answers until the last
messages to it have come. Not together with partners or alerts, whose state is not handed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from braidstream.errors import InputError
from braidstream.lab.overlay.chord import ChordNetwork, within
from braidstream.lab.overlay.dissemination import Tree, disseminate, dissemination_named
from braidstream.lab.overlay.operators import Target
from braidstream.lab.overlay.peer import Address, Entry
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.shared import SECOND_US, Change, Failure

if TYPE_CHECKING:
    from braidstream.lab.overlay.dht_method import DHTJoin

__all__ = ["Members"]


@dataclass
class _Handover:
    """Keys in (after, until] that go from one node to another, and what waits for them there."""

    giver: int
    taker: int
    after: int
    until: int
    waiting: list[tuple[int, Sequence[tuple[Target, Entry]]]] = field(default_factory=list)


class Members:
    """The ring of a run, as it changes."""

    def __init__(self, run: DHTJoin) -> None:
        self._run, settings = run, run.settings
        self.counters: Counter[str] = Counter()
        self.chord: ChordNetwork | None = None
        self._entering: list[int] = []
        self._handover: _Handover | None = None
        self._is_stabilizing = False
        self.has_changes = bool(settings.joins or settings.leaves)
        if self.has_changes or settings.failures:
            self._check()
            run.network = replace(run.network)  # nodes leave and enter this run's ring, not the caller's
        if self.has_changes or (settings.failures and settings.stabilize_s is not None):
            ids, late = run.network.ring.ids.tolist(), {one.node for one in settings.joins}
            there = [place for node, place in enumerate(ids) if node not in late]
            self.chord = ChordNetwork.settled(there, run.network.ring.bits)
        for join in settings.joins:
            run.network.leave(join.node)
            run.clock.at(round(join.at_s * SECOND_US), self._join, join.node)
        for leave in settings.leaves:
            run.clock.at(round(leave.at_s * SECOND_US), self._leave, leave.node)

    def tree(self, root: int) -> Tree:
        """How a query spreads from a node: over fingers that name nodes of the ring, of which some may have failed."""
        n_nodes, down = len(self._run.network.ring), self._run.failures.down
        gone = self._run.network.gone - {root}
        nodes = np.array([node for node in range(n_nodes) if node not in gone], dtype=np.int64)
        live = np.array([node == root or node not in down for node in nodes.tolist()], dtype=np.bool_)
        ring = Ring(self._run.network.ring.ids[nodes], self._run.network.ring.bits)
        way = dissemination_named(self._run.settings.dissemination, ring)
        tree = disseminate(way, len(nodes), int(np.searchsorted(nodes, root)), live)
        parent, depth = np.full(n_nodes, -1, dtype=np.int64), np.full(n_nodes, -1, dtype=np.int64)
        parent[nodes] = np.where(tree.parent >= 0, nodes[tree.parent], -1)
        depth[nodes] = tree.depth
        return Tree(parent, depth, root)

    def keeps_waiting(self, node: int, value: int, pairs: Sequence[tuple[Target, Entry]]) -> bool:
        """Whether what has come to a node is not joined there now: it is sent on, or waits for its key's entries."""
        if not self.has_changes or node in self._run.failures.down:
            return False
        run, owner = self._run, self._run.owner(value)
        if owner != node:
            route = run.network.direct(node, owner)
            self.counters["sent_on"] += 1
            run.traffic.add("handover", run.clock.now, route.hops)
            run.clock.at(run.clock.now + route.delay_us, run.arrive, owner, value, pairs)
            return True
        awaited = self._handover
        if awaited is None or awaited.taker != node or not within(run.key(value), awaited.after, awaited.until):
            return False
        awaited.waiting.append((value, pairs))
        return True

    def stabilize_soon(self) -> None:
        """Rounds of stabilization go on until nothing changes."""
        if not self._is_stabilizing:
            self._is_stabilizing = True
            self._run.clock.at(self._next_round_us(), self._stabilize)

    def _join(self, node: int) -> None:
        assert self.chord is not None
        sent = self.chord.messages
        self.chord.join(int(self._run.network.ring.ids[node]))
        self._run.traffic.add("join", self._run.clock.now, self.chord.messages - sent)
        self._entering.append(node)
        self.stabilize_soon()

    def _leave(self, node: int) -> None:
        """In good order: what it has goes to its successor."""
        run = self._run
        if self._handover is not None or node in self._entering:  # one change after the other
            run.clock.at(self._next_round_us(), self._leave, node)
            return
        if node in run.failures.down:
            return
        assert self.chord is not None
        sent = self.chord.messages
        self.chord.leave(int(run.network.ring.ids[node]))
        run.traffic.add("leave", run.clock.now, self.chord.messages - sent)
        before = run.network.before(node)
        run.network.leave(node)
        self.counters["left"] += 1
        self._hand_over(node, run.network.owner(int(run.network.ring.ids[node])), before, node)
        self.stabilize_soon()

    def _enter(self, node: int) -> None:
        """The circle is mended around a new node: the ring goes on with it."""
        run = self._run
        giver = run.network.owner(int(run.network.ring.ids[node]))
        run.network.enter(node)
        self.counters["joined"] += 1
        self._hand_over(giver, node, run.network.before(node), node)
        delay_us = run.network.delay_us(giver, node)
        for query in run.tables.queries:  # what the giver has it tells, and what still comes to it
            times = np.full(len(run.network.ring), np.iinfo(np.int64).max)
            reached = int(run.tables.reached(query)[giver])
            times[node] = max(run.clock.now, min(reached, times[node] - delay_us)) + delay_us
            run.tables.bring(query, times)

    def _hand_over(self, giver: int, taker: int, before: int, last: int) -> None:
        """The entries of the keys after node `before` up to node `last` are on their way from now on."""
        run, ids = self._run, self._run.network.ring.ids
        moved: list[tuple[Address, int, Entry]] = []
        if giver in run.peers and giver not in run.failures.down:
            peer = run.peers[giver]
            for address, port, number, entry in list(peer.entries()):
                if run.owner(entry.value) == taker:
                    moved.append((address, port, peer.buffer(address, port).take(number)))
        self._handover = _Handover(giver, taker, int(ids[before]), int(ids[last]))
        self.counters["handed_over"] += len(moved)
        route = run.network.direct(giver, taker)
        run.traffic.add("handover", run.clock.now, route.hops)
        run.clock.at(run.clock.now + route.delay_us, self._take_over, moved)

    def _take_over(self, moved: Sequence[tuple[Address, int, Entry]]) -> None:
        run, handover = self._run, self._handover
        assert handover is not None
        self._handover = None
        for address, port, entry in moved:
            if not run.failures.takes(handover.taker):
                n_ports = len(run.plans[address[0]].operators[address[1]].ports)
                run.peer(handover.taker).put(address, n_ports, port, entry, run.clock.now)
        for value, pairs in handover.waiting:
            run.arrive(handover.taker, value, pairs)

    def _next_round_us(self) -> int:
        period = round((self._run.settings.stabilize_s or 1.0) * SECOND_US)
        return (self._run.clock.now // period + 1) * period

    def _stabilize(self) -> None:
        """A round of all nodes; the ring goes on with nodes, and without nodes, around which the circle is mended."""
        chord, run = self.chord, self._run
        assert chord is not None
        sent = chord.messages
        is_moving = chord.stabilize_once()
        run.traffic.add("stabilize", run.clock.now, chord.messages - sent)
        run.failures.notice(chord)
        ready = [node for node in self._entering if self._is_settled(node)]
        if ready and self._handover is None:
            self._entering.remove(ready[0])
            self._enter(ready[0])
        self._is_stabilizing = bool(run.failures.unnoticed or self._entering or is_moving)
        if self._is_stabilizing:
            run.clock.at(self._next_round_us(), self._stabilize)

    def _is_settled(self, node: int) -> bool:
        """Whether a new node and both its neighbours know each other."""
        assert self.chord is not None
        own = self.chord.nodes.get(int(self._run.network.ring.ids[node]))
        if own is None or own.predecessor not in self.chord.nodes or not own.successors:
            return False
        after = self.chord.nodes.get(own.successors[0])
        before = self.chord.nodes[own.predecessor]
        return after is not None and after.predecessor == own.id and before.successors[:1] == [own.id]

    def _check(self) -> None:
        settings, n_nodes = self._run.settings, len(self._run.network.ring)
        changes: list[Change | Failure] = [*settings.joins, *settings.leaves, *settings.failures]
        for one in changes:
            if not 0 <= one.node < n_nodes:
                raise InputError(f"a change of node {one.node}", f"a node from 0 to {n_nodes - 1}")
        sources = {*self._run.source_node.values(), *(one.submission.node for one in self._run.queries)}
        for change in (*settings.joins, *settings.leaves):
            if change.node in sources:
                what = f"node {change.node} joins or leaves, and is the source of a stream or hands in a query"
                raise InputError(what, "a node that only joins tuples", f"sources and users are {sorted(sources)}")
        names = [one.node for one in changes]
        if len(set(names)) < len(names):
            raise InputError("a node that changes twice", "one join, leave or failure a node", "nodes do not come back")
        if names and len(names) >= n_nodes:
            raise InputError(f"{len(names)} changes of {n_nodes} nodes", "a node that stays", "add nodes")
