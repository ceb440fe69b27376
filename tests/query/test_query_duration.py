"""Lengths of time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidstream.errors import InputError
from braidstream.query import describe_duration, parse_duration

GOOD = [
    ("10 seconds", 10_000_000),
    ("1 second", 1_000_000),
    ("10 min", 600_000_000),
    ("10min", 600_000_000),
    ("0.5 SECONDS", 500_000),
    (".25 ms", 250),
    ("2. h", 7_200_000_000),
    ("1 day", 86_400_000_000),
    ("2 weeks", 1_209_600_000_000),
    ("3 microseconds", 3),
    ("0 seconds", 0),
    (" 1 hour  30 minutes ", 5_400_000_000),
    ("+5 s", 5_000_000),
    (timedelta(minutes=1, microseconds=1), 60_000_001),
]

WRONG = [
    ("", "is missing", "10 seconds"),
    ("10", "has no unit", "write 10 seconds"),
    ("-10 seconds", "negative", "write 10"),
    ("1 hour -1 s", "negative", "write 1"),
    ("seconds", "does not begin with a number", "10 seconds"),
    ("10 secnods", "unknown unit 'secnods'", "did you mean 'seconds'?"),
    ("1 month", "the length of a month varies", "30 days"),
    ("0.5 microseconds", "no whole number of microseconds", "round"),
    ("10000000000000 days", "too long", "unbounded"),
    (timedelta(seconds=-1), "negative", "timedelta"),
    (10, "not a length of time", '"10 seconds"'),
    (None, "not a length of time", '"10 seconds"'),
]


@pytest.mark.parametrize(("written", "expected_us"), GOOD, ids=str)
def test_a_length_is_measured_in_microseconds(written: str | timedelta, expected_us: int) -> None:
    assert parse_duration(written) == expected_us


@pytest.mark.parametrize(("written", "wrong", "fix"), WRONG, ids=str)
def test_a_wrong_length_is_refused_with_a_hint(written: str, wrong: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration(written)
    assert wrong in caught.value.wrong
    assert caught.value.expected
    assert fix in caught.value.fix


@settings(deadline=None)
@given(st.integers(0, 10**18))
def test_a_described_length_reads_back(length_us: int) -> None:
    assert parse_duration(describe_duration(length_us)) == length_us


@settings(deadline=None)
@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=10**6)))
def test_a_timedelta_is_the_same_in_words(length: timedelta) -> None:
    assert parse_duration(length) == parse_duration(f"{length.days} days {length.seconds} s {length.microseconds} us")
