"""Filters and decisions by figures: what dies, what stays, and that nothing comes back to life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidstream.control.estimate import Counts, completeness_interval
from braidstream.control.overflow import Overflow
from braidstream.control.shedding import STRATEGIES, Span, Stock, expected_share, live_bytes, shed
from braidstream.errors import InputError
from braidstream.model.dead_rows import FIRST_BITS, Filter, Piece

SPANS = {"R": Span(0, 99), "S": Span(0, 99)}
HALF = 1 << 63


def stock(
    size: float, *, slot: int = 0, low: int = 0, store: str = "R", epoch: int = 1, oldest: int = 0, newest: int = 99,
    sample: bool = False,
) -> Stock:  # fmt: skip
    return Stock(slot, low, store, epoch, oldest, newest, size, sample)


def decided(stocks: Sequence[Stock], by: str, budget: float = 1000, yields: dict[int, float] | None = None) -> Filter:
    start = Filter().fitted([0, HALF])
    return shed(start, stocks, SPANS, budget=budget, by=by, epoch=5, yields=yields or {})


@pytest.mark.parametrize("by", STRATEGIES)
def test_a_slot_at_its_budget_sheds_nothing(by: str) -> None:
    assert decided([stock(600), stock(400, store="S"), stock(900, slot=1, low=HALF)], by).is_empty


def test_oldest_keeps_the_newest_part_of_every_window() -> None:
    found = decided([stock(1000), stock(1000, store="S")], "oldest")
    assert found.at(0).floors["R"] == found.at(0).floors["S"] == pytest.approx(50, abs=1)
    assert not found.at(HALF).floors


def test_random_caps_all_rows_at_one_level_and_leaves_those_capped_lower() -> None:
    level = decided([stock(1000), stock(1000, low=HALF)], "random").at(0).cap(1)
    assert 0.48 < level <= 0.5
    before = Filter((Piece(0, {}, ((2, 0.25),)), Piece(HALF)))
    now = shed(before, [stock(250), stock(2000, epoch=4)], SPANS, budget=1000, by="random", epoch=5, yields={})
    assert now.at(0).cap(1) == 0.25
    assert 0.36 < now.at(0).cap(4) <= 0.375
    assert now.at(0).cap(6) == 1.0


def test_unproductive_groups_are_emptied_first() -> None:
    found = decided([stock(600), stock(600, low=HALF)], "unproductive", yields={0: 5.0, HALF: 1.0})
    assert found.at(0).cap(1) == 1.0
    assert 0.6 < found.at(HALF).cap(1) <= 2 / 3
    found = decided([stock(600), stock(600, low=HALF)], "unproductive", budget=300, yields={0: 5.0, HALF: 1.0})
    assert found.at(HALF).cap(1) == 0.0
    assert 0.48 < found.at(0).cap(1) <= 0.5


def test_the_sample_is_exempt_and_shrinks_when_it_takes_more_than_a_quarter() -> None:
    found = decided([stock(240, sample=True), stock(2000)], "random")
    assert found.bits == 4
    assert found.at(0).cap(1) == pytest.approx(760 / 2000, rel=0.03)
    assert decided([stock(900, sample=True), stock(2000)], "random").bits == 6


@given(
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), max_size=8),
    st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1)), max_size=8),
)
def test_caps_only_fall_and_the_stricter_of_two_holds(
    one: list[tuple[int, float]], two: list[tuple[int, float]]
) -> None:
    pieces = []
    for decisions in (one, two):
        piece = Piece()
        for epoch, share in sorted(decisions):
            capped = piece.capped(epoch, share)
            assert all(capped.cap(e) <= piece.cap(e) for e in range(25))
            assert all(capped.cap(e) == (min(piece.cap(e), share) if e <= epoch else piece.cap(e)) for e in range(25))
            piece = capped
        pieces.append(piece)
    both = pieces[0].with_(pieces[1])
    assert [both.cap(e) for e in range(25)] == [min(p.cap(e) for p in pieces) for e in range(25)]


def test_a_filter_is_the_same_after_json_and_follows_splits_and_merges() -> None:
    found = Filter((Piece(0, {"R": 7}), Piece(HALF, {"R": 3}, ((4, 0.5),))), 6, ("R",))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Filter) == found
    merged = found.fitted([0])
    assert merged.pieces == (Piece(0, {"R": 7}, ((4, 0.5),)),)
    assert [p.floors["R"] for p in found.fitted([0, HALF // 2, HALF]).pieces] == [7, 7, 3]


def test_what_has_expired_is_forgotten() -> None:
    found = Filter((Piece(0, {"R": 7}, ((4, 0.5), (9, 0.7))),)).pruned(5, {"R": 8})
    assert found.pieces == (Piece(0, {}, ((9, 0.7),)),)


def test_live_bytes_leave_out_what_is_expired_or_below_the_floor() -> None:
    filter_ = Filter((Piece(0, {"R": 50}),))
    stocks = [stock(100), stock(100, sample=True), stock(100, oldest=-100, newest=-1)]
    assert live_bytes(stocks, filter_, SPANS).tolist() == [50, 100, 0]


def test_expected_shares_are_those_of_the_planner() -> None:
    inputs = [("R", 100), ("S", 100)]
    assert expected_share(Piece(), inputs, SPANS, 100, 1) == 1.0
    by_floor = expected_share(Piece(0, {"R": 49, "S": 49}), inputs, SPANS, 100, 1)
    assert by_floor == pytest.approx(0.5, abs=0.01)
    assert expected_share(Piece(0, {}, ((100, 0.3),)), inputs, SPANS, 100, 1) == pytest.approx(0.3, abs=0.01)
    assert expected_share(Piece(0, {}, ((50, 0.0),)), inputs, SPANS, 100, 1) == pytest.approx(0.5, abs=0.01)


def sampled(share: float, n_keys: int, each: int, seed: int = 0) -> tuple[Counts, float]:
    """Keys with `each` results, each found with a chance; one in 16 sampled. Also the truth."""
    draw = np.random.default_rng(seed)
    results = draw.poisson(each, n_keys)
    found = draw.binomial(results, share)
    bucket, is_sample = draw.integers(0, 64, n_keys), draw.random(n_keys) < 1 / 16
    counts = Counts(0, int(found[~is_sample].sum()), n_kept=int(found[is_sample].sum()))
    counts.all += np.bincount(bucket[is_sample], results[is_sample], 64)
    counts.kept += np.bincount(bucket[is_sample], found[is_sample], 64)
    counts.found += np.bincount(bucket[~is_sample], found[~is_sample], 64)
    return counts, (counts.n_found + counts.all.sum()) / results.sum()


def test_intervals_contain_the_truth_and_are_narrow_for_many_keys() -> None:
    inside, widths = 0, []
    for seed in range(200):
        counts, truth = sampled(0.6, 2000, 20, seed)
        found = completeness_interval(counts)
        inside += found.low <= truth <= found.high
        widths.append(found.high - found.low)
    assert inside >= 190
    assert np.mean(widths) < 0.1


def shrinking(seed: int, *, guesses: bool, zipf: float, n_keys: int = 6000) -> tuple[Counts, Counts, float]:
    """A run in which the completeness falls while the sample shrinks: its counts, weighted and not, and the truth.

    With `guesses` results are weighted by what was expected of them, which is somewhat wrong.
    """
    draw = np.random.default_rng(seed)
    rates = 3 * np.arange(1, n_keys + 1) ** -zipf / np.mean(np.arange(1, n_keys + 1) ** -zipf)
    bucket, number = draw.integers(0, 64, n_keys), draw.random(n_keys)
    weighted, plain, n_whole = Counts(), Counts(), 0
    for epoch in range(20):
        bits, share = 4 + 2 * (epoch // 7), float(np.interp(epoch, [2, 16], [1.0, 0.3]))
        expected = min(share * draw.uniform(0.8, 1.2), 1.0) if guesses else 1.0
        results, is_sample = draw.poisson(rates), number < 0.5**bits
        found = draw.binomial(results, share)
        counts = Counts(0, int(found[~is_sample].sum()), n_kept=int(found[is_sample].sum()), at_risk=9)
        counts.all += np.bincount(bucket[is_sample], results[is_sample], 64)
        counts.kept += np.bincount(bucket[is_sample], found[is_sample] / expected, 64)
        counts.found += np.bincount(bucket[~is_sample], found[~is_sample] / expected, 64)
        weighted = weighted.plus(counts.weighted(2.0 ** (bits - FIRST_BITS)))
        plain, n_whole = plain.plus(counts), n_whole + int(results.sum())
    return weighted, plain, (weighted.n_found + weighted.n_all) / n_whole


@pytest.mark.parametrize("guesses", [True, False], ids=["expected about right", "nothing expected"])
@pytest.mark.parametrize(
    "zipf", [pytest.param(0.0, marks=pytest.mark.slow), 0.5, pytest.param(0.8, marks=pytest.mark.slow)]
)
def test_the_interval_of_a_run_contains_the_truth_while_its_sample_shrinks(guesses: bool, zipf: float) -> None:
    inside = {"weighted": 0, "plain": 0}
    for seed in range(200):
        weighted, plain, truth = shrinking(seed, guesses=guesses, zipf=zipf)
        for name, counts in (("weighted", weighted), ("plain", plain)):
            told = completeness_interval(counts)
            inside[name] += told.low <= truth <= told.high
    print(inside)
    falls_short = zipf == 0.8 and not guesses  # a known limitation, said in the module
    assert inside["weighted"] >= (180 if falls_short else 190)
    assert guesses or inside["plain"] < 100


def test_counts_that_an_earlier_version_added_up_are_read_and_weighted() -> None:
    """0.1.0 kept no weights. With its sample as it was at first it had none; else they are made up for."""
    for seed in range(10):
        counts, _ = sampled(0.6, 2000, 20, seed)
        known = Counts.of_run(counts.as_sent(), 1.0)
        assert completeness_interval(known) == completeness_interval(counts)
        weighted, plain, truth = shrinking(seed, guesses=True, zipf=0.0)
        old = Counts.of_run(plain.as_sent(), 2.0**4)
        assert completeness_interval(old).estimate == pytest.approx(completeness_interval(plain).estimate, abs=1e-5)
        assert old.squares > old.n_all == plain.all.sum()
        assert completeness_interval(old.plus(weighted)).estimate == pytest.approx(truth, abs=0.1)
        assert Counts.of_run(weighted.as_sent(), 16.0).as_sent() == weighted.as_sent()


def test_few_results_prove_little_and_none_prove_nothing() -> None:
    few = completeness_interval(replace(Counts(0, 100, n_kept=3), all=_one(3), kept=_one(3), found=_one(100)))
    assert few.low < 0.7
    none = completeness_interval(replace(Counts(0, 100, at_risk=9), found=_one(200)))
    assert (none.low, none.estimate, none.high) == (0.0, 0.5, 1.0)
    assert completeness_interval(Counts(7)).low == 1.0
    silent = completeness_interval(Counts(7, at_risk=5))
    assert (silent.low, silent.high) == (0.0, 1.0)
    lost = completeness_interval(replace(Counts(0, 0, at_risk=5), all=_one(3)))
    assert lost.low < 0.1


def _one(n: float) -> np.ndarray:
    return np.bincount([5], [n], 64).astype(np.float64)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"on_overflow": "shedd"}, "did you mean 'shed'"), ({"shed_by": "newest"}, "shed_by is 'newest'")],
)
def test_wrong_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Overflow(1000, **options)


def test_a_group_that_was_emptied_in_a_rush_takes_again_what_its_slot_has_room_for() -> None:
    """Beside one with stock, and at a slot where nothing is left."""
    rushed = Filter((Piece(0, intake=0.01), Piece(HALF, intake=0.01)))
    homes = {0: 0, HALF: 0}
    for stocks in ([stock(10, low=HALF, epoch=4)], []):
        now = shed(rushed, stocks, SPANS, budget=1000, by="sample", epoch=5, yields={}, homes=homes)
        assert now.at(0).intake == now.at(HALF).intake > 0.9


@pytest.mark.parametrize("by", ["oldest", "random", "unproductive"])
def test_another_strategy_refuses_nothing_that_a_sample_refused(by: str) -> None:
    before = Filter((Piece(0, {}, ((4, 0.5),), 0.5), Piece(HALF, intake=0.5)))
    assert shed(before, [stock(10)], SPANS, budget=1000, by=by, epoch=5, yields={}).takes_all


def test_by_plan_what_is_stored_does_not_follow_what_is_joined() -> None:
    """The slot is a little below its budget: it stores the share that it stored, although it joins more."""
    before = Filter((Piece(0, {}, ((4, 0.25),), 0.6), Piece(HALF)))
    now = shed(before, [stock(980, epoch=4)], SPANS, budget=1000, by="planned", epoch=5, yields={}, homes={0: 0})
    assert now.at(0).cap(5) == pytest.approx(0.25, rel=0.03)
