"""A flow on Spark as those see it who watch it: its history, its end, its metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from braidstream.errors import BraidstreamError
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from braidstream.spark.listening import MetricsListener
from braidstream.watch.followed import Followed
from tests.spark.stage import declare, some_epochs, write

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
