"""A real cluster for the tests: tools/cluster.sh, with S3, Kafka and PostgreSQL on its bridge, and a job on it.

The bridge leads nowhere but to the workers. Of what the machine has, workers see the Python environment, and by the
network the servers; folders for temporary files are their own, so the bucket is all that they share with the driver.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.world import servers
from tests.world.servers import S3, Kafka, connector_jars, new_name, s3a_jars, until

__all__ = ["LEASE_S", "NETWORK_S", "WORKERS", "WORKER_S", "Cluster", "Job", "kill_all", "running"]

ROOT = Path(__file__).parents[2]
SCHEMA = "k long, v long, ts timestamp"
QUERY = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 20 SECONDS], S [RANGE 20 SECONDS] WHERE R.k = S.k"
WORKERS = (1, 2, 3)
NETWORK_S, WORKER_S, LEASE_S = 45, 30, 20
"""Time-outs: of executors for the driver, of workers for the master, of the checkpoint's lease. Beside neighbours that
use the same cores a pause of ten seconds is nobody's death."""


class Cluster:
    """A master, three workers and the servers."""

    def __init__(self, folder: Path, net: int) -> None:
        self.folder, self.net = folder, net
        self.host = f"10.{net}.0.1"
        self.s3 = S3(folder / "s3", self.host)
        self.kafka = Kafka(folder / "kafka", self.host)
        self.postgresql = servers.new_postgresql(folder / "postgresql", self.host)

    @property
    def name(self) -> str:
        """What tools/cluster.sh calls it."""
        return f"bt{self.net}"

    @property
    def master(self) -> str:
        return f"spark://{self.host}:7077"

    @property
    def environment(self) -> dict[str, str]:
        """Of drivers and workers."""
        own = {"CLUSTER": self.name, "NET": str(self.net), "SPARK_LOCAL_IP": self.host}
        home = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
        home["PYTHONPATH"] = str(ROOT / "src")
        limits = {"BRAIDSTREAM_LEASE_TTL": str(LEASE_S), "WORKER_TIMEOUT": str(WORKER_S)}
        return {**os.environ, **self.s3.environment, **own, **home, **limits}

    def tool(self, *command: str) -> str:
        """What tools/cluster.sh says."""
        done = subprocess.run(
            [str(ROOT / "tools" / "cluster.sh"), *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self) -> None:
        self.tool("up")
        for server in (self.s3, self.kafka, self.postgresql):
            server.folder.mkdir(parents=True, exist_ok=True)
        self.postgresql.prepare()
        for start in (self.s3.start, self.kafka.start, self.postgresql.start):
            start()

    def down(self) -> None:
        for server in (self.s3, self.kafka, self.postgresql):
            with suppress(Exception):
                server.kill()
        self.tool("down")

    def keep_logs(self) -> Path:
        """Copies of all logs, for who wants to know why a run failed; the last ones of this cluster."""
        kept, own = ROOT / "build" / "cluster-logs" / self.name, ROOT / "build" / "cluster" / self.name
        shutil.rmtree(kept, ignore_errors=True)
        found = [(path, own) for name in ("*.log", "w*/log", "w*/work/*/*/std*") for path in own.glob(name)]
        found += [(path, self.folder) for name in ("*.log", "*/log") for path in self.folder.glob(name)]
        for path, base in found:
            copy = kept / path.relative_to(base)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                shutil.copyfile(path, copy)
        print(f"logs of the cluster are kept in {kept}", file=sys.stderr, flush=True)
        return kept

    def kill_worker(self, worker: str) -> None:
        """With its executors: also those that it was just starting."""

        def is_gone() -> bool:
            self.tool("kill", worker)
            return not self.tool("pids", worker).split()

        until(is_gone, f"worker {worker} is dead", 60)

    def executors(self, worker: int) -> list[int]:
        """The processes of executors on a worker: their JVMs."""
        found = []
        for pid in self.tool("pids", str(worker)).split():
            with suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
        return found


def obstacle() -> str | None:
    """Why there can be no cluster here: rights, programs, or a kernel without networks of their own."""
    if not servers.MINIO.exists():
        return servers.NO_MINIO
    if os.getuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "iptables"):
        if shutil.which(program) is None:
            return f"there is no {program}: apt-get install iproute2 iptables"
    name = new_name("bt")[:12]
    asked = [["ip", "netns", "add", name], ["ip", "link", "add", name, "type", "bridge"]]
    asked.append(["ip", "link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name])
    try:
        for command in asked:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return f"{' '.join(command)}: {done.stderr.strip()}"
    finally:
        for command in (["ip", "netns", "del", name], ["ip", "link", "del", name]):
            subprocess.run(command, capture_output=True, check=False)
    return None


@contextmanager
def running(net: int) -> Iterator[Cluster]:
    """A cluster that runs, as a network of its own."""
    folder = Path(tempfile.mkdtemp(prefix="braidstream-cluster-"))
    folder.chmod(0o755)
    cluster = Cluster(folder, net)
    try:
        cluster.up()
        yield cluster
    except BaseException:
        cluster.keep_logs()
        raise
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Job:
    """Two topics, joined into a topic, a Delta table in the bucket and a table of PostgreSQL."""

    cluster: Cluster
    epoch: str
    name: str = ""
    limit: int = 400
    slots: int = 3
    more: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""

    def __post_init__(self) -> None:
        self.name = self.name or new_name("run")
        self.root = f"s3://{self.cluster.s3.bucket}/{self.name}"
        kafka = self.cluster.kafka
        self.topics = {stream: kafka.create(f"{self.name}_{stream}", 3) for stream in "rs"}
        self.out = kafka.create(f"{self.name}_out", 3)
        self.file = self.cluster.folder / f"{self.name}.toml"
        self.file.write_text(self._text())

    @property
    def settings(self) -> dict[str, str]:
        """Spark's: one core an executor, and time-outs that a test can wait for."""
        jars = ",".join(f"local:{jar.resolve()}" for jar in [*connector_jars(), *s3a_jars()])
        return {
            "spark.master": self.cluster.master,
            "spark.jars": jars,
            **self.cluster.s3.spark,
            "spark.driver.host": self.cluster.host,
            "spark.driver.bindAddress": self.cluster.host,
            "spark.ui.enabled": "false",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "600m",
            "spark.executor.cores": "1",
            "spark.executor.heartbeatInterval": "5s",
            "spark.network.timeout": f"{NETWORK_S}s",
            "spark.network.timeoutInterval": "5s",
            "spark.rpc.askTimeout": f"{NETWORK_S}s",
            "spark.sql.shuffle.partitions": "3",
            "spark.task.maxFailures": "8",
            "spark.stage.maxConsecutiveAttempts": "8",
            "spark.sql.session.timeZone": "UTC",
            **self.more,
        }

    def _text(self) -> str:
        quoted = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in self.settings.items())
        broker, base = self.cluster.kafka.servers, self.cluster.postgresql.url
        sinks = {
            "to_kafka": f'format = "kafka", options = {{ servers = "{broker}", topic = "{self.out}" }}',
            "to_delta": f'format = "delta", path = "{self.root}/delta"',
            "to_table": f'format = "postgresql", options = {{ url = "{base}", table = "{self.name}" }}',
        }
        streams = "".join(self._stream(stream, topic) for stream, topic in self.topics.items())
        queries = "".join(f'[queries.{name}]\ncql = "{QUERY}"\nsink = {{ {sink} }}\n' for name, sink in sinks.items())
        flow = f'[flow]\ncheckpoint = "{self.root}/ck"\nslots = {self.slots}\nepoch = "{self.epoch}"\n'
        return f"{flow}\n{streams}\n{queries}\n[spark]\n{quoted}\n"

    def _stream(self, stream: str, topic: str) -> str:
        options = f'"kafka.bootstrap.servers" = "{self.cluster.kafka.servers}", subscribe = "{topic}"'
        limits = f'startingOffsets = "earliest", maxOffsetsPerTrigger = {self.limit}'
        return (
            f'[streams.{stream.upper()}]\nformat = "kafka"\nvalue = "json"\nschema = "{SCHEMA}"\ntime = "ts"\n'
            f'delay = "1 hour"\noptions = {{ {options}, {limits} }}\n'
        )

    def start(self, *command: str, log: Path) -> subprocess.Popen[bytes]:
        """The job in a process of its own, with what it starts in a group."""
        given = command or (sys.executable, "-m", "braidstream", "run", str(self.file), "--json", "--wait", "60s")
        with log.open("ab") as file:
            return subprocess.Popen(
                given,
                cwd=self.cluster.folder,
                env=self.cluster.environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """A driver with its JVM."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def made_archive(folder: Path) -> Path:
    """An environment for executors in one file: this one's packages that a task needs, and Braidstream itself."""
    site = Path(pyspark.__file__).parents[1]
    tops = ("pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "six.py", "tzdata", "pytz", "msgspec", "sqlglot")
    more = ("datasketches", "_datasketches*", "typer", "rich", "obstore", "deltalake", "confluent_kafka*", "adbc_*")
    more += (
        "arro3",
        "typing_extensions.py",
        "markdown_it",
        "mdurl",
        "pygments",
        "click",
        "shellingham",
        "cryptography*",
    )
    root, inside = folder / "env", f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", root / "pyvenv.cfg")
    (root / inside).mkdir(parents=True)
    for pattern in (*tops, *more):
        for found in site.glob(pattern):
            subprocess.run(["cp", "-al", str(found), str(root / inside)], check=True)
    subprocess.run(["cp", "-r", str(ROOT / "src" / "braidstream"), str(root / inside)], check=True)
    # compressed: Spark unpacks a plain .tar by Java, which loses permissions and refuses links that lead out of it
    archive = folder / "braid.tar.gz"
    left_out = [f"--exclude={name}" for name in ("tests", "include", "__pycache__")]
    packed = ["tar", "-I", "gzip -1", *left_out, "-cf", str(archive), "-C", str(root), "bin", "lib", "pyvenv.cfg"]
    subprocess.run(packed, check=True)
    return archive
