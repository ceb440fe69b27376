"""Stages with groups of their own: each is moved, split, merged and pushed by itself, and no result changes.

The engine in this process. Queries of type 2 come and go, so stages come later; processes die at every point;
checkpoints from before stages had regions of their own are read and go on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.policies.splitting import Splitting
from braidstream.control.settings import Settings
from braidstream.epoch.stages import explain_stages
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing import oracle
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.testing.strategies import Case, many_streams
from braidstream.model import slowness
from braidstream.model.directory import address_of
from braidstream.model.faults import POINTS
from braidstream.model.instructions import Instruction, Move, Split
from braidstream.model.stores import shown_stage
from tests.backends import tables
from tests.cli.workshop import Braid
from tests.kernels import stories
from tests.kernels.test_queries_engine import GROUPS, MANY_KEYS, SLOTS, SOME, change, harness_of, query_of, seen_by
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import SPILLS, often_compacted
from tests.kernels.test_streams_join import leftovers, with_a_fault
from tests.scale import examples

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SEEDS = st.integers(0, 999)


def check_places(harness: QueryHarness) -> None:
    """Every stage has its region; every part lies in that of its store's stage, within one group."""
    directory, stages = harness.manifest.directory, {store.name: store.stage for store in harness.plan.stores}
    assert directory.regions.keys() >= {0, *stages.values()}
    for stage, region in directory.regions.items():
        ends = [address_of(stage, 0) - 1, *(group.high for group in region.groups)]
        assert [end + 1 for end in ends] == [*(group.low for group in region.groups), address_of(stage + 1, 0)]
    for segment in harness.manifest.segments:
        for part in segment.parts:
            group = directory.at(part.low)
            assert part.stage == group.stage == stages.get(segment.store, part.stage)
            assert group.first <= part.first <= part.last <= group.last


GRIDS = st.builds(lambda seed: {"regridder": RestlessGrids(HASHES, seed)}, SEEDS)
HASHES = hash_columns([pa.array(range(3), pa.int64())])[0].tolist()


@settings(SOME, max_examples=examples(50))
@given(MANY_KEYS, SLOTS, GROUPS, stories.STATISTICS, SPILLS | GRIDS, SEEDS, st.data())
def test_pushes_grids_moves_and_crashes_change_no_result_of_a_tree(
    case: Case, slots: int, groups: int, statistics: Any, more: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    text, expected = query_of(case, data)
    options = {"slots": slots, "groups": groups, "statistics": statistics, "controller": restless(seed), **more}
    with TemporaryDirectory() as folder, often_compacted():
        harness = harness_of(folder, case, {"q": text}, **options)
        for number, epoch in enumerate(case.epochs):
            rows = tables(case, epoch)
            if data.draw(st.booleans(), label="crash"):
                with_a_fault(harness, data.draw(st.sampled_from(POINTS), label="point"), number, rows)
                harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            check_places(harness)
        harness.finish()
        assert stories.found(harness, "q") == expected
        assert leftovers(harness) == []


TEMPLATES = {
    "two": (("A", "B"), [("A.j", "B.j")]),
    "a chain": (("A", "B", "C"), [("A.k", "B.k"), ("B.j", "C.j")]),
    "a chain of four": (("A", "B", "C", "D"), [("A.k", "B.k"), ("B.j", "C.j"), ("C.k", "D.k")]),
    "a star": (("A", "B", "C", "D"), [("A.k", "B.k"), ("A.j", "C.j"), ("A.v", "D.k")]),
    "a star and a chain": (("D", "A", "B", "C"), [("D.k", "A.j"), ("A.k", "B.k"), ("B.j", "C.k")]),
}


@settings(SOME, max_examples=examples(40))
@given(many_streams(min_streams=4, max_streams=4, max_rows=6, max_epochs=6), SLOTS, GROUPS, SEEDS, st.data())
def test_deeper_queries_come_and_go_while_groups_of_single_stages_move(
    case: Case, slots: int, groups: int, seed: int, data: st.DataObject
) -> None:
    """The first query has one stage. Stages come with others, under a controller that never rests, and crashes."""
    case = replace(case, equalities=(("A.k", "B.k"), ("B.k", "C.k"), ("C.k", "D.k")), schema=SCHEMA)
    case = replace(case, **long_keys(case))
    base = f"SELECT {stories.select(case)} FROM {stories.from_clause(case)} WHERE {stories.equal(case.equalities)}"
    lives: dict[str, tuple[Any, int, int]] = {}
    with TemporaryDirectory() as folder, often_compacted():
        options = {"slots": slots, "groups": groups, "statistics": data.draw(stories.STATISTICS, label="rates")}
        harness = harness_of(folder, case, {"base": base}, controller=restless(seed), **options)
        assert harness.manifest.directory.regions.keys() == {0}
        for number, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="changes")):
                change(harness, case, lives, number, data, TEMPLATES)
            rows = tables(case, epoch)
            if data.draw(st.booleans(), label="crash"):
                with_a_fault(harness, data.draw(st.sampled_from(stories.POINTS)), number, rows)
                harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < number:
                harness.epoch(rows)
            check_places(harness)
        assert stories.found(harness, "base") == stories.joined(case.streams, case.equalities, [])
        for name, (template, begin, end) in lives.items():
            assert stories.found(harness, name) == seen_by(case, template, begin, end), name
        assert leftovers(harness) == []


def long_keys(case: Case) -> dict[str, Any]:
    """Streams and epochs with whole numbers as keys, whatever the case had."""

    def whole(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "k": row["v"] % 3, "j": row["v"] % 2}

    epochs = tuple({n: [whole(row) for row in rows] for n, rows in epoch.items()} for epoch in case.epochs)
    streams = tuple(replace(s, rows=[row for epoch in epochs for row in epoch.get(s.name, ())]) for s in case.streams)
    return {"streams": streams, "epochs": epochs}


SETTINGS = Settings(every=2)
CHAIN = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS], C [RANGE 9 SECONDS] "
    "WHERE A.k = B.k AND B.j = C.j"
)


def keys_between(first: float, last: float, n: int) -> list[int]:
    """Keys with hashes in a part of the hash space."""
    keys = list(range(200 * n))
    hashes = hash_columns([pa.array(keys)])[0] / 2.0**64
    return [key for key, at in zip(keys, hashes.tolist(), strict=True) if first <= at < last][:n]


@pytest.mark.parametrize(
    ("hot", "kind"),
    [
        pytest.param((0.0, 0.25), Move, id="two hot groups of the second stage: one is moved"),
        pytest.param((0.0, 0.125), Split, id="one hot group of the second stage: it is split"),
    ],
)
def test_a_hot_range_of_the_second_stage_goes_while_the_first_stage_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hot: tuple[float, float], kind: type[Instruction]
) -> None:
    """The keys of the first stage are even, those of the second are in the first groups, which are all at slot 0.

    Every row costs four milliseconds, slept; the windows of two epochs do not meet, so that all epochs are alike.
    """
    monkeypatch.setattr(slowness, "_row_s", 4e-3)
    controller = Controller(SETTINGS, policies=(Splitting(SETTINGS),) if kind is Split else None)
    schemas, rates = dict.fromkeys("ABC", SCHEMA), stories.Statistics({"C": 10.0})
    harness = QueryHarness(tmp_path, schemas, {"q": CHAIN}, slots=2, groups=8, controller=controller, statistics=rates)
    assert str(harness.plan.trees["q"]) == "((A ⋈ B) ⋈ C)"
    even, middle = [*keys_between(0, 0.5, 16), *keys_between(0.5, 1, 16)], sum(hot) / 2
    uneven = [*keys_between(hot[0], middle, 8), *keys_between(middle, hot[1], 8)]
    begun = harness.manifest.directory

    def rows(keys: list[int], attributes: list[int], time: int) -> pa.Table:
        n = max(len(keys), len(attributes))
        columns = [(some * n)[:n] for some in (keys, attributes, list(range(n)), [time * 10 * stories.SECOND])]
        return pa.table(columns, schema=SCHEMA)

    for time in range(6):
        harness.epoch({"A": rows(even, [0], time), "B": rows(even, uneven, time), "C": rows([0], uneven * 4, time)})
    decisions = harness.runner.flow.decider.decisions
    asked = [one for decision in decisions for one in decision.instructions]
    second = {group.id for group in harness.manifest.directory.region(1).groups}
    assert asked
    assert isinstance(asked[0], kind)
    assert {one.group for one in asked if isinstance(one, Move | Split)} <= second
    assert harness.manifest.directory.region(0) == begun.region(0)
    assert harness.manifest.directory.region(1) != begun.region(1)
    first, last = harness.runner.progress[0].stages[1], harness.runner.progress[-1].stages[1]
    assert (first.stage, first.slots, last.slots) == (shown_stage(1), 2, 2)
    assert first.balance > 1.9
    assert last.balance < 1.4
    assert Counter(stories.found(harness, "q").values()) == {6: 32 * 4}  # the epochs' rows have the same values


BUSHY = (
    "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d FROM A [RANGE 30 SECONDS], B [RANGE 30 SECONDS], "
    "C [RANGE 30 SECONDS], D [RANGE UNBOUNDED] WHERE A.k = B.k AND B.j = C.j AND C.k = D.k"
)
"""The query of the checkpoints in one_region.zip."""


def rows_of(epoch: int, names: str = "ABCD") -> dict[str, pa.Table]:
    """The rows of its epochs, of which it has five."""
    made, n = {}, range(3)
    for place, name in enumerate(names):
        k, j = [(epoch * place + i) % 3 for i in n], [(epoch + i * place) % 2 for i in n]
        times = [(2 * epoch + i % 2) * stories.SECOND for i in n]
        made[name] = pa.table([k, j, [100 * epoch + i for i in n], times], schema=SCHEMA)
    return made


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as the oracle takes them."""
    times = table.column("ts").cast(pa.int64()).to_pylist()
    return [{**row, "ts": time} for row, time in zip(table.to_pylist(), times, strict=True)]


FIVE = (
    "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d, E.v AS e FROM A [RANGE 30 SECONDS], B [RANGE 30 SECONDS], "
    "C [RANGE 30 SECONDS], D [RANGE 30 SECONDS], E [RANGE 30 SECONDS] "
    "WHERE A.k = B.k AND B.j = C.j AND C.k = D.k AND D.j = E.j"
)
EDGES = [("A.k", "B.k"), ("B.j", "C.j"), ("C.k", "D.k"), ("D.j", "E.j")]


def results_of(epochs: Iterable[int], names: str) -> Counter[Any]:
    """What the oracle finds in some epochs; D is unbounded where it is the last."""
    rows = {name: [row for epoch in epochs for row in plain(rows_of(epoch, names)[name])] for name in names}
    windows = {name: None if name == names[-1] == "D" else 30 * stories.SECOND for name in names}
    streams = [oracle.Stream(name, rows[name], windows[name]) for name in names]
    composites = oracle.join(streams, EDGES[: len(names) - 1])
    return Counter(oracle.project(composites, [f"{name}.v" for name in names]))


def test_a_query_submitted_again_with_another_tree_moves_what_is_left_of_it(tmp_path: Path) -> None:
    """Withdrawn, and there again in the same epoch: (A ⋈ B) is now joined at a later stage, and its rows are dead."""
    deep, bushy = "((((A ⋈ B) ⋈ C) ⋈ D) ⋈ E)", "((A ⋈ B) ⋈ (C ⋈ (D ⋈ E)))"
    harness = QueryHarness(tmp_path, dict.fromkeys("ABCDE", SCHEMA), {"base": FIVE, "q": FIVE}, slots=2)
    assert str(harness.plan.trees["q"]) == deep
    for epoch in range(2):
        harness.epoch(rows_of(epoch, "ABCDE"))
    first = stories.found(harness, "q")
    harness.withdraw("q")
    harness._statistics = stories.Statistics(dict(zip("ABCDE", (0.01, 500.0, 500.0, 1.0, 1.0), strict=True)))
    harness.submit("q", FIVE)
    assert [str(harness.plan.trees[name]) for name in ("base", "q")] == [deep, bushy]
    left = [segment for segment in harness.manifest.segments if segment.store == "q:(A⋈B)"]
    assert {segment.stage for segment in left} == {2}
    for epoch in range(2, 4):
        harness.epoch(rows_of(epoch, "ABCDE"))
        check_places(harness)
    assert stories.found(harness, "base") == results_of(range(4), "ABCDE")
    assert stories.found(harness, "q") == first + results_of(range(2, 4), "ABCDE")


def test_explain_progress_and_braid_state_show_the_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    braid = Braid(capsys, monkeypatch)
    harness = QueryHarness(tmp_path, dict.fromkeys("ABC", SCHEMA), {"q": CHAIN}, slots=2, groups=4)
    harness.epoch(rows_of(0, "ABC"))
    moved = harness.manifest.directory
    for group in moved.of_slot(1, stage=1):
        moved = moved.move(group.id, 0)
    harness.restart(directory=moved)
    harness.epoch(rows_of(1, "ABC"))
    shown = [(one.stage, one.groups, one.slots) for one in harness.runner.progress[-1].stages]
    assert shown == [("1", 4, 2), ("2", 4, 1)]
    assert list(explain_stages(harness.plan.stores, harness.manifest, 4, 2)) == [
        "  stage 1: 4 groups of its own over 2 slots; A[CAST(k AS bigint)], B[CAST(k AS bigint)]",
        "  stage 2: 4 groups of its own over 1 slot; q:(A⋈B), C[CAST(j AS bigint)]",
    ]
    told = json.loads(braid("state", tmp_path / "ck", "--json").out)
    assert (told["groups"], [one["groups"] for one in told["per_slot"]]) == (8, [6, 2])
    assert [(one["stage"], one["per_slot"]) for one in told["stages"]] == [("1", [2, 2]), ("2", [4, 0])]
    assert sum(one["rows"] for one in told["stages"]) == told["rows"] == sum(one["rows"] for one in told["per_slot"])
    text = braid("state", tmp_path / "ck").out
    assert "2 with 8 groups in 2 stages" in text
    assert ["2", "4", "1", "4"] in [line.split()[:4] for line in text.splitlines()]
