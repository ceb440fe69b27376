"""Where groups begin, and what the grids are told of it: in one process, with the engine's own epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.regridding import GridSettings
from braidstream.control.remembered import Memory
from braidstream.epoch.regions import with_regions
from braidstream.epoch.regridder import GridRouter
from braidstream.errors import InputError
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.model.stores import Store
from braidstream.model.values import changed
from braidstream.options import FlowOptions
from tests.backends import multiset

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SECOND = 1_000_000


def harness_of(folder: Path, shares: tuple[int, ...], router: GridRouter | None = None, window_s: int = 60) -> Harness:
    inputs = {"q": [Indexed(name, name, ("k",), window_s * SECOND) for name in "RS"]}
    return Harness(folder, dict.fromkeys("RS", SCHEMA), inputs, slots=4, groups=16, shares=shares, regridder=router)


def epoch(harness: Harness, hot_share: float, rng: np.random.Generator, rows: int = 2000) -> None:
    """A second of two streams in which a key has a share of the tuples."""
    second = harness.manifest.epoch + 1
    tables = {}
    for name in "RS":
        keys = np.where(rng.random(rows) < hot_share, 7, rng.integers(1000, 60_000, rows))
        times = np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, rows))
        tables[name] = pa.table([keys, rng.integers(0, 1 << 40, rows), times], schema=SCHEMA)
    harness.epoch(tables)


@pytest.mark.parametrize(
    ("shares", "counts"), [((), [4, 4, 4, 4]), ((5, 1, 1, 1), [10, 2, 2, 2]), ((1, 100, 1, 1), [0, 15, 0, 1])]
)
def test_slots_begin_with_their_shares_of_the_groups_of_every_stage(shares: tuple[int, ...], counts: list[int]) -> None:
    directory = Directory.of(16, 4, n_stages=2, shares=shares)
    slots = [directory.region(stage).slots.tolist() for stage in (0, 1)]
    assert [[own.count(slot) for slot in range(4)] for own in slots] == [counts, counts]
    assert slots[0] == sorted(slots[0])


def test_the_groups_of_a_new_stage_count_as_many_as_they_are(tmp_path: Path) -> None:
    """A flow that was started again with many more slots gives a new stage groups for these; merging keeps as many."""
    harness = harness_of(tmp_path, ())
    manifest = harness.manifest.with_notes(changed(harness.manifest.notes, controller=Memory(base_groups=16)))
    later = Store(2, "q.1", "q", ("k",), ("k",), False, (), takes_all=True, columns=("v",), window_us=None, stage=1)
    made = with_regions(manifest, [later], 64)
    assert made.notes.controller.base_groups == len(made.directory.groups) == 16 + 64


def test_cells_of_a_heavy_key_keep_off_a_slot_with_more_light_keys(tmp_path: Path) -> None:
    """Of light keys that are dealt unevenly the default rule is told: with an even light load the cells are even."""
    loads = {}
    for name, shares in {"even": (), "uneven": (13, 1, 1, 1)}.items():
        harness = harness_of(tmp_path / name, shares, GridRouter())
        rng = np.random.default_rng(5)
        for _ in range(3):
            epoch(harness, 0.02, rng)
        (grid,) = harness.manifest.grids
        loads[name] = [grid.slots.count(slot) / len(grid.slots) for slot in range(4)]
    assert max(loads["even"]) <= 0.5
    assert loads["uneven"][0] == 0.0


def test_a_key_is_light_again_by_the_epsilon_that_was_set(tmp_path: Path) -> None:
    """With p = 4 a key is heavy above 1/4; at 0.19 it is light again with epsilon 0.05, and not with 1/8."""
    held, results = {}, {}
    for epsilon in (None, 0.05):
        harness = harness_of(tmp_path / str(epsilon), (), GridRouter(GridSettings("paper", epsilon)), window_s=2)
        rng = np.random.default_rng(6)
        for share in (0.4, 0.4, 0.19, 0.19, 0.19, 0.19, 0.19):
            epoch(harness, share, rng, rows=300)
        held[epsilon] = len(harness.manifest.grids)
        results[epsilon] = multiset(harness.results("q"))
    assert held == {None: 1, 0.05: 0}
    assert results[None] == results[0.05]
    assert GridSettings("paper", 1e-5).fineness(4) == 50_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"placement": (1, 2)}, "a share for each slot"),
        ({"placement": (1, 2), "slots": 3}, "a share for each slot"),
        ({"placement": (1, 0), "slots": 2}, "whole numbers of at least 1"),
        ({"epsilon": 0.1}, "epsilon for the paper's rule"),
        ({"epsilon": 0.2, "router": "grid", "rule": "paper", "slots": 4}, "at most 1/"),
    ],
)
def test_what_does_not_fit_the_slots_is_refused(given: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError) as refused:
        FlowOptions(**given)  # type: ignore[arg-type]
    assert expected in refused.value.expected


def test_a_heavy_foreign_key_has_a_grid_of_a_single_row(tmp_path: Path) -> None:
    """SHC 4.3.2: its primary key is one tuple, which no slot reports."""
    harness = harness_of(tmp_path, (), GridRouter(GridSettings("paper")))
    rng = np.random.default_rng(2)
    for second in range(2):
        times = np.sort(rng.integers(second * SECOND, (second + 1) * SECOND, 2000))
        numbers = np.arange(2000)
        foreign = np.where(rng.random(2000) < 0.6, 7, rng.integers(0, 4000, 2000))
        keys = {"R": numbers + 2000 * second, "S": foreign}
        harness.epoch({name: pa.table([own, numbers, times], schema=SCHEMA) for name, own in keys.items()})
    (grid,) = harness.manifest.grids
    assert grid.dims[0] == 1 < grid.dims[1]
