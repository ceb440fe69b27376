"""What an epoch's metadata costs at many slots: what a routing task and a slot's task read, what the driver does.

The engine itself runs, in one process (`lab.testing.harness`), on a checkpoint that is made up: each slot has as many
groups and segments as asked for, real files with a few rows in each. The driver's time is that of real epochs without
the time that the slots' tasks take, which on Spark is the job; no result is delivered, for rows find no partners.

Cost: 24,000 small files and half a minute an epoch at a thousand slots.
"""

from __future__ import annotations

import gc
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.epoch.cluster import SlotFunction
from braidstream.kernels.rows import HASH, I64, KEY, TIME, Rows, sort_rows
from braidstream.lab.testing.harness import Harness, Indexed, LocalCluster
from braidstream.model.directory import Group
from braidstream.model.numbers import SlotId, slot_ids
from braidstream.model.parts import Segment
from braidstream.slot.epoch_task import read_manifest, routes_of
from braidstream.slot.section_writing import Merging, written
from braidstream.state.compaction import FAN, SMALLEST, Rules
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, manifest_name
from braidstream.state.segments import Place

__all__ = ["LIMITS", "Costs", "Shape", "measure"]

LIMITS = {
    "slot_task_kb": 64.0,
    "slot_task_ms": 10.0,
    "routing_task_kb": 1024.0,
    "routing_task_ms": 15.0,
    "driver_ms": 150.0,
    "resume_s": 5.0,
}
"""What a thousand slots may cost."""
_SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
_STORES = ("R[k]", "S[k]")
_EPOCHS = 5
_WINDOW_US = 3_600_000_000


@dataclass(frozen=True)
class Shape:
    """A flow of one join: so many slots, groups and segments a slot."""

    slots: int
    groups: int = 32
    segments: int = 24


@dataclass(frozen=True)
class Costs:
    """What metadata costs, medians over repetitions. A KB is 1,024 bytes."""

    slots: int
    slot_task_kb: float
    """The root and the slot's section."""
    slot_task_ms: float
    """To read them, to plan merges, and to write the section after the epoch."""
    routing_task_kb: float
    """The root and the routing table."""
    routing_task_ms: float
    """To read them and to have routes."""
    driver_ms: float
    """Of an epoch, beside the slots' tasks: plan, decode and fold reports, decide, commit, retire, progress."""
    resume_s: float
    """To go on from what is on disk."""

    def as_json(self) -> dict[str, Any]:
        """As it is written."""
        return {name: round(value, 3) for name, value in asdict(self).items()}

    def missed(self) -> list[str]:
        """The limits that are not kept."""
        return [name for name, most in LIMITS.items() if getattr(self, name) > most]


def measure(shape: Shape, tell: Callable[[str], None]) -> Costs:
    """Measure one shape."""
    folder = Path(tempfile.mkdtemp(prefix="braidstream-scale-"))
    try:
        with _timed_cluster() as spent:
            tell(f"{shape.slots} slots: {shape.slots * shape.segments:,} segments")
            harness = _harness(folder, shape)
            driver_ms = _driver_ms(harness, shape, spent)
            tell(f"{shape.slots} slots: epochs {driver_ms:.0f} ms in the driver")
        resume_s = _resume_s(harness)
        return Costs(shape.slots, *_slot_costs(harness), *_routing_costs(harness), driver_ms, resume_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _timed_cluster() -> Iterator[list[float]]:
    """The seconds that slots' tasks take, added up in a list of one number."""
    spent, run = [0.0], LocalCluster.run

    def timed(
        self: LocalCluster, envelopes: Sequence[pa.RecordBatch], stages: Sequence[SlotFunction], before: Manifest
    ) -> list[bytes]:
        begun = time.perf_counter()
        try:
            return run(self, envelopes, stages, before)
        finally:
            spent[0] += time.perf_counter() - begun

    LocalCluster.run = timed  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        LocalCluster.run = run  # type: ignore[method-assign]


def _harness(folder: Path, shape: Shape) -> Harness:
    sides = [Indexed(name, name, ("k",), _WINDOW_US) for name in "RS"]
    schemas = dict.fromkeys("RS", _SCHEMA)
    harness = Harness(folder, schemas, {"q": sides}, slots=shape.slots, groups=shape.slots * shape.groups)
    checkpoint, manifest = harness.runner.checkpoint, harness.manifest
    segments = [one for slot in slot_ids(shape.slots) for one in _segments(checkpoint.files, manifest, slot, shape)]
    checkpoint.commit(replace(manifest, newest={"R": 0, "S": 0}, watermark=0).with_segments(segments))
    harness.restart()
    return harness


def _segments(files: Files, manifest: Manifest, slot: SlotId, shape: Shape) -> list[Segment]:
    """A slot's segments: a row for each of its groups, in files that are copies of one for each store."""
    groups, found = manifest.directory.of_slot(slot), list[Segment]()
    place = Place(files, 0, slot, groups)
    each = shape.segments // len(_STORES)
    for store in _STORES:
        first = place.write(_rows(groups), store, _WINDOW_US)
        found.append(_aged(first, 0))
        for at in range(1, each):
            name = first.name.replace(".arrow", f"-{at}.arrow")
            shutil.copyfile(files.path(first.name), files.path(name))
            found.append(_aged(replace(first, name=name), at))
    return found


def _aged(segment: Segment, at: int) -> Segment:
    """The segment as the `at`-th of its store: so large, by its parts, that no four are of one tier and merged."""
    times = max(SMALLEST * FAN ** (at // (FAN - 1)) // segment.rows, 1)
    return replace(segment, parts=tuple(replace(part, rows=times * part.rows) for part in segment.parts))


def _rows(groups: Sequence[Group]) -> Rows:
    hashes = np.array([group.first for group in groups], dtype=np.uint64).view(np.int64)
    zeros = np.zeros(len(groups), dtype=np.int64)
    times = pa.array(zeros.astype("datetime64[us]"), pa.timestamp("us", tz="UTC"))
    return sort_rows(pa.table({HASH: hashes, TIME: zeros, f"{KEY}0": hashes, "k": hashes, "ts": times}))


def _driver_ms(harness: Harness, shape: Shape, spent: list[float]) -> float:
    rng, found, n = np.random.default_rng(7), [], max(16 * shape.slots, 64)
    for number in range(_EPOCHS):
        keys, before = rng.integers(1, 1 << 60, (2, n)), spent[0]
        harness.epoch({"R": _table(2 * keys[0], number), "S": _table(2 * keys[1] + 1, number)})  # no even key is odd
        total = harness.runner.progress[-1].seconds["total"]
        found.append(1000 * (total - (spent[0] - before)))
    return statistics.median(found)


def _table(keys: I64, number: int) -> pa.Table:
    times = pa.array(np.full(len(keys), number, dtype="datetime64[us]"), pa.timestamp("us", tz="UTC"))
    return pa.table({"k": pa.array(keys.astype(np.int64)), "ts": times})


def _resume_s(harness: Harness) -> float:
    begun = time.perf_counter()
    harness.restart()
    return time.perf_counter() - begun


def _sizes(files: Files, names: Sequence[str]) -> float:
    return sum(files.size(name) or 0 for name in names) / 1024


def _slot_costs(harness: Harness) -> tuple[float, float]:
    files, epoch = harness.runner.checkpoint.files, harness.manifest.epoch
    merging, found, kb = Merging(Rules(dict.fromkeys(_STORES))), [], 0.0
    for slot in np.linspace(0, harness.manifest.n_slots - 1, 9).astype(int).tolist():
        read_manifest.cache_clear()
        gc.collect()
        begun = time.perf_counter()
        manifest = read_manifest(files.root, epoch, "scale")
        section = manifest.section((0, slot))
        merging.plan(section, manifest)
        written(files, epoch + 1, section, manifest.watermark, _STORES, section.segments[:1], ())
        found.append(1000 * (time.perf_counter() - begun))
        entry = manifest.sections.get((0, slot))
        assert entry is not None
        assert entry.ref is not None
        kb = max(kb, _sizes(files, [manifest_name(epoch), entry.ref.name]))
    return kb, statistics.median(found)


def _routing_costs(harness: Harness) -> tuple[float, float]:
    files, epoch, found, kb = harness.runner.checkpoint.files, harness.manifest.epoch, [], 0.0
    for _ in range(9):
        read_manifest.cache_clear()
        gc.collect()
        begun = time.perf_counter()
        manifest = read_manifest(files.root, epoch, "scale")
        routes_of(manifest)
        found.append(1000 * (time.perf_counter() - begun))
        assert manifest.routing is not None
        kb = _sizes(files, [manifest_name(epoch), manifest.routing[0].name])
    return kb, statistics.median(found)
