"""Runs the workloads: streams once, the answer by DuckDB, then every system in turn, round after round.

First each system answers a small part, an epoch and the first file of the next, and the number of its results and the
sum over them are compared with DuckDB's; one that is wrong is shown so, and not timed. Then all take turns. A system's
rate is the median of its rounds: of one that has epochs over those after the first (`Workload.epochs`), of one that has
none over all its rows. Where a system counts its results while it is timed, they are compared too.

Invariant: a figure is of a run whose answer was not found wrong. A system that fails, or cannot, is in the result with
the reason. Cost: as long as the systems take, each at most `systems.LIMIT_S` a round.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from braidstream.lab.bench.cases import ENOUGH_HEAP
from braidstream.lab.bench.measure import Measurement
from braidstream.lab.bench.peers.recorded import WRONG, with_ratios
from braidstream.lab.bench.peers.systems import run_system, why_not
from braidstream.lab.bench.peers.workloads import Workload
from braidstream.lab.bench.running import Run

__all__ = ["CANNOT", "Comparison", "answer"]

CANNOT = "cannot"

Tell = Callable[[Measurement], None]


@dataclass(frozen=True)
class Comparison:
    """What is compared, where the streams are and where the peers' environments."""

    folder: Path
    root: Path
    rounds: int = 3
    is_checked: bool = True
    is_timed: bool = True

    def run(self, workloads: Iterable[Workload], systems: Collection[str], tell: Tell) -> list[Measurement]:
        """Measure the workloads on some systems, or on all."""
        measured: list[Measurement] = []
        for workload in workloads:
            chosen = [system for system in workload.systems if not systems or system in systems]
            if not (self.folder / workload.folder).exists():
                workload.write(self.folder / workload.folder)
            measured += self._compare(workload, chosen, tell)
        return measured

    def _compare(self, workload: Workload, systems: list[str], tell: Tell) -> list[Measurement]:
        entries = {system: self._begun(workload, system, tell) for system in systems}
        runs: dict[str, list[Run]] = {system: [] for system in systems}
        counts: dict[tuple[Path, bool], int] = {}
        for _ in range(self.rounds if self.is_timed else 0):
            for system, own in runs.items():
                if entries[system].status != "ok" or any(run.failure for run in own):
                    continue
                data = self._part(workload, sum(workload.epochs(system)) * workload.files_per_epoch)
                own.append(run_system(workload, system, data, self.root, is_check=False))
                entries[system] = _measured(workload, entries[system], own)
                if entries[system].matches is not None and len(own) == 1:
                    is_decided = system in workload.only_decided
                    if (data, is_decided) not in counts:
                        counts[data, is_decided] = answer(workload, data, is_decided=is_decided)[0]
                    entries[system] = _as_many(entries[system], counts[data, is_decided])
                tell(entries[system])
        return with_ratios(list(entries.values()))

    def _begun(self, workload: Workload, system: str, tell: Tell) -> Measurement:
        """What is known of a system before it is timed."""
        entry = Measurement(workload.name, system, ENOUGH_HEAP, "ok", note=workload.note)
        reason = why_not(workload, system, self.root)
        if reason is not None:
            return replace(entry, status=CANNOT, note=reason)
        if self.is_checked:
            entry = self._checked(workload, entry)
            tell(entry)
        return entry

    def _checked(self, workload: Workload, entry: Measurement) -> Measurement:
        data = self._part(workload, workload.files_per_epoch + 1)
        run = run_system(workload, entry.system, data, self.root, is_check=True)
        if run.failure is not None:
            return replace(entry, status=run.status, note=run.failure, peak_mb=run.peak_mb)
        found = (run.printed.get("results"), run.printed.get("checksum"))
        expected = answer(workload, data, is_decided=entry.system in workload.only_decided)
        if found != expected:
            return replace(entry, status=WRONG, note=f"results and their sum are {found}, DuckDB's are {expected}")
        what = "decided results" if entry.system in workload.only_decided else "results"
        return replace(entry, checked=f"{found[0]:,} {what} and their sum", version=run.printed.get("version", ""))

    def _part(self, workload: Workload, n_files: int) -> Path:
        """The folder with the first files of each stream: links to them, and each stream as one file."""
        part = self.folder / f"{workload.folder}-{n_files}"
        for name in workload.streams:
            if not (part / "merged" / f"{name}.parquet").exists():
                shutil.rmtree(part / name, ignore_errors=True)
                (part / name).mkdir(parents=True)
                files = sorted((self.folder / workload.folder / name).glob("*.parquet"))
                for file in files[:n_files]:
                    os.link(file, part / name / file.name)
                _merge(part, name)
        return part


def answer(workload: Workload, data: Path, *, is_decided: bool = False) -> tuple[int, int]:
    """How many results DuckDB finds, and the sum over them."""
    connection = duckdb.connect()
    for name in workload.streams:
        files = f"read_parquet('{data / name}/*.parquet')"
        connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE (epoch_us(ts) AS ts) FROM {files}")
    text = workload.decided if is_decided else workload.duckdb
    found = connection.execute(f"SELECT COUNT(*), SUM({workload.check}) FROM ({text})").fetchone() or (0, 0)
    return int(found[0]), int(found[1] or 0)


def _as_many(entry: Measurement, expected: int) -> Measurement:
    """The measurement, if it has as many results as it should."""
    if entry.matches == expected:
        return entry
    note = f"{entry.matches:,} results, DuckDB has {expected:,}"
    return replace(entry, status=WRONG, note=note, rows_per_s=None, epoch_ms=None)


def _merge(part: Path, name: str) -> None:
    """All files of a stream as one, with their rows in the same groups."""
    (part / "merged").mkdir(exist_ok=True)
    unfinished = part / "merged" / f".{name}"
    files = sorted((part / name).glob("*.parquet"))
    with pq.ParquetWriter(unfinished, pq.read_schema(files[0]), compression="none", use_dictionary=False) as writer:
        for file in files:
            writer.write_table(pq.read_table(file))
    unfinished.rename(part / "merged" / f"{name}.parquet")


def _measured(workload: Workload, entry: Measurement, runs: list[Run]) -> Measurement:
    """A system's figures over its rounds so far."""
    last, peak = runs[-1], max((run.peak_mb or 0.0 for run in runs), default=None)
    if last.failure is not None:
        return replace(entry, status=last.status, note=last.failure, peak_mb=peak, rows_per_s=None, epoch_ms=None)
    warm, measured = workload.epochs(entry.system)
    found = last.printed.get("results", last.printed.get("matches") if workload.how == "inner" else None)
    rows = workload.rows_per_epoch * (warm + measured)
    epochs = [run.printed["epoch_ms"][warm : warm + measured] for run in runs]
    if len(epochs[-1]) == measured:
        rates = [workload.rows_per_epoch * measured / (sum(own) / 1000) for own in epochs]
        middle: float | None = statistics.median(ms for own in epochs for ms in own)
    else:
        rates, middle = [rows / run.printed["seconds"] for run in runs], None
    return replace(
        entry,
        rows_per_s=statistics.median(rates),
        epoch_ms=middle,
        peak_mb=peak,
        matches=found,
        version=last.printed.get("version", entry.version),
    )
