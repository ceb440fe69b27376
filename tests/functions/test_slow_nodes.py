"""S-Merge's time-out in wall time: who is given up, when, and that a replay gives up the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError, JobError
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
    node_tasks,
    stream_type,
)
from braidstream.functions.chains import Chain
from braidstream.functions.jobfile import read_tables
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.slow_nodes import REST, slow_children, slow_nodes
from braidstream.functions.templates import FunctionPlan
from braidstream.lab.testing.function_harness import FunctionHarness
from braidstream.model.faults import armed
from tests.functions.test_function_epochs import POINTS, SCHEMA
from tests.scale import examples

TOTAL = StreamFunction("total", lambda w: {"total": w["v"].sum(axis=1)}, stream_type("total", total="float"))


class Clock:
    """Stands still, until a function says that it has taken a while."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(name="clock")
def _clock() -> Iterator[Clock]:
    """The clock of the nodes of this process."""
    clock, run_node = Clock(), node_tasks.run_node
    with mock.patch.object(node_tasks, "run_node", lambda *given: run_node(*given, clock=clock)):
        yield clock


def by_mark(windows: WindowBatch, n: int) -> Any:
    """Windows of 1000 and more to the last node, the others to the first."""
    return np.where(windows["v"][:, 0] >= 1000, n - 1, 0)


def test_windows_of_a_node_that_took_too_long_are_given_up_from_the_next_epoch_on_and_it_is_tried_again(
    tmp_path: Path, clock: Clock
) -> None:
    def answer(windows: WindowBatch) -> dict[str, Any]:
        if windows["v"][0, 0] >= 1000:
            clock.now += 5.0
        return {"total": windows["v"][:, 0]}

    function = StreamFunction("total", answer, TOTAL.gives)
    template = PCC(3, Distribute(by_mark), function, Merge(patience="4 seconds"))
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(1), template)
    expected = []
    for epoch in range(REST + 3):
        values = np.array([0, 1000, 1001, 2]) + 10 * epoch
        times = pa.array(np.arange(4) + 4 * epoch).cast(pa.timestamp("us", "UTC"))
        harness.epoch(pa.table([times, values.astype(float)], schema=SCHEMA))
        is_given_up = 1 <= epoch <= REST or epoch == REST + 2  # tried in epoch REST + 1
        expected += [value for value in values.tolist() if not (is_given_up and value >= 1000)]
        progress = harness.runner.progress[-1]
        assert progress.given_up == (2 if is_given_up else 0)
        assert progress.slow == {"1-2": REST if epoch < REST else 2 * REST + 1} or epoch == REST
        assert len(progress.warnings) == (epoch in (0, REST + 1))
    assert [row["total"] for row in harness.results()] == expected
    assert harness.totals["f.given_up"] == 2 * (REST + 1)
    assert harness.manifest.notes.slow == {"1-2": 2 * REST + 1}
    assert harness.restart(Central(function))
    assert not harness.manifest.notes.slow


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_a_replay_gives_up_the_same_windows_whatever_the_clock_says_then(data: st.DataObject) -> None:
    """A node is slow, or not, in each attempt at an epoch. What the manifest remembers is that of the last one."""
    clock, is_slow = Clock(), [False]

    def answer(windows: WindowBatch) -> dict[str, Any]:
        if is_slow[0] and windows["v"][0, 0] >= 1000:
            clock.now += 5.0
        return {"total": windows["v"][:, 0]}

    template: Any = StreamFunction("total", answer, TOTAL.gives)
    if data.draw(st.booleans()):  # as a tree, in which whole branches are given up
        template = PCC(2, Distribute("hash"), template, Merge())
    template = PCC(2, Distribute(by_mark), template, Merge(patience="4 seconds"))
    n = data.draw(st.integers(2, REST + 6))
    crashes = data.draw(st.dictionaries(st.integers(0, n - 1), st.sampled_from(POINTS), max_size=4))
    marks = data.draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=n, max_size=n))
    slow = data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=n, max_size=n))
    run_node, expected, given_up, until, stamp = node_tasks.run_node, [], 0, -1, 0
    patched = mock.patch.object(node_tasks, "run_node", lambda *given: run_node(*given, clock=clock))
    with tempfile.TemporaryDirectory() as folder, patched:
        harness = FunctionHarness(folder, SCHEMA, "ts", WindowSpec(1), template)
        for epoch, own in enumerate(marks):
            values = [stamp + at + 1000 * is_marked for at, is_marked in enumerate(own)]
            times = pa.array(np.arange(stamp, stamp + len(own))).cast(pa.timestamp("us", "UTC"))
            rows = pa.table([times, np.array(values, dtype=float)], schema=SCHEMA)
            stamp += len(own)
            is_slow[0] = slow[epoch][0]
            if epoch in crashes:
                with armed(f"{crashes[epoch]}:{epoch}:raise"), pytest.raises(Exception, match="injected"):
                    harness.epoch(rows)
                harness.restart()
            if harness.manifest.epoch < epoch:
                is_slow[0] = slow[epoch][crashes.get(epoch) is not None]
                harness.epoch(rows)
            is_resting = until >= epoch
            expected += [value for value, is_marked in zip(values, own, strict=True) if not (is_marked and is_resting)]
            given_up += sum(own) * is_resting
            if is_slow[0] and not is_resting and any(own) and not all(own):
                until = epoch + REST
        assert [row["total"] for row in harness.results()] == expected
        assert harness.totals["f.given_up"] == given_up


def report(stage: int, node: int, seconds: float, windows: int = 1) -> NodeReport:
    return NodeReport(stage, "compute", node, windows=windows, work_s=seconds)


def slow_in(template: Any, *nodes: NodeReport, slow: frozenset[tuple[int, int]] = frozenset()) -> list[str]:
    chain = Chain((Setup("s", WindowSpec(1), 0, FunctionPlan.of(template), slow=slow),))
    return sorted(slow_nodes(chain, {}, nodes, 7))


@pytest.mark.parametrize(
    ("seconds", "windows", "expected"),
    [
        ((1.0, 1.5, 3.1), (1, 1, 1), ["1-2"]),
        ((9.0, 9.5, 9.1), (1, 1, 1), []),
        ((1.0, 5.0, 9.0), (1, 1, 1), ["1-1", "1-2"]),
        ((0.0, 9.0, 9.5), (0, 1, 1), []),
        ((0.0, 9.0, 0.0), (0, 1, 0), []),
    ],
    ids=[
        "one is slower than the fastest by more than the patience",
        "all take long, and none is waited for",
        "all but the fastest may be slow",
        "a node without windows is no measure",
        "a node that is alone is waited for",
    ],
)
def test_who_is_slow(seconds: tuple[float, ...], windows: tuple[int, ...], expected: list[str]) -> None:
    template = PCC(3, Distribute(), TOTAL, Merge(patience="2 seconds"))
    nodes = [report(1, i, s, w) for i, (s, w) in enumerate(zip(seconds, windows, strict=True))]
    assert slow_in(template, *nodes) == expected
    assert slow_in(PCC(3, Distribute(), TOTAL, Merge()), *nodes) == []


def test_a_branch_takes_as_long_as_the_slowest_of_each_of_its_stages() -> None:
    inner = PCC(2, Split(lambda windows, n, k: {}), TOTAL, Join(lambda parts: {}))
    tree = PCC(2, Distribute(), inner, Merge(patience="2 seconds"))
    nodes = [report(1, 0, 0.5), report(1, 1, 1.0), report(3, 0, 0.5), report(3, 1, 1.0)]
    compute = [report(2, i, s) for i, s in enumerate((0.1, 0.2, 0.1, 1.1))]
    assert slow_in(tree, *nodes, *compute) == []
    compute[3].work_s = 1.3
    assert slow_in(tree, *nodes, *compute) == ["1-1"]
    assert slow_children({"1-1": 9, "2-3": 9}, 0, FunctionPlan.of(tree), 9) == {(0, 1)}
    assert slow_children({"1-1": 9}, 0, FunctionPlan.of(tree), 10) == frozenset()


def test_of_the_nodes_that_get_windows_the_fastest_is_never_slow() -> None:
    """Who is slow already is no measure for the others: else all might be."""
    template = PCC(2, Distribute(), TOTAL, Merge(patience="2 seconds"))
    later = report(1, 1, 0.0)  # it answers windows of before
    assert slow_in(template, report(1, 0, 9.0), later, slow=frozenset({(0, 1)})) == []


def test_a_patience_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="the patience is '0 seconds'"):
        Merge(patience="0 seconds")
    entry = {"stream": "s", "function": "fft3", "patience": "1 second", "sink": {"format": "noop"}}
    with pytest.raises(JobError, match=r"\[functions.f\]: patience is '1 second', and no plan distributes windows"):
        read_tables({"functions": {"f": entry}}, "job.toml")
    _, made = read_tables({"functions": {"f": {**entry, "also": ["WD2"]}}}, "job.toml")
    assert FunctionPlan.of(made["f"].others()[0]).levels[0].combine == Merge("0 seconds", "1 second")
