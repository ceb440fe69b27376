"""The identifier circle of a settled Chord network, as one sorted array.

Idea: in a settled network everything a node would answer follows from the sorted identifiers alone. A node's i-th
finger is the first node at or after `id + 2^i`, so the finger that leads to a key, or the farthest one that does not
pass a node, follows from the leading bit of a distance, without building any table. A lookup is a walk of such steps,
and so is a dissemination: DHTJoin 3.1 calls a lookup a binary search. Both are computed for a million nodes at once.

Invariant: `ids` is ascending and without duplicates; a key belongs to the first node at or after it (its *owner*).
Identifiers stay below 2^52, so that a leading bit can be read off a float exactly.
Cost: one binary search a step and message; log2(n) / 2 steps a lookup on average.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError

__all__ = ["MOST_BITS", "Lookups", "Ring", "mix64", "place"]

MOST_BITS = 52
Ints = npt.NDArray[np.int64]


def mix64(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A uniform 64-bit hash of numbers (multiply and xor-shift rounds), the same on every machine."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def place(name: str, bits: int) -> int:
    """The identifier of a name: the leading bits of its digest."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> (64 - bits)


@dataclass(frozen=True)
class Lookups:
    """What many lookups found: the owner of each key, the hops to it, and how often each node was passed or reached."""

    owner: Ints
    hops: Ints
    load: Ints

    @property
    def mean_hops(self) -> float:
        """The average path length."""
        return float(self.hops.mean())


@dataclass(frozen=True)
class Ring:
    """The nodes of a settled network, named by their position in ring order."""

    ids: Ints
    bits: int

    @classmethod
    def random(cls, n_nodes: int, seed: int, bits: int = 48) -> Ring:
        """Nodes at uniformly random identifiers, as hashed addresses would be."""
        _check(n_nodes, bits)
        source = np.random.default_rng(seed)
        ids = np.unique(source.integers(0, 1 << bits, n_nodes, dtype=np.int64))
        while len(ids) < n_nodes:
            more = source.integers(0, 1 << bits, n_nodes - len(ids), dtype=np.int64)
            ids = np.unique(np.concatenate([ids, more]))
        return cls(ids, bits)

    @classmethod
    def even(cls, n_nodes: int, bits: int = 48) -> Ring:
        """Nodes at equal distances: the fully populated ring of DHTJoin's examples when n_nodes is 2^bits."""
        _check(n_nodes, bits)
        return cls(np.arange(n_nodes, dtype=np.int64) * ((1 << bits) // n_nodes), bits)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def size(self) -> int:
        """How many identifiers there are."""
        return 1 << self.bits

    def owner(self, keys: npt.ArrayLike) -> Ints:
        """The node that each key belongs to."""
        return np.searchsorted(self.ids, np.asarray(keys, dtype=np.int64), side="left") % len(self)

    def keys_of_values(self, values: npt.ArrayLike) -> Ints:
        """The keys of join attribute values: h(val(s, A)) of DHTJoin 3.2."""
        hashed = mix64(np.asarray(values, dtype=np.int64).astype(np.uint64))
        return (hashed >> np.uint64(64 - self.bits)).astype(np.int64)

    def value_shares(self, n_values: int) -> list[float]:
        """The share of the values 1 to `n_values` that each node owns."""
        owners = self.owner(self.keys_of_values(np.arange(1, n_values + 1)))
        return [float(share) for share in np.bincount(owners, minlength=len(self)) / n_values]

    def fingers(self, node: int) -> list[int]:
        """The distinct fingers of a node in ring order, without the node itself."""
        reach = self.ids[node] + (np.int64(1) << np.arange(self.bits, dtype=np.int64))
        return [int(f) for f in dict.fromkeys(self.owner(reach % self.size).tolist()) if f != node]

    def successors(self, node: int, count: int) -> list[int]:
        """The next nodes on the ring, at most `count`."""
        return [(node + step) % len(self) for step in range(1, min(count, len(self) - 1) + 1)]

    def farthest(self, node: Ints, last: Ints) -> Ints:
        """The farthest finger of each node that does not pass `last`; each node must differ from its `last`."""
        gap = (self.ids[last] - self.ids[node]) % self.size
        return self.owner((self.ids[node] + _leading_power(gap)) % self.size)

    def next_hop(self, node: Ints, keys: Ints) -> Ints:
        """The finger in whose interval each key lies; no node may own its key already.

        The finger is either before the key, or it is the first node after the key and thus its owner: a node knows the
        beginning of a finger's interval, so it needs no detour by the owner's predecessor.
        """
        gap = (keys - self.ids[node]) % self.size
        return self.owner((self.ids[node] + _leading_power(gap)) % self.size)

    def walk(self, source: Ints, keys: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """The lookups step by step: (which lookups move, from, to), until all have arrived."""
        owner = self.owner(keys)
        moving = np.flatnonzero(source != owner)
        at = source[moving]
        while len(moving):
            to = self.next_hop(at, keys[moving])
            yield moving, at, to
            left = to != owner[moving]
            moving, at = moving[left], to[left]

    def look_up(self, source: npt.ArrayLike, keys: npt.ArrayLike) -> Lookups:
        """Look up each key from its source node."""
        start, wanted = np.asarray(source, dtype=np.int64), np.asarray(keys, dtype=np.int64)
        hops, load = np.zeros(len(wanted), dtype=np.int64), np.zeros(len(self), dtype=np.int64)
        for moving, _, to in self.walk(start, wanted):
            hops[moving] += 1
            load += np.bincount(to, minlength=len(self))
        return Lookups(self.owner(wanted), hops, load)


def _leading_power(gaps: Ints) -> Ints:
    """The largest power of two in each positive gap. Exact below 2^53."""
    _, exponent = np.frexp(gaps.astype(np.float64))
    return np.int64(1) << (exponent.astype(np.int64) - 1)


def _check(n_nodes: int, bits: int) -> None:
    if n_nodes < 1:
        raise InputError(f"{n_nodes} nodes make no network", "1 node or more")
    if not 0 <= bits <= MOST_BITS:
        raise InputError(f"identifiers of {bits} bits", f"0 to {MOST_BITS} bits")
    if n_nodes > 1 << bits:
        raise InputError(f"{n_nodes} nodes do not fit into {bits} bits", "at most 2^bits nodes", "take more bits")
