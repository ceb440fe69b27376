"""What travels between tasks: an envelope is a blob for a slot, and its kind says what the blob is.

On the wire a kind is one 32-bit number (`Kind.code`); nothing outside of this file takes it apart. It is negative where
the blob is not there itself, but its place in a file (`slot/handover.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

__all__ = ["Content", "Envelope", "Kind"]

_USE_BITS, _CONTENT_BITS = 8, 3


class Content(IntEnum):
    """What a blob holds."""

    ROWS = 0
    """Rows of a store, for its groups; where it is a store of summaries, changes of them."""
    CELLS = 1
    """Rows of a store for cells of heavy keys, or units of a biclique, by their use in the join."""
    LATE = 2
    """Late rows of a branch's stream."""
    TALLY = 3
    """What a routing task saw, to be counted once."""
    SEEN = 4
    """The same, for every slot."""
    REACHED = 5
    """The watermark after the epoch, for slots of later stages."""
    REPORT = 6
    """A slot's report on its way through later stages."""
    TICK = 7
    """Nothing: it only wakes a slot."""


class Kind(NamedTuple):
    """What a blob holds, of which store or branch, and for which of a store's uses in a join."""

    content: Content
    number: int = 0
    use: int = 0

    @property
    def code(self) -> int:
        """As one number."""
        return self.content | self.use << _CONTENT_BITS | self.number << _CONTENT_BITS + _USE_BITS

    @classmethod
    def of(cls, code: int) -> Kind:
        """The kind of a number."""
        content, use = code & (1 << _CONTENT_BITS) - 1, code >> _CONTENT_BITS & (1 << _USE_BITS) - 1
        return cls(Content(content), code >> _CONTENT_BITS + _USE_BITS, use)

    @property
    def store(self) -> int | None:
        """The store that the rows belong to; None where it holds something else."""
        return self.number if self.content in (Content.ROWS, Content.CELLS) else None


class Envelope(NamedTuple):
    """A blob on its way to a slot."""

    slot: int
    kind: Kind
    blob: bytes | pa.Buffer
    is_place: bool = False
    """Whether the blob says where to find what was sent."""

    @property
    def code(self) -> int:
        """The kind, and whether the blob is a place, as one number."""
        return ~self.kind.code if self.is_place else self.kind.code

    @classmethod
    def of(cls, slot: int, code: int, blob: pa.Buffer) -> Envelope:
        """What was sent with that number."""
        return cls(slot, Kind.of(~code), blob, True) if code < 0 else cls(slot, Kind.of(code), blob)
