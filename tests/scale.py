"""How much the tests draw: the numbers in them are for `make test-all`, and `make test` takes a share of each.

A test says `max_examples=examples(100)` or `for seed in range(examples(200))`; a bare number only where the test counts
what was drawn, since its bounds belong to that number. tests/conftest.py sets `SCALE` (`--examples-scale`) before any
test is imported.
"""

from __future__ import annotations

SCALE = 1.0
LEAST = 5


def examples(n: int, least: int = LEAST) -> int:
    """The share of `n` this run takes: at least `least`, and at scale 1 all `n` of them."""
    return max(min(n, least), round(n * SCALE))
