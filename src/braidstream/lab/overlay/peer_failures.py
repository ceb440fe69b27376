"""A peer that joins fails: what it stored is lost, and its keys go to its successor (DHTJoin 4, Chord's stabilization).

Idea: from the moment of the failure whatever reaches the peer is lost with it. After `detect_s`, or with `stabilize_s`
when rounds of Chord's stabilization (`chord`, `members`) have mended the circle around it, the ring has noticed: the
keys of the failed peer now belong to the next live one, fingers skip it, and the successor begins with empty windows.
There are no replicas, as in the paper. One window after the ring has noticed, answers are complete again.

Nobody knows of a failure before that. A query that is handed in meanwhile is lost with the failed node for all that are
below it in the tree; once the failure is noticed, the nodes that have the failed one among their neighbours gossip the
queries that have come to them since they last heard of it (4.1). Later queries go around it.

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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from braidstream.lab.overlay.chord import ChordNetwork, within
from braidstream.lab.overlay.gossip import gossip_rounds, views
from braidstream.lab.overlay.query_tables import NEVER
from braidstream.lab.overlay.shared import SECOND_US

if TYPE_CHECKING:
    from braidstream.lab.overlay.dht_method import DHTJoin

__all__ = ["Failures"]


class Failures:
    """Which peers are down, what was lost with them, and what their neighbours do about it."""

    def __init__(self, run: DHTJoin, seed: int) -> None:
        self._run = run
        self.down: set[int] = set()
        self.unnoticed: set[int] = set()
        self.lost: Counter[str] = Counter()
        self._failed_us: dict[int, int] = {}
        self._views: list[list[int]] = []
        self._rng = np.random.default_rng([seed, 41])
        detect_us = round(run.settings.detect_s * SECOND_US)
        for failure in run.settings.failures:
            at_us = round(failure.at_s * SECOND_US)
            run.clock.at(at_us, self._fail, failure.node)
            if run.settings.stabilize_s is None:
                run.clock.at(at_us + detect_us, self._noticed, failure.node)

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

    def notice(self, chord: ChordNetwork) -> None:
        """After a round of stabilization: the ring goes on without nodes around which the circle is mended."""
        ids = self._run.network.ring.ids
        for node in sorted(self.unnoticed):
            heir = chord.nodes[chord.owner(int(ids[node]))]
            before = None if heir.predecessor is None else chord.nodes.get(heir.predecessor)
            is_around = before is not None and within(int(ids[node]), before.id, heir.id)
            if before is not None and is_around and before.successors[:1] == [heir.id]:
                self._noticed(node)

    def _fail(self, node: int) -> None:
        self.down.add(node)
        self.unnoticed.add(node)
        self._failed_us[node] = self._run.clock.now
        chord = self._run.members.chord
        if chord is not None:
            chord.fail(int(self._run.network.ring.ids[node]))
            self._run.members.stabilize_soon()
        peer = self._run.peers.pop(node, None)
        if peer is not None:
            self._run.lost_peers.append(peer)
            self.lost["stored"] += peer.live_at(self._run.clock.now)

    def _noticed(self, node: int) -> None:
        """The ring goes on without a node; its neighbours gossip what may have been cut off with it."""
        self.unnoticed.discard(node)
        self._run.network.leave(node)
        if not self._run.settings.gossip:
            return
        self._views = self._views or views(self._run.network.ring)
        neighbours = np.array([node in view for view in self._views])
        since_us = self._failed_us[node] - self._run.network.longest_us  # handed to it, and not handed on
        for query in self._run.tables.queries:
            if self._run.queries[query].submission.time_us >= since_us:
                self._gossip(query, neighbours)

    def _gossip(self, query: int, begin: npt.NDArray[np.bool_]) -> None:
        """Neighbours that have the query begin; a round takes as long as the longest link."""
        run, now = self._run, self._run.clock.now
        reached = run.tables.reached(query)
        live = np.ones(len(reached), dtype=np.bool_)
        live[sorted(self.down | run.network.gone)] = False  # a failed one takes nothing, whoever sends to it
        rounds, messages, _ = gossip_rounds(self._views, reached <= now, live, self._rng, begin)
        run.traffic.add("gossip", now, messages)
        run.tables.bring(query, np.where(rounds > 0, now + rounds * run.network.longest_link_us, NEVER))
