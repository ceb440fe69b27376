"""Distributions of join keys: b-model, uniform, Zipf, and one hot key.

A distribution is a frozen value; `draw(n, rng)` gives n keys from [0, domain) as int64. What the two streams of a join
share (which keys are hot) is a field of the distribution, what differs between them is the random source, so both
streams favour the same keys and still draw independently.

`probabilities()` is the exact distribution that `draw` samples, so a test can compare the two, and an experiment can
choose its rates from the matches it wants (`matches_per_tuple`).

Cost: every draw is vectorized. The b-model takes one random number a level of its bisection (24 for 10^7 keys), about
0.15 s for a million keys, as does Zipf by its binary search; the others take about 0.01 s. `probabilities()` allocates
8 bytes a key of the domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError

__all__ = ["BModelKeys", "HotKey", "Keys", "UniformKeys", "ZipfKeys", "matches_per_tuple"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WSJ_DOMAIN = 10_000_000
LARGEST_DOMAIN = 2**31  # so that cell * domain stays inside 63 bits


class Keys(Protocol):
    """A distribution of keys over [0, domain)."""

    @property
    def domain(self) -> int:
        """How many different keys there are."""

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """n independent keys."""

    def probabilities(self) -> Floats:
        """The probability of each key of the domain."""


@dataclass(frozen=True)
class BModelKeys:
    """The b-model (WSJ VI-A): halve the domain again and again; at each level one half gets the share `bias`.

    Which half is the hot one is chosen for each level by `seed`. A domain that is no power of two is halved in whole
    keys: at every level the parts differ by at most one key, and a part of one key is not halved further.
    """

    domain: int = WSJ_DOMAIN
    bias: float = 0.7
    seed: int = 1

    def __post_init__(self) -> None:
        _check_domain(self.domain)
        _check_share("bias", self.bias)

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """n independent keys."""
        cells = np.zeros(n, dtype=np.int64)
        cold_share = np.float32(1.0 - self.bias)
        for _ in range(self._levels):
            cells <<= 1
            cells |= rng.random(n, dtype=np.float32) < cold_share
        cells ^= self._hot_cell
        return self._key_of(cells)

    def probabilities(self) -> Floats:
        """The probability of each key: every key is one or two cells of the last level."""
        cells = np.arange(1 << self._levels, dtype=np.int64)
        n_cold = np.bitwise_count(cells ^ self._hot_cell).astype(np.int64)
        exponents = np.arange(self._levels + 1)
        mass = self.bias ** (self._levels - exponents) * (1.0 - self.bias) ** exponents
        return np.asarray(np.bincount(self._key_of(cells), weights=mass[n_cold], minlength=self.domain), np.float64)

    @property
    def _levels(self) -> int:
        return (self.domain - 1).bit_length()

    @cached_property
    def _hot_cell(self) -> np.int64:
        """The cell reached by taking the hot half at every level; one random bit a level."""
        return np.int64(np.random.default_rng(self.seed).integers(1 << self._levels))

    def _key_of(self, cells: Ints) -> Ints:
        """Cell c is the keys [c * domain / 2^levels, (c + 1) * domain / 2^levels), rounded down: one key or none.

        A cell without a key is half of a part of one key: it stands for its sibling's key.
        """
        first = (cells * self.domain) >> self._levels
        after = ((cells + 1) * self.domain) >> self._levels
        return np.asarray(first - ((first == after) & ((cells & 1) == 1)), np.int64)


@dataclass(frozen=True)
class UniformKeys:
    """Every key of the domain is equally likely."""

    domain: int = WSJ_DOMAIN

    def __post_init__(self) -> None:
        _check_domain(self.domain)

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """n independent keys."""
        return rng.integers(self.domain, size=n, dtype=np.int64)

    def probabilities(self) -> Floats:
        """The probability of each key."""
        return np.full(self.domain, 1.0 / self.domain)


@dataclass(frozen=True)
class ZipfKeys:
    """Key k has a probability in proportion to 1 / (k + 1)^alpha: key 0 is the hottest."""

    domain: int
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_domain(self.domain)
        if self.alpha < 0:
            raise InputError(f"alpha is {self.alpha}", "a number >= 0", "0 is uniform, 1 is Zipf's law")

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """n independent keys, by inversion of the cumulative distribution."""
        return np.searchsorted(self._cumulative, rng.random(n), side="right").astype(np.int64)

    def probabilities(self) -> Floats:
        """The probability of each key."""
        weights = np.arange(1, self.domain + 1, dtype=np.float64) ** -self.alpha
        return np.asarray(weights / weights.sum())

    @cached_property
    def _cumulative(self) -> Floats:
        cumulative = np.cumsum(self.probabilities())
        cumulative[-1] = 1.0  # rounding must not leave a gap at the end
        return cumulative


@dataclass(frozen=True)
class HotKey:
    """One key holds `share` of all tuples; the others share the rest equally."""

    domain: int
    share: float
    key: int = 0

    def __post_init__(self) -> None:
        _check_domain(self.domain)
        _check_share("share", self.share)
        if self.domain < 2:
            raise InputError(f"domain is {self.domain}", "at least 2 keys", "one hot key and one other")
        if not 0 <= self.key < self.domain:
            raise InputError(f"key is {self.key}", f"a key in [0, {self.domain})", "choose a key of the domain")

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """n independent keys."""
        others = rng.integers(self.domain - 1, size=n, dtype=np.int64)
        others += others >= self.key
        return np.where(rng.random(n) < self.share, np.int64(self.key), others)

    def probabilities(self) -> Floats:
        """The probability of each key."""
        shares = np.full(self.domain, (1.0 - self.share) / (self.domain - 1))
        shares[self.key] = self.share
        return shares


def matches_per_tuple(keys: Keys, rate: float, window_seconds: float) -> float:
    """How many matches a tuple of one stream has in all, when both streams have this rate, window and keys.

    A tuple meets what the other stream sent in a window before it and in a window after it.
    """
    return 2.0 * rate * window_seconds * float(np.square(keys.probabilities()).sum())


def _check_domain(domain: int) -> None:
    if not 1 <= domain <= LARGEST_DOMAIN:
        raise InputError(
            f"domain is {domain}", f"a number of keys from 1 to {LARGEST_DOMAIN}", "choose a smaller domain"
        )


def _check_share(name: str, share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise InputError(f"{name} is {share}", "a share from 0 to 1", "0.7 means 70%")
