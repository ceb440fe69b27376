"""Figures as columns say what they say as objects, and those that wait for a reorganization lose nothing by it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.control.load import View, observe
from braidstream.control.settings import Settings
from braidstream.model.directory import Directory
from braidstream.model.figures import GroupFigures, SlotFigures, StoredColumns, WaitingFigures
from braidstream.model.group_measures import GroupMeasures
from tests.control.plain_load import plainly_observed
from tests.scale import examples

N_SLOTS, N_GROUPS = 3, 6
DIRECTORY = Directory.of(N_GROUPS, N_SLOTS)
SETTINGS = settings(max_examples=examples(100), deadline=None)
counts = st.integers(0, 1000)
seconds = st.integers(0, 64).map(lambda n: n / 8)  # sums of these are exact in any order


@st.composite
def one_report(draw: st.DrawFn, slot: int, epoch: int) -> SlotFigures:
    parts = tuple(
        GroupFigures(g.id, draw(counts), draw(counts), 0, draw(counts), draw(seconds), draw(counts))
        for g in DIRECTORY.of_slot(slot)
    )
    totals = [sum(getattr(p, name) for p in parts) for name in ("rows", "matches", "stored_bytes", "busy_s")]
    return SlotFigures(slot, epoch, *totals, parts, f"executor {slot}", work_s=draw(st.none() | seconds))


@st.composite
def reports(draw: st.DrawFn) -> list[SlotFigures]:
    first, n_epochs = draw(st.integers(0, 50)), draw(st.integers(1, 4))
    return [draw(one_report(slot, first + e)) for e in range(n_epochs) for slot in range(N_SLOTS)]


@st.composite
def strange_reports(draw: st.DrawFn) -> list[SlotFigures]:
    """Of groups that are elsewhere or unknown, of slots that are gone, of times not told apart, with backlogs."""
    found = []
    for _ in range(draw(st.integers(0, 8))):
        slot, epoch = draw(st.integers(0, N_SLOTS)), draw(st.integers(0, 3))
        ids = draw(st.lists(st.integers(0, N_GROUPS + 1), unique=True, max_size=4))
        told = draw(st.booleans())
        parts = tuple(
            GroupFigures(g, draw(counts), draw(counts), 0, draw(counts), draw(seconds) * told, draw(counts))
            for g in ids
        )
        rest = (draw(counts), draw(counts), draw(counts), draw(seconds))
        backlogs = (draw(st.none() | counts), draw(st.none() | counts))
        found.append(SlotFigures(slot, epoch, *rest, parts, f"at {epoch}", *backlogs, draw(st.none() | seconds)))
    return found


def without_noise(view: View) -> View:
    """A deviation, and the seconds of groups, are summed in another order there."""
    groups = {group: replace(load, demand_s=round(load.demand_s, 12)) for group, load in view.groups.items()}
    return replace(view, slots=tuple(replace(slot, noise_s=0.0) for slot in view.slots), groups=groups)


@SETTINGS
@given(reports() | strange_reports(), st.none() | st.floats(0.1, 10))
def test_the_controller_sees_in_columns_what_it_sees_in_objects(some: list[SlotFigures], epoch_s: float | None) -> None:
    settings = Settings(epoch_s=epoch_s)
    seen, expected = (
        look(some, DIRECTORY, N_SLOTS, GroupMeasures(), 0.0, settings) for look in (observe, plainly_observed)
    )
    assert without_noise(seen) == without_noise(expected)
    assert [slot.noise_s for slot in seen.slots] == pytest.approx([slot.noise_s for slot in expected.slots])
    assert [seen.of_slot(slot) for slot in range(N_SLOTS)] == [
        [seen.groups[group.id] for group in DIRECTORY.of_slot(slot)] for slot in range(N_SLOTS)
    ]
    held = [sum(load.stored_bytes + load.inactive_bytes for load in seen.of_slot(slot)) for slot in range(N_SLOTS)]
    assert seen.whole_bytes.tolist() == held


@SETTINGS
@given(reports(), st.none() | st.floats(0.1, 10))
def test_the_controller_sees_no_difference_in_figures_that_have_waited(
    some: list[SlotFigures], epoch_s: float | None
) -> None:
    waiting, last = WaitingFigures(), some[-N_SLOTS:]
    for at in range(0, len(some), N_SLOTS):
        waiting = waiting.plus(WaitingFigures.of(some[at : at + N_SLOTS]))
        waiting = msgspec.json.decode(msgspec.json.encode(waiting), type=WaitingFigures)
    parts = sorted((part for one in last for part in one.groups), key=lambda part: part.group)
    ids, active, inactive = np.array([(p.group, p.stored_bytes, p.inactive_bytes) for p in parts]).T
    columns = waiting.columns(StoredColumns(ids, active, inactive), {}, [one.executor for one in last])
    settings = Settings(epoch_s=epoch_s)
    views = [observe(told, DIRECTORY, N_SLOTS, GroupMeasures(), 0.0, settings) for told in (columns, some)]
    assert views[0] == views[1]


@SETTINGS
@given(reports())
def test_figures_wait_the_same_whether_they_come_epoch_by_epoch_or_at_once(some: list[SlotFigures]) -> None:
    step = WaitingFigures()
    for at in range(0, len(some), N_SLOTS):
        step = step.plus(WaitingFigures.of(some[at : at + N_SLOTS]))
    assert step == WaitingFigures.of(some)
    assert sorted(part.group for one in step.figures() for part in one.groups) == list(range(N_GROUPS))
    assert [(one.slot, one.epoch, one.rows, one.busy_s, one.work_s) for one in step.figures()] == [
        (one.slot, one.epoch, one.rows, one.busy_s, one.work_s) for one in some
    ]


@SETTINGS
@given(reports(), st.integers(0, 60))
def test_figures_of_another_reorganization_epoch_are_left_out(some: list[SlotFigures], first: int) -> None:
    left = WaitingFigures.of(some).since(first)
    assert [(one.slot, one.epoch, one.rows) for one in left.figures()] == [
        (one.slot, one.epoch, one.rows) for one in some if one.epoch >= first
    ]


def test_a_group_that_moved_while_figures_wait_is_counted_where_it_is() -> None:
    """What the slot before had to do for it says nothing of the slot that it is at now."""
    first = WaitingFigures.of([SlotFigures(0, 0, 7, 0, 0, 1.0, (GroupFigures(5, 7, 0, 0, 0, 1.0),)), _idle(1, 0)])
    second = WaitingFigures.of([_idle(0, 1), SlotFigures(1, 1, 3, 0, 0, 0.5, (GroupFigures(5, 3, 0, 0, 0, 0.5),))])
    (only,) = (part for one in first.plus(second).figures() for part in one.groups)
    assert only == GroupFigures(5, 3, 0, 0, 0, 0.5)


def test_what_slots_hold_beside_groups_counts_as_theirs() -> None:
    waiting = WaitingFigures.of([_idle(0, 3), SlotFigures(1, 3, 1, 0, 0, 1.0, (GroupFigures(4, 1, 0, 0, 0, 1.0),))])
    stored = StoredColumns(np.array([4, 9]), np.array([100, 7]), np.array([30, 0]))
    columns = waiting.columns(stored, {0: 11, 1: 5}, ["a", "b"])
    assert (columns.bytes.tolist(), columns.executors) == ([11, 105], ["a", "b"])
    assert (columns.stored_bytes.tolist(), columns.inactive_bytes.tolist()) == ([100], [30])


def _idle(slot: int, epoch: int) -> SlotFigures:
    return SlotFigures(slot, epoch, 0, 0, 0, 0.0, ())
