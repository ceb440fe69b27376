"""Runs the cases: data once for each case, then every system in a fresh process, one after the other.

A system that fails is reported as failed, with the last words of its process (`running.py`).

In several rounds every system runs once in each round, so that what disturbs the machine for a while disturbs all of
them; a rate is then the median of the rounds', an epoch's length that of all measured epochs. A system that failed is
not run again.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from braidstream.lab.bench.cases import CASES, ENOUGH_HEAP, SPARK_MEMORY, Case
from braidstream.lab.bench.running import Run, run_process

__all__ = ["SETTINGS", "Measurement", "run_bench"]

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    ENOUGH_HEAP: {"spark.driver.memory": "4g"},
    "parallel-8g": {"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-XX:+UseParallelGC"},
}
"""JVM settings, the same for both sides: Spark's defaults, which are 1 GB of heap (too little for the built-in join's
state at large epochs); Spark's defaults with 4 GB; and the parallel collector with 8 GB."""
TIME_LIMIT_S = 240
"""A few times what any system that is not short of memory needs; one that is may collect garbage for ever."""


@dataclass(frozen=True)
class Measurement:
    """One system on one workload."""

    workload: str
    system: str
    settings: str
    status: str
    rows_per_s: float | None = None
    """Of its measured epochs; of several rounds the median."""
    epoch_ms: float | None = None
    """The median epoch, of those measured."""
    best_ms: float | None = None
    """The median epoch of the quickest round: what disturbs a machine only adds."""
    peak_mb: float | None = None
    ratio_to_spark_memory: float | None = None
    stored_rows: int | None = None
    """Rows of state after the last epoch."""
    stored_bytes: int | None = None
    exchanged_bytes: int | None = None
    """Bytes that reached the slots in the last epoch."""
    matches: int | None = None
    """Results of all epochs; None where the system does not say."""
    balance: Mapping[str, float] | None = None
    """Largest over mean of the slots in the last epoch, in rows, matches and busy time."""
    heavy: Sequence[Mapping[str, object]] | None = None
    """The heavy keys after the last epoch, with their grids."""
    parts: Mapping[str, float] | None = None
    """Where the time of an epoch goes, in milliseconds: the means over those measured."""
    warm_up: float | None = None
    """The second epoch over the tenth, or the last if there are fewer: the median of the rounds."""
    note: str = ""
    checked: str = ""
    """How the results were compared with a batch join's, where they were."""
    version: str = ""
    """Of the system that ran."""


def run_bench(
    names: Iterable[str],
    settings: Iterable[str],
    folder: Path,
    tell: Callable[[Measurement], None] = lambda _: None,
    rounds: int = 1,
    systems: Collection[str] = (),
) -> list[Measurement]:
    """Measure the named cases under each of the named settings; only some systems, where these are named."""
    measured: list[Measurement] = []
    for name in names:
        case = CASES[name]
        data = folder / name
        if not (data / "S").exists():
            case.generate(data)
        for chosen in settings:
            taking_part = [system for system in case.systems_under(chosen) if not systems or system in systems]
            runs: dict[str, list[Run]] = {system: [] for system in taking_part}
            for number in range(rounds):
                base: float | None = None
                for system, own in runs.items():
                    if all(run.failure is None for run in own):
                        own.append(_run(case, system, chosen, data))
                    entry = _measured(case, system, chosen, own, base)
                    base = entry.rows_per_s if system == SPARK_MEMORY else base
                    tell(entry)
                    if number == rounds - 1:
                        measured.append(entry)
    return measured


def as_json(measured: Iterable[Measurement]) -> list[dict[str, object]]:
    """For build/bench.json."""
    return [asdict(entry) for entry in measured]


def _run(case: Case, system: str, settings: str, data: Path) -> Run:
    module = [sys.executable, "-m", "braidstream.lab.bench.child"]
    command = [*module, case.name, system, str(data), json.dumps(SETTINGS[settings])]
    run = run_process(command, TIME_LIMIT_S)
    n_epochs = len(run.printed["epoch_ms"]) - case.warm_epochs
    if run.failure is None and n_epochs < case.measured_epochs:
        return replace(run, failure=f"only {n_epochs} epochs")
    return run


def _measured(case: Case, system: str, settings: str, runs: Sequence[Run], base: float | None) -> Measurement:
    """One system's figures: over the measured epochs of all its runs."""
    peak = max((run.peak_mb for run in runs if run.peak_mb is not None), default=None)
    failure = next((run.failure for run in runs if run.failure is not None), None)
    if failure is not None:
        status = next(run.status for run in runs if run.failure is not None)
        return Measurement(case.name, system, settings, status, peak_mb=peak, note=failure)
    rounds = [run.printed["epoch_ms"][case.warm_epochs :] for run in runs]
    rows_per_s = statistics.median(len(own) * case.rows_per_epoch / (sum(own) / 1000) for own in rounds)
    ratio = rows_per_s / base if base else (1.0 if system == SPARK_MEMORY else None)
    best = min(map(statistics.median, rounds))
    middle = statistics.median(epoch for own in rounds for epoch in own)
    last = runs[-1].printed
    return Measurement(
        case.name,
        system,
        settings,
        "ok",
        rows_per_s,
        middle,
        best,
        peak,
        ratio,
        last.get("stored_rows"),
        last.get("stored_bytes"),
        last.get("exchanged_bytes"),
        last.get("matches"),
        last.get("balance"),
        last.get("heavy"),
        _parts(case, runs),
        statistics.median(run.printed["epoch_ms"][1] / run.printed["epoch_ms"][:10][-1] for run in runs),
    )


def _parts(case: Case, runs: Sequence[Run]) -> dict[str, float] | None:
    each = [parts for run in runs for parts in run.printed.get("parts", [])[case.warm_epochs :]]
    if not each:
        return None
    return {name: round(statistics.fmean(parts[name] for parts in each), 1) for name in each[0]}
