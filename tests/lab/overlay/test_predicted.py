"""What is foretold of a scenario beside what its simulation measures, and the sampler that equation 11 describes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from braidstream.control.completeness import Load, completeness_refusing
from braidstream.lab.overlay.peer import Memory
from braidstream.lab.overlay.predicted import found_share, predicted
from braidstream.lab.overlay.shared import Failure, Outage, PartnerRule, Settings
from braidstream.lab.overlay.simulate import Scenario, completeness, simulate
from braidstream.lab.overlay.victims import Sampler
from braidstream.lab.overlay.workload import Workload


def scenario(shedding: str = "oldest", memory: int | None = 120) -> Scenario:
    """Queries that come one after the other over skewed values on a random ring, memory for half of the windows."""
    shape = Workload(zipf=0.5, rate=60, duration_s=200, joins=1)
    return Scenario(16, seed=3, workload=shape, settings=Settings(memory=Memory(per_peer=memory), shedding=shedding))


@pytest.mark.parametrize("shedding", ["sample", "planned", "refuse", "oldest", "random"])
def test_the_measured_completeness_is_the_expected_one(shedding: str) -> None:
    limited = scenario(shedding)
    foretold = predicted(limited)
    assert foretold is not None
    assert foretold.expected == pytest.approx(completeness(simulate(limited), simulate(limited.complete())), abs=0.04)


def test_equation_11_knows_neither_skew_nor_the_shedding() -> None:
    """The paper's own skew: all windows together fit into all peers together, but not where the frequent values are."""
    limited = replace(scenario(memory=60), nodes=64, seed=1, workload=Workload())
    foretold = predicted(limited)
    measured = completeness(simulate(limited), simulate(limited.complete()))
    assert foretold is not None
    assert foretold.equation_11 == 1.0
    assert foretold.expected == pytest.approx(measured, abs=0.04)
    assert measured < 0.2


def test_nothing_is_lost_where_memory_suffices_and_all_where_there_is_next_to_none() -> None:
    for memory, low, high in ((100_000, 1.0, 1.0), (1, 0.0, 0.01)):
        for shedding in ("sample", "planned", "refuse", "oldest"):
            foretold = predicted(scenario(shedding, memory))
            assert foretold is not None
            assert foretold.expected is not None
            assert low - 1e-9 <= foretold.expected <= high + 1e-9
            assert low <= foretold.equation_11 <= high


@pytest.mark.parametrize(("memory", "mean"), [(1, 0.5), (30, 40.0), (500, 490.0), (5000, 5500.0), (5000, 4000.0)])
def test_refusing_is_the_exact_model_where_peers_are_alike(memory: int, mean: float) -> None:
    exact, found = completeness_refusing([Load(mean, 1.0, memory)] * 2, 1), found_share("refuse", memory, 2)
    assert found is not None
    assert found(np.array([mean]))[0] == pytest.approx(exact, abs=1e-9)


def test_nothing_is_foretold_where_no_formula_applies() -> None:
    limited = scenario()
    by_settings = (
        {"memory": Memory()},
        {"memory": Memory(per_input=9)},
        {"failures": (Failure(3, 5.0),)},
        {"outages": (Outage("S0", 5.0, 9.0),)},
        {"partners": PartnerRule()},
    )
    for changed in by_settings:
        assert predicted(replace(limited, settings=replace(limited.settings, **changed))) is None
    assert predicted(replace(limited, workload=Workload(type=2))) is None
    assert predicted(Scenario(16, method="rjoin")) is None
    without = predicted(scenario("least-productive"))
    assert without is not None
    assert without.expected is None


def taken(sources: list[str], limit: int, seed: int = 1) -> list[bool]:
    """Which of the tuples a sampler takes that come one a tick, with windows of 100 ticks."""
    sampler, ends, found = Sampler(limit, random.Random(seed)), [], []
    for now, source in enumerate(sources):
        ends = [end for end in ends if end >= now]
        sampler.advance(now)
        found.append(sampler.takes(len(ends), source))
        if found[-1]:
            ends.append(now + 99)
        else:
            sampler.miss(now + 99)
    return found


@pytest.mark.parametrize("limit", [20, 25, 50, 75])
def test_inputs_that_come_in_turn_are_each_sampled_in_their_share(limit: int) -> None:
    """A sample of every k-th tuple would take those of the same inputs again and again, and join nothing."""
    sources = ["a", "b"] * 1000
    found = taken(sources, limit)
    for source in ("a", "b"):
        own = [is_taken for is_taken, one in zip(found, sources, strict=True) if one == source][100:]
        assert sum(own) / len(own) == pytest.approx(limit / 100, abs=0.01)


def test_all_is_taken_while_the_window_fits() -> None:
    assert all(taken(["a", "b", "c"] * 100, 100))
    assert not all(taken(["a", "b", "c"] * 100, 99))


def test_a_sample_is_even_over_time_and_differs_from_turn_to_turn() -> None:
    found = taken(["a"] * 2000, 50)[200:]
    assert all(abs(sum(found[i : i + 100]) - 50) <= 2 for i in range(len(found) - 100))
    places = [sum(found[place::2]) for place in (0, 1)]
    assert min(places) > 0.35 * sum(places)  # neither the odd nor the even ones alone
