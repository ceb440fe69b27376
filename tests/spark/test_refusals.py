"""What a sink or a checkpoint is refused for before anything starts: each message, and that none takes ten seconds.

Servers here are sockets that are silent, or that nobody listens on; tests/world has real ones that refuse.
"""

from __future__ import annotations

import importlib
import importlib.util
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from braidstream import SinkError, StreamError, jobs
from braidstream.errors import InputError
from braidstream.spark import kafka_sink
from braidstream.spark.avro_values import refuse_no_avro
from braidstream.spark.declared import sink_again
from braidstream.spark.flow import Flow
from braidstream.spark.formats import open_stream, package_of
from braidstream.spark.postgresql_addresses import timely
from braidstream.spark.sinks import make_sink
from braidstream.state import files, objects
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.notes import Submitted
from tests.cli.workshop import Workshop

ROWS = StructType([StructField("k", LongType())])
NEEDED = {"postgresql": "adbc_driver_postgresql", "kafka": "confluent_kafka", "iceberg": "pyiceberg"}


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen(50)
        yield int(one.getsockname()[1])


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, silent: int) -> Iterator[None]:
    """The environment names a server of S3 that is silent."""
    settings = {"ENDPOINT_URL": f"http://127.0.0.1:{silent}", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    for name, value in {**settings, "REGION": "us-east-1", "EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr(objects, "ANSWER_S", 1.0)  # tests/world waits for as long as a start does
    objects._s3_store.cache_clear()
    files._resolve.cache_clear()
    yield
    objects._s3_store.cache_clear()
    files._resolve.cache_clear()


def skip_without(format_: str) -> None:
    """A fresh machine has the packages of sinks only after `make world`."""
    if format_ in NEEDED and importlib.util.find_spec(NEEDED[format_]) is None:
        pytest.skip(f"there is no {NEEDED[format_]}: make world")


def refusal(format_: str, path: str | None = None, **options: str) -> SinkError:
    """What a sink is refused with: by its declaration, its place or its rows."""
    skip_without(format_)
    began = time.monotonic()
    with pytest.raises(SinkError) as refused:
        _begun(format_, path, options)
    assert time.monotonic() - began < 10
    return refused.value


def _begun(format_: str, path: str | None, options: dict[str, str]) -> None:
    sink = make_sink(format_, path, options)
    sink.check("flow")
    sink.check_rows(ROWS)
    sink.claim("flow")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:horse@127.0.0.1:1,127.0.0.1:1/db", "at 127.0.0.1:1,127.0.0.1:1/db cannot be used"),
        ("postgresql://u:horse@127.0.0.1:text/db", "at 127.0.0.1:text/db cannot be used"),
        ("postgresql://u:horse@[::1]:1/db", "at [::1]:1/db cannot be used"),
        ("postgresql://u:horse#battery@127.0.0.1:1/db", "at 127.0.0.1:1/db cannot be used"),
        ("postgresql://u:horse?battery[@127.0.0.1:1/db", "at 127.0.0.1:1/db cannot be used"),
        ("postgresql://127.0.0.1:1/db?user=u@corp&password=horse", "at 127.0.0.1:1/db cannot be used"),
        ("host=127.0.0.1 port=1 password=horse", "at host=127.0.0.1 port=1 cannot be used"),
        ("jdbc:postgresql://127.0.0.1/db?password=horse", "begins with jdbc:postgresql://"),
        ("mysql://u:horse@127.0.0.1/db", "begins with mysql://"),
    ],
)
def test_an_address_of_postgresql_is_shown_as_it_was_given_but_for_the_password(url: str, shown: str) -> None:
    told = str(refusal("postgresql", url=url, table="t"))
    assert shown in told
    assert "horse" not in told


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h/db", "postgresql://h/db?connect_timeout=6"),
        ("postgresql://h/db?sslmode=disable", "postgresql://h/db?sslmode=disable&connect_timeout=6"),
        ("postgresql://h?sslrootcert=/ca", "postgresql://h?sslrootcert=/ca&connect_timeout=6"),
        ("postgresql://u:a?b@h,i/db", "postgresql://u:a?b@h,i/db?connect_timeout=3"),
        ("host=h,i dbname=db", "host=h,i dbname=db connect_timeout=3"),
    ],
)
def test_the_time_that_a_server_has_to_answer_is_an_option_of_its_address(url: str, expected: str) -> None:
    assert timely(url) == expected


def test_two_silent_servers_of_postgresql_are_given_up_in_time(silent: int) -> None:
    hosts = ",".join([f"127.0.0.1:{silent}"] * 2)
    assert "timeout expired" in refusal("postgresql", url=f"postgresql://{hosts}/db", table="t").wrong


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"no.such.option": "1"}, 'No such configuration property: "no.such.option"'),
        ({"security.protocol": "nope"}, 'Invalid value "nope"'),
    ],
)
def test_settings_that_librdkafka_does_not_take_are_refused(options: dict[str, str], told: str) -> None:
    refused = refusal("kafka", servers="127.0.0.1:1", topic="t", **options)
    assert told in refused.wrong
    assert "options with a dot" in refused.fix


def test_brokers_that_do_not_say_what_a_user_may_do_are_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("kafka")
    asked = list[str]()

    def silent(_: object, topics: object, **__: object) -> dict[str, Future[object]]:
        asked.append("t")
        return {"t": Future()}

    sink: Any = make_sink("kafka", None, {"servers": "127.0.0.1:1", "topic": "t"})
    admin = SimpleNamespace(AdminClient=type("Client", (), {"__init__": lambda *_: None, "describe_topics": silent}))
    kafka = importlib.import_module("confluent_kafka")
    monkeypatch.setattr(kafka_sink, "extra", lambda _, module="": admin if module else kafka)
    monkeypatch.setattr(kafka_sink, "_ASK_S", 0.05)
    sink._refuse_unpermitted()
    assert asked == ["t"]


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_a_folder_whose_name_pyiceberg_takes_for_another_is_refused(tmp_path: Path, name: str) -> None:
    refused = refusal("iceberg", str(tmp_path / name / "lake"), table="results.pairs")
    assert f"because of {name[1:-1]!r} in its path" in refused.wrong
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", ["kafka", "postgresql"])
def test_a_path_is_refused_where_there_are_no_files(format_: str) -> None:
    own = {"servers": "h:1", "topic": "t"} if format_ == "kafka" else {"url": "postgresql://h/d", "table": "t"}
    assert f"the {format_} sink takes no path" in refusal(format_, "out", **own).wrong


def test_a_path_that_had_no_effect_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """0.1.0 took it for a topic that Spark writes."""
    found = make_sink("kafka", "out", {"kafka.bootstrap.servers": "h:1", "topic": "t"})
    assert found.target.options["topic"] == "t"
    assert "the kafka sink takes no path: 'out' has no effect" in caplog.text


@pytest.mark.parametrize(
    ("format_", "options"),
    [("kafka", {"servers": "h:1", "topic": "t"}), ("postgresql", {"url": "postgresql://h/d", "table": "t"})],
)
def test_a_path_that_had_no_effect_does_not_keep_a_checkpoint_from_going_on(
    format_: str, options: dict[str, str]
) -> None:
    """One of 0.2.0 may have it of a query that was submitted."""
    skip_without(format_)
    submitted = Submitted("", format_, "out", options)
    assert sink_again("q", submitted, None).target == make_sink(format_, None, options).target


def test_a_path_of_a_folder_is_that_of_the_checkpoint() -> None:
    assert sink_again("q", Submitted("", "parquet", "out"), None).folder == "out"


def test_a_topic_that_spark_writes_is_refused_where_no_broker_answers() -> None:
    """By its connector, at least once: which by itself would try for minutes, in the first epoch."""
    refused = refusal("kafka", **{"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    assert "Kafka at 127.0.0.1:1 does not answer" in refused.wrong
    assert "kafka.bootstrap.servers" in refused.fix


def test_a_silent_catalog_of_iceberg_is_given_up_in_time(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidstream.spark.iceberg_sink.ANSWER_S", 1.0)
    own = {"catalog": "prod", "type": "rest", "uri": f"http://127.0.0.1:{silent}", "table": "results.pairs"}
    refused = refusal("iceberg", **own)
    assert "the Iceberg catalog of table results.pairs cannot be used: it does not answer" in refused.wrong
    assert ".pyiceberg.yaml" in refused.fix


def test_an_embedded_catalog_is_refused_where_no_file_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = refusal("iceberg", "s3://bucket/lake", table="results.pairs")
    assert "'s3://bucket/lake' cannot have" in refused.wrong
    assert 'warehouse = "s3://bucket/lake"' in refused.fix
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", ["parquet", "json", "delta", "iceberg"])
def test_a_folder_that_cannot_be_made_is_refused_and_named(format_: str) -> None:
    if format_ == "delta" and importlib.util.find_spec("deltalake") is None:
        pytest.skip("there is no deltalake: make world")
    own = {"table": "results.pairs"} if format_ == "iceberg" else {}
    assert "/proc/lake" in str(refusal(format_, "/proc/lake", **own))


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_silent_server_of_s3_is_given_up_in_time(format_: str, s3: None) -> None:
    if format_ == "delta" and importlib.util.find_spec("deltalake") is None:
        pytest.skip("there is no deltalake: make world")
    refused = refusal(format_, "s3://bucket/out")
    assert "'s3://bucket/out' cannot be used: S3 at http://127.0.0.1:" in refused.wrong
    assert "does not answer within" in refused.wrong
    assert "AWS_ENDPOINT_URL" in refused.fix


@pytest.mark.parametrize("act", ["starting", "refuse_held"])
def test_a_checkpoint_on_a_silent_server_of_s3_is_given_up_in_time(act: str, s3: None) -> None:
    began = time.monotonic()
    with pytest.raises(InputError) as refused:
        _acted(Checkpoint("s3://bucket/ck"), act)
    assert time.monotonic() - began < 10
    assert "the checkpoint s3://bucket/ck cannot be made: S3 at http://127.0.0.1:" in refused.value.wrong
    assert "AWS_ENDPOINT_URL" in refused.value.fix


def test_a_check_of_a_job_is_told_of_the_silent_server_of_its_checkpoint(tmp_path: Path, s3: None) -> None:
    job = Workshop.make(tmp_path, files=1, rows_per_file=9).job(('checkpoint = "ck"', 'checkpoint = "s3://bucket/ck"'))
    began = time.monotonic()
    with pytest.raises(InputError) as refused:
        jobs.check(jobs.read(job))
    assert time.monotonic() - began < 10
    assert "the checkpoint s3://bucket/ck cannot be made: S3 at http://127.0.0.1:" in refused.value.wrong
    assert "AWS_ENDPOINT_URL" in refused.value.fix


@pytest.mark.spark
@pytest.mark.parametrize("format_", ["kafka", "delta", "iceberg", "hudi"])
def test_a_format_whose_package_the_session_lacks_is_refused_with_the_package(
    spark: SparkSession, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidstream.spark.sinks.has_extra", lambda _: False)
    own = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "r", "topic": "t"} if format_ == "kafka" else {}
    for act in (
        lambda: open_stream(spark, "R", format_, None, None, own),
        lambda: make_sink(format_, None if own else "out", own).find(spark),
    ):
        with pytest.raises(InputError, match=f"no package of {format_}") as refused:
            act()
        assert f"spark.jars.packages={package_of(format_)}" in refused.value.fix
        is_later = not pyspark.__version__.startswith("4.1.")
        assert ("for Spark 4.1" in refused.value.fix) is (is_later and format_ in ("delta", "iceberg"))


@pytest.mark.spark
def test_avro_is_refused_with_the_package_where_the_session_lacks_it(spark: SparkSession) -> None:
    with pytest.raises(StreamError, match="stream 'R': Spark cannot read or write Avro") as refused:
        refuse_no_avro(spark, "stream 'R'", StreamError)
    assert f'packages = ["{package_of("avro")}"] in [spark]' in refused.value.fix
    if importlib.util.find_spec("confluent_kafka") is not None:
        with pytest.raises(SinkError, match="the kafka sink of topic 't': Spark cannot read or write Avro"):
            make_sink("kafka", None, {"servers": "h:1", "topic": "t", "value": "avro"}).find(spark)


@pytest.mark.spark
def test_a_checkpoint_in_s3_is_refused_where_spark_has_no_client_for_it(spark: SparkSession, s3: None) -> None:
    """It would fail after all of the checkpoint but Spark's log had been made."""
    flow = Flow(spark)
    for name in "RS":
        flow.stream(name, spark.readStream.format("rate").load(), time="timestamp")
    flow.query("SELECT R.value FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.value = S.value", "q").to("noop")
    for act in (flow.start, flow.check):
        with pytest.raises(InputError, match="s3://bucket/ck: this session has no client of S3") as refused:
            act("s3://bucket/ck")
        assert "org.apache.hadoop:hadoop-aws:3." in refused.value.fix
    with pytest.raises(SinkError, match="the sink path s3://bucket/out: this session has no client"):
        make_sink("json", "s3://bucket/out", {}).find(spark)
    make_sink("parquet", "s3://bucket/out", {}).find(spark)  # its files are not Spark's


def _acted(store: Checkpoint, act: str) -> Any:
    if act == "refuse_held":
        return store.refuse_held()
    with store.starting():
        return None
