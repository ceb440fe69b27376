"""What every method's simulation shares: the settings, the sources, the queries' answers and the outcome.

A *stream reception peer* (SRP) inserts the tuples of one stream; a *user query peer* (UQP) hands in queries and
receives answers; *stream query peers* (SQP) join (DHTJoin 3). One node can be all three.

Invariant: a query answers from its *start*: the time it was handed in plus the longest time a message may take. By then
every node knows it, so the answer is exactly the join of the tuples inserted from the start on, under every method.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from braidstream.errors import InputError, nearest
from braidstream.lab.overlay.events import Clock
from braidstream.lab.overlay.network import Network, Traffic
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.victims import shedding_named
from braidstream.lab.overlay.workload import Feed, Submission

__all__ = ["ALERTS", "Change", "Failure", "Outage", "Outcome", "OverlayRun", "PartnerRule", "Settings", "Started"]

ALERTS = ("off", "paper", "exact")
SECOND_US = 1_000_000


@dataclass(frozen=True)
class Outage:
    """A time during which the source of a stream is down: it inserts nothing."""

    stream: str
    from_s: float
    to_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.from_s <= self.to_s < math.inf:
            raise InputError(f"an outage from {self.from_s} s to {self.to_s} s", "0 or more, the earlier time first")

    def covers(self, time_us: int) -> bool:
        """Whether the source is down at that time."""
        return self.from_s * SECOND_US <= time_us < self.to_s * SECOND_US


@dataclass(frozen=True)
class Failure:
    """A peer that joins fails for good: its windows are lost, and its successor takes its keys after `detect_s`."""

    node: int
    at_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < math.inf:
            raise InputError(f"a failure at {self.at_s} s", "0 s or later")


@dataclass(frozen=True)
class Change:
    """A node joins the ring, or leaves it in good order, from a time on."""

    node: int
    at_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < math.inf:
            raise InputError(f"a change of the ring at {self.at_s} s", "0 s or later")


@dataclass(frozen=True)
class PartnerRule:
    """When and how an overloaded peer looks for partners (DHTJoin 6): above `delta` of its memory, and how often."""

    delta: float = 0.9
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.delta <= 1 or self.retry_s <= 0:
            raise InputError(f"delta = {self.delta}, retry_s = {self.retry_s}", "0 < delta <= 1, and a positive time")


@dataclass(frozen=True)
class Settings:
    """How the peers behave."""

    dissemination: str = "chord"
    memory: Memory = field(default_factory=Memory)
    shedding: str = "oldest"
    alerts: str = "off"
    detect_s: float = 1.0
    stabilize_s: float | None = None
    """How often nodes stabilize (Chord); a failure is noticed by that. None: it is after `detect_s`."""
    outages: tuple[Outage, ...] = ()
    failures: tuple[Failure, ...] = ()
    joins: tuple[Change, ...] = ()
    """Nodes that are not in the ring at first."""
    leaves: tuple[Change, ...] = ()
    gossip: bool = True
    """Whether nodes gossip where a failed one has cut a query off (DHTJoin 4.1)."""
    partners: PartnerRule | None = None
    keeps_answers: bool = False

    def __post_init__(self) -> None:
        shedding_named(self.shedding)
        if self.alerts not in ALERTS:
            raise InputError(f"unknown alerts {self.alerts!r}", ", ".join(ALERTS), nearest(self.alerts, ALERTS))
        if self.partners is not None and self.memory.per_peer is None:
            raise InputError("partners without a memory per peer", "a limit that a peer can exceed", "set per_peer")
        if self.stabilize_s is not None and not 0 < self.stabilize_s < math.inf:
            raise InputError(f"stabilize_s is {self.stabilize_s}", "a positive time", "stabilize_s=0.5")
        if self.partners is not None and self.failures:
            raise InputError("failures of peers together with partners", "one of them", "a lost index is not rebuilt")
        if self.joins or self.leaves:
            self._check_changes()

    def _check_changes(self) -> None:
        if self.stabilize_s is None:
            raise InputError("joins or leaves without stabilization", "a period of it", "stabilize_s=0.5")
        if self.partners is not None or self.alerts != "off":
            fix = "neither an index of partners nor what is suspended is handed over"
            raise InputError("joins or leaves together with partners or alerts", "one of them", fix)


@dataclass(frozen=True)
class Started:
    """A query, its number, and the time from which it answers."""

    number: int
    submission: Submission
    start_us: int


@dataclass(frozen=True)
class Outcome:
    """What a simulation measured. `answers` holds, by query, the rows of each result in the order of FROM."""

    method: str
    messages: dict[str, int]
    by_second: dict[str, list[int]]
    results: tuple[int, ...]
    intermediate: int
    shed: int
    tuples: int
    indexed: int
    counters: dict[str, int]
    found_by_second: tuple[int, ...] = ()
    """How many results of all queries were found in each second."""
    answers: tuple[tuple[tuple[int, ...], ...], ...] | None = None

    @property
    def traffic(self) -> int:
        """The paper's measure (7.1): all messages to index, disseminate, rewrite and repair; not those with results."""
        return sum(count for kind, count in self.messages.items() if kind != "result")

    def as_json(self) -> dict[str, Any]:
        """A plain form, without the answers."""
        return {
            "method": self.method,
            "traffic": self.traffic,
            "messages": dict(sorted(self.messages.items())),
            "results": list(self.results),
            "intermediate": self.intermediate,
            "shed": self.shed,
            "tuples": self.tuples,
            "indexed": self.indexed,
            "counters": dict(sorted(self.counters.items())),
        }


class OverlayRun:
    """The part of a simulation that does not depend on the method: a method fills in `submit` and `insert`."""

    method = ""

    def __init__(
        self,
        network: Network,
        feed: Feed,
        submissions: Sequence[Submission],
        settings: Settings,
        seed: int,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.network, self.feed, self.settings = network, feed, settings
        self.clock, self.traffic = Clock(), Traffic()
        self.queries = [Started(i, s, s.time_us + network.longest_us) for i, s in enumerate(submissions)]
        self.counts = [0] * len(self.queries)
        self.answers: list[list[tuple[int, ...]]] = [[] for _ in self.queries]
        self._found: Counter[int] = Counter()
        self.intermediate = self.indexed = self.inserted = 0
        self._progress = progress or (lambda _share: None)
        self.source_node = self._place_sources(seed)
        self._check_outages()

    def simulate(self) -> Outcome:
        """Run from the first event to the last."""
        for query in self.queries:
            self.clock.at(query.submission.time_us, self.submit, query)
        if len(self.feed):
            self.clock.at(self.feed.times_us[0], self._pump, 0)
        self.clock.run()
        self._progress(1.0)
        return self._outcome()

    def submit(self, query: Started) -> None:
        """A query is handed in."""
        raise NotImplementedError

    def insert(self, row: int) -> None:
        """The source of the row's stream inserts it."""
        raise NotImplementedError

    def n_shed(self) -> int:
        """How many entries were shed."""
        return 0

    def counters(self) -> dict[str, int]:
        """What else the method counts."""
        return {}

    def answer(self, query: int, at: int, count: int, composites: Sequence[tuple[int, ...]]) -> None:
        """Send results, found together, to the user query peer in one message."""
        if not count:
            return
        self.counts[query] += count
        self._found[self.clock.now // SECOND_US] += count
        target = self.queries[query].submission.node
        self.traffic.add("result", self.clock.now, self.network.direct(at, target).hops)
        if self.settings.keeps_answers:
            self.answers[query] += composites

    def _pump(self, row: int) -> None:
        """Insert one tuple and wait for the next."""
        stream, time = self.feed.streams[row], self.feed.times_us[row]
        if not any(outage.stream == stream and outage.covers(time) for outage in self.settings.outages):
            self.inserted += 1
            self.insert(row)
        if row + 1 < len(self.feed):
            self.clock.at(self.feed.times_us[row + 1], self._pump, row + 1)
        if row % 256 == 0:
            self._progress(row / len(self.feed))

    def _place_sources(self, seed: int) -> dict[str, int]:
        """Each stream is inserted by one node (DHTJoin 2.1)."""
        rng, n = np.random.default_rng([seed, 3]), len(self.network.ring)
        streams = list(self.feed.columns)
        nodes = rng.permutation(n)[: len(streams)] if len(streams) <= n else rng.integers(0, n, len(streams))
        return dict(zip(streams, nodes.tolist(), strict=True))

    def _check_outages(self) -> None:
        for outage in self.settings.outages:
            if outage.stream not in self.feed.columns:
                raise InputError(
                    f"an outage of stream {outage.stream!r}", "a stream", nearest(outage.stream, self.feed.columns)
                )

    def _outcome(self) -> Outcome:
        kept = tuple(tuple(found) for found in self.answers) if self.settings.keeps_answers else None
        return Outcome(
            self.method,
            dict(self.traffic.total),
            self.traffic.by_second(),
            tuple(self.counts),
            self.intermediate,
            self.n_shed(),
            self.inserted,
            self.indexed,
            self.counters(),
            tuple(self._found[second] for second in range(max(self._found, default=-1) + 1)),
            kept,
        )
