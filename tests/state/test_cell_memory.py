"""What is in the cells of heavy keys takes its room of a slot's budget: groups are pushed the earlier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from braidstream.control.overflow import GroupMemory, Overflow, fits_again, to_clean_up, to_spill
from braidstream.control.policies.spilling import GroupState
from braidstream.epoch.reorganizer import epoch_figures
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.model.directory import Directory
from braidstream.model.grids import Grid, Regrid
from braidstream.model.instructions import Decision
from braidstream.model.reports import SlotReport
from braidstream.model.stores import Store
from braidstream.state.cell_memory import bytes_in_cells, in_cells
from braidstream.state.cells import layout_of
from braidstream.state.generations import held_groups, stored_columns
from braidstream.state.manifest import Manifest, Segment

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
HEAVY = 7
FAMILY = '["R", "S"]'


def test_cells_count_at_the_slots_that_read_them() -> None:
    now, old, gone = (
        Grid(3, FAMILY, 5, (2, 1), (0, 1)),
        Grid(1, FAMILY, 5, (1, 1), (1,)),
        Grid(2, FAMILY, 9, (1, 1), (1,)),
    )
    codes = [(layout_of(now).code(0), 10), (layout_of(now).code(1), 20), (layout_of(old).code(0), 8)]
    back = (layout_of(gone).code(0), 4)
    segments = tuple(
        Segment(name, store, 50, 500, 0, 0, 9, 0, 0, (), cells=tuple(sorted(cells)))
        for name, store, cells in (("a", "R", codes), ("b", "S", [back]))
    )
    manifest = Manifest(0, Directory.of(4, 2), 2, segments, grids=(now,), retired=(old, gone))
    home = manifest.directory.at(9).slot
    expected = {0: 10 + 4, 1: 20 + 4}
    expected[home] += 4
    assert {slot: held.rows for slot, held in in_cells(manifest).items()} == expected
    assert bytes_in_cells(manifest) == {slot: 10 * rows for slot, rows in expected.items()}
    assert bytes_in_cells(manifest, {"S"}) == {home: 40}


def group(number: int, active: int, inactive: int = 0) -> GroupMemory:
    return GroupMemory(GroupState(number, 0, active, 1.0, 9, inactive > 0), inactive, int(inactive > 0), False)


def test_what_cells_take_is_not_there_for_groups() -> None:
    overflow = Overflow(1000, spill_share=0.3)
    groups = [group(0, 300), group(1, 400)]
    assert to_spill(groups, overflow, 9) == []
    assert to_spill(groups, overflow, 9, taken={0: 300}) == []
    assert to_spill(groups, overflow, 9, taken={0: 301}) == [1]
    assert to_spill(groups, overflow, 9, taken={1: 9999}) == []
    assert to_spill(groups, overflow, 9, taken={0: 1000}) == [1, 0]
    held = [group(0, 100), group(1, 0, 300)]
    assert to_clean_up(held, overflow, (), 0.0) == [1]
    assert to_clean_up(held, overflow, (), 0.0, {0: 101}) == []
    assert fits_again(held, overflow, [1], {0: 300}) == {1}
    assert fits_again(held, overflow, [1], {0: 301}) == set()


@dataclass(frozen=True)
class OneGrid:
    """Gives one key a grid after the first epoch, with both cells of it at slot 0."""

    hash: int

    def advised(
        self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]
    ) -> tuple[Manifest, list[Decision]]:
        """The grid, once."""
        del reports
        family = next(store.family for store in stores if store.family)
        regrid = Regrid(family, self.hash, Grid(1, family, self.hash, (2, 1), (0, 0)))
        return manifest, [] if manifest.grids else [Decision(manifest.epoch, "one grid", {}, (regrid,))]


def epochs(n_heavy: int) -> list[dict[str, pa.Table]]:
    made = []
    for number in range(6):
        keys = np.concatenate([np.arange(100, 150), np.full(n_heavy, HEAVY)])
        numbers = np.arange(len(keys)) + 1000 * number
        times = pa.array(np.full(len(keys), number), pa.timestamp("us", "UTC"))
        right = np.concatenate([np.arange(100, 150), [HEAVY]])
        s_times = pa.array(np.full(len(right), number), pa.timestamp("us", "UTC"))
        s_rows = pa.table([right, np.arange(len(right)) + 1000 * number, s_times], schema=SCHEMA)
        made.append({"R": pa.table([keys, numbers, times], schema=SCHEMA), "S": s_rows})
    return made


@pytest.mark.parametrize(("n_heavy", "is_pushed"), [(0, False), (400, True)])
def test_a_slot_full_of_cells_pushes_its_groups(tmp_path: Path, n_heavy: int, is_pushed: bool) -> None:
    """The groups alone fit the budget; with the cells of one key they do not, at the slot that has the cells."""
    hashes, _ = hash_columns([pa.array([HEAVY], pa.int64())])
    inputs = {"q": [Indexed(name, name, ("k",), None) for name in "RS"]}
    flow = Harness(
        tmp_path,
        dict.fromkeys("RS", SCHEMA),
        inputs,
        slots=2,
        groups=8,
        overflow=Overflow(70_000),
        regridder=OneGrid(int(hashes[0])),
    )
    given = epochs(n_heavy)
    pushed: set[int] = set()
    for tables in given:
        flow.epoch(tables)
        pushed |= {group.slot for group in held_groups(flow.manifest)}
    last = flow.runner.progress[-1]
    assert pushed == ({0} if is_pushed else set())
    assert last.cell_rows[1] == last.cell_bytes[1] == 0
    assert (last.cell_rows[0] > 1500, last.cell_bytes[0] > 30_000) == (is_pushed, is_pushed)
    assert sum(last.slot_bytes) == pytest.approx(last.active_bytes, abs=10)
    now = flow.manifest
    seen = epoch_figures(now, []).columns(stored_columns(now), bytes_in_cells(now), [""] * now.n_slots)
    assert seen.bytes.tolist() == pytest.approx(last.slot_bytes, abs=10)
    flow.finish()
    found = Counter((row["R.v"], row["S.v"]) for row in flow.results("q"))
    sides = [[row for tables in given for row in tables[name].to_pylist()] for name in "RS"]
    assert found == Counter((r["v"], s["v"]) for r in sides[0] for s in sides[1] if r["k"] == s["k"])
