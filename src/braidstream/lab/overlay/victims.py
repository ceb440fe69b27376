"""Load shedding: which tuple goes when a window outgrows its memory (DHTJoin 2.2).

A strategy is a pure function from the stored entries to the one to give up, or None for none of them. `refuse`,
`sample` and `planned` also turn arriving tuples away, which are then neither stored nor joined: `refuse` when the
memory is full, `sample` evenly, so many that what it takes just fits. `sample` is what equation 11 describes: memory
that is always full, and results that need all their tuples kept. `planned` takes as many more as make up for what
chance loses (`lab.overlay.planned`). The others join every arriving tuple and give up a stored one; they lose less.
What to expect of each is in `control.completeness.MODELS`.

Invariant: a strategy looks at the entries and the random source only. Cost: O(entries) a call; the peer takes the
oldest from a heap instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping
from heapq import heappop, heappush
from typing import Protocol

from braidstream.errors import InputError, nearest

__all__ = [
    "SHEDDINGS",
    "Sampler",
    "Shed",
    "Stored",
    "at_random",
    "least_productive",
    "oldest",
    "planned",
    "refuse",
    "sample",
    "shedding_named",
]


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


def sample(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """Take an even sample of what arrives (`Sampler`); for what is taken, the entry that would expire first goes."""
    return oldest(stored, rng)


def planned(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """Take a sample, and of the rest what equation 11 asks for (`Intake`); the entry that would expire first goes."""
    return oldest(stored, rng)


def at_random(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """Any entry."""
    return rng.choice(list(stored)) if stored else None


def least_productive(stored: Mapping[int, Stored], rng: random.Random) -> int | None:
    """The entry with the fewest results so far; among equals the one that would expire first."""
    return min(stored, key=lambda number: (stored[number].matches, stored[number].deadline, number), default=None)


SHEDDINGS: dict[str, Shed] = {
    "refuse": refuse,
    "sample": sample,
    "planned": planned,
    "oldest": oldest,
    "random": at_random,
    "least-productive": least_productive,
}


class Sampler:
    """Which arriving tuples an even sample takes: `limit` of every N in the window, each input's share of it.

    N is counted over all inputs that share the memory, the tuples turned away included: of those only the times are
    kept. Each input adds the share limit / N for a tuple to its credit, and takes one tuple for each whole unit, at a
    random point of it. So what is taken is never two tuples off the share, and yet no pattern of arrival (inputs or
    values in turn) can make the sample miss the same ones again and again.
    """

    def __init__(self, limit: int, rng: random.Random) -> None:
        self._limit, self._rng = limit, rng
        self._gone: list[int] = []
        self._credits: dict[Hashable, tuple[float, float]] = {}
        """By input: the credit so far, and the credit at which the next tuple is taken."""

    def advance(self, now: int) -> None:
        """Forget the times of what would have expired."""
        while self._gone and self._gone[0] < now:
            heappop(self._gone)

    def takes(self, n_stored: int, source: Hashable = None) -> bool:
        """Whether the arriving tuple of an input is one of the sample; `miss` it if it is turned away."""
        share = self._limit / (n_stored + len(self._gone) + 1)
        if share >= 1:
            return True
        credit, mark = self._credits.get(source) or (0.0, self._rng.random())
        is_taken = credit + share >= mark
        self._credits[source] = credit + share, (int(mark) + 1 + self._rng.random()) if is_taken else mark
        return is_taken

    @property
    def n_missing(self) -> int:
        """How many tuples of the window were turned away or given up."""
        return len(self._gone)

    def miss(self, deadline: int) -> None:
        """A tuple of the window was turned away or given up."""
        heappush(self._gone, deadline)


def shedding_named(name: str) -> Shed:
    """The strategy of that name."""
    if name not in SHEDDINGS:
        raise InputError(f"unknown shedding {name!r}", ", ".join(SHEDDINGS), nearest(name, SHEDDINGS))
    return SHEDDINGS[name]
