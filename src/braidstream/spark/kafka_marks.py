"""Marks of what a topic of Kafka's was given: of each outlet, part and form the last message of a topic of its own.

    {"epoch": 12, "step": 0}      the last number of each kind that was taken

A topic of its own, so that nobody else's open transaction can hide it: results' topic, flow, outlet, part and form are
in its name, hashed, for outlets may have any name and several may share `marks`. Form is how messages are written, if
not as JSON without a key: two queries may send the late tuples of a stream to one topic in two forms. A topic of marks
is compacted and has one partition. It is made here, never by being asked for: most brokers make what they are asked
for, of several partitions, and delete what is in it after a week.

Earlier versions named it without the form, or by flow and outlet only, and may then have written to any of its
partitions. As long as there is no mark of this version, theirs holds: of messages with the outlet as key, in all
partitions. One without the form does not where the outlet goes to the topic in another form too, whose mark it may be.

Cost: the names of the brokers' topics once for a start and outlet; a reader an epoch with results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braidstream.errors import SinkError
from braidstream.spark.extras import extra
from braidstream.spark.sink import Mark

__all__ = ["Given", "Marks", "Settings", "made_marks"]

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
    former: Sequence[tuple[str, int]] = ()
    """Where earlier versions may have left one, the latest first: topics and the numbers of their partitions."""

    def taken(self) -> dict[str, int]:
        """The last number of each kind."""
        places = [(self.topic, 1), *self.former]
        found = next((last for topic, n in places if (last := self._last(topic, n))), {})
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


@dataclass(frozen=True)
class Given:
    """What a topic is given by a sink, of which there is a mark."""

    topic: str
    base: str
    """What names of topics of marks begin with."""
    form: str = ""
    """How messages are written; empty: as JSON without a key."""
    is_shared: bool = False
    """Whether the same outlet may go to the topic in another form, too."""

    def marks(self, mark: Mark, part: str, form: str) -> str:
        """The topic of its marks."""
        told = "\0".join([self.topic, mark.flow, mark.outlet, part, *([form] if form else [])])
        readable = f"{_plain(mark.flow)}-{_plain(mark.outlet)[:_READABLE]}"
        return f"{self.base}.{readable}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"

    def former(self, mark: Mark, part: str) -> list[str]:
        """Where earlier versions left them."""
        without_form = [self.marks(mark, part, "")] if self.form and not self.is_shared else []
        return [*without_form, f"{self.base}.{_plain(mark.writer)}".removesuffix("-clean-up")]


def made_marks(settings: Settings, given: Given, mark: Mark, part: str) -> Marks:
    """The marks of what a topic is given of an outlet, after their topic was made, or found to be fit."""
    client = extra("kafka", "admin").AdminClient(settings)
    known = client.list_topics(timeout=_WAIT_S)  # of all: a topic that is asked for by its name may be made by that
    own = given.marks(mark, part, given.form)
    if own not in known.topics:
        _make(client, own, min(3, len(known.brokers)))
    else:
        _refuse_forgetful(client, own, settings)
    former = [(name, len(known.topics[name].partitions)) for name in given.former(mark, part) if name in known.topics]
    return Marks(settings, mark.outlet, own, former)


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
