"""Every simulated query's answer is the oracle's when memory suffices: DHTJoin and RJoin, types 1 and 2."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import QueryError
from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.rjoin_method import RJoin
from braidstream.lab.overlay.shared import Outage, OverlayRun, PartnerRule, Settings
from braidstream.lab.overlay.workload import Feed, Submission, Workload
from tests.lab.overlay.answers import SECOND, assert_exact, network
from tests.scale import examples

COLUMNS = dict.fromkeys("XYZV", ("a", "b"))
QUERIES = [
    "SELECT * FROM X [RANGE 5 SECONDS], Y [RANGE 5 SECONDS] WHERE X.a = Y.a",
    "SELECT * FROM X [RANGE 2 SECONDS], Y [RANGE 7 SECONDS] WHERE X.a = Y.b",
    "SELECT * FROM X [RANGE 9 SECONDS], Y [RANGE 3 SECONDS], Z [RANGE 5 SECONDS] WHERE X.a = Y.a AND Y.a = Z.a",
    "SELECT * FROM X [RANGE 9 SECONDS], Y [RANGE 3 SECONDS], Z [RANGE 5 SECONDS] WHERE X.b = Y.b AND Y.a = Z.a",
    "SELECT * FROM X [RANGE 4 SECONDS], Y [RANGE 4 SECONDS], Z [RANGE 4 SECONDS], V [RANGE 9 SECONDS] "
    "WHERE X.a = Y.a AND Y.b = Z.b AND Z.a = V.a",
    "SELECT * FROM X [RANGE 6 SECONDS], Y [RANGE 6 SECONDS], Z [RANGE 6 SECONDS] "
    "WHERE X.a = Y.a AND Y.b = Z.b AND X.b = Z.a",
    "SELECT * FROM X [RANGE 6 SECONDS] AS L, X [RANGE 6 SECONDS] AS R WHERE L.a = R.b",
    "SELECT * FROM X [RANGE 8 SECONDS], Y [RANGE 8 SECONDS] WHERE X.a = Y.a AND X.b = Y.b",
]
METHODS: list[type[OverlayRun]] = [DHTJoin, RJoin]

tuples = st.lists(
    st.tuples(
        st.integers(0, 30 * 4).map(lambda quarter: quarter * SECOND // 4),
        st.sampled_from("XYZV"),
        st.tuples(*[st.none() | st.integers(1, 3)] * 2),
    ),
    max_size=40,
)


def feed_of(rows: list[tuple[int, str, tuple[int | None, ...]]]) -> Feed:
    ordered = sorted(rows, key=lambda row: row[0])
    return Feed(COLUMNS, *([row[i] for row in ordered] for i in range(3)))  # type: ignore[arg-type]


@settings(deadline=None, max_examples=examples(120))
@given(tuples, st.lists(st.sampled_from(QUERIES), min_size=1, max_size=3), st.integers(1, 40), st.data())
def test_answers_are_the_oracles(
    rows: list[tuple[int, str, tuple[int | None, ...]]], texts: list[str], n_nodes: int, data: st.DataObject
) -> None:
    feed, net = feed_of(rows), network(n_nodes)
    handed_in = [
        Submission(data.draw(st.integers(0, 8)) * SECOND, i % n_nodes, feed.parse(text)) for i, text in enumerate(texts)
    ]
    handed_in.sort(key=lambda submission: submission.time_us)
    settings_ = Settings(keeps_answers=True)
    for method in METHODS:
        assert_exact(method(net, feed, handed_in, settings_, 1).simulate(), feed, handed_in, net, settings_)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [{"type": 1, "joins": 1}, {"type": 1, "joins": 2}, {"type": 2, "joins": 3}])
def test_answers_to_the_papers_workload_are_the_oracles(method: type[OverlayRun], shape: dict[str, int]) -> None:
    workload = Workload(rate=6, duration_s=60, window_s=20, query_every_s=20, domain=30, **shape)
    feed, net, settings_ = workload.feed(3), network(64), Settings(keeps_answers=True)
    handed_in = workload.submissions(feed, 64, 3)
    outcome = method(net, feed, handed_in, settings_, 3).simulate()
    assert sum(outcome.results) > 20
    assert_exact(outcome, feed, handed_in, net, settings_)


@settings(deadline=None, max_examples=examples(60))
@given(tuples, st.sampled_from(QUERIES), st.sampled_from("XYZV"), st.integers(3, 20), st.integers(1, 25))
def test_exact_alerts_lose_nothing(
    rows: list[tuple[int, str, tuple[int | None, ...]]], text: str, stream: str, down_s: int, for_s: int
) -> None:
    feed, net = feed_of(rows), network(8)
    settings_ = Settings(
        keeps_answers=True, alerts="exact", detect_s=0.2, outages=(Outage(stream, down_s, down_s + for_s),)
    )
    handed_in = [Submission(0, 0, feed.parse(text))]
    assert_exact(DHTJoin(net, feed, handed_in, settings_, 1).simulate(), feed, handed_in, net, settings_)


@pytest.mark.parametrize("seed", range(4))
def test_partners_change_where_tuples_are_but_not_the_answers(seed: int) -> None:
    workload = Workload(
        streams=4, attributes=3, rate=30, duration_s=60, window_s=15, query_every_s=12, domain=40, zipf=0.6, joins=1
    )
    feed, net = workload.feed(seed), network(64, seed)
    handed_in = workload.submissions(feed, 64, seed)
    settings_ = Settings(keeps_answers=True, memory=Memory(per_peer=200), partners=PartnerRule(delta=0.25, retry_s=0.5))
    outcome = DHTJoin(net, feed, handed_in, settings_, seed).simulate()
    assert outcome.shed == 0
    assert outcome.counters["divisions"] > 3
    assert outcome.counters["migrated"] > 20
    assert outcome.counters["most_extra"] == 1
    assert_exact(outcome, feed, handed_in, net, settings_)


@pytest.mark.parametrize("stream", ["S0", "S1", "S2", "S3"])
def test_partners_and_exact_alerts_together_change_no_answer(stream: str) -> None:
    """What was held back goes to whom is in charge by then. Without either, answers are the oracle's (above)."""
    workload = Workload(streams=4, attributes=3, rate=40, window_s=2, duration_s=32, zipf=0, domain=12, joins=3)
    feed, net = workload.feed(2), network(8, 2)
    chain = (
        "SELECT * FROM S0 [RANGE 2 SECONDS], S1 [RANGE 3 SECONDS], S2 [RANGE 2 SECONDS], S3 [RANGE 3 SECONDS] "
        "WHERE S0.A0 = S1.A0 AND S1.A1 = S2.A1 AND S2.A2 = S3.A2"
    )
    pairs = "SELECT * FROM S0 [RANGE 3 SECONDS], S1 [RANGE 3 SECONDS] WHERE S0.A0 = S1.A0"
    handed_in = [Submission(0, node, feed.parse(text)) for node, text in ((3, chain), (1, pairs))]
    plain = Settings(keeps_answers=True, outages=(Outage(stream, 4, 20),))
    both = replace(
        plain,
        memory=Memory(per_peer=5000),
        partners=PartnerRule(delta=0.004, retry_s=0.5),
        alerts="exact",
        detect_s=0.3,
    )
    wanted, outcome = (DHTJoin(net, feed, handed_in, one, 4).simulate() for one in (plain, both))
    assert outcome.shed == 0
    assert outcome.counters["divisions"] > 3
    assert outcome.counters["held"] > 100
    assert outcome.answers is not None
    assert wanted.answers is not None
    assert [Counter(found) for found in outcome.answers] == [Counter(found) for found in wanted.answers]
    assert min(outcome.results) > 100


@pytest.mark.parametrize("method", METHODS)
def test_a_simulation_is_the_same_every_time(method: type[OverlayRun]) -> None:
    workload = Workload(duration_s=30, rate=10, query_every_s=5)
    feed = workload.feed(2)
    runs = [method(network(32), feed, workload.submissions(feed, 32, 2), Settings(), 2).simulate() for _ in range(2)]
    assert runs[0] == runs[1]


def test_a_tuple_is_indexed_only_on_attributes_that_a_query_joins_on() -> None:
    rows = [(10 * SECOND + i, name, (i, i)) for i, name in enumerate("XYZXYZ")]
    feed, net = feed_of(rows), network(16)
    text = "SELECT * FROM X [RANGE 5 SECONDS], Y [RANGE 5 SECONDS] WHERE X.a = Y.a"
    once = [Submission(0, 0, feed.parse(text))]
    outcome = DHTJoin(net, feed, once, Settings(), 1).simulate()
    assert outcome.indexed == 4  # Z is not indexed, X and Y not on b
    shared = DHTJoin(net, feed, once * 3, Settings(), 1).simulate()
    assert shared.messages["index"] == outcome.messages["index"]  # three queries share the messages
    assert RJoin(net, feed, once, Settings(), 1).simulate().indexed == 6 * 2 * 2  # by name and by value, each attribute
    assert DHTJoin(net, feed, [], Settings(), 1).simulate().traffic == 0


def test_a_query_is_disseminated_with_one_message_a_node() -> None:
    feed = feed_of([])
    for way in ("chord", "pastry"):
        handed_in = [Submission(0, 5, feed.parse(QUERIES[0]))]
        outcome = DHTJoin(network(100), feed, handed_in, Settings(dissemination=way), 1).simulate()
        assert outcome.messages == {"disseminate": 99}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM X [RANGE 5 SECONDS], Y [RANGE 5 SECONDS] WHERE X.a = Y.a AND X.b > 3",
        "SELECT * FROM X [RANGE 5 SECONDS], Y [RANGE 5 SECONDS] WHERE X.a = Y.a AND X.b < Y.b",
        "SELECT * FROM X [RANGE 5 SECONDS], Y [RANGE 5 SECONDS] WHERE X.a + 1 = Y.a",
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_what_the_overlay_does_not_evaluate_is_refused(method: type[OverlayRun], text: str) -> None:
    feed = feed_of([])
    with pytest.raises(QueryError):
        method(network(4), feed, [Submission(0, 0, feed.parse(text))], Settings(), 1)


def test_messages_by_second_add_up() -> None:
    workload = Workload(duration_s=20, rate=10, query_every_s=5)
    feed = workload.feed(2)
    outcome = DHTJoin(network(32), feed, workload.submissions(feed, 32, 2), Settings(), 2).simulate()
    assert {kind: sum(counts) for kind, counts in outcome.by_second.items()} == outcome.messages
    assert replace(outcome, messages={"result": 7, "index": 3}).traffic == 3
