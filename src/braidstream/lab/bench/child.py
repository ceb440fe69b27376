"""One measurement, in a process of its own.

    python -m braidstream.lab.bench.child CASE SYSTEM FOLDER SETTINGS [check]

Prints one JSON object: the duration of each epoch in milliseconds (Spark's own `triggerExecution`), rows and matches.
With `check`, the number of the results and the sum of a number of each instead (`peers/workloads.py: check_sql`); of a
left join on Spark those of its matches, because the last rows without one are put out in no finite run.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from braidstream.lab.bench.cases import (
    BICLIQUE,
    BRAIDSTREAM,
    CASES,
    GENERAL,
    HASH,
    INNER,
    PEER_CASES,
    SPARK_ROCKSDB,
    SPARK_ROCKSDB_4,
    Case,
)
from braidstream.lab.bench.checked import checked_flow, checked_frame, checked_progress
from braidstream.lab.bench.peers.workloads import check_sql
from braidstream.lab.bench.printed import Printed
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

SCHEMA = "k long, v long, ts timestamp"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> None:
    """Run one case on one system."""
    case, system, folder = {**CASES, **PEER_CASES}[sys.argv[1]], sys.argv[2], Path(sys.argv[3])
    spark = session(json.loads(sys.argv[4]), system)
    checkpoint = folder / f"checkpoint-{system}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    shutil.rmtree(f"{checkpoint}-results", ignore_errors=True)
    run = _braidstream if system.startswith(BRAIDSTREAM) else _builtin
    is_check = sys.argv[5:] == ["check"]
    print(json.dumps(run(spark, case, system, folder, checkpoint, is_check)), flush=True)


def session(settings: Mapping[str, str], system: str) -> SparkSession:
    """A session as a system needs it: Spark's own join has as many state partitions as cores, for more cost it time."""
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", **settings})
    spark.sparkContext.setLogLevel("ERROR")
    if not system.startswith(BRAIDSTREAM):
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    if system in (SPARK_ROCKSDB, SPARK_ROCKSDB_4):
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    if system == SPARK_ROCKSDB_4:
        spark.conf.set("spark.sql.streaming.join.stateFormatVersion", "4")
    return spark


def _stream(spark: SparkSession, case: Case, folder: Path, name: str) -> Any:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", case.files_per_epoch)
    return reader.parquet(str(folder / name))


def _builtin(spark: SparkSession, case: Case, system: str, folder: Path, checkpoint: Path, is_check: bool) -> Printed:
    """Spark's stream-stream join."""
    streams = [_stream(spark, case, folder, name).withWatermark("ts", "0 seconds") for name in case.streams]
    joined = streams[0].withColumnRenamed("v", "rv")
    plain: list[str] = []  # times of streams joined before: Spark allows only one event-time column in a join's input
    for name, stream in zip(case.streams[1:], streams[1:], strict=True):
        other = stream.select(*(F.col(column).alias(f"{name}_{column}") for column in ("k", "v", "ts")))
        condition = F.col("k") == F.col(f"{name}_k")
        for before in ("ts", *plain):
            condition &= F.expr(_within(before, f"{name}_ts", case.window_s))
        joined = joined.join(other, condition, case.how).select(
            "k", "ts", *(column for column in joined.columns if column not in ("k", "ts")),
            F.col(f"{name}_v").alias(f"{name.lower()}v"),
            F.expr(f"timestamp_micros(unix_micros({name}_ts))").alias(f"{name}_time"),
        )  # fmt: skip
        plain.append(f"{name}_time")
    joined = joined.select("k", *(f"{name.lower()}v" for name in case.streams))
    if is_check:
        joined = checked_frame(joined.dropna(), _check(case))
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return checked_progress(query.recentProgress) if is_check else epochs_of(query.recentProgress)


def _check(case: Case) -> str:
    return check_sql(*(f"{name.lower()}v" for name in case.streams))


def _within(one: str, other: str, window_s: float) -> str:
    length = f"interval {window_s} seconds"
    return f"{other} >= {one} - {length} AND {other} <= {one} + {length}"


def _braidstream(
    spark: SparkSession, case: Case, system: str, folder: Path, checkpoint: Path, is_check: bool
) -> Printed:
    flow = Flow(spark, slots=case.slots, router={HASH: "hash", BICLIQUE: "biclique"}.get(system, "auto"))
    for name in case.streams:
        if system != GENERAL:
            options = {"maxFilesPerTrigger": str(case.files_per_epoch)}
            flow.files(name, folder / name, schema=SCHEMA, time="ts", options=options)
        else:
            flow.stream(name, _stream(spark, case, folder, name), time="ts")
    windows = [f"{name} [RANGE {case.window_s} SECONDS]" for name in case.streams]
    is_left = case.how == "left" and system != INNER
    streams = f"{windows[0]} LEFT JOIN {windows[1]}" if is_left else ", ".join(windows)
    outputs = ", ".join(f"{name}.v AS {name.lower()}v" for name in case.streams)
    same = " = ".join(f"{name}.k" for name in case.streams)
    texts = [
        f"SELECT R.k AS k{number}, {outputs} FROM {streams} {'ON' if is_left else 'WHERE'} {same}"
        for number in range(case.n_queries)
    ]
    if is_check:
        return checked_flow(flow, texts[0], checkpoint, _check(case))
    for text in texts:
        flow.query(text).to("noop")
    handle = flow.start(checkpoint)
    handle.await_termination()
    measured = epochs_of(handle._query.recentProgress)
    last = handle.progress[-1]
    entries = (entry for entry in handle.progress if sum(entry.rows.values()))
    parts = [_parts(entry.parts, ms) for entry, ms in zip(entries, measured["epoch_ms"], strict=False)]
    return {
        **measured,
        "parts": parts,
        "matches": sum(sum(entry.matches.values()) for entry in handle.progress),
        "stored_rows": last.state_rows,
        "stored_bytes": last.state_bytes,
        "exchanged_bytes": last.exchanged_bytes,
        "balance": dict(last.balance),
        "heavy": [asdict(key) for key in last.heavy],
    }


def _parts(seconds: Mapping[str, float], epoch_ms: float) -> dict[str, float]:
    """The parts of an epoch in milliseconds; what is none of ours is Spark's."""
    own = {name: 1000 * value for name, value in seconds.items() if name != "engine"}
    return {**own, "spark": max(epoch_ms - sum(own.values()), 0.0)}


def epochs_of(progress: Any) -> Printed:
    """How long the epochs with rows took, by Spark's progress."""
    entries = [entry for entry in progress if sum(source["numInputRows"] for source in entry["sources"])]
    stored = sum(operator["numRowsTotal"] for operator in entries[-1]["stateOperators"])
    return {"epoch_ms": [entry["durationMs"]["triggerExecution"] for entry in entries], "stored_rows": stored}


if __name__ == "__main__":
    main()
