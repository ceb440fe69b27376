"""A peer that joins fails: which results are lost is known exactly, no other, and none comes twice (DHTJoin 4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.network import Network
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.shared import Failure, Outage, Outcome, PartnerRule, Settings
from braidstream.lab.overlay.simulate import Scenario, completeness, simulate
from braidstream.lab.overlay.workload import Feed, Submission, Workload
from tests.lab.overlay.answers import SECOND, expected, network
from tests.scale import examples

DETECT_S = 0.5
FROM = "SELECT * FROM S0 [RANGE 4 SECONDS], S1 [RANGE 4 SECONDS], S2 [RANGE 4 SECONDS]"
THREE = f"{FROM} WHERE S0.A0 = S1.A0 AND S1.A0 = S2.A0"
CHAIN = f"{FROM} WHERE S0.A0 = S1.A0 AND S1.A1 = S2.A1"
WORKLOAD = Workload(streams=3, attributes=2, zipf=0, domain=8, rate=9, window_s=4, duration_s=24)


def run(text: str, seed: int, failures: tuple[Failure, ...]) -> tuple[DHTJoin, Outcome, Feed, Submission, Network]:
    feed, net = WORKLOAD.feed(seed), network(6, seed)
    handed_in = Submission(0, 0, feed.parse(text))
    settings_ = Settings(keeps_answers=True, detect_s=DETECT_S, failures=failures)
    made = DHTJoin(net, feed, [handed_in], settings_, seed)
    return made, made.simulate(), feed, handed_in, net


def surviving(
    made: DHTJoin, feed: Feed, handed_in: Submission, net: Network, failure: Failure
) -> Counter[tuple[int, ...]]:
    """The oracle's results of a query of type 1, without those that the failed peer takes with it."""
    down = round(failure.at_s * SECOND)
    detected = down + round(DETECT_S * SECOND)

    def survives(rows: tuple[int, ...]) -> bool:
        key = int(net.ring.keys_of_values([feed.values[rows[0]][0] or 0])[0])
        if net.owner(key) != failure.node:
            return True
        arrivals = [feed.times_us[r] + net.route(made.source_node[feed.streams[r]], key).delay_us for r in rows]
        return max(arrivals) < down or min(feed.times_us[r] for r in rows) >= detected

    full = expected(feed, handed_in, handed_in.time_us + net.longest_us, Settings())
    return Counter({rows: count for rows, count in full.items() if survives(rows)})


@settings(deadline=None, max_examples=examples(40))
@given(st.integers(1, 500), st.integers(0, 5), st.floats(3, 20))
def test_exactly_the_results_that_the_failed_peer_had_not_finished_are_lost(seed: int, node: int, at_s: float) -> None:
    failure = Failure(node, at_s)
    made, outcome, feed, handed_in, net = run(THREE, seed, (failure,))
    assert outcome.answers is not None
    assert Counter(outcome.answers[0]) == surviving(made, feed, handed_in, net, failure)


def test_a_query_that_a_failed_node_cuts_off_comes_by_gossip_to_every_table() -> None:
    """A query is handed in before anybody knows that three of 24 nodes have failed: who is below them hears later."""
    n_cut = 0
    for seed in range(1, 13):
        feed, net = WORKLOAD.feed(seed), network(24, seed)
        handed_in = Submission(round(3.5 * SECOND), 0, feed.parse(THREE))
        found = {}
        for gossip in (True, False):
            known = Settings(keeps_answers=True, failures=tuple(Failure(n, 3.0) for n in (7, 13, 19)), gossip=gossip)
            assert known.detect_s == 1.0  # it is handed in before that
            made = DHTJoin(net, feed, [handed_in], known, seed)
            tables = [node for node in range(24) if made.knows(node, 0)]
            assert tables == []
            outcome = made.simulate()
            assert outcome.answers is not None
            knowing = {node for node in range(24) if made.knows(node, 0)}
            found[gossip] = knowing, Counter(outcome.answers[0]), outcome.messages.get("gossip", 0)
        assert found[True][0] == set(range(24)) - {7, 13, 19}
        assert found[True][2] > 0 == found[False][2]
        assert found[False][0] <= found[True][0]
        assert (
            found[False][1]
            <= found[True][1]
            <= expected(feed, handed_in, handed_in.time_us + net.longest_us, Settings())
        )
        n_cut += found[False][1] != found[True][1]
    assert n_cut > 0


@pytest.mark.parametrize("stabilize_s", [None, 0.5])
def test_a_query_goes_around_nodes_that_are_known_to_have_failed(stabilize_s: float | None) -> None:
    """Once the failures are noticed the tree reaches all that are left, with no gossip, and answers are complete."""
    for seed in range(1, 7):
        feed, net = WORKLOAD.feed(seed), network(24, seed)
        handed_in = Submission(10 * SECOND, 0, feed.parse(THREE))
        failures = tuple(Failure(n, 3.0) for n in (7, 13, 19))
        known = Settings(keeps_answers=True, failures=failures, stabilize_s=stabilize_s)
        made = DHTJoin(net, feed, [handed_in], known, seed)
        assert not set(made.source_node.values()) & {7, 13, 19} or seed != 1
        outcome = made.simulate()
        assert {node for node in range(24) if made.knows(node, 0)} - {7, 13, 19} == set(range(24)) - {7, 13, 19}
        assert "gossip" not in outcome.messages
        assert outcome.messages["disseminate"] == 24 - 3 - 1
        if not set(made.source_node.values()) & {7, 13, 19}:
            full = expected(feed, handed_in, handed_in.time_us + net.longest_us, Settings())
            assert outcome.answers is not None
            assert Counter(outcome.answers[0]) == full


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("stabilize_s", [0.5, 4.0])
def test_the_ring_notices_failures_by_chords_stabilization(seed: int, stabilize_s: float) -> None:
    """Two neighbours fail together; answers of tuples from after two rounds on are complete, and none comes twice."""
    feed, net = WORKLOAD.feed(seed), network(8, seed)
    handed_in = Submission(0, 0, feed.parse(THREE))
    known = Settings(keeps_answers=True, failures=(Failure(2, 7.0), Failure(3, 7.0)), stabilize_s=stabilize_s)
    made = DHTJoin(net, feed, [handed_in], known, seed)
    outcome = made.simulate()
    assert outcome.answers is not None
    found, full = Counter(outcome.answers[0]), expected(feed, handed_in, net.longest_us, Settings())
    assert found <= full
    recovered = (7.0 // stabilize_s + 3) * stabilize_s * SECOND
    late = Counter({rows: n for rows, n in full.items() if min(feed.times_us[r] for r in rows) >= recovered})
    assert late <= found
    assert outcome.messages["stabilize"] > 0
    keys = [int(net.ring.keys_of_values([value])[0]) for value in range(8)]
    assert not {made.network.owner(key) for key in keys} & {2, 3}


@pytest.mark.parametrize("seed", range(1, 5))
def test_answers_in_a_pipeline_are_complete_again_after_the_windows(seed: int) -> None:
    """Type 2: nothing is wrong or twice, and results of tuples sent after the detection are all there."""
    failures = (Failure(1, 7.0), Failure(4, 9.0))
    _, outcome, feed, handed_in, net = run(CHAIN, seed, failures)
    assert outcome.answers is not None
    found, full = Counter(outcome.answers[0]), expected(feed, handed_in, net.longest_us, Settings())
    assert found <= full
    assert found.total() < full.total()
    recovered = (9.0 + DETECT_S) * SECOND
    late = Counter({rows: n for rows, n in full.items() if min(feed.times_us[r] for r in rows) >= recovered})
    assert late.total() > 20
    assert late <= found
    assert outcome.counters["failed"] == 2
    assert outcome.counters["lost_stored"] > 0


def test_the_keys_of_a_failed_node_go_to_its_successor() -> None:
    net = network(8, even=True)
    keys = [int(k) for k in net.ring.keys_of_values(list(range(400)))]
    before = [net.owner(key) for key in keys]
    net.leave(3)
    net.leave(4)
    assert [net.owner(key) for key in keys] == [5 if node in (3, 4) else node for node in before]
    assert all(net.route(source, key).owner == net.owner(key) for source in (0, 5, 7) for key in keys)


def test_completeness_with_a_failure_and_the_ring_of_the_caller_is_left_alone() -> None:
    workload = Workload(duration_s=60, window_s=10, query_every_s=20, rate=20, domain=50)
    scenario = Scenario(16, workload=workload, is_even=True)
    full = simulate(scenario)
    owned = scenario.ring().value_shares(3)  # the most frequent values
    nodes = sorted(range(16), key=lambda node: -owned[node])
    shares = []
    for count in (0, 1, 4):
        failing = replace(scenario, settings=Settings(failures=tuple(Failure(node, 30) for node in nodes[:count])))
        assert failing.complete() == scenario
        shares.append(completeness(simulate(failing), full))
    assert 1.0 == shares[0] > shares[1] > shares[2] > 0.5


def test_a_peer_that_fails_while_others_are_suspended() -> None:
    """Alerts go on without it; what comes out is right, and nothing twice."""
    feed, net = WORKLOAD.feed(3), network(6, 3)
    handed_in = Submission(0, 0, feed.parse(CHAIN))
    outages = (Outage("S2", 5, 15),)
    settings_ = Settings(keeps_answers=True, alerts="exact", detect_s=0.2, outages=outages)
    failing = replace(settings_, failures=(Failure(2, 10), Failure(3, 15.1)))
    full = expected(feed, handed_in, net.longest_us, settings_)
    outcome = DHTJoin(net, feed, [handed_in], failing, 3).simulate()
    assert outcome.answers is not None
    assert 0 < outcome.results[0] < full.total()
    assert Counter(outcome.answers[0]) <= full


@pytest.mark.parametrize(
    "failures",
    [(Failure(6, 1),), (Failure(-1, 1),), (Failure(1, 1), Failure(1, 2)), tuple(Failure(i, 1) for i in range(6))],
    ids=["a node that is not there", "a negative node", "twice", "everybody"],
)
def test_failures_that_make_no_sense_are_refused(failures: tuple[Failure, ...]) -> None:
    with pytest.raises(InputError):
        run(THREE, 1, failures)


def test_failures_with_partners_and_at_no_time_are_refused() -> None:
    with pytest.raises(InputError):
        Settings(memory=Memory(per_peer=9), partners=PartnerRule(), failures=(Failure(0, 1),))
    with pytest.raises(InputError):
        Failure(0, -1)
