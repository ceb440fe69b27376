"""State of several times the memory: `python -m braidstream.bench.memory [--times 5] [--budget "16 MB"] [--json]`.

Two streams with unbounded windows are joined to the end, so that all rows are state. The flow's slots have a budget;
what they hold beyond it is pushed, and its results are recovered by the last clean-up. Then Spark's built-in join reads
the same files in a process with the same memory for its JVM. Each system runs in a process of its own, whose workers'
memory is sampled from /proc: `rss` as the system counts it, mapped files included, `anonymous` without them. The base
is what workers have during the first epochs, before there is state to speak of.

`--long N` is another measurement: N epochs of streams with a window that holds four times the budget, and the memory
of the driver and of the largest worker in the second and in the last quarter of the run.

What it prints: peak memory of a worker beside 1.3 x budget + base, results beside DuckDB's batch join, and how Spark's
join ended. Cost: a minute or two with the defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.control.overflow import parse_size

__all__ = ["ALLOWED", "Worker", "measure"]

ALLOWED = 1.3
"""Peak memory of a worker over its budget, the base apart."""
SCHEMA = "k long, v long, text string, ts timestamp"
_ROW_BYTES = 112
"""About what a row takes in a segment: hash, time, key, number, a text of 96 letters, the time again."""
_EPOCHS = 30
_SLOTS = 2
_WINDOW_EPOCHS = 20
_HEAP = "512m"
SYSTEMS = ("braidstream", "spark")
TIME_LIMIT_S = 240
QUERY = (
    "SELECT R.k AS k, R.v AS rv, S.v AS sv, R.text AS text FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED] "
    "WHERE R.k = S.k"
)


@dataclass
class Worker:
    """The memory of Spark's Python workers below this process, sampled while it runs. In MB, the largest worker's."""

    interval_s: float = 0.02
    peak: dict[str, float] = field(default_factory=lambda: {"rss": 0.0, "anonymous": 0.0})
    course: list[tuple[float, float, float]] = field(default_factory=list)
    """(time, rss, anonymous) of the largest worker at that time."""
    _stopped: bool = False

    def __enter__(self) -> Worker:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._thread.join()

    def before(self, moment: float) -> dict[str, float]:
        """The peaks until a moment."""
        until = [entry for entry in self.course if entry[0] <= moment] or self.course[:1]
        return {"rss": max(entry[1] for entry in until), "anonymous": max(entry[2] for entry in until)}

    def _run(self) -> None:
        while not self._stopped:
            sizes = [_memory_mb(process) for process in _workers()]
            rss, anonymous = (max((size[i] for size in sizes), default=0.0) for i in (0, 1))
            self.peak = {"rss": max(self.peak["rss"], rss), "anonymous": max(self.peak["anonymous"], anonymous)}
            self.course.append((time.monotonic(), rss, anonymous))
            time.sleep(self.interval_s)


def _workers() -> list[int]:
    """The processes that run `pyspark.daemon`: the daemon and its workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes() and _is_below(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _is_below(process: int) -> bool:
    """Whether a process descends from this one."""
    own = os.getpid()
    while process > 1:
        if process == own:
            return True
        process = int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    return False


def _memory_mb(process: int) -> tuple[float, float]:
    try:
        lines = (Path("/proc") / str(process) / "status").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "RssAnon"))}
    return float(sizes.get("VmRSS", 0)) / 1024, float(sizes.get("RssAnon", 0)) / 1024


def write_streams(folder: Path, n_rows: int, n_epochs: int = _EPOCHS, seed: int = 0) -> None:
    """The same number of rows for R and S; about one match a row, most of them far apart in time."""
    rng = np.random.default_rng(seed)
    size = n_rows // 2 // n_epochs
    for name in "RS":
        (folder / name).mkdir(parents=True)
        for epoch in range(n_epochs):
            keys = rng.integers(0, n_rows // 2, size)
            letters = rng.integers(97, 123, (size, 96), dtype=np.uint8)
            offsets = pa.py_buffer(np.arange(0, 96 * (size + 1), 96, dtype=np.int32))
            text = pa.StringArray.from_buffers(size, offsets, pa.py_buffer(letters.tobytes()))
            times = pa.array(np.arange(size) + epoch * size, pa.timestamp("us", "UTC"))
            table = pa.table({"k": keys, "v": np.arange(size) + epoch * size, "text": text, "ts": times})
            pq.write_table(table, folder / name / f"{epoch:04d}.parquet")


def measure(times: float, budget: str, folder: Path, systems: Sequence[str] = SYSTEMS) -> dict[str, Any]:
    """Run both systems, and compare."""
    n_rows = int(times * _SLOTS * parse_size(budget) / _ROW_BYTES)
    write_streams(folder, n_rows)
    found = {system: _child(system, folder, budget) for system in systems}
    return {"rows": n_rows, "times": times, "budget": budget, **found}


def measure_long(n_epochs: int, budget: str, folder: Path) -> dict[str, Any]:
    """Memory over a long run."""
    window_rows = int(4 * _SLOTS * parse_size(budget) / _ROW_BYTES)
    write_streams(folder, window_rows * n_epochs // _WINDOW_EPOCHS, n_epochs)
    return {"epochs": n_epochs, "budget": budget, "braidstream": _child("long", folder, budget)}


def _child(system: str, folder: Path, budget: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "braidstream.bench.memory", "--child", system, "--folder", str(folder)]
    try:
        run = subprocess.run(
            [*command, "--budget", budget], capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        return {"status": "failed", "reason": f"not done after {TIME_LIMIT_S} s"}
    if run.returncode:
        told = [
            line for line in (run.stdout + run.stderr).splitlines() if "OutOfMemory" in line or "GC overhead" in line
        ]
        reason = told[0].strip() if told else (run.stderr.strip().splitlines() or ["no message"])[-1]
        return {"status": "failed", "reason": reason[:200]}
    return {"status": "ok", **json.loads(run.stdout.strip().splitlines()[-1])}


def _run_child(system: str, folder: Path, budget: str) -> dict[str, Any]:
    from braidstream.spark.session import local_session  # noqa: PLC0415

    settings = {"spark.ui.enabled": "false", "spark.driver.memory": _HEAP, "spark.log.level": "ERROR"}
    spark = local_session(f"local[{_SLOTS}]", "memory", settings)
    return {"braidstream": _braidstream, "spark": _builtin, "long": _long}[system](spark, folder, budget)


def _braidstream(spark: Any, folder: Path, budget: str) -> dict[str, Any]:
    from braidstream.spark.flow import Flow  # noqa: PLC0415
    from braidstream.testing.batch import BatchStream, batch_join, same_rows  # noqa: PLC0415

    flow = Flow(spark, slots=_SLOTS, memory=budget)
    for name in "RS":
        flow.files(name, folder / name, schema=SCHEMA, time="ts", options={"maxFilesPerTrigger": "1"})
    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    started = time.monotonic()
    with Worker() as worker:
        handle = flow.start(folder / "ck")
        while not handle.progress or handle.progress[-1].epoch < 1:
            time.sleep(0.01)
        base = worker.before(time.monotonic())
        handle.await_termination()
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
        "results": handle.totals["q.matches"],
        "recovered": sum(sum(entry.recovered.values()) for entry in handle.progress),
        "expected": expected.num_rows,
        "exact": bool(same_rows(folder / "out", expected)),
        "base_mb": base,
        "peak_mb": worker.peak,
        "reported_peak_mb": max(entry.peak_mb for entry in handle.progress),
        "allowed_mb": {kind: ALLOWED * parse_size(budget) / (1 << 20) + size for kind, size in base.items()},
    }


def _long(spark: Any, folder: Path, budget: str) -> dict[str, Any]:
    from braidstream.spark.flow import Flow  # noqa: PLC0415

    flow = Flow(spark, slots=_SLOTS, memory=budget)
    for name in "RS":
        flow.files(name, folder / name, schema=SCHEMA, time="ts", options={"maxFilesPerTrigger": "1"})
    n_epochs = len(list((folder / "R").iterdir()))
    rows = pq.read_metadata(folder / "R" / "0000.parquet").num_rows
    window = f"[RANGE {rows * _WINDOW_EPOCHS} MICROSECONDS]"
    flow.query(QUERY.replace("[RANGE UNBOUNDED]", window), name="q").to("noop")
    course: list[dict[str, float]] = []
    with Worker() as worker:
        handle = flow.start(folder / "ck")
        while handle.is_active:
            handle.await_termination(0.2)
            last = handle.progress[-1] if handle.progress else None
            if last is not None and (not course or course[-1]["epoch"] < last.epoch):
                rss, anonymous = _memory_mb(os.getpid())
                _, worker_rss, worker_anonymous = worker.course[-1]
                course.append(
                    {
                        "epoch": last.epoch,
                        "driver": rss,
                        "driver anonymous": anonymous,
                        "worker": worker_rss,
                        "worker anonymous": worker_anonymous,
                        "active": last.active_bytes / (1 << 20),
                        "inactive": last.inactive_bytes / (1 << 20),
                        "manifest parts": last.segments,
                    }
                )
    quarters = {
        name: [entry for entry in course if low * n_epochs <= entry["epoch"] < high * n_epochs]
        for name, low, high in (("second", 0.25, 0.5), ("last", 0.75, 1.0))
    }
    kinds = [kind for kind in course[0] if kind != "epoch"]
    return {
        "matches": handle.totals["q.matches"],
        **{
            quarter: {kind: round(float(np.median([entry[kind] for entry in some])), 1) for kind in kinds}
            for quarter, some in quarters.items()
        },
    }


def _builtin(spark: Any, folder: Path, budget: str) -> dict[str, Any]:
    del budget
    spark.conf.set("spark.sql.shuffle.partitions", str(_SLOTS))
    frames = {
        name: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name in "RS"
    }
    left = frames["R"].selectExpr("k", "v AS rv", "text")
    joined = left.join(frames["S"].selectExpr("k AS sk", "v AS sv"), _same_key())
    writer = joined.select("k", "rv", "sv", "text").writeStream.format("noop")
    started = time.monotonic()
    query = writer.option("checkpointLocation", str(folder / "spark-ck")).trigger(availableNow=True).start()
    query.awaitTermination()
    last = [entry for entry in query.recentProgress if entry["stateOperators"]][-1]
    used = sum(operator["memoryUsedBytes"] for operator in last["stateOperators"])
    return {"seconds": round(time.monotonic() - started, 1), "state_mb": round(used / (1 << 20), 1)}


def _same_key() -> Any:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.col("k") == F.col("sk")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="State of several times the memory.")
    parser.add_argument("--times", type=float, default=5.0)
    parser.add_argument("--budget", default="16 MB")
    parser.add_argument("--long", type=int, metavar="EPOCHS")
    parser.add_argument("--only", choices=SYSTEMS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(_run_child(given.child, given.folder, given.budget)), flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        if given.long:
            found = measure_long(given.long, given.budget, Path(folder))
        else:
            systems = (given.only,) if given.only else SYSTEMS
            found = measure(given.times, given.budget, Path(folder), systems)
    print(json.dumps(found) if given.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
