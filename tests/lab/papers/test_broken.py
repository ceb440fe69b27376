"""A check can fail: with its mechanism broken, an experiment says that the claim does not hold.

Each mechanism is broken where it is implemented, and the experiment is the one that users run. That it holds with the
mechanism intact is tested beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braidstream.control.policies import spilling
from braidstream.control.policies.declustering import Declustering
from braidstream.lab.overlay import gossip
from braidstream.lab.overlay.partners import Partners
from braidstream.lab.papers import shc_loads
from braidstream.lab.papers.registry import Run, find
from braidstream.lab.sim.demand import Demand


def nobody_gossips(monkeypatch: pytest.MonkeyPatch) -> None:
    """DHTJoin 4.1: a node that has a query tells nobody."""

    def silent(_view: Any, has_query: Any, live: Any, _rng: Any) -> tuple[Any, int, int]:
        return has_query & live, 0, 0

    monkeypatch.setattr(gossip, "gossip", silent)


def no_slot_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """WSJ V-A: the degree of declustering never changes."""
    monkeypatch.setattr(Declustering, "suggest", lambda *_: [])


def no_partner_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """DHTJoin 6: an overloaded peer keeps what it has."""
    monkeypatch.setattr(Partners, "after_arrival", lambda *_: None)


def groups_are_never_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """WSJ IV-D: theta is forgotten, so that a new tuple is compared with its whole group."""
    monkeypatch.setattr(Demand, "theta_rows", property(lambda _: None, lambda *_: None), raising=False)


def no_key_is_ever_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHC 3.2: candidates for a grid are never found, so that every key stays with one slot."""
    monkeypatch.setattr(shc_loads, "candidates", lambda *_: [])


def productivity_is_turned_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-CAPE 4.3: what gives the most results is pushed first."""
    monkeypatch.setattr(spilling, "_rank", lambda one, *_: (one.bytes / max(one.outputs, 1.0), one.group))


@pytest.mark.parametrize(
    ("breaks", "paper", "figure"),
    [
        (nobody_gossips, "dhtjoin", "fig9"),
        (no_partner_is_asked, "dhtjoin", "sec6"),
        (no_slot_is_given_up, "wsj", "fig11"),
        (groups_are_never_tuned, "wsj", "fig8"),
        (no_key_is_ever_heavy, "shc", "fig4"),
        pytest.param(productivity_is_turned_around, "dcape", "fig11", marks=pytest.mark.slow),
    ],
)
def test_a_broken_mechanism_fails_its_check(
    breaks: Any, paper: str, figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    outcome = find(paper, figure).function(Run(quick=True))
    assert not outcome.holds, outcome.notes
    assert all(np.isfinite(y) for series in outcome.series for y in series.y)  # it ran, and was judged
