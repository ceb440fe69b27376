"""Queries that come and go: what is refused changes nothing, what was withdrawn stays so, what is owed is delivered."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import BraidstreamError, InputError, QueryError, RunError, SinkError
from braidstream.model.faults import CHANGES, armed
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.generations import held_groups
from tests.spark.stage import SECOND, declare, pairs, some_epochs, write

pytestmark = pytest.mark.spark

SELECT = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k"
EPOCHS = some_epochs(4, n_epochs=6, rows=30)


class Stage:
    """Two streams of which each epoch is one file of each, a flow over them, and its results."""

    def __init__(self, spark: SparkSession, folder: Path, **options: Any) -> None:
        self.spark, self.folder, self.options = spark, folder, {"slots": 2, "groups": 8, **options}
        self.n_epochs = 0
        self.paths = {name: folder / name for name in "RS"}
        for path in self.paths.values():
            path.mkdir(parents=True, exist_ok=True)

    def flow(self, *queries: tuple[str, str], **options: Any) -> Flow:
        flow = declare(Flow(self.spark, **{**self.options, **options}), self.paths)
        for name, text in queries:
            flow.query(text, name=name).to("parquet", path=self.out(name))
        return flow

    def out(self, name: str) -> str:
        return str(self.folder / "out" / name)

    def start(self, flow: Flow, epoch: str = "50 milliseconds") -> Handle:
        return flow.start(self.folder / "ck", epoch=epoch, warm=False)

    def arrive(self, handle: Handle | None = None) -> None:
        """The next epoch's files; with a flow that runs, until it is committed."""
        write(self.folder, [EPOCHS[self.n_epochs]])
        self.n_epochs += 1
        n_rows = sum(len(rows) for epoch in EPOCHS[: self.n_epochs] for rows in epoch.values())
        if handle is not None:
            until(lambda: sum(handle.totals.get(f"{name}.rows", 0) for name in "RS") == n_rows, handle)

    def found(self, name: str) -> Counter[Any]:
        files = [p for p in Path(self.out(name)).glob("*.parquet") if not p.name.startswith(("_", "."))]
        return Counter(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())

    def expected(self, begin: int = 0, end: int = 99, condition: Callable[[Any, Any], Any] | None = None) -> Any:
        made = pairs(EPOCHS[begin : min(end, self.n_epochs)], (30, 30), condition or (lambda r, s: True))
        return Counter((r["v"], s["v"]) for r, s in made)


def until(condition: Callable[[], bool], handle: Handle) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if not handle.is_active:
            handle.await_termination()
            raise AssertionError("the flow ended early")
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def fails(_frame: DataFrame, _epoch: int) -> None:
    raise OSError("the disk is full")


def test_a_refused_change_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "_braidstream.json").write_text('{"flow": "another"}')
    (tmp_path / "link").symlink_to(tmp_path / "out" / "base")
    flow = stage.flow(("base", SELECT))
    handle = stage.start(flow)
    stage.arrive(handle)
    before = handle.manifest
    out = stage.out("base")
    refusals: list[tuple[dict[str, Any], type[BraidstreamError], str]] = [
        ({"to": "parquet"}, SinkError, "has no path"),
        ({"to": fails, "path": "x"}, SinkError, "takes no path"),
        ({"to": "parquet", "path": out}, SinkError, "the same sink path"),
        ({"to": "json", "path": f"{tmp_path}/x/../out/base/"}, SinkError, "the same sink path"),
        ({"to": "parquet", "path": str(tmp_path / "link")}, SinkError, "the same sink path"),
        ({"to": "parquet", "path": f"file:{out}"}, SinkError, "the same sink path"),
        ({"to": "parquet", "path": f"{out}/_staging/x"}, SinkError, "the same sink path"),
        ({"to": "parquet", "path": str(tmp_path / "file")}, SinkError, "is a file"),
        ({"to": "parquet", "path": str(tmp_path / "theirs")}, SinkError, "belongs to another flow"),
        ({"to": "parquet", "path": str(tmp_path / "ck" / "segments")}, SinkError, "is inside the checkpoint"),
        ({"to": "parquet", "path": str(stage.paths["R"])}, SinkError, "the folder of stream 'R'"),
        ({"to": "parqet", "path": str(tmp_path / "no")}, SinkError, "knows no format"),
        ({"text": SELECT.replace("R.v", "roundd(R.v, 1)")}, QueryError, "did you mean 'round'"),
        ({"text": SELECT + " AND roundd(R.v, 1) > 0"}, QueryError, "no function 'roundd'"),
        ({"text": SELECT + " AND roundd(R.v, S.v) > 0"}, QueryError, "no function 'roundd'"),
        ({"name": "base"}, InputError, "already a query named 'base'"),
    ]
    for given, error, told in refusals:
        arguments = {"text": SELECT, "name": "q", **given}
        with pytest.raises(error, match=told):
            flow.submit(**arguments)
    with pytest.raises(InputError, match="the last query"):
        handle.withdraw("base")
    with pytest.raises(InputError, match="there is no query"):
        handle.withdraw("q")
    assert flow.names == ("base",)
    assert handle.manifest == before == Checkpoint(str(tmp_path / "ck")).latest()
    stage.arrive(handle)
    handle.stop()
    with pytest.raises(InputError, match="not running"):
        flow.submit(SELECT, name="q")
    again = stage.flow(("base", SELECT))
    stage.start(again, "available").await_termination()
    assert again.names == ("base",)
    assert stage.found("base") == stage.expected()
    assert not (tmp_path / "no").exists()


def test_a_typo_is_found_before_the_start_and_the_checkpoint_takes_the_corrected_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    stage = Stage(spark, tmp_path)
    stage.arrive()
    typo = SELECT.replace("R.v AS rv", "roundd(R.v, 0) AS rv")
    with pytest.raises(QueryError, match="there is no function 'roundd'") as refused:
        stage.start(stage.flow(("q", typo)))
    assert "did you mean 'round'?" in str(refused.value)
    assert refused.value.line == 1  # type: ignore[attr-defined]
    assert not (tmp_path / "ck").exists()
    assert not (tmp_path / "out").exists()
    dies = stage.flow(("q", SELECT + " AND R.v < 0"))
    with armed("after-results:0:raise"), pytest.raises(RunError):
        stage.start(dies, "available").await_termination()
    stage.start(stage.flow(("q", SELECT)), "available").await_termination()
    assert stage.found("q") == stage.expected() != Counter()
    assert "'q' is another one now" in stage.flow(("q", SELECT + " AND R.v < 0")).check(tmp_path / "ck")[0]


@pytest.mark.slow
def test_what_was_withdrawn_stays_withdrawn_when_its_name_is_used_again(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    flow = stage.flow(("base", SELECT), ("q", SELECT))
    handle = stage.start(flow)
    stage.arrive(handle)
    handle.withdraw("q")
    flow.submit(SELECT + " AND R.v <= S.v", name="q", to="parquet", path=stage.out("other"))
    stage.arrive(handle)
    handle.stop()
    for declared in ([("base", SELECT), ("q", SELECT)], [("base", SELECT)]):
        stage.arrive()
        stage.start(stage.flow(*declared), "available").await_termination()
    own = stage.flow(("base", SELECT))
    own.query(SELECT + " AND R.v <= S.v", name="q").to("parquet", path=stage.out("other"))
    handle = stage.start(own)
    handle.withdraw("q")
    stage.arrive(handle)
    handle.stop()
    last = stage.flow(("base", SELECT), ("q", SELECT))
    stage.start(last, "available").await_termination()
    assert last.names == ("base",)
    assert stage.found("q") == stage.expected(0, 1)
    assert stage.found("other") == stage.expected(1, 4, lambda r, s: r["v"] <= s["v"]) != Counter()
    assert stage.found("base") == stage.expected()


@pytest.mark.parametrize("point", CHANGES)
def test_a_change_that_fails_half_way_says_so_and_the_flow_restarts(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    stage = Stage(spark, tmp_path)
    flow = stage.flow(("base", SELECT))
    handle = stage.start(flow)
    stage.arrive(handle)
    with armed(f"{point}:1:raise"):
        if point == "change-prepared":
            with pytest.raises(Exception, match="injected fault"):
                flow.submit(SELECT, name="q", to="parquet", path=stage.out("q"))
            assert handle.is_active
            handle.stop()
        else:
            done = "was done" if point == "change-committed" else "was not done"
            with pytest.raises(RunError, match=f"submitting a query {done}, and the flow has stopped"):
                flow.submit(SELECT, name="q", to="parquet", path=stage.out("q"))
            assert not handle.is_active
            with pytest.raises(RunError, match="the flow has stopped"):
                handle.await_termination()
            with pytest.raises(InputError, match="has failed"):
                handle.withdraw("base")
    stage.arrive()
    stage.start(stage.flow(("base", SELECT)), "available").await_termination()
    assert stage.found("base") == stage.expected()
    assert stage.found("q") == (stage.expected(1) if point == "change-committed" else Counter())


def test_queries_submitted_by_two_threads_at_once_all_run(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    flow = stage.flow(("base", SELECT))
    handle = stage.start(flow)
    stage.arrive(handle)
    told: list[str] = []

    def submit(i: int) -> None:
        try:
            flow.submit(SELECT, name=["q0", "q1", "q1"][i], to="parquet", path=stage.out(f"q{i}"))
        except InputError as error:
            told.append(str(error))

    threads = [Thread(target=submit, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 1
    assert "already a query named 'q1'" in told[0]
    assert set(flow.names) == {"base", "q0", "q1"}
    stage.arrive(handle)
    handle.stop()
    assert stage.found("q0") == stage.found("q1") + stage.found("q2") == stage.expected(1) != Counter()


def test_every_late_output_gets_the_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path)
    for _ in range(3):
        stage.arrive()
    flow = stage.flow(("a", SELECT), ("b", SELECT), ("c", SELECT))
    for name, options in (("a", {}), ("b", {"compression": "gzip"})):
        flow._queries[name].late("parquet", path=stage.out(f"late_{name}"), **options)
    flow._queries["c"].late("parquet", path=f"{stage.out('x')}/../late_a")  # the same folder
    late_rows = {"k": [1, 2], "v": [-1, -2], "name": ["x", "y"], "ts": [0, 0]}
    early = pq.read_table(sorted(stage.paths["R"].glob("*.parquet"))[-1])
    late = pa.table({name: pa.array(late_rows[name], early.schema.field(name).type) for name in early.column_names})
    stage.arrive()
    newest = sorted(stage.paths["R"].glob("*.parquet"))[-1]
    pq.write_table(pa.concat_tables([pq.read_table(newest), late]), newest)
    handle = stage.start(flow, "available")
    handle.await_termination()

    def rows(name: str) -> Counter[Any]:
        frame = spark.read.parquet(stage.out(f"late_{name}"))
        return Counter((row.stream, row.v) for row in frame.select("stream", "v").collect())

    assert rows("a") == rows("b")
    assert rows("a")[("R", -1)] == 1
    assert sum(rows("a").values()) == handle.totals["R.late"] + handle.totals["S.late"]
    files = list((tmp_path / "out" / "late_b").rglob("part-*.parquet"))
    assert {pq.ParquetFile(f).metadata.row_group(0).column(0).compression for f in files} == {"GZIP"}
    flow = stage.flow(("a", SELECT))
    flow._queries["a"].late("parquet", path=stage.out("late_a"))
    flow.query(SELECT, name="b").to("noop").late("json", path=stage.out("late_a"))
    with pytest.raises(SinkError, match="the same sink path"):
        flow.start(tmp_path / "other")


def test_a_result_folder_that_was_deleted_is_said(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    stage = Stage(spark, tmp_path)
    stage.arrive()
    handle = stage.start(stage.flow(("q", SELECT), ("moved", SELECT)), "available")
    handle.await_termination()
    assert handle.warnings == ()
    shutil.rmtree(stage.out("q"))
    stage.arrive()
    flow = stage.flow(("q", SELECT))
    flow.query(SELECT, name="moved").to("parquet", path=stage.out("elsewhere"))
    handle = stage.start(flow, "available")
    handle.await_termination()
    assert len(handle.warnings) == 1
    assert stage.out("q") in handle.warnings[0]
    assert "until epoch 0" in handle.warnings[0]
    assert stage.found("q") == stage.expected() - stage.expected(0, 1)


BLOCKS = "SELECT COUNT(*) AS n FROM R [RANGE 30 SECONDS], S [RANGE 30 SECONDS] WHERE R.k = S.k AND R.v < S.v"


def pushed(stage: Stage, handle: Handle) -> None:
    for _ in range(3):
        stage.arrive(handle)
    assert held_groups(handle.manifest)


def test_what_pushed_state_owes_is_delivered_when_queries_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, memory="1 KB")
    flow = stage.flow(("stays", SELECT), ("goes", SELECT))
    handle = stage.start(flow)
    pushed(stage, handle)
    assert stage.found("goes") != stage.expected()
    handle.withdraw("goes")
    assert stage.found("goes") == stage.found("stays") == stage.expected() != Counter()
    stage.arrive(handle)
    flow.submit(BLOCKS, name="blocks", to="noop")
    assert stage.found("stays") == stage.expected()
    assert not held_groups(handle.manifest)
    stage.arrive(handle)
    handle.withdraw("blocks")
    stage.arrive(handle)
    handle.stop()
    again = stage.flow(("stays", SELECT), ("goes", SELECT), memory="1 GB", slots=3)
    stage.start(again, "available").await_termination()
    assert stage.found("stays") == stage.expected()
    assert stage.found("goes") == stage.expected(0, 3)


def test_what_was_pushed_is_made_up_for_before_anything_is_shed(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, memory="1 KB")
    handle = stage.start(stage.flow(("q", SELECT)))
    pushed(stage, handle)
    handle.stop()
    assert stage.found("q") != stage.expected()
    shedding = stage.flow(("q", SELECT), memory="1 KB", on_overflow="shed")
    handle = stage.start(shedding)
    assert stage.found("q") == stage.expected()
    handle.stop()


def test_the_results_of_suspended_joins_come_before_their_query_goes_and_at_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    kind = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    ddl = "k long, j long, v long, ts timestamp"
    text = (
        "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 90 SECONDS], B [RANGE 90 SECONDS], C [RANGE 90 SECONDS] "
        "WHERE A.k = B.k AND B.j = C.j"
    )
    for name in "ABC":
        (tmp_path / name).mkdir()

    def put(epoch: int, **values: int) -> None:
        for name in "ABC":
            own = [values[name]] if name in values else []
            n = len(own)
            table = pa.table([[1] * n, [1] * n, own, [epoch * 10 * SECOND] * n], schema=kind)
            beside = tmp_path / f"{name}.tmp"
            pq.write_table(table, beside)
            beside.rename(tmp_path / name / f"{epoch:03d}.parquet")

    flow = Flow(spark, slots=2, groups=4, silence="5 seconds")
    for name in "ABC":
        flow.files(name, tmp_path / name, schema=ddl, time="ts", delay="0 seconds", options={"maxFilesPerTrigger": "1"})
    goes = flow.query(text, name="goes").to("memory")
    stays = flow.query(text, name="stays").to("memory")
    handle = flow.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)
    put(0, C=1)
    until(lambda: handle.manifest.epoch == 0, handle)
    put(1, A=2)
    until(lambda: handle.manifest.epoch == 1, handle)
    put(2, A=3, B=4)
    until(lambda: handle.manifest.epoch == 2, handle)

    def found(query: Any) -> Counter[Any]:
        table = query.sink.table()
        return Counter() if table is None else Counter(tuple(row.values()) for row in table.to_pylist())

    put(3, B=5)
    until(lambda: handle.manifest.epoch == 3, handle)
    owed = Counter({(2, 4, 1): 1, (3, 4, 1): 1, (2, 5, 1): 1, (3, 5, 1): 1})
    if found(goes) == owed:
        pytest.fail("nothing was suspended: the test does not test")
    handle.withdraw("goes")
    assert found(goes) == owed
    put(4, A=6)
    until(lambda: handle.manifest.epoch == 4, handle)
    put(5, B=7)
    until(lambda: handle.manifest.epoch == 5, handle)
    handle.stop()
    again = Flow(spark, slots=2, groups=4, silence="5 seconds")
    for name in "ABC":
        again.files(name, tmp_path / name, schema=ddl, time="ts", options={"maxFilesPerTrigger": "1"})
    again.query(text, name="goes").to("memory")
    rest = again.query(text, name="stays").to("memory")
    again.start(tmp_path / "ck", warm=False).await_termination()
    everything = Counter((a, b, 1) for a in (2, 3, 6) for b in (4, 5, 7))
    assert found(stays) + found(rest) == everything


@pytest.mark.slow
def test_no_action_of_a_change_needs_a_deep_stack_in_java(tmp_path: Path) -> None:
    """With the least stack that Java takes, less than a quarter of its default, no change overflows it."""
    home = Path(pyspark.__file__).parent
    arguments = {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -Xss228k pyspark-shell", "SPARK_LOCAL_IP": "127.0.0.1"}
    child = [sys.executable, str(Path(__file__).with_name("changing_child.py")), str(tmp_path), "4"]
    environment = {**os.environ, "SPARK_HOME": str(home), **arguments}
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr[-3000:]
    assert "StackOverflowError" not in done.stderr
