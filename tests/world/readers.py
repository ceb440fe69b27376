"""What is in a sink, read by clients that share no code with ours: delta-rs, pyiceberg, psql, a Kafka consumer."""

from __future__ import annotations

import json
import os
from typing import Any

import pyarrow as pa

from tests.spark.stage import in_order
from tests.world.servers import Kafka, Postgresql

Row = tuple[Any, ...]


def delta_rows(path: str, columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    from deltalake import DeltaTable

    return _rows(pa.table(DeltaTable(path).to_pyarrow_table()), columns)


def s3_client() -> Any:
    """pyarrow's own client of S3, for the server of the tests."""
    from pyarrow import fs

    scheme, _, host = os.environ["AWS_ENDPOINT_URL"].partition("://")
    return fs.S3FileSystem(endpoint_override=host, scheme=scheme)


def s3_rows(paths: list[str], columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    """By pyarrow's own client of S3."""
    import pyarrow.parquet as pq

    found = [pq.read_table(path.removeprefix("s3a://"), filesystem=s3_client()) for path in paths]
    return in_order(row for table in found for row in _rows(table, columns))


def parquet_rows(paths: list[str], columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    import pyarrow.parquet as pq

    return in_order(row for path in paths for row in _rows(pq.read_table(path), columns))


def iceberg_rows(path: str, name: str, columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    from pyiceberg.catalog import load_catalog

    where = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}
    catalog = load_catalog("braidstream", **where)
    return _rows(catalog.load_table(name).scan().to_arrow(), columns)


def postgresql_rows(server: Postgresql, table: str, columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    lines = server.psql(f"SELECT {', '.join(columns)} FROM {table}")
    return in_order(tuple(map(int, line.split("|"))) for line in lines)


def kafka_messages(broker: Kafka, topic: str) -> list[Any]:
    """All committed messages of a topic."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": broker.servers, "enable.auto.commit": False, **settings})
    parts = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, part, 0) for part in parts])
    found, ended = [], set[int]()
    while len(ended) < len(parts):
        message = consumer.poll(30)
        assert message is not None, "the consumer was given nothing for 30 s"
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return found


def kafka_rows(broker: Kafka, topic: str, columns: tuple[str, ...] = ("k", "rv", "sv")) -> list[Row]:
    values = [json.loads(message.value()) for message in kafka_messages(broker, topic)]
    return in_order(tuple(value[name] for name in columns) for value in values)


def _rows(table: pa.Table, columns: tuple[str, ...]) -> list[Row]:
    return in_order(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
