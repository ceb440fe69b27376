"""Suspend and resume when a source is down (DHTJoin 4.2), on the scenario of the paper's figure 1."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from braidstream.lab.overlay.dht_method import DHTJoin
from braidstream.lab.overlay.network import Link
from braidstream.lab.overlay.shared import Outage, Outcome, Settings
from braidstream.lab.overlay.workload import Feed, Submission, Workload
from tests.lab.overlay.answers import network

WORKLOAD = Workload(streams=3, attributes=2, rate=90, window_s=2, duration_s=40, zipf=0.5, domain=60, joins=2, type=2)
Q2 = (
    "SELECT * FROM S0 [RANGE 2 SECONDS], S1 [RANGE 2 SECONDS], S2 [RANGE 2 SECONDS] "
    "WHERE S0.A0 = S1.A0 AND S1.A1 = S2.A1"
)
Q1 = "SELECT * FROM S0 [RANGE 2 SECONDS], S1 [RANGE 2 SECONDS] WHERE S0.A0 = S1.A0"


@cache
def feed() -> Feed:
    return WORKLOAD.feed(1)


def run(alerts: str, for_s: float, *texts: str) -> Outcome:
    net = network(8, even=True, link=Link(1, 10))
    handed_in = [Submission(0, 0, feed().parse(text)) for text in texts or (Q2,)]
    settings = Settings(alerts=alerts, detect_s=0.5, outages=(Outage("S2", 5, 5 + for_s),))
    return DHTJoin(net, feed(), handed_in, settings, 1).simulate()


def test_without_alerts_useless_results_grow_with_the_outage_and_alerts_stop_them() -> None:
    without = [run("off", seconds) for seconds in (0, 10, 20)]
    told = [run("paper", seconds) for seconds in (0, 10, 20)]
    useless = [outcome.counters["useless"] for outcome in without]
    assert useless[0] < useless[1] < useless[2]
    assert told[0].counters == without[0].counters
    for off, on in zip(without[1:], told[1:], strict=True):
        assert on.counters["useless"] < off.counters["useless"]
        assert on.intermediate < off.intermediate
        assert on.traffic < off.traffic
        assert on.messages["alert"] > 0


def test_alerts_that_hold_back_lose_nothing_where_the_papers_do() -> None:
    off, paper, exact = (run(alerts, 20) for alerts in ("off", "paper", "exact"))
    assert exact.results == off.results
    assert paper.results[0] < off.results[0]
    assert paper.traffic < exact.traffic < off.traffic


def test_everybody_who_was_suspended_resumes() -> None:
    for alerts in ("paper", "exact"):
        counters = run(alerts, 20).counters
        assert counters["suspended"] == counters["resumed"] > 2
    after = slice(30, 40)
    resumed, never_down = run("paper", 20), run("off", 0)
    assert sum(resumed.by_second["reindex"][after]) == sum(never_down.by_second["reindex"][after])


def test_a_stream_that_another_query_needs_is_still_indexed() -> None:
    alone, shared = run("paper", 20), run("paper", 20, Q2, Q1)
    assert sum(alone.by_second["index"][10:20]) == 0
    assert sum(shared.by_second["index"][10:20]) > 0
    assert shared.results[0] == alone.results[0]
    assert shared.results[1] == run("off", 20, Q2, Q1).results[1]


def test_a_short_outage_is_not_noticed() -> None:
    assert "alert" not in run("paper", 0.4).messages


@pytest.mark.parametrize("stream", ["S0", "S1", "S2", "S3"])
def test_exact_alerts_in_a_bushy_plan_change_no_answer(stream: str) -> None:
    workload = Workload(streams=4, attributes=3, rate=24, window_s=2, duration_s=32, zipf=0, domain=7, joins=3, type=2)
    feed_, net = workload.feed(2), network(8, even=True, link=Link(1, 10))
    text = (
        "SELECT * FROM S0 [RANGE 2 SECONDS], S1 [RANGE 3 SECONDS], S2 [RANGE 2 SECONDS], S3 [RANGE 3 SECONDS] "
        "WHERE S0.A0 = S1.A0 AND S1.A1 = S2.A1 AND S2.A2 = S3.A2"
    )
    handed_in = [Submission(0, 3, feed_.parse(text))]
    off, exact = (
        Settings(alerts=alerts, detect_s=0.3, outages=(Outage(stream, 4, 20),), keeps_answers=True)
        for alerts in ("off", "exact")
    )
    outcome = DHTJoin(net, feed_, handed_in, exact, 1).simulate()
    assert outcome.counters["held"] > 20
    assert outcome.results[0] > 100
    assert outcome.answers is not None
    # Without alerts the answers are the oracle's (test_exact).
    expected = DHTJoin(net, feed_, handed_in, off, 1).simulate().answers
    assert expected is not None
    assert Counter(outcome.answers[0]) == Counter(expected[0])
