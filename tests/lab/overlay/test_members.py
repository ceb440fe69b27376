"""Nodes join the ring and leave it while queries run: every result comes, and once (DHTJoin 2.1)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.members import Members
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.shared import Change, Failure, Outcome, PartnerRule, Settings
from braidstream.lab.overlay.workload import Submission, Workload
from tests.lab.overlay.answers import SECOND, expected, network
from tests.scale import examples

FROM = "SELECT * FROM S0 [RANGE 4 SECONDS], S1 [RANGE 4 SECONDS], S2 [RANGE 4 SECONDS]"
THREE = f"{FROM} WHERE S0.A0 = S1.A0 AND S1.A0 = S2.A0"
CHAIN = f"{FROM} WHERE S0.A0 = S1.A0 AND S1.A1 = S2.A1"
WORKLOAD = Workload(streams=3, attributes=2, zipf=0, domain=8, rate=12, window_s=4, duration_s=24)
N_NODES = 10


def changing(
    seed: int,
    joins_s: list[float],
    leaves_s: list[float],
    text: str = THREE,
    later_s: float | None = None,
    **others: object,
) -> tuple[DHTJoin, Outcome, list[Counter[tuple[int, ...]]]]:
    """A run in which nodes that are neither sources nor users join and leave; and the oracle's answers."""
    feed, net = WORKLOAD.feed(seed), network(N_NODES, seed)
    handed_in = [Submission(0, 0, feed.parse(text))]
    if later_s is not None:
        handed_in.append(Submission(round(later_s * SECOND), 0, feed.parse(CHAIN)))
    plain = DHTJoin(net, feed, handed_in, Settings(), seed)
    free = [node for node in range(1, N_NODES) if node not in plain.source_node.values()]
    joins = tuple(Change(node, at_s) for node, at_s in zip(free, joins_s, strict=False))
    leaves = tuple(Change(node, at_s) for node, at_s in zip(free[len(joins) :], leaves_s, strict=False))
    how = Settings(keeps_answers=True, joins=joins, leaves=leaves, stabilize_s=0.5, **others)  # type: ignore[arg-type]
    made = DHTJoin(net, feed, handed_in, how, seed)
    return made, made.simulate(), [expected(feed, one, one.time_us + net.longest_us, how) for one in handed_in]


def answers(outcome: Outcome) -> list[Counter[tuple[int, ...]]]:
    assert outcome.answers is not None
    return [Counter(some) for some in outcome.answers]


@settings(deadline=None, max_examples=examples(40))
@given(
    st.integers(1, 500),
    st.lists(st.floats(1, 20), max_size=3),
    st.lists(st.floats(1, 20), max_size=3),
    st.sampled_from([THREE, CHAIN]),
)
def test_every_result_comes_once_whoever_joins_and_leaves(
    seed: int, joins_s: list[float], leaves_s: list[float], text: str
) -> None:
    made, outcome, wanted = changing(seed, joins_s, leaves_s, text, later_s=9.0)
    assert answers(outcome) == wanted
    assert outcome.counters.get("joined", 0) == len(joins_s)
    assert outcome.counters.get("left", 0) == len(leaves_s)
    members = {node for node in range(N_NODES) if node not in made.network.gone}
    assert len(members) == N_NODES - len(leaves_s)
    assert all(made.knows(node, query) for node in members for query in (0, 1))


@pytest.mark.parametrize("text", [THREE, CHAIN], ids=["one attribute", "a pipeline"])
def test_entries_change_hands_and_without_that_results_are_lost(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    moves = ([6.0, 9.0], [12.0, 15.0])
    whole = [changing(seed, *moves, text) for seed in range(1, 7)]
    assert all(answers(outcome) == wanted for _, outcome, wanted in whole)
    assert sum(outcome.counters["handed_over"] for _, outcome, _ in whole) > 20
    assert sum(outcome.messages["stabilize"] for _, outcome, _ in whole) > 0
    monkeypatch.setattr(Members, "_hand_over", lambda *_: None)
    assert any(answers(outcome) != wanted for _, outcome, wanted in (changing(s, *moves, text) for s in range(1, 7)))


def test_what_comes_to_the_old_owner_is_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = ([5.0, 7.0, 9.0], [11.0, 13.0, 15.0])
    whole = [changing(seed, *moves) for seed in range(1, 21)]
    assert sum(outcome.counters.get("sent_on", 0) for _, outcome, _ in whole) > 0
    assert all(answers(outcome) == wanted for _, outcome, wanted in whole)
    monkeypatch.setattr(Members, "keeps_waiting", lambda *_: False)
    assert any(answers(outcome) != wanted for _, outcome, wanted in (changing(s, *moves) for s in range(1, 21)))


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_failure_beside_joins_and_leaves_loses_only_what_the_failed_node_had(seed: int) -> None:
    feed, net = WORKLOAD.feed(seed), network(N_NODES, seed)
    plain = DHTJoin(net, feed, [Submission(0, 0, feed.parse(THREE))], Settings(), seed)
    free = [node for node in range(1, N_NODES) if node not in plain.source_node.values()]
    _, outcome, (wanted,) = changing(seed, [6.0], [10.0], failures=(Failure(free[-1], 8.0),))
    (found,) = answers(outcome)
    assert found <= wanted
    recovered = Counter({rows: n for rows, n in wanted.items() if min(feed.times_us[r] for r in rows) >= 12 * SECOND})
    assert recovered <= found
    assert recovered


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"stabilize_s": None}, "without stabilization"),
        ({"stabilize_s": 1.0, "alerts": "exact"}, "partners or alerts"),
        ({"stabilize_s": 1.0, "partners": PartnerRule(), "memory": Memory(per_peer=9)}, "partners or alerts"),
    ],
    ids=["no stabilization", "alerts", "partners"],
)
def test_changes_that_nothing_hands_over_are_refused(how: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Settings(joins=(Change(1, 1.0),), **how)  # type: ignore[arg-type]


def test_a_source_that_leaves_and_a_node_that_is_not_there_are_refused() -> None:
    feed, net = WORKLOAD.feed(1), network(N_NODES, 1)
    handed_in = [Submission(0, 0, feed.parse(THREE))]
    source = DHTJoin(net, feed, handed_in, Settings(), 1).source_node["S0"]
    for node, told in ((source, "the source of a stream"), (N_NODES, "a change of node")):
        with pytest.raises(InputError, match=told):
            DHTJoin(net, feed, handed_in, Settings(leaves=(Change(node, 1.0),), stabilize_s=1.0), 1)
    with pytest.raises(InputError, match="0 s or later"):
        Change(1, -1.0)
