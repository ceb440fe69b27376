"""Which groups to push to disk (D-CAPE 4.3): the idle ones first, then the least productive.

Productivity of a group is P_s / P_o, the bytes of its active state over the results it gave so far: a *large* value is
a poor group. Pushing poor groups leaves the memory to those that will give more results, so more is produced at once
and less is left to clean-up. A group that has had no new tuple for longer than theta_t (`idle_after`) goes before all
others, the longest idle first: nothing probes it.

Invariant: nothing is pushed while the state fits the budget. Otherwise at least `share` of the state is pushed, and at
least what is above the budget; without the last group chosen it would be less. The choice depends on the figures
alone, so a replayed epoch pushes the same groups. Cost: O(groups log groups).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from braidstream.model.numbers import EpochNumber, GroupId, SlotId

__all__ = ["GroupState", "choose_spills", "least_productive", "size_per_result"]


@dataclass(frozen=True, slots=True)
class GroupState:
    """The active state of one group, as the policies of memory see it."""

    group: GroupId
    slot: SlotId
    bytes: int
    """P_s: the state that is probed; inactive generations do not count."""
    outputs: float
    """P_o: the results given so far."""
    touched: EpochNumber
    """T_u: the epoch of its last new tuple."""
    has_inactive: bool
    """Whether it has generations on disk that are not cleaned up."""


def size_per_result(bytes_: float, outputs: float) -> float:
    """P_s / P_o, the measure of productivity: the larger, the less productive; without any result infinite."""
    return bytes_ / outputs if outputs > 0 else float("inf")


def choose_spills(
    groups: Sequence[GroupState],
    budget_bytes: int,
    *,
    share: float = 0.3,
    idle_after: int,
    now: EpochNumber,
    by: str = "unproductive",
) -> list[GroupId]:
    """The groups of one slot to push now, in the order of their choice; none while the state fits the budget.

    `by` "random" or "productive" are the rivals of D-CAPE 4.4, to compare with.
    """
    total = sum(one.bytes for one in groups)
    if total <= budget_bytes:
        return []
    amount = max(share * total, total - budget_bytes)
    if by == "random":  # another order each time, and the same where an epoch is replayed
        return [one.group for one in _first(amount, groups, lambda one: crc32(f"{now} {one.group}".encode()))]
    if by == "productive":
        return [one.group for one in _first(amount, groups, lambda one: size_per_result(one.bytes, one.outputs))]
    return [one.group for one in least_productive(groups, amount, idle_after=idle_after, now=now)]


def least_productive(
    groups: Sequence[GroupState], amount: float, *, idle_after: int, now: EpochNumber
) -> list[GroupState]:
    """Idle groups, then those with the largest P_s / P_o, until `amount` bytes are reached."""
    return _first(amount, groups, lambda one: _rank(one, idle_after, now))


def _first(amount: float, groups: Sequence[GroupState], rank: Callable[[GroupState], Any]) -> list[GroupState]:
    """The first groups by rank, until `amount` bytes are reached."""
    chosen: list[GroupState] = []
    for one in sorted((one for one in groups if one.bytes > 0), key=rank):
        if amount <= 0:
            break
        chosen.append(one)
        amount -= one.bytes
    return chosen


def _rank(one: GroupState, idle_after: int, now: EpochNumber) -> tuple[float, float, int, int]:
    """Idle groups by the age of their last tuple, then the others by P_s / P_o; large ones first where that is even."""
    idle = now - one.touched
    if idle > idle_after:
        return -idle, -size_per_result(one.bytes, one.outputs), -one.bytes, one.group
    return 0.0, -size_per_result(one.bytes, one.outputs), -one.bytes, one.group
