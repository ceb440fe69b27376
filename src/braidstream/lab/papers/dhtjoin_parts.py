"""What DHTJoin says without a figure, measured in the overlay: completeness (5), partners (6), larger networks (3).

All runs are simulated on one machine with virtual time. Cost: seconds for each.
"""

from __future__ import annotations

from dataclasses import replace

from braidstream.control.completeness import MODELS, Load, completeness, completeness_over
from braidstream.lab.overlay.network import Link
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.scale import measure_all
from braidstream.lab.overlay.shared import Outcome as OverlayOutcome
from braidstream.lab.overlay.shared import PartnerRule, Settings
from braidstream.lab.overlay.simulate import Scenario, simulate
from braidstream.lab.overlay.simulate import completeness as share_found
from braidstream.lab.overlay.workload import Workload
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged

__all__ = ["OVERLAY", "PAPER", "SMALLER"]

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
OVERLAY = "Peers, messages and joins on a simulated Chord network; messages and results are counted."
SMALLER = "quick: 256 nodes and 120 s instead of 1,024 nodes and 300 s"


SHEDDING = {
    "planned": "by plan",
    "sample": "sampling",
    "refuse": "refusing what does not fit",
    "oldest": "shedding the oldest",
}


_FULL_FROM_S = 15
"""Results count from here on: the models describe full windows; while the first ones fill, more is kept."""


@experiment(
    "dhtjoin",
    "sec5",
    title="Completeness with limited memory",
    claim="peers that sample what arrives or go by plan follow equation 11 within 5 points up to 0.9 of the window, in "
    "2-, 3- and 4-way joins; every way to shed follows its exact model within 3 points at every size",
    how="simulated",
    x_label="share of the window that fits",
    y_label="completeness",
    parameters={
        "nodes": 4,
        "tuples a second of each stream": 200,
        "window s": 10,
        "values": 4000,
        "counted from s": 15,
    },
    check="Sample and plan within 5 points of equation 11 unless the window just fits; all within 3 of their models.",
    obtained="Peers with bounded memory on a simulated network; results are counted against those of unbounded memory.",
    differs=(
        "Not a figure of the paper: its equation 11, measured. Where the window just fits no way to shed can follow it:"
        " it knows average rates only."
    ),
)
def section_5(run: Run) -> Outcome:
    """Section 5: peers that go by equation 11, that sample, refuse what does not fit, and shed their oldest tuples."""
    shares = (0.6, 0.9, 1.0) if run.quick else (0.4, 0.6, 0.8, 0.9, 1.0, 1.1)
    owned = Ring.even(4).value_shares(4000)
    series: list[Series] = []
    off_paper, off_model = {"sample": [0.0], "planned": [0.0], "refuse": [0.0]}, [0.0]
    for ways in (2, 3, 4):
        run.progress((ways - 2) / 3, f"{ways}-way")
        full = _limited(ways, None, "oldest", run)
        panel = f"{ways}-way join"
        series.append(Series("equation 11", shares, [min(1.0, s) ** ways for s in shares], panel, is_model=True))
        for shedding, label in SHEDDING.items():
            limited = [_limited(ways, round(share * 500), shedding, run) for share in shares]
            found = [share_found(one, full, _FULL_FROM_S) for one in limited]
            series.append(Series(label, shares, found, panel))
            for share, measured in zip(shares, found, strict=True):
                loads = [Load(200, 10, round(share * 500))] * ways
                off_model.append(abs(measured - completeness_over(owned, loads, MODELS[shedding])))
                if shedding in off_paper and not 0.9 < share < 1.1:
                    off_paper[shedding].append(abs(measured - completeness(loads, 4)))
    of_paper = {way: max(some) for way, some in off_paper.items()}
    told = ", ".join(f"{SHEDDING[way]} {most * 100:.1f}" for way, most in of_paper.items())
    checks = [
        Check(
            "sampling and planning follow equation 11",
            max(of_paper["sample"], of_paper["planned"]) <= 0.05,
            f"points apart at most: {told}",
            "equation 11",
            "5 points, where the window does not just fit: the equation knows average rates only",
        ),
        Check(
            "every way follows its exact model",
            max(off_model) <= 0.03,
            f"at most {max(off_model) * 100:.1f} points apart",
            "",
            "3 points: random arrivals",
        ),
    ]
    return judged(series, checks, differs=["quick: 100 s instead of 200 s"] if run.quick else [])


def _limited(ways: int, memory: int | None, shedding: str, run: Run) -> OverlayOutcome:
    workload = Workload(
        streams=ways,
        attributes=1,
        zipf=0,
        domain=4000,
        rate=200.0 * ways,
        window_s=10,
        duration_s=100 if run.quick else 200,  # of 45 s counted, one point in 36 was 3.2 from its model
        query_every_s=10_000,
        joins=ways - 1,
    )
    settings = Settings(memory=Memory(per_input=memory), shedding=shedding)
    return simulate(Scenario(4, "dhtjoin", run.seed, workload, settings, Link(1, 5), is_even=True))


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
    checks = [
        Check(
            "partners raise completeness",
            min(gains) >= 0.2,
            f"by {min(gains) * 100:.0f} to {max(gains) * 100:.0f} points",
            "",
            "20 points at every memory (ours: the paper has no number)",
        ),
        Check("a tuple is passed on once", max(most) <= 1, f"{max(most)} time at most", "1 message more", "exactly"),
        Check(
            "with questions and moves it is at most one message more",
            max(extra) <= 1,
            f"{max(extra):.2f} messages a tuple",
            "1 message more, for passing it on",
            "1, with what it costs to find and fill a partner (ours): counted",
        ),
    ]
    x = [float(memory) for memory in memories]
    ours = {"messages more for a tuple passed on": float(max(most))}
    series = [Series(label, x, y) for label, y in shares.items()]
    return judged(series, checks, (), ours, [SMALLER] if run.quick else [])


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
    series, claims = [], dict[str, bool]()
    for number, (is_even, rings) in enumerate(((False, "random ring"), (True, "full ring"))):

        def tell(share: float, number: int = number, rings: str = rings) -> None:
            run.progress((number + share) / 2, rings)

        sizes = measure_all(powers, run.seed, is_even=is_even, progress=tell)
        claims |= {f"{rings}: {name}": all(size.claims[name] for size in sizes) for name in sizes[0].claims}
        series.append(Series(f"{rings}: depth of the tree", x, [float(size.depth) for size in sizes]))
        series.append(Series(f"{rings}: mean hops", x, [size.mean_hops for size in sizes]))
    series.append(Series("log2 n", x, [float(power) for power in powers], is_model=True))
    why = "at every size; a random ring may be 2 deeper, hops within 10%"
    checks = [Check(name, held, "so" if held else "not so", "", why) for name, held in claims.items()]
    return judged(series, checks)
