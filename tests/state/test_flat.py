"""Nothing grows with the length of a run: what a flow keeps after hundreds of epochs is what it kept after dozens."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.overflow import Overflow
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.state.manifest import Manifest, manifest_name

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
N_ROWS, N_EPOCHS, WINDOW = 60, 150, 12
"""Rows an epoch and stream, one microsecond each; the window is that many epochs long."""


def epoch_of(number: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(number)
    times = pa.array(np.arange(N_ROWS) + number * N_ROWS, pa.timestamp("us", "UTC"))
    return {name: pa.table([rng.integers(0, 50, N_ROWS), np.arange(N_ROWS), times], schema=SCHEMA) for name in "RS"}


@pytest.mark.slow
def test_a_long_run_with_a_budget_keeps_what_a_short_one_keeps(tmp_path: Path) -> None:
    """Far below the window's state, so that all the time groups are pushed, and cleaned up before they expire."""
    inputs = {"q": [Indexed(name, name, ("k",), WINDOW * N_ROWS) for name in "RS"]}
    overflow = Overflow(20_000)
    flow = Harness(tmp_path, dict.fromkeys("RS", SCHEMA), inputs, slots=2, groups=8, overflow=overflow, keep=3)
    kept: dict[str, list[float]] = {name: [] for name in ("manifest", "files", "disk", "state", "segments", "objects")}
    pushed = recovered = 0
    for number in range(N_EPOCHS):
        flow.epoch(epoch_of(number))
        entry = flow.runner.progress[-1]
        pushed += entry.spilled_groups
        recovered += sum(entry.recovered.values())
        kept["manifest"].append(len(flow.runner.checkpoint.files.read(manifest_name(number))))
        files = [path.stat().st_size for path in (tmp_path / "ck" / "segments").iterdir()]
        kept["files"].append(len(files))
        kept["disk"].append(sum(files))
        kept["segments"].append(entry.segments)
        kept["state"].append(entry.state_rows)
        if number % 10 == 9:
            flow.runner.progress.clear()  # it keeps 200, however long the run
            flow.runner.flow.decider.decisions.clear()  # a bounded number of them as well, more than this run has
            gc.collect()
            kept["objects"].append(len(gc.get_objects()))
    assert pushed > N_EPOCHS
    assert recovered > 1000
    for what, sizes in kept.items():
        third = len(sizes) // 3
        early, late = max(sizes[third : 2 * third]), max(sizes[2 * third :])
        slack = 1.3 if what != "objects" else 1.1
        assert late <= slack * early, (what, json.dumps(sizes))
    assert Manifest.epochs(flow.runner.checkpoint.files) == [N_EPOCHS - 3, N_EPOCHS - 2, N_EPOCHS - 1]
