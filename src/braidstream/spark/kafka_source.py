"""Kafka topics as streams, through Spark's connector: the bytes of a message become the columns of its value.

    [streams.orders]
    format = "kafka"
    value = "json"                # or "avro" (`spark.avro_values`)
    schema = "customer long, amount double, at timestamp"
    time = "at"                   # a field; or "timestamp", Kafka's own time of the message
    options = { "kafka.bootstrap.servers" = "host:9092", subscribe = "orders,orders-eu", startingOffsets = "earliest" }

Offsets, partitions that are added while it runs, and brokers that come back are the connector's matter. Before anything
starts the brokers are asked, within seconds, whether they answer and have the topics; the connector by itself would try
for minutes. A message that is not what the schema says stops the flow, and is named; or it goes to the stream's output
for bad rows (`spark.bad_rows`). It is never taken for NULLs. A message without a value (a tombstone) is no row.

Cost: Spark parses; a question to the brokers at the start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from braidstream.errors import StreamError, nearest
from braidstream.spark.avro_values import AVRO_OPTIONS, avro_row, refuse_no_avro
from braidstream.spark.bad_rows import BAD, UNREADABLE
from braidstream.spark.formats import open_stream
from braidstream.spark.kafka_servers import SERVERS, given, known_topics, refuse_unreached

__all__ = [
    "KAFKA_TIME",
    "kafka_frame",
    "refuse_missing_topics",
    "refuse_silent_brokers",
    "refuse_silent_sources",
    "takes_kafka_time",
]

KAFKA_TIME = "timestamp"
"""The column that Kafka's own time of a message has, where no field is the event time."""
_CORRUPT = "__corrupt"
_SHOWN = 200
"""Characters of a message that are shown."""
_TOPICS = "subscribe"


def kafka_frame(
    spark: SparkSession,
    name: str,
    schema: str,
    column: str,
    options: Mapping[str, str],
    *,
    value: str = "json",
    keeps_bad: bool = False,
) -> DataFrame:
    """The rows that messages hold, and Kafka's time beside them if that is the event time.

    With `keeps_bad` a message that is not what the schema says is a row of NULLs, but for its column `_bad`.
    """
    theirs = {key: given for key, given in options.items() if key not in AVRO_OPTIONS}
    frame = open_stream(spark, name, "kafka", None, None, theirs).where("value IS NOT NULL")
    refuse_missing_topics(spark, name, theirs)
    is_avro, struct = value == "avro", _struct(spark, schema)
    if is_avro:
        refuse_no_avro(spark, f"stream {name!r}", StreamError)
    fields = [field.name for field in struct.fields]
    beside = [F.col(KAFKA_TIME)] if takes_kafka_time(column, fields) else []
    parsed = avro_row(spark, struct, options, keeps_bad=keeps_bad) if is_avro else _json_row(schema)
    shown = F.base64("value") if is_avro else F.col("value").cast("string")
    may_be_null = F.substring("topic", 1, 0)  # as all fields of a struct that may be NULL have to be, for Arrow
    reason = F.concat(F.lit(f"no {value.upper()} of {schema}"), may_be_null)
    known = {"reason": reason, "message": shown, "topic": F.col("topic")}
    known = {**known, "partition": F.col("partition"), "offset": F.col("offset")}
    rows = frame.select(
        parsed.alias("row"), F.struct(*(one.alias(own) for own, one in known.items())).alias("known"), *beside
    )
    is_bad = F.col("row").isNull()  # also of a message that is empty, which Spark's parsers take for nothing
    if not is_avro:
        is_bad = is_bad | F.col("row")[_CORRUPT].isNotNull()
    if not keeps_bad:
        good = rows.where(F.when(is_bad, _stopped(name)).otherwise(F.expr("true")))
        return good.select(*(F.col("row")[field].alias(field) for field in fields), *beside)
    good = [F.when(~is_bad, F.col("row")[field]).alias(field) for field in fields]
    times = [F.when(~is_bad, one).alias(KAFKA_TIME) for one in beside]
    return rows.select(*good, *times, F.when(is_bad, F.col("known")).alias(BAD))


def _json_row(schema: str) -> Column:
    """The row in a message's value, with a column more for one that cannot be read."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col("value").cast("string"), f"{schema}, {_CORRUPT} string", options)


def _stopped(name: str) -> Column:
    """Fails at a message that cannot be read, and names it."""
    known = F.col("known")
    where = [known["topic"], F.lit(", partition "), known["partition"].cast("string")]
    where += [F.lit(", offset "), known["offset"].cast("string")]
    said = [F.lit(f"{UNREADABLE} of stream {name!r} at topic "), *where, F.lit(": "), known["reason"]]
    return F.raise_error(F.concat(*said, F.lit(": "), F.substring(known["message"], 1, _SHOWN))).cast("boolean")


def _struct(spark: SparkSession, schema: str) -> StructType:
    return spark.createDataFrame([], schema).schema


def takes_kafka_time(column: str, fields: Collection[str]) -> bool:
    """Whether the event time is Kafka's: asked for, and no field of that name."""
    return column.lower() == KAFKA_TIME and KAFKA_TIME not in {field.lower() for field in fields}


def refuse_silent_sources(spark: SparkSession, name: str, frame: DataFrame) -> None:
    """Refuse a stream of any DataFrame that reads Kafka from brokers that do not answer, or topics they do not have."""
    for leaf in _leaves(frame):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName().lower() == "kafka":
            found = leaf.extraOptions().asCaseSensitiveMap()
            refuse_missing_topics(spark, name, {str(key): str(found[key]) for key in found})


def _leaves(frame: DataFrame) -> Iterator[Any]:
    """The sources of a DataFrame, as Spark's analyzer has them; no public function names them."""
    found = frame._jdf.queryExecution().analyzed().collectLeaves()
    return (found.apply(i) for i in range(found.size()))


def refuse_silent_brokers(name: str, options: Mapping[str, str]) -> None:
    """Refuse brokers of which none can be reached: known without Spark."""
    refuse_unreached(f"stream {name!r}", options, StreamError)


def refuse_missing_topics(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """Refuse brokers that do not answer, and topics that they do not have."""
    what = f"stream {name!r}"
    servers, wanted = given(options, SERVERS), given(options, _TOPICS)
    known = known_topics(spark, what, options, StreamError)
    if known is None:
        return
    for topic in filter(None, (one.strip() for one in wanted.split(","))):
        if topic not in known:
            close = nearest(topic, known) if known else ""
            make = f"kafka-topics.sh --create --topic {topic} --bootstrap-server {servers}"
            wrong = f"{what}: there is no Kafka topic {topic!r} at {servers}"
            raise StreamError(wrong, "topics that exist", close if "did you mean" in close else make)
