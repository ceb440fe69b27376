"""A flow on Spark as those see it who watch it: its history, its end, its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from braidstream.errors import BraidstreamError
from braidstream.functions import Central, WindowBatch, stream_function
from braidstream.hiding import hide
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from braidstream.spark.listening import MetricsListener
from braidstream.watch.followed import Followed
from tests.spark.stage import declare, some_epochs, write
from tests.spark.test_functions import numbers_files

pytestmark = pytest.mark.spark

QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 40 SECONDS], S [RANGE 40 SECONDS] WHERE R.k = S.k"


def _start(spark: SparkSession, folder: Path, sink: Any, **more: Any) -> Handle[Any]:
    paths = write(folder, some_epochs(3, n_epochs=3, rows=12))
    flow = declare(Flow(spark, name="seen", slots=2, groups=4), paths)
    flow.query(QUERY, name="q").to(sink)
    return flow.start(folder / "ck", warm=False, **more)


def _followed(folder: Path) -> Followed:
    seen = Followed(str(folder / "ck"))
    seen.look()
    return seen


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "Spark never told the listener"
        time.sleep(0.05)


def test_a_run_is_in_the_history_and_in_the_metrics(spark: SparkSession, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    listener = MetricsListener(registry)
    spark.streams.addListener(listener)
    try:
        handle = _start(spark, tmp_path, "noop")
        handle.await_termination()
        until(lambda: registry.get_sample_value("braidstream_running", {"flow": "seen"}) == 0)
    finally:
        spark.streams.removeListener(listener)
    seen = _followed(tmp_path)
    assert [one.epoch for one in seen.epochs] == [one.epoch for one in handle.progress]
    assert [one.matches for one in seen.epochs] == [one.matches for one in handle.progress]
    assert (seen.name, list(seen.queries), seen.standing().state) == ("seen", ["q"], "ended")
    assert all(one.number("routing_s") > 0 and one.number("join_s") > 0 for one in seen.epochs)
    matches = sum(sum(one.matches.values()) for one in handle.progress)
    assert registry.get_sample_value("braidstream_matches_total", {"flow": "seen", "query": "q"}) == matches > 0
    assert registry.get_sample_value("braidstream_epochs_total", {"flow": "seen"}) == 3
    assert registry.get_sample_value("braidstream_running", {"flow": "seen"}) == 0


def test_a_flow_that_failed_says_why_and_one_that_was_stopped_says_so(spark: SparkSession, tmp_path: Path) -> None:
    is_broken = True

    def sink(rows: Any, epoch: int) -> None:
        if is_broken and epoch == 1:
            raise ValueError("the sink is out of order")

    with pytest.raises(BraidstreamError):
        _start(spark, tmp_path, sink).await_termination()
    failed = _followed(tmp_path).standing()
    assert failed.state == "failed"
    assert "the sink is out of order" in failed.text
    is_broken = False
    handle = _start(spark, tmp_path, sink, epoch="1 second")
    assert _followed(tmp_path).standing().state == "running"
    handle.stop()
    seen = _followed(tmp_path)
    assert seen.standing().state == "stopped"
    kinds = [one.kind for one in seen.events if one.kind in ("failed", "replay", "stopped")]
    assert kinds == ["failed", "replay", "stopped"]


def test_a_secret_in_what_made_a_flow_fail_is_not_in_its_history(spark: SparkSession, tmp_path: Path) -> None:
    secret = "open-sesame-4711"
    hide(secret)

    def sink(rows: Any, epoch: int) -> None:
        if epoch == 1:
            raise ValueError(f"cannot log in with {secret}")

    with pytest.raises(BraidstreamError):
        _start(spark, tmp_path, sink).await_termination()
    standing = _followed(tmp_path).standing()
    assert "cannot log in with (secret)" in standing.text
    files = list((tmp_path / "ck" / "history").iterdir())
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_flow_and_its_handle_show_themselves_in_a_notebook(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, some_epochs(3, n_epochs=2, rows=12))
    flow = declare(Flow(spark, name="a < b", slots=2, groups=4), paths)
    assert "flow a &lt; b" in flow._repr_html_()
    flow.query(QUERY, name="q").to("noop")
    shown = flow._repr_html_()
    assert "<td style='text-align: left'>stream R</td>" in shown
    assert "R.k = S.k" in shown
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    shown = handle._repr_html_()
    assert "a &lt; b: not running" in shown
    assert _cell(shown, "epoch") == "1"
    assert _cell(shown, "rows of this run") == str(sum(sum(one.rows.values()) for one in handle.progress))


def test_a_function_is_in_the_history_and_shows_itself(spark: SparkSession, tmp_path: Path) -> None:
    @stream_function(gives={"total": "float"})
    def total(windows: WindowBatch) -> dict[str, Any]:
        return {"total": windows["v"].sum(axis=1)}

    numbers_files(tmp_path / "a", [(np.arange(t, t + 40), np.arange(t, t + 40)) for t in (0, 40, 80)])
    flow = Flow(spark, name="sums")
    once = {"maxFilesPerTrigger": "1"}
    flow.files("a", tmp_path / "a", schema="ts timestamp, v double", time="ts", delay="0 s", options=once)
    flow.windows(5).apply(Central(total)).to("parquet", path=str(tmp_path / "out"))
    assert "flow sums" in flow._repr_html_()
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    seen = _followed(tmp_path)
    assert (seen.name, seen.standing().state) == ("sums", "ended")
    assert [one.epoch for one in seen.epochs] == [one.epoch for one in handle.progress] == [0, 1, 2]
    assert [one.rows for one in seen.epochs] == [{"a": 40}] * 3
    assert [sum(one.matches.values()) for one in seen.epochs] == [8, 8, 8]
    assert _cell(handle._repr_html_(), "rows of this run") == "120"


def _cell(table: str, name: str) -> str:
    """What a table says beside a name."""
    side = "<td style='text-align: left'>"
    return table.partition(f"{side}{name}</td>{side}")[2].partition("</td>")[0]
