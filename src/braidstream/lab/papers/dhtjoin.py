"""DHTJoin's figures 7, 8 and 9, measured in the overlay; `dhtjoin_parts` has what its sections 3, 5 and 6 claim.

All runs are simulated on one machine with virtual time. The text of the paper gives no numbers for its figures and not
the ranges of their axes; the claims are about order and direction, and that is what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from braidstream.lab.overlay.dissemination import ChordTree
from braidstream.lab.overlay.gossip import spread, views
from braidstream.lab.overlay.network import Link
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.shared import Outage, Settings
from braidstream.lab.overlay.shared import Outcome as Simulated
from braidstream.lab.overlay.simulate import Scenario, simulate
from braidstream.lab.overlay.workload import Workload
from braidstream.lab.papers import dhtjoin_spark
from braidstream.lab.papers.dhtjoin_parts import OVERLAY, PAPER, SMALLER
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged

__all__ = ["dhtjoin_spark", "figure_7_scenarios"]

METHODS = {"dhtjoin": "DHTJoin", "rjoin": "RJoin"}
FEWER = "DHTJoin sends fewer messages than RJoin at every "
FEWER_CHECK = (
    "Messages at every point fewer by 2.5 times; DHTJoin indexes a tuple on no attribute that no query joins it"
    " on; and both methods find the same number of results for every query"
)
SHORT_WINDOWS = (
    "Windows of 1 s instead of the query's 5 minutes, which at 400 tuples/s would be 80,000 matches a tuple: the text"
    " does not say which keys or windows the figure was made with."
)


def figure_7_scenarios(figure: str, seeds: Sequence[int], quick: bool) -> dict[float, list[Scenario]]:
    """By the value on the x axis, what to simulate: both methods, each seed."""
    base = Workload(duration_s=120) if quick else Workload()
    varied: dict[float, Workload] = {
        "fig7a": lambda: {rate: replace(base, rate=rate) for rate in (10.0, 20.0, 30.0, 40.0, 50.0)},
        "fig7b": lambda: {rate: replace(base, query_every_s=1 / rate) for rate in (0.01, 0.02, 0.04, 0.06, 0.08, 0.1)},
        "fig7c": lambda: {float(joins): replace(base, joins=joins, type=2) for joins in (1, 2, 3, 4)},
    }[figure]()
    nodes = 256 if quick else 1024
    return {
        x: [Scenario(nodes, method, seed, workload) for method in METHODS for seed in seeds]
        for x, workload in varied.items()
    }


@experiment(
    "dhtjoin",
    "fig7a",
    title="Effect of the tuples' arrival rate on network traffic",
    claim=FEWER + "arrival rate of tuples, and the traffic of both grows with it",
    how="simulated",
    x_label="tuples a second",
    y_label="messages",
    parameters=PAPER,
    check=FEWER_CHECK + "; messages of both grow from the first to the last rate.",
    obtained=OVERLAY,
    log_y=True,
)
def figure_7a(run: Run) -> Outcome:
    """Figure 7(a): queries of type 1."""
    return _figure_7("fig7a", run, must_grow=True)


@experiment(
    "dhtjoin",
    "fig7b",
    title="Effect of the queries' arrival rate on network traffic",
    claim=FEWER + "arrival rate of queries",
    how="simulated",
    x_label="queries a second",
    y_label="messages",
    parameters=PAPER,
    check=FEWER_CHECK + ".",
    obtained=OVERLAY,
    log_y=True,
)
def figure_7b(run: Run) -> Outcome:
    """Figure 7(b): queries of type 1."""
    return _figure_7("fig7b", run, must_grow=False)


@experiment(
    "dhtjoin",
    "fig7c",
    title="Effect of the number of joins on network traffic",
    claim=FEWER + "number of joins, and the traffic of both grows with it",
    how="simulated",
    x_label="joins in a query",
    y_label="messages",
    parameters=PAPER,
    check=FEWER_CHECK + "; messages of both grow from one join to four.",
    obtained=OVERLAY,
    log_y=True,
)
def figure_7c(run: Run) -> Outcome:
    """Figure 7(c): queries of type 2."""
    return _figure_7("fig7c", run, must_grow=True)


def _figure_7(figure: str, run: Run, *, must_grow: bool) -> Outcome:
    seeds = [run.seed + i for i in range(2 if run.quick else 3)]
    by_x = figure_7_scenarios(figure, seeds, run.quick)
    scenarios = [scenario for some in by_x.values() for scenario in some]
    outcomes = dict(zip(scenarios, _simulated(scenarios, run), strict=True))

    def mean(x: float, method: str) -> float:
        return float(np.mean([outcomes[s].traffic for s in by_x[x] if s.method == method]))

    series = [Series(METHODS[method], list(by_x), [mean(x, method) for x in by_x]) for method in METHODS]
    agree = all(o.results == outcomes[replace(s, method="rjoin")].results for s, o in outcomes.items())
    notes = [
        f"means over {len(seeds)} seeds",
        "a message for a key counts once for each hop; messages with results to users are left out, as in the paper",
    ]
    needed = [(o.indexed, _joined_on(s)) for s, o in outcomes.items() if s.method == "dhtjoin"]
    checks = [_is_fewer(series), _indexes_what_is_joined(needed)]
    if must_grow:
        grown = [one.y[-1] / one.y[0] for one in series]
        told = ", ".join(f"{one.label} {times:.2f} times" for one, times in zip(series, grown, strict=True))
        checks.append(Check("the traffic of both grows", min(grown) > 1, told, "grows", "from the first to the last"))
    told = "for every query" if agree else "not for every query"
    checks.append(Check("both find the same results", agree, told, "", "exactly: counted (ours)"))
    return judged(series, checks, notes, differs=[SMALLER] if run.quick else [])


def _is_fewer(series: Sequence[Series]) -> Check:
    ratios = [b / a for a, b in zip(series[0].y, series[1].y, strict=True)]
    told = f"RJoin sends {min(ratios):.1f} to {max(ratios):.1f} times as many"
    why = "2.5 times at every point (ours: no number given): to index on every attribute, though once, leaves 2"
    return Check("significantly fewer messages than RJoin", min(ratios) > 2.5, told, "significantly less, always", why)


def _indexes_what_is_joined(needed: Sequence[tuple[int, int]]) -> Check:
    done, most = (sum(counts) for counts in zip(*needed, strict=True))
    return Check(
        "tuples are indexed only where a query joins them",
        all(indexed <= joined for indexed, joined in needed),
        f"{done:,} times; tuples times the attributes that queries join them on: {most:,}",
        "checks for the existence of a query that requires it",
        "never more, in any run: counted from the queries' texts, not from the method",
    )


def _joined_on(scenario: Scenario) -> int:
    """For each tuple the attributes that a query which has started joins its stream on, over all tuples."""
    network, feed, submissions = scenario.build()
    first: dict[tuple[str, str], int] = {}
    for one in submissions:
        for edge in (*one.query.key_classes, *one.query.join_edges):
            for stream, attribute in edge.members:  # an alias is its stream here
                first.setdefault((stream, attribute), one.time_us + network.longest_us)
    times, streams = np.array(feed.times_us), np.array(feed.streams)
    return sum(int(((streams == stream) & (times >= start)).sum()) for (stream, _), start in first.items())


_OUTAGE = {"nodes": 8, "query": "X.B = Y.B and Y.C = Z.C", "tuples a second of each stream": 400, "window s": 1}


@experiment(
    "dhtjoin",
    "fig8",
    title="Useless results as a source is down",
    claim="useless intermediate results grow with the inactivity of a source; alerts keep them and the traffic down",
    how="simulated",
    x_label="inactivity of the source, s",
    y_label="useless intermediate results",
    parameters=_OUTAGE,
    check=(
        "Without alerts useless results grow with the outage; with alerts both they and the messages are fewer at every"
        " outage, at the longest half of them and a tenth of the messages; alerts that wait lose no result."
    ),
    obtained=OVERLAY,
    differs=SHORT_WINDOWS,
)
def figure_8(run: Run) -> Outcome:
    """Figure 8, intermediate results: the scenario of figure 1, with the source of Z down."""
    return _figure_8(run, lambda outcome: outcome.counters["useless"])


@experiment(
    "dhtjoin",
    "fig8b",
    title="Network traffic, as a source is down",
    claim="useless intermediate results grow with the inactivity of a source; alerts keep them and the traffic down",
    how="simulated",
    x_label="inactivity of the source, s",
    y_label="messages",
    parameters=_OUTAGE,
    check=(
        "Without alerts useless results grow with the outage; with alerts both they and the messages are fewer at every"
        " outage, at the longest half of them and a tenth of the messages; alerts that wait lose no result."
    ),
    obtained=OVERLAY,
    differs=SHORT_WINDOWS,
)
def figure_8b(run: Run) -> Outcome:
    """Figure 8, network traffic."""
    return _figure_8(run, lambda outcome: outcome.traffic)


@cache
def _inactive(alerts: str, inactive_s: float, seed: int, quick: bool) -> Simulated:
    duration = 16.0 if quick else 50.0
    workload = Workload(
        streams=3, attributes=2, rate=1200, window_s=1, duration_s=duration, query_every_s=10_000, joins=2, type=2
    )
    scenario = Scenario(8, "dhtjoin", seed, workload, Settings(alerts=alerts, detect_s=0.5), Link(1, 10), is_even=True)
    if inactive_s:
        last = scenario.build()[2][0].query.inputs[-1].stream  # Z: joined last, so that X and Y are joined for nothing
        outages = (Outage(last, 4, 4 + inactive_s),)
        scenario = replace(scenario, settings=replace(scenario.settings, outages=outages))
    else:
        scenario = replace(scenario, settings=replace(scenario.settings, outages=(Outage("S0", 0, 0),)))
    return simulate(scenario)


def _figure_8(run: Run, measure: Callable[[Simulated], int]) -> Outcome:
    inactive = (0.0, 4.0, 8.0) if run.quick else (0.0, 10.0, 20.0, 30.0, 40.0)
    labels = {"off": "without alerts", "paper": "with alerts", "exact": "with alerts that lose nothing"}
    runs: dict[str, list[Simulated]] = {}
    for i, alerts in enumerate(labels):
        runs[alerts] = []
        for j, seconds in enumerate(inactive):
            run.progress((i * len(inactive) + j) / (len(labels) * len(inactive)), f"{labels[alerts]}, {seconds:g} s")
            runs[alerts].append(_inactive(alerts, seconds, run.seed, run.quick))
    without = [o.counters["useless"] for o in runs["off"]]
    compared = [*zip(runs["paper"][1:], runs["off"][1:], strict=True), (runs["exact"][-1], runs["off"][-1])]
    lower = all(o.counters["useless"] < off.counters["useless"] and o.traffic < off.traffic for o, off in compared)
    exact = [o.results for o in runs["exact"]] == [o.results for o in runs["off"]]
    lost = [1 - o.results[0] / off.results[0] for o, off in zip(runs["paper"], runs["off"], strict=True)]
    saved = [1 - o.traffic / off.traffic for o, off in zip(runs["paper"], runs["off"], strict=True)]
    grows = without == sorted(without) and without[0] < without[-1]
    told = ", ".join(f"{n:,}" for n in without)
    kept = runs["paper"][-1].counters["useless"] / without[-1]
    checks = [
        Check("useless results grow with the outage", grows, told, "increases", "never fewer, and more in all"),
        Check(
            "alerts keep them and the traffic down",
            lower and kept < 0.5 and max(saved) > 0.1,
            f"{kept:.0%} of the useless results are left, up to {max(saved):.0%} of the messages are saved",
            "an important reduction of network traffic",
            "fewer at every outage; at the longest less than half, and a tenth of the messages (ours: no number given)",
        ),
        Check(
            "alerts that wait lose no result", exact, "none" if exact else "some", "", "exactly (ours: the paper's may)"
        ),
    ]
    notes = [
        f"acted on at once, as in the paper, alerts lose up to {max(lost):.1%} of the results",
        "alerts that wait for the silent window to end hold tuples back, and save less",
    ]
    series = [Series(labels[a], list(inactive), [float(measure(o)) for o in runs[a]]) for a in labels]
    return judged(series, checks, notes, differs=["quick: 16 s instead of 50 s"] if run.quick else [])


@experiment(
    "dhtjoin",
    "fig9",
    title="Coverage of dissemination as nodes fail",
    claim="with failures the tree alone does not reach all live nodes; with gossip it reaches 100% of them",
    how="simulated",
    x_label="failed nodes, %",
    y_label="live nodes reached, %",
    parameters={"nodes": 1024, "view": "fingers, successors, predecessor"},
    stated={"coverage with gossip (%)": 100.0},
    check="Without failures the tree reaches all, and less with each step of failures; with gossip all, in every run.",
    obtained="Trees and gossip over simulated Chord rings that have not repaired themselves; live nodes are counted.",
)
def figure_9(run: Run) -> Outcome:
    """Figure 9: queries from random live nodes, on rings that have not repaired themselves yet."""
    nodes, n_rings, n_queries = (256, 2, 25) if run.quick else (1024, 4, 10)
    failed, few = (0, 5, 10, 20, 30, 40, 50), nodes.bit_length() - 1
    labels = (
        "tree",
        f"tree and gossip, {few} successors in a view",
        f"tree and gossip, {2 * few} successors in a view",
    )
    covered: dict[str, dict[int, list[float]]] = {label: {f: [] for f in failed} for label in labels}
    messages: list[float] = []
    for number in range(n_rings):
        ring, rng = Ring.random(nodes, run.seed + number), np.random.default_rng([run.seed, number])
        short, long, tree = views(ring, few), views(ring, 2 * few), ChordTree(ring)
        for percent in failed:
            run.progress(number / n_rings, f"{percent}% failed")
            for _ in range(n_queries):
                live = rng.random(nodes) >= percent / 100
                root = int(rng.choice(np.flatnonzero(live)))
                ways = (spread(tree, v, root, live, g) for v, g in ((short, None), (short, rng), (long, rng)))
                for label, found in zip(labels, ways, strict=True):
                    covered[label][percent].append(found.share)
                messages.append(found.gossip_messages / nodes)
    means = {label: [float(np.mean(c)) * 100 for c in covered[label].values()] for label in labels}
    worst = [min(min(c) for c in covered[label].values()) for label in labels]
    alone = means[labels[0]]
    is_less = alone[0] == 100 and all(a > b for a, b in pairwise(alone))
    told = ", ".join(f"{share:.0f}%" for share in alone)
    checks = [
        Check("the tree alone reaches fewer as more fail", is_less, told, "cannot achieve 100%", "at every step"),
        Check("with gossip all are reached", worst[2] == 1.0, f"{worst[2]:.2%} at worst", "100%", "in every run"),
    ]
    notes = [
        f"the worst coverage was {worst[2]:.2%} with {2 * few} successors in a view, {worst[1]:.2%} with {few}",
        f"gossip costs {np.mean(messages):.1f} messages a node",
        "a failed node receives nothing and nobody is told; coverage counts live nodes",
    ]
    series = [Series(label, [float(f) for f in failed], means[label]) for label in labels]
    differs = [f"quick: {nodes} nodes instead of 1,024"] if run.quick else []
    return judged(series, checks, notes, {"coverage with gossip (%)": worst[2] * 100}, differs)


def _simulated(scenarios: Sequence[Scenario], run: Run) -> Iterator[Simulated]:
    for number, scenario in enumerate(scenarios):
        run.progress(number / len(scenarios), f"{scenario.method} {number + 1}/{len(scenarios)}")
        yield simulate(scenario)
