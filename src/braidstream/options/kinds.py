"""What an option may be: each kind of value with its range, how it is written, and what is said of a wrong one.

A value is checked here whatever way it came: an argument of `Flow(...)`, a line of a job file, a setting of the
controller. A job file has no `timedelta` and no `None`, and says what a bare number is in (`is_plain`); everything else
is the same for all.

Invariant: `problem` is None exactly for what is accepted; nothing is converted. Cost: microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from numbers import Integral, Real
from os import PathLike
from typing import Any

from braidstream.errors import InputError, nearest
from braidstream.options.size_text import EXPECTED, parse_size

__all__ = ["Choice", "Count", "Counts", "Duration", "Flag", "Inner", "Kind", "Number", "Size", "Text", "Texts", "Words"]

Problem = tuple[str, str, str]
"""What is wrong (after the option's name), what was expected, and the likely fix if it is not the example."""


class Kind:
    """A kind of value."""

    expected = "a text"
    """What a value is, in the words of a message and of the reference."""

    def problem(self, value: Any) -> Problem | None:
        """What is wrong with a value; None if nothing is."""
        raise NotImplementedError

    def is_plain(self, value: Any) -> bool:
        """Whether a job file may say it so."""
        del value
        return True

    def _is(self, value: Any, fix: str = "") -> Problem:
        return f" is {value!r}", self.expected, fix


@dataclass(frozen=True)
class Text(Kind):
    """A text, which may be empty where it need not be there."""

    expected: str = "a text in quotes"
    is_path: bool = False
    is_needed: bool = False

    def problem(self, value: Any) -> Problem | None:
        """In Python, a path may be an object that is one."""
        is_text = isinstance(value, str) or (self.is_path and isinstance(value, PathLike))
        return None if is_text and (str(value) or not self.is_needed) else self._is(value)

    def is_plain(self, value: Any) -> bool:
        """A text."""
        return isinstance(value, str)


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    expected: str = "true or false"

    def problem(self, value: Any) -> Problem | None:
        """A truth value."""
        return None if isinstance(value, bool) else self._is(value)


@dataclass(frozen=True)
class Count(Kind):
    """A whole number between two others."""

    least: int = 1
    most: int | None = None

    @property
    def expected(self) -> str:  # type: ignore[override]
        """With its range."""
        return f"a whole number {f'of at least {self.least}' if self.most is None else self._between}"

    @property
    def _between(self) -> str:
        return f"from {self.least} to {self.most}"

    def problem(self, value: Any) -> Problem | None:
        """No truth value, and not 2.0."""
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        return (
            None if is_whole and self.least <= value <= (inf if self.most is None else self.most) else self._is(value)
        )


@dataclass(frozen=True)
class Number(Kind):
    """A number between two others, each of which it may be or not: `least` or `above`, `most` or `below`."""

    least: float = -inf
    above: float = -inf
    most: float = inf
    below: float = inf

    @property
    def expected(self) -> str:  # type: ignore[override]
        """With its range."""
        limits = (("from", self.least), ("above", self.above), ("at most", self.most), ("below", self.below))
        return f"a number {', '.join(f'{word} {limit:g}' for word, limit in limits if abs(limit) < inf)}"

    def problem(self, value: Any) -> Problem | None:
        """No truth value, and not NaN."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        within = is_number and self.least <= value <= self.most and self.above < value < self.below
        return None if within or (is_number and value == inf == self.most == self.below) else self._is(value)


@dataclass(frozen=True)
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:  # type: ignore[override]
        """All of them."""
        return f"one of {', '.join(self.words)}"

    def problem(self, value: Any) -> Problem | None:
        """The nearest word is the likely fix."""
        is_word = isinstance(value, str) and value in self.words
        return None if is_word else self._is(value, nearest(str(value), self.words))


@dataclass(frozen=True)
class Size(Kind):
    """A size of memory; in Python also a number of bytes."""

    expected: str = EXPECTED

    def problem(self, value: Any) -> Problem | None:
        """At least a byte."""
        try:
            return None if parse_size(value) > 0 else self._is(value)
        except InputError as error:
            return f": {error.wrong}", error.expected, error.fix

    def is_plain(self, value: Any) -> bool:
        """With its unit."""
        return isinstance(value, str)


@dataclass(frozen=True)
class Duration(Kind):
    """A length of time, or one of some words; in Python also a timedelta."""

    words: tuple[str, ...] = ()

    @property
    def expected(self) -> str:  # type: ignore[override]
        """With the words."""
        return ", or ".join(["a length of time", *(f'"{word}"' for word in self.words)])

    def problem(self, value: Any) -> Problem | None:
        """What the reader of lengths of time says of it."""
        from braidstream.query.duration import parse_duration  # noqa: PLC0415  (brings the parser of queries along)

        try:
            if value not in self.words:
                parse_duration(value)
        except InputError as error:
            return f": {error.wrong}", self.expected if self.words else error.expected, error.fix
        return None

    def is_plain(self, value: Any) -> bool:
        """A text."""
        return isinstance(value, str)


@dataclass(frozen=True)
class Counts(Kind):
    """Several whole numbers."""

    expected: str = "a list of whole numbers of at least 1"

    def problem(self, value: Any) -> Problem | None:
        """Each of them a count."""
        is_list = isinstance(value, (list, tuple))
        if is_list and not any(Count().problem(one) for one in value):
            return None
        return self._is(list(value) if is_list else value)


@dataclass(frozen=True)
class Texts(Kind):
    """Several texts, each one of some words where there are any."""

    words: tuple[str, ...] = ()

    @property
    def expected(self) -> str:  # type: ignore[override]
        """With the words."""
        return f"a list of {', '.join(self.words)}" if self.words else "a list of texts"

    def problem(self, value: Any) -> Problem | None:
        """Each of them a text."""
        is_list = isinstance(value, (list, tuple))
        if is_list and all(isinstance(one, str) and (not self.words or one in self.words) for one in value):
            return None
        return self._is(list(value) if is_list else value)


@dataclass(frozen=True)
class Words(Kind):
    """A table of settings of Spark's, whose names and values are Spark's matter."""

    expected: str = "a table"

    def problem(self, value: Any) -> Problem | None:
        """A table."""
        return None if isinstance(value, Mapping) else self._is(value)


@dataclass(frozen=True)
class Inner(Kind):
    """A table of options inside a table."""

    form: type
    expected: str = "a table with a format"

    def problem(self, value: Any) -> Problem | None:
        """What was made of the table."""
        return None if isinstance(value, (self.form, Mapping)) else self._is(value)
