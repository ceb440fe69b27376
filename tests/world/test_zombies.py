"""Two processes deliver the same epoch, one of them late: the sink takes it from one, whoever looked when.

Without Spark: what slots stage is written here, and tasks are called as they are.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from braidstream.errors import SinkError
from braidstream.spark import kafka_sink, postgresql_sink
from braidstream.spark.sink import Delivery, Mark
from braidstream.spark.sinks import make_sink
from tests.spark.stage import in_order
from tests.world import readers
from tests.world.servers import Kafka, Postgresql, new_name, until

pytestmark = pytest.mark.world

ROWS = pa.table({"k": [1, 2, 3], "rv": [4, 5, 6], "sv": [7, 8, 9]})
SCHEMA = StructType([StructField(name, LongType()) for name in ROWS.column_names])
EXPECTED = [(1, 4, 7), (2, 5, 8), (3, 6, 9)]


def no_frame() -> NoReturn:
    raise AssertionError("plain results need no Spark")


class Process:
    """One that holds, or held, the lease of the flow."""

    def __init__(self, declared: dict[str, Any], owner: str) -> None:
        given = dict(declared)
        self.sink: Any = make_sink(given.pop("target"), given.pop("path", None), given)
        self.sink.check_rows(SCHEMA)
        self.sink.claim("flow", owner)

    def delivery(self, epoch: int, n_files: int = 1) -> Delivery:
        names = []
        for i in range(n_files):
            writer = self.sink.staging("unused", finished=True).writer(ROWS.schema, epoch, i)
            writer.write([column.combine_chunks() for column in ROWS.columns])
            staged = writer.close()
            assert staged is not None
            names.append(staged.name)
        return Delivery("q", epoch, names, no_frame, finished=True)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_process_that_looked_before_the_other_committed_adds_nothing(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {"target": kind, "path": str(tmp_path / "lake")}
    if kind == "iceberg":
        declared["table"] = "results.pairs"
    late, now = Process(declared, "late"), Process(declared, "now")
    looks = "_table" if kind == "delta" else "_found"
    look, stale = getattr(late.sink, looks), getattr(late.sink, looks)()
    seen = [stale, stale, stale, stale]
    monkeypatch.setattr(late.sink, looks, lambda: seen.pop() if seen else look())
    delivery = late.delivery(0)
    now.sink.deliver(now.delivery(0))
    late.sink.deliver(delivery)
    path = str(tmp_path / "lake")
    found = readers.delta_rows(path) if kind == "delta" else readers.iceberg_rows(path, "results.pairs")
    assert not seen, "it did look at what was there before"
    assert found == in_order(EXPECTED)
    now.sink.deliver(now.delivery(1))
    late.sink.deliver(late.delivery(1))
    found = readers.delta_rows(path) if kind == "delta" else readers.iceberg_rows(path, "results.pairs")
    assert found == in_order(EXPECTED * 2)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_commit_that_arrived_and_whose_answer_was_lost_keeps_its_files(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again, meets its own commit, and is told of a conflict."""
    import deltalake
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    place, name = (
        (deltalake.DeltaTable, "create_write_transaction") if kind == "delta" else (SqlCatalog, "commit_table")
    )
    lost = deltalake.exceptions.CommitFailedError if kind == "delta" else CommitFailedException
    commit, n_lost = getattr(place, name), []

    def committed(*given: Any, **named: Any) -> None:
        commit(*given, **named)
        n_lost.append(1)
        raise lost("a concurrent transaction has the version")

    declared = {"target": kind, "path": str(tmp_path / "lake")}
    if kind == "iceberg":
        declared["table"] = "results.pairs"
    process = Process(declared, "now")
    with monkeypatch.context() as patched:
        patched.setattr(place, name, committed)
        process.sink.deliver(process.delivery(0))
    assert len(n_lost) == 1
    process.sink.deliver(process.delivery(0))
    path = str(tmp_path / "lake")
    found = readers.delta_rows(path) if kind == "delta" else readers.iceberg_rows(path, "results.pairs")
    assert found == in_order(EXPECTED)


def test_a_second_transaction_of_the_same_epoch_waits_for_the_first_and_adds_nothing(postgresql: Postgresql) -> None:
    table = new_name("t")
    Process({"target": "postgresql", "url": postgresql.url, "table": table}, "now")
    put = postgresql_sink._Put(postgresql.url, table, (), "braidstream_marks", ROWS.schema, Mark("flow", table, 0))
    begun, answers = threading.Event(), []

    def slowly() -> Any:
        begun.set()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%braidstream_marks%'"
        until(lambda: bool(postgresql.psql(waits)), "the other one waits for the row of the mark")
        yield from ROWS.to_batches()

    first = threading.Thread(target=lambda: answers.append(put(slowly())))
    first.start()
    assert begun.wait(30)
    answers.append(put(iter(ROWS.to_batches())))
    first.join(30)
    assert sorted(answers) == [0, 3]
    assert readers.postgresql_rows(postgresql, table) == in_order(EXPECTED)


def test_an_older_producer_is_fenced_and_what_it_sent_is_not_seen(kafka: Kafka) -> None:
    from confluent_kafka import KafkaException

    topic = kafka.create(new_name("topic"))
    process = Process({"target": "kafka", "servers": kafka.servers, "topic": topic}, "now")
    mark = Mark("flow", "q", 0)
    marks = process.sink._marks(mark, Delivery("q", 0, ["staged"], no_frame, finished=False))
    put = kafka_sink._Put(process.sink._servers, topic, marks, mark)
    batch = pa.RecordBatch.from_pydict({"key": [None], "value": ['{"k": 1, "rv": 4, "sv": 7}']})

    def interrupted() -> Any:
        yield batch
        assert put(iter([batch])) == 1  # a second process, in the middle of the first one's transaction

    with pytest.raises(KafkaException):
        put(interrupted())
    assert put(iter([batch])) == 0
    assert readers.kafka_rows(kafka, topic) == [(1, 4, 7)]


def test_an_epoch_that_lasts_longer_than_a_transaction_may_is_told_from_a_fenced_one(kafka: Kafka) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = kafka.create(new_name("topic"), 1)
    process = Process(
        {"target": "kafka", "servers": kafka.servers, "topic": topic, "transaction.timeout.ms": "1000"}, "now"
    )
    mark = Mark("flow", "q", 0)
    marks = process.sink._marks(mark, Delivery("q", 0, ["staged"], no_frame, finished=False))
    put = kafka_sink._Put(process.sink._servers, topic, marks, mark)
    batch = pa.RecordBatch.from_pydict({"key": [None], "value": ['{"k": 1, "rv": 4, "sv": 7}']})
    given = {"bootstrap.servers": kafka.servers, "group.id": "any", "isolation.level": "read_committed"}
    reader = Consumer(given)

    def slowly() -> Any:
        yield batch
        part = TopicPartition(topic, 0)
        until(lambda: reader.get_watermark_offsets(part, 30)[1] > 1, "the brokers have given the transaction up")
        yield batch

    with pytest.raises(SinkError, match=f"not sent to the Kafka topic '{topic}' within 1 s") as refused:
        put(slowly())
    reader.close()
    assert "transaction.timeout.ms" in refused.value.fix
    assert put(iter([batch])) == 1
    assert readers.kafka_rows(kafka, topic) == [(1, 4, 7)]
