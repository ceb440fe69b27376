"""Joins with limited memory as DHTJoin 5 analyses them: one query, uniform values, full windows, a few even peers.

Results count once the windows have been full for half a window. Values are *even*, the same number of them at every
peer ("the tuples are uniformly distributed across the DHT network"), or *hashed*, as many as the hash puts there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from braidstream.control.completeness import Load
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.network import Link
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.shared import Outcome, Settings
from braidstream.lab.overlay.simulate import completeness
from braidstream.lab.overlay.workload import Feed, Submission, Workload
from tests.lab.overlay.answers import network

WINDOW_S, N_WINDOWS = 10, 4


@dataclass(frozen=True)
class Join:
    """A join of `ways` streams, each with `tuples` tuples in its window, and how its memory and values are laid out."""

    ways: int
    tuples: int = 4000
    seed: int = 1
    is_even: bool = True
    is_shared: bool = True
    """Whether a peer's memory is one for all its windows, or the same part for each."""

    def loads(self, memory: int) -> list[Load]:
        """The join as the formulas want it: `memory` tuples of each stream at a peer."""
        return [Load(self.tuples / WINDOW_S, WINDOW_S, memory)] * self.ways

    def measured(self, n_nodes: int, memory: int, shedding: str, from_s: int = 3 * WINDOW_S // 2) -> float:
        """The share of the results that peers with this memory find."""
        limit = Memory(per_peer=memory * self.ways) if self.is_shared else Memory(per_input=memory)
        found = _simulated(self, n_nodes, Settings(memory=limit, shedding=shedding))
        return completeness(found, _complete(self.ways, self.tuples, self.seed, self.n_values), from_s)

    @property
    def n_values(self) -> int:
        """More of them where they are hashed, so that peers do not differ much: by a root of their number."""
        return self.tuples if self.is_even else 2 * self.tuples


def _simulated(join: Join, n_nodes: int, settings: Settings) -> Outcome:
    feed, handed_in = _streams(join.ways, join.tuples, join.seed, join.n_values)
    if join.is_even:
        feed = _evened(join.ways, join.tuples, join.seed, join.n_values, n_nodes)
    net = network(n_nodes, join.seed, even=True, link=Link(1, 5))
    return DHTJoin(net, feed, handed_in, settings, join.seed).simulate()


@cache
def _evened(ways: int, tuples: int, seed: int, n_values: int, n_nodes: int) -> Feed:
    """The same streams with other names for the values."""
    feed, _ = _streams(ways, tuples, seed, n_values)
    named = _even_values(n_nodes, n_values)
    values = [[named[value - 1]] for (value,) in feed.values if value is not None]
    return Feed(feed.columns, feed.times_us, feed.streams, values)


@cache
def _streams(ways: int, tuples: int, seed: int, n_values: int) -> tuple[Feed, tuple[Submission, ...]]:
    """Which stream and value comes next is random."""
    workload = Workload(
        streams=ways,
        attributes=1,
        zipf=0,
        domain=n_values,
        rate=tuples / WINDOW_S * ways,
        window_s=WINDOW_S,
        duration_s=WINDOW_S * N_WINDOWS,
        joins=ways - 1,
    )
    feed = workload.feed(seed)
    return feed, tuple(workload.submissions(feed, 1, seed)[:1])


@cache
def _complete(ways: int, tuples: int, seed: int, n_values: int) -> Outcome:
    """Memory suffices. How values are named changes no result."""
    feed, handed_in = _streams(ways, tuples, seed, n_values)
    return DHTJoin(network(4, seed, even=True, link=Link(1, 5)), feed, handed_in, Settings(), seed).simulate()


@cache
def _even_values(n_nodes: int, n_values: int) -> list[int]:
    """Values of which every peer owns as many as any other, or one more."""
    ring, some = Ring.even(n_nodes), np.arange(1, 2 * n_values + 100 * n_nodes)
    owners, each = ring.owner(ring.keys_of_values(some)), math.ceil(n_values / n_nodes)
    by_peer = np.stack([some[owners == peer][:each] for peer in range(n_nodes)], axis=1)
    return [int(value) for value in by_peer.ravel()[:n_values]]
