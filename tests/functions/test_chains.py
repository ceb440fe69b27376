"""Functions that feed one another in one process: what their composition gives, whatever fails and when."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.functions import (
    PCC,
    Answers,
    Distribute,
    Join,
    Merge,
    Split,
    StreamFunction,
    WindowBatch,
    WindowSpec,
    stream_type,
)
from braidstream.functions.chains import Chain
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.lab.testing.function_harness import FunctionHarness
from braidstream.model.faults import armed
from tests.scale import examples

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
POINTS = (
    "epoch-start", "task-before-segment", "task-after-segment", "after-join", "after-results", "before-manifest",
    "after-manifest",
)  # fmt: skip
SIZES = st.builds(WindowSpec, st.integers(1, 5), st.integers(1, 6))
NONE: frozenset[int] = frozenset()


def weighted(windows: Any) -> Any:
    """The order of a window matters."""
    return windows @ np.arange(1.0, windows.shape[1] + 1)


def faulty(lost: frozenset[int] = NONE, delays: frozenset[int] = NONE, scalar: bool = False) -> StreamFunction:
    """Weighted sums; some windows have none, some only when they are asked for again."""

    def answer(windows: WindowBatch) -> Answers:
        waits = np.isin(windows.seq, list(delays)) & (windows.offered() < 1)
        values = windows["v"] * 2 if scalar else weighted(windows["v"])
        return Answers({"v": values}, np.isin(windows.seq, list(lost)), waits)

    return StreamFunction("faulty", answer, stream_type("faulty", v="float"))


def halves(windows: WindowBatch, n: int, k: int) -> dict[str, Any]:
    """Part k of windows, and what its elements weigh."""
    values = windows["v"] * np.arange(1.0, windows["v"].shape[1] + 1)
    return {"v": np.array_split(values, n, axis=1)[k]}


PART = StreamFunction("part", lambda windows: {"v": windows["v"].sum(axis=1)}, stream_type("part", v="float"))


def whole(parts: Sequence[WindowBatch]) -> dict[str, Any]:
    return {"v": np.sum([part["v"] for part in parts], axis=0)}


def spread(data: st.DataObject, function: StreamFunction, most: int = 2) -> Any:
    made: Any = function
    for degree in data.draw(st.lists(st.integers(1, 3), max_size=most)):
        by = data.draw(st.sampled_from(["round_robin", "hash"]))
        made = PCC(degree, Distribute(by), made, Merge("30 us"))
    return made


def quiet(data: st.DataObject) -> Any:
    """A template whose windows never wait: weighted sums by any strategy."""
    if data.draw(st.booleans()):
        return PCC(data.draw(st.integers(1, 3)), Split(halves), PART, Join(whole))
    return spread(data, faulty())


def table(times: Any, values: Any) -> pa.Table:
    stamps = pa.array(np.asarray(times, dtype=np.int64)).cast(pa.timestamp("us", "UTC"))
    return pa.table([stamps, np.asarray(values, dtype=np.float64)], schema=SCHEMA)


def found(harness: FunctionHarness, function: int = -1) -> list[tuple[int, int, float]]:
    return [(row["seq"], stamp_us(row["ts"]), row["v"]) for row in harness.results(function)]


def stamp_us(stamp: Any) -> int:
    return int(pa.scalar(stamp, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py())


def run_all(harness: FunctionHarness, epochs: Sequence[pa.Table], crashes: dict[int, str]) -> None:
    for number, rows in enumerate(epochs):
        if number in crashes:
            with armed(f"{crashes[number]}:{number}:raise"), pytest.raises(Exception, match="injected"):
                harness.epoch(rows)
            harness.restart()
        if harness.manifest.epoch < number:
            harness.epoch(rows)


def over_all(times: Any, values: Any, specs: Sequence[WindowSpec]) -> list[list[tuple[int, int, float]]]:
    """What each of some weighted sums gives, computed over all data at once with NumPy."""
    made = []
    for spec in specs:
        size, step = spec.size or 1, spec.stride
        fits = len(values) >= size
        values = weighted(sliding_window_view(values, size)[::step]) if fits else np.empty(0)
        times = times[: len(times) - size + 1 : step] if fits else times[:0]
        made.append(list(zip(range(len(values)), times.tolist(), values.tolist(), strict=True)))
    return made


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_chain_gives_what_its_functions_give_over_all_data_at_once(data: st.DataObject) -> None:
    """Any plans, any cut into epochs, a crash at any point of any of them, other plans at restarts."""
    n = data.draw(st.integers(1, 100))
    times = np.cumsum(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    values = np.random.default_rng(n).integers(-9, 9, n).astype(float)
    specs = data.draw(st.lists(SIZES, min_size=2, max_size=4))
    cuts = sorted(set(data.draw(st.lists(st.integers(1, n), max_size=4))))
    epochs = [table(t, v) for t, v in zip(np.split(times, cuts), np.split(values, cuts), strict=True) if len(t)]
    crashes = data.draw(st.dictionaries(st.integers(0, len(epochs) - 1), st.sampled_from(POINTS)))
    with tempfile.TemporaryDirectory() as folder:
        first, *then = [(spec, quiet(data)) for spec in specs]
        harness = FunctionHarness(folder, SCHEMA, "ts", *first, then=then)
        half = len(epochs) // 2
        run_all(harness, epochs[:half], {at: point for at, point in crashes.items() if at < half})
        assert harness.restart(*(quiet(data) for _ in specs))
        run_all(harness, epochs, {at: point for at, point in crashes.items() if at >= half})
        for function, expected in enumerate(over_all(times, values, specs)):
            assert found(harness, function) == expected
            name = "f" if function == 0 else f"f{function}"
            assert harness.totals[f"{name}.results"] == len(expected)
        assert harness.totals["s.rows"] == n


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_windows_that_wait_in_any_of_the_functions_outlive_a_crash(data: st.DataObject) -> None:
    """Some are lost, some come an epoch later: as if each function ran for itself, over what the one before gave."""
    n = data.draw(st.integers(20, 120))
    cuts = sorted(set(data.draw(st.lists(st.integers(1, n - 1), max_size=5))))
    epochs = np.split(np.arange(n), cuts)
    some = st.frozensets(st.integers(0, 8), max_size=3)
    links = []
    for _ in range(data.draw(st.integers(2, 3))):
        spec = data.draw(st.one_of(SIZES, st.just(WindowSpec()) if links else SIZES))
        links.append((spec, spread(data, faulty(data.draw(some), data.draw(some), spec.size is None))))
    crashes = data.draw(st.dictionaries(st.integers(0, len(epochs) - 1), st.sampled_from(POINTS)))
    alone = [LocalRun(Setup("s", spec, 0, FunctionPlan.of(template))) for spec, template in links]
    expected = []
    for times in epochs:
        rows = [WindowBatch(np.zeros(len(times), np.int64), times, {"v": times.astype(float)})]
        for one in alone:
            rows = one.epoch(rows)
        expected += [row for b in rows for row in zip(b.seq.tolist(), b.ts.tolist(), b["v"].tolist(), strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        harness = FunctionHarness(folder, SCHEMA, "ts", *links[0], then=links[1:])
        run_all(harness, [table(times, times) for times in epochs], crashes)
        assert found(harness) == expected


def test_a_plan_gives_way_to_another_when_no_function_holds_windows(tmp_path: Path) -> None:
    """The second function answers its window 0 an epoch later; meanwhile neither plan may change."""
    then = [(WindowSpec(2), faulty(delays=frozenset({0})))]
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(2), faulty(), then=then)
    other = PCC(2, Distribute(), faulty(), Merge())
    harness.epoch(table([0, 1, 2, 3], [0, 1, 2, 3]))
    waits = [name for name, note in harness.manifest.notes.nodes.items() if note.holds_windows]
    assert waits == ["1:0-0"]
    assert not harness.restart(other, faulty())
    harness.epoch(table([4, 5], [4, 5]))
    assert harness.restart(other, other)
    assert harness.manifest.notes.plan == "WD2 then WD2"
    assert set(harness.manifest.notes.nodes) == {"0-0", "1:0-0"}
    harness.epoch(table([6, 7], [6, 7]))
    firsts = [0.0 + 2 * 1, 2.0 + 2 * 3, 4.0 + 2 * 5, 6.0 + 2 * 7]
    assert [value for _, _, value in found(harness)] == [firsts[0] + 2 * firsts[1], firsts[2] + 2 * firsts[3]]


def test_the_first_stage_of_a_function_runs_where_the_last_of_the_one_before_did() -> None:
    wide = PCC(3, Distribute(), faulty(), Merge())
    plans = [FunctionPlan.of(template) for template in (wide, faulty(), faulty(), wide)]
    chain = Chain(tuple(Setup("s", WindowSpec(2), 0, plan) for plan in plans))
    assert chain.strategy == "WD3 then Central then Central then WD3"
    assert [(stage.places, stage.n_nodes) for stage in chain.stages] == [
        (((0, 0),), 1),
        (((0, 1),), 3),
        (((0, 2), (1, 0), (2, 0), (3, 0)), 1),
        (((3, 1),), 3),
        (((3, 2),), 1),
    ]


def test_results_of_which_only_some_fields_are_wanted(tmp_path: Path) -> None:
    """A function that changes what it is given does not get far: its arrays are views that nobody may write."""

    def both(windows: WindowBatch) -> dict[str, Any]:
        total = windows["v"].sum(axis=1)
        return {"v": total, "word": np.where(total > 5, "large", "small")}

    def rude(windows: WindowBatch) -> dict[str, Any]:
        assert set(windows.fields) == {"v"}
        windows["v"][:] = 0
        return {"v": windows["v"]}

    first = StreamFunction("both", both, stream_type("both", v="float", word="text"))
    last = StreamFunction("rude", rude, stream_type("rude", v="float"))
    harness = FunctionHarness(tmp_path, SCHEMA, "ts", WindowSpec(2), first, then=[(WindowSpec(), last)], fields=("v",))
    with pytest.raises(Exception, match=r"function 'rude' failed on the window at .* of stream 'f'.*read-only"):
        harness.epoch(table([0, 1, 2, 3], [0, 1, 2, 3]))
