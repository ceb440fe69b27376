"""WSJ's rules on the engine without Spark: theta and buddies by bytes, and slots given up as the paper says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.state import generations
from tests.backends import multiset

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SECOND, WINDOW, GROUPS = 1_000_000, 4, 2
THETA = 16 << 10


def harness_of(folder: Path, settings: Settings | None, slots: int = 2) -> Harness:
    inputs = [Indexed(name, name, ("k",), WINDOW * SECOND) for name in "RS"]
    controller = None if settings is None else Controller(settings)
    return Harness(
        folder, dict.fromkeys("RS", SCHEMA), {"q": inputs}, slots=slots, groups=GROUPS, controller=controller
    )


def run(harness: Harness, rows: list[int], seed: int = 3) -> list[int]:
    """An epoch of a second for each number of rows; gives the groups after each."""
    rng, found = np.random.default_rng(seed), []
    for n in rows:
        second = harness.manifest.epoch + 1
        times = np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, n))
        tables = {
            name: pa.table([rng.integers(0, 5000, n), rng.integers(0, 1 << 40, n), times], schema=SCHEMA)
            for name in "RS"
        }
        harness.epoch(tables)
        found.append(len(harness.manifest.directory))
    return found


def sizes(harness: Harness) -> list[float]:
    held = generations.account(harness.manifest, {store.name for store in harness.runner.flow.plan.stores})
    return [held[group.id].active_bytes for group in harness.manifest.directory.groups]


def test_groups_are_split_above_two_theta_and_merged_with_their_buddies_below(tmp_path: Path) -> None:
    """The window fills to many theta, and empties again."""
    rows = [800] * 12 + [4] * 20
    harness = harness_of(tmp_path / "theta", Settings(every=1, theta=THETA))
    n_groups = run(harness, rows[:12])
    assert max(sizes(harness)) <= 2.2 * THETA  # what was merged or came since the last look
    assert n_groups[-1] > 3 * GROUPS
    n_groups = run(harness, rows[12:], seed=4)
    assert n_groups[-1] == GROUPS
    plain = harness_of(tmp_path / "plain", None)
    assert set(run(plain, rows[:12]) + run(plain, rows[12:], seed=4)) == {GROUPS}
    assert multiset(harness.results("q")) == multiset(plain.results("q"))
    by_load = harness_of(tmp_path / "load", Settings(every=1, epoch_s=1000.0))
    assert set(run(by_load, rows[:12])) == {GROUPS}


@pytest.mark.parametrize(("rule", "left"), [("paper", 1), ("steady", 3)])
def test_the_papers_rule_gives_a_slot_up_whenever_nobody_is_a_supplier(tmp_path: Path, rule: str, left: int) -> None:
    settings = Settings(every=1, epoch_s=1000.0, declustering=True, declustering_rule=rule, patience=3)
    harness = harness_of(tmp_path, settings, slots=4)
    run(harness, [20] * 3)
    assert harness.manifest.n_slots == left
