"""A controller that never rests, and crashes in between: the output equals the oracle, each result once.

The engine in this process, its controller asking for random legal instructions after every epoch (Move, Split, Merge,
AddSlot, RemoveSlot). They are decided and applied where Spark's driver does it, so a crash also loses decisions.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.controller import Controller
from braidstream.control.settings import Settings
from braidstream.lab.testing.restless import Restless
from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.faults import POINTS
from braidstream.model.instructions import AddSlot, Merge, Move, RemoveSlot, Split
from tests.backends import expected, multiset, tables
from tests.kernels.test_streams_join import (
    MANY,
    SLOTS,
    crowded,
    harness_of,
    leftovers,
    often_compacted,
    on_one_key,
    with_a_fault,
)
from tests.scale import examples

GROUPS = st.integers(1, 16)


SEEDS = st.integers(0, 999)


def restless(seed: int, every: int = 1) -> Controller:
    return Controller(Settings(every=every), policies=(Restless(seed),))


@settings(MANY, max_examples=examples(100))
@given(two_streams(max_epochs=10), SLOTS, GROUPS, SEEDS, st.integers(1, 3))
def test_a_controller_that_never_rests_changes_nothing(
    case: Case, slots: int, groups: int, seed: int, every: int
) -> None:
    with harness_of(case, slots, groups, controller=restless(seed, every)) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(100))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS, st.data())
def test_nor_do_crashes_at_any_point_in_between(
    case: Case, slots: int, groups: int, seed: int, data: st.DataObject
) -> None:
    """A restart keeps the slots that the controller has reached, or asks for others."""
    with harness_of(case, slots, groups, controller=restless(seed)) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            for _ in range(data.draw(st.integers(0, 2), label="failures")):
                if harness.manifest.epoch < i:
                    with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                    harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        assert harness.manifest.epoch == len(case.epochs) - 1
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


@settings(MANY, max_examples=examples(40))
@given(many_streams(min_streams=3, max_streams=4, max_rows=8).filter(on_one_key), SLOTS, GROUPS, SEEDS)
def test_nor_with_three_and_four_streams(case: Case, slots: int, groups: int, seed: int) -> None:
    with harness_of(case, slots, groups, controller=restless(seed)) as harness, often_compacted():
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


@settings(MANY, max_examples=examples(40))
@given(two_streams(max_epochs=8), SLOTS, GROUPS, SEEDS, st.integers(1, 4))
def test_nor_when_hashes_collide(case: Case, slots: int, groups: int, seed: int, n_hashes: int) -> None:
    with (
        harness_of(case, slots, groups, hash_keys=crowded(n_hashes), controller=restless(seed)) as harness,
        often_compacted(),
    ):
        for epoch in case.epochs:
            harness.epoch(tables(case, epoch))
        assert multiset(harness.results("q")) == multiset(expected(case))


def test_the_controller_of_these_tests_issues_every_instruction() -> None:
    """Not a property of the engine: a controller that asks for little would prove little."""
    asked: Counter[type] = Counter()
    refused: list[str] = []

    @settings(MANY, max_examples=25, derandomize=True)
    @given(two_streams(max_epochs=10), SLOTS, GROUPS, SEEDS)
    def count(case: Case, slots: int, groups: int, seed: int) -> None:
        with harness_of(case, slots, groups, controller=restless(seed)) as harness:
            for epoch in case.epochs:
                harness.epoch(tables(case, epoch))
            decisions = harness.runner.flow.decider.decisions
            assert {decision.epoch for decision in decisions} == set(range(len(case.epochs)))
            asked.update(type(one) for decision in decisions for one in decision.instructions)
            refused.extend(decision.refusal for decision in decisions if not decision.is_accepted)

    count()
    assert refused == []
    assert min(asked[kind] for kind in (Move, Split, Merge, AddSlot, RemoveSlot)) >= 10, asked
