"""Locality-sensitive buckets: probabilities as computed, the same everywhere, and bands apart."""

from __future__ import annotations

import numpy as np
import pytest

from braidstream.errors import InputError
from braidstream.kernels.lsh import Lsh, chance


def pairs_at(distance: float, n: int, dimensions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    left, step = rng.normal(size=(n, dimensions)), rng.normal(size=(n, dimensions))
    return left, left + distance * step / np.linalg.norm(step, axis=1, keepdims=True)


@pytest.mark.parametrize("distance", [0.5, 1.0, 3.0, 10.0])
def test_vectors_share_a_bucket_as_often_as_computed(distance: float) -> None:
    """Over many families, because the vectors of one family share its directions."""
    left, right = pairs_at(distance, 20, 8, 3)
    found, n_families = 0.0, 400
    for seed in range(n_families):
        lsh = Lsh(8, 4.0, hashes=2, bands=3, seed=seed)
        found += float((lsh.buckets(left) == lsh.buckets(right)).any(axis=1).mean())
    assert found / n_families == pytest.approx(lsh.probability(distance), abs=0.03)


def test_the_sensitive_choice_of_the_paper() -> None:
    lsh = Lsh.sensitive(64, 0.1)
    assert lsh.probability(0.1) >= 0.9
    assert lsh.probability(1.0) <= 0.1
    assert lsh.bands <= 4


def test_one_hash_agrees_less_the_further_the_vectors_are() -> None:
    chances = [chance(1.0, distance) for distance in (0.0, 0.1, 0.5, 1.0, 5.0, 50.0)]
    assert chances[0] == 1.0
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] < 0.01


def test_buckets_depend_on_vector_parameters_and_seed_alone() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 8))
    lsh = Lsh(8, 1.0, 2, 3)
    whole = lsh.buckets(vectors)
    assert whole.shape == (50, 3)
    assert (np.concatenate([lsh.buckets(vectors[:7]), Lsh(8, 1.0, 2, 3).buckets(vectors[7:])]) == whole).all()
    assert (Lsh(8, 1.0, 2, 3, seed=2).buckets(vectors) != whole).any()


def test_equal_vectors_are_in_different_buckets_of_different_bands() -> None:
    buckets = Lsh(4, 1.0, 1, 5).buckets(np.zeros((1, 4)))
    assert len(set(buckets[0].tolist())) == 5


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        Lsh(4, 1.0, 1, 1).buckets(np.zeros((2, 3)))
    with pytest.raises(InputError, match="width=0"):
        Lsh(4, 0.0, 1, 1)
    with pytest.raises(InputError, match="radius=-1"):
        Lsh.sensitive(4, -1.0)
    with pytest.raises(InputError, match="sensitive"):
        Lsh.sensitive(4, 1.0, ratio=1.01)
