"""Which generations of a group to make one before the rest: as many as are alike in size, so that few are ever left.

Every push of a group adds a generation. Without more, a group with an unbounded window that is pushed a thousand times
has a thousand of them, and the last clean-up joins each with all before. So generations are merged in tiers, like the
runs of a log-structured store: `FAN` of them, each within a factor `FAN` in size, are cleaned up among themselves and
are one generation then. What is missing between them and the others stays missing until those are cleaned up too.

Where windows are bounded, only generations are taken whose deadlines lie close together: at most a quarter of the time
that the last of them has left. So no row waits much longer for its clean-up than it would have.

Invariant: a group with generations of no more than `FAN` - 1 a tier is left alone. So it has O(log of its size) of
them, and each row takes part in O(log) such clean-ups. The choice depends on the figures alone.
Cost: O(generations log generations).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["FAN", "Generation", "alike"]

FAN = 8


@dataclass(frozen=True)
class Generation:
    """One inactive generation of a group."""

    number: int
    bytes: int
    deadline: int
    """The latest deadline of its rows."""


def alike(generations: Sequence[Generation], watermark: int | None) -> list[int]:
    """The numbers of the generations to make one, ascending: of the lowest tier that has `FAN`; none if no tier has."""
    if len(generations) < FAN:
        return []
    tiers: dict[int, list[Generation]] = defaultdict(list)
    for one in generations:
        tiers[_tier(one.bytes)].append(one)
    for tier in sorted(tiers):
        found = _close(sorted(tiers[tier], key=lambda one: (one.deadline, one.number)), watermark)
        if found:
            return sorted(one.number for one in found)
    return []


def _close(generations: Sequence[Generation], watermark: int | None) -> Sequence[Generation]:
    """The first `FAN` neighbours whose deadlines lie close together, and those after them for which that holds too."""
    for begin in range(len(generations) - FAN + 1):
        first = generations[begin].deadline
        for end in range(len(generations), begin + FAN - 1, -1):
            last = generations[end - 1].deadline
            if last == first or (watermark is not None and last - first <= (last - watermark) // 4):
                return generations[begin:end]
    return ()


def _tier(size: int) -> int:
    tier = 0
    while size >= FAN:
        size //= FAN
        tier += 1
    return tier
