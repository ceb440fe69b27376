"""Gossip as the complement of the dissemination tree (DHTJoin 4.1).

Idea: when a node of the tree is down its whole subtree stays without the query. Every node that has the query therefore
forwards it, round by round, to a random node of its view (the neighbours it keeps anyway: fingers, successors and
predecessor) that it has not seen in the message's partial list. The list travels with the message: whom the query was
sent to, and by whom.

Invariant: a node falls silent only when every node of its view is in its list, that is, has been sent the query by
somebody. So the query reaches every live node that the live part of the views connects to a reached one.
Cost: at most one message a round and node, at most one for each pair of a node and a node of its view.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.lab.overlay.dissemination import Dissemination, disseminate
from braidstream.lab.overlay.ring import Ring

__all__ = ["Coverage", "gossip", "gossip_rounds", "spread", "views"]


@dataclass(frozen=True)
class Coverage:
    """How far a query came: the share of live nodes that have it, the messages sent and the rounds of gossip."""

    share: float
    tree_messages: int
    gossip_messages: int
    rounds: int


def views(ring: Ring, n_successors: int | None = None) -> list[list[int]]:
    """Each node's neighbours: its fingers, its next successors (2 log2 n unless told) and its predecessor.

    With k successors and half of the nodes down, a node is in no live node's successor list with probability 2^-k: for
    k = log2 n one such node is to be expected, and only fingers save it; for twice as many, one in n networks.
    """
    count = 2 * max(len(ring) - 1, 1).bit_length() if n_successors is None else n_successors
    return [
        [v for v in dict.fromkeys([*ring.fingers(i), *ring.successors(i, count), (i - 1) % len(ring)]) if v != i]
        for i in range(len(ring))
    ]


def gossip(
    view: list[list[int]],
    has_query: npt.NDArray[np.bool_],
    live: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.bool_], int, int]:
    """Run rounds until everybody is silent. Returns who has the query then, the messages sent and the rounds."""
    at, messages, rounds = gossip_rounds(view, has_query, live, rng)
    return at >= 0, messages, rounds


def gossip_rounds(
    view: list[list[int]],
    has_query: npt.NDArray[np.bool_],
    live: npt.NDArray[np.bool_],
    rng: np.random.Generator,
    begins: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int64], int, int]:
    """The same, but for each node the round in which it got the query: 0 if it had it, -1 if it never does.

    `begins` are those of them that begin to gossip, all unless told; others go on once a message has reached them.
    """
    first = has_query & live if begins is None else has_query & live & begins
    knows = {int(node): {int(node)} for node in np.flatnonzero(first)}
    at: npt.NDArray[np.int64] = np.where(has_query & live, 0, -1)
    messages, rounds = 0, 0
    talking = sorted(knows)
    while talking:
        rounds += 1
        still: list[int] = []
        for node in talking:
            fresh = [other for other in view[node] if other not in knows[node]]
            if not fresh:
                continue
            chosen = fresh[int(rng.integers(len(fresh)))]
            knows[node].add(chosen)
            messages += 1
            still.append(node)
            if live[chosen]:
                if chosen not in knows:
                    knows[chosen] = {chosen}
                    at[chosen] = rounds if at[chosen] < 0 else at[chosen]
                    still.append(chosen)
                knows[chosen].add(node)
                knows[chosen].update(other for other in view[node] if other in knows[node])
        talking = still
    return at, messages, rounds


def spread(
    way: Dissemination,
    view: list[list[int]],
    root: int,
    live: npt.NDArray[np.bool_],
    rng: np.random.Generator | None,
) -> Coverage:
    """Disseminate a query from a live root while some nodes are down; with gossip if `rng` is given."""
    tree = disseminate(way, len(view), root, live)
    if rng is None:
        return Coverage(float(tree.reached.sum() / live.sum()), tree.messages, 0, 0)
    reached, messages, rounds = gossip(view, tree.reached, live, rng)
    return Coverage(float(reached.sum() / live.sum()), tree.messages, messages, rounds)
