"""Spark's built-in stream-stream join of the streams of `lab.bench.memory`, and what becomes of it.

It has the same heap, the same files and the same number of partitions. It may end, fail, or not be done within the time
that it is given: `status` says which of these ("ok", "failed", "not done"), and the other figures how far it came, how
much memory its process had, and how much of the time went into collecting garbage.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from braidstream.lab.bench.process_memory import Sampler

__all__ = ["reason_of", "run_builtin"]

_LOOK_S = 1
_REASON = 200


def run_builtin(spark: Any, folder: Path, *, schema: str, partitions: int, limit_s: float) -> dict[str, Any]:
    """Join R and S below a folder, for at most so long."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    writer = _joined(spark, folder, schema).writeStream.format("noop").trigger(availableNow=True)
    n_batches = len(list((folder / "R").iterdir()))
    reached: dict[str, Any] = {"batches": 0}
    started = time.monotonic()
    with Sampler() as sampler:
        query = writer.option("checkpointLocation", str(folder / "spark-ck")).start()
        ended = _awaited(spark, query, started + limit_s, reached)
        seconds = time.monotonic() - started
    found = {**ended, "seconds": round(seconds, 1), "batches_wanted": n_batches, **reached}
    return {**found, "jvm_peak_mb": sampler.peak("jvm")}


def _joined(spark: Any, folder: Path, schema: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    frames = {
        name: spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        for name in "RS"
    }
    right = frames["S"].selectExpr("k AS sk", "v AS sv")
    joined = frames["R"].selectExpr("k", "v AS rv", "text").join(right, F.col("k") == F.col("sk"))
    return joined.select("k", "rv", "sv", "text")


def _awaited(spark: Any, query: Any, until: float, reached: dict[str, Any]) -> dict[str, str]:
    """Wait for the end. How far it came is written down on the way: a JVM without memory cannot be asked afterwards."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        while time.monotonic() < until:
            is_ended = query.awaitTermination(_LOOK_S)
            reached |= _figures(spark, query)
            if is_ended:
                return {"status": "ok"}
        query.stop()
    except (PySparkException, Py4JError, OSError) as error:
        return {"status": "failed", "reason": reason_of(str(error) or type(error).__name__)}
    return {"status": "not done", "reason": "not ended within the time it was given"}


def reason_of(text: str) -> str:
    """The line of a long message that says why: lack of memory where that is in it, else the end of its first line."""
    found = re.search(r"(?:java\.lang\.OutOfMemoryError|GC overhead)[^\n]*", text)
    return found.group()[:_REASON] if found else text.strip().splitlines()[0][-_REASON:]


def _figures(spark: Any, query: Any) -> dict[str, Any]:
    """The batches that are done, the state after the last of them, and the time spent collecting garbage."""
    done = [entry for entry in query.recentProgress if entry["stateOperators"]]
    if not done:
        return {}
    operators = done[-1]["stateOperators"]
    beans = spark._jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    return {
        "batches": int(done[-1]["batchId"]) + 1,
        "last_batch_seconds": round(done[-1]["durationMs"]["triggerExecution"] / 1000, 1),
        "state_rows": sum(one["numRowsTotal"] for one in operators),
        "state_mb": round(sum(one["memoryUsedBytes"] for one in operators) / (1 << 20), 1),
        "garbage_seconds": round(sum(bean.getCollectionTime() for bean in beans) / 1000, 1),
    }
