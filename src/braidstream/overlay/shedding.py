"""Load shedding: which tuple goes when a window outgrows its memory (DHTJoin 2.2).

A strategy is a pure function from the stored entries to the one to give up, or None to refuse the arriving tuple, which
is then neither stored nor joined. `refuse` is the strategy that equation 11 describes: a result needs all its tuples
kept. The others keep joining every arriving tuple and give up a stored one; they lose less (`completeness_probing`).

Invariant: a strategy looks at the entries and the random source only. Cost: O(entries) a call; the peer takes the
oldest from a heap instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Protocol

from braidstream.errors import InputError, nearest

__all__ = ["SHEDDINGS", "Shed", "Stored", "at_random", "least_productive", "oldest", "refuse", "shedding_named"]


class Stored(Protocol):
    """What a strategy may know of a stored entry."""

    @property
    def deadline(self) -> int:
        """Until when it can be part of a result."""
        ...

    @property
    def matches(self) -> float:
        """How many results it has been part of."""
        ...


Shed = Callable[[Mapping[int, Stored], random.Random], "int | None"]


def refuse(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """Keep what is stored; the arriving tuple goes."""
    return None


def oldest(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """The entry that would expire first."""
    return min(stored, key=lambda number: (stored[number].deadline, number), default=None)


def at_random(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """Any entry."""
    return rng.choice(list(stored)) if stored else None


def least_productive(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """The entry with the fewest results so far; among equals the one that would expire first."""
    return min(stored, key=lambda number: (stored[number].matches, stored[number].deadline, number), default=None)


SHEDDINGS: dict[str, Shed] = {
    "refuse": refuse,
    "oldest": oldest,
    "random": at_random,
    "least-productive": least_productive,
}


def shedding_named(name: str) -> Shed:
    """The strategy of that name."""
    if name not in SHEDDINGS:
        raise InputError(f"unknown shedding {name!r}", ", ".join(SHEDDINGS), nearest(name, SHEDDINGS))
    return SHEDDINGS[name]
