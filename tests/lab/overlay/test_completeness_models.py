"""A few hundred tuples at a peer: completeness follows the exact models, where equations 11 and 12 are too coarse.

The number of tuples in a window varies by its root, and so do the values that a peer owns. With even times equation 11
is right here too. `test_completeness_measured.py` has thousands of tuples at a peer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from braidstream.control.completeness import (
    MODELS,
    Load,
    completeness,
    completeness_over,
    completeness_probing,
    completeness_refusing,
    hashed,
    nodes_for,
)
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.network import Link
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.shared import Settings
from braidstream.lab.overlay.workload import Feed, Submission, Workload
from tests.lab.overlay.answers import network

RATE, WINDOW_S, SEED, DOMAIN = 200.0, 10.0, 1, 4000
WAYS: Any = [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
EQUATION_12: Any = [
    ("oldest", 2, 0.85, True),
    ("refuse", 3, 0.85, False),
    *(pytest.param("oldest", ways, 0.85, True, marks=pytest.mark.slow) for ways in (3, 4)),
    pytest.param("oldest", 4, 0.9, False, marks=pytest.mark.slow),
    pytest.param("refuse", 2, 0.5, True, marks=pytest.mark.slow),
    pytest.param("refuse", 4, 0.85, False, marks=pytest.mark.slow),
]
"""Shedding, streams, the wanted completeness, and whether equation 12's number of nodes reaches it."""


@cache
def streams(ways: int, seed: int = SEED) -> tuple[Feed, tuple[Submission, ...]]:
    """One query over streams with uniform values (DHTJoin 5); which stream and value comes next is random."""
    workload = Workload(
        streams=ways,
        attributes=1,
        zipf=0,
        domain=DOMAIN,
        rate=RATE * ways,
        window_s=WINDOW_S,
        duration_s=60,
        joins=ways - 1,
    )
    feed = workload.feed(seed)
    return feed, tuple(workload.submissions(feed, 1, seed)[:1])


@cache
def even_streams(ways: int, n_nodes: int) -> tuple[Feed, tuple[Submission, ...]]:
    """The same rates as the analysis has them: streams in turn, peers in turn, only the value within a peer random."""
    feed, handed_in = streams(ways)
    ring, names, rng = Ring.even(n_nodes), list(feed.columns), np.random.default_rng(SEED)
    owners = ring.owner(ring.keys_of_values(np.arange(1, DOMAIN + 1)))
    of_peer = [1 + np.flatnonzero(owners == peer) for peer in range(n_nodes)]
    values = [[int(rng.choice(of_peer[i // ways % n_nodes]))] for i in range(len(feed))]
    return Feed(feed.columns, feed.times_us, [names[i % ways] for i in range(len(feed))], values), handed_in


@cache
def results(ways: int, n_nodes: int, memory: int | None, shedding: str, seed: int = SEED, is_even: bool = False) -> int:
    feed, handed_in = even_streams(ways, n_nodes) if is_even else streams(ways, seed)
    net = network(n_nodes, seed, even=True, link=Link(1, 5))
    settings = Settings(memory=Memory(per_input=memory), shedding=shedding)
    return DHTJoin(net, feed, handed_in, settings, seed).simulate().results[0]


def measured(ways: int, n_nodes: int, memory: int, shedding: str, seed: int = SEED) -> float:
    return results(ways, n_nodes, memory, shedding, seed) / results(ways, 4, None, "oldest", seed)


def expected(ways: int, n_nodes: int, memory: int, shedding: str) -> float:
    """What the exact model says of this ring's peers."""
    shares = Ring.even(n_nodes).value_shares(DOMAIN)
    return completeness_over(shares, [Load(RATE, WINDOW_S, memory)] * ways, MODELS[shedding])


@pytest.mark.parametrize("ways", WAYS)
def test_at_even_times_refusing_what_does_not_fit_is_equation_11(ways: int) -> None:
    """Nine tenths of the window. Four runs of the 4-way join gave 0.65 to 0.70, eight others 0.65 on average."""
    memory = round(0.9 * RATE * WINDOW_S / 4)
    full = results(ways, 4, None, "oldest", is_even=True)
    found = results(ways, 4, memory, "refuse", is_even=True) / full
    assert found == pytest.approx(0.9**ways, abs=0.05)


@pytest.mark.parametrize("share", [0.9, *(pytest.param(share, marks=pytest.mark.slow) for share in (0.6, 1.0))])
@pytest.mark.parametrize(
    "shedding", ["sample", "planned", "refuse", "oldest", pytest.param("random", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("ways", WAYS)
def test_every_way_to_shed_follows_its_exact_model(
    request: pytest.FixtureRequest, ways: int, shedding: str, share: float
) -> None:
    if (ways, share) == (2, 0.6) and shedding in ("sample", "planned"):
        reason = "over eight seeds 0.39 for 0.36 and 0.41 for 0.38: perhaps the first windows, which lose nothing"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    memory = round(share * RATE * WINDOW_S / 4)
    assert measured(ways, 4, memory, shedding) == pytest.approx(expected(ways, 4, memory, shedding), abs=0.03)


def test_at_random_times_refusing_loses_more_than_equation_11_says() -> None:
    """4-way, nine tenths of the window: what was taken early stays, and memory stands partly empty afterwards."""
    memory = round(0.9 * RATE * WINDOW_S / 4)
    loads = [Load(RATE, WINDOW_S, memory)] * 4
    assert completeness(loads, 4) - completeness_refusing(loads, 4) == pytest.approx(0.04, abs=0.005)
    assert measured(4, 4, memory, "refuse") < completeness(loads, 4) - 0.03


@pytest.mark.parametrize("shedding", ["oldest", pytest.param("random", marks=pytest.mark.slow)])
@pytest.mark.parametrize("ways", WAYS)
def test_giving_up_stored_tuples_loses_less_as_derived(ways: int, shedding: str) -> None:
    memory = round(0.6 * RATE * WINDOW_S / 4)
    loads = [Load(RATE, WINDOW_S, memory)] * ways
    assert measured(ways, 4, memory, shedding) == pytest.approx(completeness_probing(loads, 4), abs=0.05)


@pytest.mark.parametrize("wanted", [0.85, *(pytest.param(wanted, marks=pytest.mark.slow) for wanted in (0.5, 0.95))])
@pytest.mark.parametrize("ways", WAYS)
def test_the_wanted_completeness_is_reached_with_the_planned_number_of_nodes(ways: int, wanted: float) -> None:
    memory = 150
    loads = [Load(RATE, WINDOW_S, memory)] * ways
    for shedding in ("refuse", "oldest"):
        n_planned = nodes_for(loads, wanted, hashed(DOMAIN, MODELS[shedding]))
        assert n_planned >= nodes_for(loads, wanted, completeness) or shedding == "oldest"
        assert measured(ways, n_planned, memory, shedding) >= wanted


@pytest.mark.parametrize(("shedding", "ways", "wanted", "is_enough"), EQUATION_12)
def test_when_equation_12_names_enough_nodes(shedding: str, ways: int, wanted: float, is_enough: bool) -> None:
    """For peers that shed stored tuples, unless almost all is wanted; for those that refuse, when little is wanted."""
    n_nodes = nodes_for([Load(RATE, WINDOW_S, 150)] * ways, wanted, completeness)
    assert (measured(ways, n_nodes, 150, shedding) >= wanted) == is_enough
