"""DHTJoin's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from braidstream.control import shedding
from braidstream.control.suspension import Suspension
from braidstream.epoch import fold
from braidstream.epoch.shedder import Shedder
from braidstream.lab.overlay import gossip, ring
from braidstream.lab.overlay.alerts import Alerts
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.partners import Partners
from braidstream.lab.overlay.victims import Sampler
from braidstream.lab.papers import dhtjoin
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


@mutation("dhtjoin fig7a", "dhtjoin fig7b", "dhtjoin fig7c")
def every_attribute_is_indexed(broken: Broken) -> None:
    """3.2: a source indexes its tuples on all their attributes, whether a query joins them or not."""
    whole = DHTJoin.insert

    def everywhere(self: DHTJoin, row: int) -> None:
        whole(self, row)
        stream = self.feed.streams[row]
        for attribute, value in zip(self.feed.columns[stream], self.feed.values[row], strict=True):
            needs = self.tables.needs(self.source_node[stream], self.clock.now)
            if attribute not in needs.get(stream, {}) and value is not None:
                self.index(self.source_node[stream], row, value, ())

    broken.set(DHTJoin, "insert", everywhere)


@mutation("dhtjoin fig8", "dhtjoin fig8b")
def nobody_is_alerted(broken: Broken) -> None:
    """4.2: the failure of a source is noticed by none of its consumers."""
    broken.set(Alerts, "_watch", lambda *_: None)
    broken.set(dhtjoin, "_inactive", dhtjoin._inactive.__wrapped__)  # what was run with alerts is remembered


@mutation("dhtjoin sec5")
def a_sample_takes_all_that_comes(broken: Broken) -> None:
    """5: peers that sample turn no tuple away, and shed their oldest instead."""
    broken.set(Sampler, "takes", lambda *_: True)


@mutation("dhtjoin scale")
def every_second_finger_is_missing(broken: Broken) -> None:
    """2.1: a node knows the successors of every second power of two only."""
    whole = ring._leading_power

    def coarser(gaps: Any) -> Any:
        power = whole(gaps)
        return power >> (np.log2(power.astype(float)).astype(int) % 2)

    broken.set(ring, "_leading_power", coarser)


@mutation("dhtjoin fig8-spark")
def no_join_is_suspended(broken: Broken) -> None:
    """4.2: the engine goes on producing for a stream that is silent."""
    nothing = Suspension({}, {})
    broken.set(fold, "suspend", lambda *_: nothing)


@mutation("dhtjoin sec5-spark")
def nothing_is_shed(broken: Broken) -> None:
    """2.2: the engine keeps what does not fit."""
    broken.set(Shedder, "sheds", lambda *_: [])


@mutation("dhtjoin sec5-spark")
def what_is_not_sampled_is_joined(broken: Broken) -> None:
    """5: the engine stores a sample of what arrives, and joins all of it."""
    whole = shedding._taking
    broken.set(shedding, "_taking", lambda piece, epoch, share, _taken: whole(piece, epoch, share, 1.0))


@mutation("dhtjoin fig9")
def nobody_gossips(broken: Broken) -> None:
    """4.1: a node that has a query tells nobody."""

    def silent(_view: Any, has_query: Any, live: Any, _rng: Any) -> tuple[Any, int, int]:
        return has_query & live, 0, 0

    broken.set(gossip, "gossip", silent)


@mutation("dhtjoin sec6")
def no_partner_is_asked(broken: Broken) -> None:
    """6: an overloaded peer keeps what it has."""
    broken.set(Partners, "after_arrival", lambda *_: None)
