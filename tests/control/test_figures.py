"""Figures that wait for a reorganization: their small form says the same, and survives JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from braidstream.control.load import observe
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import (
    GroupFigures,
    SlotFigures,
    figures_from_rows,
    figures_to_rows,
    folded,
)
from braidstream.model.group_measures import GroupMeasures

N_SLOTS, N_GROUPS = 3, 6
DIRECTORY = Directory.of(N_GROUPS, N_SLOTS)
counts = st.integers(0, 1000)
seconds = st.integers(0, 64).map(lambda n: n / 8)  # sums of these are exact in any order


@st.composite
def one_report(draw: st.DrawFn, slot: int, epoch: int) -> SlotFigures:
    parts = tuple(
        GroupFigures(g.id, draw(counts), draw(counts), draw(counts), draw(counts), draw(seconds))
        for g in DIRECTORY.of_slot(slot)
    )
    totals = [sum(getattr(p, name) for p in parts) for name in ("rows", "matches", "stored_bytes", "busy_s")]
    backlog = draw(st.none() | counts)
    return SlotFigures(slot, epoch, *totals, parts, f"executor {slot}", backlog, backlog)


@st.composite
def reports(draw: st.DrawFn) -> list[SlotFigures]:
    first, n_epochs = draw(st.integers(0, 50)), draw(st.integers(1, 4))
    return [draw(one_report(slot, first + e)) for e in range(n_epochs) for slot in range(N_SLOTS)]


@given(reports(), st.none() | st.floats(0.1, 10))
def test_the_controller_sees_no_difference_in_folded_reports(some: list[SlotFigures], epoch_s: float | None) -> None:
    settings = Settings(epoch_s=epoch_s)
    views = [observe(reports, DIRECTORY, N_SLOTS, GroupMeasures(), 0.0, settings) for reports in (folded(some), some)]
    assert views[0] == views[1]


@given(reports())
def test_folding_epoch_by_epoch_is_folding_at_once_and_keeps_each_group_once(some: list[SlotFigures]) -> None:
    step: list[SlotFigures] = []
    for one in some:
        step = folded([*step, one])
    assert step == folded(some)
    assert sorted(part.group for one in step for part in one.groups) == list(range(N_GROUPS))


@given(reports())
def test_rows_without_names_come_back_from_json(some: list[SlotFigures]) -> None:
    assert figures_from_rows(json.loads(json.dumps(figures_to_rows(some)))) == some
