"""Continuous queries on Spark: type 2, suspend and resume, submit and withdraw, and a controller that never rests."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.errors import InputError
from braidstream.lab.testing import oracle
from braidstream.lab.testing.restless import Restless
from braidstream.lab.workloads.stream_files import append_files
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle

pytestmark = pytest.mark.spark

S = 1_000_000
DDL = "x long, y long, z string, v long, ts timestamp"
SCHEMA = pa.schema(
    [("x", pa.int64()), ("y", pa.int64()), ("z", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)
Row = dict[str, Any]


@dataclass
class World:
    """Streams made epoch by epoch: one file of each stream is one epoch, event time runs 10 s in each."""

    folder: Path
    names: str
    rng: random.Random
    rows: dict[str, list[list[Row]]] = field(default_factory=dict)

    def epoch(self, n_rows: int, silent: str = "") -> None:
        for name in self.names:
            known = self.rows.setdefault(name, [])
            begin = len(known) * 10
            count = 0 if name in silent else self.rng.randint(0, n_rows)
            known.append([self._row(begin, sum(map(len, known)) + i) for i in range(count)])
            columns = {column: [row[column] for row in known[-1]] for column in SCHEMA.names}
            append_files(self.folder / name, [pa.table(columns, schema=SCHEMA)])

    def _row(self, begin: int, v: int) -> Row:
        ts = (begin + self.rng.randint(0, 9)) * S
        x = self.rng.choice([None, *range(6)])
        return {"x": x, "y": self.rng.randint(0, 5), "z": self.rng.choice("abcde"), "v": v, "ts": ts}

    def declare(self, flow: Flow, *, direct: bool) -> Flow:
        for name in self.names:
            path = str(self.folder / name)
            if direct:
                flow.files(
                    name,
                    path,
                    schema=DDL,
                    time="ts",
                    delay="10 seconds",
                    options={"maxFilesPerTrigger": "1"},
                    order="modified",
                )
            else:
                frame = flow.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(path)
                flow.stream(name, frame, time="ts", delay="10 seconds")
        return flow

    def expected(
        self, windows: Sequence[int | None], equalities: Sequence[tuple[str, str]], begin: int = 0
    ) -> Counter[Any]:
        streams = [
            oracle.Stream(name, [row for epoch in self.rows[name][begin:] for row in epoch], window)
            for name, window in zip(self.names, windows, strict=True)
        ]
        found = oracle.join(streams, list(equalities))
        return Counter(oracle.project(found, [f"{name}.v" for name in self.names]))


def results(query: Any) -> Counter[Any]:
    table = query.sink.table()
    return Counter() if table is None else Counter(tuple(row.values()) for row in table.to_pylist())


def select(names: str, windows: Sequence[int | None], where: str) -> str:
    ranges = ["UNBOUNDED" if w is None else f"{w // S} SECONDS" for w in windows]
    streams = ", ".join(f"{n} [RANGE {r}]" for n, r in zip(names, ranges, strict=True))
    return f"SELECT {', '.join(f'{n}.v AS {n.lower()}' for n in names)} FROM {streams} WHERE {where}"


SHAPES = {
    "a chain of three": ("ABC", [20 * S, 30 * S, None], "A.x = B.x AND B.y = C.y", [("A.x", "B.x"), ("B.y", "C.y")]),
    "a chain of four, the last on a string": (
        "ABCD",
        [15 * S, 30 * S, 25 * S, 20 * S],
        "A.x = B.x AND B.y = C.y AND C.z = D.z",
        [("A.x", "B.x"), ("B.y", "C.y"), ("C.z", "D.z")],
    ),
    "a cycle": (
        "ABC",
        [20 * S, 10 * S, 15 * S],
        "A.x = B.x AND B.y = C.y AND A.z = C.z",
        [("A.x", "B.x"), ("B.y", "C.y"), ("A.z", "C.z")],
    ),
    "a star with one attribute of three": (
        "ABCD",
        [15 * S, 30 * S, None, 20 * S],
        "A.x = B.x = C.x AND A.y = D.y",
        [("A.x", "B.x"), ("B.x", "C.x"), ("A.y", "D.y")],
    ),
    "five in a chain on one key": (
        "ABCDE",
        [15 * S, 10 * S, 25 * S, 20 * S, 10 * S],
        "A.x = B.x AND B.x = C.x AND C.x = D.x AND D.x = E.x",
        [("A.x", "B.x"), ("B.x", "C.x"), ("C.x", "D.x"), ("D.x", "E.x")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_over_many_streams_give_the_oracles_answer(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    names, windows, where, equalities = SHAPES[shape]
    rng = random.Random(shape)
    world = World(tmp_path, names, rng)
    for _ in range(5):
        world.epoch({3: 18, 4: 12, 5: 9}[len(names)])
    flow = world.declare(Flow(spark, slots=rng.randint(1, 4), groups=rng.choice([1, 5, 64])), direct=rng.random() < 0.5)
    query = flow.query(select(names, windows, where)).to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    expected = world.expected(windows, equalities)
    assert sum(expected.values()) > 0
    assert results(query) == expected


def test_work_that_waits_for_a_silent_stream_is_suspended_and_made_up_for(spark: SparkSession, tmp_path: Path) -> None:
    names, windows, where, equalities = SHAPES["a chain of three"]
    world = World(tmp_path, names, random.Random(5))
    for silent in ("", "C", "C", "C", "C", ""):
        world.epoch(18, silent)
    flow = world.declare(Flow(spark, slots=2, groups=8, silence="5 seconds"), direct=True)
    query = flow.query(select(names, windows, where), name="q").to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    produced = [entry.produced.get("q:(A⋈B)", 0) for entry in handle.progress]
    assert produced[2:5] == [0, 0, 0]
    assert produced[5] > 0
    assert results(query) == world.expected(windows, equalities)


def until(condition: Callable[[], bool], handle: Handle) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert handle.is_active, "the flow ended early"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.mark.parametrize("direct", [False, True], ids=["rows from Spark", "files read directly until a filter comes"])
def test_queries_come_and_go_while_the_flow_runs(spark: SparkSession, tmp_path: Path, direct: bool) -> None:
    world = World(tmp_path, "AB", random.Random(7))
    windows, equalities = [30 * S, 20 * S], [("A.x", "B.x")]
    text = select("AB", windows, "A.x = B.x")
    world.epoch(20)
    flow = world.declare(Flow(spark, slots=2, groups=8), direct=direct)
    first = flow.query(text, name="first").to("memory")
    handle = flow.start(tmp_path / "ck", epoch="100 milliseconds", warm=False)

    # By rows, not by epochs: the flow may see the file of one stream an epoch before the other's.
    def is_read() -> bool:
        return all(handle.totals.get(f"{name}.rows", 0) == sum(map(len, world.rows[name])) for name in world.names)

    def pass_epoch() -> None:
        world.epoch(20)
        until(is_read, handle)

    until(is_read, handle)
    pass_epoch()
    second = flow.submit(f"{text} AND B.y > 2", name="second")
    other_key = flow.submit(
        select("AB", windows, "A.z = B.z"), name="third", to="parquet", path=str(tmp_path / "third")
    )
    with pytest.raises(InputError, match="already a query named 'second'"):
        flow.submit(text, name="second")
    begin = len(world.rows["A"])
    for _ in range(3):
        pass_epoch()
    handle.withdraw("first")
    at_withdrawal = results(first)
    pass_epoch()
    handle.stop()
    assert at_withdrawal == results(first)
    kept = {name: [list(epoch) for epoch in epochs] for name, epochs in world.rows.items()}
    world.rows = {name: epochs[:-1] for name, epochs in kept.items()}
    assert results(first) == world.expected(windows, equalities)
    world.rows = kept
    with_filter = World(
        tmp_path, "AB", world.rng, {"A": kept["A"], "B": [[r for r in e if r["y"] > 2] for e in kept["B"]]}
    )
    assert results(second) == with_filter.expected(windows, equalities, begin)
    del other_key
    # After a restart the submitted queries are there, the withdrawn one is not.
    world.epoch(20)
    again = world.declare(Flow(spark, slots=3, groups=8), direct=direct)
    again.query(text, name="first").to("memory")
    again.start(tmp_path / "ck", warm=False).await_termination()
    assert set(again.names) == {"second", "third"}
    files = [p for p in (tmp_path / "third").glob("*.parquet") if not p.name.startswith("_")]
    import pyarrow.parquet as pq

    third = Counter(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())
    assert third == world.expected(windows, [("A.z", "B.z")], begin)


@pytest.mark.parametrize("shape", ["a chain of three", "five in a chain on one key"])
def test_a_controller_that_never_rests_changes_no_result(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    names, windows, where, equalities = SHAPES[shape]
    world = World(tmp_path, names, random.Random(11))
    for _ in range(7):
        world.epoch(9)
    controller = Controller(Settings(every=1, min_span_s=0.0), policies=(Restless(),))
    flow = world.declare(Flow(spark, slots=2, groups=4, controller=controller), direct=True)
    query = flow.query(select(names, windows, where)).to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert sum(len(decision.instructions) for decision in handle.decisions) > 5
    assert results(query) == world.expected(windows, equalities)
