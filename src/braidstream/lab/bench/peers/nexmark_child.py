"""One query of Nexmark on Spark or Braidstream, in a process of its own.

    python -m braidstream.lab.bench.peers.nexmark_child QUERY SYSTEM FOLDER SETTINGS [check]

Prints one JSON object, as `bench/child.py` does.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from braidstream.lab.bench.cases import BRAIDSTREAM
from braidstream.lab.bench.checked import checked_flow, checked_frame, checked_progress
from braidstream.lab.bench.child import epochs_of, session
from braidstream.lab.bench.peers.nexmark_queries import FILES_PER_EPOCH, QUERIES, NexmarkQuery
from braidstream.lab.bench.peers.workloads import check_sql
from braidstream.lab.bench.printed import Printed
from braidstream.lab.workloads.nexmark import SCHEMAS
from braidstream.spark.flow import Flow

__all__ = ["flow_of", "run_builtin"]


def main() -> None:
    """Run it."""
    query, system, folder = QUERIES[sys.argv[1]], sys.argv[2], Path(sys.argv[3])
    spark = session(json.loads(sys.argv[4]), system)
    checkpoint = folder / f"checkpoint-{system}-{sys.argv[1]}"
    shutil.rmtree(checkpoint, ignore_errors=True)
    shutil.rmtree(f"{checkpoint}-results", ignore_errors=True)
    run = run_flow if system == BRAIDSTREAM else run_builtin
    print(json.dumps(run(spark, query, folder, checkpoint, is_check=sys.argv[5:] == ["check"])), flush=True)


def run_builtin(spark: SparkSession, query: NexmarkQuery, folder: Path, checkpoint: Path, *, is_check: bool) -> Printed:
    """Spark's own streams, in append mode."""
    for name in query.streams:
        reader = spark.readStream.schema(_ddl(name)).option("maxFilesPerTrigger", FILES_PER_EPOCH)
        stream = reader.parquet(str(folder / name))
        (stream.withWatermark("ts", "0 seconds") if query.is_bounded else stream).createOrReplaceTempView(name)
    asked = spark.sql(query.spark)
    if is_check:
        asked = checked_frame(asked, check_sql(*query.check))
    writer = asked.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return checked_progress(running.recentProgress) if is_check else epochs_of(running.recentProgress)


def run_flow(spark: SparkSession, query: NexmarkQuery, folder: Path, checkpoint: Path, *, is_check: bool) -> Printed:
    """Braidstream."""
    flow = flow_of(spark, query, folder, FILES_PER_EPOCH)
    if is_check:
        return checked_flow(flow, query.cql, checkpoint, check_sql(*query.check))
    flow.query(query.cql).to("noop")
    handle = flow.start(checkpoint)
    handle.await_termination()
    return epochs_of(handle._query.recentProgress)


def flow_of(spark: SparkSession, query: NexmarkQuery, folder: Path, files_per_epoch: int) -> Flow:
    """A flow with the streams of a query."""
    flow = Flow(spark, slots=2)
    for name in query.streams:
        options = {"maxFilesPerTrigger": str(files_per_epoch)}
        flow.files(name, folder / name, schema=_ddl(name), time="ts", options=options)
    return flow


def _ddl(name: str) -> str:
    kinds = {pa.int64(): "bigint", pa.string(): "string"}
    return ", ".join(f"{field.name} {kinds.get(field.type, 'timestamp')}" for field in SCHEMAS[name])


if __name__ == "__main__":
    main()
