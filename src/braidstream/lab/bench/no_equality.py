"""Joins without an equality: `python -m braidstream.lab.bench.no_equality [--rows N] [--spark FOLDER]`.

A band join of two streams of `--rows` rows each (200,000), `ABS(R.x - S.x) < 5` over whole numbers, in ten epochs, with
windows of three. It prints one JSON object:

- `slots`: the engine in one process on 1, 2, 4 and 8 slots. How even the slots are (largest over mean) in rows
  received, in matches and in busy time, how often a row is repeated, and the seconds of the busiest slot of each epoch
  added up, which is what the slots' work takes where each has a core. SHC's bound for a Cartesian product is beside.
- `tactics`: the kernel alone, a thousand new rows against a window: by sorting (sorted before, and not), and by blocks.
- `spark`: with `--spark`, end to end on the cores of this machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.epoch.regridder import GridRouter
from braidstream.kernels.pairs import Pairing, Side
from braidstream.kernels.rows import HASH, TIME, Rows
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.workloads import append_files
from braidstream.model.stores import JoinBand

__all__ = ["main", "on_slots", "tactics"]

EPOCHS, WINDOW, SECOND = 10, 3, 1_000_000
NEW = 1000
SCHEMA = pa.schema([("x", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
QUERY = (
    f"SELECT R.v AS r, S.v AS s FROM R [RANGE {WINDOW} SECONDS], S [RANGE {WINDOW} SECONDS] WHERE ABS(R.x - S.x) < 5"
)


def epochs_of(rows: int, seed: int = 1) -> list[dict[str, pa.Table]]:
    """The rows of both streams, in epochs of a second; some ten partners a row."""
    rng, each = np.random.default_rng(seed), rows // EPOCHS
    made = []
    for epoch in range(EPOCHS):
        tables = {}
        for name in "RS":
            times = np.sort(rng.integers(epoch * SECOND, (epoch + 1) * SECOND, each))
            numbers = rng.integers(0, rows // 4, each)
            tables[name] = pa.table([numbers, rng.integers(0, 1 << 40, each), times], schema=SCHEMA)
        made.append(tables)
    return made


def on_slots(rows: int, slots: int) -> dict[str, Any]:
    """The balance of an engine with so many slots."""
    with tempfile.TemporaryDirectory() as folder:
        schemas = dict.fromkeys("RS", SCHEMA)
        harness = QueryHarness(folder, schemas, {"q": QUERY}, slots=slots, regridder=GridRouter())
        for tables in epochs_of(rows):
            harness.epoch(tables)
        epochs, (grid,) = list(harness.runner.progress), harness.manifest.grids
    got = sum(epoch.indexed for epoch in epochs)
    even = {name: _weighted([epoch.balance[name] for epoch in epochs]) for name in ("rows", "matches", "busy")}
    busiest = sum(max(epoch.busy_s) for epoch in epochs)
    return {
        "slots": slots,
        "grid": grid.shape,
        "matches": sum(epoch.matches["q"] for epoch in epochs),
        "copies": round(got / (2 * rows), 2),
        "largest_over_mean": even,
        "rows_of_largest_over_bound": round(even["rows"] * got / slots / (2 * sqrt(rows * rows / slots)), 3),
        "busiest_s": round(busiest, 3),
        "rows_per_s": round(2 * rows / busiest),
    }


def _weighted(balances: Sequence[float]) -> float:
    """The mean over epochs, which are equally long."""
    return round(sum(balances) / len(balances), 3)


def tactics(window: int) -> dict[str, Any]:
    """Milliseconds for new rows against a window, by each tactic; the pairs are the same."""
    rng = np.random.default_rng(2)
    new, stored = (Side(_rows(rng, n, window), place) for place, n in ((0, NEW), (1, window)))
    pairing = Pairing(-1 << 60, 1 << 60, (JoinBand("x", "x", -4, 4),))
    known, blocks = stored.sorted(pairing.bands[0]), replace(pairing, sorts=False)
    found = {
        "by sorting": _timed(lambda: pairing.within(new, Side(stored.rows, 1))),
        "sorted before": _timed(lambda: pairing.within(new, stored, known)),
        "by blocks": _timed(lambda: blocks.within(new, stored)),
    }
    (pairs,) = {pairs for _, pairs in found.values()}
    millis = {name: round(1e3 * seconds, 2) for name, (seconds, _) in found.items()}
    looked = NEW * window / found["by blocks"][0]
    return {"window": window, "new": NEW, "pairs": pairs, "ms": millis, "pairs_looked_at_per_s": round(looked)}


def _rows(rng: np.random.Generator, n: int, window: int) -> Rows:
    columns = [np.full(n, 7), np.arange(n), rng.integers(0, window, n)]
    return Rows(pa.table([pa.array(column) for column in columns], names=[HASH, TIME, "x"]))


def _timed(pairs: Any, rounds: int = 5) -> tuple[float, int]:
    """The least seconds of some rounds, and how many pairs there are."""
    best, n = float("inf"), 0
    for _ in range(rounds):
        started = time.perf_counter()
        n = sum(len(at) for at, _ in pairs())
        best = min(best, time.perf_counter() - started)
    return best, n


def on_spark(folder: Path, rows: int) -> dict[str, Any]:
    """The same on a local session: wall seconds of the epochs but the first, which starts workers."""
    from braidstream.spark.flow import Flow  # noqa: PLC0415
    from braidstream.spark.session import local_session  # noqa: PLC0415

    for tables in epochs_of(rows):
        for name, table in tables.items():
            append_files(folder / name, [table])
    spark = local_session("local[2]")
    flow = Flow(spark, slots=2)
    for name in "RS":
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, folder / name, schema="x long, v long, ts timestamp", time="ts", options=options)
    flow.query(QUERY, "q", allow="no-equality").to("noop")
    handle = flow.start(folder / "ck")
    handle.await_termination()
    took = [epoch.seconds["total"] for epoch in list(handle.progress)[1:]]
    matches = handle.totals["q.matches"]
    spark.stop()
    rate = round(2 * rows / EPOCHS / float(np.median(took)))
    return {"slots": 2, "matches": matches, "epoch_s": round(float(np.median(took)), 3), "rows_per_s": rate}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--spark", type=Path)
    given = parser.parse_args()
    figures: dict[str, Any] = {"rows": given.rows, "slots": [on_slots(given.rows, slots) for slots in (1, 2, 4, 8)]}
    figures["tactics"] = [tactics(window) for window in (10_000, 100_000, 1_000_000)]
    if given.spark is not None:
        figures["spark"] = on_spark(given.spark, given.rows)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
