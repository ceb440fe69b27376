"""Answers of Spark and Braidstream as one count and one sum, to compare with a batch join's.

`check` is SQL for a whole number of each result. Spark observes both while a query runs; Braidstream's results go to
files, which DuckDB reads. Cost: the results of what is checked are written once; nothing of it is timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import braidstream
from braidstream.lab.bench.printed import Printed
from braidstream.spark.flow import Flow

__all__ = ["checked_flow", "checked_frame", "checked_progress"]

_NAME = "checked"


def checked_frame(frame: DataFrame, check: str) -> DataFrame:
    """The same rows, observed."""
    return frame.observe(_NAME, F.count(F.lit(1)).alias("results"), F.sum(F.expr(check)).alias("checksum"))


def checked_progress(progress: Iterable[Any]) -> Printed:
    """What was observed of such a frame, in all epochs."""
    seen = [entry["observedMetrics"][_NAME] for entry in progress if _NAME in entry["observedMetrics"]]
    results, checksum = (sum(int(one[name] or 0) for one in seen) for name in ("results", "checksum"))
    return {"epoch_ms": [], "results": results, "checksum": checksum, "version": pyspark.__version__}


def checked_flow(flow: Flow, text: str, checkpoint: Path, check: str) -> Printed:
    """Run a query to its end, with what is open then, and read its results."""
    import duckdb  # noqa: PLC0415  (of the extra `dev`; `braid bench` does without)

    results = checkpoint.with_name(f"{checkpoint.name}-results")
    flow.query(text).to("parquet", path=str(results))
    flow.start(checkpoint, final=True).await_termination()
    files = braidstream.result_files(results)
    if not files:
        return {"epoch_ms": [], "results": 0, "checksum": 0, "version": braidstream.__version__}
    with duckdb.connect() as connection:
        read = f"read_parquet({[str(file) for file in files]})"
        found = connection.execute(f"SELECT COUNT(*), SUM({check}) FROM {read}").fetchone() or (0, 0)
    return {
        "epoch_ms": [],
        "results": int(found[0]),
        "checksum": int(found[1] or 0),
        "version": braidstream.__version__,
    }
