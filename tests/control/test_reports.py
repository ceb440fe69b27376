"""Reports cross from worker to driver: whatever a slot says arrives as it was said, and a failure is raised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from braidstream.errors import DamagedState, RunError
from braidstream.model.parts import Part, Segment
from braidstream.model.reports import CleanUpReport, Failure, Report, SlotReport, Tally, decoded, encoded, slot_reports
from tests.scale import examples
from tests.state.values import values

SETTINGS = settings(max_examples=examples(100), deadline=None)


@SETTINGS
@given(values(SlotReport | CleanUpReport))
def test_a_report_arrives_as_it_was_given(report: Report) -> None:
    assert decoded([encoded(report)]) == [report]


@SETTINGS
@given(values(Tally))
def test_a_tally_arrives_as_it_was_given(tally: Tally) -> None:
    assert Tally.unpack(tally.pack()) == tally


def test_prefixes_of_more_than_64_bits_arrive() -> None:
    """A prefix holds the stage above the leading bits of a hash, at most all 64 of them."""
    parts = (Part((3 << 64) | 5, 64, 1), Part((1 << 64) - 1, 64, 2, 1))
    segment = Segment("a", "R", 3, 10, 0, 1, 2, 0, 0, parts, given=((1 << 64) - 1,))
    report = SlotReport(slot=0, executor="", stage=3, adopted={2: (segment,)})
    assert decoded([encoded(report)]) == [report]


@pytest.mark.parametrize(
    "error",
    [RunError("the disk is full", "room", "make room"), DamagedState("segments/a", "this segment is missing")],
    ids=["failed", "damaged"],
)
def test_a_failure_is_raised_as_the_error_that_it_was(error: RunError) -> None:
    report = encoded(SlotReport(slot=0, executor="", stage=0))
    with pytest.raises(type(error)) as caught:
        decoded([report, encoded(Failure.of(1, error)), report])
    assert caught.value.args == error.args


def test_numbers_of_numpy_arrive_as_numbers() -> None:
    """They are floats and integers to the type checker, and to `json` the floats were."""
    report = SlotReport(slot=0, executor="", stage=0, rows=np.int64(3), busy_s=np.float64(0.5))  # type: ignore[arg-type]
    assert decoded([encoded(report)]) == [SlotReport(slot=0, executor="", stage=0, rows=3, busy_s=0.5)]


def test_clean_ups_are_told_apart() -> None:
    reports = decoded([encoded(SlotReport(slot=1, executor="", stage=0)), encoded(CleanUpReport(slot=2, executor=""))])
    assert [report.slot for report in slot_reports(reports)] == [1]
