"""Runs the cases: data once for each case, then every system in a fresh process, one after the other.

Memory is the sum over the driver, its JVM and the Python workers, each counted by its proportional share of pages, read
from /proc a few times a second; the peak of that sum is reported. A system that fails is reported as failed.

In several rounds every system runs once in each round, so that what disturbs the machine for a while disturbs all of
them; the figures are then over the measured epochs of all rounds. A system that failed is not run again.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from braidstream.lab.bench.cases import CASES, ENOUGH_HEAP, SPARK_MEMORY, Case
from braidstream.lab.bench.printed import Printed
from braidstream.lab.bench.processes import tree

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
            runs: dict[str, list[_Run]] = {system: [] for system in taking_part}
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


_NOTHING: Printed = {"epoch_ms": []}


@dataclass(frozen=True)
class _Run:
    """One process: what it printed, its peak of memory in MB, and why it failed, if it did."""

    printed: Printed
    peak_mb: float | None
    failure: str | None = None


def _run(case: Case, system: str, settings: str, data: Path) -> _Run:
    module = [sys.executable, "-m", "braidstream.lab.bench.child"]
    command = [*module, case.name, system, str(data), json.dumps(SETTINGS[settings])]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = _Memory(child.pid)
    try:
        out, err = child.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return _Run(_NOTHING, None, f"not done after {TIME_LIMIT_S} s")
    finally:
        peak = watch.stop()
    if child.returncode != 0:
        reason = next((line for line in reversed(err.splitlines()) if "Error" in line or "Exception" in line), "")
        return _Run(_NOTHING, peak, reason[:300])
    printed: Printed = json.loads(out.splitlines()[-1])
    n_epochs = len(printed["epoch_ms"]) - case.warm_epochs
    return _Run(printed, peak, f"only {n_epochs} epochs" if n_epochs < case.measured_epochs else None)


def _measured(case: Case, system: str, settings: str, runs: Sequence[_Run], base: float | None) -> Measurement:
    """One system's figures: over the measured epochs of all its runs."""
    peak = max((run.peak_mb for run in runs if run.peak_mb is not None), default=None)
    failure = next((run.failure for run in runs if run.failure is not None), None)
    if failure is not None:
        return Measurement(case.name, system, settings, "failed", peak_mb=peak, note=failure)
    epochs = [epoch for run in runs for epoch in run.printed["epoch_ms"][case.warm_epochs :]]
    rows_per_s = len(epochs) * case.rows_per_epoch / (sum(epochs) / 1000)
    ratio = rows_per_s / base if base else (1.0 if system == SPARK_MEMORY else None)
    best = min(statistics.median(run.printed["epoch_ms"][case.warm_epochs :]) for run in runs)
    middle = statistics.median(epochs)
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


def _parts(case: Case, runs: Sequence[_Run]) -> dict[str, float] | None:
    each = [parts for run in runs for parts in run.printed.get("parts", [])[case.warm_epochs :]]
    if not each:
        return None
    return {name: round(statistics.fmean(parts[name] for parts in each), 1) for name in each[0]}


class _Memory:
    """Watches the memory of a process and all its children."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak = pid, 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The peak in MB."""
        self._done.set()
        self._thread.join()
        return round(self._peak, 1)

    def _watch(self) -> None:
        while not self._done.wait(0.3):
            self._peak = max(self._peak, sum(_share_mb(pid) for pid in tree(self._pid)))


def _share_mb(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        return 0.0
    return 0.0
