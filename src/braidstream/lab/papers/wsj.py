"""WSJ's figures 5 to 10 on the virtual cluster: delay, processor and idle time.

`wsj_exchange` has figures 11 to 14, `wsj_parts` the buffer formula and the block joins on real tuples; `wsj_load_spark`
has figures 5 and 6 on the engine, `wsj_spark` figures 13 and 14.

Each figure simulates 20 virtual minutes for each point (`lab.sim.points`), and measures the last ten.

Each check is computed from the series. Cost: 10 to 40 simulations of a few tenths of a second for a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from braidstream.lab.papers import wsj_exchange, wsj_load_spark, wsj_parts, wsj_spark
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged, near
from braidstream.lab.papers.wsj_exchange import OBTAINED, falling, mean, rising
from braidstream.lab.sim.metrics import Metrics
from braidstream.lab.sim.points import MEASURED_S, PARAMETERS, Bench, Point

__all__ = ["knee", "wsj_exchange", "wsj_load_spark", "wsj_parts", "wsj_spark"]

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


def _delay_outcome(run: Run, slaves: Sequence[int], rates: Sequence[float], n_more: int) -> tuple[Outcome, Bench]:
    bench = Bench(len(slaves) * len(rates) + n_more, run.seed, run.progress)
    delays = {n: [0.0] * len(rates) for n in slaves}
    for i, rate in enumerate(rates):
        for n in slaves:
            delays[n][i] = bench.point(Point(rate, n)).delay_s
    knees = [knee(rates, delays[n]) for n in slaves]
    flat = [[d for r, d in zip(rates, delays[n], strict=True) if r < k] for n, k in zip(slaves, knees, strict=True)]
    notes = [f"{_slaves(n)}: overloaded from {k:,g} tuples/s" for n, k in zip(slaves, knees, strict=True)]
    is_jagged = any(not rising(delays[n][rates.index(k) :]) for n, k in zip(slaves, knees, strict=True) if k in rates)
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
            rising(knees) and knees[0] < float("inf"),
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
    obtained=OBTAINED,
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
    obtained=OBTAINED,
    check=_DELAY_CHECK + " At 4,000 tuples/s it is 1.5 to 2.5 s with 4 slaves (paper: around 2 s).",
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
    tuned = near("delay at 4,000 tuples/s", at_4000, 2.0, 0.25, "'around 2 s', to half a second; not fitted")
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
    obtained=OBTAINED,
    check="From 1,500 to 3,500 tuples/s the time grows 1.3 times more without tuning; at 3,500 tuning saves a quarter.",
)
def fig7(run: Run) -> Outcome:
    """Processor time against rate."""
    rates = [1500, 2500, 3500] if run.quick else [1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000]
    found = _with_and_without(run, rates)
    cpu = {tuned: [mean(m.cpu_s) for m in some] for tuned, some in found.items()}
    at = {rate: (cpu[False][i], cpu[True][i]) for i, rate in enumerate(rates)}
    growth = [at[3500][i] / at[1500][i] for i in (0, 1)]
    checks = [
        Check(
            "without tuning the time rises sharply",
            rising(cpu[False][: rates.index(3500) + 1]) and growth[0] > 1.3 * growth[1],
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
    obtained=OBTAINED,
    check="At 4,000 tuples/s the delay is 1.5 to 2.5 s with tuning. The 48 s without decide nothing: they were fitted.",
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
    checks = [near("delay with tuning at 4,000 tuples/s", with_it, 2.0, 0.25, "'around 2 seconds', to half a second")]
    return judged([Series("no tuning", rates, delay[False]), Series("tuning", rates, delay[True])], checks, ours=ours)


def _idle_series(rates: Sequence[float], found: Iterable[Metrics]) -> list[Series]:
    some = list(found)
    idle, communication = [mean(m.idle_s) for m in some], [mean(m.communication_s) for m in some]
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
    obtained=OBTAINED,
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
    cpu = {rate: mean(one.cpu_s) for rate, one in zip(rates, found, strict=True)}
    power = math.log(cpu[3000] / cpu[2000]) / math.log(3000 / 2000)
    checks = [
        Check(
            "idle time falls with the rate",
            falling(idle),
            ", ".join(f"{one:.0f} s" for one in idle),
            "decreases with the rate",
            "at every step up to 4,000 tuples/s, where it ends in the paper",
        ),
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
    obtained=OBTAINED,
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
    rates = (
        [2000, 4000, 6000, 7000, 8000] if run.quick else [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000]
    )
    bench = Bench(len(rates) + 2, run.seed, run.progress)
    series = _idle_series(rates, [bench.point(Point(rate, 4)) for rate in rates])
    idle, communication = series[0].y, series[1].y
    ratios = []
    for rate in (2000, 4000):
        without = bench.point(Point(rate, 4, tuned=False))
        ratios.append(communication[rates.index(rate)] / mean(without.communication_s))
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
