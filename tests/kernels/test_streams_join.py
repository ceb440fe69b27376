"""Random streams, epoch by epoch: the output equals the oracle, each result once.

The first test runs on every backend. The others change what must not matter (where groups are, which process runs,
where it dies), with the engine in this process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing import oracle
from braidstream.lab.testing.hardships import crowded, leftovers
from braidstream.lab.testing.harness import Harness, Indexed
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.directory import HASH_BITS, Directory
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.state import compaction
from tests.backends import COLUMNS, Backend, expected, indexed, multiset, tables
from tests.scale import examples

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given, HealthCheck.filter_too_much]
SOME = settings(max_examples=examples(40), deadline=None, suppress_health_check=QUIET)
MANY = settings(max_examples=examples(80), deadline=None, suppress_health_check=QUIET)

SLOTS, GROUPS = st.integers(1, 7), st.integers(1, 64)


def example_settings(backend: Backend) -> settings:
    """As many examples as the backend is fast enough for; the slow ones are not made smaller when they fail."""
    shrinks = backend.n_examples > 50
    phases = [phase for phase in Phase if phase is not Phase.explain and (shrinks or phase is not Phase.shrink)]
    return settings(MANY, max_examples=examples(backend.n_examples, least=3), phases=phases, derandomize=True)


def test_two_streams_give_what_the_oracle_says(run_join: Backend) -> None:
    @example_settings(run_join)
    @given(two_streams(), SLOTS, GROUPS)
    def holds(case: Case, slots: int, groups: int) -> None:
        assert multiset(run_join(case, slots, groups)) == multiset(expected(case))

    holds()


def on_one_key(case: Case) -> bool:
    return all(column.endswith(".k") for pair in case.equalities for column in pair)


@SOME
@given(many_streams(min_streams=3, max_streams=4, max_rows=8).filter(on_one_key), SLOTS, GROUPS)
def test_three_and_four_streams_on_one_key(case: Case, slots: int, groups: int) -> None:
    with harness_of(case, slots, groups) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@MANY
@given(two_streams(max_epochs=10), st.lists(SLOTS, min_size=10, max_size=10), st.integers(1, 16), st.data())
def test_restarts_with_other_slots_change_nothing(
    case: Case, slots: list[int], groups: int, data: st.DataObject
) -> None:
    with harness_of(case, slots[0], groups) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            if data.draw(st.booleans(), label="restart"):
                harness.restart(slots[i])
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@MANY
@given(two_streams(max_epochs=10), SLOTS, st.integers(1, 16), st.data())
def test_splits_merges_and_moves_change_nothing(case: Case, slots: int, groups: int, data: st.DataObject) -> None:
    with harness_of(case, slots, groups) as harness, often_compacted():
        for epoch in case.epochs:
            harness.restart(slots, reorganized(harness.manifest.directory, slots, data))
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


def test_what_one_slot_has_compacted_is_not_found_again_in_the_segments_it_came_from(tmp_path: Path) -> None:
    """Slot 0 compacts its half of two segments, slot 1 does not run; then one slot has both halves."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    low, high = keys_in_each_half()
    inputs = {"q": [Indexed("R", "R", ("k",), None), Indexed("S", "S", ("k",), None)]}
    harness = Harness(tmp_path, {"R": schema, "S": schema}, inputs, slots=1, groups=2)

    def epoch(stream: str, *keys: int) -> None:
        harness.epoch({stream: pa.table([list(keys), list(keys), [0] * len(keys)], schema=schema)})

    with often_compacted():
        epoch("R", low, high)
        epoch("R", low, high)
        harness.restart(slots=2)
        epoch("R", low)
        assert [len(segment.parts) for segment in harness.manifest.segments[:2]] == [1, 1]
        harness.restart(slots=1)
        epoch("S", low)
    assert len(harness.results("q")) == 3


@MANY
@given(two_streams(max_epochs=8), SLOTS, st.integers(1, 16), st.data())
def test_an_epoch_lost_at_any_point_is_made_up_for(case: Case, slots: int, groups: int, data: st.DataObject) -> None:
    with harness_of(case, slots, groups) as harness:
        for i, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="failures")):
                if harness.manifest.epoch < i:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                    harness.restart(data.draw(SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        assert harness.manifest.epoch == len(case.epochs) - 1
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


@MANY
@given(two_streams(), SLOTS, GROUPS, st.integers(1, 4))
def test_keys_whose_hashes_collide_are_told_apart(case: Case, slots: int, groups: int, n_hashes: int) -> None:
    with harness_of(case, slots, groups, hash_keys=crowded(n_hashes)) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@SOME
@given(two_streams(), SLOTS, GROUPS, st.none() | st.integers(0, 25), st.none() | st.integers(0, 25))
def test_a_stream_joined_with_itself(
    case: Case, slots: int, groups: int, first: int | None, second: int | None
) -> None:
    windows = [None if w is None else w * 1_000_000 for w in (first, second)]
    inputs = [Indexed(alias, "R", ("k",), window) for alias, window in zip("ab", windows, strict=True)]
    with harness_of(case, slots, groups, joins={"q": inputs}) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        streams = [oracle.Stream(a, case.streams[0].rows, w) for a, w in zip("ab", windows, strict=True)]
        assert multiset(harness.results("q")) == composites_of(streams, [("a.k", "b.k")])


def is_even(table: pa.Table) -> npt.NDArray[np.bool_]:
    return table["v"].to_numpy() % 2 == 0


def is_early(table: pa.Table) -> npt.NDArray[np.bool_]:
    return pc.less(table["ts"].cast(pa.int64()), 20_000_000).to_numpy()


FILTERS = {None: lambda _: True, is_even: lambda row: row["v"] % 2 == 0, is_early: lambda row: row["ts"] < 20_000_000}


@SOME
@given(
    two_streams(),
    SLOTS,
    GROUPS,
    st.lists(st.tuples(*[st.sampled_from(list(FILTERS)), st.none() | st.integers(0, 25)] * 2), min_size=1, max_size=4),
)
def test_queries_with_different_filters_and_windows_share_stores(
    case: Case, slots: int, groups: int, queries: list[tuple[Any, ...]]
) -> None:
    joins = {
        f"q{i}": [Indexed("R", "R", ("k",), micro(w), f), Indexed("S", "S", ("k",), micro(x), g)]
        for i, (f, w, g, x) in enumerate(queries)
    }
    with harness_of(case, slots, groups, joins=joins) as harness:
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        for i, (f, w, g, x) in enumerate(queries):
            streams = [
                oracle.Stream(stream.name, [row for row in stream.rows if FILTERS[condition](row)], micro(window))
                for stream, condition, window in zip(case.streams, (f, g), (w, x), strict=True)
            ]
            assert multiset(harness.results(f"q{i}")) == composites_of(streams, [("R.k", "S.k")])


@MANY
@given(two_streams(max_epochs=10), SLOTS, GROUPS, st.data())
def test_late_rows_are_counted_and_put_aside_and_not_joined(
    case: Case, slots: int, groups: int, data: st.DataObject
) -> None:
    delays = {stream.name: data.draw(st.integers(0, 3), label="delay") * 1_000_000 for stream in case.streams}
    epochs = [{name: [with_time(row, data) for row in rows] for name, rows in epoch.items()} for epoch in case.epochs]
    timed = [{name: [r for r in rows if r["ts"] is not None] for name, rows in epoch.items()} for epoch in epochs]
    on_time, late = oracle.split_late(timed, delays)
    untimed = {name: [r for e in epochs for r in e[name] if r["ts"] is None] for name in delays}
    with harness_of(case, slots, groups, delays_us=delays, late=True) as harness:
        for epoch in epochs:
            harness.epoch(tables(case, epoch))
        streams = [oracle.Stream(s.name, on_time[s.name], s.window_us) for s in case.streams]
        assert multiset(harness.results("q")) == composites_of(streams, case.equalities)
        for name in delays:
            assert multiset(harness.late(name)) == multiset([*late[name], *untimed[name]])
            assert harness.manifest.totals.get(f"{name}.late", 0) == len(late[name]) + len(untimed[name])
            assert harness.manifest.totals.get(f"{name}.rows", 0) == sum(len(epoch[name]) for epoch in epochs)


def test_the_random_cases_have_results() -> None:
    """Not a property of the engine: a test against cases without results would hold for an engine that does nothing."""
    sizes: list[int] = []

    @settings(MANY, max_examples=80, derandomize=True)
    @given(two_streams())
    def count(case: Case) -> None:
        sizes.append(len(expected(case)))

    count()
    assert sum(size > 0 for size in sizes) > len(sizes) / 2
    assert sum(size > 30 for size in sizes) > len(sizes) / 10


# ---- helpers


class harness_of:  # noqa: N801  used as a function
    """A harness for a case, in a folder that goes away with it."""

    def __init__(self, case: Case, slots: int, groups: int, *, joins: Any = None, **options: Any) -> None:
        self._folder = TemporaryDirectory()
        schemas = {stream.name: case.schema for stream in case.streams}
        named = joins or {"q": indexed(case)}
        options = {"delays_us": case.delays_us, **options}
        self._harness = Harness(self._folder.name, schemas, named, slots=slots, groups=groups, **options)

    def __enter__(self) -> Harness:
        return self._harness

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def often_compacted() -> Any:
    """Merge segments two by two, so that a few epochs have what otherwise takes dozens."""
    return mock.patch.object(compaction, "FAN", 2)


def keys_in_each_half() -> tuple[int, int]:
    keys = np.arange(100)
    hashes, _ = hash_columns([pa.array(keys)])
    upper = hashes >= np.uint64(1 << (HASH_BITS - 1))
    return int(keys[~upper][0]), int(keys[upper][0])


def micro(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1_000_000


def composites_of(streams: Sequence[oracle.Stream], equalities: Sequence[oracle.Equality]) -> Counter[Any]:
    names = [f"{stream.name}.{column}" for stream in streams for column in COLUMNS]
    rows = oracle.project(oracle.join(streams, equalities), names)
    return multiset(dict(zip(names, row, strict=True)) for row in rows)


def with_time(row: oracle.Row, data: st.DataObject) -> dict[str, Any]:
    shift = data.draw(st.sampled_from([0, 0, 0, 0, -5, -20, None]), label="shift")
    return {**row, "ts": None if shift is None else max(row["ts"] + shift * 1_000_000, 0)}


def reorganized(directory: Directory, slots: int, data: st.DataObject) -> Directory:
    for _ in range(data.draw(st.integers(0, 4), label="changes")):
        group = data.draw(st.sampled_from(directory.groups), label="group")
        change = data.draw(st.sampled_from(["split", "merge", "move"]), label="change")
        if change == "split" and group.depth < HASH_BITS:
            directory = directory.split(group.id, data.draw(st.integers(0, slots - 1), label="to"))
        elif change == "merge" and directory.buddy(group.id):
            directory = directory.merge(group.id)
        elif change == "move":
            directory = directory.move(group.id, data.draw(st.integers(0, slots - 1), label="to"))
    return directory


def with_a_fault(harness: Harness, point: str, epoch: int, rows: dict[str, pa.Table]) -> None:
    with armed(f"{point}:{epoch}:raise"):
        try:
            harness.epoch(rows)
        except InjectedFault:
            return
    # Not every epoch compacts, pushes or cleans up, and an epoch without rows has no tasks.
    assert point.startswith(("compaction", "task", "spill", "clean-up"))
