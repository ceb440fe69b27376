"""Kafka topics as streams of job files: run by the `braid` command in a process of its own, with Spark's connector."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.spark.stage import in_order
from tests.world import readers
from tests.world.cluster import kill_all
from tests.world.servers import Kafka, avro_jar, connector_jars, free_port, new_name, until
from tests.world.servers import kafka as kafka_server

pytestmark = [pytest.mark.spark, pytest.mark.world]

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
JOB = """
[flow]
checkpoint = "ck"
slots = 2

[streams.R]
format = "kafka"
value = "json"
schema = "k long, v long, ts timestamp"
time = "{time}"
delay = "1 hour"
[streams.R.options]
"kafka.bootstrap.servers" = "{servers}"
subscribe = "{r}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 40

[streams.S]
format = "kafka"
value = "json"
schema = "k long, v long, ts timestamp"
time = "{time}"
delay = "1 hour"
options = {{ "kafka.bootstrap.servers" = "{servers}", subscribe = "{s}", startingOffsets = "earliest" }}

[queries.pairs]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 MINUTES], S [RANGE 10 MINUTES] WHERE R.k = S.k"
sink = {sink}

[spark]
master = "local[2]"
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
{spark}
"""


def rows(name: str, n: int = 60) -> list[dict[str, Any]]:
    random = Random(name)
    times = [START + timedelta(seconds=random.randint(0, 3600)) for _ in range(n)]
    return [{"k": random.randint(0, 4), "v": v, "ts": time.isoformat()} for v, time in enumerate(times)]


def pairs(r: Sequence[dict[str, Any]], s: Sequence[dict[str, Any]]) -> list[Any]:
    window = timedelta(minutes=10)
    times = {one["ts"]: datetime.fromisoformat(one["ts"]) for one in (*r, *s)}
    near = ((a, b) for a in r for b in s if a["k"] == b["k"] and abs(times[a["ts"]] - times[b["ts"]]) <= window)
    return in_order((a["k"], a["v"], b["v"]) for a, b in near)


def send(broker: Kafka, topic: str, values: Sequence[Any]) -> str:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers})
    for value in values:
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value))
    producer.flush()
    return topic


def braid(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braidstream", *arguments]
    inherited = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, cwd=folder, env=inherited, capture_output=True, text=True, timeout=240, check=False)


def job(folder: Path, **given: str) -> Path:
    jars = ",".join(map(str, connector_jars()))
    known = {
        "time": "ts",
        "spark": f'"spark.jars" = "{jars}"',
        "sink": f'{{ format = "delta", path = "{folder}/out" }}',
    }
    file = folder / "job.toml"
    file.write_text(JOB.format(**{**known, **given}))
    return file


def test_topics_are_joined_into_a_delta_table_and_gone_on_with(tmp_path: Path, kafka: Kafka) -> None:
    r, more, s = rows("R"), rows("more", 30), rows("S")
    names = [kafka.create(new_name(name)) for name in ("r", "more", "s")]
    for name, values in zip(names, (r, more, s), strict=True):
        send(kafka, name, values)
    send(kafka, names[0], [b""][:0])
    file = job(tmp_path, servers=kafka.servers, r=f"{names[0]},{names[1]}", s=names[2])
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    assert readers.delta_rows(str(tmp_path / "out")) == pairs([*r, *more], s)
    later = [{**one, "v": one["v"] + 1000} for one in rows("later", 20)]
    send(kafka, names[0], later)
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    assert readers.delta_rows(str(tmp_path / "out")) == pairs([*r, *more, *later], s)


@pytest.mark.timeout(600)
def test_the_examples_from_kafka_to_delta_and_to_kafka(tmp_path: Path, kafka: Kafka) -> None:
    """Their two commands each, with the test's broker and jars that are there already."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    jars, n_paid = ",".join(map(str, connector_jars())), 0
    for name in ("kafka_to_delta", "kafka_to_kafka"):
        file = tmp_path / "examples" / f"{name}.toml"
        text = file.read_text().replace("localhost:9092", kafka.servers).replace("local[*]", "local[2]")
        file.write_text(re.sub(r"packages = .*", f'"spark.jars" = "{jars}"', text))
    for names in (("kafka_to_delta",), ("kafka_to_delta", "kafka_to_kafka")):
        command = [sys.executable, str(tmp_path / "examples" / "kafka_orders.py"), kafka.servers]
        sent = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        n_paid += int(sent.split()[2])
        for name in names:
            done = braid(tmp_path, "run", str(tmp_path / "examples" / f"{name}.toml"))
            assert done.returncode == 0, done.stderr[-3000:]
        ids = readers.delta_rows(str(tmp_path / "build/examples/paid"), ("id",))
        assert len(ids) == len(set(ids)) == n_paid
    assert readers.kafka_rows(kafka, "paid", ("id",)) == ids


def test_from_kafka_to_kafka_with_kafkas_own_time(tmp_path: Path, kafka: Kafka) -> None:
    r, s = rows("R", 30), rows("S", 30)
    names = [kafka.create(new_name(name)) for name in ("r", "s", "out")]
    send(kafka, names[0], r)
    send(kafka, names[1], s)
    sink = f'{{ format = "kafka", options = {{ servers = "{kafka.servers}", topic = "{names[2]}", key = "k" }} }}'
    file = job(tmp_path, servers=kafka.servers, r=names[0], s=names[1], sink=sink, time="timestamp")
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    every = in_order((a["k"], a["v"], b["v"]) for a in r for b in s if a["k"] == b["k"])
    assert readers.kafka_rows(kafka, names[2]) == every


@pytest.mark.parametrize("wrong", [b'{"k": "no number", "v": 1}', b""], ids=["of another type", "empty"])
def test_a_message_that_is_not_what_the_schema_says_stops_the_flow_and_is_named(
    tmp_path: Path, kafka: Kafka, wrong: bytes
) -> None:
    """Also an empty one, which Spark's parser passes as NULLs, and with Kafka's time, with which these would join."""
    names = [kafka.create(new_name(name), 1) for name in ("r", "s")]
    send(kafka, names[0], [*rows("R", 5), wrong])
    send(kafka, names[1], rows("S", 5))
    file = job(tmp_path, servers=kafka.servers, r=names[0], s=names[1], time="timestamp")
    file.write_text(file.read_text().replace("], S [RANGE 10 MINUTES] WHERE", "] LEFT JOIN S [RANGE 10 MINUTES] ON"))
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 3, done.stderr[-2000:]
    said = " ".join((done.stderr + done.stdout).split())
    assert f"a message that cannot be read of stream 'R' at topic {names[0]}, partition 0, offset 5" in said
    assert wrong.decode() in said
    assert "bad = {" in said


def test_with_an_output_for_bad_rows_the_flow_goes_on(tmp_path: Path, kafka: Kafka) -> None:
    names = [kafka.create(new_name(name)) for name in ("r", "s")]
    r, s = rows("R", 20), rows("S", 20)
    wrong = [b'{"k": "no number", "v": 1}', b"no JSON at all", b"", b'{"k": 1, "v": 2, "ts": "no time"}']
    send(kafka, names[0], [*r[:10], *wrong, *r[10:]])
    send(kafka, names[1], s)
    bad = f'delay = "1 hour"\nbad = {{ format = "delta", path = "{tmp_path}/bad" }}'
    file = job(tmp_path, servers=kafka.servers, r=names[0], s=names[1])
    file.write_text(file.read_text().replace('delay = "1 hour"', bad, 1))
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    assert readers.delta_rows(str(tmp_path / "out")) == pairs(r, s)
    kept = readers.delta_rows(str(tmp_path / "bad"), ("message", "topic"))
    assert kept == in_order((one.decode(), names[0]) for one in wrong)


def test_a_wrong_broker_and_a_missing_topic_are_named(tmp_path: Path, kafka: Kafka) -> None:
    file = job(tmp_path, servers=f"127.0.0.1:{free_port()}", r="r", s="s")
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 2
    assert "does not answer" in done.stderr
    file = job(tmp_path, servers=kafka.servers, r="nowhere", s="s")
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 2, done.stderr[-2000:]
    assert "there is no Kafka topic 'nowhere'" in done.stderr
    assert "kafka-topics.sh --create --topic nowhere" in " ".join(done.stderr.split())


FINDS = """
import json, sys, time
from braidstream import Flow
from braidstream.errors import InputError
from braidstream.spark.kafka_source import kafka_frame
from braidstream.spark.session import local_session
from braidstream.spark.sinks import make_sink
jars, silent, refusing, known = sys.argv[1:]
spark = local_session("local[1]", "finds", {"spark.jars": jars, "spark.ui.enabled": "false"})

def options(server, topic="r"):
    return {"kafka.bootstrap.servers": server, "subscribe": topic}

def declared(act, server, topic="r"):
    read = spark.readStream.format("kafka").options(**options(server, topic)).load()
    frame = read.selectExpr("CAST(CAST(value AS string) AS long) AS k", "timestamp AS ts").where("k IS NOT NULL")
    flow = Flow(spark).stream("R", frame, time="ts")
    flow.stream("S", spark.readStream.format("rate").load(), time="timestamp")
    flow.query("SELECT R.k FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.k = S.value", "q").to("noop")
    getattr(flow, act)("ck")

def sent(server):
    sink = make_sink("kafka", None, {"kafka.bootstrap.servers": server, "topic": "t"})
    sink.find(spark)

CASES = {
    "a job's": lambda server: kafka_frame(spark, "R", "k long", "timestamp", options(server)),
    "a program's": lambda server: declared("start", server),
    "a program's, checked": lambda server: declared("check", server),
    "a sink by the connector": sent,
}

def found(act):
    began = time.monotonic()
    try:
        act()
    except InputError as error:
        return time.monotonic() - began, str(error)

missing = found(lambda: declared("start", known, "nowhere"))  # first: classes are loaded, which takes a JVM seconds
told = {f"{case}, {sort}": found(lambda: act(server)) for case, act in CASES.items()
        for sort, server in (("silent", silent), ("refusing", refusing))}
print("FOUND", json.dumps({**told, "missing": missing}))
"""


@pytest.mark.timeout(400)
def test_a_wrong_broker_is_found_within_ten_seconds_however_it_is_declared(tmp_path: Path, kafka: Kafka) -> None:
    """Measured in the process, from the question on: the start of Python and of Spark is not Kafka's."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        one.listen(50)
        jars = ",".join(map(str, connector_jars()))
        ports = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]
        command = [sys.executable, "-c", FINDS, jars, *ports, kafka.servers]
        own = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, timeout=350, check=False)
    found = re.search(r"^FOUND (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stderr[-2000:]
    told = json.loads(found[1])
    assert "there is no Kafka topic 'nowhere'" in told.pop("missing")[1]
    assert len(told) == 8
    for case, (took_s, said) in told.items():
        assert took_s < 10, case
        assert re.search(r"(stream 'R'|the kafka sink): Kafka at 127.0.0.1:\d+ does not answer: ", said), case
    assert not (tmp_path / "ck").exists()


@pytest.mark.timeout(600)
def test_a_broker_that_dies_while_a_flow_reads_and_writes_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """One broker for source and sink, killed while both are at it; the same command again, where the flow gave up."""
    parts = [(rows(f"R{part}"), rows(f"S{part}")) for part in range(3)]
    log = tmp_path / "log"
    with kafka_server() as broker:
        names = [broker.create(new_name(name)) for name in ("r", "s", "out")]
        sink = f'{{ format = "kafka", options = {{ servers = "{broker.servers}", topic = "{names[2]}" }} }}'
        file = job(tmp_path, servers=broker.servers, r=names[0], s=names[1], sink=sink)
        file.write_text(file.read_text().replace("slots = 2", 'slots = 2\nepoch = "500 milliseconds"'))
        runs: list[subprocess.Popen[bytes]] = []

        def start() -> None:
            with log.open("ab") as out:
                command = [sys.executable, "-m", "braidstream", "run", str(file), "--wait", "60s"]
                own = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
                runs.append(
                    subprocess.Popen(command, cwd=tmp_path, env=own, stdout=out, stderr=out, start_new_session=True)
                )

        def is_there(n_parts: int) -> bool:
            if runs[-1].poll() is not None:
                assert len(runs) < 4, log.read_text(errors="replace")[-3000:]
                kill_all(runs[-1])
                start()
            return readers.kafka_rows(broker, names[2]) == expected(n_parts)

        def expected(n_parts: int) -> list[Any]:
            r, s = ([row for part in parts[:n_parts] for row in part[side]] for side in (0, 1))
            return pairs(r, s)

        def put(part: int) -> None:
            for topic, values in zip(names, parts[part], strict=False):
                send(broker, topic, values)

        try:
            put(0)
            start()
            until(lambda: is_there(1), "the first results", 200)
            put(1)
            until(lambda: len(readers.kafka_rows(broker, names[2])) > len(expected(1)), "the next results", 100)
            broker.kill()  # of the second part some is still to come: 40 rows of R an epoch
            broker.start()
            put(2)
            until(lambda: is_there(3), "all results, each once", 300)
        except AssertionError as error:
            raise AssertionError(log.read_text(errors="replace")[-3000:]) from error
        finally:
            for run in runs:
                kill_all(run)
    print(f"started {len(runs)} times")


def test_without_the_connector_the_message_names_the_package(tmp_path: Path, kafka: Kafka) -> None:
    done = braid(tmp_path, "run", str(job(tmp_path, servers=kafka.servers, r="r", s="s", spark="")))
    assert done.returncode == 2, done.stderr[-2000:]
    said = " ".join(done.stderr.split())
    assert "no package of kafka" in said
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:" in said
    assert "packages = [" in said


AVRO_SCHEMA = """{"type": "record", "name": "row", "fields": [
  {"name": "extra", "type": "string"}, {"name": "v", "type": "int"}, {"name": "k", "type": "long"},
  {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"""


def avro(row: dict[str, Any]) -> bytes:
    """A row in that schema, written by hand: Avro's numbers are zigzag, in bytes of seven bits."""

    def number(value: int) -> bytes:
        left, made = (value << 1) ^ (value >> 63), b""
        while left > 127:
            made, left = made + bytes([left & 127 | 128]), left >> 7
        return made + bytes([left])

    at = datetime.fromisoformat(row["ts"])
    micros = (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    return b"\0\0\0\0\7" + number(1) + b"x" + number(row["v"]) + number(row["k"]) + number(micros)


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_avro_in_and_out_and_bad_rows_beside(tmp_path: Path, kafka: Kafka) -> None:
    r, s = rows("R"), rows("S")
    names = [kafka.create(new_name(name)) for name in ("r", "s", "out", "again")]
    send(kafka, names[0], [*map(avro, r), b"\0\0\0\0\7\1"])
    send(kafka, names[1], list(map(avro, s)))
    jars = f'"spark.jars" = "{",".join(map(str, [*connector_jars(), avro_jar()]))}"'
    sink = f'{{ format = "kafka", options = {{ servers = "{kafka.servers}", topic = "{names[2]}", value = "avro" }} }}'
    file = job(tmp_path, servers=kafka.servers, r=names[0], s=names[1], sink=sink, spark=jars)
    own = {"avro.schema": AVRO_SCHEMA, "avro.skip": "5"}
    lines = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in own.items())
    inline = "".join(f", {line}" for line in lines.splitlines())
    text = (
        file.read_text()
        .replace('value = "json"', 'value = "avro"')
        .replace('subscribe = "', f'{lines}subscribe = "', 1)
    )
    text = text.replace(f'subscribe = "{names[1]}"', f'subscribe = "{names[1]}"{inline}')
    bad = f'bad = {{ format = "json", path = "{tmp_path}/bad" }}\n[streams.R.options]'
    file.write_text(text.replace("[streams.R.options]", bad))
    done = braid(tmp_path, "run", str(file))
    assert done.returncode == 0, done.stderr[-3000:]
    files = [file for file in (tmp_path / "bad").glob("*.json") if not file.name.startswith(("_", "."))]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [(one["topic"], one["message"]) for one in found] == [(names[0], "AAAAAAcB")]
    assert len(readers.kafka_messages(kafka, names[2])) == len(pairs(r, s))
    fields = 'schema = "k long, rv long, sv long"'
    again = f'''
[flow]
checkpoint = "ck2"
[streams.P]
format = "kafka"
value = "avro"
{fields}
time = "timestamp"
options = {{ "kafka.bootstrap.servers" = "{kafka.servers}", subscribe = "{names[2]}", startingOffsets = "earliest" }}
[queries.all]
cql = """SELECT P.k AS k, P.rv AS rv, Q.sv AS sv FROM P [RANGE 1 DAY], P [RANGE 1 DAY] AS Q
         WHERE P.rv = Q.rv AND P.sv = Q.sv"""
sink = {{ format = "delta", path = "{tmp_path}/again" }}
[spark]
master = "local[2]"
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
{jars}
'''
    (tmp_path / "again.toml").write_text(again)
    done = braid(tmp_path, "run", str(tmp_path / "again.toml"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert readers.delta_rows(str(tmp_path / "again")) == pairs(r, s)


CAST = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.avro.functions import to_avro
from braidstream.spark.avro_values import avro_row

spark = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1]).getOrCreate()
fields = [{"name": "k", "type": "long"}, {"name": "v", "type": "string"}]
given = json.dumps({"type": "record", "name": "row", "fields": fields})
values = spark.createDataFrame([(1, "5"), (2, "x")], "k long, v string").select(to_avro(F.struct("k", "v"), given))
values = values.union(spark.createDataFrame([(bytearray(b"1"),)], "value binary")).toDF("value")
struct = spark.createDataFrame([], "k long, v int").schema
for keeps_bad in (True, False):
    row = avro_row(spark, struct, {"avro.schema": given}, keeps_bad=keeps_bad)
    print(json.dumps([None if one.row is None else list(one.row) for one in values.select(row.alias("row")).collect()]))
"""


def test_an_avro_value_with_a_field_that_cannot_be_cast_cannot_be_read() -> None:
    """As a row of NULLs would be; who keeps bad ones does not stop at it."""
    inherited = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", CAST, str(avro_jar())]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=inherited, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[[1, 5], None, None]] * 2


@pytest.mark.timeout(600)
def test_partitions_that_are_added_while_it_runs_are_read(tmp_path: Path, kafka: Kafka) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    r, s, later = rows("R"), rows("S"), [{**one, "v": one["v"] + 1000} for one in rows("later", 30)]
    names = [kafka.create(new_name(name), 1) for name in ("r", "s")]
    send(kafka, names[0], r)
    send(kafka, names[1], s)
    file = job(tmp_path, servers=kafka.servers, r=names[0], s=names[1])
    file.write_text(file.read_text().replace("slots = 2", 'slots = 2\nepoch = "1 second"'))
    command = [sys.executable, "-m", "braidstream", "run", str(file), "--json"]
    inherited = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {"kafka.metadata.max.age.ms": "1000"}
    text = file.read_text().replace(
        'subscribe = "', "".join(f'"{k}" = "{v}"\n' for k, v in settings.items()) + 'subscribe = "', 1
    )
    file.write_text(text)
    log = (tmp_path / "log").open("wb")  # a pipe that nobody reads would stop it when it is full
    running = subprocess.Popen(command, cwd=tmp_path, env=inherited, stdout=log, stderr=log, start_new_session=True)
    out = str(tmp_path / "out")

    def until_joined(n: int, what: str) -> None:
        def is_joined() -> bool:
            assert running.poll() is None, (tmp_path / "log").read_text(errors="replace")[-3000:]
            return _n_rows(out) == n

        until(is_joined, what, 200)

    try:
        until_joined(len(pairs(r, s)), "the first rows are joined")
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        admin.create_partitions([NewPartitions(names[0], 4)])[names[0]].result(60)
        until(lambda: len(_partitions(kafka, names[0])) == 4, "the partitions are there")
        _send_to(kafka, names[0], later, [1, 2, 3])
        until_joined(len(pairs([*r, *later], s)), "rows of new partitions are joined")
    finally:
        kill_all(running)
    assert readers.delta_rows(out) == pairs([*r, *later], s)


def _n_rows(path: str) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(path).to_pyarrow_table().num_rows) if DeltaTable.is_deltatable(path) else 0


def _partitions(broker: Kafka, topic: str) -> list[int]:
    from confluent_kafka.admin import AdminClient

    return list(
        AdminClient({"bootstrap.servers": broker.servers}).list_topics(topic, timeout=10).topics[topic].partitions
    )


def _send_to(broker: Kafka, topic: str, values: Sequence[Any], parts: Sequence[int]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers})
    for place, value in enumerate(values):
        producer.produce(topic, json.dumps(value), partition=parts[place % len(parts)])
    producer.flush()
