"""Epochs of a function in one process: what a plan gives, each window once and in order, whatever fails and when."""

from __future__ import annotations

import errno
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from braidstream.errors import RunError
from braidstream.functions import (
    PCC,
    Answers,
    Central,
    Distribute,
    Merge,
    StreamFunction,
    WindowBatch,
    WindowSpec,
    stream_type,
)
from braidstream.functions.local import LocalRun
from braidstream.functions.node_reports import decoded, done_of
from braidstream.functions.node_tasks import first_stage, later_stage
from braidstream.functions.nodes import Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.lab.testing.function_harness import FunctionHarness
from braidstream.model.faults import armed
from braidstream.state.files import Files
from tests.scale import examples

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
POINTS = (
    "epoch-start", "task-before-segment", "task-after-segment", "after-join", "after-results", "before-manifest",
    "after-manifest",
)  # fmt: skip


def faulty(lost: frozenset[int] = frozenset(), delays: frozenset[int] = frozenset()) -> StreamFunction:
    def answer(windows: WindowBatch) -> Answers:
        waits = np.isin(windows.seq, list(delays)) & (windows.offered() < 1)
        return Answers({"total": windows["v"].sum(axis=1)}, np.isin(windows.seq, list(lost)), waits)

    return StreamFunction("faulty", answer, stream_type("faulty", total="float"))


def table(times: Any) -> pa.Table:
    stamps = pa.array(np.asarray(times, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))
    return pa.table([stamps, np.asarray(times, dtype=np.float64)], schema=SCHEMA)


def alone(template: Any, spec: WindowSpec, epochs: Sequence[Any]) -> list[tuple[int, float]]:
    """What the plan gives without checkpoint, sink and failures."""
    local = LocalRun(Setup("s", spec, 0, FunctionPlan.of(template)))
    made = [
        batch
        for times in epochs
        for batch in local.epoch([WindowBatch(np.zeros(len(times), np.int64), times, {"v": times.astype(float)})])
    ]
    return [(int(s), float(x)) for batch in made for s, x in zip(batch.seq, batch["total"], strict=True)]


def found(harness: FunctionHarness) -> list[tuple[int, float]]:
    return [(row["seq"], row["total"]) for row in harness.results()]


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_a_crash_at_any_point_of_any_epoch_changes_nothing(data: st.DataObject) -> None:
    n = data.draw(st.integers(20, 120))
    spec = WindowSpec(data.draw(st.integers(2, 8)), data.draw(st.integers(1, 9)))
    epochs = np.split(np.arange(n), sorted(set(data.draw(st.lists(st.integers(1, n - 1), max_size=4)))))
    some = st.frozensets(st.integers(0, 8), max_size=3)
    template: Any = faulty(data.draw(some), data.draw(some))
    for degree in data.draw(st.lists(st.integers(1, 3), max_size=2)):
        by = data.draw(st.sampled_from(["round_robin", "hash"]))
        template = PCC(degree, Distribute(by), template, Merge("30 us"))
    crashes = data.draw(st.dictionaries(st.integers(0, len(epochs) - 1), st.sampled_from(POINTS)))
    with tempfile.TemporaryDirectory() as folder:
        harness = FunctionHarness(folder, SCHEMA, "ts", spec, template)
        for number, times in enumerate(epochs):
            if number in crashes:
                with armed(f"{crashes[number]}:{number}:raise"), pytest.raises(Exception, match="injected"):
                    harness.epoch(table(times))
                harness.restart()
            if harness.manifest.epoch < number:
                harness.epoch(table(times))
        assert found(harness) == alone(template, spec, epochs)
        assert harness.totals["s.rows"] == n
        assert harness.totals["f.results"] == len(found(harness))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB, where this process may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only the superuser may mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_stops_the_run_and_the_checkpoint_restarts(tmp_path: Path, small_disk: Path) -> None:
    """Windows of 40 000 samples, 30 000 an epoch: what waits to be a window soon needs more than the disk has."""
    spec, template = WindowSpec(40_000, 40_000), Central(faulty())
    epochs = [np.arange(a, a + 30_000) for a in range(0, 180_000, 30_000)]
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", spec, template, root=str(small_disk / "ck"))
    told = until_it_fails(harness, epochs)
    assert "cannot be written: No space left on device" in told.wrong
    assert told.expected == "room on the disk"
    assert "start again with the same checkpoint" in told.fix
    assert harness.runner.running.failure is told
    done = harness.manifest.epoch + 1
    assert 1 <= done < len(epochs)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    harness.restart()
    assert harness.manifest.epoch == done - 1
    for times in epochs[done:]:
        harness.epoch(table(times))
    assert found(harness) == alone(template, spec, epochs)


def until_it_fails(harness: FunctionHarness, epochs: Sequence[Any]) -> RunError:
    try:
        for times in epochs:
            harness.epoch(table(times))
    except RunError as error:
        return error
    raise AssertionError("the disk never was full")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("method", ["create", "add"])
@pytest.mark.parametrize("degree", [1, 3])
def test_whoever_meets_it_node_or_driver(tmp_path: Path, number: int, method: str, degree: int) -> None:
    """A folder that cannot be written, for samples or results (by a node) or for a manifest (by the driver)."""
    spec, template = WindowSpec(4, 3), PCC(degree, Distribute(), faulty(), Merge())
    epochs = [np.arange(10), np.arange(10, 30)]
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", spec, template)
    harness.epoch(table(epochs[0]))

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, "refused")

    with mock.patch.object(Files, method, refuse), pytest.raises(RunError, match="ck cannot be written"):
        harness.epoch(table(epochs[1]))
    harness.restart()
    harness.epoch(table(epochs[1]))
    assert found(harness) == alone(template, spec, epochs)


def test_a_full_disk_in_a_task_is_reported_and_not_tried_again(tmp_path: Path) -> None:
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(4, 3), Central(faulty()))
    task = harness.runner.run.task(harness.manifest, 0)

    def is_full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "ck/segments/a.arrow")

    with mock.patch.object(Files, "create", is_full):
        said = [blob.as_py() for made in first_stage(task)(iter(table(np.arange(10)).to_batches())) for blob in made[2]]
    with pytest.raises(RunError, match=r"ck/segments/a\.arrow cannot be written: No space left on device"):
        done_of(map(decoded, said))


def test_what_runs_in_a_worker_can_be_sent_there(tmp_path: Path) -> None:
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(4, 3), PCC(2, Distribute(), faulty(), Merge()))
    task = harness.runner.run.task(harness.manifest, 0)
    for stage in (first_stage(task), later_stage(task, 1), later_stage(task, 2)):
        assert callable(cloudpickle.loads(cloudpickle.dumps(stage)))


def test_an_error_that_may_pass_is_left_to_the_engines_retries(tmp_path: Path) -> None:
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(4, 3), Central(faulty()))

    def reset(*_: Any, **__: Any) -> Any:
        raise ConnectionResetError(errno.ECONNRESET, "for the moment")

    with mock.patch.object(Files, "create", reset), pytest.raises(ConnectionResetError):
        harness.epoch(table(np.arange(10)))
