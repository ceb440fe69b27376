"""Kafka topics by `confluent-kafka`: the results of an epoch and their mark in one transaction of Kafka's.

Consumers that read committed see every result once. One task of Spark sends all of an epoch, as JSON, under a
transactional id of flow and outlet; Kafka fences an older producer of that id, and aborts what it left open. The mark
is the last message of a compacted topic of its own (`spark.kafka_marks`). Who finds its number there, or a later one,
does nothing.

    value    the columns as JSON, as Spark's to_json writes them, with NULLs, and times with all their digits; or, with
             value = "avro", as Spark's to_avro does (`spark.avro_values`)
    key      the column of `key`, as a text; several as a JSON object
    headers  flow, query, epoch

Cost: one producer and one task an epoch with results. librdkafka is called once a row: the one place on the way of
results where Python sees single rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from braidstream.errors import SinkError, nearest
from braidstream.model.declarations import Target
from braidstream.model.faults import reach
from braidstream.spark.arrow_rows import names_of
from braidstream.spark.avro_values import avro_value, refuse_no_avro
from braidstream.spark.causes import one_line
from braidstream.spark.extras import extra
from braidstream.spark.kafka_marks import Given, Marks, Settings, made_marks
from braidstream.spark.kafka_servers import silence_of
from braidstream.spark.names import column_of
from braidstream.spark.sink import Delivery, Mark, Sink
from braidstream.spark.task_delivery import in_one_task

__all__ = ["KafkaSink"]

_OPTIONS = ("servers", "topic", "key", "marks", "value")
_VALUES = ("json", "avro")
_ASK_S, _REACH_S, _BEGIN_S, _END_S = 7.0, 2.0, 60.0, 300.0
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_QUIET = {"log_level": 0}
_LONGEST = "transaction.timeout.ms"


class KafkaSink(Sink):
    """A topic."""

    recognizes = True

    def __init__(self, options: Mapping[str, str]) -> None:
        extra("kafka")
        self.options = dict(options)
        for name in options:
            if name not in _OPTIONS and "." not in name:
                wrong, expected = (
                    f"the kafka sink has no option {name!r}",
                    f"{', '.join(_OPTIONS)}, or one of librdkafka's",
                )
                raise SinkError(wrong, expected, nearest(name, _OPTIONS))
        for name, example in (("servers", 'servers = "host:9092"'), ("topic", 'topic = "results"')):
            if not options.get(name):
                raise SinkError(f"the kafka sink has no option {name}", "what it needs", f"add {example}")
        if options.get("value", "json") not in _VALUES:
            wrong = f"the kafka sink has no value {options['value']!r}"
            raise SinkError(wrong, " or ".join(_VALUES), nearest(options["value"], _VALUES))
        self._is_avro = options.get("value") == "avro"
        self._topic, self._key = options["topic"], names_of(options.get("key", ""))
        self.flow = ""
        self._known_marks: dict[tuple[str, str], Marks] = {}
        self.description = (
            f"Kafka topic {self._topic} at {options['servers']} "
            "(each epoch once for consumers that read committed: results and their mark in one transaction)"
        )

    @property
    def target(self) -> Target:
        """The topic."""
        return Target("kafka", None, self.options)

    @property
    def _servers(self) -> Settings:
        """Settings of librdkafka that all clients have in common."""
        own = {name: value for name, value in self.options.items() if "." in name}
        return {**_QUIET, "bootstrap.servers": self.options["servers"], **own}

    def find(self, spark: SparkSession) -> None:
        """Refuse Avro in a session that does not have it."""
        if self._is_avro:
            refuse_no_avro(spark, f"the kafka sink of topic {self._topic!r}", SinkError)

    def check(self, flow: str) -> None:
        """Refuse brokers that do not answer, and a topic that is not there or may not be written."""
        del flow
        topics = self._topics()
        self._refuse_settings()
        self._refuse_unpermitted()
        if self._topic not in topics:
            raise SinkError(
                f"there is no Kafka topic {self._topic!r} at {self.options['servers']}",
                "a topic that exists",
                f"kafka-topics.sh --create --topic {self._topic} --bootstrap-server {self.options['servers']}"
                if not (close := [one for one in topics if one.lower() == self._topic.lower()])
                else f"did you mean {close[0]!r}?",
            )

    def check_rows(self, schema: StructType) -> None:
        """Refuse a key that is no column."""
        for name in self._key:
            if name not in schema.names:
                wrong = f"the results have no column {name!r}, which is the key"
                raise SinkError(wrong, f"columns among {', '.join(schema.names)}", nearest(name, schema.names))

    def claim(self, flow: str, owner: str = "") -> None:
        """Remember the flow. Topics of marks are made when there is something to mark."""
        del owner
        self.flow, self._known_marks = flow, {}

    def deliver(self, delivery: Delivery) -> None:
        """One task, one transaction."""
        if not delivery.staged:
            return
        mark = Mark(self.flow, delivery.outlet, delivery.number)
        in_one_task(
            self._messages(delivery.frame()), _Put(self._servers, self._topic, self._marks(mark, delivery), mark)
        )
        delivery.reach("delivery-done")

    def _marks(self, mark: Mark, delivery: Delivery) -> Marks:
        """Where the marks of a delivery are; looked up once."""
        known = self._known_marks.get((mark.outlet, delivery.part))
        if known is None:
            given = Given(self._topic, self._base, self._form, self.is_shared)
            known = made_marks(self._servers, given, mark, delivery.part)
            self._known_marks[mark.outlet, delivery.part] = known
        return known

    @property
    def _base(self) -> str:
        """What the names of topics of marks begin with."""
        return self.options.get("marks", f"{self._topic}.marks")

    @property
    def _form(self) -> str:
        """How messages are written; empty: as JSON without a key."""
        value = "avro" if self._is_avro else ""
        return json.dumps([value, *self._key]) if value or self._key else ""

    def _messages(self, frame: DataFrame) -> DataFrame:
        """Keys and values as texts, made by Spark."""
        columns = [column_of(name) for name in frame.columns]
        key = [column_of(name) for name in self._key]
        made = F.lit(None) if not key else key[0] if len(key) == 1 else F.to_json(F.struct(*key), _JSON)
        value = avro_value(frame) if self._is_avro else F.to_json(F.struct(*columns), _JSON)
        return frame.select(made.cast("string").alias("key"), value.alias("value"))

    def _topics(self) -> Collection[str]:
        admin = _client(extra("kafka", "admin").AdminClient, {**self._servers, "socket.timeout.ms": 5000})
        try:
            found = admin.list_topics(timeout=_ASK_S)
        except extra("kafka").KafkaException as error:
            raise SinkError(
                f"Kafka at {self.options['servers']} does not answer: {one_line(error)}",
                "brokers that can be reached from here",
                "check host and port of servers, and the brokers' advertised.listeners",
            ) from None
        named = ",".join(f"{one.host}:{one.port}" for one in found.brokers.values())
        reason = silence_of(named, _REACH_S)
        if reason is not None:
            raise SinkError(
                f"Kafka at {self.options['servers']} answers, but its brokers say that they are at {named}, "
                f"where none can be reached: {reason}",
                "brokers that can be reached from here by the names that they go by",
                "correct the brokers' advertised.listeners",
            )
        return list(found.topics)

    def _refuse_unpermitted(self) -> None:
        """Refuse a topic that this user may not write; one that he may not see, whether it is there or not."""
        kafka = extra("kafka")
        client = extra("kafka", "admin").AdminClient(self._servers)
        wanted = kafka.TopicCollection([self._topic])
        asked = client.describe_topics(wanted, include_authorized_operations=True, request_timeout=_ASK_S)
        try:
            permitted = asked[self._topic].result(_ASK_S).authorized_operations
        except kafka.KafkaException as error:
            if error.args[0].code() != kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return  # it is not there, which is told otherwise, or the brokers cannot be asked that
            permitted = []
        except futures.TimeoutError:
            return  # whoever writes is told
        if permitted is None or "WRITE" in {one.name for one in permitted}:
            return
        user = self.options.get("sasl.username", "NAME")
        raise SinkError(
            f"the user {user} may not write the Kafka topic {self._topic!r} at {self.options['servers']}",
            "a user who may write the topic, and make, read and write those of its marks",
            "; ".join(
                f"kafka-acls.sh --bootstrap-server {self.options['servers']} --add --allow-principal User:{user} "
                f"{rights}"
                for rights in self._rights
            ),
        )

    @property
    def _rights(self) -> tuple[str, ...]:
        """All that is needed, as Kafka's own tool takes it."""
        ours = "--resource-pattern-type prefixed"
        marks = self._base
        return (
            f"--operation Write --topic {self._topic}",
            f"--operation Create --operation Read --operation Write --topic {marks}. {ours}",
            f"--operation Write --transactional-id braidstream/ {ours}",
            f"--operation Read --group {marks}. {ours}",
        )

    def _refuse_settings(self) -> None:
        """Refuse settings with which nobody can send in transactions. Nothing is sent, and nobody is fenced."""
        _client(extra("kafka").Producer, _producing(self._servers, "braidstream/check"))


def _client(kind: Callable[[Settings], Any], settings: Settings) -> Any:
    """A client with these settings; SinkError where librdkafka does not take them."""
    try:
        return kind(settings)
    except (extra("kafka").KafkaException, TypeError, ValueError) as error:
        raise SinkError(
            f"the options of the kafka sink cannot be used: {one_line(error)}",
            "settings of librdkafka, with which a producer has transactions",
            "check the options with a dot: name, value, and files that they name",
        ) from None


def _producing(servers: Settings, own: str) -> Settings:
    """The settings of a producer with a transactional id."""
    usual = {_LONGEST: 300_000, "linger.ms": 20, "compression.type": "lz4"}
    return {**usual, **servers, "transactional.id": own}


@dataclass(frozen=True)
class _Put:
    """What the task does."""

    servers: Settings
    topic: str
    marks: Marks
    mark: Mark

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> int:
        settings = _producing(self.servers, f"braidstream/{self.mark.flow}/{self.mark.outlet}")
        producer = extra("kafka").Producer(settings)
        producer.init_transactions(_BEGIN_S)  # ends what an older producer of this id has left open
        taken = self.marks.taken()
        if taken[self.mark.kind] >= self.mark.version:
            return 0
        producer.begin_transaction()
        began, longest_s = time.monotonic(), int(settings[_LONGEST]) / 1000
        try:
            n_rows = sum(self._send(producer, batch) for batch in batches)
            said = json.dumps({**taken, self.mark.kind: self.mark.version})
            producer.produce(self.marks.topic, said, key=self.mark.outlet, partition=0)
            reach("delivery-put", epoch=self.mark.number)
            producer.commit_transaction(_END_S)
        except Exception as error:
            _abort(producer)
            if time.monotonic() - began < longest_s:
                raise
            raise SinkError(
                f"an epoch was not sent to the Kafka topic {self.topic!r} within {longest_s:g} s, "
                f"after which brokers give a transaction up: {one_line(error)}",
                f"epochs that are sent within {_LONGEST}",
                f'"{_LONGEST}" = "900000" among the options (brokers allow as much as transaction.max.timeout.ms), '
                "or smaller epochs",
            ) from error
        return n_rows

    def _send(self, producer: Any, batch: pa.RecordBatch) -> int:
        headers = {"flow": self.mark.flow, "query": self.mark.outlet, self.mark.kind: str(self.mark.version)}
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            while True:
                try:
                    producer.produce(self.topic, value, key=key, headers=headers)
                    break
                except BufferError:
                    producer.poll(1.0)
        producer.poll(0)
        return int(batch.num_rows)


def _abort(producer: Any) -> None:
    """Give the transaction up; where that fails too, the next producer of this id does it."""
    try:
        producer.abort_transaction(_BEGIN_S)
    except Exception:
        return
