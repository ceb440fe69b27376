"""A sweep on Spark gives the same figures as the simulations one by one; sizes up to 2^20; scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from braidstream.errors import InputError
from braidstream.lab.overlay.scale import check_powers, measure, measure_all
from braidstream.lab.overlay.shared import Settings
from braidstream.lab.overlay.simulate import Scenario, simulate
from braidstream.lab.overlay.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Workload(duration_s=20, window_s=8, query_every_s=6)


@pytest.mark.spark
def test_a_sweep_on_spark_gives_the_outcomes_of_the_simulations_one_by_one(spark: SparkSession) -> None:
    from braidstream.lab.overlay.sweep import sweep

    scenarios = [
        Scenario(nodes, method, seed, replace(SMALL, rate=rate))
        for nodes in (16, 64)
        for method in ("dhtjoin", "rjoin")
        for seed in (1, 2)
        for rate in (10.0, 30.0)
    ]
    outcomes = sweep(spark, scenarios)
    assert outcomes == [simulate(scenario) for scenario in scenarios]
    assert len({outcome.traffic for outcome in outcomes}) > len(scenarios) // 2  # they do differ from each other
    assert sweep(spark, []) == []


def test_the_seed_decides_everything() -> None:
    one, same, other = (simulate(Scenario(32, seed=seed, workload=SMALL)) for seed in (1, 1, 2))
    assert one == same
    assert one.messages != other.messages


@pytest.mark.parametrize("power", range(1, 15))
@pytest.mark.parametrize("is_even", [False, True])
def test_the_claims_hold_at_every_power_of_two(power: int, is_even: bool) -> None:
    size = measure(power, seed=power, is_even=is_even)
    assert size.messages == (1 << power) - 1
    assert size.claims == dict.fromkeys(size.claims, True)


def test_a_million_nodes() -> None:
    size = measure(20, seed=1, n_lookups=100_000)
    assert (size.nodes, size.messages) == (1 << 20, (1 << 20) - 1)
    assert size.depth <= 22
    assert size.mean_hops == pytest.approx(10, rel=0.1)


def test_a_claim_that_does_not_hold_is_reported() -> None:
    size = measure(6, seed=1)
    assert not replace(size, messages=size.messages + 1).claims["n - 1 messages"]
    assert not replace(size, depth=9).claims["depth log2 n"]
    assert not replace(size, mean_hops=4.0).claims["half log2 n hops"]


def test_pastry_spreads_as_wide() -> None:
    assert all(size.claims["n - 1 messages"] for size in measure_all([3, 8, 12], 1, way="pastry"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Scenario(0),
        lambda: Scenario(method="rjoinn"),
        lambda: Scenario(settings=Settings(dissemination="flood")),
        lambda: Scenario(method="rjoin", settings=Settings(shedding="random")),
        lambda: Workload(rate=float("nan")),
        lambda: Workload(joins=10),
        lambda: Workload(type=3),
        lambda: Workload(query_every_s=1e-6),
        lambda: Workload(duration_s=1e9),
        lambda: Settings(alerts="loud"),
        lambda: check_powers(5, 4),
        lambda: check_powers(1, 40),
    ],
)
def test_wrong_descriptions_are_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        wrong()  # type: ignore[operator]
