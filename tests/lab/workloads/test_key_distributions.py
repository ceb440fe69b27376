"""Drawn keys follow the exact distribution, and the exact distribution is what the model says."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from braidstream.errors import InputError
from braidstream.lab.workloads import BModelKeys, HotKey, Keys, UniformKeys, ZipfKeys, matches_per_tuple

SMALL: list[Keys] = [
    BModelKeys(domain=16, bias=0.7, seed=1),
    BModelKeys(domain=37, bias=0.8, seed=2),
    BModelKeys(domain=1),
    UniformKeys(domain=23),
    ZipfKeys(domain=50, alpha=1.2),
    ZipfKeys(domain=10, alpha=0.0),
    HotKey(domain=20, share=0.3, key=7),
]


def drawn(keys: Keys, n: int, seed: int = 11) -> np.ndarray:
    return keys.draw(n, np.random.default_rng(seed))


@pytest.mark.parametrize("keys", SMALL, ids=str)
def test_draws_follow_the_probabilities(keys: Keys) -> None:
    n = 200_000
    probabilities = keys.probabilities()
    assert probabilities.sum() == pytest.approx(1)
    counts = np.bincount(drawn(keys, n), minlength=keys.domain)
    assert len(counts) == keys.domain
    freedom = keys.domain - 1
    chi_square = ((counts - n * probabilities) ** 2 / (n * probabilities)).sum()
    assert chi_square <= freedom + 4 * (2 * freedom) ** 0.5 + 8


@pytest.mark.parametrize("keys", SMALL, ids=str)
def test_draws_are_int64_and_the_same_for_the_same_seed(keys: Keys) -> None:
    first = drawn(keys, 1000)
    assert first.dtype == np.int64
    assert (first == drawn(keys, 1000)).all()
    assert keys.domain == 1 or (first != drawn(keys, 1000, seed=12)).any()


@pytest.mark.parametrize("domain", [2, 3, 5, 8, 10, 37, 100, 1000, 1023, 1025])
def test_the_b_model_halves_any_domain_again_and_again(domain: int) -> None:
    running = np.concatenate([[0.0], np.cumsum(BModelKeys(domain=domain, bias=0.7, seed=4).probabilities())])
    for level in range((domain - 1).bit_length()):
        ends = [part * domain >> (level + 1) for part in range((2 << level) + 1)]
        parts = [(ends[i], ends[i + 1], ends[i + 2]) for i in range(0, 2 << level, 2)]
        assert {end - first for first, _, end in parts} <= {domain >> level, (domain >> level) + 1}
        left_shares = [
            (running[middle] - running[first]) / (running[end] - running[first])
            for first, middle, end in parts
            if end - first > 1
        ]
        assert left_shares == pytest.approx([left_shares[0]] * len(left_shares))
        assert min(left_shares[0], 1 - left_shares[0]) == pytest.approx(0.3)


def test_the_hottest_keys_of_the_wsj_domain_hold_the_share_the_model_says() -> None:
    keys = BModelKeys()
    probabilities = keys.probabilities()
    n = 1_000_000
    hottest_first = np.sort(probabilities)[::-1]
    is_hot = probabilities >= hottest_first[int(0.3 * keys.domain) - 1]
    share = float(probabilities[is_hot].sum())
    assert share > 0.85
    assert is_hot[drawn(keys, n)].mean() == pytest.approx(share, abs=5 * (share * (1 - share) / n) ** 0.5)


def test_a_power_of_two_has_the_shares_of_the_binomial_cascade() -> None:
    levels, bias = 16, 0.7
    by_hotness = [(comb(levels, cold), bias ** (levels - cold) * (1 - bias) ** cold) for cold in range(levels + 1)]
    expected = np.concatenate([np.full(cells, mass) for cells, mass in by_hotness])
    probabilities = BModelKeys(domain=2**levels, bias=bias).probabilities()
    np.testing.assert_allclose(np.sort(probabilities)[::-1], expected)


def test_one_level_of_the_b_model_is_its_bias() -> None:
    halves = BModelKeys(domain=10_000_000, bias=0.7).probabilities().reshape(2, -1).sum(axis=1)
    assert sorted(halves) == pytest.approx([0.3, 0.7])


def test_two_streams_favour_the_same_keys_and_another_model_others() -> None:
    shared, other = BModelKeys(domain=1 << 20, seed=1), BModelKeys(domain=1 << 20, seed=2)
    left = np.bincount(drawn(shared, 300_000, seed=1), minlength=shared.domain)
    is_hot = np.zeros(shared.domain, dtype=bool)
    is_hot[np.argsort(left)[-1000:]] = True
    assert is_hot[drawn(shared, 300_000, seed=2)].mean() > 10 * is_hot[drawn(other, 300_000, seed=2)].mean()


def test_a_hot_key_has_its_share_and_the_others_share_the_rest() -> None:
    keys = HotKey(domain=1000, share=0.2, key=999)
    counts = np.bincount(drawn(keys, 500_000), minlength=1000)
    assert counts[999] == pytest.approx(100_000, abs=5 * 80_000**0.5)
    assert counts[:999].min() > 250
    assert counts[:999].max() < 600


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_zipf_keys_fall_off_by_their_exponent(alpha: float) -> None:
    counts = np.bincount(drawn(ZipfKeys(domain=100_000, alpha=alpha), 2_000_000))
    assert counts[1] / counts[0] == pytest.approx(2**-alpha, rel=0.15)
    assert counts[10:20].sum() / counts[100:110].sum() == pytest.approx((14.5 / 104.5) ** -alpha, rel=0.15)


def test_matches_per_tuple_is_what_a_join_finds() -> None:
    keys, n, window = HotKey(domain=500, share=0.1), 2000, 100
    left, right = drawn(keys, n, 1), drawn(keys, n, 2)
    times = np.arange(n)
    close = np.abs(times[:, None] - times[None, :]) <= window
    found = (close & (left[:, None] == right[None, :]))[window : n - window].sum() / (n - 2 * window)
    assert matches_per_tuple(keys, rate=1, window_seconds=window) == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: BModelKeys(domain=0), "domain is 0"),
        (lambda: UniformKeys(domain=2**32), "domain is 4294967296"),
        (lambda: BModelKeys(bias=1.5), "bias is 1.5"),
        (lambda: HotKey(domain=10, share=-0.1), "share is -0.1"),
        (lambda: HotKey(domain=1, share=0.5), "domain is 1"),
        (lambda: HotKey(domain=10, share=0.5, key=10), "key is 10"),
        (lambda: ZipfKeys(domain=10, alpha=-1), "alpha is -1"),
    ],
)
def test_a_distribution_that_cannot_be_is_refused(make, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
