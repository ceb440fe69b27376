"""DHTJoin's mechanisms, broken one by one (`lab.papers.mutations`)."""

from __future__ import annotations

from typing import Any

from braidstream.lab.overlay import gossip
from braidstream.lab.overlay.partners import Partners
from braidstream.lab.papers.mutations import Broken, mutation

__all__: list[str] = []


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
