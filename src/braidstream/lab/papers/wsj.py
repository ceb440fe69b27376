"""WSJ's figures 5 to 14 on the virtual cluster; `wsj_parts` has its buffer formula and its block joins on real tuples.

Each figure simulates 20 virtual minutes for each point (`lab.sim.points`), and measures the last ten.

Each check is computed from the series. Cost: 10 to 40 simulations of a few tenths of a second for a figure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from braidstream.lab.papers import wsj_parts
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged, near
from braidstream.lab.sim.metrics import Metrics
from braidstream.lab.sim.points import MEASURED_S, PARAMETERS, Bench, Point

__all__ = ["knee", "wsj_parts"]

_OBTAINED = (
    "The controller and its policies on a virtual cluster: 20 virtual minutes a point, the last ten measured. The join"
    " is a cost model with the kernel's counts of comparisons and matches; a comparison's price is fitted on one point"
    " of figure 8, the network is assumed (1 ms for a rendezvous, 8 MB/s)."
)
_SAWTOOTH = (
    "beyond the knee the delay does not rise at every step: groups of nearly equal size split at nearly the same rate,"
    " and just below such a rate mini-groups are twice as large, and tuples twice as expensive, as just above it"
)
_NO_IDLE = "tuples/s from which idle time is near zero (below 5%)"


def knee(rates: Sequence[float], delays: Sequence[float], epoch_s: float = 2.0) -> float:
    """The first rate at which the delay is beyond two epochs, or infinity: the system is overloaded there."""
    return next((rate for rate, delay in zip(rates, delays, strict=True) if delay > 2 * epoch_s), float("inf"))


def _slaves(n: int) -> str:
    return "1 slave" if n == 1 else f"{n} slaves"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rising(values: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(values))


def _falling(values: Sequence[float]) -> bool:
    return _rising(list(reversed(values)))


def _delay_outcome(run: Run, slaves: Sequence[int], rates: Sequence[float], n_more: int) -> tuple[Outcome, Bench]:
    bench = Bench(len(slaves) * len(rates) + n_more, run.seed, run.progress)
    delays = {n: [0.0] * len(rates) for n in slaves}
    for i, rate in enumerate(rates):
        for n in slaves:
            delays[n][i] = bench.point(Point(rate, n)).delay_s
    knees = [knee(rates, delays[n]) for n in slaves]
    flat = [[d for r, d in zip(rates, delays[n], strict=True) if r < k] for n, k in zip(slaves, knees, strict=True)]
    notes = [f"{_slaves(n)}: overloaded from {k:,g} tuples/s" for n, k in zip(slaves, knees, strict=True)]
    is_jagged = any(not _rising(delays[n][rates.index(k) :]) for n, k in zip(slaves, knees, strict=True) if k in rates)
    series = [Series(_slaves(n), rates, delays[n]) for n in slaves]
    checks = _delay_checks(knees, flat, [max(delays[n]) for n in slaves])
    return judged(series, checks, notes, differs=[_SAWTOOTH] if is_jagged else []), bench


def _delay_checks(knees: Sequence[float], flat: Sequence[Sequence[float]], most: Sequence[float]) -> list[Check]:
    """Flat below the knee, steep beyond it, and the knee moves with the slaves."""
    is_flat = all(before and max(before) < 2.0 * min(before) for before in flat)
    overloaded = [(top, max(before)) for k, before, top in zip(knees, flat, most, strict=True) if k < float("inf")]
    is_sharp = bool(overloaded) and all(top > 5 * before for top, before in overloaded)
    ranges = ", ".join(f"{min(before):.2f} to {max(before):.2f} s" for before in flat if before)
    return [
        Check("flat below saturation", is_flat, ranges, "very little variation", "less than 2 times: an epoch is 2 s"),
        Check(
            "sharp beyond it",
            is_sharp,
            ", ".join(f"{top / before:.0f} times" for top, before in overloaded),
            "increases sharply",
            "5 times what it is below",
        ),
        Check(
            "saturation moves with the slaves",
            _rising(knees) and knees[0] < float("inf"),
            ", ".join(f"{k:,g}/s" for k in knees),
            "increases as slaves are added",
            "at every step",
        ),
    ]


_DELAY_CHECK = (
    "Below its knee (the first rate with a delay above two epochs) a curve varies by less than 2 times; beyond, it"
    " reaches 5 times that; knees rise with the slaves."
)


@experiment(
    "wsj",
    "fig5",
    title="average delay of results, 1 to 3 slaves",
    claim=(
        "The delay is flat, then rises sharply, at a rate that grows with the number of slaves; it is flat because a"
        " slave that is overloaded for a while yields load to others."
    ),
    how="simulated",
    x_label="tuples/s a stream",
    y_label="delay (s)",
    parameters={**PARAMETERS, "disturbed": "60% of one processor's time for 5 minutes (ours)"},
    obtained=_OBTAINED,
    check=(
        _DELAY_CHECK
        + " At 4,000 tuples/s, with three slaves and 60% of one processor taken by others for five minutes, moves of"
        " groups keep the delay below a third of what it is without."
    ),
    log_y=True,
)
def fig5(run: Run) -> Outcome:
    """Delay against rate for few slaves."""
    rates = [1000, 2000, 4000, 5000, 7000] if run.quick else [500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 7000]
    outcome, bench = _delay_outcome(run, (1, 2, 3), rates, n_more=2)
    moved, stuck = (bench.point(Point(4000, 3, is_disturbed=True, has_controller=one)) for one in (True, False))
    diffused = Check(
        "an overloaded slave's load is diffused",
        moved.delay_s < stuck.delay_s / 3,
        f"{moved.delay_s:.1f} s with {moved.n_moves} moves, {stuck.delay_s:.1f} s without any",
        "due to the diffusion of the loads",
        "below a third (ours; the paper has no number)",
    )
    return replace(outcome, holds=outcome.holds and diffused.holds, checks=[*outcome.checks, diffused])


@experiment(
    "wsj",
    "fig6",
    title="average delay of results, 4 and 5 slaves",
    claim="The delay is flat, then rises sharply, at a rate that grows with the number of slaves.",
    how="simulated",
    x_label="tuples/s a stream",
    y_label="delay (s)",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check=_DELAY_CHECK + " At 4,000 tuples/s it is 1 to 3 s with 4 slaves (paper: around 2 s).",
    stated={"delay at 4,000 tuples/s, 4 slaves (s)": 2.0},
    log_y=True,
)
def fig6(run: Run) -> Outcome:
    """Delay against rate for more slaves."""
    rates = (
        [2000, 4000, 8000, 10000, 12000]
        if run.quick
        else [2000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 11000, 12000]
    )
    outcome, _ = _delay_outcome(run, (4, 5), rates, n_more=0)
    at_4000 = outcome.series[0].y[rates.index(4000)]
    tuned = near("delay at 4,000 tuples/s", at_4000, 2.0, 0.5, "'around 2 s'; no constant was fitted to it")
    ours = {"delay at 4,000 tuples/s, 4 slaves (s)": at_4000}
    return replace(outcome, holds=outcome.holds and tuned.holds, checks=[*outcome.checks, tuned], ours=ours)


def _with_and_without(run: Run, rates: Sequence[float]) -> dict[bool, list[Metrics]]:
    bench = Bench(2 * len(rates), run.seed, run.progress)
    found: dict[bool, list[Metrics]] = {False: [], True: []}
    for rate in rates:
        for tuned in (False, True):
            found[tuned].append(bench.point(Point(rate, 4, tuned)))
    return found


@experiment(
    "wsj",
    "fig7",
    title="processor time with and without tuning, 4 slaves",
    claim="Without tuning the processor time rises sharply with the rate; with tuning it is much lower.",
    how="simulated",
    x_label="tuples/s a stream",
    y_label="processor time (s in 10 minutes)",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check="From 1,500 to 3,500 tuples/s the time grows 1.3 times more without tuning; at 3,500 tuning saves a quarter.",
)
def fig7(run: Run) -> Outcome:
    """Processor time against rate."""
    rates = [1500, 2500, 3500] if run.quick else [1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000]
    found = _with_and_without(run, rates)
    cpu = {tuned: [_mean(m.cpu_s) for m in some] for tuned, some in found.items()}
    at = {rate: (cpu[False][i], cpu[True][i]) for i, rate in enumerate(rates)}
    growth = [at[3500][i] / at[1500][i] for i in (0, 1)]
    checks = [
        Check(
            "without tuning the time rises sharply",
            _rising(cpu[False][: rates.index(3500) + 1]) and growth[0] > 1.3 * growth[1],
            f"from 1,500 to 3,500 tuples/s {growth[0]:.2f} times, with tuning {growth[1]:.2f} times",
            "increases sharply with the rate",
            "1.3 times more than with tuning: between the rate and its square",
        ),
        Check(
            "tuning lowers it",
            at[3500][1] < 0.75 * at[3500][0],
            f"{at[3500][1]:.0f} s instead of {at[3500][0]:.0f} s at 3,500 tuples/s",
            "significantly lower",
            "by a quarter",
        ),
    ]
    return judged([Series("no tuning", rates, cpu[False]), Series("tuning", rates, cpu[True])], checks)


@experiment(
    "wsj",
    "fig8",
    title="average delay without tuning, 4 slaves",
    claim="At 4,000 tuples/s the delay is about 48 s without tuning, and about 2 s with it.",
    how="simulated",
    x_label="tuples/s a stream",
    y_label="delay (s)",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check="At 4,000 tuples/s the delay is 1 to 3 s with tuning. The 48 s without decide nothing: they were fitted.",
    differs="The 48 s are an input: the price of a comparison was fitted on this point. The 2 s are not.",
    stated={"delay without tuning (s, fitted)": 48.0, "delay with tuning (s)": 2.0},
    log_y=True,
)
def fig8(run: Run) -> Outcome:
    """Delay against rate, with and without tuning."""
    rates = [2000, 4000] if run.quick else [1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500]
    found = _with_and_without(run, rates)
    delay = {tuned: [m.delay_s for m in some] for tuned, some in found.items()}
    without, with_it = (delay[tuned][rates.index(4000)] for tuned in (False, True))
    ours = {"delay without tuning (s, fitted)": without, "delay with tuning (s)": with_it}
    checks = [near("delay with tuning at 4,000 tuples/s", with_it, 2.0, 0.5, "'around 2 seconds'")]
    return judged([Series("no tuning", rates, delay[False]), Series("tuning", rates, delay[True])], checks, ours=ours)


def _idle_series(rates: Sequence[float], found: Iterable[Metrics]) -> list[Series]:
    some = list(found)
    idle, communication = [_mean(m.idle_s) for m in some], [_mean(m.communication_s) for m in some]
    return [Series("idle time", rates, idle), Series("communication", rates, communication)]


def _first_busy(rates: Sequence[float], idle: Sequence[float]) -> float:
    """The first rate with less than 5% of idle time."""
    return next((rate for rate, idle_s in zip(rates, idle, strict=True) if idle_s < 0.05 * MEASURED_S), float("inf"))


@experiment(
    "wsj",
    "fig9",
    title="idle time and communication without tuning, 4 slaves",
    claim=(
        "Without tuning the idle time falls ever faster with the rate, for the window that a tuple is compared with"
        " grows too, and is near zero at 4,000 tuples/s."
    ),
    how="simulated",
    x_label="tuples/s a stream",
    y_label="seconds in 10 minutes",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check=(
        "Idle time falls with the rate; from 2,000 to 3,000 tuples/s the processor time grows like the rate to the"
        " power of 1.5 or more. That idle time ends at 4,000 decides nothing: the price of a comparison was fitted on"
        " figure 8 at this rate."
    ),
    stated={_NO_IDLE + ", fitted": 4000.0},
)
def fig9(run: Run) -> Outcome:
    """Where the time of a slave goes, without tuning."""
    rates = [2000, 3000, 4000] if run.quick else [1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000]
    bench = Bench(len(rates), run.seed, run.progress)
    found = [bench.point(Point(rate, 4, tuned=False)) for rate in rates]
    series = _idle_series(rates, found)
    idle = series[0].y[: rates.index(4000) + 1]
    cpu = {rate: _mean(one.cpu_s) for rate, one in zip(rates, found, strict=True)}
    power = math.log(cpu[3000] / cpu[2000]) / math.log(3000 / 2000)
    checks = [
        Check("idle time falls with the rate", _falling(idle), ", ".join(f"{one:.0f} s" for one in idle)),
        Check(
            "windows that grow make tuples dearer",
            power >= 1.5,
            f"processor time ~ rate^{power:.2f}",
            "scanning the window partitions consumes more with the rate",
            "1.5: between a fixed price of a tuple (1) and one in proportion to the window (2)",
        ),
    ]
    return judged(series, checks, ours={_NO_IDLE + ", fitted": _first_busy(rates, series[0].y)})


@experiment(
    "wsj",
    "fig10",
    title="idle time and communication with tuning, 4 slaves",
    claim="With tuning the idle time reaches zero only at a much higher rate, and communication is the same.",
    how="simulated",
    x_label="tuples/s a stream",
    y_label="seconds in 10 minutes",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check=(
        "Idle time ends at 6,000 tuples/s, within a sixth; at 4,000 a slave is still idle for a fifth of the time;"
        " communication is within 10% of no tuning."
    ),
    differs=(
        "Idle time ends at a higher rate than in the paper, and the claim does not hold at its number. The model is"
        " calibrated on a run without tuning, and splits of nearly equal groups keep tuples cheap for longer."
    ),
    stated={_NO_IDLE: 6000.0},
)
def fig10(run: Run) -> Outcome:
    """Where the time of a slave goes, with tuning."""
    rates = [2000, 4000, 6000, 7000, 8000] if run.quick else [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000]
    bench = Bench(len(rates) + 2, run.seed, run.progress)
    series = _idle_series(rates, [bench.point(Point(rate, 4)) for rate in rates])
    idle, communication = series[0].y, series[1].y
    ratios = []
    for rate in (2000, 4000):
        without = bench.point(Point(rate, 4, tuned=False))
        ratios.append(communication[rates.index(rate)] / _mean(without.communication_s))
    ended = _first_busy(rates, idle)
    checks = [
        near("rate at which idle time ends", ended, 6000.0, 1 / 6, "one step of the paper's axis"),
        Check(
            "with tuning a slave has time left where it had none without",
            idle[rates.index(4000)] > 0.2 * MEASURED_S and idle[-1] < idle[0],
            f"idle for {idle[rates.index(4000)] / MEASURED_S:.0%} of the time at 4,000 tuples/s",
            "near zero at 6,000 instead of 4,000 tuples/s",
            "a fifth of the time: 4,000 is far from the end",
        ),
        Check(
            "tuning communicates nothing",
            all(0.9 < r < 1.1 for r in ratios),
            f"{', '.join(f'{r:.3f}' for r in ratios)} times what it is without",
            "no communication overhead",
            "within 10%: slaves that are busy are served later",
        ),
    ]
    return judged(series, checks, ours={_NO_IDLE: ended})


@experiment(
    "wsj",
    "fig11",
    title="communication against the number of slaves",
    claim="All slaves together communicate more the more there are, linearly; adaptive declustering stays far below.",
    how="simulated",
    x_label="slaves",
    y_label="communication (s in 10 minutes)",
    parameters={**PARAMETERS, "rate": 1500},
    obtained=_OBTAINED,
    check=(
        "The total rises with each slave by nearly the same; adaptive stays below, by 40% at 5 slaves. That a slave's"
        " own time falls decides nothing: it was an input."
    ),
    differs="That a slave's own time still falls at 5 slaves is an input: it went into the network's fixed cost.",
)
def fig11(run: Run) -> Outcome:
    """Communication with fixed and with adaptive numbers of slaves."""
    slaves = [1, 3, 5] if run.quick else [1, 2, 3, 4, 5]
    bench = Bench(2 * len(slaves), run.seed, run.progress)
    fixed = [bench.point(Point(1500, n)).communication_s for n in slaves]
    adaptive = [bench.point(Point(1500, n, adaptive=True)) for n in slaves]
    mean, total = [_mean(c) for c in fixed], [sum(c) for c in fixed]
    adapted = [sum(m.communication_s) for m in adaptive]
    used = [m.slots[-1][1] for m in adaptive]
    series = [Series("mean of the slaves", slaves, mean), Series("all slaves", slaves, total)]
    series.append(Series("all slaves, adaptive", slaves, adapted))
    steps = [(b - a) / (m - n) for (a, n), (b, m) in itertools.pairwise(zip(total, slaves, strict=True))]
    is_below = all(a <= t * 1.001 for a, t in zip(adapted, total, strict=True)) and adapted[-1] < 0.6 * total[-1]
    checks = [
        Check(
            "the total rises linearly",
            min(steps) > 0 and max(steps) < 1.5 * min(steps),
            f"{', '.join(f'{one:.1f}' for one in steps)} s more for a slave more",
            "increases linearly",
            "steps within 1.5 times of each other",
        ),
        Check(
            "adaptive is far below",
            is_below,
            f"{adapted[-1]:.0f} s instead of {total[-1]:.0f} s at {slaves[-1]} slaves",
            "significantly lower",
            "by 40% at 5 slaves",
        ),
    ]
    notes = [
        f"slaves in use at the end, adaptive: {', '.join(map(str, used))}",
        f"mean of a slave (an input of the model): {', '.join(f'{one:.1f} s' for one in mean)}",
    ]
    return judged(series, checks, notes)


@experiment(
    "wsj",
    "fig12",
    title="communication across the slaves, 4 slaves",
    claim="Slaves are served in turn, so communication differs between them, and more so the higher the rate.",
    how="simulated",
    x_label="tuples/s a stream",
    y_label="communication (s in 10 minutes)",
    parameters=PARAMETERS,
    obtained=_OBTAINED,
    check=(
        "The mean and the difference between the least and the most rise with the rate; at the highest the last to be"
        " served waits for twice as long as the first, or longer."
    ),
)
def fig12(run: Run) -> Outcome:
    """The least, the mean and the most that a slave communicates."""
    rates = [1000, 3000, 5000] if run.quick else [1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000]
    bench = Bench(len(rates), run.seed, run.progress)
    found = [bench.point(Point(rate, 4)).communication_s for rate in rates]
    least, mean, most = [min(c) for c in found], [_mean(c) for c in found], [max(c) for c in found]
    gaps = [b - a for a, b in zip(least, most, strict=True)]
    series = [Series("least", rates, least), Series("mean", rates, mean), Series("most", rates, most)]
    checks = [
        Check(
            "slaves differ more the higher the rate",
            _rising(gaps) and _rising(mean),
            f"{gaps[0]:.1f} s at first, {gaps[-1]:.1f} s at last",
            "divergence increases with the rate",
            "at every step",
        ),
        Check(
            "because they are served in turn",
            most[-1] > 2 * least[-1],
            f"{least[-1]:.1f} to {most[-1]:.1f} s at {rates[-1]:,} tuples/s",
            "distributed in a serial order",
            "twice (the last of four waits for four transfers, the first for one)",
        ),
    ]
    return judged(series, checks)


def _epochs(run: Run) -> tuple[list[float], list[Metrics]]:
    epochs = [0.5, 2.0, 6.0] if run.quick else [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    bench = Bench(len(epochs), run.seed, run.progress)
    return epochs, [bench.point(Point(1500, 3, epoch_s=epoch)) for epoch in epochs]


@experiment(
    "wsj",
    "fig13",
    title="average delay against the distribution epoch, 3 slaves",
    claim="A shorter distribution epoch means a shorter delay.",
    how="simulated",
    x_label="distribution epoch (s)",
    y_label="delay (s)",
    parameters={**PARAMETERS, "rate": 1500},
    obtained=_OBTAINED,
    check="The delay rises with the epoch, by 0.5 to 1 s a second: half an epoch of waiting at the master, and the join.",
)
def fig13(run: Run) -> Outcome:
    """Delay against t_d."""
    epochs, found = _epochs(run)
    delays = [m.delay_s for m in found]
    slope = (delays[-1] - delays[0]) / (epochs[-1] - epochs[0])
    checks = [
        Check("the delay rises with the epoch", _rising(delays), ", ".join(f"{one:.2f} s" for one in delays)),
        Check(
            "by the wait at the master and the join of what waited",
            0.5 <= slope <= 1.0,
            f"{slope:.2f} s for each second of the epoch",
            "due to the wait time at the master node",
            "half an epoch of waiting, and at most half an epoch of joining",
        ),
    ]
    return judged([Series("delay", epochs, delays)], checks)


@experiment(
    "wsj",
    "fig14",
    title="communication against the distribution epoch, 3 slaves",
    claim="A shorter distribution epoch means more communication: the other side of the trade-off.",
    how="simulated",
    x_label="distribution epoch (s)",
    y_label="communication (s in 10 minutes)",
    parameters={**PARAMETERS, "rate": 1500},
    obtained=_OBTAINED,
    check="Communication falls with the epoch, by a tenth or more in all, while the delay rises.",
    differs="The fixed cost of a message that makes it fall was bounded by figure 11, not by this one.",
)
def fig14(run: Run) -> Outcome:
    """Communication against t_d."""
    epochs, found = _epochs(run)
    communication = [_mean(m.communication_s) for m in found]
    checks = [
        Check(
            "a shorter epoch communicates more",
            _falling(communication) and communication[-1] < 0.9 * communication[0],
            ", ".join(f"{one:.1f} s" for one in communication),
            "increases as the epoch decreases",
            "falls at every step, and by a tenth in all: without fixed costs it changes by less than 1%",
        ),
        Check(
            "and delays less",
            found[0].delay_s < found[-1].delay_s,
            f"{found[0].delay_s:.2f} s at the shortest, {found[-1].delay_s:.2f} s at the longest",
            "a trade-off",
        ),
    ]
    return judged([Series("communication", epochs, communication)], checks)
