"""One simulation from a description: `simulate(Scenario(...))`.

A scenario is a plain value, so that it can be sent to a Spark task, and determines the outcome completely: the ring,
the delays, the tuples, the queries and every random choice follow from its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from braidstream.errors import InputError, nearest
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.dissemination import dissemination_named
from braidstream.lab.overlay.network import Link, Network
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.rjoin_method import RJoin
from braidstream.lab.overlay.shared import Outcome, OverlayRun, Settings
from braidstream.lab.overlay.workload import Feed, Submission, Workload

__all__ = ["METHODS", "MOST_NODES", "Scenario", "completeness", "simulate"]

METHODS: dict[str, type[OverlayRun]] = {"dhtjoin": DHTJoin, "rjoin": RJoin}
MOST_NODES = 1 << 16


@dataclass(frozen=True)
class Scenario:
    """What to simulate. `is_even` spreads the nodes evenly over the ring instead of randomly."""

    nodes: int = 1024
    method: str = "dhtjoin"
    seed: int = 1
    workload: Workload = field(default_factory=Workload)
    settings: Settings = field(default_factory=Settings)
    link: Link = field(default_factory=Link)
    is_even: bool = False

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}", " or ".join(METHODS), nearest(self.method, METHODS))
        if not 1 <= self.nodes <= MOST_NODES:
            raise InputError(f"{self.nodes} nodes", f"1 to {MOST_NODES}", "'braid overlay scale' goes to 2^20 nodes")
        dissemination_named(self.settings.dissemination, self.ring(1))
        if self.method == "rjoin" and replace(self.settings, keeps_answers=False) != Settings():
            raise InputError(
                "memory, alerts, failures, joins, leaves or partners with rjoin",
                "the defaults",
                "they are part of dhtjoin",
            )

    def complete(self) -> Scenario:
        """The same tuples and queries where memory suffices and no peer fails; sources are down as they are here."""
        outages = self.settings.outages
        return replace(self, settings=Settings(dissemination=self.settings.dissemination, outages=outages))

    def ring(self, nodes: int | None = None) -> Ring:
        """The ring of the nodes."""
        count = self.nodes if nodes is None else nodes
        return Ring.even(count) if self.is_even else Ring.random(count, self.seed)

    def build(self) -> tuple[Network, Feed, list[Submission]]:
        """The network, the tuples and the queries."""
        feed = self.workload.feed(self.seed)
        network = Network(self.ring(), self.link, self.seed)
        return network, feed, self.workload.submissions(feed, self.nodes, self.seed)


def simulate(scenario: Scenario, progress: Callable[[float], None] | None = None) -> Outcome:
    """Run a scenario; `progress` is told the share done."""
    network, feed, submissions = scenario.build()
    method = METHODS[scenario.method]
    return method(network, feed, submissions, scenario.settings, scenario.seed, progress).simulate()


def completeness(outcome: Outcome, full: Outcome, from_s: int = 0) -> float:
    """The share of all queries' results that an outcome has (DHTJoin 5); `full` is that of `Scenario.complete()`.

    With `from_s`, only results found from that second on count: once the windows are full, the formulas describe it.
    """
    found, possible = (sum(one.found_by_second[from_s:]) for one in (outcome, full))
    return found / possible if possible else 1.0
