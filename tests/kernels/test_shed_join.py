"""Tiny budgets with shedding: the output is a part of what the oracle says, no result twice, whatever happens.

The engine in this process. Between epochs groups move, split and merge; processes die at every point of an epoch.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.overflow import Overflow
from braidstream.control.shedding import PLAN_MARGIN, STRATEGIES
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.sampling import is_sampled
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.faults import POINTS
from braidstream.state.filters import filter_of, sift
from braidstream.state.segments import open_segment
from tests.backends import expected, multiset, tables
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import (
    MANY,
    SLOTS,
    harness_of,
    leftovers,
    often_compacted,
    on_one_key,
    with_a_fault,
)
from tests.scale import examples

GROUPS = st.integers(1, 16)
BUDGETS = st.builds(
    Overflow,
    st.sampled_from([1, 500, 1500, 4000, 10_000, 1 << 30]),
    st.just("shed"),
    shed_by=st.sampled_from(STRATEGIES),
)
CASES = two_streams(max_epochs=8) | many_streams(min_streams=3, max_streams=4, max_rows=6).filter(on_one_key)


def is_part(found: Counter[Any], whole: Counter[Any]) -> bool:
    return all(whole[row] >= n for row, n in found.items())


@settings(MANY, max_examples=examples(60))
@given(CASES, SLOTS, GROUPS, BUDGETS, st.none() | st.integers(0, 999))
def test_what_is_found_is_a_part_of_the_batch_join(
    case: Case, slots: int, groups: int, overflow: Overflow, seed: int | None
) -> None:
    controller = None if seed is None else restless(seed)
    with harness_of(case, slots, groups, overflow=overflow, controller=controller) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        found, whole = multiset(harness.results("q")), multiset(expected(case))
        assert is_part(found, whole)
        if overflow.memory_bytes == 1 << 30:
            assert found == whole
        assert leftovers(harness) == []


@settings(MANY, max_examples=examples(60))
@given(CASES, SLOTS, GROUPS, BUDGETS, st.data())
def test_crashes_and_restarts_change_nothing(
    case: Case, slots: int, groups: int, overflow: Overflow, data: st.DataObject
) -> None:
    """A replayed epoch gives what the lost one would have given: the same as a run without faults."""
    with harness_of(case, slots, groups, overflow=overflow) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        undisturbed = multiset(harness.results("q"))
    with harness_of(case, slots, groups, overflow=overflow) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="failures")):
                if harness.manifest.epoch < i:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                    harness.restart()
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == undisturbed


@pytest.mark.parametrize("by", STRATEGIES)
def test_what_is_shed_is_not_found_and_said_so(tmp_path: Path, by: str) -> None:
    """Not a property of the engine: budgets that nothing exceeds would prove nothing."""
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = {"q": [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]}
    harness = Harness(tmp_path, {"R": schema, "S": schema}, inputs, overflow=Overflow(20_000, "shed", shed_by=by))
    n = 2000

    def rows(offset: int) -> pa.Table:
        return pa.table([list(range(n)), list(range(offset, offset + n))], schema=schema)

    harness.epoch({"R": rows(0)})
    harness.epoch({"S": rows(n)})
    found, last = len(harness.results("q")), harness.runner.progress[-1]
    assert 0 < found < n / 2
    told = last.completeness["q"]
    assert told.low <= found / n <= told.high
    assert told.low < 0.9
    assert told.high < 0.9 or by in ("unproductive", "sample", "planned")  # few results in the sample: honestly wide
    assert harness.runner.progress[0].shed_bytes > 0
    assert all(entry.active_bytes <= 20_000 * 1.05 for entry in harness.runner.progress)


def test_without_overflow_the_answer_is_complete_and_said_so(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = {"q": [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]}
    harness = Harness(tmp_path, {"R": schema, "S": schema}, inputs, overflow=Overflow(1 << 30, "shed"))
    table = pa.table([list(range(50)), [0] * 50], schema=schema)
    harness.epoch({"R": table, "S": table})
    told = harness.runner.progress[-1].completeness_so_far["q"]
    assert (told.estimate, told.low, told.high) == (1.0, 1.0, 1.0)
    assert len(harness.results("q")) == 50


@pytest.mark.parametrize("by", ["sample", "planned", "random"])
def test_a_sample_of_what_arrives_is_as_complete_as_equation_11_says(tmp_path: Path, by: str) -> None:
    """DHTJoin 5: of windows of which a share f fits, f^2 of the pairs are found, by plan 2% more; joined first, f.

    Keys of the exempt sample are left out.
    """
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    inputs = {"q": [Indexed(name, name, ("k",), 8_000_000) for name in "RS"]}
    overflow = Overflow(350_000, "shed", shed_by=by)
    harness = Harness(tmp_path, dict.fromkeys("RS", schema), inputs, groups=4, overflow=overflow)
    n, rng, streams = 1000, np.random.default_rng(4), {"R": list[pa.Table](), "S": list[pa.Table]()}
    for epoch in range(20):
        for own in streams.values():
            times = np.sort(rng.integers(epoch * 1_000_000, (epoch + 1) * 1_000_000, n))
            own.append(pa.table([rng.integers(0, 3000, n), rng.integers(0, 1 << 40, n), times], schema=schema))
        harness.epoch({name: own[-1] for name, own in streams.items()})
    shed = filter_of(harness.manifest)
    assert shed is not None
    exempt = is_sampled(hash_columns([pa.array(range(3000), pa.int64())])[0], shed.bits)
    began = datetime(1970, 1, 1, 0, 0, 10, tzinfo=timezone.utc)
    found = [one for one in harness.results("q") if not exempt[one["R.k"]]]
    n_found = sum(max(one["R.ts"], one["S.ts"]) >= began for one in found)
    share, complete = shed.pieces[0].caps[-1][1], n_found / _n_pairs(streams, exempt, 8_000_000, 10_000_000)
    wanted = {"sample": share**2, "planned": share**2 + PLAN_MARGIN, "random": share}[by]
    assert 0.3 < share < 0.6
    assert complete == pytest.approx(wanted, rel=0.1 if by != "random" else 0.2)
    told = harness.runner.progress[-1].completeness_so_far["q"]
    assert told.low <= told.estimate <= told.high
    newest = [one for one in harness.manifest.segments if one.epoch == 19 and one.first_epoch == 19 and not one.sample]
    alive = sum(len(sift(open_segment(harness.runner.checkpoint.files, one), one, shed)) for one in newest)
    assert sum(part.rows for one in newest for part in one.parts) == pytest.approx(alive, rel=0.05)


def _n_pairs(streams: dict[str, list[pa.Table]], exempt: Any, window: int, began: int) -> int:
    keys, times = {}, {}
    for name, own in streams.items():
        table = pa.concat_tables(own)
        keys[name], times[name] = (np.asarray(table.column(c).combine_chunks().cast(pa.int64())) for c in ("k", "ts"))
    pairs = 0
    for key in np.flatnonzero(~exempt).tolist():
        r, s = (times[name][keys[name] == key][None, :] for name in "RS")
        is_late_enough = np.maximum(r.T, s) >= began
        pairs += int(((np.abs(r.T - s) <= window) & is_late_enough).sum())
    return pairs
