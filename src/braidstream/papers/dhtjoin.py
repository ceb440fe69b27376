"""DHTJoin's figures 7, 8 and 9, and what its sections 3, 5 and 6 claim, measured in the overlay.

All runs are simulated on one machine with virtual time. The text of the paper gives no numbers for its figures and not
the ranges of their axes; the claims are about order and direction, and that is what is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from braidstream.control.completeness import Load, completeness, completeness_probing
from braidstream.overlay.dissemination import ChordTree
from braidstream.overlay.gossip import spread, views
from braidstream.overlay.network import Link
from braidstream.overlay.peer import Memory
from braidstream.overlay.ring import Ring
from braidstream.overlay.run import Outage, PartnerRule, Settings
from braidstream.overlay.run import Outcome as Simulated
from braidstream.overlay.scale import measure_all
from braidstream.overlay.simulate import Scenario, simulate
from braidstream.overlay.workload import Workload
from braidstream.papers.registry import Outcome, Run, Series, experiment

__all__ = ["figure_7_scenarios"]

METHODS = ("dhtjoin", "rjoin")
PAPER = {
    "nodes": 1024,
    "relations": 10,
    "attributes": 10,
    "zipf": 0.9,
    "values": 1000,
    "tuples a second": 30,
    "window s": 50,
    "duration s": 300,
    "a query every s": 50,
}
FEWER = "DHTJoin sends fewer messages than RJoin at every "
OVERLAY = "Peers, messages and joins on a simulated Chord network; messages and results are counted."
SMALLER = "quick: 256 nodes and 120 s instead of 1,024 nodes and 300 s"
FEWER_CHECK = "Fewer messages at every point, and both methods find the same number of results for every query"
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
    return _figure_7("fig7a", run, must_grow=METHODS)


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
    return _figure_7("fig7b", run, must_grow=())


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
    return _figure_7("fig7c", run, must_grow=METHODS)


def _figure_7(figure: str, run: Run, must_grow: Sequence[str]) -> Outcome:
    seeds = [run.seed + i for i in range(2 if run.quick else 3)]
    by_x = figure_7_scenarios(figure, seeds, run.quick)
    scenarios = [scenario for some in by_x.values() for scenario in some]
    outcomes = dict(zip(scenarios, _simulated(scenarios, run), strict=True))

    def mean(x: float, method: str) -> float:
        return float(np.mean([outcomes[s].traffic for s in by_x[x] if s.method == method]))

    series = [Series(method, list(by_x), [mean(x, method) for x in by_x]) for method in METHODS]
    is_fewer = all(a < b for a, b in zip(series[0].y, series[1].y, strict=True))
    grows = all(one.y[0] < one.y[-1] for one in series if one.label in must_grow)
    agree = all(o.results == outcomes[replace(s, method="rjoin")].results for s, o in outcomes.items())
    ratios = [b / a for a, b in zip(series[0].y, series[1].y, strict=True)]
    notes = [
        f"RJoin sends {min(ratios):.1f} to {max(ratios):.1f} times as many messages; mean over {len(seeds)} seeds",
        f"both methods found the same number of results for every query: {'yes' if agree else 'no'}",
        "a message for a key counts once for each hop; messages with results to users are left out, as in the paper",
    ]
    return Outcome(is_fewer and grows and agree, series, notes, differs=[SMALLER] if run.quick else [])


_OUTAGE = {"nodes": 8, "query": "X.B = Y.B and Y.C = Z.C", "tuples a second of each stream": 400, "window s": 1}


@experiment(
    "dhtjoin",
    "fig8",
    title="Useless results as a source is down",
    claim="useless intermediate results grow with the inactivity of a source; alerts keep them and the traffic down",
    how="simulated",
    x_label="inactivity of the source, s",
    y_label="intermediate results that never contribute",
    parameters=_OUTAGE,
    check=(
        "Without alerts useless results grow with the outage; with alerts both they and the messages are fewer; alerts"
        " that wait lose no result."
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
        "Without alerts useless results grow with the outage; with alerts both they and the messages are fewer; alerts"
        " that wait lose no result."
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
    holds = without == sorted(without) and without[0] < without[-1] and lower and exact
    notes = [
        f"alerts save up to {max(saved):.0%} of the messages; acted on at once, as in the paper, they lose up to "
        f"{max(lost):.1%} of the results",
        f"alerts that wait for the silent window to end and hold tuples back lose {'none' if exact else 'some'}, and"
        " save less",
    ]
    series = [Series(labels[a], list(inactive), [float(measure(o)) for o in runs[a]]) for a in labels]
    return Outcome(holds, series, notes, differs=["quick: 16 s instead of 50 s"] if run.quick else [])


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
    holds = worst[2] == 1.0 and alone[0] == 100 and all(a > b for a, b in pairwise(alone))
    notes = [
        f"the worst coverage was {worst[2]:.2%} with {2 * few} successors in a view, {worst[1]:.2%} with {few}",
        f"gossip costs {np.mean(messages):.1f} messages a node",
        "a failed node receives nothing and nobody is told; coverage counts live nodes",
    ]
    series = [Series(label, [float(f) for f in failed], means[label]) for label in labels]
    differs = [f"quick: {nodes} nodes instead of 1,024"] if run.quick else []
    return Outcome(holds, series, notes, {"coverage with gossip (%)": worst[2] * 100}, differs)


@experiment(
    "dhtjoin",
    "sec5",
    title="Completeness with limited memory",
    claim="with up to 0.8 of the window in memory, 2-, 3- and 4-way joins follow equation 11 within 5 points",
    how="simulated",
    x_label="share of the window that fits",
    y_label="completeness",
    parameters={"nodes": 4, "tuples a second of each stream": 200, "window s": 10, "values": 4000},
    check="At every share and for every number of streams the measured completeness is within 5 points of equation 11.",
    obtained="Peers with bounded memory on a simulated network; results are counted against those of unbounded memory.",
    differs="Not a figure of the paper: its equation 11, measured.",
)
def section_5(run: Run) -> Outcome:
    """Section 5: a peer that refuses what does not fit (equation 11), and one that sheds its oldest tuples."""
    shares = (0.4, 0.6, 0.8, 1.1)
    series, differences, probing = [], [], []
    for ways in (2, 3, 4):
        measured: dict[str, list[float]] = {"refuse": [], "oldest": []}
        run.progress((ways - 2) / 3, f"{ways}-way")
        full = _limited(ways, None, "oldest", run)
        for share in shares:
            loads = [Load(200, 10, round(share * 500))] * ways
            for shedding, found in measured.items():
                found.append(_limited(ways, round(share * 500), shedding, run) / full)
            differences.append(abs(measured["refuse"][-1] - completeness(loads, 4)))
            probing.append(abs(measured["oldest"][-1] - completeness_probing(loads, 4)))
        panel = f"{ways}-way join"
        series.append(Series("equation 11", shares, [min(1.0, s) ** ways for s in shares], panel, is_model=True))
        series.append(Series("refusing what does not fit", shares, measured["refuse"], panel))
        series.append(Series("shedding the oldest", shares, measured["oldest"], panel))
    notes = [
        f"largest difference from equation 11: {max(differences) * 100:.1f} points",
        f"shedding the oldest loses less, as derived for it, within {max(probing) * 100:.1f} points",
        "at 0.9 of the window a 4-way join on 4 nodes is more than 5 points below equation 11 (a test pins it)",
    ]
    differs = ["quick: 40 s instead of 100 s"] if run.quick else []
    return Outcome(max(differences) <= 0.05, series, notes, differs=differs)


def _limited(ways: int, memory: int | None, shedding: str, run: Run) -> int:
    workload = Workload(
        streams=ways,
        attributes=1,
        zipf=0,
        domain=4000,
        rate=200.0 * ways,
        window_s=10,
        duration_s=40 if run.quick else 100,
        query_every_s=10_000,
        joins=ways - 1,
    )
    settings = Settings(memory=Memory(per_input=memory), shedding=shedding)
    return simulate(Scenario(4, "dhtjoin", run.seed, workload, settings, Link(1, 5), is_even=True)).results[0]


@experiment(
    "dhtjoin",
    "sec6",
    title="Partners of overloaded peers under skew",
    claim="with Zipf 1.2 and small memory, partners raise completeness by 20 points or more, "
    "for at most one more message for each indexed tuple",
    how="simulated",
    x_label="tuples that fit into a peer",
    y_label="completeness",
    parameters={**PAPER, "zipf": 1.2, "a query every s": 20, "delta": 0.9},
    stated={"messages more for a tuple passed on": 1.0},
    check="20 points more at every memory; a tuple is passed on once, for at most one message more.",
    obtained=OVERLAY,
    differs="Not a figure of the paper: what its section 6 says of partners, measured.",
)
def section_6(run: Run) -> Outcome:
    """Section 6: 2-way joins on several attributes, whose most frequent values all hash to the same few peers."""
    memories = (60, 100) if run.quick else (60, 80, 100, 150)
    workload = Workload(zipf=1.2, query_every_s=20, joins=1, duration_s=120 if run.quick else 300)
    scenario = Scenario(256 if run.quick else 1024, "dhtjoin", run.seed, workload)
    full = sum(simulate(scenario).results)
    shares: dict[str, list[float]] = {"without partners": [], "with partners": []}
    extra, most = [], []
    for number, memory in enumerate(memories):
        run.progress(number / len(memories), f"memory {memory}")
        limited = Settings(memory=Memory(per_peer=memory))
        alone = simulate(replace(scenario, settings=limited))
        helped = simulate(replace(scenario, settings=replace(limited, partners=PartnerRule())))
        shares["without partners"].append(sum(alone.results) / full)
        shares["with partners"].append(sum(helped.results) / full)
        extra.append((helped.traffic - alone.traffic) / helped.indexed)
        most.append(helped.counters["most_extra"])
    gains = [b - a for a, b in zip(*shares.values(), strict=True)]
    notes = [
        f"partners raise completeness by {min(gains) * 100:.0f} to {max(gains) * 100:.0f} points",
        f"a tuple is passed on {max(most)} time at most; with questions and moves {max(extra):.2f} messages a tuple",
    ]
    holds = min(gains) >= 0.2 and max(most) <= 1 and max(extra) <= 1
    x = [float(memory) for memory in memories]
    ours = {"messages more for a tuple passed on": float(max(most))}
    series = [Series(label, x, y) for label, y in shares.items()]
    return Outcome(holds, series, notes, ours, [SMALLER] if run.quick else [])


@experiment(
    "dhtjoin",
    "scale",
    title="Dissemination and lookups up to internet size",
    claim="a dissemination takes n - 1 messages and log2 n steps, a lookup half of log2 n hops, at every power of two",
    how="exact",
    x_label="nodes",
    y_label="steps",
    parameters={"identifiers": "random and evenly spread"},
    check="At every size n - 1 messages, depth log2 n (random rings: 2 more at most), mean hops within 10% of half.",
    obtained="Whole rings are computed; the keys looked up are drawn at random, at least 20,000 of them.",
    differs="Past the paper, which has 1,024 nodes.",
    log_x=True,
)
def scale(run: Run) -> Outcome:
    """Past the paper: every power of two from 2^4 to 2^20."""
    powers = range(4, 15) if run.quick else range(4, 21)
    x = [float(1 << power) for power in powers]
    series, holds = [], True
    for number, (is_even, rings) in enumerate(((False, "random ring"), (True, "full ring"))):

        def tell(share: float, number: int = number, rings: str = rings) -> None:
            run.progress((number + share) / 2, rings)

        sizes = measure_all(powers, run.seed, is_even=is_even, progress=tell)
        holds = holds and all(all(size.claims.values()) for size in sizes)
        series.append(Series(f"{rings}: depth of the tree", x, [float(size.depth) for size in sizes]))
        series.append(Series(f"{rings}: mean hops", x, [size.mean_hops for size in sizes]))
    series.append(Series("log2 n", x, [float(power) for power in powers], is_model=True))
    return Outcome(holds, series, ["n - 1 messages at every size; depth at most log2 n + 2 on random rings"])


def _simulated(scenarios: Sequence[Scenario], run: Run) -> Iterator[Simulated]:
    for number, scenario in enumerate(scenarios):
        run.progress(number / len(scenarios), f"{scenario.method} {number + 1}/{len(scenarios)}")
        yield simulate(scenario)
