"""A peer that joins fails: what it stored is lost, and its keys go to its successor (DHTJoin 4, Chord's stabilization).

Idea: from the moment of the failure whatever reaches the peer is lost with it. After `detect_s`, or with `stabilize_s`
when rounds of Chord's stabilization (`chord`) have mended the circle around it, the ring has noticed: the keys of the
failed peer now belong to the next live one, fingers skip it, and the successor begins with empty windows. There are no
replicas, as in the paper. One window after the ring has noticed, answers are complete again.

What fails is the part that joins (the SQP) and hands queries on: a query that comes later is not in its table, so a
source there does not index for it. A source that fails is an `Outage`; a node's part as a user goes on.

Invariant: no result comes twice, and of a query of type 1 exactly those are missing that have a tuple which reached the
failed peer before the failure and another that did not, or one that was sent to it between the failure and its
detection.
Cost: one event each for the failure and its detection; routes are computed anew afterwards.
Limitation: a message that would only have passed through the failed peer is not lost; Chord asks another finger.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from braidstream.errors import InputError
from braidstream.lab.overlay.chord import ChordNetwork, within
from braidstream.lab.overlay.shared import SECOND_US

if TYPE_CHECKING:
    from braidstream.lab.overlay.dht_method import DHTJoin

__all__ = ["Failures"]


class Failures:
    """Which peers are down, and what was lost with them."""

    def __init__(self, run: DHTJoin) -> None:
        self._run = run
        self.down: set[int] = set()
        self.lost: Counter[str] = Counter()
        self._chord: ChordNetwork | None = None
        self._unnoticed: set[int] = set()
        self._is_stabilizing = False
        if not run.settings.failures:
            return
        self._check()
        run.network = replace(run.network)  # the nodes leave this run's ring, not the caller's
        if run.settings.stabilize_s is not None:
            ring = run.network.ring
            self._chord = ChordNetwork.settled(ring.ids.tolist(), ring.bits)
        detect_us = round(run.settings.detect_s * SECOND_US)
        for failure in run.settings.failures:
            at_us = round(failure.at_s * SECOND_US)
            run.clock.at(at_us, self._fail, failure.node)
            if run.settings.stabilize_s is None:
                run.clock.at(at_us + detect_us, run.network.leave, failure.node)

    @property
    def counters(self) -> dict[str, int]:
        """What was lost: entries that the failed peers had stored, and those that reached them too late."""
        return {"failed": len(self.down), "lost_stored": self.lost["stored"], "lost_sent": self.lost["sent"]}

    def takes(self, node: int) -> bool:
        """Whether an entry that reaches a node is lost with it."""
        if node not in self.down:
            return False
        self.lost["sent"] += 1
        return True

    def _fail(self, node: int) -> None:
        self.down.add(node)
        if self._chord is not None:
            self._chord.fail(int(self._run.network.ring.ids[node]))
            self._unnoticed.add(node)
            if not self._is_stabilizing:
                self._is_stabilizing = True
                self._run.clock.at(self._next_round_us(), self._stabilize)
        peer = self._run.peers.pop(node, None)
        if peer is not None:
            self._run.lost_peers.append(peer)
            self.lost["stored"] += peer.live_at(self._run.clock.now)

    def _next_round_us(self) -> int:
        period = round((self._run.settings.stabilize_s or 1.0) * SECOND_US)
        return (self._run.clock.now // period + 1) * period

    def _stabilize(self) -> None:
        """A round of all nodes; the ring goes on without nodes around which the circle is mended."""
        chord, ids = self._chord, self._run.network.ring.ids
        assert chord is not None
        sent = chord.messages
        is_moving = chord.stabilize_once()
        self._run.traffic.add("stabilize", self._run.clock.now, chord.messages - sent)
        for node in sorted(self._unnoticed):
            heir = chord.nodes[chord.owner(int(ids[node]))]
            before = None if heir.predecessor is None else chord.nodes.get(heir.predecessor)
            is_around = before is not None and within(int(ids[node]), before.id, heir.id)
            if before is not None and is_around and before.successors[:1] == [heir.id]:
                self._unnoticed.discard(node)
                self._run.network.leave(node)
        self._is_stabilizing = bool(self._unnoticed or is_moving)
        if self._is_stabilizing:
            self._run.clock.at(self._next_round_us(), self._stabilize)

    def _check(self) -> None:
        n_nodes, nodes = len(self._run.network.ring), [failure.node for failure in self._run.settings.failures]
        for node in nodes:
            if not 0 <= node < n_nodes:
                raise InputError(f"the failure of node {node}", f"a node from 0 to {n_nodes - 1}")
        if len(set(nodes)) < len(nodes):
            raise InputError("a node that fails twice", "one failure a node", "failed nodes do not come back")
        if nodes and len(nodes) >= n_nodes:
            raise InputError(f"{len(nodes)} failures of {n_nodes} nodes", "a node that is left", "add nodes")
