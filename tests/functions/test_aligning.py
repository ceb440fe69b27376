"""Several streams aligned by time or by count: the same rows however the streams are cut into epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.functions import PCC, Distribute, Merge, StreamFunction, WindowBatch, WindowSpec, stream_type
from braidstream.functions.aligning import Alignment, aligned
from braidstream.functions.local import LocalRun
from braidstream.functions.nodes import Setup
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.windowing import FormerState
from tests.scale import examples

NAMES = ("left", "right")
FIELDS = (("left_v",), ("right_v",))
TIMES = st.lists(st.integers(0, 12), max_size=25)
CUTS = st.lists(st.integers(0, 26), min_size=3, max_size=3)


def batch(stream: int, times: list[int], values: list[float]) -> WindowBatch:
    ts = np.array(times, dtype=np.int64)
    return WindowBatch(ts, ts, {FIELDS[stream][0]: np.array(values, dtype=np.float64)})


def expected(by: str, streams: list[list[tuple[int, float]]], delay: int) -> list[tuple[int, float, float]]:
    """Of whole streams, each in the order of its times."""
    ordered = [sorted(own, key=lambda row: row[0]) for own in streams]
    if by == "count":
        released = [[r for r in own if r[0] <= max(t for t, _ in own) - delay] for own in ordered if own]
        return [(a[0], a[1], b[1]) for a, b in zip(*released, strict=False)] if len(released) == 2 else []
    if not all(ordered):
        return []
    limit = min(max(t for t, _ in own) for own in ordered) - delay
    found = []
    for time in range(limit):
        both = [[v for t, v in own if t == time] for own in ordered]
        found += [(time, a, b) for a, b in zip(*both, strict=False)]
    return found


@settings(deadline=None, max_examples=examples(150))
@given(TIMES, TIMES, st.sampled_from(["time", "count"]), st.tuples(CUTS, CUTS))
def test_any_cut_into_epochs_aligns_the_same_rows(
    left: list[int], right: list[int], by: str, cuts: tuple[list[int], list[int]]
) -> None:
    """Times within a delay that nothing exceeds; values say which row it is."""
    streams = [[(t, float(i)) for i, t in enumerate(times)] for times in (left, right)]
    alignment = Alignment(by, NAMES, FIELDS, (12, 12))
    formers: tuple[FormerState, ...] = (FormerState(), FormerState())
    found: list[tuple[int, float, float]] = []
    shifted = [[*own, (40, -1.0)] for own in streams]  # a last row, which moves the watermark past all others
    for epoch in range(4):
        new = []
        for stream, own in enumerate(shifted):
            begin, end = ([0, *sorted(cuts[stream]), len(own)][at] for at in (epoch, epoch + 1))
            part = own[begin:end]
            new.append(batch(stream, [t for t, _ in part], [v for _, v in part]))
        made = aligned(alignment, formers, new)
        formers = made.formers
        assert made.late == 0
        for rows in made.rows:
            found += list(zip(rows.ts.tolist(), rows["left_v"].tolist(), rows["right_v"].tolist(), strict=True))
    assert found == expected(by, shifted, 12)


def test_windows_of_aligned_rows_go_through_any_plan_and_a_restart() -> None:
    """Rows of `right` at even times only; a window holds two aligned rows."""

    def product(windows: WindowBatch) -> dict[str, Any]:
        return {"sum": (windows["left_v"] * windows["right_v"]).sum(axis=1)}

    function = StreamFunction("product", product, stream_type("R", sum="float"))
    plan = FunctionPlan.of(PCC(2, Distribute("round_robin"), function, Merge()))
    setup = Setup("left_right", WindowSpec(2), 0, plan, Alignment("time", NAMES, FIELDS, (0, 0)))
    run, found, left_out = LocalRun(setup), [], 0
    for begin in range(0, 40, 5):
        times = list(range(begin, begin + 5))
        even = [t for t in times if t % 2 == 0]
        results = run.epoch([batch(1, even, [float(t) for t in even]), batch(0, times, [1.0] * 5)])
        found += [value for one in results for value in one["sum"].tolist()]
        left_out += run.total("null_rows")
        run = LocalRun(setup, run.state)
    assert found == [float(a + a + 2) for a in range(0, 36, 4)]
    assert left_out == 19


@pytest.mark.parametrize("by", ["time", "count"])
def test_vectors_of_different_lengths_are_refused(by: str) -> None:
    vectors = [WindowBatch(np.zeros(1, np.int64), np.zeros(1, np.int64), {"left_v": np.zeros((1, n))}) for n in (2, 3)]
    with pytest.raises(Exception, match="differ in length"):
        aligned(Alignment(by, NAMES, FIELDS, (0, 0)), (FormerState(), FormerState()), vectors)
