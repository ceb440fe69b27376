"""State of several times the memory: `python -m braidstream.lab.bench.memory [--times 5] [--budget "16 MB"] [--json]`.

Two streams with unbounded windows are joined to the end, so that all rows are state. The flow's slots have a budget;
what they hold beyond it is pushed, and its results are recovered by clean-ups. Then Spark's built-in join reads the
same files in a process with the same memory for its JVM (`lab.bench.memory_spark`). Each system runs in a process of
its own, whose memory and whose children's is sampled from /proc (`lab.bench.process_memory`).

The *base* is what a worker takes beside state. It is measured by another run: as many rows an epoch, as many results,
the same columns and the same sink, but windows of a microsecond, so that there is never more state than the rows of
one epoch. `first_epochs_mb` is another base, smaller: the memory of the same worker during the first two epochs, when
it has not yet met most of what an epoch may bring.

`--long N` is another measurement: `lab.bench.memory_long`.

What it prints: peak memory of a worker beside 1.3 x budget + base, results beside DuckDB's batch join, and how Spark's
join ended. Cost: a minute or two with the defaults; `--limit` bounds each system.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.control.overflow import parse_size
from braidstream.lab.bench.memory_long import run_long
from braidstream.lab.bench.memory_spark import reason_of, run_builtin
from braidstream.lab.bench.process_memory import KINDS, Sampler

__all__ = ["ALLOWED", "measure", "measure_long", "write_streams"]

ALLOWED = 1.3
"""Peak memory of a worker over its budget, the base apart."""
SCHEMA = "k long, v long, text string, ts timestamp"
_ROW_BYTES = 96
"""About what a row takes in a segment: hash, time, key, number, a text of 96 letters, the time again."""
_EPOCHS = 30
_SLOTS = 2
_WINDOW_EPOCHS = 20
_HEAP = "512m"
SYSTEMS = ("braidstream", "spark")
TIME_LIMIT_S = 240
_GRACE_S = 60
"""How much longer than its limit a process may take to say that it did not end."""
QUERY = (
    "SELECT R.k AS k, R.v AS rv, S.v AS sv, R.text AS text FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED] "
    "WHERE R.k = S.k"
)
_BASE_QUERY = QUERY.replace("[RANGE UNBOUNDED]", "[RANGE 1 MICROSECOND]")


def write_streams(folder: Path, n_rows: int, n_epochs: int = _EPOCHS, *, paired: bool = False) -> None:
    """The same number of rows for R and S; about one match a row, most of them far apart in time.

    When `paired`, each row has one match instead, which comes at the same time.
    """
    rng = np.random.default_rng(0)
    size = n_rows // 2 // n_epochs
    for name in "RS":
        (folder / name).mkdir(parents=True)
        for epoch in range(n_epochs):
            numbers = np.arange(size) + epoch * size
            keys = numbers if paired else rng.integers(0, n_rows // 2, size)
            letters = rng.integers(97, 123, (size, 96), dtype=np.uint8)
            offsets = pa.py_buffer(np.arange(0, 96 * (size + 1), 96, dtype=np.int32))
            text = pa.StringArray.from_buffers(size, offsets, pa.py_buffer(letters.tobytes()))
            times = pa.array(numbers, pa.timestamp("us", "UTC"))
            pq.write_table(
                pa.table({"k": keys, "v": numbers, "text": text, "ts": times}), folder / name / f"{epoch:04d}.parquet"
            )


def measure(
    times: float, budget: str, folder: Path, systems: Sequence[str] = SYSTEMS, limit_s: float = TIME_LIMIT_S
) -> dict[str, Any]:
    """Run the systems, and compare."""
    n_rows = int(times * _SLOTS * parse_size(budget) / _ROW_BYTES)
    write_streams(folder, n_rows)
    found = {system: _child(system, folder, budget, limit_s) for system in systems}
    if found.get("braidstream", {}).get("status") == "ok":
        write_streams(folder / "base", n_rows, paired=True)
        base = _child("base", folder / "base", budget, limit_s)
        found["braidstream"] = _compared(found["braidstream"], base, parse_size(budget) / (1 << 20))
    return {"rows": n_rows, "times": times, "budget": budget, **found}


def _compared(found: dict[str, Any], base: dict[str, Any], budget_mb: float) -> dict[str, Any]:
    """The figures with what is allowed, and whether that is kept, for both bases."""
    if base["status"] != "ok":
        return {**found, "base": base}
    bases = {"base_mb": base["peak_mb"], "first_epochs_mb": found["first_epochs_mb"]}
    kinds = [kind for kind in KINDS if kind != "mapped"]
    allowed = {
        name: {kind: round(ALLOWED * budget_mb + sizes[kind], 1) for kind in kinds} for name, sizes in bases.items()
    }
    kept = {name: {kind: found["peak_mb"][kind] <= sizes[kind] for kind in kinds} for name, sizes in allowed.items()}
    return {
        **found,
        "base_mb": base["peak_mb"],
        "base_state_mb": base["active_mb"],
        "allowed_mb": allowed,
        "kept": kept,
    }


def measure_long(n_epochs: int, budget: str, folder: Path, limit_s: float = TIME_LIMIT_S) -> dict[str, Any]:
    """Memory over a long run: the window holds four times the budget."""
    window_rows = int(4 * _SLOTS * parse_size(budget) / _ROW_BYTES)
    write_streams(folder, window_rows * n_epochs // _WINDOW_EPOCHS, n_epochs)
    return {"epochs": n_epochs, "budget": budget, "braidstream": _child("long", folder, budget, limit_s)}


def _child(system: str, folder: Path, budget: str, limit_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "braidstream.lab.bench.memory", "--child", system, "--folder", str(folder)]
    command += ["--budget", budget, "--limit", str(limit_s)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        return {"status": "failed", "reason": f"not done after {limit_s + _GRACE_S:.0f} s: --limit gives it more"}
    if run.returncode:  # it died; one that could still say how it failed has done so
        said = run.stdout + run.stderr
        return {"status": "failed", "reason": reason_of("\n".join(reversed(said.strip().splitlines())) or "no message")}
    return {"status": "ok", **json.loads(run.stdout.strip().splitlines()[-1])}


def _run_child(system: str, folder: Path, budget: str, limit_s: float) -> dict[str, Any]:
    from braidstream.spark.session import local_session  # noqa: PLC0415

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": _HEAP, "spark.log.level": "ERROR"}
    spark = local_session(f"local[{_SLOTS}]", "memory", settings)
    if system == "spark":
        return run_builtin(spark, folder, schema=SCHEMA, partitions=_SLOTS, limit_s=limit_s)
    flow = _flow(spark, folder, budget)
    if system == "base":
        return _base(flow, folder)
    if system == "long":
        rows = pq.read_metadata(folder / "R" / "0000.parquet").num_rows
        window = f"[RANGE {rows * _WINDOW_EPOCHS} MICROSECONDS]"
        flow.query(QUERY.replace("[RANGE UNBOUNDED]", window), name="q").to("noop")
        return run_long(spark, flow, folder / "ck", len(list((folder / "R").iterdir())))
    return _braidstream(flow, folder)


def _flow(spark: Any, folder: Path, budget: str) -> Any:
    from braidstream.spark.flow import Flow  # noqa: PLC0415

    flow = Flow(spark, slots=_SLOTS, memory=budget)
    for name in "RS":
        flow.files(name, folder / name, schema=SCHEMA, time="ts", options={"maxFilesPerTrigger": "1"})
    return flow


def _base(flow: Any, folder: Path) -> dict[str, Any]:
    flow.query(_BASE_QUERY, name="q").to("parquet", path=str(folder / "out"))
    with Sampler() as sampler:
        handle = flow.start(folder / "ck")
        handle.await_termination()
    active = max(entry.active_bytes for entry in handle.progress) / (1 << 20)
    return {"peak_mb": sampler.peak("worker"), "active_mb": round(active, 1), "results": handle.totals["q.matches"]}


def _braidstream(flow: Any, folder: Path) -> dict[str, Any]:
    from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows  # noqa: PLC0415

    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    started = time.monotonic()
    with Sampler() as sampler:
        handle = flow.start(folder / "ck")
        while not handle.progress or handle.progress[-1].epoch < 1:
            time.sleep(0.01)
        first = time.monotonic()
        last = first
        while handle.is_active:
            last = time.monotonic() if not handle.progress[-1].step else last
            handle.await_termination(0.05)
    seconds = time.monotonic() - started
    epochs = [entry for entry in handle.progress if not entry.step]
    streams = [BatchStream(name, folder / name, None) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v", "text": "R.text"})
    steps = [entry for entry in handle.progress if entry.step]
    return {
        "seconds": round(seconds, 1),
        "clean_up_seconds": round(sum(entry.seconds["total"] for entry in steps), 1),
        "state_mb": round(epochs[-1].state_bytes / (1 << 20), 1),
        "active_mb": round(max(entry.active_bytes for entry in epochs) / (1 << 20), 1),
        "spilled_groups": epochs[-1].spilled_groups,
        "segments": max(entry.segments for entry in epochs),
        "results": handle.totals["q.matches"],
        "recovered": sum(sum(entry.recovered.values()) for entry in handle.progress),
        "recovered_at_the_end": sum(sum(entry.recovered.values()) for entry in steps),
        "expected": expected.num_rows,
        "exact": bool(same_rows(folder / "out", expected)),
        "first_epochs_mb": sampler.peak("worker", end=first),
        "epochs_mb": sampler.peak("worker", end=last),
        "last_clean_up_mb": sampler.peak("worker", begin=last),
        "peak_mb": sampler.peak("worker"),
        "jvm_peak_mb": sampler.peak("jvm"),
        "reported_peak_mb": max(entry.peak_mb for entry in handle.progress),
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="State of several times the memory.")
    parser.add_argument("--times", type=float, default=5.0)
    parser.add_argument("--budget", default="16 MB")
    parser.add_argument("--long", type=int, metavar="EPOCHS")
    parser.add_argument("--only", choices=SYSTEMS)
    parser.add_argument("--limit", type=float, default=TIME_LIMIT_S, help="seconds that a system may take")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(_run_child(given.child, given.folder, given.budget, given.limit)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        if given.long:
            found = measure_long(given.long, given.budget, Path(folder), given.limit)
        else:
            systems = (given.only,) if given.only else SYSTEMS
            found = measure(given.times, given.budget, Path(folder), systems, given.limit)
    print(json.dumps(found) if given.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
