"""Rates of streams, measured epoch by epoch."""

from __future__ import annotations

import pytest

from braidstream.control.rates import paced, rates_of

S = 1_000_000


def after(epochs: list[tuple[int, int]]) -> float | None:
    """The rate after epochs of (newest time, rows) of one stream."""
    known: dict[str, list[float]] = {}
    before: dict[str, int] = {}
    for time, rows in epochs:
        newest = {"R": max(time, before.get("R", time))}
        known = paced(known, before, newest, {"R": rows})
        before = newest
    return rates_of(known).get("R")


@pytest.mark.parametrize(
    ("epochs", "rate"),
    [
        ([(0, 5)], None),
        ([(0, 5), (2 * S, 100), (4 * S, 100)], 50.0),
        ([(0, 5), (2 * S, 100), (2 * S, 0), (4 * S, 100)], 50.0),
        ([(0, 5), (1 * S, 50), (0, 50), (4 * S, 100)], 48.7),
        ([(7, 1), (7, 9)], None),
    ],
    ids=[
        "one epoch says nothing",
        "a constant rate",
        "an epoch without rows in which no time passes counts nothing",
        "rows that come late in time count with the time that passes next",
        "time that stands still gives no rate",
    ],
)
def test_the_rate_is_rows_by_event_time(epochs: list[tuple[int, int]], rate: float | None) -> None:
    assert after(epochs) == (rate if rate is None else pytest.approx(rate, rel=0.01))


def test_a_change_of_the_rate_is_followed() -> None:
    epochs = [(i * S, 100) for i in range(30)] + [((30 + i) * S, 400) for i in range(30)]
    rate = after(epochs)
    assert rate is not None
    assert 370 < rate <= 400
