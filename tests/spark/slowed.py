"""One executor of three is slow: the epochs of a flow without and with a controller, as one JSON object.

    python -m tests.spark.slowed FOLDER

A program of its own, because it needs a `local-cluster` of three executors, and a process has one Spark at a time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyspark

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.spark.flow import Flow
from braidstream.spark.session import local_session

N_SLOTS = 3
FACTOR = 3.0
ROW_US = 25
ROWS = 30_000
EVERY = 2
MOST_REORGANIZATIONS = 5
N_EPOCHS = EVERY * MOST_REORGANIZATIONS + 4
WINDOW = "10 SECONDS"


def main(folder: Path) -> dict[str, Any]:
    for seed, name in enumerate("RS"):
        keys = UniformKeys(200_000)
        write_stream(folder / name, rate=ROWS / 5, keys=keys, rows_per_file=ROWS, seed=seed, n_rows=ROWS * N_EPOCHS)
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    marker = folder / "slow"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "900m",
        "spark.executorEnv.BRAIDSTREAM_SLOW": f"{marker}:{FACTOR}",
        "spark.executorEnv.BRAIDSTREAM_WORK": str(ROW_US),
        "spark.sql.shuffle.partitions": str(N_SLOTS),
        "spark.log.level": "ERROR",
    }
    spark = local_session(f"local-cluster[{N_SLOTS},1,1024]", "slowed", settings)
    try:
        _wait_for_executors(spark)
        control = Settings(every=EVERY, groups_at_once=8)
        return {
            "without": _run(spark, folder, "without", marker, None),
            "with": _run(spark, folder, "with", marker, Controller(control)),
        }
    finally:
        spark.stop()


def _run(spark: Any, folder: Path, name: str, marker: Path, controller: Controller | None) -> dict[str, Any]:
    flow = Flow(spark, name, slots=N_SLOTS, controller=controller)
    for stream in "RS":
        options = {"maxFilesPerTrigger": "1"}
        flow.files(stream, folder / stream, schema="k long, v long, ts timestamp", time="ts", options=options)
    text = f"SELECT R.v AS r, S.v AS s FROM R [RANGE {WINDOW}], S [RANGE {WINDOW}] WHERE R.k = S.k"
    flow.query(text).to("parquet", path=str(folder / f"out-{name}"))
    handle = flow.start(folder / f"ck-{name}")
    handle.await_termination()
    homes = handle._runner.manifest.executors
    slow = [slot for slot in range(N_SLOTS) if homes[slot] == marker.read_text()]
    streams = [BatchStream(stream, folder / stream, 10_000_000) for stream in "RS"]
    right = batch_join(streams, [("R.k", "S.k")], {"r": "R.v", "s": "S.v"})
    return {
        "slow_slots": slow,
        "executors": len(set(homes.values())),
        "locality": handle.locality,
        "busy_s": [[round(busy, 3) for busy in entry.busy_s] for entry in handle.progress],
        "seconds": [round(entry.seconds["total"], 2) for entry in handle.progress],
        "decisions": [decision.explain() for decision in handle.decisions],
        "difference": str(same_rows(folder / f"out-{name}", right)),
    }


def _wait_for_executors(spark: Any) -> None:
    """Slots are pinned where they first run: all executors must be there by then."""
    status = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + 120
    while len(status.getExecutorInfos()) < N_SLOTS + 1:  # and the driver
        if time.monotonic() > deadline:
            raise TimeoutError("the executors did not start")
        time.sleep(0.1)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
