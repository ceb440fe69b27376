"""Aggregates in the engine without Spark: real segments, manifests, compaction, crashes and moving groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.kernels.measures import AggregatePlan, Aggregation
from braidstream.lab.testing.harness import Harness, Indexed, LocalRunner
from braidstream.lab.testing.strategies import Case
from braidstream.model.directory import Directory
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.model.stores import Store
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.state.checkpoint import Checkpoint
from tests.kernels.test_aggregates import SOME, aggregate_cases, aggregation_of, all_close, expected, key_type
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import often_compacted


class AggregateHarness(Harness):
    """A harness with one aggregate query, "q", in the place of joins."""

    def __init__(self, folder: Path, case: Case, aggregation: Aggregation, **options: Any) -> None:
        self.aggregation = aggregation
        schemas = {stream.name: case.schema for stream in case.streams}
        inputs = [Indexed(stream.name, stream.name, ("k",), stream.window_us) for stream in case.streams]
        super().__init__(folder, schemas, {"q": inputs}, delays_us=case.delays_us, **options)

    def _planned(self, joins: Mapping[str, Sequence[Indexed]], *, late: bool) -> Plan:
        routed = super()._planned(joins, late=late)
        stores = [replace(store, kept=False) for store in routed.stores]

        def summary(name: str, window_us: int | None, stage: int) -> int:
            empty = Store(
                len(stores), f"q:{name}", "", (), (), False, (), takes_all=True, columns=(), window_us=window_us
            )
            stores.append(replace(empty, stage=stage, derived=True, summarized=True))
            return empty.index

        kept = tuple(summary(str(i), entry.window_us, 0) for i, entry in enumerate(self.aggregation.inputs))
        totals = None if self.aggregation.local else summary("totals", None, 1)
        leases = summary("leases", 0, 1) if self.aggregation.is_leased and totals is not None else None
        selected = tuple((name, name) for name in self.aggregation.schema.names)
        plan = AggregatePlan(self.aggregation, kept, totals, leases, selected)
        branches = tuple(replace(branch, tells_all=True) for branch in routed.branches)
        return replace(routed, stores=tuple(stores), joins=(), branches=branches, aggregates=(plan,))

    def _start(self, checkpoint: Checkpoint) -> LocalRunner:
        return self._started(checkpoint, {"q": Query("q", "", (), (), (), (), ())})


def check(case: Case, wanted: Sequence[Any], grouped: int, group_by: Sequence[str], results: Sequence[Any]) -> None:
    """What is left of all updates is what the oracle says at the end; without GROUP BY, every epoch is."""
    watermarks = [row["watermark"] for row in results]
    at = None if not watermarks or watermarks[-1] is None else round(watermarks[-1].timestamp() * 1e6)
    if not group_by:
        assert [row["epoch"] for row in results] == list(range(len(case.epochs)))
        (right,) = expected(case, len(case.epochs), at, wanted, 0, ())
        assert all_close(tuple(results[-1].values())[:-2], right)
        return
    view = {}
    for row in sorted(results, key=lambda row: row["epoch"]):
        values = tuple(row.values())[:-2]
        view[values[: len(group_by)]] = values[len(group_by) :]
    live = {group: values for group, values in view.items() if values[0]}
    right_ = expected(case, len(case.epochs), final_watermark(case), wanted, grouped, group_by)
    assert live.keys() == {row[: len(group_by)] for row in right_}
    for row in right_:
        assert all_close(live[row[: len(group_by)]], row[len(group_by) :])


def final_watermark(case: Case) -> int | None:
    seen = {s.name: [row["ts"] for epoch in case.epochs for row in epoch.get(s.name, ())] for s in case.streams}
    return min(max(times) - case.delays_us[n] for n, times in seen.items()) if all(seen.values()) else None


def directories(data: st.DataObject, before: Directory, n_slots: int) -> Directory:
    """The directory after some splits and moves."""
    for _ in range(data.draw(st.integers(0, 3))):
        group = data.draw(st.sampled_from(before.groups))
        before = (
            before.split(group.id)
            if data.draw(st.booleans())
            else before.move(group.id, data.draw(st.integers(0, n_slots - 1)))
        )
    return before


@SOME
@given(st.data(), aggregate_cases([(), ("k",), ("c",), ("k", "c")]))
def test_crashes_restarts_and_moving_groups_change_nothing(data: st.DataObject, made: Any) -> None:
    case, wanted, grouped, group_by = made
    if group_by:
        wanted = [("count", None, None), *(w for w in wanted if w != ("count", None, None))]
    aggregation = aggregation_of([s.window_us for s in case.streams], wanted, grouped, group_by, key_type(case))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        controller = restless(data.draw(st.integers(0, 999), "seed")) if data.draw(st.booleans(), "restless") else None
        harness = AggregateHarness(Path(folder), case, aggregation, slots=2, groups=4, controller=controller)
        stack.enter_context(often_compacted())
        for number, tables in enumerate(epochs(case)):
            point = data.draw(st.none() | st.sampled_from(POINTS), "fault")
            if point is not None:
                try:
                    with armed(f"{point}:{number}:raise"):
                        harness.epoch(tables)
                except InjectedFault:
                    harness.restart()
            if harness.manifest.epoch < number:
                harness.epoch(tables)
            if data.draw(st.booleans(), "move"):
                harness.restart(directory=directories(data, harness.manifest.directory, harness.manifest.n_slots))
        check(case, wanted, grouped, group_by, harness.results("q"))


@pytest.mark.slow
def test_segments_of_many_epochs_are_compacted_and_expire(tmp_path: Path) -> None:
    wanted = [("count", None, None), ("sum", 0, "w"), ("min", 1, "w")]
    case = long_case()
    aggregation = aggregation_of([s.window_us for s in case.streams], wanted)
    harness = AggregateHarness(tmp_path, case, aggregation, slots=2, groups=4)
    segments = []
    for tables in epochs(case):
        harness.epoch(tables)
        segments.append(len(harness.manifest.segments))
    check(case, wanted, 0, (), harness.results("q"))
    assert max(segments) < len(case.epochs)


def long_case() -> Case:
    from braidstream.lab.testing.oracle import Stream

    names, windows = ("R", "S"), (40_000_000, 9_000_000)
    schema = pa.schema([("k", pa.int64()), ("w", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    made = tuple(
        {n: [{"k": (e * i) % 3, "w": (e * 7 + i) % 50, "ts": e * 1_000_000} for i in range(4)] for n in names}
        for e in range(60)
    )
    streams = tuple(
        Stream(n, list(itertools.chain.from_iterable(e[n] for e in made)), w)
        for n, w in zip(names, windows, strict=True)
    )
    return Case(streams, (("R.k", "S.k"),), dict.fromkeys(names, 0), made, schema)


def epochs(case: Case) -> Iterator[dict[str, pa.Table]]:
    for epoch in case.epochs:
        yield {s.name: pa.Table.from_pylist(list(epoch.get(s.name, ())), case.schema) for s in case.streams}
