"""Sinks that need a package of their own: refused with the command that installs it, before anything starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream import Flow, SinkError
from braidstream.jobs.form import read
from braidstream.spark.extras import EXTRAS
from braidstream.spark.sink import Mark
from braidstream.spark.sinks import TableSink, make_sink

DECLARED: dict[str, tuple[str | None, dict[str, str]]] = {
    "iceberg": ("lake", {"table": "results.pairs"}),
    "postgresql": (None, {"url": "postgresql://h/d", "table": "t"}),
    "kafka": (None, {"servers": "h:9092", "topic": "t"}),
}


@pytest.fixture
def without_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    hidden = set(EXTRAS.values())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in hidden else found(name, *rest))


@pytest.mark.parametrize("format_", DECLARED)
def test_a_missing_package_is_refused_with_the_command_that_installs_it(format_: str, without_extras: None) -> None:
    path, options = DECLARED[format_]
    with pytest.raises(SinkError, match=f"the {format_} sink needs the package {EXTRAS[format_]}") as refused:
        make_sink(format_, path, options)
    assert refused.value.fix == f"pip install 'braidstream[{format_}]'"


@pytest.mark.spark
def test_delta_without_its_package_is_sparks_and_the_message_says_both(
    spark: SparkSession, without_extras: None
) -> None:
    sink = make_sink("delta", "out", {})
    assert isinstance(sink, TableSink)
    with pytest.raises(SinkError, match="no package of delta") as refused:
        sink.find(spark)
    assert "pip install 'braidstream[delta]'" in refused.value.fix
    assert "spark.jars.packages=" in refused.value.fix


def test_what_0_1_0_wrote_by_spark_is_still_written_by_spark() -> None:
    kafka = make_sink("kafka", None, {"kafka.bootstrap.servers": "h:1", "topic": "t"})
    assert isinstance(kafka, TableSink)
    assert "may be appended twice" in kafka.description
    assert isinstance(make_sink("iceberg", "catalog.database.table", {}), TableSink)
    assert isinstance(make_sink("delta", "out", {"mergeSchema": "true"}), TableSink)


GUARANTEES = {
    "parquet": (("parquet", "out", {}), "each epoch once: one that is delivered again replaces its files"),
    "csv": (("csv", "out", {}), "each epoch once: one that is delivered again replaces its files"),
    "parquet in S3": (("parquet", "s3://bucket/out", {}), "each epoch once for readers of result_files"),
    "delta by Spark": (("delta", "out", {"mergeSchema": "true"}), "each epoch once: Delta recognizes flow and epoch"),
    "a table of Spark's": (("jdbc", None, {"url": "jdbc:x", "dbtable": "t"}), "may be appended twice after a crash"),
    "a topic by the connector": (
        ("kafka", None, {"kafka.bootstrap.servers": "h:1", "topic": "t"}), "may be appended twice after a crash",
    ),
    "a function": ((print, None, {}), "called again with the same epoch"),
    "memory": (("memory", None, {}), "all results are kept in the driver"),
    "noop": (("noop", None, {}), "results are counted and dropped"),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARANTEES)
def test_every_sink_says_what_it_guarantees(name: str) -> None:
    declared, told = GUARANTEES[name]
    assert told in make_sink(*declared).explained


@pytest.mark.parametrize("format_", ["delta", *DECLARED])
def test_sinks_with_transactions_say_that_each_epoch_is_there_once(format_: str) -> None:
    pytest.importorskip(EXTRAS[format_], reason="make world installs it")
    path, options = DECLARED.get(format_, ("out", {}))
    assert "each epoch once" in make_sink(format_, path, options).explained


def test_a_mark_tells_epochs_of_queries_and_steps_apart() -> None:
    marks = [Mark(flow, outlet, number) for flow in "ab" for outlet in ("q", "late R") for number in (3, -3)]
    assert len({(mark.writer, mark.version) for mark in marks}) == len(marks)
    assert {mark.version for mark in marks} == {3}
    assert {mark.kind for mark in marks} == {"epoch", "step"}


@pytest.mark.parametrize("key", ['["k", "rv"]', '"k, rv"'])
def test_a_job_file_may_list_the_columns_of_a_key(tmp_path: Path, key: str) -> None:
    from braidstream.spark.arrow_rows import names_of

    sink = f'{{ format = "postgresql", options = {{ url = "postgresql://h/d", table = "t", key = {key} }} }}'
    job = tmp_path / "job.toml"
    job.write_text(
        '[flow]\ncheckpoint = "ck"\n[streams.R]\nformat = "rate"\ntime = "timestamp"\n'
        f'[queries.q]\ncql = "SELECT 1"\nsink = {sink}\n'
    )
    assert names_of(read(job).queries["q"].sink.options["key"]) == ["k", "rv"]


@pytest.mark.spark
def test_two_queries_of_one_flow_may_not_share_a_delta_table_that_spark_writes(
    spark: SparkSession, tmp_path: Path, without_extras: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's writer knows an epoch by the flow alone, so the second query's results would be dropped."""
    monkeypatch.setattr(TableSink, "find", lambda *_: None)
    frame: Any = spark.readStream.format("rate").load()
    flow = Flow(spark).stream("R", frame, time="timestamp").stream("S", frame, time="timestamp")
    for name in ("a", "b"):
        text = "SELECT R.value AS v FROM R [RANGE 1 SECOND], S [RANGE 1 SECOND] WHERE R.value = S.value"
        flow.query(text, name=name).to("delta", path=str(tmp_path / "out"))
    with pytest.raises(SinkError, match="'a' and 'b' have the same sink path"):
        flow.check(tmp_path / "ck")
