"""Limited memory: measured completeness follows the formulas, and equation 12's n reaches the wanted one."""

from __future__ import annotations

from functools import cache

import pytest

from braidstream.control.completeness import (
    Load,
    completeness,
    completeness_probing,
    completeness_refusing,
    nodes_for,
)
from braidstream.overlay.dhtjoin import DHTJoin
from braidstream.overlay.network import Link
from braidstream.overlay.peer import Memory
from braidstream.overlay.run import Settings
from braidstream.overlay.workload import Feed, Submission, Workload
from tests.overlay.answers import network

RATE, WINDOW_S, SEED = 200.0, 10.0, 1


@cache
def streams(ways: int) -> tuple[Feed, tuple[Submission, ...]]:
    """One query over streams with uniform values, as the analysis supposes (DHTJoin 5)."""
    workload = Workload(
        streams=ways,
        attributes=1,
        zipf=0,
        domain=4000,
        rate=RATE * ways,
        window_s=WINDOW_S,
        duration_s=60,
        joins=ways - 1,
    )
    feed = workload.feed(SEED)
    return feed, tuple(workload.submissions(feed, 1, SEED)[:1])


@cache
def results(ways: int, n_nodes: int, memory: int | None, shedding: str) -> int:
    feed, handed_in = streams(ways)
    net = network(n_nodes, SEED, even=True, link=Link(1, 5))
    settings = Settings(memory=Memory(per_input=memory), shedding=shedding)
    return DHTJoin(net, feed, handed_in, settings, SEED).simulate().results[0]


def measured(ways: int, n_nodes: int, memory: int, shedding: str) -> float:
    return results(ways, n_nodes, memory, shedding) / results(ways, 4, None, shedding="oldest")


@pytest.mark.parametrize(("n_nodes", "share"), [(4, 0.4), (4, 0.6), (4, 0.8), (2, 0.9)])
@pytest.mark.parametrize("ways", [2, 3, 4])
def test_refusing_what_does_not_fit_follows_equation_11(ways: int, n_nodes: int, share: float) -> None:
    memory = round(share * RATE * WINDOW_S / n_nodes)
    loads = [Load(RATE, WINDOW_S, memory)] * ways
    assert completeness(loads, n_nodes) == pytest.approx(share**ways)
    found = measured(ways, n_nodes, memory, "refuse")
    assert found == pytest.approx(completeness(loads, n_nodes), abs=0.05)
    assert found == pytest.approx(completeness_refusing(loads, n_nodes), abs=0.03)


def test_equation_11_promises_too_much_when_memory_almost_suffices() -> None:
    """4-way, nine tenths of the window, 4 nodes: more than 5 points below equation 11, where Erlang's formula says."""
    memory = round(0.9 * RATE * WINDOW_S / 4)
    loads = [Load(RATE, WINDOW_S, memory)] * 4
    found = measured(4, 4, memory, "refuse")
    assert found < completeness(loads, 4) - 0.05
    assert found == pytest.approx(completeness_refusing(loads, 4), abs=0.03)


def test_a_peer_that_refuses_needs_more_nodes_than_equation_12_names() -> None:
    n_nodes = nodes_for([Load(RATE, WINDOW_S, 150)] * 4, 0.85)
    assert measured(4, n_nodes, 150, "refuse") < 0.85 - 0.05
    assert measured(4, n_nodes, 150, "oldest") >= 0.85


@pytest.mark.parametrize("shedding", ["oldest", "random"])
@pytest.mark.parametrize("ways", [2, 3, 4])
def test_giving_up_stored_tuples_loses_less_as_derived(ways: int, shedding: str) -> None:
    memory = round(0.6 * RATE * WINDOW_S / 4)
    loads = [Load(RATE, WINDOW_S, memory)] * ways
    assert measured(ways, 4, memory, shedding) == pytest.approx(completeness_probing(loads, 4), abs=0.05)


@pytest.mark.parametrize("wanted", [0.5, 0.8])
@pytest.mark.parametrize("ways", [2, 3, 4])
def test_the_wanted_completeness_is_reached_with_the_n_of_equation_12(ways: int, wanted: float) -> None:
    memory = 300
    n_nodes = nodes_for([Load(RATE, WINDOW_S, memory)] * ways, wanted)
    assert measured(ways, n_nodes, memory, "oldest") >= wanted
    n_refusing = nodes_for([Load(RATE, WINDOW_S, memory)] * ways, wanted, completeness_refusing)
    assert n_refusing >= n_nodes
    assert measured(ways, n_refusing, memory, "refuse") >= wanted - 0.01


def test_memory_that_suffices_loses_nothing() -> None:
    assert measured(3, 4, 2 * round(RATE * WINDOW_S / 4), "refuse") == 1.0
