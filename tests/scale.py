"""How much the tests draw: the numbers in them are for acceptance; `make test` and `make test-all` take a share.

A test says `max_examples=examples(100)` or `for seed in range(examples(200))`; a bare number only where the test counts
what was drawn, since its bounds belong to that number. tests/conftest.py sets `SCALE` (`--examples-scale`) before any
test is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
SCALE = 1.0
LEAST = 5


def examples(n: int, least: int = LEAST) -> int:
    """The share of `n` this run takes: at least `least`, and at scale 1 all `n` of them."""
    return max(min(n, least), round(n * SCALE))


def some(cases: Sequence[T], least: int) -> list[T]:
    """The share of a list this run takes, spread over all of it."""
    n = examples(len(cases), least)
    return [cases[(2 * i + 1) * len(cases) // (2 * n)] for i in range(n)]
