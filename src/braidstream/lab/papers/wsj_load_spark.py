"""WSJ's figures 5, 6 and 11 on Spark: rate against delay with 1 to 4 slots, the controller on and off, declustering.

A slot sleeps for each tuple that it receives, so that it can take 1,000 tuples/s of each of two streams and two cores
do not limit. Epochs of a second are read from files as fast as the engine takes them. An epoch takes what its busiest
slot took, as measured; when its tuples would have come, and so how long they wait, follows from the rate: the epoch is
joined once it is over and the one before is done. The delay is that from the mean tuple of an epoch to its end.
Cost: a minute or two for a figure, most of it slept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.papers.on_spark import ON_SPARK, Bench, Epochs, Ran, bench, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged

__all__: list[str] = []

WORK_US = (500.0, 0.0)
CAPACITY = 1_000
"""Tuples a second of each stream that a slot can take."""
KEYS = 20_000
N_EPOCHS = 6
_QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 4 SECONDS], S [RANGE 4 SECONDS] WHERE R.k = S.k"
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "obtained": ON_SPARK + " Slots sleep 500 us a tuple; an epoch takes what its busiest slot took, waits follow.",
    "differs": (
        f"Epochs of 1 s instead of 2, windows of 4 s instead of 10 minutes, {N_EPOCHS} epochs instead of 20 minutes: an"
        " overload has less time to add up. A slot takes 1,000 tuples/s of a stream, by its sleep. Tuples do not come"
        " in real time: their waits are computed from the rate and the measured times."
    ),
}
PARAMETERS = {"epoch_s": 1, "window_s": 4, "keys": KEYS, "us_a_tuple": WORK_US[0], "epochs": N_EPOCHS}


def _epochs(rate: int, n_epochs: int, seed: int) -> Epochs:
    rng = np.random.default_rng([seed, rate])
    return [{name: keys_table(rng.integers(0, KEYS, rate), epoch) for name in "RS"} for epoch in range(n_epochs)]


def _delays(one: Ran) -> list[float]:
    """The delay of each epoch's mean tuple, in epochs of a second."""
    done, delays = 0.0, []
    for number, entry in enumerate(one.epochs):
        done = max(done, number + 1.0) + max(entry.busy_s, default=0.0)
        delays.append(done - (number + 0.5))
    return delays


class _Rates:
    """Runs rates on slots, and tells the progress."""

    def __init__(self, run: Run, place: Bench, n_points: int) -> None:
        self._run, self._place, self._n_points, self._n_done = run, place, n_points, 0
        self.point(1, CAPACITY // 10, n_epochs=2)  # workers start

    def point(self, slots: int, rate: int, n_epochs: int = N_EPOCHS, **options: Any) -> Ran:
        """One run."""
        self._run.progress(self._n_done / (self._n_points + 1), f"{slots} slots, {rate}/s")
        self._n_done += 1
        streams = self._place.streams(f"at-{self._n_done}", _epochs(rate, n_epochs, self._run.seed))
        return self._place.run(streams, _QUERY, slots=slots, router="hash", **{"controller": False, **options})


def _curves(rates: Mapping[int, Sequence[int]], found: Mapping[int, Sequence[float]]) -> list[Check]:
    """Flat while a slot has time enough, rising beyond, at a rate that grows with the slots."""
    flat = {n: [d for r, d in zip(rates[n], found[n], strict=True) if r < n * CAPACITY] for n in rates}
    over = {n: [d for r, d in zip(rates[n], found[n], strict=True) if r > n * CAPACITY] for n in rates}
    knees = [next((r for r, d in zip(rates[n], found[n], strict=True) if d > 2.0), float("inf")) for n in rates]
    return [
        Check(
            "flat below saturation",
            all(max(some) < 2 * min(some) for some in flat.values()),
            ", ".join(f"{min(some):.2f} to {max(some):.2f} s" for some in flat.values()),
            "very little variation",
            "less than 2 times: an epoch is 1 s",
        ),
        Check(
            "sharp beyond it",
            all(max(some) > 2 * max(flat[n]) for n, some in over.items()),
            ", ".join(f"{max(some) / max(flat[n]):.1f} times" for n, some in over.items()),
            "increases sharply",
            f"twice what it is below, after {N_EPOCHS} epochs",
        ),
        Check(
            "saturation moves with the slots",
            all(a < b for a, b in zip(knees, [*knees[1:], float("inf")], strict=True)),
            ", ".join(f"{k:,g}/s" for k in knees),
            "increases as slaves are added",
            "a delay beyond two epochs, at every step",
        ),
    ]


@experiment(
    "wsj",
    "fig5-spark",
    title="average delay of results, 1 to 3 slots, on Spark",
    claim="The delay is flat, then rises sharply, at a rate that grows with the number of slots.",
    x_label="tuples/s a stream",
    y_label="delay at the end (s)",
    check="Below saturation a curve varies by less than 2 times; beyond it is twice that; saturation rises with slots.",
    parameters=PARAMETERS,
    **_DECLARED,
)
def fig5(run: Run) -> Outcome:
    """Delay against rate for few slots."""
    rates = {1: [600, 1_600], 2: [600, 1_600, 2_800], 3: [1_600, 2_800, 4_600]}
    found: dict[int, list[float]] = {n: [] for n in rates}
    with bench(3, WORK_US) as place:
        runs = _Rates(run, place, sum(map(len, rates.values())))
        for n, some in rates.items():
            found[n] = [_delays(runs.point(n, rate))[-1] for rate in some]
    series = [Series(f"{n} slots" if n > 1 else "1 slot", rates[n], found[n]) for n in rates]
    return judged(series, _curves(rates, found))


_UNEVEN = {"placement": (4, 1, 1, 1)}
_ON = Settings(every=2, epoch_s=1.0, groups_at_once=8, certainty=0.0, splitting=False)
_N_LONG = 20
"""Enough for what waited before the groups moved to be joined."""


@experiment(
    "wsj",
    "fig6-spark",
    title="average delay of results, 4 slots, with and without the controller, on Spark",
    claim=(
        "With 4 slots the delay is flat up to a higher rate, then rises sharply; a slot that has too much yields it to"
        " others, so that the delay stays what it is with groups placed evenly."
    ),
    x_label="tuples/s a stream",
    y_label="delay at the end (s)",
    check=(
        "As in figure 5. At 2,400 tuples/s with 4/7 of the groups at one slot: with the controller the delay ends below"
        " two epochs, without at twice that."
    ),
    parameters={**PARAMETERS, "placement": "4, 1, 1, 1 for the controller", "reorganization": "every 2 epochs"},
    **{
        **_DECLARED,
        "differs": f"{_DECLARED['differs']} So what an overloaded slot has left over does not fill a buffer, and the"
        " twentieth too much that stays at it after one reorganization makes it no supplier (Th_sup is 0.5 of a buffer"
        " of half an epoch): the delay goes on growing by that.",
    },
)
def fig6(run: Run) -> Outcome:
    """Delay against rate for more slots, and the diffusion of a load."""
    rates = {4: [1_600, 3_200, 6_000]}
    with bench(4, WORK_US) as place:
        runs = _Rates(run, place, 5)
        found = {4: [_delays(runs.point(4, rate))[-1] for rate in rates[4]]}
        stuck = runs.point(4, 2_400, _N_LONG, **_UNEVEN)
        moved = runs.point(4, 2_400, _N_LONG, controller=Controller(_ON), **_UNEVEN)
    ends = {"without": _delays(stuck)[-1], "with the controller": _delays(moved)[-1]}
    told = ", ".join(f"{name} {one:.2f} s" for name, one in ends.items())
    diffused = [
        Check(
            "an overloaded slot's load is diffused",
            moved.n_moves > 0 and ends["without"] > 2 * ends["with the controller"],
            f"{told}; {moved.n_moves} reorganizations",
            "due to the diffusion of the loads",
            "half of the delay (ours; the paper has no number)",
        ),
        Check(
            "so that the delay stays what it is with even groups",
            ends["with the controller"] < 2.0,
            f"{ends['with the controller']:.2f} s",
            "very little variation",
            "below two epochs (ours; the paper has no number)",
        ),
    ]
    series = [Series("4 slots", rates[4], found[4], "delay against rate")]
    for name, one in (("without", stuck), ("with the controller", moved)):
        delays = _delays(one)
        series.append(Series(name, list(range(1, len(delays) + 1)), delays, "uneven groups, by epoch"))
    return judged(series, [*_curves(rates, found), *diffused])


_LOW_RATE, _N_LOW, _LAST = 50, 8, 3
"""Tuples a second that one slot has time enough for; epochs, and how many of them are measured."""
_ADAPTIVE = Settings(every=1, epoch_s=1.0, declustering=True, declustering_rule="paper", splitting=False)


def _sent_kb(one: Ran) -> float:
    """What reached all slots together in an epoch, once the number of slots has come to rest."""
    return fmean(entry.exchanged_bytes for entry in one.epochs[-_LAST:]) / 1000


@experiment(
    "wsj",
    "fig11-spark",
    title="communication against the number of slots, on Spark",
    claim="All slots together communicate more the more there are; adaptive declustering stays far below.",
    x_label="slots at the start",
    y_label="bytes exchanged (kB an epoch)",
    check=(
        "What reaches all slots rises with each of them by nearly the same; by the paper's rule of declustering it"
        " stays below, by 40% from 4 slots, and one slot is left."
    ),
    parameters={**PARAMETERS, "rate": _LOW_RATE, "epochs": f"{_N_LOW}, the last {_LAST} measured", "rule": "paper"},
    **{
        **_DECLARED,
        "differs": "Bytes, counted, in place of the time of messages: Spark's exchange has no partners that wait for"
        " each other. What makes many slots dear is that each gets an envelope of its own from every stream.",
    },
)
def fig11(run: Run) -> Outcome:
    """Communication with fixed and with adaptive numbers of slots, at a rate that one slot could take."""
    slots = [1, 2, 4]
    with bench(4, WORK_US) as place:
        runs = _Rates(run, place, 2 * len(slots))
        fixed = [runs.point(n, _LOW_RATE, _N_LOW) for n in slots]
        adaptive = [runs.point(n, _LOW_RATE, _N_LOW, controller=Controller(_ADAPTIVE)) for n in slots]
    total, adapted = [_sent_kb(one) for one in fixed], [_sent_kb(one) for one in adaptive]
    steps = [(b - a) / (m - n) for (a, n), (b, m) in itertools.pairwise(zip(total, slots, strict=True))]
    left = [one.epochs[-1].slots for one in adaptive]
    checks = [
        Check(
            "the total rises linearly",
            min(steps) > 0 and max(steps) < 1.5 * min(steps),
            ", ".join(f"{one:.1f} kB" for one in steps) + " more for a slot more",
            "increases linearly",
            "steps within 1.5 times of each other, as in the simulated form",
        ),
        Check(
            "adaptive is far below",
            adapted[-1] < 0.6 * total[-1],
            f"{adapted[-1]:.1f} kB instead of {total[-1]:.1f} kB from {slots[-1]} slots",
            "significantly lower",
            "by 40%, as in the simulated form",
        ),
        Check(
            "slots that are not needed are given up",
            set(left) == {1},
            f"{', '.join(map(str, left))} left",
            "automatically fixes the number of slaves",
            "one: its load is a tenth of what it can take",
        ),
    ]
    series = [Series("all slots", slots, total), Series("all slots, adaptive", slots, adapted)]
    return judged(series, checks, [f"results of each run: {', '.join(f'{one.matches:,}' for one in fixed)}"])
