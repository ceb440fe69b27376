"""A restart in the middle of a reorganization epoch changes no decision: its reports wait in the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.epoch import reorganizer as reorganize
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.model.faults import InjectedFault, armed
from braidstream.model.figures import WaitingFigures
from braidstream.model.instructions import Decision
from braidstream.model.packed_numbers import Column
from braidstream.model.values import changed
from braidstream.state.manifest import Manifest

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
EVERY, N_EPOCHS = 4, 16
ROWS_OF_EPOCH = (400, 40, 40, 40)
"""Most rows come early in a reorganization epoch: whoever forgets them decides otherwise."""


@pytest.fixture(autouse=True)
def _busy_by_work() -> Any:
    """A row or match takes a millisecond: measured times would make every run's decisions its own."""
    measured = reorganize.epoch_figures

    def priced(manifest: Manifest, reports: Sequence[Any]) -> WaitingFigures:
        return _priced(measured(manifest, reports))

    with mock.patch.object(reorganize, "epoch_figures", priced):
        yield


def _priced(one: WaitingFigures) -> WaitingFigures:
    busy_s = Column.of((one.rows.whole + one.matches.whole) / 1000)
    group_busy_s = Column.of((one.group_rows.whole + one.group_matches.whole) / 1000)
    return changed(one, busy_s=busy_s, group_busy_s=group_busy_s)


def epoch_tables(epoch: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(epoch)
    made = {}
    for stream in ("R", "S"):
        n = ROWS_OF_EPOCH[epoch % EVERY]
        keys = rng.zipf(1.3, n) % 500
        times = epoch * 1_000_000 + np.sort(rng.integers(0, 1_000_000, n))
        made[stream] = pa.table([keys, np.arange(n), pa.array(times, pa.timestamp("us", tz="UTC"))], schema=SCHEMA)
    return made


def harness(folder: Path) -> Harness:
    join = [Indexed("R", "R", ("k",), 1_000_000), Indexed("S", "S", ("k",), 1_000_000)]
    settings = Settings(every=EVERY, min_slots=1, max_slots=4, declustering=True, epoch_s=0.1)
    controller = Controller(settings)
    return Harness(folder, dict.fromkeys(("R", "S"), SCHEMA), {"q": join}, slots=2, groups=16, controller=controller)


def decisions_of(one: Harness) -> list[Decision]:
    return list(one.runner.flow.decider.decisions)


def run(folder: Path, restarts: bool, fault: str = "") -> tuple[list[Decision], Directory, int]:
    one, decided = harness(folder), []
    for epoch in range(N_EPOCHS):
        if fault:
            with armed(f"{fault}:{epoch}:raise"), pytest.raises(InjectedFault):
                one.epoch(epoch_tables(epoch))
        if restarts:
            one.restart(directory=one.manifest.directory)
        if one.manifest.epoch < epoch:
            one.epoch(epoch_tables(epoch))
        decided += decisions_of(one) if restarts else []
    decided = decided if restarts else decisions_of(one)
    return decided, one.manifest.directory, one.manifest.n_slots


def test_decisions_are_the_same_with_a_restart_before_every_epoch(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", restarts=False)
    assert sum(bool(decision.instructions) for decision in calm[0]) >= 3
    assert run(tmp_path / "restarted", restarts=True) == calm


def test_decisions_are_the_same_when_every_epoch_dies_before_its_commit_and_is_replayed(tmp_path: Path) -> None:
    assert run(tmp_path / "died", True, "before-manifest") == run(tmp_path / "calm", restarts=False)


def test_the_reports_are_gone_from_the_manifest_after_the_decision(tmp_path: Path) -> None:
    one, waiting = harness(tmp_path), []
    for epoch in range(2 * EVERY):
        one.epoch(epoch_tables(epoch))
        waiting.append(len(one.manifest.notes.reports.figures))
    n_slots = one.manifest.n_slots
    assert waiting[EVERY - 1] == waiting[-1] == 0
    assert waiting[:3] == [2, 4, 6]
    assert all(count > 0 for count in waiting[EVERY:-1])
    assert n_slots >= 1


def test_a_restart_with_other_slots_begins_to_collect_anew(tmp_path: Path) -> None:
    """Reports of two slots say nothing of what three of them will do."""
    one = harness(tmp_path)
    for epoch in range(2):
        one.epoch(epoch_tables(epoch))
    one.restart(slots=3)
    one.epoch(epoch_tables(2))
    assert {(kept.slot, kept.epoch) for kept in one.manifest.notes.reports.figures} == {(0, 2), (1, 2), (2, 2)}
