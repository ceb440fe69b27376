"""Functions on local Spark: the same results as in one process, exactly once, in order; errors name the place."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.errors import CheckpointMismatch, InputError, RunError, SinkError
from braidstream.functions import (
    PCC,
    Answers,
    Central,
    Distribute,
    FunctionFailed,
    Join,
    Merge,
    Plan,
    Split,
    StreamFunction,
    WindowBatch,
    WindowSpec,
    declare_type,
    stream_function,
    stream_type,
)  # fmt: skip
from braidstream.functions.fft import fft3_combine, fft3_part
from braidstream.functions.jobfile import read_tables
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import Setup
from braidstream.functions.training import Load, Monitor, Phases
from braidstream.lab.workloads import append_files
from braidstream.model.faults import armed
from braidstream.spark.flow import Flow
from braidstream.spark.functions import attach_job_function
from braidstream.state.checkpoint import Checkpoint
from tests.scale import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COMPLEX = pa.struct([("re", pa.float64()), ("im", pa.float64())])
RADIO = "ts timestamp, " + ", ".join(f"{c} struct<re: double, im: double>" for c in "xyz")
ONE_FILE = {"maxFilesPerTrigger": "1"}


def signal(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {name: rng.normal(size=(n, 2)) @ [1, 1j] for name in "xyz"}


def complexes(values: Any) -> pa.Array:
    return pa.StructArray.from_arrays(
        [pa.array(values.real.copy()), pa.array(values.imag.copy())], fields=list(COMPLEX)
    )


def stamps(us: Any) -> pa.Array:
    return pa.array(np.asarray(us, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))


def radio_files(folder: Path, samples: dict[str, Any], cuts: Iterable[int]) -> None:
    n = len(samples["x"])
    edges = [0, *cuts, n]
    append_files(
        folder,
        (
            pa.table({"ts": stamps(np.arange(a, b) * 10), **{c: complexes(v[a:b]) for c, v in samples.items()}})
            for a, b in itertools.pairwise(edges)
        ),
    )


def numbers_files(folder: Path, epochs: Iterable[tuple[Any, Any]]) -> None:
    append_files(folder, (pa.table({"ts": stamps(t), "v": np.asarray(v, dtype=np.float64)}) for t, v in epochs))


def back(column: pa.ChunkedArray) -> Any:
    re, im = column.combine_chunks().flatten().flatten()
    return (re.to_numpy() + 1j * im.to_numpy()).reshape(len(column), -1)


def results(folder: Path) -> pa.Table:
    """The files of a sink in the order of their names: the order of the stream."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])


def ws(n: int, inner: Any = "fft3") -> PCC:
    return PCC(n, Split(fft3_part), inner, Join(fft3_combine))


def wd(n: int, inner: Any = "fft3") -> PCC:
    return PCC(n, Distribute("round_robin"), inner, Merge())


@stream_function(gives={"total": "float"})
def total(windows: WindowBatch) -> dict[str, Any]:
    return {"total": windows["v"].sum(axis=1)}


@pytest.mark.parametrize(
    ("template", "point"),
    [
        (Central("fft3"), "after-results"),
        (wd(2), "before-manifest"),
        (ws(2, ws(2)), "after-join"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_window_once_in_order_also_after_a_crash(
    spark: SparkSession, tmp_path: Path, template: Any, point: str
) -> None:
    samples = signal(3000)
    radio_files(tmp_path / "radio", samples, [700, 1500])

    def run() -> Any:
        flow = Flow(spark)
        flow.files("radio", tmp_path / "radio", schema=RADIO, time="ts", options=ONE_FILE)
        flow.windows(size=256, step=100).apply(template).to("parquet", path=str(tmp_path / "out"))
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return handle

    with armed(f"{point}:1:raise"), pytest.raises(RunError, match="injected fault"):
        run()
    handle = run()
    found = results(tmp_path / "out")
    expected = sliding_window_view(samples["y"], 256)[::100]
    assert found.column("seq").to_pylist() == list(range(len(expected)))
    assert found.column("ts").cast(pa.int64()).to_pylist() == [k * 1000 for k in range(len(expected))]
    whole = np.fft.fft(expected)
    assert np.abs(back(found.column("y")) - whole).max() <= 1e-9 * np.abs(whole).max()
    assert handle.totals["fft3.results"] == len(expected)
    assert handle.totals["radio.rows"] == 3000


def test_a_start_whose_checkpoint_cannot_be_made_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sink is claimed once the checkpoint is there, and not for a flow that never was."""
    radio_files(tmp_path / "radio", signal(600), [])

    def run() -> None:
        flow = Flow(spark)
        flow.files("radio", tmp_path / "radio", schema=RADIO, time="ts")
        flow.windows(size=256, step=100).apply("fft3").to("parquet", path=str(tmp_path / "out"))
        flow.start(tmp_path / "ck", warm=False).await_termination()

    def is_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "ck"))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "create", is_full)
        with pytest.raises(InputError, match="No space left on device") as refused:
            run()
    assert refused.value.exit_code == 2
    assert not (tmp_path / "out" / "_braidstream.json").exists()
    run()
    assert results(tmp_path / "out").num_rows > 0


def test_rows_from_spark_out_of_order_within_the_delay(spark: SparkSession, tmp_path: Path) -> None:
    """|3 0 1 2|7 5 4 6|2 9 8 20|: with a delay of 4 us the watermark before the last epoch is 3, so 2 is late."""
    times = [[3, 0, 1, 2], [7, 5, 4, 6], [2, 9, 8, 20]]
    numbers_files(tmp_path / "n", [(t, t) for t in times])
    frame = (
        spark.readStream.schema("ts timestamp, v double").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "n"))
    )
    flow = Flow(spark).stream("n", frame, time="ts", delay="4 microseconds")
    query = flow.windows(2, 2).apply(PCC(2, Distribute("hash"), total, Merge())).to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    table = query.table()
    assert table is not None
    assert table.column("total").to_pylist() == [1.0, 5.0, 9.0, 13.0, 17.0]
    assert handle.totals["n.late"] == 1
    assert handle.watermark == 16


def faulty(lost: set[int], delays: dict[int, int]) -> StreamFunction:
    def answer(windows: WindowBatch) -> Answers:
        waits = np.array([delays.get(int(s), 0) for s in windows.seq])
        return Answers({"total": windows["v"].sum(axis=1)}, np.isin(windows.seq, list(lost)), waits > windows.offered())

    return StreamFunction("faulty", answer, stream_type("faulty", total="float"))


def test_lost_and_delayed_windows_keep_the_order_across_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Windows of 2 samples, 20 us apart, 5 an epoch. Window 1 is lost, 6 comes an epoch later; time-out 150 us."""
    epochs = [(np.arange(a, a + 10) * 10, np.arange(a, a + 10)) for a in range(0, 40, 10)]
    template = PCC(2, Distribute(), faulty({1}, {6: 1}), Merge("150 microseconds"))

    def run(plan: Any = template) -> Any:
        flow = Flow(spark)
        flow.files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        flow.windows(2, 2).apply(plan, name="sums").to("parquet", path=str(tmp_path / "out"))
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return handle

    numbers_files(tmp_path / "n", epochs[:1])
    handle = run()
    assert (handle.progress[-1].results, handle.progress[-1].waiting) == (1, 4)
    with pytest.raises(CheckpointMismatch, match="windows that wait in the plan WD2"):
        run(Central(faulty({1}, {6: 1})))
    numbers_files(tmp_path / "n", epochs[1:])
    handle = run()
    assert results(tmp_path / "out").column("seq").to_pylist() == [0, *range(2, 20)]
    assert handle.totals["sums.given_up"] == 1
    assert handle.totals["sums.lost"] == 1
    assert handle.totals["sums.too_late"] == 0
    plan = run(PCC(4, Distribute(), faulty({1}, {6: 1}), Merge())).plan
    assert plan == "WD4"


def test_an_exception_names_function_window_and_stream_and_the_checkpoint_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers_files(tmp_path / "n", [(np.arange(a, a + 8), np.arange(a, a + 8)) for a in (0, 8, 16)])

    def run(function: Any) -> Any:
        flow = Flow(spark)
        flow.files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        flow.windows(4).apply(PCC(2, Distribute(), function, Merge()), name="sums").to(
            "parquet", path=str(tmp_path / "out")
        )
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return handle

    def careless(windows: WindowBatch) -> Any:
        if (windows["v"] == 13).any():
            raise ValueError("thirteen")
        return total(windows)

    def of_form(form: Any) -> StreamFunction:
        return StreamFunction("total", lambda windows: {"total": form(windows)}, total.gives)

    with pytest.raises(FunctionFailed) as failed:
        run(StreamFunction("total", careless, total.gives))
    assert (failed.value.function, failed.value.stream, failed.value.ts) == ("total", "n", 12)
    assert "1970-01-01 00:00:00.000012 UTC" in str(failed.value)
    assert "ValueError: thirteen" in str(failed.value)
    assert results(tmp_path / "out").column("seq").to_pylist() == [0, 1]
    with pytest.raises(FunctionFailed, match=r"float64 of shape \(1, 4\)\n.*float64 of shape \(1,\)"):
        run(of_form(lambda windows: windows["v"]))
    with pytest.raises(FunctionFailed, match=r"complex128 of shape \(1,\)\n.*float: float64"):
        run(of_form(lambda windows: windows["v"].sum(axis=1) * 1j))
    run(total)
    found = results(tmp_path / "out")
    assert found.column("seq").to_pylist() == list(range(6))
    assert found.column("total").to_pylist() == [float(sum(range(a, a + 4))) for a in range(0, 24, 4)]


def test_what_does_not_fit_is_refused_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "n"
    folder.mkdir()
    declare_type("TEST_PAIR", ts="timestamp", v="float", w="float")
    declare_type("TEST_WORD", ts="timestamp", v="text")

    def flow() -> Flow:
        return Flow(spark).files("n", folder, schema="ts timestamp, v double, word string", time="ts")

    with pytest.raises(InputError, match="no column 'w' of its type 'TEST_PAIR'"):
        flow().windows(4, of="TEST_PAIR")
    with pytest.raises(InputError, match="'v' of stream 'n' is double, its type 'TEST_WORD' says text"):
        flow().windows(of="TEST_WORD")
    with pytest.raises(InputError, match="windows cannot be formed of 'word'"):
        flow().windows(4)
    with pytest.raises(InputError, match=r"'fft3' takes the type 'RADIOSIGNAL' with a field 'x'"):
        flow().windows().apply("fft3")
    with pytest.raises(InputError, match="there is no type 'TEST_PAIRS'"):
        flow().windows(of="TEST_PAIRS")
    v = stream_type("V", ts="timestamp", v="float")
    started = flow()
    started.windows(4, of=v).apply(total)
    with pytest.raises(SinkError, match="has no sink"):
        started.start(tmp_path / "ck")
    with pytest.raises(InputError, match="alone in its flow"):
        started.windows(4, of=v).apply(total)
    with pytest.raises(InputError, match="the flow has a function"):
        started.query("SELECT n.v FROM n [RANGE 1 SECONDS]")
    assert not (tmp_path / "ck").exists()


def test_a_job_table_is_the_same_as_the_calls(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "radio").mkdir()
    table = {"stream": "radio", "function": "fft3", "size": 8, "degrees": [2], "sink": {"format": "noop"}}
    _, functions = read_tables({"functions": {"spectra": table}}, "job.toml")
    one, other = (Flow(spark).files("radio", tmp_path / "radio", schema=RADIO, time="ts") for _ in range(2))
    attach_job_function(one, "spectra", functions["spectra"])
    other.windows(8).apply(wd(2), name="spectra").to("noop")
    assert one.explain() == other.explain()


def test_a_running_flow_switches_to_a_plan_that_is_better(spark: SparkSession, tmp_path: Path) -> None:
    numbers_files(tmp_path / "n", [(np.arange(a, a + 40), np.arange(a, a + 40)) for a in range(0, 160, 40)])

    def slow(windows: WindowBatch) -> dict[str, Any]:
        time.sleep(0.002 * len(windows))
        return {"total": windows["v"].sum(axis=1)}

    function = StreamFunction("slow", slow, total.gives)
    fast = 1e-6
    trained = {
        "Central": Phases((Load("compute", 1, fast, fast, 0.0),)),
        "WD2": Phases(
            (
                Load("partition", 1, fast, fast, 8.0),
                Load("compute", 2, fast / 2, fast, 8.0),
                Load("combine", 1, fast, fast, 0.0),
            )
        ),
    }
    flow = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
    monitor = Monitor(trained, nodes=2, model="pipeline", every=2)
    query = flow.windows(4).apply(Central(function), also=[wd(2, function)], monitor=monitor).to("memory")
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    assert [p.plan for p in handle.progress] == ["Central", "Central", "WD2", "WD2"]
    table = query.table()
    assert table is not None
    assert table.column("total").to_pylist() == [float(sum(range(a, a + 4))) for a in range(0, 160, 4)]


PROGRAM = """
import sys
from pathlib import Path
from braidstream import Flow, local_session
from braidstream.functions import PCC, Join, Split
from braidstream.functions.fft import fft3_combine, fft3_part

folder = Path(sys.argv[1])
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
flow = Flow(local_session("local[2]", settings={**settings, "spark.local.dir": str(folder / "local")}))
flow.files("radio", folder / "radio", schema=sys.argv[2], time="ts", options={"maxFilesPerTrigger": "1"})
windows = flow.windows(size=64, step=48)
windows.apply(PCC(2, Split(fft3_part), "fft3", Join(fft3_combine))).to("parquet", path=str(folder / "out"))
flow.start(folder / "ck", warm=False).await_termination()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        "after-results:1:kill",
        *(pytest.param(f"{p}:1:kill", marks=pytest.mark.acceptance) for p in ("after-manifest", "task-after-segment")),
    ],
)
def test_a_killed_process_loses_and_repeats_nothing(tmp_path: Path, fault: str) -> None:
    samples = signal(1000)
    radio_files(tmp_path / "radio", samples, [300, 301])

    def run(**environment: str) -> int:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path), RADIO]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False).returncode

    assert run(BRAIDSTREAM_FAULT=fault) != 0
    assert run() == 0
    found = results(tmp_path / "out")
    expected = np.fft.fft(sliding_window_view(samples["z"], 64)[::48])
    assert found.column("seq").to_pylist() == list(range(len(expected)))
    assert np.abs(back(found.column("z")) - expected).max() <= 1e-9 * np.abs(expected).max()


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_plans_on_spark_give_what_they_give_in_one_process(spark: SparkSession, data: st.DataObject) -> None:
    n = data.draw(st.integers(40, 120))
    spec = WindowSpec(data.draw(st.integers(2, 8)), data.draw(st.integers(1, 9)))
    cuts = sorted(set(data.draw(st.lists(st.integers(1, n - 1), max_size=3))))
    degrees = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    lost = set(data.draw(st.lists(st.integers(0, 5), max_size=2)))
    delays = dict.fromkeys(data.draw(st.lists(st.integers(0, 5), max_size=2)), 1)
    template: Any = faulty(lost, delays)
    for degree in degrees:
        template = PCC(
            degree, Distribute(data.draw(st.sampled_from(["round_robin", "hash"]))), template, Merge("30 us")
        )
    times, values = np.split(np.arange(n), cuts), np.split(np.arange(float(n)), cuts)
    local = LocalRun(Setup("n", spec, 0, Plan.of(template)))
    expected = []
    for t, v in zip(times, values, strict=True):
        made = local.epoch([WindowBatch(np.zeros(len(t), np.int64), t, {"v": v})])
        expected += [(int(s), float(x)) for batch in made for s, x in zip(batch.seq, batch["total"], strict=True)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers_files(folder / "n", zip(times, values, strict=True))
        flow = Flow(spark).files("n", folder / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        query = flow.windows(spec.size, spec.step).apply(template).to("memory")
        flow.start(folder / "ck", warm=False).await_termination()
        table = query.table()
    found = [] if table is None else [(row["seq"], row["total"]) for row in table.to_pylist()]
    assert found == expected
    assert [seq for seq, _ in found] == sorted({seq for seq, _ in found})


def test_what_never_committed_may_still_change(spark: SparkSession, tmp_path: Path) -> None:
    """As in a flow of joins: a first epoch that failed binds nobody to its windows; one that is done does."""
    numbers_files(tmp_path / "n", [(np.arange(8), np.arange(8))])

    def run(size: int) -> None:
        flow = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts")
        flow.windows(size).apply(total, name="sums").to("parquet", path=str(tmp_path / "out"))
        flow.start(tmp_path / "ck", warm=False).await_termination()

    with armed("after-results:0:raise"), pytest.raises(RunError, match="injected fault"):
        run(4)
    run(2)
    assert results(tmp_path / "out").column("total").to_pylist() == [1.0, 5.0, 9.0, 13.0]
    with pytest.raises(CheckpointMismatch):
        run(4)


def test_what_is_refused_at_a_start_has_changed_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Neither another plan, nor a sink that is another flow's, in the stream's folder or in the checkpoint."""
    numbers_files(tmp_path / "n", [(np.arange(8), np.arange(8))])

    def started(out: Path, plan: Any = total) -> Any:
        flow = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts")
        flow.windows(4).apply(plan, name="sums").to("parquet", path=str(out))
        return flow

    def kept() -> dict[str, bytes]:
        files = (path for folder in ("ck", "n", "out", "other") for path in (tmp_path / folder).rglob("*"))
        return {str(path): path.read_bytes() for path in files if path.is_file() and "lease" not in path.parts}

    started(tmp_path / "out").start(tmp_path / "ck", warm=False).await_termination()
    started(tmp_path / "other").start(tmp_path / "ck2", warm=False).await_termination()
    before, other = kept(), wd(2, total)
    for out, wrong in [
        (tmp_path / "other", "belongs to another flow"),
        (tmp_path / "n", "is the folder of stream 'n'"),
        (tmp_path / "ck" / "out", "is inside the checkpoint"),
    ]:
        with pytest.raises(SinkError, match=wrong):
            started(out, other).check(tmp_path / "ck")
        with pytest.raises(SinkError, match=wrong):
            started(out, other).start(tmp_path / "ck", warm=False)
        assert kept() == before
    started(tmp_path / "new", other).check(tmp_path / "ck")
    assert kept() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_node_that_sleeps_is_given_up_and_the_stream_goes_on_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """Windows of 1000 and more go to node 1, which takes 3 seconds for them; a crash in an epoch that gives them up."""
    times, marked = np.arange(24).reshape(4, 6), np.array([0, 1, 0, 0, 1, 0])
    numbers_files(tmp_path / "n", [(at, at + 1000 * marked) for at in times])

    def answer(windows: WindowBatch) -> dict[str, Any]:
        if windows["v"][0, 0] >= 1000:
            time.sleep(3)
        return {"total": windows["v"][:, 0]}

    function = StreamFunction("sleepy", answer, stream_type("sleepy", total="float"))
    by = Distribute(lambda windows, n: (windows["v"][:, 0] >= 1000).astype(int))

    def run() -> Any:
        flow = Flow(spark).files("n", tmp_path / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)
        query = flow.windows(1).apply(PCC(2, by, function, Merge(patience="1 second")))
        query.to("parquet", path=str(tmp_path / "out"))
        handle = flow.start(tmp_path / "ck")
        handle.await_termination()
        return handle

    with armed("after-results:2:raise"), pytest.raises(RunError, match="injected fault"):
        run()
    handle = run()
    expected = [float(t + 1000 * m) for at in times for t, m in zip(at, marked, strict=True) if not (m and at[0])]
    assert results(tmp_path / "out").column("total").to_pylist() == expected
    assert handle.totals["sleepy.given_up"] == 6
    assert [(one.given_up, list(one.slow)) for one in handle.progress] == [(2, ["1-1"])] * 2
