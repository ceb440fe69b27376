"""Kafka streams in job files: what is refused without Spark, and what packages become."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from braidstream import JobError, SinkError, StreamError
from braidstream.jobs.form import read
from braidstream.spark.kafka_servers import known_topics, silence_of
from braidstream.spark.kafka_source import refuse_missing_topics, refuse_silent_brokers, takes_kafka_time

JOB = """
[flow]
checkpoint = "ck"
[streams.R]
{stream}
[queries.q]
cql = "SELECT 1"
sink = {{ format = "noop" }}
[spark]
{spark}
"""
KAFKA = 'format = "kafka"\ntime = "ts"\n'


def written(folder: Path, stream: str = KAFKA, spark: str = "") -> Path:
    file = folder / "job.toml"
    file.write_text(JOB.format(stream=stream, spark=spark))
    return file


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (f'{KAFKA}value = "json"', "without a schema"),
        (f'{KAFKA}schema = "k long"', "schema for a Kafka stream without a value"),
        ('format = "parquet"\ntime = "ts"\nschema = "k long"\nvalue = "json"', "in a parquet stream"),
        (f'{KAFKA}schema = "k long"\nvalue = "jsno"', "value"),
    ],
)
def test_what_does_not_go_together_is_refused_with_its_place(tmp_path: Path, stream: str, told: str) -> None:
    with pytest.raises(JobError, match=told) as refused:
        read(written(tmp_path, stream))
    assert "[streams.R]" in refused.value.wrong


def test_packages_are_a_list_in_job_files(tmp_path: Path) -> None:
    packages = ["org.example:a_2.13:1.0", "org.example:b:2.0"]
    assert read(written(tmp_path, spark=f"packages = {packages}")).spark == {"spark.jars.packages": ",".join(packages)}
    with pytest.raises(JobError, match="packages is"):
        read(written(tmp_path, spark="packages = [1]"))


@pytest.mark.parametrize("servers", ["127.0.0.1:{port}", "127.0.0.1:{port},127.0.0.1:{port}", "nowhere", "", "h:port"])
def test_brokers_that_do_not_answer_are_refused(servers: str) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(StreamError, match=r"stream 'R': Kafka at .* does not answer"):
        refuse_silent_brokers("R", {"Kafka.Bootstrap.Servers": servers.format(port=port)})
    assert time.monotonic() - began < 10


@pytest.mark.spark
def test_where_the_connector_has_its_client_under_another_name_topics_are_not_asked_for(spark: SparkSession) -> None:
    """As Databricks' connector has; here there is none."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        servers = f"127.0.0.1:{one.getsockname()[1]}"
        refuse_missing_topics(spark, "R", {"kafka.bootstrap.servers": servers, "subscribe": "orders"})
        assert known_topics(spark, "the kafka sink", {"kafka.bootstrap.servers": servers}, SinkError) is None


def test_one_broker_that_answers_is_enough() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        refuse_silent_brokers("R", {"kafka.bootstrap.servers": f"127.0.0.1:1, PLAINTEXT://127.0.0.1:{port}"})


def test_a_broker_whose_packets_are_dropped_takes_no_time_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked = Event()

    def connected(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "healthy":
            is_asked.set()
            return socket.socket()
        assert timeout <= 2.0
        is_asked.wait(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connected)
    assert silence_of("silent:9092,healthy:9092,silent:9093", 2.0) is None
    assert silence_of("silent:9092,silent:9093", 0.1) == "timed out"


@pytest.mark.parametrize(
    ("column", "fields", "is_kafkas"),
    [("timestamp", ["k"], True), ("Timestamp", ["k"], True), ("timestamp", ["TimeStamp"], False), ("ts", ["k"], False)],
)
def test_the_time_is_kafkas_where_no_field_has_its_name(column: str, fields: list[str], is_kafkas: bool) -> None:
    assert takes_kafka_time(column, fields) is is_kafkas
