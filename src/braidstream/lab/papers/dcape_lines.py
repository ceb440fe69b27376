"""What D-CAPE's experiments share: running the lines of a figure, sampling them, and comparing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from braidstream.lab.papers.registry import Check, Run, Series
from braidstream.lab.sim.dcape.one_run import Measured, Results
from braidstream.lab.sim.dcape.settings_of_paper import MB, Point, run_point

__all__ = [
    "OBTAINED",
    "least_productive",
    "lines",
    "low_output",
    "memory_series",
    "result_series",
    "sampled",
    "spread",
    "tick_s",
]


OBTAINED = (
    "Real three-way joins, generations and clean-up over drawn streams, under the project's own policies, so"
    " that results are counted, not modelled. Machines, clock, memory (tuples times a size) and prices are virtual; the"
    " price of a recovered result is fitted to the paper's three clean-ups together."
)


def tick_s(run: Run) -> float:
    """How often machines report; coarser in quick runs."""
    return 10.0 if run.quick else 5.0


def lines(run: Run, points: Mapping[str, Point], shared: Results | None = None) -> dict[str, Measured]:
    """Simulate every line of a figure. With `shared`, lines that push nothing use one join."""
    found = {}
    for label, point in points.items():
        found[label] = run_point(point, shared)
        run.progress(len(found) / len(points), label)
    return found


def sampled(one: Measured, every_s: float, first_s: float | None = None) -> list[float]:
    """The times at which a line is drawn, up to its end."""
    begin_s = every_s if first_s is None else first_s
    return [begin_s + every_s * i for i in range(int((one.times_s[-1] - begin_s) / every_s + 1e-9) + 1)]


def result_series(found: Mapping[str, Measured], every_s: float = 120.0, staggered: bool = False) -> list[Series]:
    """Results so far against minutes; staggered where lines coincide, so that each shows between the others."""
    series = []
    for i, (label, one) in enumerate(found.items()):
        first_s = 60.0 * (i + 1) if staggered else every_s
        times_s = sampled(one, 60.0 * len(found) if staggered else every_s, first_s)
        series.append(Series(label, [t / 60 for t in times_s], [float(one.at(t)) for t in times_s]))
    return series


def memory_series(label: str, one: Measured, machine: int, every_s: float = 60.0) -> Series:
    """The memory of a machine in MB against minutes."""
    per_sample = max(1, round(every_s / (one.times_s[0])))
    ticks = range(per_sample - 1, len(one.times_s), per_sample)
    return Series(label, [one.times_s[i] / 60 for i in ticks], [one.memory[i][machine] / MB for i in ticks])


def spread(found: Sequence[Measured], reference: Measured, from_s: float) -> float:
    """The largest relative difference of the lines to a reference, at the end of any tick from `from_s` on."""
    return max(
        abs(own - other) / max(other, 1)
        for one in found
        for at, own, other in zip(one.times_s, one.results, reference.results, strict=False)
        if at >= from_s
    )


def least_productive(results: Mapping[str, int], margin: float = 0.005) -> Check:
    """Whether the first way to choose what is pushed gives more results than the others: so its order means something.

    Pushing at random is one of the others. 300 groups in two random orders give results that differ by 0.4% (four
    runs of figure 17), so half a percent is more than chance.
    """
    low, *others = results.values()
    told = ", ".join(f"{name} {n:,}" for name, n in results.items())
    is_so = all(low > (1 + margin) * other for other in others)
    why = f"{margin:.1%} more than at random, too: orders drawn by lot differ by less"
    return Check("pushed are the least productive groups", is_so, told, "more results (4.4)", why)


def low_output(low: Measured, lot: Measured, high: Measured) -> Check:
    """Whether what is pushed are the least productive groups (4.3), of three runs."""
    return least_productive({"least productive": low.total, "random": lot.total, "most productive": high.total})
