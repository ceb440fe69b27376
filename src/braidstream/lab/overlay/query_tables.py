"""Query tables: which queries each node has, and what it indexes tuples on by them (DHTJoin 3.1, 3.2).

Idea: a query reaches a node at a time, by the tree, by gossip, or with what another node hands over, and is in its
table from then on. A node that is the source of a stream looks into its own table only: what it does not have yet it
does not index for.

Invariant: what a node is told here depends on nothing that has not reached it. Cost: one array of times a query; the
needs of a node are made anew only when another query has reached it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from braidstream.lab.overlay.operators import OperatorTree, Target

__all__ = ["NEVER", "Needs", "QueryTables"]

NEVER = int(np.iinfo(np.int64).max)
Times = npt.NDArray[np.int64]
Needs = dict[str, dict[str, list[Target]]]
"""By stream and attribute, the ports of operators that tuples are indexed for."""


class QueryTables:
    """The query tables of all nodes."""

    def __init__(self, plans: Sequence[OperatorTree]) -> None:
        self._plans = plans
        self._reached: dict[int, Times] = {}
        self._needs: dict[int, tuple[int, Needs]] = {}

    @property
    def queries(self) -> list[int]:
        """Those that were handed in so far."""
        return list(self._reached)

    def reached(self, query: int) -> Times:
        """By node, when the query reaches it; `NEVER` where it does not."""
        return self._reached[query]

    def bring(self, query: int, times: Times) -> None:
        """A query is on its way to nodes, and reaches each at a time; it stays where it is already."""
        known = self._reached.get(query)
        self._reached[query] = times if known is None else np.minimum(known, times)
        self._needs.clear()

    def knows(self, node: int, query: int, now: int) -> bool:
        """Whether a query is in a node's table."""
        return query in self._reached and int(self._reached[query][node]) <= now

    def needs(self, node: int, now: int) -> Needs:
        """What a node indexes tuples on, by the queries in its table."""
        until, needs = self._needs.get(node, (0, {}))
        if now < until:
            return needs
        times = {query: int(some[node]) for query, some in self._reached.items()}
        needs = self._of([query for query, time in times.items() if time <= now])
        self._needs[node] = min((time for time in times.values() if time > now), default=NEVER), needs
        return needs

    def _of(self, queries: Sequence[int]) -> Needs:
        needs: Needs = {}
        for query in queries:
            for stream, attribute, operator, port in self._plans[query].leaves():
                needs.setdefault(stream, {}).setdefault(attribute, []).append(Target(query, operator, port))
        return needs
