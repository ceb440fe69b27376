"""The simulated wide-area network: who a key belongs to, how a message gets there, how long it takes, what was sent.

Idea: nodes have places in a square; a link's delay is a base plus the distance. A message for a key walks the fingers
of the settled ring, and a walk is the same every time, so it is computed once for each (sender, key) and then delivered
as one event with the sum of its delays, counted as as many messages as it has hops.

A node that has left (`leave`) is skipped by keys and fingers alike: the ring as it has settled again without it; and
one that has entered again (`enter`) as it has settled with it.

Invariant: a walk takes at most `longest_us`. Everything that decides what may be forgotten relies on that bound, so a
walk that broke it would stop the simulation.
Cost: a few microseconds for a new (sender, key), a dict access afterwards.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from braidstream.errors import RunError
from braidstream.lab.overlay.ring import Ring

__all__ = ["Link", "Network", "Route", "Traffic"]

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Link:
    """Delays of a link: at least `base_ms`, and `across_ms` more from one side of the square to the other."""

    base_ms: float = 5.0
    across_ms: float = 60.0


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a message: the node where it ends, its hops and its delay."""

    owner: int
    hops: int
    delay_us: int


class Traffic:
    """Messages by kind, in total and by the second in which they were sent."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._by_second: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, kind: str, time_us: int, messages: int = 1) -> None:
        """Count `messages` sent at one time."""
        self.total[kind] += messages
        self._by_second[kind][time_us // SECOND_US] += messages

    def add_many(self, kind: str, times_us: npt.NDArray[np.int64]) -> None:
        """Count one message at each of the times."""
        seconds, counts = np.unique(times_us // SECOND_US, return_counts=True)
        for second, count in zip(seconds.tolist(), counts.tolist(), strict=True):
            self.add(kind, second * SECOND_US, count)

    def by_second(self) -> dict[str, list[int]]:
        """For each kind, the messages of every second from 0 to the last one."""
        last = max((max(seconds) for seconds in self._by_second.values()), default=-1)
        return {kind: [seconds[s] for s in range(last + 1)] for kind, seconds in sorted(self._by_second.items())}


@dataclass
class Network:
    """A settled ring of nodes with places."""

    ring: Ring
    link: Link = field(default_factory=Link)
    seed: int = 0

    def __post_init__(self) -> None:
        places = np.random.default_rng([self.seed, 17]).random((len(self.ring), 2))
        self._places = places
        self._x: list[float] = places[:, 0].tolist()
        self._y: list[float] = places[:, 1].tolist()
        self._ids: list[int] = self.ring.ids.tolist()
        self._routes: dict[tuple[int, int], Route] = {}
        self._left: set[int] = set()
        self.longest_link_us = round((self.link.base_ms + self.link.across_ms * 2**0.5) * 1000)
        self.longest_us = self.longest_link_us * (2 * max(len(self.ring) - 1, 1).bit_length() + 2)

    def delay_us(self, a: int, b: int) -> int:
        """The delay of the direct link between two nodes."""
        apart = math.hypot(self._x[a] - self._x[b], self._y[a] - self._y[b])
        return round((self.link.base_ms + self.link.across_ms * apart) * 1000)

    def delays_us(self, a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The delays of many links."""
        apart = np.hypot(*(self._places[a] - self._places[b]).T)
        delays: npt.NDArray[np.int64] = np.rint((self.link.base_ms + self.link.across_ms * apart) * 1000).astype(
            np.int64
        )
        return delays

    def owner(self, key: int) -> int:
        """The node that a key belongs to."""
        return self._at_or_after(key)

    def leave(self, node: int) -> None:
        """Let the ring settle without a node."""
        self._left.add(node)
        self._routes.clear()

    def enter(self, node: int) -> None:
        """Let the ring settle with a node that was not in it."""
        self._left.remove(node)
        self._routes.clear()

    @property
    def gone(self) -> frozenset[int]:
        """The nodes that are not in the ring."""
        return frozenset(self._left)

    def before(self, node: int) -> int:
        """The node of the ring that comes before a place of it."""
        at = (node - 1) % len(self._ids)
        while at in self._left and at != node:
            at = (at - 1) % len(self._ids)
        return at

    def route(self, source: int, key: int) -> Route:
        """The walk of a message for `key` from `source`."""
        known = self._routes.get((source, key))
        if known is None:
            known = self._routes[source, key] = self._walk(source, key)
        return known

    def direct(self, source: int, target: int) -> Route:
        """One message to a node whose address is known."""
        return Route(target, int(source != target), self.delay_us(source, target) if source != target else 0)

    def _at_or_after(self, place: int) -> int:
        """The first node at or after a place of the ring that has not left."""
        node = bisect_left(self._ids, place) % len(self._ids)
        while node in self._left:
            node = (node + 1) % len(self._ids)
        return node

    def _walk(self, source: int, key: int) -> Route:
        ids, size, owner = self._ids, self.ring.size, self.owner(key)
        at, hops, delay = source, 0, 0
        while at != owner:
            gap = (key - ids[at]) % size
            hop = self._at_or_after((ids[at] + (1 << (gap.bit_length() - 1))) % size)
            delay += self.delay_us(at, hop)
            at, hops = hop, hops + 1
        if delay > self.longest_us:
            raise RunError(f"a message took {delay} us", f"at most {self.longest_us} us", "take another seed")
        return Route(owner, hops, delay)
