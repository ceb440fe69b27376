"""Shedding by plan: how many tuples there are on average, and which are taken beside the sample."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from braidstream.control.completeness import MODELS, PLAN_MARGIN, Load, completeness
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.planned import Filling, Intake, Window
from braidstream.lab.overlay.shared import Settings
from braidstream.lab.overlay.simulate import Scenario, simulate
from braidstream.lab.overlay.simulate import completeness as share_found
from braidstream.lab.overlay.workload import Workload


def mean_of(gaps: list[int], lifetime: int) -> float:
    window, now = Window(), 0
    for gap in gaps:
        now += gap
        window.count(now, now + lifetime)
    return window.filling(0, 0, 1).mean


@pytest.mark.parametrize("n_tuples", [200, 2000, 50_000])
def test_the_average_is_known_before_the_first_window_is_full(n_tuples: int) -> None:
    """A tuple every 10, windows of 10,000: 1,000 of them, though only a few came yet."""
    assert mean_of([10] * n_tuples, 10_000) == pytest.approx(1000, rel=0.01)


def test_the_average_follows_a_rate_that_changes() -> None:
    """After some 30 windows of twice the rate nothing is left of the old one."""
    assert mean_of([10] * 10_000 + [5] * 60_000, 10_000) == pytest.approx(2000, rel=0.1)


def test_tuples_at_the_same_time_or_without_a_life_divide_by_nothing() -> None:
    window = Window()
    for _ in range(3):
        window.count(5, 5)
    assert window.filling(2, 3, 2) == Filling(2, 3, 3, 2)


def taken(is_sampled: list[bool], kept: float, n_all: float, ways: int) -> list[bool]:
    """A plan for windows of 1,000 tuples on average with room for 900."""
    plan = Intake()
    own, others = Filling(kept, n_all, 1000, 900), [Filling(kept, n_all, 1000, 900)] * (ways - 1)
    return [plan.takes(own, others, one) for one in is_sampled]


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_a_sample_at_the_average_rate_needs_no_more_than_the_margin(ways: int) -> None:
    rng = random.Random(ways)
    sampled = [rng.random() < 0.9 for _ in range(20_000)]
    found = taken(sampled, 900, 1000, ways)
    assert all(a <= b for a, b in zip(sampled, found, strict=True))
    share = sum(found[5000:]) / 15_000  # of the arriving tuples; each finds 0.9 to the power of (ways - 1)
    assert share * 0.9 ** (ways - 1) == pytest.approx(0.9**ways + PLAN_MARGIN, abs=0.005)


@pytest.mark.parametrize("ways", [2, 3, 4])
def test_all_are_taken_while_the_plan_cannot_be_reached(ways: int) -> None:
    """Half of a window of usual size is kept, where 0.9 of it would fit."""
    assert all(taken([False] * 5000, 500, 1000, ways)[1:])


def test_while_there_are_few_tuples_nothing_is_taken_that_is_not_of_the_sample() -> None:
    """All of a small window is kept: its results are found, and what the equation asks for is exceeded."""
    found = taken([index % 10 != 0 for index in range(2000)], 700, 700, 2)
    assert sum(found[1000:]) == 900


def test_the_model_lies_between_a_sample_and_the_oldest() -> None:
    for memory in range(50, 1500, 50):
        loads = [Load(1000, 1.0, memory)] * 3
        least, found, most = (MODELS[name](loads, 1) for name in ("sample", "planned", "oldest"))
        assert least <= found <= most
        assert found >= min(most, completeness(loads, 1))


def test_nothing_is_turned_away_while_memory_suffices() -> None:
    whole = Scenario(8, seed=2, workload=Workload(rate=20, duration_s=120, joins=2))
    limited = replace(whole, settings=Settings(memory=Memory(per_peer=100_000), shedding="planned"))
    assert simulate(limited).results == simulate(whole).results


@pytest.mark.slow
def test_queries_of_both_types_are_planned_for() -> None:
    """By plan more is found than by a sample, less than by shedding the oldest, for pipelined joins as well."""
    for shape in (Workload(zipf=0, rate=60, joins=2), Workload(zipf=0, rate=60, joins=2, type=2)):
        found = {}
        for shedding in ("sample", "planned", "oldest"):
            limited = Scenario(
                8, seed=2, workload=shape, settings=Settings(memory=Memory(per_peer=200), shedding=shedding)
            )
            found[shedding] = share_found(simulate(limited), simulate(limited.complete()))
        assert found["sample"] < found["planned"] < found["oldest"], found
