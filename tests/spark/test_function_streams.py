"""Functions over several streams, and plans that a job file lets a flow try, on local Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.errors import RunError
from braidstream.functions import StreamFunction, WindowBatch
from braidstream.functions.jobfile import read_tables
from braidstream.model.faults import armed
from braidstream.spark.flow import Flow
from braidstream.spark.functions import attach_job_function
from tests.spark.test_functions import ONE_FILE, RADIO, back, numbers_files, radio_files, results, signal, total, wd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("align", ["time", "count"])
def test_a_function_over_two_streams_sees_aligned_windows_also_after_a_crash(
    spark: SparkSession, tmp_path: Path, align: str
) -> None:
    """GSDM 3.1. `b` has every second of `a`'s times."""
    numbers_files(tmp_path / "a", [(np.arange(t, t + 40), np.arange(t, t + 40)) for t in range(0, 160, 40)])
    numbers_files(tmp_path / "b", [(np.arange(t, t + 40, 2), np.arange(t, t + 40, 2)) for t in range(0, 160, 40)])

    def difference(windows: WindowBatch) -> dict[str, Any]:
        return {"total": (windows["a_v"] - windows["b_v"]).sum(axis=1)}

    def run() -> Any:
        flow = Flow(spark)
        for name in "ab":
            flow.files(name, tmp_path / name, schema="ts timestamp, v double", time="ts", delay="0 s", options=ONE_FILE)
        function = StreamFunction("difference", difference, total.gives)
        windows = flow.windows(5, stream="a", beside=["b"], align=align)
        windows.apply(wd(2, function)).to("parquet", path=str(tmp_path / "out"))
        assert f"a and b, aligned by {align}" in flow.explain()
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with armed("before-manifest:1:raise"), pytest.raises(RunError, match="injected fault"):
        run()
    run()
    found = results(tmp_path / "out").column("total").to_pylist()
    whole = [0.0] * 15 if align == "time" else [-float(sum(range(n, n + 5))) for n in range(0, 80, 5)]
    assert found == whole


def test_a_job_file_lets_a_flow_try_its_plans_and_stay_with_the_best(spark: SparkSession, tmp_path: Path) -> None:
    """GSDM 5: trained on the cluster that it runs on, epoch by epoch; the order of the results is the stream's."""
    samples = signal(4000)
    radio_files(tmp_path / "radio", samples, range(500, 4000, 500))
    table = {
        "stream": "radio", "function": "fft3", "size": 64, "step": 50, "degrees": [2],
        "split": "braidstream.functions.fft:fft3_part", "combine": "braidstream.functions.fft:fft3_combine",
        "strategies": ["distribute"], "also": ["Central", "WD2-WS2"], "switch_every": 1,
        "sink": {"format": "parquet", "path": str(tmp_path / "out")},
    }  # fmt: skip
    _, functions = read_tables({"functions": {"spectra": table}}, "job.toml")
    flow = Flow(spark).files("radio", tmp_path / "radio", schema=RADIO, time="ts", options=ONE_FILE)
    attach_job_function(flow, "spectra", functions["spectra"])
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert [entry.plan for entry in handle.progress][:3] == ["WD2", "Central", "WD2-WS2"]
    found, expected = results(tmp_path / "out"), sliding_window_view(samples["y"], 64)[::50]
    assert found.column("seq").to_pylist() == list(range(len(expected)))
    whole = np.fft.fft(expected)
    assert np.abs(back(found.column("y")) - whole).max() <= 1e-9 * np.abs(whole).max()


def test_results_of_a_function_are_a_stream_of_another_flow(spark: SparkSession, tmp_path: Path) -> None:
    """Two flows in order, twice: sums over windows, then a join of the sums with other rows; each result once."""
    found = tmp_path / "sums"
    for begin in (0, 20):
        numbers_files(tmp_path / "n", [(range(begin, begin + 20), range(begin, begin + 20))])
        sums = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        sums.windows(4, 4).apply(total).to("parquet", path=str(found))
        sums.start(tmp_path / "ck-sums", warm=False).await_termination()
        numbers_files(tmp_path / "R", [(range(begin, begin + 20), [6.0 * i for i in range(begin, begin + 20)])])
        joined = Flow(spark, slots=2)
        joined.files("sums", found, schema="seq long, ts timestamp, total double", time="ts", delay="1 second")
        joined.files("R", tmp_path / "R", schema="ts timestamp, v double", time="ts", delay="1 second")
        text = "SELECT s.seq AS seq, R.v AS v FROM sums AS s [RANGE UNBOUNDED], R [RANGE UNBOUNDED] WHERE s.total = R.v"
        joined.query(text, name="q").to("parquet", path=str(tmp_path / "out"))
        joined.start(tmp_path / "ck-joined", warm=False).await_termination()
    rows = pq.read_table(tmp_path / "out", ignore_prefixes=["_"]).to_pylist()
    totals = {seq: float(sum(range(4 * seq, 4 * seq + 4))) for seq in range(10)}
    known = {6.0 * i for i in range(40)}
    expected = [(seq, value) for seq, value in totals.items() if value in known]
    assert sorted((row["seq"], row["v"]) for row in rows) == expected
    assert len(expected) > 2
