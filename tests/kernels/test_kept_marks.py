"""Marks are made once a file, when they are worth it, and what is kept has a bound."""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.kernels import kept_marks as module
from braidstream.kernels.kept_marks import kept_marks
from braidstream.kernels.loops import UNMARKED


@pytest.fixture(autouse=True)
def _empty() -> None:
    module._kept.clear()
    module._asked.clear()


class Making:
    """Counts how often marks are made."""

    def __init__(self, size: int = 10) -> None:
        self.made, self.size = 0, size

    def __call__(self) -> np.ndarray:  # type: ignore[type-arg]
        self.made += 1
        return np.full(self.size, self.made, dtype=np.uint64)


def test_a_file_is_marked_once_when_needles_enough_have_asked() -> None:
    make = Making()
    asked = [kept_marks("a", 800, 40, make) for _ in range(6)]
    assert [marks is UNMARKED for marks in asked] == [True, True, False, False, False, False]
    assert make.made == 1


def test_rows_of_no_file_are_marked_where_that_is_worth_it_at_once() -> None:
    make = Making()
    assert kept_marks("", 800, 40, make) is UNMARKED
    assert kept_marks("", 800, 100, make) is not UNMARKED
    assert kept_marks("", 800, 100, make) is not UNMARKED
    assert make.made == 2


def test_what_was_not_used_for_long_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROOM", 250)
    make = Making()
    for name in ("a", "b", "c", "a", "d", "a"):
        kept_marks(name, 8, 8, make)
    assert list(module._kept) == ["c", "d", "a"][-len(module._kept) :]
    assert make.made == 4
