"""Marks of a topic: on a broker that makes what it is asked for, for outlets of any name, and of earlier versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream.errors import SinkError
from braidstream.model.faults import armed
from braidstream.spark.sink import Delivery
from braidstream.spark.sinks import make_sink
from tests.spark.stage import in_order
from tests.spark.test_bad_rows import TEXT, bad, declared, row, write
from tests.world import readers
from tests.world.servers import Kafka, new_name

pytestmark = [pytest.mark.spark, pytest.mark.world]

OUTLETS = ("a", "p", "q")
"""Texts that the client hashes to each of three partitions."""


def sink_of(kafka: Kafka, topic: str, **options: str) -> Any:
    """As a new start has it."""
    sink = make_sink("kafka", None, {"servers": kafka.servers, "topic": topic, **options})
    sink.claim("flow")
    return sink


def delivery(spark: SparkSession, outlet: str, number: int) -> Delivery:
    def frame() -> Any:
        return spark.createDataFrame([(outlet, number)], "outlet string, number int")

    return Delivery(outlet, number, ["staged"], frame, finished=False)


def got(kafka: Kafka, topic: str) -> list[tuple[str, int]]:
    return readers.kafka_rows(kafka, topic, ("outlet", "number"))


def admin(kafka: Kafka) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})


def marks_of(kafka: Kafka, base: str) -> dict[str, int]:
    """The topics of marks with the numbers of their partitions."""
    found = admin(kafka).list_topics(timeout=30).topics
    return {name: len(one.partitions) for name, one in found.items() if name.startswith(base)}


def policy(kafka: Kafka, topic: str) -> str:
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = admin(kafka)
    return str(client.describe_configs([resource])[resource].result(30)["cleanup.policy"].value)


def mark_as_0_2_0(kafka: Kafka, topic: str, outlet: str, **taken: int) -> str:
    """The mark that 0.2.0 left: in a topic of the broker's making, in the partition that its key is hashed to."""
    from confluent_kafka import Producer

    marks = f"{topic}.marks.flow-{re.sub(r'[^A-Za-z0-9._-]', '-', outlet.replace(' ', '-'))}".removesuffix("-clean-up")
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    producer.produce(marks, json.dumps({"epoch": -1, "step": 0, **taken}), key=outlet)
    assert producer.flush(30) == 0
    return marks


def test_on_a_broker_with_kafkas_defaults_an_epoch_that_is_delivered_again_is_there_once(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.create(new_name("t"))
    for outlet in OUTLETS:
        for number in (0, 0, -1, -1, 0):
            sink_of(kafka, topic).deliver(delivery(spark, outlet, number))
    expected = [(outlet, number) for outlet in OUTLETS for number in (0, -1)]
    assert got(kafka, topic) == in_order(expected)
    marks = marks_of(kafka, f"{topic}.marks.")
    assert list(marks.values()) == [1] * len(OUTLETS)
    assert {policy(kafka, one) for one in marks} == {"compact"}


def test_queries_whose_names_differ_in_letters_beyond_ascii_have_marks_of_their_own(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.create(new_name("t"))
    names = ("größe", "grüße", "x", "x-clean-up")
    for name in names:
        sink_of(kafka, topic).deliver(delivery(spark, name, 4))
    assert got(kafka, topic) == in_order((name, 4) for name in names)


def test_marks_of_an_earlier_version_are_found(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.create(new_name("t"))
    known = (*OUTLETS, "größe")
    for outlet in known:
        assert mark_as_0_2_0(kafka, topic, outlet, epoch=5, step=2) in marks_of(kafka, topic)
    for outlet in (*known, "grüße"):  # whose marks were in the same topic as those of another
        for number in (5, -2, 6):
            sink_of(kafka, topic).deliver(delivery(spark, outlet, number))
    expected = [*((outlet, 6) for outlet in known), *(("grüße", number) for number in (5, -2, 6))]
    assert got(kafka, topic) == in_order(expected)


def test_the_mark_of_an_earlier_version_is_found_by_an_output_with_a_key(spark: SparkSession, kafka: Kafka) -> None:
    """Which left it where messages without a key have theirs."""
    topic = kafka.create(new_name("t"))
    sink_of(kafka, topic).deliver(delivery(spark, "q", 5))
    for number in (5, 6, 6):
        sink_of(kafka, topic, key="outlet").deliver(delivery(spark, "q", number))
    assert got(kafka, topic) == [("q", 5), ("q", 6)]


def test_a_topic_of_marks_that_forgets_is_refused(spark: SparkSession, kafka: Kafka) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    topic = kafka.create(new_name("t"))
    sink_of(kafka, topic).deliver(delivery(spark, "q", 0))
    (marks,) = marks_of(kafka, f"{topic}.marks.")
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, marks, incremental_configs=[entry])
    client = admin(kafka)
    client.incremental_alter_configs([resource])[resource].result(30)
    with pytest.raises(SinkError, match=f"topic of marks '{marks}' .* delete") as refused:
        sink_of(kafka, topic).deliver(delivery(spark, "q", 1))
    assert "kafka-configs.sh" in refused.value.fix
    assert got(kafka, topic) == [("q", 0)]


def test_bad_rows_and_late_tuples_of_one_epoch_in_one_topic_are_all_there_once(
    spark: SparkSession, tmp_path: Path, kafka: Kafka
) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50)])
    write(tmp_path / "R", 1, [row(1, 2, 51), row(1, 3, 0), bad("x"), bad("y")])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    write(tmp_path / "S", 1, [row(1, 11, 51)])
    topic = kafka.create(new_name("dead"))

    def start(slots: int) -> None:
        to = {"servers": kafka.servers, "topic": topic}
        flow = declared(spark, tmp_path).bad("R", "kafka", **to)
        flow.slots = slots
        flow.query(TEXT, name="q").to("noop").late("kafka", **to)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("after-results:1:raise"):
        start(2)
    start(3)
    values = [json.loads(message.value()) for message in readers.kafka_messages(kafka, topic)]
    assert sorted(str(one.get("message") or one.get("v")) for one in values) == ["3", "x", "y"]


def test_late_tuples_in_two_topics_whose_marks_have_one_name_are_in_both(
    spark: SparkSession, tmp_path: Path, kafka: Kafka
) -> None:
    write(tmp_path / "R", 0, [row(1, 1, 50)])
    write(tmp_path / "R", 1, [row(1, 2, 51), row(1, 3, 0)])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    write(tmp_path / "S", 1, [row(1, 11, 51)])
    topics = [kafka.create(new_name("late")) for _ in range(2)]
    flow = declared(spark, tmp_path)
    for topic in topics:
        to = flow.query(TEXT, name=topic).to("noop")
        to.late("kafka", servers=kafka.servers, topic=topic, marks=f"{topics[0]}.marks")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    assert [readers.kafka_rows(kafka, topic, ("k", "v")) for topic in topics] == [[(1, 3)]] * 2


def test_late_tuples_that_two_queries_send_to_one_topic_in_two_forms_are_there_in_both(
    spark: SparkSession, tmp_path: Path, kafka: Kafka
) -> None:
    """A message with a key is another one than that without: neither output is taken for the other."""
    write(tmp_path / "R", 0, [row(1, 1, 50)])
    write(tmp_path / "R", 1, [row(1, 2, 51), row(1, 3, 0)])
    write(tmp_path / "S", 0, [row(1, 10, 50)])
    write(tmp_path / "S", 1, [row(1, 11, 51)])
    topic = kafka.create(new_name("late"))

    def start(slots: int) -> None:
        flow = declared(spark, tmp_path)
        flow.slots = slots
        for name, form in (("a", {}), ("b", {"key": "k"}), ("c", {"key": "k", "linger.ms": "5"})):
            query = flow.query(TEXT, name=name).to("noop")
            query.late("kafka", servers=kafka.servers, topic=topic, **form)
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with pytest.raises(Exception, match="injected fault"), armed("after-results:1:raise"):
        start(2)
    start(3)
    messages = readers.kafka_messages(kafka, topic)
    assert sorted(str(one.key()) for one in messages) == ["None", "b'1'"]
    assert {json.loads(one.value())["v"] for one in messages} == {3}
