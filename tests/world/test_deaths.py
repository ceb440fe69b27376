"""Processes die, at every point and at any time, with changing slots; each sink has every result once.

One flow delivers the same join to all four sinks, and to one of them results that Spark finishes, so that every death
is one for all of them. They are read back by clients that share no code with ours, and compared with a batch join.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pyspark
import pytest

from braidstream.lab.testing.batch import BatchStream, batch_join
from braidstream.model.faults import ONCE_VARIABLE, VARIABLE
from tests.spark.child import WINDOW_SECONDS
from tests.spark.stage import in_order
from tests.spark.test_crash import SECOND, committed, kill_group, script_of, wait_for
from tests.world import readers
from tests.world.servers import Kafka, Postgresql, new_name

pytestmark = [pytest.mark.spark, pytest.mark.world]

CHILD = Path(__file__).with_name("child.py")
ROOT = Path(__file__).parents[2]
POINTS = ("after-join", "delivery-put", "delivery-done", "after-results", "before-manifest", "after-manifest")
LIMIT_S = 240


class Story:
    """A flow that is started again and again, over the same files and sinks."""

    def __init__(self, folder: Path, postgresql: Postgresql, kafka: Kafka, n_epochs: int) -> None:
        self.folder, self._postgresql, self._kafka, self.n_epochs = folder, postgresql, kafka, n_epochs
        self._log = folder / "log"
        name = new_name("deaths")
        self._table, self._topic = name, kafka.create(name)
        self.sinks: dict[str, Any] = {
            "delta": {"target": "delta", "path": str(folder / "delta")},
            "iceberg": {"target": "iceberg", "path": str(folder / "lake"), "table": "results.pairs"},
            "postgresql": {"target": "postgresql", "url": postgresql.url, "table": name},
            "kafka": {"target": "kafka", "servers": kafka.servers, "topic": self._topic},
            "delta_computed": {"target": "delta", "path": str(folder / "computed")},
        }
        for _ in script_of(folder, {}, n_epochs).acts():
            pass

    def child(self, slots: int, first: int = 0, **environment: str) -> subprocess.Popen[str]:
        """A run; the sinks are delivered to in an order that begins with one of them."""
        names = list(self.sinks)
        sinks = {name: self.sinks[name] for name in names[first:] + names[:first]}
        inherited = {name: value for name, value in os.environ.items() if name not in {VARIABLE, ONCE_VARIABLE}}
        own = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, str(CHILD), str(self.folder), "--slots", str(slots), "--sinks", json.dumps(sinks)]
        with self._log.open("wb") as log:  # a pipe that nobody reads would stop it when it is full
            return subprocess.Popen(
                command,
                env={**inherited, **own, **environment},
                start_new_session=True,
                stdout=log,
                stderr=log,
                text=True,
            )

    @property
    def said(self) -> str:
        """The end of what the last run wrote."""
        return self._log.read_text(errors="replace")[-3000:]

    def dies(self, point: str, epoch: int, slots: int, first: int) -> None:
        """A run that dies at a point of an epoch: the driver, or the task that reaches it."""
        process = self.child(slots, first, **{VARIABLE: f"{point}:{epoch}:kill"})
        self.waited(process)
        assert process.returncode != 0, (point, epoch, self.said)
        assert committed(self.folder) == epoch - (point != "after-manifest"), (point, self.said)

    def waited(self, process: subprocess.Popen[str]) -> None:
        """A run until it ends, with all that it started."""
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {LIMIT_S} s: {self.said}") from None
        finally:
            kill_group(process)
            process.wait(30)

    def ends(self, slots: int) -> None:
        """A run that goes through."""
        process = self.child(slots)
        self.waited(process)
        assert process.returncode == 0, self.said
        assert committed(self.folder) == self.n_epochs - 1

    def check(self) -> None:
        """Every sink has what a batch join of the files gives."""
        streams = [BatchStream(name, self.folder / name, WINDOW_SECONDS * SECOND) for name in "RS"]
        batch = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
        expected = in_order(zip(*(batch.column(name).to_pylist() for name in ("k", "rv", "sv")), strict=True))
        assert len(expected) > 400
        found = {
            "delta": readers.delta_rows(self.sinks["delta"]["path"]),
            "delta_computed": readers.delta_rows(self.sinks["delta_computed"]["path"]),
            "iceberg": readers.iceberg_rows(self.sinks["iceberg"]["path"], "results.pairs"),
            "postgresql": readers.postgresql_rows(self._postgresql, self._table),
            "kafka": readers.kafka_rows(self._kafka, self._topic),
        }
        for name, got in found.items():
            assert len(got) == len(expected), name
            assert got == expected, name


@pytest.mark.timeout(600)
def test_the_driver_or_a_task_dies_where_results_are_delivered(
    tmp_path: Path, postgresql: Postgresql, kafka: Kafka
) -> None:
    story, random = Story(tmp_path, postgresql, kafka, 4), Random(3)
    deaths = [("delivery-put", 1), ("delivery-put", 2), ("delivery-done", 3)]
    for epoch, (point, first) in enumerate(deaths, 1):
        story.dies(point, epoch, random.randint(1, 4), first)
    story.ends(3)
    story.check()


@pytest.mark.acceptance
def test_twenty_deaths_at_every_point_with_every_sink_first(
    tmp_path: Path, postgresql: Postgresql, kafka: Kafka
) -> None:
    random = Random(5)
    deaths = [(point, first) for point in POINTS for first in range(5)]
    random.shuffle(deaths)
    story = Story(tmp_path, postgresql, kafka, len(deaths) + 2)
    for epoch, (point, first) in enumerate(deaths, 1):
        story.dies(point, epoch, random.randint(1, 6), first)
    story.ends(3)
    story.check()


@pytest.mark.acceptance
@pytest.mark.parametrize("part", range(4))
def test_five_deaths_of_twenty_at_random_times_while_slots_come_and_go(
    tmp_path: Path, postgresql: Postgresql, kafka: Kafka, part: int
) -> None:
    random, n_deaths, n_starts = Random(11 + part), 0, 0
    story = Story(tmp_path, postgresql, kafka, 30)
    while n_deaths < 5:
        n_starts += 1
        assert n_starts <= 15, f"fifteen starts, {n_deaths} deaths: {story.said}"
        process, before = story.child(random.randint(1, 6), random.randrange(5)), committed(tmp_path)
        wait_for(process, lambda before=before: committed(tmp_path) > before)  # type: ignore[misc]
        time.sleep(random.uniform(0, 3))  # a random moment of a random epoch is the point of this test
        n_deaths += process.poll() is None
        kill_group(process)
        process.wait(30)
        print(f"death {n_deaths} after epoch {committed(tmp_path)}", flush=True)
    story.ends(2)
    story.check()


@pytest.mark.acceptance
def test_a_broker_and_a_server_that_go_away_and_come_back_lose_nothing(
    tmp_path: Path, postgresql: Postgresql, kafka: Kafka
) -> None:
    """The flow fails, or waits; the same command again goes on."""
    story = Story(tmp_path, postgresql, kafka, 4)
    story.dies("after-join", 1, 2, 0)
    try:
        kafka.kill()
        postgresql.kill()
        process = story.child(2)
        story.waited(process)
        assert process.returncode != 0, story.said
    finally:  # other tests have the same servers
        kafka.start()
        postgresql.start()
    story.ends(3)
    story.check()
