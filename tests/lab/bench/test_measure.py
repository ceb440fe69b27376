"""The benchmark's bookkeeping: rounds, medians, ratios and failures, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidstream.lab.bench import measure
from braidstream.lab.bench.cases import BRAIDSTREAM, CASES, ENOUGH_HEAP, HASH, SPARK_MEMORY

CASE = CASES["skew-50"]


class Machine:
    """Stands in for the processes: each run of a system takes the next of its epochs' times."""

    def __init__(self, times: dict[str, list[float | None]]) -> None:
        self.times, self.ran = times, list[str]()

    def run(self, case: Any, system: str, settings: str, data: Path) -> measure.Run:
        self.ran.append(system)
        took = self.times[system].pop(0)
        if took is None:
            return measure.Run({"epoch_ms": []}, 100.0, "java.lang.OutOfMemoryError")
        epochs = [9_999.0] * case.warm_epochs + [took] * case.measured_epochs
        return measure.Run({"epoch_ms": epochs, "matches": 7}, 1000.0 + took)


def measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: dict[str, list[float | None]], rounds: int
) -> tuple[Machine, dict[str, measure.Measurement]]:
    machine = Machine(times)
    monkeypatch.setattr(measure, "_run", machine.run)
    monkeypatch.setattr(type(CASE), "generate", lambda *_: None)
    monkeypatch.setattr(type(CASE), "systems_under", lambda *_: tuple(times))
    found = measure.run_bench([CASE.name], [ENOUGH_HEAP], tmp_path, rounds=rounds)
    return machine, {entry.system: entry for entry in found}


def test_systems_take_turns_and_figures_are_over_all_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times: dict[str, list[float | None]] = {SPARK_MEMORY: [1000, 3000, 2000], BRAIDSTREAM: [400, 500, 900]}
    machine, found = measured(monkeypatch, tmp_path, times, rounds=3)
    assert machine.ran == [SPARK_MEMORY, BRAIDSTREAM] * 3
    assert found[SPARK_MEMORY].epoch_ms == 2000
    assert (found[BRAIDSTREAM].epoch_ms, found[BRAIDSTREAM].best_ms) == (500, 400)
    assert found[BRAIDSTREAM].rows_per_s == pytest.approx(CASE.rows_per_epoch / 0.5)
    assert found[BRAIDSTREAM].ratio_to_spark_memory == pytest.approx(4.0)
    assert found[BRAIDSTREAM].peak_mb == 1900


def test_a_system_that_failed_is_reported_and_not_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times: dict[str, list[float | None]] = {SPARK_MEMORY: [1000, None, 1000], HASH: [400, 400, 400]}
    machine, found = measured(monkeypatch, tmp_path, times, rounds=3)
    assert machine.ran == [SPARK_MEMORY, HASH, SPARK_MEMORY, HASH, HASH]
    assert (found[SPARK_MEMORY].status, found[SPARK_MEMORY].rows_per_s) == ("failed", None)
    assert "OutOfMemory" in found[SPARK_MEMORY].note
    assert (found[HASH].status, found[HASH].ratio_to_spark_memory) == ("ok", None)
