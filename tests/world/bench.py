"""`make bench-world`: the same rows joined from Kafka and from Parquet files by Spark's general way, rows per second.

Two topics with 12 partitions each, two million rows together, as JSON; the same rows as Parquet files. Both are streams
of Spark's (a DataFrame each), joined over windows of ten seconds, results counted and dropped. What is measured are
epochs after the first, which starts Python workers: rows divided by their time, and the wall time of all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.spark.flow import Flow
from braidstream.spark.kafka_source import kafka_frame
from braidstream.spark.session import local_session
from tests.world import servers

SCHEMA = "k long, v long, ts timestamp"
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
PARTITIONS = 12
Declare = Callable[[Flow], None]


def fill(broker: servers.Kafka, folder: Path, topic: str) -> None:
    """The rows of a folder as JSON, over all partitions in turn."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 50, "compression.type": "lz4"})
    sent = 0
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        times = [f"{at}+00:00" for at in table.column("ts").cast("string").to_pylist()]
        for k, v, at in zip(table.column("k").to_pylist(), table.column("v").to_pylist(), times, strict=True):
            message = f'{{"k": {k}, "v": {v}, "ts": "{at.replace("Z", "").replace("+00:00+00:00", "+00:00")}"}}'
            while True:
                try:
                    producer.produce(topic, message, partition=sent % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.5)
            sent += 1
        producer.poll(0)
    assert producer.flush(120) == 0


def measured(spark: SparkSession, folder: Path, declare: Declare) -> dict[str, float]:
    """Rows a second."""
    flow = Flow(spark, slots=2)
    declare(flow)
    flow.query(QUERY, name="pairs").to("noop")
    began = time.monotonic()
    handle = flow.start(folder)
    handle.await_termination()
    wall = time.monotonic() - began
    epochs = list(handle.progress)
    rows = [sum(entry.rows.values()) for entry in epochs]
    matches = sum(sum(entry.matches.values()) for entry in epochs)
    warm = sum(entry.seconds["total"] for entry in epochs[1:])
    return {
        "rows": sum(rows),
        "matches": matches,
        "epochs": len(epochs),
        "rows_per_s": sum(rows[1:]) / warm if warm else 0.0,
        "wall_rows_per_s": sum(rows) / wall,
    }


def main() -> None:
    """Print a table, and write build/bench-world.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    given = parser.parse_args()
    folder, per_stream = Path(tempfile.mkdtemp(prefix="braidstream-bench-")), given.rows // 2
    per_epoch = max(per_stream // 8, 1)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with servers.kafka() as broker:
            for seed, name in enumerate("RS"):
                one = {"rate": 5000, "keys": UniformKeys(20_000), "rows_per_file": per_epoch}
                write_stream(folder / name, **one, n_rows=per_stream, seed=seed)  # type: ignore[arg-type]
                fill(broker, folder / name, broker.create(name, PARTITIONS))
            spark = local_session(
                "local[2]",
                "bench-world",
                {
                    "spark.jars": ",".join(map(str, servers.connector_jars())),
                    "spark.ui.enabled": "false",
                    "spark.driver.memory": "3g",
                },
            )
            options = {"kafka.bootstrap.servers": broker.servers, "startingOffsets": "earliest"}
            options["maxOffsetsPerTrigger"] = str(per_epoch)

            def topics(flow: Flow) -> None:
                for name in "RS":
                    frame = kafka_frame(spark, name, SCHEMA, "ts", {**options, "subscribe": name})
                    flow.stream(name, frame, time="ts", delay="1 minute")

            def parquet(flow: Flow) -> None:
                for name in "RS":
                    read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
                    flow.stream(name, read.parquet(str(folder / name)), time="ts", delay="1 minute")

            found = {
                "kafka, 12 partitions": measured(spark, folder / "ck-kafka", topics),
                "parquet, Spark's source": measured(spark, folder / "ck-parquet", parquet),
            }
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert len({one["matches"] for one in found.values()}) == 1, found
    print("| from | rows | matches | epochs | rows/s in epochs | rows/s by the clock |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, one in found.items():
        cells = [one["rows"], one["matches"], one["epochs"], one["rows_per_s"], one["wall_rows_per_s"]]
        print(f"| {name} | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |")
    out = Path(__file__).parents[2] / "build" / "bench-world.json"
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
