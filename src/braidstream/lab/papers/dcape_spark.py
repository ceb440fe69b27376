"""D-CAPE's figures 9 to 12 on Spark: what pushing state costs, and which groups to push (section 4.4).

A three-way join over unbounded windows at one slot with a budget, as on the paper's one machine: real pushes, real
generations, and a last clean-up whose seconds are measured, not priced. Keys are drawn so that the groups of a third
have the join ratio of that third, by the hash that the engine uses. Cost: a minute or two for a figure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.lab.papers.dcape_lines import least_productive
from braidstream.lab.papers.on_spark import ON_SPARK, Epochs, Ran, bench, keys_by_part, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged, near

__all__ = ["complete", "result_lines"]

GROUPS = 64
N_EPOCHS, ROWS = 12, 1_500
BUDGET = 450_000
_STREAMS = ("A", "B", "C")
_QUERY = (
    "SELECT A.v AS av, B.v AS bv, C.v AS cv FROM A [RANGE UNBOUNDED], B [RANGE UNBOUNDED], C [RANGE UNBOUNDED]"
    " WHERE A.k = B.k AND B.k = C.k"
)
_DECLARED: dict[str, Any] = {
    "how": "spark",
    "obtained": ON_SPARK + " Results of the normal run and of clean-up are counted, and clean-up is timed.",
    "differs": (
        f"{ROWS} tuples a stream in each of {N_EPOCHS} epochs, {GROUPS} groups and a budget of {BUDGET // 1000} kB"
        " instead of 50 minutes, 300 groups and 200 MB; pushes are decided between epochs."
    ),
    "parameters": {"streams": 3, "groups": GROUPS, "epochs": N_EPOCHS, "tuples_a_stream_and_epoch": ROWS, "slots": 1},
}


def _epochs(seed: int, ratios: Sequence[float]) -> Epochs:
    """A third of the tuples for each third of the groups; the higher its join ratio, the fewer keys they share."""
    rng = np.random.default_rng([seed, 4])
    pools = [keys[: round(2_000 / ratio)] for keys, ratio in zip(keys_by_part(3), ratios, strict=True)]
    return [{name: keys_table(_drawn(pools, rng), epoch) for name in _STREAMS} for epoch in range(N_EPOCHS)]


def _drawn(pools: Sequence[npt.NDArray[np.int64]], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    drawn = np.concatenate([rng.choice(pool, ROWS // len(pools)) for pool in pools])
    return np.asarray(rng.permutation(drawn))


_Settings = dict[str, Any]
_ALL_IN_MEMORY: _Settings = {"memory": "1 GB"}


def _pushing(by: str, share: float = 0.3) -> _Settings:
    return {"memory": BUDGET, "push_by": by, "spill_share": share}


def _lines(run: Run, ratios: Sequence[float], settings: Mapping[str, _Settings]) -> dict[str, Ran]:
    """Each line of a figure: one run over the same streams."""
    found: dict[str, Ran] = {}
    with bench() as place:
        streams = place.streams("streams", _epochs(run.seed, ratios))
        for label, options in settings.items():
            run.progress(len(found) / len(settings), label)
            found[label] = place.run(
                streams, _QUERY, slots=1, groups=GROUPS, controller=False, router="hash", **options
            )
    return found


def result_lines(found: Mapping[str, Ran]) -> list[Series]:
    """Results of the normal run so far, epoch by epoch."""
    return [
        Series(label, list(range(1, len(one.normal) + 1)), [float(n) for n in one.normal])
        for label, one in found.items()
    ]


def complete(found: Mapping[str, Ran]) -> Check:
    """Whether all lines have the same results, with those that clean-up made up for."""
    totals = {one.matches for one in found.values()}
    told = f"every line has {max(totals):,} results in all" if len(totals) == 1 else f"they have {sorted(totals)}"
    return Check("no result is lost", len(totals) == 1, told, "", "exactly")


@cache
def _shares(seed: int) -> dict[str, Ran]:
    """The runs of figures 9 and 10."""
    shares = {f"{percent}%": _pushing("random", percent / 100) for percent in (10, 30, 50)}
    return _lines(Run(seed=seed), (1.0, 1.0, 1.0), {"0%": _ALL_IN_MEMORY, **shares})


def _falls(values: Sequence[float]) -> bool:
    return all(a > b for a, b in itertools.pairwise(values))


@experiment(
    "dcape",
    "fig9-spark",
    title="results by share of the state pushed, on Spark",
    claim="The more state is pushed at a time, the fewer results in the normal run; all of it kept gives the most.",
    x_label="epochs",
    y_label="results so far",
    check="Results of the normal run fall with the share pushed; with clean-up every line has as many.",
    **_DECLARED,
)
def fig9(run: Run) -> Outcome:
    """Random groups pushed, another share each time."""
    found = _shares(run.seed)
    totals = [one.normal[-1] for one in found.values()]
    told = ", ".join(f"{label} {total:,}" for label, total in zip(found, totals, strict=True))
    falls = Check("the more is pushed, the fewer results", _falls(totals), told, "so", "at every step")
    return judged(result_lines(found), [falls, complete(found)], _clean_up_notes(found))


@experiment(
    "dcape",
    "fig10-spark",
    title="memory by share of the state pushed, on Spark",
    claim="Pushing keeps the memory within its bound; the more is pushed at a time, the less often.",
    x_label="epochs",
    y_label="active state (kB)",
    check=(
        "Pushes fall with the share; when it is decided what to push, the memory is at most the budget and what an"
        " epoch brings; without pushing it goes 20% above the budget."
    ),
    **_DECLARED,
)
def fig10(run: Run) -> Outcome:
    """The memory of figure 9's runs."""
    found = _shares(run.seed)
    held = {label: _before_pushes(one) for label, one in found.items()}
    epoch = max(b - a for a, b in itertools.pairwise(held["0%"]))
    pushes = {label: one.n_pushes for label, one in found.items()}
    peaks = {label: max(some) for label, some in held.items()}
    checks = [
        Check(
            "the more is pushed, the less often",
            _falls(list(pushes.values())[1:]),
            ", ".join(f"{label} {n}" for label, n in pushes.items()),
            "so",
            "at every step",
        ),
        Check(
            "pushing bounds the memory",
            all(peak <= BUDGET + epoch for label, peak in peaks.items() if label != "0%")
            and peaks["0%"] > 1.2 * BUDGET,
            "before a push " + ", ".join(f"{label} {peak / 1000:.0f} kB" for label, peak in peaks.items()),
            "effectively controlled",
            f"{BUDGET // 1000} kB and the {epoch / 1000:.0f} kB that an epoch brings; without pushing a fifth more",
        ),
    ]
    series = [
        Series(label, list(range(1, len(some) + 1)), [size / 1000 for size in some]) for label, some in held.items()
    ]
    return judged(series, checks)


def _before_pushes(one: Ran) -> list[int]:
    """The active state after each epoch, with what was pushed at its end."""
    pushed = np.diff([0, *(entry.inactive_bytes for entry in one.epochs)])
    return [sum(entry.slot_bytes) + max(int(new), 0) for entry, new in zip(one.epochs, pushed, strict=True)]


def _clean_up_notes(found: Mapping[str, Ran]) -> list[str]:
    return [
        f"{label}: {one.recovered:,} results recovered in {one.clean_up_s:.1f} s"
        for label, one in found.items()
        if one.recovered
    ]


def _ordered(low: Ran, lot: Ran, high: Ran) -> Check:
    """Of 64 groups in two random orders the results differ by more than of 300."""
    totals = {"least productive": low, "random": lot, "most productive": high}
    return least_productive({name: one.normal[-1] for name, one in totals.items()}, margin=0.02)


def _low_and_high(run: Run, ratios: Sequence[float]) -> dict[str, Ran]:
    choices = {
        "30% low output": _pushing("unproductive"),
        "30% random": _pushing("random"),
        "30% high output": _pushing("productive"),
    }
    return _lines(run, ratios, {"all in memory": _ALL_IN_MEMORY, **choices})


@experiment(
    "dcape",
    "fig11-spark",
    title="pushing low or high output, uneven ratios, on Spark",
    claim=(
        "Pushing the least productive groups gives far more results in the normal run than pushing the most productive"
        " ones, leaves far fewer to clean-up, and that takes less time."
    ),
    x_label="epochs",
    y_label="results so far",
    check=(
        "Low gives 1.5 times the results of high, and 2% more than a random choice; high leaves 5.1 times as many,"
        " within a quarter, and for longer; none is lost."
    ),
    **_DECLARED,
)
def fig11(run: Run) -> Outcome:
    """Productivity decides, and clean-up is timed."""
    found = _low_and_high(run, (4.0, 2.0, 1.0))
    _, low, lot, high = found.values()
    left = high.recovered / max(low.recovered, 1)
    checks = [
        Check(
            "low output gives far more results",
            low.normal[-1] > 1.5 * high.normal[-1],
            f"{low.normal[-1] / max(high.normal[-1], 1):.2f} times",
            "a much higher throughput",
            "1.5 times (ours: the figure has no number)",
        ),
        _ordered(low, lot, high),
        near("results left by high over low output", left, 992_893 / 194_308, 0.25, "other streams and sizes"),
        Check(
            "which takes less time",
            low.clean_up_s < high.clean_up_s,
            f"{low.clean_up_s:.1f} s to {high.clean_up_s:.1f} s",
            "26.9 s to 359.4 s",
            "less: a step has fixed costs of its own here",
        ),
        complete(found),
    ]
    differs = [
        "The states are small, so that a step's fixed cost decides how long clean-up takes, not its results. Pushing"
        " high output leaves four fifths of all results, low output a quarter: it can be no more than four times."
    ]
    return judged(result_lines(found), checks, _clean_up_notes(found), differs=differs)


@experiment(
    "dcape",
    "fig12-spark",
    title="pushing low or high output, even ratios, on Spark",
    claim="Even where all groups are alike, pushing low output gives somewhat more.",
    x_label="epochs",
    y_label="results so far",
    check="Low output gives 2 to 15% more ('slightly'), and 2% more than a random choice; none is lost.",
    **_DECLARED,
)
def fig12(run: Run) -> Outcome:
    """The advantage is that of chance: some groups have had more results than others."""
    found = _low_and_high(run, (3.0, 3.0, 3.0))
    _, low, lot, high = found.values()
    advantage = low.normal[-1] / max(high.normal[-1], 1)
    checks = [
        _ordered(low, lot, high),
        Check(
            "only slightly",
            advantage < 1.15,
            f"{advantage:.3f} times",
            "slightly",
            "up to 15% (ours: the figure has no number)",
        ),
        complete(found),
    ]
    differs = ["Groups have few keys here, so that chance makes them less alike than in the paper."]
    return judged(result_lines(found), checks, _clean_up_notes(found), differs=differs)
