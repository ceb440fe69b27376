"""How fast functions are on local Spark, beside what Spark does on its own. On a quiet machine: marked `acceptance`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from braidstream.functions import PCC, Central, Distribute, Merge, StreamFunction, WindowBatch, stream_type
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]

ONE_FILE = {"maxFilesPerTrigger": "1"}


def stamps(begin: int, end: int) -> pa.Array:
    return pa.array(np.arange(begin, end, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))


def slow(windows: WindowBatch) -> dict[str, Any]:
    time.sleep(0.005 * len(windows))
    return {"total": windows["v"].sum(axis=1)}


def test_window_distribute_over_two_cores_is_nearly_twice_as_fast_as_central(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A function of 5 ms a window; the first epoch warms up, the second is measured."""
    sizes = [100, 2000]
    edges = np.cumsum([0, *(n * 8 for n in sizes)]).tolist()
    tables = (pa.table({"ts": stamps(a, b), "v": np.ones(b - a)}) for a, b in itertools.pairwise(edges))
    append_files(tmp_path / "n", tables)
    function = StreamFunction("slow", slow, stream_type("total", total="float"))

    def rate(name: str, template: Any) -> float:
        flow = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        flow.windows(8).apply(template, name="slow").to("noop")
        handle = flow.start(tmp_path / name, warm=False)
        handle.await_termination()
        last = handle.progress[-1]
        assert last.results == 2000  # type: ignore[attr-defined]
        return 2000 / last.seconds["total"]

    central = rate("central", Central(function))
    spread = rate("wd2", PCC(2, Distribute(), function, Merge()))
    print(f"\nCentral {central:.0f} windows/s, WD2 {spread:.0f} windows/s, ratio {spread / central:.2f}")
    assert spread >= 1.7 * central


def same(windows: WindowBatch) -> Any:
    return windows.fields


def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


FORMS = {"binary": "binary", "array<struct>": "array<struct<re: double, im: double>>"}


def column(vectors: Any, form: str) -> pa.Array:
    if form == "binary":
        return pa.array([row.tobytes() for row in vectors], pa.binary())
    flat = vectors.reshape(-1)
    numbers = pa.StructArray.from_arrays([pa.array(flat.real.copy()), pa.array(flat.imag.copy())], names=["re", "im"])
    offsets = np.arange(len(vectors) + 1, dtype=np.int32) * vectors.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), numbers)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["files", "rows from Spark"])
def test_an_identity_function_keeps_up_with_map_in_arrow(
    spark: SparkSession, tmp_path: Path, form: str, way: str
) -> None:
    """3 channels of complex128, window 1024: bytes of the windows a second, after a first run of each to warm up."""
    n_files, n_rows, size = 4, 1000, 1024
    rng = np.random.default_rng(1)
    schema = "ts timestamp, " + ", ".join(f"{name} {FORMS[form]}" for name in "xyz")
    append_files(
        tmp_path / "radio",
        (
            pa.table(
                {
                    "ts": stamps(i * n_rows, (i + 1) * n_rows),
                    **{name: column(rng.normal(size=(n_rows, size, 2)) @ [1, 1j], form) for name in "xyz"},
                }
            )
            for i in range(n_files)
        ),
    )
    n_bytes = n_files * n_rows * size * 16 * 3
    kinds = stream_type("RADIO", ts="timestamp", **dict.fromkeys("xyz", "vector of complex"))
    function = StreamFunction("same", same, kinds, kinds)

    def alone() -> float:
        started = time.perf_counter()
        frame = spark.read.schema(schema).parquet(str(tmp_path / "radio")).mapInArrow(pass_on, schema)
        frame.write.format("noop").mode("overwrite").save()
        return n_bytes / (time.perf_counter() - started)

    def ours(attempt: int) -> float:
        flow = Flow(spark)
        if way == "files":
            flow.files("radio", tmp_path / "radio", schema=schema, time="ts")
        else:
            flow.stream("radio", spark.readStream.schema(schema).parquet(str(tmp_path / "radio")), time="ts")
        flow.windows(of=kinds).apply(function).to("noop")
        started = time.perf_counter()
        handle = flow.start(tmp_path / f"ck{attempt}", warm=False)
        handle.await_termination()
        assert handle.totals["same.results"] == n_files * n_rows
        return n_bytes / (time.perf_counter() - started)

    rates = [(alone(), ours(attempt)) for attempt in range(4)][1:]
    limit, reached = (max(pair[i] for pair in rates) for i in (0, 1))
    print(f"\n{form}, {way}: mapInArrow alone {limit / 1e6:.0f} MB/s, identity function {reached / 1e6:.0f} MB/s")
    assert reached >= 0.4 * limit
