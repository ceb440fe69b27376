"""A user of a broker who may not write: refused before anything starts, with the commands that grant what is needed."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from pyspark.sql import SparkSession

from braidstream.errors import SinkError
from braidstream.spark.sinks import make_sink
from tests.world import readers, servers
from tests.world.servers import Kafka, until
from tests.world.test_kafka_marks import delivery

pytestmark = [pytest.mark.spark, pytest.mark.world]

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "poor",
    "sasl.password": "poor-word",
}
RESOURCES = {"--topic": "TOPIC", "--transactional-id": "TRANSACTIONAL_ID", "--group": "GROUP"}


def granted(broker: Kafka, commands: str) -> None:
    """What `kafka-acls.sh` would do with what is said to it."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    client = AdminClient({"bootstrap.servers": broker.servers})
    for command in commands.split("; "):
        words = shlex.split(command)
        assert words[:4] == ["kafka-acls.sh", "--bootstrap-server", broker.guarded, "--add"]
        given = list(zip(words[4::2], words[5::2], strict=True))
        (kind, name) = next(pair for pair in given if pair[0] in RESOURCES)
        pattern = (
            ResourcePatternType.PREFIXED if dict(given).get("--resource-pattern-type") else ResourcePatternType.LITERAL
        )
        principal = dict(given)["--allow-principal"]
        for operation in (value for option, value in given if option == "--operation"):
            act = AclOperation[operation.upper()]
            binding = AclBinding(
                ResourceType[RESOURCES[kind]], name, pattern, principal, "*", act, AclPermissionType.ALLOW
            )
            client.create_acls([binding])[binding].result(30)


def refusal(sink: Any) -> SinkError | None:
    try:
        sink.check("flow")
    except SinkError as refused:
        return refused
    return None


def test_a_topic_that_may_not_be_written_is_refused_with_what_to_grant_and_that_is_enough(spark: SparkSession) -> None:
    with servers.kafka(users=["poor"]) as broker:
        topic = broker.create("results")
        sink = make_sink("kafka", None, {"servers": broker.guarded, "topic": topic, **SASL})
        refused = refusal(sink)
        assert refused is not None
        assert "the user poor may not write the Kafka topic 'results'" in refused.wrong
        granted(broker, refused.fix)
        until(lambda: refusal(sink) is None, "the broker knows of it")
        sink.claim("flow")
        for number in (0, 1, 1):
            sink.deliver(delivery(spark, "q", number))
        assert readers.kafka_rows(broker, topic, ("outlet", "number")) == [("q", 0), ("q", 1)]


def test_a_topic_that_is_not_there_is_not_made_by_asking_for_it() -> None:
    with servers.kafka(users=["poor"]) as broker:
        named = make_sink("kafka", None, {"servers": broker.servers, "topic": "nowhere"})
        with pytest.raises(SinkError, match="no Kafka topic 'nowhere'"):
            named.check("flow")
        with pytest.raises(SinkError, match="no Kafka topic 'nowhere'"):
            named.check("flow")
