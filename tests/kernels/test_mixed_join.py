"""Keys on grids, pushed state, moved groups and crashes together: the output equals the oracle, each result once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.lab.testing.strategies import Case, many_streams, two_streams
from braidstream.model.faults import POINTS
from braidstream.state.generations import held_groups
from tests.backends import expected, multiset, tables
from tests.kernels.test_grid_join import regridder
from tests.kernels.test_reorganized_join import restless
from tests.kernels.test_spilled_join import GROUPS, SEEDS, SPILLS, ended_with_faults, often_compacted
from tests.kernels.test_streams_join import MANY, SLOTS, harness_of, leftovers, on_one_key, with_a_fault
from tests.scale import examples


@settings(MANY, max_examples=examples(100))
@given(
    two_streams(max_epochs=10) | many_streams(min_streams=3, max_streams=3, max_rows=8).filter(on_one_key),
    SLOTS,
    GROUPS,
    SPILLS,
    SEEDS,
    st.data(),
)
def test_grids_and_pushed_state_together(
    case: Case, slots: int, groups: int, spills: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    changing = {"controller": restless(seed), "regridder": regridder(case, seed), **spills}
    with harness_of(case, slots, groups, **changing) as harness, often_compacted():
        for i, epoch in enumerate(case.epochs):
            if data.draw(st.booleans(), label="fails"):
                with_a_fault(harness, data.draw(st.sampled_from(POINTS)), i, tables(case, epoch))
                harness.restart(data.draw(st.none() | SLOTS, label="slots"))
            if harness.manifest.epoch < i:
                harness.epoch(tables(case, epoch))
        ended_with_faults(harness, len(case.epochs) - 1, data)
        harness.finish()
        assert multiset(harness.results("q")) == multiset(expected(case))
        assert leftovers(harness) == []


def test_these_cases_have_grids_beside_pushed_state() -> None:
    """Not a property of the engine: keys get grids while other groups wait for clean-up."""
    seen: Counter[str] = Counter()

    @settings(MANY, max_examples=100, derandomize=True)
    @given(two_streams(max_epochs=10), SLOTS, st.integers(4, 16), SPILLS, SEEDS)
    def count(case: Case, slots: int, groups: int, spills: dict[str, Any], seed: int) -> None:
        if seen["both"] > 3:
            return
        with harness_of(case, slots, groups, regridder=regridder(case, seed), **spills) as harness, often_compacted():
            for epoch in case.epochs:
                harness.epoch(tables(case, epoch))
                seen["both"] += bool(harness.manifest.grids and held_groups(harness.manifest))

    count()
    assert seen["both"] > 3
