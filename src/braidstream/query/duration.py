"""Lengths of time in words: `10 seconds`, `0.5 min`, `1 hour 30 minutes`.

Windows, allowed delays and epochs are all written this way. Inside the package a length is a whole number of
microseconds, the resolution of Spark's timestamps.

Invariant: the arithmetic is exact (fractions, not floats); a length that is no whole number of microseconds is refused
rather than rounded. Months and years are refused because their length varies. Cost: linear in the text.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

from braidstream.errors import InputError, nearest

__all__ = [
    "DurationProblem",
    "describe_duration",
    "describe_signed",
    "is_signed",
    "measure",
    "parse_duration",
    "parse_signed",
]

# Longer than any data: event time (year 9999 at most) plus a window must stay inside 64 bits.
LONGEST_US = 1 << 62

_UNITS_US: dict[str, int] = {
    word: length_us
    for length_us, words in (
        (1, "us µs microsecond microseconds"),
        (1_000, "ms msec msecs millisecond milliseconds"),
        (1_000_000, "s sec secs second seconds"),
        (60_000_000, "m min mins minute minutes"),
        (3_600_000_000, "h hr hrs hour hours"),
        (86_400_000_000, "d day days"),
        (604_800_000_000, "w week weeks"),
    )
    for word in words.split()
}
_SHOWN_UNITS = ("microseconds", "milliseconds", "seconds", "minutes", "hours", "days", "weeks")
_EXPECTED = f"a number and a unit ({', '.join(_SHOWN_UNITS)})"
_VARYING = {"month": 30, "months": 30, "year": 365, "years": 365}
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_WORD = re.compile(r"[^\W\d_]+")


class DurationProblem(Exception):
    """What is wrong with a length of time, and where in its text; callers turn it into their own kind of error."""

    def __init__(self, offset: int, wrong: str, fix: str, expected: str = _EXPECTED) -> None:
        self.offset, self.wrong, self.expected, self.fix = offset, wrong, expected, fix
        super().__init__(wrong)


def parse_duration(value: str | timedelta) -> int:
    """The length in microseconds. Anything else than a text with units or a timedelta is an InputError."""
    if isinstance(value, timedelta):
        return _checked_timedelta(value)
    if not isinstance(value, str):
        fix = f'write "{value} seconds"' if isinstance(value, (int, float)) else 'write "10 seconds"'
        raise InputError(f"{value!r} is not a length of time", f"{_EXPECTED}, or a timedelta", fix)
    try:
        return measure(value)
    except DurationProblem as problem:
        raise InputError(f"{value!r}: {problem.wrong}", problem.expected, problem.fix) from None


def is_signed(value: object) -> bool:
    """Whether a length says in which direction: `-5 seconds`, `+1 minute`, a negative timedelta."""
    if isinstance(value, timedelta):
        return value < timedelta(0)
    return isinstance(value, str) and value.lstrip().startswith(("-", "+"))


def parse_signed(value: str | timedelta) -> int:
    """A length in microseconds that may be negative."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not is_signed(value):
        return parse_duration(value)
    stripped = value.lstrip()
    return parse_duration(stripped[1:]) * (-1 if stripped.startswith("-") else 1)


def describe_signed(us: int) -> str:
    """The same as `describe_duration`, of a length that may be negative."""
    return f"-{describe_duration(-us)}" if us < 0 else describe_duration(us)


def measure(text: str) -> int:
    """The length that `text` says, in microseconds; raises DurationProblem with the place inside `text`."""
    total, at = Fraction(0), _skip(text, 0)
    if at == len(text):
        raise DurationProblem(0, "the length of time is missing", "write 10 seconds")
    while at < len(text):
        length, at = _term(text, at)
        total += length
    if total.denominator != 1:
        raise DurationProblem(0, f"{text.strip()} is no whole number of microseconds", "round it", "whole microseconds")
    if total > LONGEST_US:
        raise DurationProblem(0, f"{text.strip()} is too long", "leave the time unbounded", "less than 146,000 years")
    return int(total)


def describe_duration(us: int) -> str:
    """A text that `measure` reads back as `us`, in the largest unit that divides it."""
    for unit in reversed(_SHOWN_UNITS):
        count, rest = divmod(us, _UNITS_US[unit])
        if us and not rest:
            return f"{count} {unit if count != 1 else unit[:-1]}"
    return "0 seconds"


def _term(text: str, at: int) -> tuple[Fraction, int]:
    """One `number unit` of the text, and the offset of what follows."""
    number = _NUMBER.match(text, at)
    if not number:
        rest = text[at:].strip()
        raise DurationProblem(at, f"{rest!r} does not begin with a number", "write 10 seconds")
    if number[0].startswith("-"):
        fix = f"write {number[0][1:]}, or 0 for the same instant"
        raise DurationProblem(at, f"the length of time {number[0]} is negative", fix, "a length of 0 or more")
    word = _WORD.match(text, _skip(text, number.end()))
    if not word:
        raise DurationProblem(at, f"{number[0]} has no unit", f"write {number[0]} seconds")
    return Fraction(number[0]) * _unit_us(word), _skip(text, word.end())


def _unit_us(word: re.Match[str]) -> int:
    unit = word[0].lower()
    if unit in _VARYING:
        fix = f"write days: a {unit.removesuffix('s')} is about {_VARYING[unit]} days"
        raise DurationProblem(word.start(), f"the length of a {unit.removesuffix('s')} varies", fix)
    if unit not in _UNITS_US:
        raise DurationProblem(word.start(), f"unknown unit {word[0]!r}", nearest(unit, _SHOWN_UNITS))
    return _UNITS_US[unit]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _checked_timedelta(value: timedelta) -> int:
    if value < timedelta(0):
        raise InputError(f"the length of time {value} is negative", "a length of 0 or more", f"write {-value!r}")
    return value // timedelta(microseconds=1)
