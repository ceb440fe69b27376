"""Tiny budgets under outer, semi, anti and as-of joins: what was pushed is decided after its clean-up, each row once.

After every epoch nothing was put out that is not decided by then; after a last clean-up just what is decided was.
"""

from __future__ import annotations

from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.overflow import Overflow
from braidstream.lab.testing.batch import BatchStream, batch_join_of_kind, same_rows
from braidstream.lab.testing.hardships import Pieced
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.strategies import Case, two_streams
from braidstream.model.directory import Group
from braidstream.model.faults import POINTS, InjectedFault, armed
from braidstream.model.join_kinds import JoinKind
from braidstream.model.numbers import GroupId, SlotId
from braidstream.model.parts import Part, Segment
from braidstream.model.undecided import noted, owed_in, without
from braidstream.slot.section_writing import Merged, written
from braidstream.state.compaction import SegmentMerge
from braidstream.state.files import Files
from braidstream.state.generations import held_groups, held_ranges
from braidstream.state.section import Section
from tests.backends import tables
from tests.kernels import stories
from tests.kernels.test_left_joins_on_top import Stacked
from tests.kernels.test_outer_joins_engine import Drawn, Told, closing, harness_of, steady
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS, ended_with_faults, often_compacted
from tests.kernels.test_streams_join import QUIET, crowded, leftovers, reorganized, with_a_fault
from tests.scale import examples

SECOND = stories.SECOND
SOME = settings(max_examples=examples(30), deadline=None, suppress_health_check=QUIET)
KINDS = [kind for kind in JoinKind if kind is not JoinKind.INNER]
EACH = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.value)
QUICK = (JoinKind.LEFT, JoinKind.SEMI)
FEW = pytest.mark.parametrize(
    "kind",
    [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
    ids=lambda k: k.value,
)
"""Some of them in the quick run."""


def spills(rng: Any) -> dict[str, Any]:
    """A budget, or pushes and clean-ups at random."""
    budget = Pieced(
        int(rng.choice([1, 500, 4000, 10_000])),
        piece=int(rng.choice([200, 20_000])),
        spill_share=float(rng.choice([0.1, 0.3, 1.0])),
        idle_after=int(rng.choice([0, 2, 100])),
    )
    if rng.random() < 0.5:
        return {"overflow": budget, "restless_spills": int(rng.integers(1000))}
    return {"overflow": budget, "interval_s": [None, 1e6][rng.integers(2)]}


@EACH
@pytest.mark.parametrize("seed", range(examples(14, least=1)))
def test_what_was_pushed_is_decided_once(kind: JoinKind, seed: int, tmp_path: Any) -> None:
    """Beside moves, splits and merges, crashes at any point, and starts with other slots."""
    rng = np.random.default_rng([seed, 181])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    options: dict[str, Any] = {"hash_keys": crowded(3)} if rng.random() < 0.2 else {}
    options |= {"controller": restless(seed)} if rng.random() < 0.5 else {}
    epochs, pushed = [*case.epochs, closing(case)], 0
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text}, slots=int(rng.integers(1, 4)), **spills(rng), **options)
        for number, epoch in enumerate(epochs):
            rows = tables(case, epoch)
            while harness.manifest.epoch < number and rng.random() < 0.3:
                with_a_fault(harness, str(rng.choice(POINTS)), number, rows)
                harness.restart(int(rng.integers(1, 5)))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            pushed += len(held_groups(harness.manifest))
            early = stories.found(harness, "q") - told.expected(epochs[: number + 1])
            assert not early, told.text
            if rng.random() < 0.2:
                harness.finish()
                assert stories.found(harness, "q") == told.expected(epochs[: number + 1]), told.text
        harness.finish()
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        assert leftovers(harness) == []


@FEW
@pytest.mark.parametrize("seed", range(examples(10, least=1)))
def test_the_end_of_the_input_decides_what_is_pushed(kind: JoinKind, seed: int, tmp_path: Any) -> None:
    """Whatever is inactive when the input ends is closed with the rest, also by a start after a crash."""
    rng = np.random.default_rng([seed, 182])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text}, slots=2, **spills(rng))
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        number = len(case.epochs) - (rng.random() < 0.5)
        with suppress(InjectedFault), armed(f"{rng.choice(POINTS)}:{number}:raise"):
            harness.finish(final=True)
        harness.restart(int(rng.integers(1, 4)))
        harness.finish(final=True)
        last = closing(case)
        beyond = Told.expected(told, [*case.epochs, last], 0, None)
        beyond -= told.expected([last, last], 1)  # what closes is not there
        assert stories.found(harness, "q") == beyond, told.text


@pytest.mark.slow
@SOME
@given(two_streams(max_rows=12), st.sampled_from(KINDS), st.integers(1, 4), SPILLS, st.data())
def test_crashes_in_the_last_clean_up_are_made_up_for(
    case: Case, kind: JoinKind, slots: int, spilled: dict[str, Any], data: st.DataObject
) -> None:
    told = Told(case, kind, data)
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, told.case, {"q": told.text}, slots=slots, **spilled)
        for number, epoch in enumerate(case.epochs):
            harness.epoch(tables(told.case, epoch))
            if data.draw(st.booleans(), label="moves"):
                n_slots = harness.manifest.n_slots
                harness.restart(directory=reorganized(harness.manifest.directory, n_slots, data))
            if data.draw(st.integers(0, 3), label="ends here") == 3:
                ended_with_faults(harness, number, data)
        ended_with_faults(harness, len(case.epochs) - 1, data)
        harness.finish()
        assert stories.found(harness, "q") == told.expected(list(case.epochs)), told.text
        assert leftovers(harness) == []


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("seed", range(examples(10, least=1)))
def test_queries_come_and_go_over_pushed_state(kind: JoinKind, seed: int, tmp_path: Any) -> None:
    """One is there throughout, beside an inner join; another, of any kind, sees what arrives while it is there."""
    rng = np.random.default_rng([seed, 183])
    case = steady(rng)
    told: Any = Told(case, kind, Drawn(rng))
    later: Any = Told(case, KINDS[rng.integers(len(KINDS))], Drawn(rng))
    inner = "SELECT R.v AS a, S.v AS b FROM R [RANGE 4 SECONDS], S [RANGE 7 SECONDS] WHERE R.k = S.k"
    epochs = [*case.epochs, closing(case)]
    begin = int(rng.integers(len(epochs)))
    end = int(rng.integers(begin, len(epochs) + 1))
    with often_compacted():
        harness = harness_of(tmp_path, case, {"q": told.text, "inner": inner}, slots=2, **spills(rng))
        for number, epoch in enumerate(epochs):
            if number == begin:
                harness.submit("later", later.text)
            if number == end:
                harness.withdraw("later")
            harness.epoch(tables(case, epoch))
        harness.finish()
        assert stories.found(harness, "q") == told.expected(epochs), told.text
        assert stories.found(harness, "later") == later.expected(epochs, begin, end), later.text


@pytest.mark.parametrize("seed", range(examples(14, least=1)))
def test_what_left_joins_on_top_read_is_pushed_where_it_may_be(seed: int, tmp_path: Any) -> None:
    rng = np.random.default_rng([seed, 184])
    n_left = int(rng.integers(1, 3))
    case = steady(rng, "RST", 6)
    more = [(str(rng.choice(["nothing", "a comparison", "a filter"])), int(rng.integers(3))) for _ in range(n_left)]
    other = ("R.k", "T.k") if rng.random() < 0.5 else ("S.j", "T.j")
    case = Case(case.streams, (("R.k", "S.k"), other), case.delays_us, case.epochs, case.schema)
    told = Stacked(case, n_left, more, "nothing")
    epochs = [*case.epochs, closing(case)]
    with often_compacted():
        harness = harness_of(tmp_path, told.case, {"q": told.text}, slots=2, controller=restless(seed), **spills(rng))
        for epoch in epochs:
            harness.epoch(tables(told.case, epoch))
        harness.finish()
        assert stories.found(harness, "q") == told.expected(epochs), told.text


@FEW
def test_thousands_of_rows_beyond_the_budget_are_joined_as_by_duckdb(kind: JoinKind, tmp_path: Any) -> None:
    """Times are distinct within a stream, so that the newest partner is one."""
    rng = np.random.default_rng(185)
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    n_epochs, n_rows = 6, 500
    streams: dict[str, list[pa.Table]] = {"R": [], "S": []}
    for epoch in range(n_epochs):
        for own in streams.values():
            times = np.sort(rng.choice(3 * n_rows, n_rows, replace=False)) + 3 * n_rows * epoch
            keys = pa.array([f"key {k}" if k else None for k in rng.zipf(1.5, n_rows) % 200], pa.string())
            own.append(pa.table([keys, rng.integers(0, 99, n_rows), times * SECOND], schema=schema))
    windows = (1000, 2500)
    batch = [
        BatchStream(name, pa.concat_tables(own), window * SECOND)
        for (name, own), window in zip(streams.items(), windows, strict=True)
    ]
    shown = {"rv": "R.v", "rk": "R.k", **({"sv": "S.v", "sk": "S.k"} if len(kind.shown) == 2 else {})}
    select = ", ".join(f"{sql} AS {name}" for name, sql in shown.items())
    text = f"SELECT {select} FROM R [RANGE 1000 SECONDS] {kind.words} S [RANGE 2500 SECONDS] ON R.k = S.k"
    overflow = Overflow(20_000)
    harness = QueryHarness(tmp_path, {"R": schema, "S": schema}, {"q": text}, slots=3, overflow=overflow)
    held = 0
    for number in range(n_epochs):
        harness.epoch({name: own[number] for name, own in streams.items()})
        held = max(held, len(held_groups(harness.manifest)))
    assert held
    assert kind is JoinKind.SEMI or harness.manifest.notes.undecided
    harness.epoch({n: pa.table([[f"last of {n}"], [-1], [10**6 * SECOND]], schema=schema) for n in streams})
    harness.finish()
    expected = batch_join_of_kind(kind.value, (batch[0], batch[1]), [("R.k", "S.k")], shown, [])
    found = pa.Table.from_pylist(harness.results("q"), expected.schema)
    told = same_rows(found, expected)
    assert told, str(told)
    assert expected.num_rows > 30


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.booleans(), st.integers(0, 9)), max_size=12))
def test_ranges_are_noted_and_forgotten_as_sets_of_hashes_are(
    changes: list[tuple[int, int, bool, int]],
) -> None:
    """Against a dictionary of sixteenths of the hash space: what is noted first stays, until it is forgotten."""
    known: tuple[Any, ...] = ()
    plain: dict[int, int] = {}
    for prefix, depth, adds, watermark in changes:
        group = Group(prefix >> (4 - depth), depth, GroupId(0), SlotId(0))
        own = [at for at in range(16) if at >> (4 - depth) == group.prefix]
        if adds:
            known = noted(known, [group], watermark)
            plain = {**dict.fromkeys(own, watermark), **plain}
        else:
            known = without(known, [group])
            plain = {at: kept for at, kept in plain.items() if at not in own}
        assert known == tuple(sorted(known))
        for at in range(16):
            place = Group(at, 4, GroupId(0), SlotId(0))
            found = list(owed_in({"R": known}, "R", (0, place.first, place.last)))
            assert found == ([(place.first, place.last, plain[at])] if at in plain else [])


def test_a_generation_holds_a_half_of_its_group_in_which_it_has_no_row(tmp_path: Any) -> None:
    """A merge of pushed parts after a split: one part of the empty half stays where it was, until it is cleaned up."""
    halves = [Group(prefix, 1, GroupId(prefix), SlotId(0)) for prefix in (0, 1)]
    both = tuple(Part(half.prefix, half.depth, 2, generation=1) for half in halves)
    old = [Segment(f"old {n}", "R", 4, 400, 0, 9, 9, n, n, both) for n in (1, 2)]
    made = Segment("merged", "R", 8, 800, 0, 9, 9, 1, 2, both[:1])
    for segment, left in ((made, {("merged", 0), ("old 1", 1)}), (None, {("old 1", 0), ("old 1", 1)})):
        task = SegmentMerge("R", 0, None, tuple(old), pushed=tuple((half.low, 1) for half in halves))
        (tmp_path / "sections").mkdir(exist_ok=True)
        files = Files(str(tmp_path))
        found = written(files, 3, Section(0, SlotId(0), halves, old), None, {"R"}, (), [Merged(task, segment)])
        assert found is not None
        section = Section.read(files, found.ref)
        assert {(one.name, part.prefix) for one in section.segments for part in one.parts} == left
        assert len(held_ranges(section, 100)) == 2
