"""Shedding measured on the engine: reported intervals contain the truth, and the planner's slots are enough.

The hundred random runs and most of the planner's are for acceptance; the other tests take a few of each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braidstream.control.completeness import Load, completeness_engine, nodes_for
from braidstream.control.overflow import Overflow
from braidstream.control.shedding import STRATEGIES
from braidstream.lab.testing.batch import BatchStream, batch_join
from braidstream.lab.testing.trials import SECOND_US, Outcome, Trial
from braidstream.model.dead_rows import FIRST_BITS

RATE, WINDOW_S, SLOTS_FOR_ALL, KEYS = 1500, 12, 8, 20_000
"""So many keys and tuples that slots are about even: the planner takes it that they are."""


def outcomes(seeds: range, folder: Path) -> list[Outcome]:
    return [Trial.random(seed).run(folder / str(seed)) for seed in seeds]


@pytest.mark.slow
def test_a_few_random_runs(tmp_path: Path) -> None:
    found = outcomes(range(1000, 1004), tmp_path)
    assert sum(one.contains for one in found) >= 3
    assert any(one.truth < 0.9 for one in found)


@pytest.mark.acceptance
def test_the_interval_contains_the_truth_in_95_of_100_random_runs(tmp_path: Path) -> None:
    found = outcomes(range(100), tmp_path)
    inside = sum(one.contains for one in found)
    in_epochs = [sum(side) for side in zip(*(one.epochs_contained for one in found), strict=True)]
    print(f"{inside} of 100 runs, {in_epochs[0]} of {in_epochs[1]} epochs")
    assert inside >= 95
    assert in_epochs[0] >= 0.95 * in_epochs[1]


def shrinking(seed: int) -> Trial:
    """Many results and so little memory that the sample shrinks while the windows fill."""
    draw = np.random.default_rng(seed)
    m, by = (2, 2, 2, 3)[seed % 4], STRATEGIES[seed % 3]
    rates = (int(draw.integers(800, 1500)),) * 2 if m == 2 else (int(draw.integers(300, 500)),) * 3
    return Trial(seed, rates, (5,) * m, 1500, float(draw.uniform(0, 0.5)), 0.15, by, groups=8, epochs=14)


def test_a_run_whose_sample_shrinks(tmp_path: Path) -> None:
    found = shrinking(0).run(tmp_path)
    assert found.bits > FIRST_BITS
    assert found.contains
    inside, epochs = found.so_far_contained
    assert inside >= 0.9 * epochs


@pytest.mark.acceptance
def test_the_interval_so_far_contains_the_truth_where_samples_shrink(tmp_path: Path) -> None:
    """For all ways to shed, 2-way and 3-way: at the end of runs, and in all of their epochs."""
    found = [shrinking(seed).run(tmp_path / str(seed)) for seed in range(48)]
    inside, epochs = (sum(side) for side in zip(*(one.so_far_contained for one in found), strict=True))
    ended = sum(one.contains for one in found)
    print(f"{ended} of {len(found)} runs, {inside} of {epochs} epochs")
    assert sum(one.bits > FIRST_BITS for one in found) >= 40
    assert ended >= 0.94 * len(found)
    assert inside >= 0.95 * epochs


def test_the_truth_is_the_batch_joins(tmp_path: Path) -> None:
    import pyarrow as pa

    trial = replace(Trial.random(1000), epochs=6)
    epochs = list(trial.tables())
    names = list(epochs[0])
    streams = [
        BatchStream(name, pa.concat_tables([tables[name] for tables in epochs]), window * SECOND_US)
        for name, window in zip(names, trial.windows_s, strict=True)
    ]
    equalities = [(f"{names[0]}.k", f"{name}.k") for name in names[1:]]
    assert sum(trial.run(tmp_path).whole) == batch_join(streams, equalities, {"k": f"{names[0]}.k"}).num_rows


MARKS: dict[Any, Any] = {(2, 0.5, "oldest"): [], (3, 0.8, "random"): pytest.mark.slow}
CASES: list[Any] = [
    pytest.param(m, wanted, by, marks=MARKS.get((m, wanted, by), pytest.mark.acceptance))
    for m in (2, 3)
    for wanted in (0.5, 0.8, 0.95)
    for by in ("oldest", "random")
]


@pytest.mark.parametrize(("m", "wanted", "by"), CASES)
def test_the_planners_slots_reach_the_wanted_completeness(tmp_path: Path, m: int, wanted: float, by: str) -> None:
    """Even keys, as the analysis supposes (DHTJoin 5); counted once the windows are full."""
    trial = Trial(7, (RATE,) * m, (WINDOW_S,) * m, KEYS, 0.0, 1.0, by, groups=64, epochs=3 * WINDOW_S)
    whole = trial.harness(tmp_path / "whole", None)
    for tables in trial.tables():
        whole.epoch(tables)
    largest = max(whole.manifest.segments, key=lambda segment: segment.rows)
    tuple_bytes = largest.bytes / largest.rows
    room = RATE * WINDOW_S / SLOTS_FOR_ALL
    loads = [Load(RATE, WINDOW_S, room)] * m
    model = partial(completeness_engine, epoch_s=1.0, by=by)
    n = nodes_for(loads, wanted, model)
    memory = Overflow(round(m * room * tuple_bytes), "shed", shed_by=by)
    shedding = replace(trial, slots=n).harness(tmp_path / "shed", memory)
    for tables in trial.tables():
        shedding.epoch(tables)
    found, everything = (
        sum(entry.matches["q"] for entry in list(harness.runner.progress)[2 * WINDOW_S :])
        for harness in (shedding, whole)
    )
    measured, planned = found / everything, model(loads, n)
    print(f"{m}-way, {by}: wanted {wanted}, {n} slots, planned {planned:.3f}, measured {measured:.3f}")
    assert measured >= wanted - 0.03
    assert measured == pytest.approx(planned, abs=0.03)
