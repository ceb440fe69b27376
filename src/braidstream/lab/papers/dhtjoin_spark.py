"""DHTJoin's figure 8 and section 5 on Spark: suspension while a source is down, and completeness with little memory.

Both are of the engine: `Flow(silence=...)` suspends joins that wait for a silent stream, `Flow(on_overflow="shed")`
drops what does not fit. Results and intermediate results are counted. Cost: a minute or so for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from braidstream.control.completeness import Load, completeness, completeness_engine
from braidstream.lab.papers.on_spark import ON_SPARK, Epochs, Ran, bench, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged

__all__: list[str] = []

_CHAIN = (
    "SELECT X.v AS xv, Z.v AS zv FROM X [RANGE 2 SECONDS], Y [RANGE 2 SECONDS], Z [RANGE 3 SECONDS]"
    " WHERE X.k = Y.k AND Y.v = Z.k"
)
"""The planner joins X and Y first, since Z's window is the longest: their results wait for Z."""
_DOWN_FROM, _N_EPOCHS, _RATE, _KEYS = 3, 18, 200, 100
_UNSAVED = 7
"""Seconds of an outage whose intermediate results are made after all: 3 in which they meet stored tuples of the source,
and the rest of that epoch; then, as it is back, the 2 of the other windows and the rest of that epoch."""


def _chain_epochs(seed: int, down: int) -> Epochs:
    """Three streams of 200 tuples/s; Z says nothing for `down` epochs of a second."""
    rng = np.random.default_rng([seed, 8])
    epochs = []
    for epoch in range(_N_EPOCHS):
        is_down = _DOWN_FROM <= epoch < _DOWN_FROM + down
        sizes = {"X": _RATE, "Y": _RATE, "Z": 0 if is_down else _RATE}
        drawn = {name: rng.integers(0, _KEYS, (2, _RATE)) for name in sizes}
        epochs.append({name: keys_table(drawn[name][0, :n], epoch, drawn[name][1, :n]) for name, n in sizes.items()})
    return epochs


@experiment(
    "dhtjoin",
    "fig8-spark",
    title="Intermediate results as a source is down, on Spark",
    claim="intermediate results that wait for a silent source are not produced, the more so the longer it is silent",
    how="spark",
    x_label="inactivity of the source, s",
    y_label="intermediate results",
    parameters={
        "query": "X.B = Y.B and Y.C = Z.C",
        "tuples a second of each stream": _RATE,
        "windows s": "2, 2, 3",
        "slots": 1,
    },
    check=(
        "With suspension there are fewer intermediate results the longer the outage: those of all its seconds but 7"
        " are not made; the results are the same."
    ),
    obtained=ON_SPARK + " The streams have a second of event time an epoch.",
    differs=(
        "Windows of 2 and 3 s, and keys of 100 values. What was not produced is made up for when the source is back, as"
        " far as it is within its window: unlike the paper's alerts ours lose nothing. The watermark must go on without"
        " the silent stream (`idle`): while it waits, no window ends, and all is made up for."
    ),
)
def figure_8(run: Run) -> Outcome:
    """A chain of joins whose last stream falls silent."""
    outages = (8, 12) if run.quick else (0, 8, 10, 12)
    found: dict[str, list[Ran]] = {"without suspension": [], "with suspension": []}
    with bench() as place:
        for i, down in enumerate(outages):
            streams = place.streams(f"down-{down}", _chain_epochs(run.seed, down))
            for label, some in found.items():
                run.progress((i + len(some) / len(outages)) / len(outages), f"{down} s, {label}")
                silence = "1 second" if label.startswith("with ") else None
                options: dict[str, Any] = {"slots": 1, "groups": 4, "controller": False, "silence": silence}
                some.append(place.run(streams, _CHAIN, idle={"Z": "1 millisecond"}, **options))
    produced = {label: [float(one.produced) for one in some] for label, some in found.items()}
    without, with_it = produced.values()
    saved = [1 - b / a for a, b in zip(without, with_it, strict=True)]
    least = [max(down - _UNSAVED, 0) / _N_EPOCHS for down in outages]
    exact = all(a.matches == b.matches for a, b in zip(*found.values(), strict=True))
    checks = [
        Check(
            "suspension saves useless intermediate results",
            all(a < b for a, b in pairwise(saved)) and all(a >= b for a, b in zip(saved, least, strict=True)),
            ", ".join(f"{share:.0%} at {down} s" for share, down in zip(saved, outages, strict=True)),
            "grow with the inactivity; alerts eliminate them",
            f"more with each outage; of {_N_EPOCHS} s those of all its seconds but {_UNSAVED}",
        ),
        Check("no result is lost", exact, "at any outage" if exact else "some are", "", "exactly (ours)"),
    ]
    series = [Series(label, list(outages), some) for label, some in produced.items()]
    return judged(series, checks, [f"results: {', '.join(f'{one.matches:,}' for one in found['with suspension'])}"])


_PAIR = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 8 SECONDS], S [RANGE 8 SECONDS] WHERE R.k = S.k"
_WINDOW, _N_ROWS, _DOMAIN = 8, 500, 200
_BY_EQUATION = {
    "sample": (0.05, "5 points: exempt keys are 3, steps of the share 2"),
    "planned": (0.07, "7 points: as by sample, and it aims 2 above the equation"),
}
"""How far from equation 11, and why."""
_BY_FORMULA = ("oldest", "random")


def _pair_epochs(seed: int, n_epochs: int) -> Epochs:
    rng = np.random.default_rng([seed, 5])
    return [{name: keys_table(rng.integers(0, _DOMAIN, _N_ROWS), e) for name in "RS"} for e in range(n_epochs)]


def _from_full(one: Ran) -> int:
    """The results once the windows are full."""
    return sum(sum(entry.matches.values()) for entry in one.epochs[_WINDOW:])


@experiment(
    "dhtjoin",
    "sec5-spark",
    title="Completeness with limited memory, on Spark",
    claim="slots that sample what arrives follow equation 11 within 5 points; those that shed what they stored are as "
    "complete as the engine's own formula says, within 5 points; none is less complete than equation 11; and the flow "
    "tells how complete it was",
    how="spark",
    x_label="share of the window that fits",
    y_label="completeness",
    parameters={"tuples a second of each stream": _N_ROWS, "window s": _WINDOW, "values": _DOMAIN, "slots": 1},
    check=(
        "Sampling within 5 points of equation 11, planning within 7; oldest and random within 5 points of the engine's"
        " formula; none 3 below equation 11; and inside the interval that the flow tells."
    ),
    obtained=ON_SPARK + " Completeness is counted against a run with memory enough, once the windows are full.",
    differs=(
        "Not a figure of the paper: its equation 11, measured. Who sheds oldest or random tuples joins what arrives"
        " before, so that it is more complete than the equation. Some keys are exempt from shedding, so that the flow"
        " can tell how complete it is."
    ),
)
def section_5(run: Run) -> Outcome:
    """Each way to shed that equation 11 or a formula of the engine's says something of."""
    shares = (0.4, 0.8) if run.quick else (0.3, 0.5, 0.7, 0.9)
    found: dict[str, list[float]] = {by: [] for by in (*_BY_EQUATION, *_BY_FORMULA)}
    contained = []
    options: dict[str, Any] = {"slots": 1, "groups": 4, "controller": False, "router": "hash"}
    with bench() as place:
        streams = place.streams("pairs", _pair_epochs(run.seed, (2 if run.quick else 4) * _WINDOW))
        full = place.run(streams, _PAIR, **options, memory="1 GB", on_overflow="shed")  # counts what is in a window
        whole_bytes = float(np.mean([entry.active_bytes for entry in full.epochs[_WINDOW:]]))
        for i, share in enumerate(shares):
            for by, some in found.items():
                run.progress((i + len(some) / len(shares)) / len(shares), f"{share:g}, {by}")
                memory = round(share * whole_bytes)
                one = place.run(streams, _PAIR, **options, memory=memory, on_overflow="shed", shed_by=by)
                some.append(_from_full(one) / _from_full(full))
                told = one.epochs[-1].completeness_so_far["q"]
                contained.append(told.low <= one.matches / full.matches <= told.high)
    return _completeness(shares, found, contained)


def _completeness(shares: Sequence[float], found: dict[str, list[float]], contained: Sequence[bool]) -> Outcome:
    room = [[Load(_N_ROWS, _WINDOW, share * _N_ROWS * _WINDOW)] * 2 for share in shares]
    equation = [completeness(loads, 1) for loads in room]
    models = {by: [partial(completeness_engine, epoch_s=1.0, by=by)(one, 1) for one in room] for by in _BY_FORMULA}
    of_model = {by: _most_off(found[by], models[by]) for by in _BY_FORMULA}
    of_equation = {by: _most_off(found[by], equation) for by in _BY_EQUATION}
    below = max(b - a for some in found.values() for a, b in zip(some, equation, strict=True))
    checks = [
        *(
            Check(
                f"{by} follows equation 11", of_equation[by] <= most, _points({by: of_equation[by]}), "equation 11", why
            )
            for by, (most, why) in _BY_EQUATION.items()
        ),
        Check(
            "shedding follows the engine's formula",
            max(of_model.values()) <= 0.05,
            _points(of_model),
            "",
            "5 points: one run of random keys, and bytes of memory for tuples",
        ),
        Check(
            "it is no less complete than equation 11",
            below <= 0.03,
            f"{max(below, 0) * 100:.1f} points below at most",
            "equation 11",
            "3 points: random keys",
        ),
        Check(
            "the flow says how complete it was",
            sum(contained) >= len(contained) - 1,
            f"{sum(contained)} of {len(contained)} intervals contain the truth",
            "",
            "all but one: they are of 95%",
        ),
    ]
    series = [Series("equation 11", list(shares), equation, is_model=True)]
    series += [Series(f"shedding, {by}", list(shares), some) for by, some in found.items()]
    series += [Series(f"the engine's formula, {by}", list(shares), some, is_model=True) for by, some in models.items()]
    differs = [
        "The share that is taken falls as soon as chance brings more than fits, and rises only once a twentieth more"
        " would: so a few points of the budget stay free, and sampling is that much less complete than the equation."
    ]
    return judged(series, checks, differs=differs)


def _most_off(found: Sequence[float], expected: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(found, expected, strict=True))


def _points(off: Mapping[str, float]) -> str:
    return ", ".join(f"{by} {most * 100:.1f}" for by, most in off.items()) + " points apart at most"
