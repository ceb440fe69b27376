"""Numbers that are not to be taken for each other: a slot, a group, an epoch and an address are all integers.

Each is a type of its own for the type checker, and a plain `int` when the code runs: no cost, and the same JSON. They
are used where these numbers meet: directory, instructions, figures, reports, measures, and whoever decides by them.
Numbers get their type where they come in: from JSON (msgspec knows the types), from NumPy, from counting (`slot_ids`).
Hashes, prefixes and codes of cells stay integers: they meet in arrays, which have types of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType, cast

__all__ = ["BEFORE_FIRST", "FIRST_SLOT", "LOWEST", "Address", "EpochNumber", "GroupId", "SlotId", "slot_ids"]

SlotId = NewType("SlotId", int)
"""A slot, from 0 to the number of slots less one: a partition of a Spark job."""
FIRST_SLOT = SlotId(0)
GroupId = NewType("GroupId", int)
"""The identity of a group: `Directory.by_id` has it, for as long as it is not merged away."""
EpochNumber = NewType("EpochNumber", int)
"""An epoch, from 0."""
BEFORE_FIRST = EpochNumber(-1)
"""The epoch of a checkpoint in which none has happened."""
Address = NewType("Address", int)
"""A stage and a hash in it: `stage << 64 | hash` (`model.directory`)."""
LOWEST = Address(0)
"""That of stage 0 and hash 0."""


def slot_ids(n_slots: int) -> Sequence[SlotId]:
    """All slots, where there are so many."""
    return cast("Sequence[SlotId]", range(n_slots))
