"""Marks of what a topic of Kafka's was given: of each outlet, or part of one, the last message of a topic of its own.

    {"epoch": 12, "step": 0}      the last number of each kind that was taken

A topic of its own, so that nobody else's open transaction can hide it: results' topic, flow, outlet and part are in its
name, hashed, for outlets may have any name and several may share `marks`. It is compacted and has one partition. It is
made here, never by being asked for: most brokers make what they are asked for, of several partitions, and delete what
is in it after a week.

Earlier versions named it by flow and outlet only, and may have written to any of its partitions. As long as there is no
mark of this version, theirs holds: of messages with the outlet as key, in all partitions.

Cost: the names of the brokers' topics once for a start and outlet; a reader an epoch with results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from braidstream.errors import SinkError
from braidstream.spark.extras import extra
from braidstream.spark.sink import Delivery, Mark

__all__ = ["Marks", "Settings", "made_marks"]

_WAIT_S = 60.0
_TAIL = 64
"""How many messages are looked at from the end, at first: commits and aborted attempts count as messages too."""
_READABLE = 40
"""Characters of an outlet in the name of its topic."""
Settings = Mapping[str, Any]
"""Of librdkafka."""


@dataclass(frozen=True)
class Marks:
    """Where the marks of an outlet are."""

    settings: Settings
    outlet: str
    topic: str
    former: str = ""
    """Where an earlier version may have left one; empty: nowhere."""
    n_former: int = 0
    """Its partitions."""

    def taken(self) -> dict[str, int]:
        """The last number of each kind."""
        found = self._last(self.topic, 1) or self._last(self.former, self.n_former)
        return {"epoch": -1, "step": 0, **found}

    def _last(self, topic: str, n_partitions: int) -> dict[str, int]:
        kafka, last = extra("kafka"), dict[str, int]()
        own = {"group.id": self.topic, "enable.auto.commit": False, "enable.partition.eof": True}
        reader = kafka.Consumer({**self.settings, **own, "isolation.level": "read_committed"})
        try:
            for partition in range(n_partitions):
                for kind, number in self._last_of(reader, kafka.TopicPartition(topic, partition)).items():
                    last[kind] = max(last.get(kind, number), number)
        finally:
            reader.close()
        return last

    def _last_of(self, reader: Any, part: Any) -> dict[str, int]:
        """The last committed mark in a partition; empty where there is none."""
        low, high = reader.get_watermark_offsets(part, timeout=_WAIT_S)
        width, first = _TAIL, high
        while first > low:
            first = max(low, high - width)
            part.offset = first
            found = _last_message(reader, part, self.outlet.encode())
            if found is not None:
                return dict(json.loads(found))
            width *= 16
        return {}


def _last_message(reader: Any, start: Any, key: bytes) -> bytes | None:
    """The value of the last committed message with a key from an offset on."""
    kafka = extra("kafka")
    reader.assign([start])
    found: bytes | None = None
    while True:
        message = reader.poll(_WAIT_S)
        if message is None:
            raise TimeoutError(f"Kafka gave nothing of {start.topic} for {_WAIT_S:g} s")
        error = message.error()
        if error is None:
            found = message.value() if message.key() == key else found
        elif error.code() == kafka.KafkaError._PARTITION_EOF:
            return found
        elif not error.retriable():
            raise kafka.KafkaException(error)


def made_marks(settings: Settings, topic: str, base: str, mark: Mark, delivery: Delivery) -> Marks:
    """The marks of what a topic is given by a delivery, after their topic was made, or found to be fit."""
    client = extra("kafka", "admin").AdminClient(settings)
    known = client.list_topics(timeout=_WAIT_S)  # of all: a topic that is asked for by its name may be made by that
    own, former = _name(topic, base, mark, delivery.part), _former_name(base, mark)
    if own not in known.topics:
        _make(client, own, min(3, len(known.brokers)))
    else:
        _refuse_forgetful(client, own, settings)
    if former not in known.topics:
        return Marks(settings, mark.outlet, own)
    return Marks(settings, mark.outlet, own, former, len(known.topics[former].partitions))


def _name(topic: str, base: str, mark: Mark, part: str) -> str:
    told = "\0".join([topic, mark.flow, mark.outlet, part])
    return (
        f"{base}.{_plain(mark.flow)}-{_plain(mark.outlet)[:_READABLE]}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    )


def _former_name(base: str, mark: Mark) -> str:
    return f"{base}.{_plain(mark.writer)}".removesuffix("-clean-up")


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)


def _make(client: Any, topic: str, n_copies: int) -> None:
    """A compacted topic, unless another has just made it."""
    kafka, wanted = extra("kafka"), extra("kafka", "admin").NewTopic
    made = client.create_topics(
        [wanted(topic, 1, n_copies, config={"cleanup.policy": "compact"})], operation_timeout=_WAIT_S
    )
    try:
        made[topic].result(_WAIT_S)
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _refuse_forgetful(client: Any, topic: str, settings: Settings) -> None:
    """Refuse a topic, made by somebody else, that forgets marks after some time."""
    kafka, admin = extra("kafka"), extra("kafka", "admin")
    asked = admin.ConfigResource(admin.ResourceType.TOPIC, topic)
    try:
        policy = client.describe_configs([asked])[asked].result(_WAIT_S)["cleanup.policy"].value
    except kafka.KafkaException as error:
        if error.args[0].code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return  # who may not ask has to know
        raise
    if policy == "compact":
        return
    servers = settings["bootstrap.servers"]
    raise SinkError(
        f"the topic of marks {topic!r} at {servers} has cleanup.policy={policy}: marks would be deleted",
        "cleanup.policy=compact, so that the last mark stays",
        f"kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} --add-config cleanup.policy=compact",
    )
