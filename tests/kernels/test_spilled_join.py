"""Tiny budgets, so that groups are pushed again and again: with clean-up, the output equals the oracle, each once.

The engine in this process. Budgets are a few hundred bytes to a few rows' worth; between epochs groups move, split and
merge; processes die at every point of an epoch, of a push and of a clean-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.control.policies import generation_tiers
from braidstream.control.settings import Settings
from braidstream.epoch.assignment import epoch_task
from braidstream.lab.testing.hardships import Pieced
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.model.instructions import Spill
from braidstream.state import pushed
from braidstream.state.generations import held_groups
from tests.backends import expected, multiset, tables
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_streams_join import (
    FILTERS,
    MANY,
    SLOTS,
    SOME,
    composites_of,
    crowded,
    harness_of,
    leftovers,
    micro,
    on_one_key,
    oracle,
    reorganized,
    with_a_fault,
)
from tests.kernels.test_streams_join import (
    often_compacted as only_often_compacted,
)
from tests.scale import examples

GROUPS = st.integers(1, 16)


@contextmanager
def often_compacted() -> Iterator[None]:
    """So are pushed parts, and two generations are enough to make them one."""
    with (
        only_often_compacted(),
        mock.patch.object(generation_tiers, "FAN", 2),
        mock.patch.object(pushed, "FAN", 2),
    ):
        yield


SEEDS = st.integers(0, 999)
BUDGETS = st.builds(
    Pieced,
    st.sampled_from([1, 500, 1500, 4000, 10_000]),
    piece=st.sampled_from([200, 20_000]),
    spill_share=st.sampled_from([0.1, 0.3, 1.0]),
    idle_after=st.sampled_from([0, 2, 100]),
)
SPILLS = st.fixed_dictionaries({"overflow": BUDGETS, "interval_s": st.sampled_from([None, 1e6])}) | (
    st.fixed_dictionaries({"overflow": BUDGETS, "restless_spills": SEEDS})
)
"""By budget, with no time to spare or with all the time in the world; or at random."""


@settings(MANY, max_examples=examples(100))
@given(two_streams(max_epochs=10), SLOTS, GROUPS, SPILLS)
def test_pushed_state_is_made_up_for(case: Case, slots: int, groups: int, spills: dict[str, Any]) -> None:
    with harness_of(case, slots, groups, **spills) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


@settings(MANY, max_examples=examples(60))
@given(many_streams(min_streams=3, max_streams=4, max_rows=8, max_epochs=8).filter(on_one_key), SLOTS, GROUPS, SPILLS)
def test_of_three_and_four_streams_too(case: Case, slots: int, groups: int, spills: dict[str, Any]) -> None:
    with harness_of(case, slots, groups, **spills) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(60))
@given(two_streams(max_epochs=10), SLOTS, GROUPS, SPILLS, SEEDS)
def test_pushed_groups_move_split_and_merge_like_others(
    case: Case, slots: int, groups: int, spills: dict[str, Any], seed: int
) -> None:
    """D-CAPE 6 does not move a group with inactive generations; here the manifest moves, and nothing else."""
    with harness_of(case, slots, groups, controller=restless(seed), **spills) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(60))
@given(two_streams(max_epochs=10), SLOTS, GROUPS, SPILLS, st.data())
def test_restarts_with_any_directory_change_nothing(
    case: Case, slots: int, groups: int, spills: dict[str, Any], data: st.DataObject
) -> None:
    with harness_of(case, slots, groups, **spills) as harness, often_compacted():
        for epoch in case.epochs:
            harness.restart(slots, reorganized(harness.manifest.directory, slots, data))
            harness.epoch(tables(case, epoch))
        harness.restart(data.draw(SLOTS))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(150))
@given(
    two_streams(max_epochs=8) | many_streams(min_streams=3, max_streams=4, max_rows=6).filter(on_one_key),
    SLOTS,
    GROUPS,
    SPILLS,
    st.none() | SEEDS,
    st.data(),
)
def test_crashes_at_any_point_are_made_up_for(
    case: Case, slots: int, groups: int, spills: dict[str, Any], seed: int | None, data: st.DataObject
) -> None:
    """Crashes in epochs and in the last clean-up; afterwards more epochs may come, and another last clean-up."""
    controller = None if seed is None else restless(seed)
    with harness_of(case, slots, groups, controller=controller, **spills) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="failures")):
                if harness.manifest.epoch < i:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                    harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
            if data.draw(st.integers(0, 3), label="ends here") == 3:
                ended_with_faults(harness, i, data)
        ended_with_faults(harness, len(case.epochs) - 1, data)
        harness.finish()
        assert harness.manifest.epoch == len(case.epochs) - 1
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


def ended_with_faults(harness: Harness, epoch: int, data: st.DataObject) -> None:
    """A last clean-up that dies once or more, and is or is not ended before the next epoch."""
    for _ in range(data.draw(st.integers(0, 2), label="failures at the end")):
        point = data.draw(st.sampled_from([point for point in POINTS if point.startswith("clean-up")]))
        with suppress(InjectedFault), armed(f"{point}:{epoch}:raise"):
            harness.finish()
        with suppress(InjectedFault), armed(f"{data.draw(st.sampled_from(POINTS))}:{epoch}:raise"):
            harness.restart(data.draw(st.none() | SLOTS, label="slots"))  # may die where it ends a step that was begun
        harness.restart(data.draw(st.none() | SLOTS, label="slots"))


@SOME
@given(two_streams(), SLOTS, GROUPS, SPILLS, st.integers(1, 4))
def test_keys_whose_hashes_collide(case: Case, slots: int, groups: int, spills: dict[str, Any], n_hashes: int) -> None:
    with harness_of(case, slots, groups, hash_keys=crowded(n_hashes), **spills) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


@SOME
@given(
    two_streams(),
    SLOTS,
    GROUPS,
    SPILLS,
    st.lists(st.tuples(*[st.sampled_from(list(FILTERS)), st.none() | st.integers(0, 25)] * 2), min_size=1, max_size=4),
)
def test_queries_that_share_stores_are_cleaned_up_in_one_pass(
    case: Case, slots: int, groups: int, spills: dict[str, Any], queries: list[tuple[Any, ...]]
) -> None:
    joins = {
        f"q{i}": [Indexed("R", "R", ("k",), micro(w), f), Indexed("S", "S", ("k",), micro(x), g)]
        for i, (f, w, g, x) in enumerate(queries)
    }
    joins["self"] = [Indexed("a", "R", ("k",), micro(10)), Indexed("b", "R", ("k",), None)]
    with harness_of(case, slots, groups, joins=joins, **spills) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        for i, (f, w, g, x) in enumerate(queries):
            streams = [
                oracle.Stream(stream.name, [row for row in stream.rows if FILTERS[condition](row)], micro(window))
                for stream, condition, window in zip(case.streams, (f, g), (w, x), strict=True)
            ]
            assert multiset(harness.results(f"q{i}")) == composites_of(streams, [("R.k", "S.k")])
        rows = case.streams[0].rows
        twice = [oracle.Stream("a", rows, micro(10)), oracle.Stream("b", rows, None)]
        assert multiset(harness.results("self")) == composites_of(twice, [("a.k", "b.k")])


@pytest.mark.slow
def test_these_tests_push_and_clean_up_in_every_way() -> None:
    """Not a property of the engine: budgets that nothing exceeds would prove nothing."""
    seen: Counter[str] = Counter()

    @settings(MANY, max_examples=120, derandomize=True)
    @given(two_streams(max_epochs=10), st.integers(1, 3), st.integers(1, 8), SPILLS)
    def count(case: Case, slots: int, groups: int, spills: dict[str, Any]) -> None:
        with harness_of(case, slots, groups, **spills) as harness, often_compacted():
            for epoch in case.epochs:
                cleaned = harness.manifest.notes.cleaning
                before = harness.manifest
                merging = epoch_task(harness.runner.flow, before, before.epoch + 1).merging
                assert merging is not None
                merges = [one for key in before.sections for one in merging.plan(before.section(key), before)]
                seen["pushed parts merged"] += any(merge.pushed for merge in merges)
                harness.epoch(tables(case, epoch))
                entry = harness.runner.progress[-1]
                seen["pushed"] += entry.spilled_groups > 0
                seen["cleaned up in an epoch"] += cleaned is not None
                seen["recovered in an epoch"] += sum(entry.recovered.values()) > 0
                parts = [part for segment in harness.manifest.segments for part in segment.parts]
                seen["pushed again"] += any(part.generation > 1 for part in parts)
                seen["some generations made one"] += bool(cleaned and cleaned.some)
            harness.finish()
            last = [entry for entry in harness.runner.progress if entry.step]
            seen["cleaned up at the end"] += len(last) > 0
            seen["in several steps"] += len(last) > 1
            seen["recovered at the end"] += any(sum(entry.recovered.values()) for entry in last)

    count()
    assert len(seen) == 9
    assert seen.pop("in several steps") >= 1  # a budget of single bytes; the others have all in one step
    assert min(seen.values()) >= 10, seen


@pytest.mark.parametrize("memory_bytes", [1, 3000])
def test_without_clean_up_results_are_missing(tmp_path: Any, memory_bytes: int) -> None:
    """Not a property of the engine either: what was pushed is really not probed any more."""
    schema = tables_schema()
    inputs = {"q": [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]}
    overflow = Overflow(memory_bytes, spill_share=1.0)
    harness = Harness(tmp_path, {"R": schema, "S": schema}, inputs, overflow=overflow)
    rows = {"k": list(range(50)), "ts": [0] * 50}
    harness.epoch({"R": _table(rows)})
    harness.epoch({"S": _table(rows)})
    assert harness.results("q") == []
    harness.finish()
    assert len(harness.results("q")) == 50


def tables_schema() -> Any:
    return _table({"k": [], "ts": []}).schema


def _table(rows: dict[str, list[int]]) -> Any:
    import pyarrow as pa

    return pa.table({"k": pa.array(rows["k"], pa.int64()), "ts": pa.array(rows["ts"], pa.timestamp("us", tz="UTC"))})


@settings(MANY, max_examples=examples(30))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, st.sampled_from(["lazy", "active"]), st.sampled_from([300, 2000]))
def test_lazy_and_active_disk_change_nothing(case: Case, slots: int, groups: int, disk: str, size: int) -> None:
    """D-CAPE 6 on the engine: the controller moves and pushes; the budget of the slots themselves is never reached."""
    known = Settings(every=1, disk=disk, memory_bytes=size, memory_above=0.1, query_bytes=1 << 30, move_spilled=True)  # type: ignore[arg-type]
    with harness_of(case, slots, groups, controller=Controller(known), overflow=Overflow(1 << 30)) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))


def test_what_the_controller_wants_pushed_is_pushed(tmp_path: Any) -> None:
    schema = tables_schema()
    inputs = {"q": [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]}
    known = Settings(every=1, epoch_s=1000.0, disk="lazy", memory_bytes=1000, move_spilled=True)  # nobody is overloaded
    options = {"controller": Controller(known), "overflow": Overflow(1 << 30), "slots": 2}
    harness = Harness(tmp_path, {"R": schema, "S": schema}, inputs, **options)  # type: ignore[arg-type]
    rows = {"k": list(range(200)), "ts": [0] * 200}
    harness.epoch({"R": _table(rows)})
    decisions = harness.runner.flow.decider.decisions
    asked = {one.group for d in decisions for one in d.instructions if isinstance(one, Spill)}
    assert asked == {group.id for group in held_groups(harness.manifest)} != set()
    harness.epoch({"S": _table(rows)})
    missing = 200 - len(harness.results("q"))
    assert missing > 0
    harness.finish()
    assert len(harness.results("q")) == 200
