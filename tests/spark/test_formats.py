"""Formats of sources and sinks: one check for job files, `braid check` and the Python API, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from braidstream import Flow, SinkError, StreamError
from braidstream.spark.formats import SINKS, SOURCES, _published, check_sink, check_source
from braidstream.spark.sinks import make_sink
from tests.cli.workshop import Braid, Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k long, v long, ts timestamp"
CQL = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
R_SOURCE = 'format = "parquet"\npath = "R"\nschema = "k long, v long, ts timestamp"\ntime = "ts"'
KAFKA = 'format = "kafka"\ntime = "timestamp"'


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop.make(tmp_path, files=1, rows_per_file=20)


@pytest.fixture
def braid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Braid:
    return Braid(capsys, monkeypatch)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("parqet", "parquet"), ("Parquett", "parquet"), ("cvs", "csv"), ("jsno", "json"), ("kafak", "kafka"),
     ("dleta", "delta"), ("memroy", "memory"), ("no-op", "noop")],
)  # fmt: skip
def test_a_misspelt_sink_is_refused_without_spark(given: str, meant: str) -> None:
    with pytest.raises(SinkError, match=f"no format '{given}'(.|\n)*did you mean '{meant}'"):
        make_sink(given, "out", {})


@pytest.mark.parametrize("name", ["com.example.MySource", "mongodb", "bigquery", "snowflake", "es", "redis", "excel"])
def test_a_format_of_somebody_else_is_left_for_spark(name: str) -> None:
    check_sink(name, {})
    check_source("R", name, {})


@pytest.mark.parametrize("name", SINKS)
def test_known_sinks_pass_with_what_they_need(name: str) -> None:
    check_sink(name.upper(), {"path": "out", "kafka.bootstrap.servers": "a:1", "URL": "jdbc:x", "dbTable": "t"})


@pytest.mark.parametrize("name", SOURCES)
def test_known_sources_pass_with_what_they_need(name: str) -> None:
    check_source("R", name, {"Kafka.Bootstrap.Servers": "a:1", "subscribepattern": "x", "host": "h", "port": "1"})


@pytest.mark.parametrize(
    ("target", "options", "told"),
    [
        ("rate", {}, "'rate' is a source, no sink"),
        ("kafka", {}, "has no option kafka.bootstrap.servers"),
        ("jdbc", {"url": "jdbc:x"}, "the jdbc sink has no option dbtable"),
        ("delta", {}, "the delta sink has no option path"),
        (5, {}, "a sink is 5"),
        (None, {}, "a sink is None"),
    ],
)
def test_a_sink_that_cannot_be_one_is_refused_without_spark(target: Any, options: dict[str, str], told: str) -> None:
    with pytest.raises(SinkError, match=told):
        make_sink(target, None, options)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"parquet", path = "out/pairs"', '"parqet", path = "out/pairs"'), ["[queries.pairs] sink", "'parquet'?"]),
        ((R_SOURCE, R_SOURCE.replace('"parquet"', '"parqet"')), ["[streams.R]", "'parqet'", "did you mean 'parquet'?"]),
        ((R_SOURCE, KAFKA), ["[streams.R]", "no option kafka.bootstrap.servers", 'add "kafka.bootstrap.servers" =']),
        ((R_SOURCE, R_SOURCE.replace('"parquet"', '"jdbc"')), ["[streams.R]", "'jdbc' is a sink"]),
        (('"parquet", path = "out/pairs"', '"rate"'), ["[queries.pairs] sink", "'rate' is a source"]),
        (('path = "out/pairs" }', 'path = "out/pairs" }\nlate = { format = "cvs", path = "l" }'), ["late", "'csv'?"]),
    ],
)
def test_check_refuses_formats_and_missing_options(
    braid: Braid, workshop: Workshop, change: tuple[str, str], told: list[str]
) -> None:
    outcome = braid("check", workshop.job(change))
    assert outcome.code == 2, outcome
    for part in told:
        assert part in outcome.err


def test_check_refuses_a_kafka_stream_that_subscribes_to_nothing(braid: Braid, workshop: Workshop) -> None:
    text = workshop.job((R_SOURCE, KAFKA)).read_text()
    job = workshop.folder / "kafka.toml"
    job.write_text(text.replace('maxFilesPerTrigger = "1"', '"kafka.bootstrap.servers" = "a:1"', 1))
    outcome = braid("check", job)
    assert outcome.code == 2
    assert "has no option subscribe or subscribePattern or assign" in outcome.err


@pytest.mark.parametrize(
    ("spark_version", "named"), [("4.1.0", "4.1.0"), ("4.2.0", "4.2.0"), ("4.3.0", "4.2.0"), ("4.10.1.dev0", "4.2.0")]
)
def test_the_package_that_a_hint_names_was_published(
    monkeypatch: pytest.MonkeyPatch, spark_version: str, named: str
) -> None:
    monkeypatch.setattr("pyspark.__version__", spark_version)
    assert _published("4.2.0") == named


@pytest.fixture
def no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed here."""
    monkeypatch.setattr("braidstream.spark.sinks.has_extra", lambda _: False)


@pytest.mark.usefixtures("no_extras")
def test_check_names_the_formats_that_only_spark_can_find(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("check", workshop.job(('"parquet", path = "out/pairs"', '"delta", path = "out/pairs"')))
    assert outcome.code == 0, outcome
    assert "not checked: whether Spark has the format delta of [queries.pairs] sink" in outcome.out


@pytest.mark.spark
@pytest.mark.parametrize(
    ("target", "path", "told"),
    [
        ("delta", "out", "no package of delta(.|\n)*spark.jars.packages=io.delta:delta-spark"),
        ("avro", "out", "no package of avro(.|\n)*org.apache.spark:spark-avro_2.13:"),
        ("unheardof", None, "Spark knows no format 'unheardof'"),
        ("com.example.Nowhere", None, "Spark knows no format 'com.example.Nowhere'"),
    ],
)
@pytest.mark.usefixtures("no_extras")
def test_the_api_refuses_what_the_session_does_not_have_before_the_start(
    workshop: Workshop, spark: SparkSession, target: str, path: str | None, told: str
) -> None:
    folder = workshop.folder
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(name, folder / name, schema=SCHEMA, time="ts")
    flow.query(CQL, "q").to(target, path if path is None else folder / path)
    with pytest.raises(SinkError, match=told):
        flow.start(folder / "ck")
    assert not (folder / "ck").exists()
    assert not (folder / "out").exists()


@pytest.mark.spark
def test_a_late_sink_and_a_submitted_query_are_checked_the_same(workshop: Workshop, spark: SparkSession) -> None:
    folder = workshop.folder
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(name, folder / name, schema=SCHEMA, time="ts")
    query = flow.query(CQL, "q").to("memory")
    with pytest.raises(SinkError, match="did you mean 'parquet'"):
        query.late("parqet", "late")
    handle = flow.start(folder / "ck", epoch="1 hour", warm=False)
    try:
        for target in ("parqet", "unheardof"):
            with pytest.raises(SinkError, match="Spark knows no format"):
                flow.submit(CQL, "other", to=target)
        assert flow.names == ("q",)
        assert handle.is_active
    finally:
        handle.stop()


@pytest.mark.spark
def test_a_source_of_the_users_own_is_found(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource

    from braidstream.spark.formats import find_sink

    class Mine(DataSource):
        @classmethod
        def name(cls) -> str:
            return "mine_for_formats"

        def schema(self) -> str:
            return "k long"

    spark.dataSource.register(Mine)
    find_sink(spark, "mine_for_formats")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("format_", "options", "told"),
    [
        ("kafka", {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, "no package of kafka(.|\n)*spark-sql-kafka"),
        ("kafka", {}, "has no option kafka.bootstrap.servers"),
        ("unheardof", {}, "Spark knows no format 'unheardof'"),
    ],
)
def test_a_job_refuses_a_source_that_cannot_be_opened(
    spark: SparkSession, format_: str, options: dict[str, str], told: str
) -> None:
    from braidstream.spark.formats import open_stream

    with pytest.raises(StreamError, match=told):
        open_stream(spark, "R", format_, None, None, options)
