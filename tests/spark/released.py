"""A load that falls and rises, on a cluster of three executors: slots, executors and results, as one JSON object.

    python -m tests.spark.released FOLDER

A program of its own, because it needs a `local-cluster` of three executors, and a process has one Spark at a time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session
from tests.spark.slowed import N_SLOTS, _wait_for_executors

ROW_US = 1_000
LOW, HIGH = 20, 1_500
"""Rows of each stream in an epoch: 0.04 s and 3 s of work, of the second that an epoch may take."""
ROWS = [LOW] * 10 + [HIGH] * 5
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
SECOND = 1_000_000


def main(folder: Path) -> dict[str, Any]:
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "900m",
        "spark.executorEnv.BRAIDSTREAM_WORK": str(ROW_US),
        "spark.log.level": "ERROR",
    }
    write(folder)
    spark = local_session(f"local-cluster[{N_SLOTS},1,1024]", "released", settings)
    try:
        _wait_for_executors(spark)
        return run(spark, folder)
    finally:
        spark.stop()


def write(folder: Path) -> None:
    rng = np.random.default_rng(5)
    for epoch, n in enumerate(ROWS):
        for name in "RS":
            times = np.sort(rng.integers(epoch * SECOND, (epoch + 1) * SECOND, n))
            table = pa.table([rng.integers(0, 500, n), rng.integers(0, 1 << 40, n), times], schema=SCHEMA)
            append_files(folder / name, [table])


def run(spark: Any, folder: Path) -> dict[str, Any]:
    declustering = {"declustering": True, "declustering_rule": "paper", "release": True, "max_slots": N_SLOTS}
    flow = Flow(spark, slots=N_SLOTS, controller=Controller(Settings(every=1, epoch_s=1.0, **declustering)))
    for name in "RS":
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, folder / name, schema="k long, v long, ts timestamp", time="ts", options=options)
    text = "SELECT R.v AS r, S.v AS s FROM R [RANGE 5 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
    flow.query(text).to("parquet", path=str(folder / "out"))
    status, seen, ended = spark.sparkContext._jsc.sc().statusTracker(), [], threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            seen.append(len(status.getExecutorInfos()) - 1)  # without the driver

    looking = threading.Thread(target=look)
    looking.start()
    try:
        handle = flow.start(folder / "ck", warm=False)
        handle.await_termination()
    finally:
        ended.set()
        looking.join()
    streams = [BatchStream(name, folder / name, 5 * SECOND) for name in "RS"]
    right = batch_join(streams, [("R.k", "S.k")], {"r": "R.v", "s": "S.v"})
    return {
        "slots": [entry.slots for entry in handle.progress],
        "executors": seen,
        "difference": str(same_rows(folder / "out", right)),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
