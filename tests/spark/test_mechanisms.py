"""The papers' mechanisms on local Spark, as a user asks for them: each case fails without its mechanism.

Results are the batch join's in every case but shedding, where they are a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.control.controller import Controller
from braidstream.control.probing import probing_order
from braidstream.control.settings import Settings
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import append_files
from braidstream.model.directory import address_of
from braidstream.model.instructions import Spill
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DDL = "k long, v long, ts timestamp"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
SECOND, N_EPOCHS = 1_000_000, 4
Check = Callable[[Handle], bool]


def write(folder: Path, rows: Sequence[int], hot: Sequence[float], keys: tuple[int, int], seed: int) -> Path:
    """Two streams of ten seconds an epoch: so many rows in each, of which one key has a share."""
    rng = np.random.default_rng(seed)
    for epoch, (n, share) in enumerate(zip(rows, hot, strict=True)):
        for name in "RS":
            drawn = np.where(rng.random(n) < share, 77, rng.integers(*keys, n))
            times = np.sort(rng.integers(epoch * 10 * SECOND, (epoch + 1) * 10 * SECOND, n))
            append_files(folder / name, [pa.table([drawn, rng.integers(0, 1 << 40, n), times], schema=SCHEMA)])
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One key has nearly half of the tuples for half of the time."""
    return write(tmp_path_factory.mktemp("streams"), [800] * N_EPOCHS, [0.4, 0.4, 0.02, 0.02], (1000, 3000), 3)


@pytest.fixture(scope="module")
def shrinking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No frequent key; after half of the time hardly anything comes, and the windows empty."""
    return write(tmp_path_factory.mktemp("shrinking"), [800] * 3 + [10] * 4, [0.0] * 7, (1000, 3000), 4)


@pytest.fixture(scope="module")
def mostly_light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that is heavy by its matches, and has a fiftieth of the tuples."""
    return write(tmp_path_factory.mktemp("light"), [2000] * 3, [0.02] * 3, (1000, 60_000), 5)


def run(spark: SparkSession, folder: Path, out: Path, settings: Settings | None, options: dict[str, Any]) -> Handle:
    controller = False if settings is None else Controller(settings)
    flow = Flow(spark, controller=controller, **{"slots": 2, "groups": 4, "router": "hash", **options})
    for name in "RS":
        flow.files(name, folder / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    text = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 15 SECONDS], S [RANGE 15 SECONDS] WHERE R.k = S.k"
    flow.query(text, name="q").to("parquet", path=str(out / "out"))
    handle = flow.start(out / "ck", warm=False)
    handle.await_termination()
    return handle


def rules(handle: Handle) -> set[str]:
    return {decision.rule for decision in handle.decisions if decision.instructions}


def shares(handle: Handle) -> list[int]:
    slots = handle.manifest.directory.columns().slots.tolist()
    return [slots.count(slot) for slot in range(handle.manifest.n_slots)]


CASES: dict[str, tuple[dict[str, Any] | None, dict[str, Any], Check]] = {
    "WSJ V-A: by the paper's rule a slot is given up whenever nobody is a supplier": (
        {"epoch_s": 1000.0, "declustering": True, "declustering_rule": "paper", "patience": 100},
        {"slots": 3},
        lambda handle: handle.manifest.n_slots < 3,
    ),
    "D-CAPE 5.2: groups begin where they are told": (
        None,
        {"placement": [3, 1]},
        lambda handle: shares(handle) == [3, 1],
    ),
    "D-CAPE 6: lazy-disk pushes what does not fit": (
        {"epoch_s": 1000.0, "disk": "lazy", "memory_bytes": 8_000},
        {"memory": "1 MB"},
        lambda handle: "spilling" in rules(handle),
    ),
    "D-CAPE 6: active-disk pushes poor groups early": (
        {"epoch_s": 1000.0, "disk": "active", "memory_bytes": 200_000, "memory_above": 0.0, "memory_ratio": 0.01,
         "rate_ratio": 1.01, "query_bytes": 1 << 30},
        {"memory": "1 MB"},
        lambda handle: any(
            isinstance(one, Spill) and one.forced for made in handle.decisions for one in made.instructions
        ),
    ),
    "DHTJoin 6: a slot above delta of its memory takes a partner": (
        {"epoch_s": 1000.0, "delta": 0.3},
        {"memory": "100 kB", "groups": 1},
        lambda handle: rules(handle) == {"partners"} and shares(handle) == [1, 1],
    ),
    "SHC 3.2: a key is light again by the epsilon that was set": (
        None,
        {"router": "grid", "rule": "paper", "epsilon": 0.01, "slots": 3},
        lambda handle: [len(entry.heavy) for entry in handle.progress] == [1, 1, 0, 0],  # without: 1, 1, 1, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "options", "check"), CASES.values(), ids=CASES.keys())
def test_a_mechanism_works_and_changes_no_result(
    spark: SparkSession,
    folder: Path,
    tmp_path: Path,
    settings: dict[str, Any] | None,
    options: dict[str, Any],
    check: Check,
) -> None:
    known = None if settings is None else Settings(every=1, **settings)
    handle = run(spark, folder, tmp_path, known, options)
    assert check(handle), [one.explain() for one in handle.decisions]
    assert results_as_in_batch(folder, tmp_path) > 10_000


def results_as_in_batch(folder: Path, out: Path) -> int:
    """How many there are; that they are right is asserted."""
    streams = [BatchStream(name, folder / name, 15 * SECOND) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"rv": "R.v", "sv": "S.v"})
    difference = same_rows(out / "out", expected)
    assert difference, str(difference)
    return int(expected.num_rows)


def test_groups_are_split_above_two_theta_and_merged_with_their_buddies_as_they_shrink(
    spark: SparkSession, shrinking: Path, tmp_path: Path
) -> None:
    """WSJ IV-D."""
    handle = run(spark, shrinking, tmp_path, Settings(every=1, epoch_s=1000.0, theta="4 kB"), {})
    groups = [entry.groups for entry in handle.progress]
    assert rules(handle) == {"tuning", "merging"}
    assert max(groups) > 4
    assert len(handle.manifest.directory) < max(groups)
    assert results_as_in_batch(shrinking, tmp_path) > 500


def test_cells_of_a_heavy_key_keep_off_the_slot_with_most_light_keys(
    spark: SparkSession, mostly_light: Path, tmp_path: Path
) -> None:
    """SHC 3.2: the default rule is told the light load."""
    options = {"router": "grid", "slots": 4, "groups": 16, "placement": [13, 1, 1, 1]}
    handle = run(spark, mostly_light, tmp_path, None, options)
    (key,) = handle.progress[-1].heavy
    assert 0 not in key.slots
    assert results_as_in_batch(mostly_light, tmp_path) > 1000


@pytest.mark.parametrize(("push_by", "is_first"), [("unproductive", False), ("productive", True)])
def test_what_is_pushed_first_is_what_was_asked_for(
    spark: SparkSession, folder: Path, tmp_path: Path, push_by: str, is_first: bool
) -> None:
    """D-CAPE 4.4: the group of the hot key has nearly all results."""
    handle = run(spark, folder, tmp_path, None, {"memory": "45 kB", "push_by": push_by, "groups": 16})
    hot = handle.manifest.directory.at(address_of(0, int(hash_columns([pa.array([77])])[0][0]))).id
    assert (hot in spills(handle)[0]) == is_first
    assert results_as_in_batch(folder, tmp_path) > 10_000


@pytest.mark.parametrize(("own", "is_all"), [({}, True), ({"spill_share": 0.1}, False)])
def test_what_the_controller_pushes_is_said_once_with_the_budget(
    spark: SparkSession, folder: Path, tmp_path: Path, own: dict[str, Any], is_all: bool
) -> None:
    """D-CAPE 6: `[control]` has the flow's `spill_share`, unless it says another."""
    settings = Settings(every=1, epoch_s=1000.0, disk="lazy", memory_bytes=30_000, **own)
    handle = run(spark, folder, tmp_path, settings, {"memory": "1 MB", "spill_share": 1.0, "groups": 16})
    pushes = [made.figures for made in handle.decisions if any(isinstance(one, Spill) for one in made.instructions)]
    assert pushes
    assert all(one["pushed_bytes"] == one["slot_bytes"] for one in pushes) == is_all
    assert results_as_in_batch(folder, tmp_path) > 10_000


def spills(handle: Handle) -> list[list[int]]:
    """The groups of each push."""
    made = ([one.group for one in made.instructions if isinstance(one, Spill)] for made in handle.decisions)
    return [groups for groups in made if groups]


def test_a_sample_of_what_arrives_finds_less_than_joining_before_shedding(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """DHTJoin 5."""
    found = {}
    for by in ("sample", "planned", "random"):
        options = {"memory": "30 kB", "on_overflow": "shed", "shed_by": by}
        handle = run(spark, folder, tmp_path / by, None, options)
        found[by] = handle.totals["q.matches"]
        shed = [one for one in handle.decisions if one.rule == "shedding"]
        assert (min(one.figures["taken"] for one in shed) < 1) == (by != "random")
    assert found["sample"] <= found["planned"] < found["random"]


def test_every_slot_has_its_own_probing_sequence(spark: SparkSession, tmp_path: Path) -> None:
    """DHTJoin 3.3.1. Keys of slot 0 have many partners in B and one in C, those of slot 1 the other way round."""
    upper = hash_columns([pa.array(range(64), pa.int64())])[0] >= np.uint64(1 << 63)
    low, high = np.flatnonzero(~upper), np.flatnonzero(upper)
    keys = {"A": np.arange(64), "B": np.append(np.repeat(low, 6), high), "C": np.append(low, np.repeat(high, 6))}
    flow = Flow(spark, slots=2, groups=2, router="hash", controller=False)
    for name, own in keys.items():
        tables = (
            pa.table([own, np.arange(len(own)), np.full(len(own), epoch * SECOND)], schema=SCHEMA) for epoch in range(3)
        )
        append_files(tmp_path / name, tables)
        flow.files(name, tmp_path / name, schema=DDL, time="ts", options={"maxFilesPerTrigger": "1"})
    ranges = ", ".join(f"{name} [RANGE 60 SECONDS]" for name in keys)
    query = flow.query(f"SELECT A.v AS a FROM {ranges} WHERE A.k = B.k AND B.k = C.k", name="q").to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    notes = handle.manifest.notes
    common = notes.fanouts["q"]
    orders = [probing_order(3, notes.slot_fanouts.get("q", {}).get(slot, common))[0] for slot in (0, 1)]
    assert orders == [[2, 1], [1, 2]]
    assert query.sink.table().num_rows == 64 * 6 * 27
