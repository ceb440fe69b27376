"""The completeness formulas against their derivation and against simulated joins of one node."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.control.completeness import (
    MODELS,
    Load,
    Model,
    completeness,
    completeness_by_losses,
    completeness_over,
    completeness_probing,
    completeness_refusing,
    completeness_sampling,
    completeness_shedding,
    hashed,
    loss,
    memory_for,
    nodes_exact,
    nodes_for,
)
from braidstream.errors import InputError

positive = st.floats(0.5, 500)
loads = st.lists(st.builds(Load, rate=positive, window_s=positive, memory=positive), min_size=2, max_size=4)
whole_loads = st.lists(
    st.builds(Load, rate=positive, window_s=positive, memory=st.integers(1, 500)), min_size=2, max_size=4
)


def test_two_streams_that_do_not_fit_follow_equations_7_and_8() -> None:
    two = [Load(30, 50, 40), Load(20, 60, 50)]
    assert completeness(two, 8) == pytest.approx(8**2 * 40 * 50 / (30 * 50 * 20 * 60))
    assert nodes_exact(two, 0.5) == pytest.approx((0.5 * (30 * 50) * (20 * 60) / (40 * 50)) ** 0.5)
    assert loss(two[0], 8) == 30 * 50 / 8 - 40


def test_a_stream_with_room_to_spare_does_not_make_up_for_another() -> None:
    two = [Load(30, 50, 1_000_000), Load(30, 50, 15)]
    assert completeness(two, 10) == pytest.approx(0.1)
    assert nodes_exact(two, 0.5) == pytest.approx(50)


@given(loads, st.integers(1, 500))
def test_the_product_is_what_the_papers_inclusion_and_exclusion_reduces_to(some: list[Load], n: int) -> None:
    assert completeness(some, n) == pytest.approx(completeness_by_losses(some, n), abs=1e-6)


@given(loads, st.floats(0.01, 1))
def test_nodes_for_is_the_smallest_number_that_reaches_the_wanted_completeness(some: list[Load], wanted: float) -> None:
    n = nodes_for(some, wanted, completeness)
    assert completeness(some, n) >= wanted - 1e-9
    assert n == 1 or completeness(some, n - 1) < wanted
    assert n == pytest.approx(max(1, np.ceil(nodes_exact(some, wanted))), abs=1)


@given(loads, st.integers(1, 100), st.floats(0.01, 1))
def test_memory_for_reaches_the_wanted_completeness(some: list[Load], n: int, wanted: float) -> None:
    memory = memory_for(some, n, wanted)
    assert completeness([Load(load.rate, load.window_s, memory) for load in some], n) == pytest.approx(wanted)


@given(loads, st.integers(1, 100))
def test_probing_is_never_less_complete_than_sampling_and_both_grow_with_nodes(some: list[Load], n: int) -> None:
    assert completeness_probing(some, n) >= completeness(some, n) - 1e-12
    for model in (completeness, completeness_probing):
        assert all(a <= b + 1e-12 for a, b in pairwise(model(some, k) for k in range(1, 40)))


def simulated(some: list[Load], n: int, samples: bool) -> float:
    """The completeness of one node of n, measured: a cross join of Poisson streams by an explicit sweep over time."""
    rng, horizon = np.random.default_rng(7), 60 * max(load.window_s for load in some)
    streams = [np.sort(rng.uniform(0, horizon, rng.poisson(load.rate / n * horizon))) for load in some]
    kept = [rng.random(len(s)) < load.kept(n) for s, load in zip(streams, some, strict=True)]
    full = found = 0.0
    for i, times in enumerate(streams):  # the results whose newest tuple is of stream i
        everything, stored = np.ones(len(times)), np.ones(len(times))
        for j, (other, load) in enumerate(zip(streams, some, strict=True)):
            if j != i:
                everything *= within_window(times, other, load.window_s)
                # Shedding the oldest leaves the newest part of the window; sampling leaves a random part of it.
                span = load.window_s if samples else load.window_s * load.kept(n)
                stored *= within_window(times, other[kept[j]] if samples else other, span)
        full, found = full + everything.sum(), found + (stored * kept[i] if samples else stored).sum()
    return found / full


def within_window(
    newest: npt.NDArray[np.float64], times: npt.NDArray[np.float64], window_s: float
) -> npt.NDArray[np.float64]:
    """How many of `times` are at most `window_s` older than each of `newest`, and not newer."""
    low, high = np.searchsorted(times, newest - window_s), np.searchsorted(times, newest)
    return (high - low).astype(np.float64)


@pytest.mark.parametrize(
    "some",
    [
        pytest.param([Load(30, 50, 20), Load(30, 50, 20)], id="2 alike"),
        pytest.param([Load(30, 50, 25), Load(60, 20, 20)], id="2 different"),
        pytest.param([Load(30, 50, 30), Load(20, 60, 25), Load(40, 30, 20)], id="3 different"),
        pytest.param([Load(30, 50, 32)] * 4, id="4 alike"),
        pytest.param([Load(30, 50, 999), Load(20, 60, 25)], id="one fits"),
    ],
)
@pytest.mark.parametrize("n", [16, 32])
def test_the_formulas_follow_simulated_joins(some: list[Load], n: int) -> None:
    assert simulated(some, n, samples=True) == pytest.approx(completeness(some, n), abs=0.03)
    assert simulated(some, n, samples=False) == pytest.approx(completeness_probing(some, n), abs=0.03)


def test_refusing_follows_erlangs_tables() -> None:
    # B(10, 5) = 0.0184 and B(20, 20) = 0.1589, as tabulated for telephone exchanges.
    assert completeness_refusing([Load(1, 5, 10)] * 2, 1) == pytest.approx((1 - 0.0184) ** 2, abs=1e-4)
    assert completeness_refusing([Load(4, 5, 20)] * 2, 1) == pytest.approx((1 - 0.1589) ** 2, abs=1e-4)


@given(loads, st.integers(1, 100))
def test_refusing_is_never_more_complete_than_equation_11(some: list[Load], n: int) -> None:
    assert completeness_refusing(some, n) <= completeness(some, n) + 1e-9


def test_with_much_memory_refusing_comes_to_equation_11() -> None:
    differences = [
        completeness([Load(k, 10, 8 * k)] * 3, 1) - completeness_refusing([Load(k, 10, 8 * k)] * 3, 1)
        for k in (1, 10, 100, 1000)
    ]
    assert differences == sorted(differences, reverse=True)
    assert differences[-1] < 0.001


@pytest.mark.parametrize(
    ("mean", "memory"), [(500.0, 450), (500.0, 500), (3.5, 2), (0.2, 1), (90.0, 400), (4e4, 39_900)]
)
def test_what_is_kept_at_random_times_is_the_share_stored_and_the_share_taken(mean: float, memory: int) -> None:
    top = int(mean + 40 * math.sqrt(mean) + 60)
    chances = np.exp([k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(top)])
    numbers = np.arange(top)
    stored = float((chances * np.minimum(numbers, memory)).sum()) / mean
    taken = float((chances * np.minimum(1.0, memory / (numbers + 1))).sum())
    assert Load(mean, 1, memory).kept_at_random(1) == pytest.approx(stored, rel=1e-9)
    assert stored == pytest.approx(taken, rel=1e-9)


@given(whole_loads, st.integers(1, 300))
def test_the_models_are_ordered_and_grow_with_nodes(some: list[Load], n: int) -> None:
    assert completeness_refusing(some, n) <= completeness_sampling(some, n) + 1e-9
    assert completeness_sampling(some, n) <= completeness(some, n) + 1e-9
    assert completeness_sampling(some, n) <= completeness_shedding(some, n) + 1e-9
    assert completeness_shedding(some, n) <= completeness_probing(some, n) + 1e-9
    for model in MODELS.values():
        assert model(some, n) <= model(some, n + 1) + 1e-9


@given(whole_loads, st.floats(0.01, 0.99))
def test_the_planned_number_of_nodes_suffices_whatever_the_nodes_do(some: list[Load], wanted: float) -> None:
    n = nodes_for(some, wanted)
    assert all(model(some, n) >= wanted - 1e-9 for model in MODELS.values())
    assert n == 1 or completeness_refusing(some, n - 1) < wanted
    assert n >= nodes_for(some, wanted, completeness_sampling) >= nodes_for(some, wanted, completeness)


@pytest.mark.parametrize("model", MODELS.values())
def test_over_nodes_with_equal_shares_a_model_is_itself(model: Model) -> None:
    some = [Load(30, 50, 40), Load(20, 60, 50)]
    assert completeness_over([1 / 8] * 8, some, model) == pytest.approx(model(some, 8))
    assert completeness_over([0.5, 0.5, 0.0], some, model) == pytest.approx(model(some, 2))


@pytest.mark.parametrize("model", [completeness_refusing, completeness_shedding])
def test_hashed_values_are_the_mean_over_random_places(model: Model) -> None:
    rng, some, n, n_values = np.random.default_rng(5), [Load(30, 50, 30), Load(20, 60, 25)], 40, 300
    places = [np.bincount(rng.integers(0, n, n_values), minlength=n) / n_values for _ in range(60)]
    drawn = [completeness_over(list(map(float, shares)), some, model) for shares in places]
    assert hashed(n_values, model)(some, n) == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 60**0.5)
    assert hashed(n_values, model)(some, n) < model(some, n) - 0.01
    assert hashed(5_000_000, model)(some, n) == pytest.approx(model(some, n), abs=1e-3)
    assert hashed(n_values, model)(some, 1) == pytest.approx(model(some, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: completeness([Load(1, 1, 1)], 1),
        lambda: completeness([Load(1, 1, 1)] * 2, 0),
        lambda: nodes_for([Load(1, 1, 1)] * 2, 1.5),
        lambda: nodes_for([Load(1, 1, 1)] * 2, 0),
        lambda: Load(0, 1, 1),
        lambda: nodes_for([Load(1, 1, 0.5)] * 2, 0.9),
        lambda: completeness_over([0.5, 0.4], [Load(1, 1, 1)] * 2),
        lambda: completeness_over([], [Load(1, 1, 1)] * 2),
        lambda: hashed(0),
    ],
)
def test_wrong_inputs_are_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        wrong()  # type: ignore[operator]
