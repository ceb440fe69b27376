"""Locality-sensitive hashing of vectors for Euclidean distance: near vectors share a bucket, far ones seldom do.

One hash of a vector x is floor((a.x + b) / width), with a of independent normal numbers and b uniform in [0, width):
vectors at distance c fall into the same bucket with the probability p(width / c) of `chance` (the p-stable family of
Datar, Immorlica, Indyk and Mirrokni). A *band* is `hashes` of them at once (all must agree), and two vectors are
candidates if at least one of `bands` bands agrees: 1 - (1 - p^hashes)^bands.

`Lsh.sensitive` finds the smallest (r, c r, near, far)-sensitive choice: vectors within r are candidates with a
probability of at least `near`, those beyond c r of at most `far` (SHC 4.3.3: (r, 10 r, 0.9, 0.1)).

Invariant: buckets depend on the vector, the parameters and the seed alone, so two processes, or two runs of an epoch,
agree. A bucket's number mixes in its band: buckets of different bands do not meet, up to a collision of 64 bits.

Cost: a matrix product of n x dimensions x (bands hashes), no loop over rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError

__all__ = ["Lsh", "chance"]

Floats = npt.NDArray[np.float64]

_WIDTHS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0)
_MOST_HASHES, _MOST_BANDS = 16, 64
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Lsh:
    """The buckets of vectors of `dimensions` numbers."""

    dimensions: int
    width: float
    hashes: int
    bands: int
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.dimensions, self.hashes, self.bands) < 1 or not self.width > 0:
            raise InputError(
                f"dimensions={self.dimensions}, hashes={self.hashes}, bands={self.bands}, width={self.width}",
                "at least one of each, and a width above 0",
                "Lsh.sensitive(dimensions, radius) chooses them",
            )

    @classmethod
    def sensitive(
        cls,
        dimensions: int,
        radius: float,
        *,
        ratio: float = 10.0,
        near: float = 0.9,
        far: float = 0.1,
        seed: int = 1,
    ) -> Lsh:
        """The (r, ratio r, near, far)-sensitive choice with the fewest bands (each repeats rows), then hashes."""
        if not (radius > 0 and ratio > 1 and 0 < far < near < 1):
            raise InputError(
                f"radius={radius}, ratio={ratio}, near={near}, far={far}",
                "a radius above 0, a ratio above 1, 0 < far < near < 1",
                "near=0.9 and far=0.1 at 10 times the radius is a usual choice",
            )
        for bands in range(1, _MOST_BANDS + 1):
            for hashes in range(1, _MOST_HASHES + 1):
                for width in _WIDTHS:
                    made = cls(dimensions, width * radius, hashes, bands, seed)
                    if made.probability(radius) >= near and made.probability(ratio * radius) <= far:
                        return made
        raise InputError(
            f"no choice of up to {_MOST_BANDS} bands is ({radius}, {ratio * radius}, {near}, {far})-sensitive",
            "a larger ratio, or near and far closer together",
            "try ratio=10",
        )

    def probability(self, distance: float) -> float:
        """The probability that two vectors at this distance share a bucket of at least one band."""
        return 1.0 - (1.0 - chance(self.width, distance) ** self.hashes) ** self.bands

    def buckets(self, vectors: Floats) -> npt.NDArray[np.int64]:
        """The bucket of each vector in each band, as rows of `bands` numbers."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dimensions:
            raise InputError(
                f"vectors of shape {vectors.shape}",
                f"rows of {self.dimensions} numbers",
                "give every vector the same length, as declared",
            )
        directions, offsets = self._family
        steps = np.floor((vectors @ directions + offsets) / self.width).astype(np.int64).view(np.uint64)
        mixed = np.tile(np.arange(1, self.bands + 1, dtype=np.uint64), (len(vectors), 1))
        for i in range(self.hashes):
            mixed = _mix(mixed ^ steps[:, i :: self.hashes])
        return mixed.view(np.int64)

    @cached_property
    def _family(self) -> tuple[Floats, Floats]:
        """The directions, as columns, and the offsets; hash i of band b is column b x hashes + i."""
        rng = np.random.default_rng(self.seed)
        n = self.hashes * self.bands
        return rng.normal(size=(self.dimensions, n)), rng.uniform(0.0, self.width, size=n)


def chance(width: float, distance: float) -> float:
    """The probability that one hash of this width agrees for two vectors at this distance."""
    if distance <= 0:
        return 1.0
    t = width / distance
    below = math.erfc(t / math.sqrt(2)) / 2  # of a standard normal number below -t
    return 1.0 - 2.0 * below - 2.0 / (math.sqrt(2 * math.pi) * t) * (1.0 - math.exp(-t * t / 2))


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A bijection of 64 bits that spreads every bit over all (a multiply-and-shift finalizer)."""
    words = (words + _MULTIPLIER) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(29))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(32))
