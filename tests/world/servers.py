"""Real servers for the tests, on loopback: PostgreSQL, a Kafka broker and S3 (MinIO), started once for a run.

`make world` fetches what they need. A server has a folder of its own, which goes with it. Waiting is for a condition:
that it answers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pyspark

__all__ = [
    "S3",
    "Kafka",
    "Postgresql",
    "connector_jars",
    "free_port",
    "kafka",
    "new_name",
    "new_postgresql",
    "postgresql",
    "s3",
    "s3a_jars",
    "until",
]

WORLD = Path(__file__).parents[2] / "build" / "world"
NEEDED = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2", "scala-parallel", "jsr305")
KAFKA_JARS = WORLD / "kafka" / "jars"
MINIO = WORLD / "minio"
NO_MINIO = "there is no S3 server, which Go builds: install Go, then make world"
PATIENCE_S = 400.0
_CREDENTIALS = {
    "AccessKeyId": "AWS_ACCESS_KEY_ID",
    "SecretAccessKey": "AWS_SECRET_ACCESS_KEY",
    "SessionToken": "AWS_SESSION_TOKEN",
}


def connector_jars() -> list[Path]:
    """Of Spark's Kafka connector and what it needs beyond Spark; of two versions the later."""
    found = sorted((WORLD / "connector" / "jars").glob("*.jar"))
    newest = {part: [jar for jar in found if part in jar.name][-1] for part in NEEDED}
    return list(newest.values())


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} within {patience_s:g} s"
        time.sleep(0.1)


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody listens."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((host, port)) == 0


class Postgresql:
    """A server with an empty database."""

    def __init__(self, folder: Path, programs: Path, user: str, host: str) -> None:
        self.folder, self._programs, self._user, self.host, self.port = folder, programs, user, host, free_port()
        self.url = f"postgresql://postgres@{host}:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Give its folder to the user that it runs as: it does not as root."""
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o755)
        shutil.chown(self.folder, self._user)

    def start(self) -> None:
        """Start, and wait until it answers."""
        data = self.folder / "data"
        if not data.exists():
            self._run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync")
            with (data / "pg_hba.conf").open("a") as file:
                file.write(f"host all all {self.host}/24 trust\n")
        options = ["-D", str(data), "-p", str(self.port), "-h", self.host, "-k", str(self.folder), "-F"]
        command = [str(self._programs / "postgres"), *options]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(command, user=self._user, cwd=self.folder, stdout=log, stderr=log)
        until(lambda: "1" in self.psql("SELECT 1"), "PostgreSQL answers")

    def kill(self) -> None:
        """As a power failure would, but for the disk."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)

    def psql(self, statement: str) -> list[str]:
        """The lines that PostgreSQL's own client prints, columns between bars."""
        command = [str(self._programs / "psql"), self.url, "-qAtX", "-c", statement]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, user=self._user, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def new_postgresql(folder: Path, host: str = "127.0.0.1") -> Postgresql:
    """A server to be started."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    programs = (found[-1] if found else Path(shutil.which("initdb") or "initdb")).parent
    user = "postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    return Postgresql(folder, programs, user, host)


@contextmanager
def postgresql() -> Iterator[Postgresql]:
    """A running server."""
    folder = Path(tempfile.mkdtemp(prefix="braidstream-pg-"))
    server = new_postgresql(folder)
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Kafka:
    """A broker that is its own controller; as most are, it makes a topic of several partitions if asked for one."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", advertised: str = "", users: Sequence[str] = ()) -> None:
        self.folder, self.host, self.port = folder, host, free_port()
        self.servers = f"{host}:{self.port}"
        self._users, self.guarded = users, f"{host}:{free_port()}"
        self.advertised = advertised or self.servers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = self.folder / "server.properties"
        if not settings.exists():
            settings.write_text(self._settings())
            self._java("kafka.tools.StorageTool", "format", "-t", "x" * 21 + "A", "-c", str(settings)).wait(60)
        self._process = self._java("kafka.Kafka", str(settings))
        until(lambda: answers(self.port, self.host), "Kafka answers")
        if self.advertised == self.servers:
            until(self._leads, "every partition has a leader")

    def _leads(self) -> bool:
        """Whether the broker that listens knows of all its topics who leads them: some moments later, with many."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        with suppress(KafkaException):
            known = client.list_topics(timeout=5)
            parts = [part for topic in known.topics.values() for part in topic.partitions.values()]
            return bool(known.brokers) and all(part.leader != -1 for part in parts)
        return False

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def create(self, topic: str, partitions: int = 3) -> str:
        """A topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.servers})
        client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        return topic

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "log").open("ab")
        java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java") if "JAVA_HOME" in os.environ else "java"
        scala = next(
            (Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar")
        )  # what Spark has is not fetched
        path = f"{KAFKA_JARS}/*:{scala}"
        options = ["-Xmx320m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path]
        return subprocess.Popen([java, *options, *command], cwd=self.folder, stdout=log, stderr=log)

    def _settings(self) -> str:
        control = free_port()
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{self.host}:{control}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://{self.host}:{control}",
            "advertised.listeners": f"PLAINTEXT://{self.advertised}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "logs",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "true",
            "num.partitions": 3,
        }
        return "".join(f"{name}={value}\n" for name, value in {**lines, **self._guard(lines)}.items())

    def _guard(self, lines: Mapping[str, Any]) -> dict[str, str]:
        """A second listener, where users have a name, and NAME-word as password, and may do what is granted to them."""
        if not self._users:
            return {}
        known = " ".join(f'user_{user}="{user}-word"' for user in self._users)
        return {
            "listeners": f"{lines['listeners']},GUARDED://{self.guarded}",
            "advertised.listeners": f"{lines['advertised.listeners']},GUARDED://{self.guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {known};"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


@contextmanager
def kafka(advertised: str = "", users: Sequence[str] = ()) -> Iterator[Kafka]:
    """A running broker; `advertised`, where it says that it is, if not where it is; `users`, of a guarded listener."""
    folder = Path(tempfile.mkdtemp(prefix="braidstream-kafka-"))
    broker = Kafka(folder, advertised=advertised, users=users)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def new_name(what: str) -> str:
    """A name that no other test has."""
    return f"{what}_{uuid.uuid4().hex[:8]}"


class S3:
    """A MinIO server with one bucket, whose name no other server has: a process keeps its clients by their buckets."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self.host, self.port = folder, host, free_port()
        self.bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        self.user, self.password = "braid", uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What its clients are told."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.host}:{self.port}",
            "AWS_ACCESS_KEY_ID": self.user,
            "AWS_SECRET_ACCESS_KEY": self.password,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def spark(self) -> dict[str, str]:
        """What Spark's own client is told; its credentials are those of the environment."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.host}:{self.port}",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.input.stream.type": "classic",
            "spark.hadoop.fs.s3a.aws.credentials.provider": (
                "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
            ),
        }

    def start(self) -> None:
        """Start, and wait until it answers."""
        (self.folder / "data" / self.bucket).mkdir(parents=True, exist_ok=True)
        log = (self.folder / "log").open("ab")
        own = {"MINIO_ROOT_USER": self.user, "MINIO_ROOT_PASSWORD": self.password, "MINIO_BROWSER": "off"}
        command = [str(MINIO), "server", str(self.folder / "data"), "--address", f"{self.host}:{self.port}"]
        self._process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
        until(self._answers, "MinIO answers")

    def read_only(self) -> dict[str, str]:
        """What a client is told who may read and list, and no more: by a policy that MinIO's STS is asked for."""
        allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        asked = {"Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": "3600", "Policy": policy}
        answer = self._signed_post(urlencode(asked).encode())
        found = {one: re.search(f"<{one}>(.*?)</{one}>", answer) for one in _CREDENTIALS}
        return {name: match[1] for one, name in _CREDENTIALS.items() if (match := found[one])}

    def _signed_post(self, body: bytes) -> str:
        """A request to the server's STS, with Amazon's signature (version 4)."""
        now, host = datetime.now(timezone.utc), f"{self.host}:{self.port}"
        at, scope = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d/us-east-1/sts/aws4_request")
        digest, form = hashlib.sha256(body).hexdigest(), "application/x-www-form-urlencoded"
        headers = {"content-type": form, "host": host, "x-amz-content-sha256": digest, "x-amz-date": at}
        shown, names = "".join(f"{name}:{value}\n" for name, value in headers.items()), ";".join(headers)
        request = hashlib.sha256(f"POST\n/\n\n{shown}\n{names}\n{digest}".encode()).hexdigest()
        key = f"AWS4{self.password}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{request}"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        own = f"AWS4-HMAC-SHA256 Credential={self.user}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        asked = Request(f"http://{host}/", body, {**headers, "Authorization": own}, method="POST")
        with urlopen(asked, timeout=30) as answer:
            return str(answer.read().decode())

    def _answers(self) -> bool:
        with suppress(OSError), urlopen(f"http://{self.host}:{self.port}/minio/health/ready", timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def kill(self) -> None:
        """By SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)


@contextmanager
def s3() -> Iterator[S3]:
    """A running server; this process's environment names it."""
    folder = Path(tempfile.mkdtemp(prefix="braidstream-s3-"))
    server, before = S3(folder), dict(os.environ)
    try:
        server.start()
        os.environ.update(server.environment)
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def avro_jar() -> Path:
    """Spark's functions for Avro."""
    return next((WORLD / "avro" / "jars").glob("*spark-avro*.jar"))


def s3a_jars() -> list[Path]:
    """Of Spark's own client of S3."""
    return sorted((WORLD / "s3a" / "jars").glob("*.jar"))
