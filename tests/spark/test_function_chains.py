"""Functions that feed one another in one flow, on local Spark: what each gives over all that the one before gave."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.errors import CheckpointMismatch, InputError, RunError, SinkError
from braidstream.functions import (
    PCC,
    Central,
    Distribute,
    Join,
    Merge,
    Split,
    StreamFunction,
    WindowBatch,
    WindowSpec,
    declare_type,
    stream_function,
    stream_type,
)  # fmt: skip
from braidstream.functions.jobfile import read_tables
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.model.faults import armed
from braidstream.spark.flow import Flow
from braidstream.spark.functions import attach_job_function
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.rolling_back import plan_rollback, roll_back
from tests.functions.test_chains import faulty, halves, whole
from tests.scale import examples
from tests.spark.test_functions import ONE_FILE, numbers_files, results, total, wd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CHANGES = StreamFunction(
    "changes", lambda w: {"v": np.diff(w["total"], axis=1)}, stream_type("changes", v="vector of float")
)
PEAK = StreamFunction("peak", lambda w: {"v": w["v"].max(axis=(1, 2))}, stream_type("peak", v="float"))
PARTS = StreamFunction("part", lambda w: {"v": w["v"].sum(axis=1)}, stream_type("part", v="float"))

PEAK_OF_ONE = StreamFunction("peaks", lambda w: {"v": w["total"].max(axis=1)}, stream_type("peaks", v="float"))


def numbers(spark: SparkSession, folder: Path) -> Flow:
    return Flow(spark).files("n", folder / "n", schema="ts timestamp, v double", time="ts", options=ONE_FILE)


def test_three_functions_in_one_flow_whatever_fails_and_when(spark: SparkSession, tmp_path: Path) -> None:
    """Sums of 3, their changes in windows of 4, the peak of 2 rows of changes; a crash in each epoch but the last.

    The plans of each start are others. Every result of each function once, in order.
    """
    values = np.random.default_rng(5).integers(-50, 50, 120).astype(float)
    cuts = np.split(np.arange(120), [20, 45, 50, 80, 95])
    numbers_files(tmp_path / "n", [(at * 7, values[at]) for at in cuts])

    def run(*plans: Any) -> Any:
        sums = numbers(spark, tmp_path).windows(3, 2).apply(plans[0], name="sums")
        sums.to("parquet", path=str(tmp_path / "sums"))
        peaks = (
            sums.windows(4, 2).apply(plans[1]).windows(2, 1).apply(plans[2]).to("parquet", path=str(tmp_path / "out"))
        )
        flow = peaks.source.flow
        assert "results of sums" in flow.explain()
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        return handle

    starts = [
        ("epoch-start:0", wd(2, total), Central(CHANGES), wd(3, PEAK)),
        ("after-join:1", Central(total), wd(2, wd(2, CHANGES)), Central(PEAK)),
        ("after-results:2", wd(2, total), wd(2, CHANGES), wd(2, PEAK)),
        ("before-manifest:3", Central(total), Central(CHANGES), Central(PEAK)),
        ("after-manifest:4", wd(2, total), Central(CHANGES), Central(PEAK)),
    ]
    for fault, *plans in starts:
        with armed(f"{fault}:raise"), pytest.raises(RunError, match="injected fault"):
            run(*plans)
    handle = run(wd(3, total), Central(CHANGES), wd(2, PEAK))
    assert handle.plan == "WD3 then Central then WD2"
    sums = sliding_window_view(values, 3)[::2].sum(axis=1)
    changes = np.diff(sliding_window_view(sums, 4)[::2], axis=1)
    peaks = sliding_window_view(changes, 2, axis=0).max(axis=(1, 2))
    found = results(tmp_path / "out")
    assert found.column("v").to_pylist() == peaks.tolist()
    assert found.column("seq").to_pylist() == list(range(len(peaks)))
    assert found.column("ts").cast(pa.int64()).to_pylist() == [k * 2 * 2 * 7 for k in range(len(peaks))]
    assert results(tmp_path / "sums").column("total").to_pylist() == sums.tolist()
    counted = {name: handle.totals[f"{name}.results"] for name in ("sums", "changes", "peak")}
    assert counted == {"sums": len(sums), "changes": len(changes), "peak": len(peaks)}
    assert (handle.totals["n.rows"], handle.totals["changes.windows"]) == (120, len(changes))


PROGRAM = """
import sys
from pathlib import Path
from braidstream import Flow, local_session
from braidstream.functions import stream_function
from braidstream.functions.training import window_distribute

@stream_function(gives={"v": "float"})
def rising(windows):
    return {"v": (windows["v"] * range(1, windows["v"].shape[1] + 1)).sum(axis=1)}

folder = Path(sys.argv[1])
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
flow = Flow(local_session("local[2]", settings={**settings, "spark.local.dir": str(folder / "local")}))
flow.files("n", folder / "n", schema="ts timestamp, v double", time="ts", options={"maxFilesPerTrigger": "1"})
one = flow.windows(5, 3).apply(window_distribute(rising, 2), name="one").to("parquet", path=str(folder / "one"))
one.windows(4, 3).apply(window_distribute(rising, 2), name="two").to("parquet", path=str(folder / "two"))
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
def test_a_killed_process_loses_and_repeats_no_result_of_any_function(tmp_path: Path, fault: str) -> None:
    values = np.random.default_rng(2).integers(-9, 9, 200).astype(float)
    numbers_files(tmp_path / "n", [(at, values[at]) for at in np.split(np.arange(200), [77, 131])])

    def run(**environment: str) -> int:
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False).returncode

    assert run(BRAIDSTREAM_FAULT=fault) != 0
    assert run() == 0
    for (size, step), name in (((5, 3), "one"), ((4, 3), "two")):
        values = sliding_window_view(values, size)[::step] @ np.arange(1.0, size + 1)
        found = results(tmp_path / name)
        assert found.column("seq").to_pylist() == list(range(len(values)))
        assert found.column("v").to_pylist() == values.tolist()


@pytest.mark.slow
@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_chains_on_spark_give_what_each_function_gives_alone(spark: SparkSession, data: st.DataObject) -> None:
    """Windows that are lost or come later in any of the functions; plans of any form."""
    n = data.draw(st.integers(40, 120))
    cuts = sorted(set(data.draw(st.lists(st.integers(1, n - 1), max_size=3))))
    some, links = st.frozensets(st.integers(0, 5), max_size=2), []
    for _ in range(data.draw(st.integers(2, 3))):
        template: Any = faulty(data.draw(some), data.draw(some))
        for degree in data.draw(st.lists(st.integers(1, 3), max_size=2)):
            template = PCC(degree, Distribute("hash"), template, Merge("30 us"))
        if data.draw(st.booleans()):
            template = PCC(2, Split(halves), PARTS, Join(whole))
        links.append((WindowSpec(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))), template))
    alone, expected = [LocalRun(Setup("n", spec, 0, FunctionPlan.of(one))) for spec, one in links], []
    epochs = np.split(np.arange(n), cuts)
    for times in epochs:
        rows = [WindowBatch(np.zeros(len(times), np.int64), times, {"v": times.astype(float)})]
        for one in alone:
            rows = one.epoch(rows)
        expected += [(int(s), float(x)) for batch in rows for s, x in zip(batch.seq, batch["v"], strict=True)]
    with tempfile.TemporaryDirectory() as name:
        numbers_files(Path(name) / "n", [(times, times) for times in epochs])
        flow = numbers(spark, Path(name))
        query = flow.windows(links[0][0].size, links[0][0].step).apply(links[0][1], name="f0")
        for number, (spec, one) in enumerate(links[1:], 1):
            query = query.windows(spec.size, spec.step).apply(one, name=f"f{number}")
        query.to("memory")
        flow.start(Path(name) / "ck", warm=False).await_termination()
        table = query.table()
    found = [] if table is None else [(row["seq"], row["v"]) for row in table.to_pylist()]
    assert found == expected


def test_each_function_of_a_job_tries_its_own_plans(spark: SparkSession, tmp_path: Path) -> None:
    numbers_files(tmp_path / "n", [(np.arange(a, a + 12), np.arange(a, a + 12)) for a in range(0, 72, 12)])
    tables: dict[str, Any] = {
        "sums": {"stream": "n", "function": "total", "size": 2, "also": ["WD2"], "switch_every": 1},
        "sums_of_sums": {
            "stream": "sums", "function": "total_of_totals", "size": 3, "degrees": [2], "also": ["Central"],
            "switch_every": 2, "sink": {"format": "parquet", "path": str(tmp_path / "out")},
        },
    }  # fmt: skip
    stream_function(gives={"v": "float"}, name="total_of_totals")(lambda w: {"v": w["total"].sum(axis=1)})
    _, functions = read_tables({"functions": tables}, "job.toml")
    flow = numbers(spark, tmp_path)
    for name, entry in functions.items():
        attach_job_function(flow, name, entry)
    assert "results of sums" in flow.explain()
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    seen = [entry.plan for entry in handle.progress]
    assert seen[:3] == ["Central then WD2", "WD2 then WD2", f"{seen[2].split()[0]} then Central"]
    assert results(tmp_path / "out").column("v").to_pylist() == [float(sum(range(a, a + 6))) for a in range(0, 72, 6)]


def test_what_does_not_fit_between_functions_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    numbers_files(tmp_path / "n", [(np.arange(8), np.arange(8))])
    declare_type("CHAIN_TOTAL", total="float")
    declare_type("CHAIN_OTHER", v="float")
    named = StreamFunction("named", lambda w: {"v": w["v"], "word": w["v"]}, stream_type("G", v="float", word="text"))
    takes = StreamFunction("takes", PEAK.function, PEAK.gives, stream_type("T", total="vector of int"))
    query = numbers(spark, tmp_path).windows(2).apply(total)
    for refused, wrong, fix in [
        (lambda: query.windows(0), "size of windows is 0", "size=1024"),
        (lambda: query.windows(2).apply(takes), "field 'total' of function 'total' is vector[2] of float", "same kind"),
        (lambda: query.windows(2).apply(total), "already a function named 'total'", 'name="..."'),
        (lambda: query.windows(2, of="CHAIN_OTHER"), "function 'total' has none", ""),
        (
            lambda: numbers(spark, tmp_path).windows().apply(named).windows(2),
            "formed of 'word', which is text",
            "leave",
        ),
        (
            lambda: query.source.flow.windows(2).apply(PEAK),
            "'peak' is not alone in its flow",
            "apply(...).windows(...)",
        ),
        (lambda: query.source.flow.windows(2, stream="total", beside=["n"]), "beside the results of function", "leave"),
        (lambda: query.source.flow.windows(2, stream="totl"), "no stream 'totl'", ""),
        (lambda: query.source.flow.start(tmp_path / "ck"), "'total' has no sink", ".to("),
    ]:
        with pytest.raises((InputError, SinkError)) as told:
            refused()
        assert wrong in told.value.wrong
        assert told.value.expected
        assert fix in told.value.fix
    last = query.windows(2, of="CHAIN_TOTAL").apply(CHANGES)
    with pytest.raises(InputError, match="takes the results of 'total', which has one after it"):
        query.windows(2).apply(PEAK)
    with pytest.raises(SinkError, match="'changes' has no sink"):
        query.source.flow.start(tmp_path / "ck")
    query.to("parquet", path=str(tmp_path / "out"))
    last.to("parquet", path=str(tmp_path / "out"))
    with pytest.raises(SinkError, match="have the same sink path"):
        query.source.flow.start(tmp_path / "ck")
    assert not (tmp_path / "ck").exists()
    query.to("noop")
    query.source.flow.start(tmp_path / "ck", warm=False).await_termination()
    shorter = numbers(spark, tmp_path)
    shorter.windows(2).apply(total).to("noop")
    with pytest.raises(CheckpointMismatch, match="query 'changes'"):
        shorter.start(tmp_path / "ck", warm=False)


def test_results_that_a_lost_attempt_left_in_a_folder_are_gone_when_they_go_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of the first epoch and of a later one: what is in all folders together is each result once."""
    numbers_files(tmp_path / "n", [(at, at.astype(float)) for at in np.split(np.arange(40), 4)])

    def run(out: str) -> None:
        first = numbers(spark, tmp_path).windows(2).apply(total, name="sums").to("parquet", path=tmp_path / f"s{out}")
        peaks = first.windows(1).apply(PEAK_OF_ONE).to("parquet", path=str(tmp_path / f"p{out}"))
        peaks.source.flow.start(tmp_path / "ck", warm=False).await_termination()

    for out, fault in (("a", "after-results:0"), ("b", "after-results:2")):
        with armed(f"{fault}:raise"), pytest.raises(RunError, match="injected fault"):
            run(out)
    run("c")
    for kind in "sp":
        found = [results(folder).column("seq").to_pylist() for folder in sorted(tmp_path.glob(f"{kind}[bc]"))]
        assert found == [list(range(10)), list(range(10, 20))]
        assert not list((tmp_path / f"{kind}a").glob("part-*"))


def test_a_rollback_takes_results_of_functions_back_from_their_folders(spark: SparkSession, tmp_path: Path) -> None:
    numbers_files(tmp_path / "n", [(at, at.astype(float)) for at in np.split(np.arange(40), 4)])

    def run() -> None:
        sums = numbers(spark, tmp_path).windows(2).apply(total, name="sums").to("parquet", path=tmp_path / "out")
        sums.source.flow.start(tmp_path / "ck", warm=False).await_termination()

    run()
    before = results(tmp_path / "out")
    store = Checkpoint(str(tmp_path / "ck"))
    store.take()
    identity = store.identity()
    assert identity is not None
    removed = roll_back(store, plan_rollback(store, 1), identity.flow)
    store.release()
    assert (len(removed), results(tmp_path / "out").num_rows) == (2, 10)
    run()
    assert results(tmp_path / "out") == before
