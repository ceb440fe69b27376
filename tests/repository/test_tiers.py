"""What `make test` and `make test-all` take of the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import scale
from tests.scale import examples, some

TESTS = Path(__file__).parents[1]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SCALE", 0.2)


@pytest.fixture
def all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SCALE", 1.0)


def test_a_share_of_many_examples_is_taken_and_all_of_a_few(few: None) -> None:
    assert [examples(n) for n in (300, 100, 12, 3)] == [60, 20, 5, 3]
    assert [examples(n, least=2) for n in (8, 2, 1)] == [2, 2, 1]


def test_a_share_of_a_list_is_spread_over_all_of_it(few: None) -> None:
    assert some("abcde", least=2) == ["b", "d"]
    assert some("abcde", least=1) == ["c"]
    assert some("ab", least=5) == ["a", "b"]


def test_at_full_scale_nothing_is_left_out(all_of_them: None) -> None:
    assert [examples(n) for n in (300, 12, 3)] == [300, 12, 3]
    assert some("abcde", least=1) == list("abcde")


def test_numbers_of_examples_are_scaled_where_they_are_not_counted() -> None:
    bare = re.compile(r"max_examples=\d")
    unscaled = [
        f"{file.relative_to(TESTS)}:{number}: {line.strip()}"
        for file in sorted(TESTS.rglob("test_*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if bare.search(line) and "derandomize=True" not in line and file != Path(__file__)
    ]
    assert unscaled == [], "write max_examples=examples(n), from tests.scale"
