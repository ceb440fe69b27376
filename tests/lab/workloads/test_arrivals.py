"""Arrivals have the counts, the spread and the rates that their process says, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.errors import InputError
from braidstream.lab.workloads import Schedule, constant_arrivals, poisson_arrivals

SECOND = 1_000_000


def counts_per_second(times: np.ndarray, seconds: int) -> np.ndarray:
    return np.bincount(times // SECOND, minlength=seconds)


def test_poisson_counts_have_the_mean_and_the_variance_of_the_rate() -> None:
    rate, seconds = 200, 4000
    counts = counts_per_second(poisson_arrivals(rate, seed=3, seconds=seconds), seconds)
    assert counts.mean() == pytest.approx(rate, abs=5 * (rate / seconds) ** 0.5)
    # The variance of a sample variance of a Poisson count is about 2 rate^2 / n.
    assert counts.var() == pytest.approx(rate, abs=5 * rate * (2 / seconds) ** 0.5)


def test_poisson_gaps_are_exponential() -> None:
    n = 100_000
    gaps = np.sort(np.diff(poisson_arrivals(10, seed=5, n=n + 1)) / SECOND)
    cumulative = 1 - np.exp(-10 * gaps)
    largest = np.abs(cumulative - np.arange(1, n + 1) / n).max()
    assert largest < 1.95 / n**0.5  # Kolmogorov-Smirnov at 0.001


def test_poisson_times_are_int64_and_never_decrease() -> None:
    times = poisson_arrivals(2_000_000, seed=1, n=100_000, start_us=7 * SECOND)
    assert times.dtype == np.int64
    assert len(times) == 100_000
    assert times[0] >= 7 * SECOND
    assert (np.diff(times) >= 0).all()


def test_seconds_end_a_stream_before_their_end() -> None:
    times = poisson_arrivals(1000, seed=9, seconds=2.5, start_us=100)
    assert 100 <= times[0] < times[-1] < 100 + 2.5 * SECOND
    assert times[-1] > 100 + 2.4 * SECOND


def test_the_same_seed_gives_the_same_times_and_another_seed_others() -> None:
    first = poisson_arrivals(100, seed=1, n=1000)
    assert (first == poisson_arrivals(100, seed=1, n=1000)).all()
    assert (first != poisson_arrivals(100, seed=2, n=1000)).any()


def test_a_shorter_stream_is_a_prefix_of_a_longer_one() -> None:
    longer = poisson_arrivals(100, seed=1, seconds=60)
    shorter = poisson_arrivals(100, seed=1, n=1000)
    assert (longer[:1000] == shorter).all()


def test_constant_arrivals_are_evenly_apart() -> None:
    assert constant_arrivals(1000, n=4000).tolist() == list(range(0, 4 * SECOND, 1000))
    assert constant_arrivals(4, seconds=1, start_us=5).tolist() == [5, 250_005, 500_005, 750_005]


def test_a_schedule_rises_and_falls_and_begins_again() -> None:
    #  rate   100       400       0      100
    #       |-------|---------|-------|-------
    #       0       2         3       5      7 s
    schedule = Schedule(((2, 100), (1, 400), (2, 0)))
    assert counts_per_second(constant_arrivals(schedule, seconds=7), 7).tolist() == [100, 100, 400, 0, 0, 100, 100]
    assert schedule.expected(7) == 800


def test_poisson_arrivals_follow_a_schedule() -> None:
    schedule = Schedule(((10, 1000), (10, 4000), (10, 0)))
    counts = counts_per_second(poisson_arrivals(schedule, seed=2, seconds=60), 60).reshape(2, 3, 10).sum(axis=(0, 2))
    assert counts[0] == pytest.approx(20_000, abs=5 * 20_000**0.5)
    assert counts[1] == pytest.approx(80_000, abs=5 * 80_000**0.5)
    assert counts[2] == 0


def test_seconds_and_expected_are_inverse() -> None:
    schedule = Schedule(((2, 100), (1, 400), (3, 10)))
    expected = np.linspace(0.5, 5000, 777)
    back = [schedule.expected(seconds) for seconds in schedule.seconds_at(expected)]
    np.testing.assert_allclose(back, expected)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: poisson_arrivals(0, seed=1, n=1), "the rate is 0"),
        (lambda: poisson_arrivals(float("nan"), seed=1, n=1), "the rate is nan"),
        (lambda: poisson_arrivals(5, seed=1), "n is None and seconds is None"),
        (lambda: constant_arrivals(5, n=1, seconds=1), "n is 1 and seconds is 1"),
        (lambda: constant_arrivals(5, n=-1), "the length of the stream is -1"),
        (lambda: Schedule(()), "pieces of the schedule"),
        (lambda: Schedule(((0, 5),)), "pieces of the schedule"),
        (lambda: Schedule(((1, -5),)), "pieces of the schedule"),
        (lambda: Schedule(((1, 0),)), "no piece of the schedule"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(call, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()
