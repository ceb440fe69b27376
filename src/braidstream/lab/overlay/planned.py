"""Shedding by plan: as complete as equation 11 says, and a little more, for the least work (DHTJoin 5).

Equation 11 supposes average rates. At random times a sample that just fits is a little less complete: while there are
fewer tuples than usual there are fewer results to find, and while there are more, no more of them are found. A peer
that joins every tuple before it sheds makes up for that, and for far more. In between, `planned` takes a sample, and of
the other tuples just as many as keep the answer at what the equation says; for each of these the oldest goes. So a
cluster of equation 12's size reaches what was wanted, and no work is spent on more.

A `Window` knows how many tuples there are on average: by Little's law the sum of their lifetimes over the time in which
they came. An `Intake` reckons for each arriving tuple which share of its results can be found, from how many tuples the
other windows keep and how many there are, and holds the sum over the last window against the equation.

Invariant: nothing is joined to find that out. Cost: O(ports) a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braidstream.control.completeness import PLAN_MARGIN

__all__ = ["Filling", "Intake", "Window"]

_N_WINDOWS = 10
"""Over how many windows the average is taken."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A window as a plan sees it: the tuples it keeps, those there are, those there are on average, and its room."""

    n_kept: float
    n_all: float
    mean: float
    limit: float

    @property
    def planned(self) -> float:
        """The share of the window that fits at average rates."""
        return min(1.0, self.limit / self.mean)


class Window:
    """How many tuples a window holds on average."""

    def __init__(self) -> None:
        self._lifetimes = self._elapsed = 0.0
        self._last: int | None = None

    def count(self, now: int, deadline: int) -> None:
        """A tuple arrives, whether it is kept or not. Times are in one unit, any."""
        lifetime = max(deadline - now, 1)
        if self._last is not None and now > self._last:
            past = now - self._last
            faded = max(0.0, 1 - past / (_N_WINDOWS * lifetime))
            self._lifetimes *= faded
            self._elapsed = self._elapsed * faded + past
        self._last = now if self._last is None else max(now, self._last)
        self._lifetimes += lifetime

    def filling(self, n_kept: int, n_all: int, limit: int) -> Filling:
        """What a plan wants to know."""
        mean = self._lifetimes / self._elapsed if self._elapsed else n_all
        return Filling(n_kept, n_all, max(mean, 1.0), limit)


class Intake:
    """Which tuples an operator takes beside the sample, to be as complete as equation 11 says."""

    def __init__(self) -> None:
        self._found = self._whole = 0.0
        """Of the last window's tuples: what they found, and all there was to find, in shares of an average tuple's."""

    def takes(self, own: Filling, others: Sequence[Filling], is_sampled: bool) -> bool:
        """Whether to take a tuple that arrives at a window; the sample always is."""
        planned, reach, whole = own.planned, 1.0, 1.0
        for other in others:
            planned *= other.planned
            reach *= other.n_kept / other.mean
            whole *= other.n_all / other.mean
        faded = 1 - 1 / own.mean
        self._whole = self._whole * faded + whole
        self._found *= faded
        is_taken = is_sampled or self._found < (planned + PLAN_MARGIN) * self._whole
        if is_taken:
            self._found += reach
        return is_taken
