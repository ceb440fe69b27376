"""What is dead among the stored rows of a flow that sheds: a filter, which the manifest keeps (`control.shedding`).

For each group a floor time for each store (rows from before it are dead), and caps (epoch, share): of the rows that
arrived until that epoch, only those whose row number, a random number in [0, 1) made of the row itself, is below the
share live on.

A piece also says which share of what arrives is taken (`intake`): other rows are neither joined nor stored.

Invariant: a dead row stays dead: floors only rise, the cap of rows of an epoch only falls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from braidstream.model.directory import address_of
from braidstream.model.numbers import LOWEST, Address
from braidstream.model.values import Value, changed

__all__ = ["FIRST_BITS", "Filter", "Piece"]

FIRST_BITS = 4
"""The sample begins with 2^-4 of the keys."""
_APART = 1.25
"""Rows whose caps differ by more are not merged, so that estimates of what lives stay close."""
_MOST_CAPS = 64

F64 = npt.NDArray[np.float64]


class Piece(Value, frozen=True, array_like=True):
    """The filter on a range of addresses that begins at `low` and ends where the next piece begins."""

    low: Address = LOWEST
    floors: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By store: rows with an older time are dead."""
    caps: tuple[tuple[int, float], ...] = ()
    """(epoch, share), both ascending: the cap of a row is that of the first epoch not before its arrival."""

    intake: float = 1.0
    """Of the rows that arrive, those whose row number is below this share are taken."""

    def cap(self, epoch: int) -> float:
        """The share that is kept of rows that arrived in an epoch."""
        at = bisect_left(self.caps, (epoch, -1.0))
        return self.caps[at][1] if at < len(self.caps) else 1.0

    def left(self, epoch: int) -> float:
        """The same of all that arrived, also of what was not taken then; caps do not reach to the newest epoch yet."""
        return self.cap(epoch) if self.caps and epoch <= self.caps[-1][0] else min(self.intake, 1.0)

    def capped(self, epoch: int, share: float) -> Piece:
        """With all rows until now capped; earlier caps that are not lower say nothing any more."""
        lower = tuple(one for one in self.caps if one[1] < share)
        return changed(self, caps=(*lower, (epoch, share))[-_MOST_CAPS:])

    def raised(self, floors: Mapping[str, int]) -> Piece:
        """With higher floors."""
        old = self.floors
        return changed(self, floors={**old, **{s: max(t, old.get(s, t)) for s, t in floors.items()}})

    def with_(self, other: Piece) -> Piece:
        """The stricter of two, for groups that have merged."""
        both = changed(self.raised(other.floors), intake=min(self.intake, other.intake))
        for epoch in sorted({epoch for epoch, _ in (*self.caps, *other.caps)}, reverse=True):
            share = min(self.cap(epoch), other.cap(epoch))
            caps = both.caps[bisect_right(both.caps, (epoch, 2.0)) :]
            both = changed(both, caps=((epoch, share), *(c for c in caps if c[0] > epoch)))
        return changed(both, caps=_ascending(both.caps))


class Filter(Value, frozen=True, dict=True):
    """What is dead among the stored rows. `bits`: keys whose mixed hash ends in so many zeros are the sample."""

    pieces: tuple[Piece, ...] = (Piece(),)
    bits: int = FIRST_BITS
    stores: tuple[str, ...] = ()
    """The stores that it is about."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is dead."""
        return not any(piece.floors or piece.caps for piece in self.pieces)

    def at(self, address: Address) -> Piece:
        """The piece that an address belongs to."""
        return self.pieces[self.place(address)]

    def place(self, address: Address) -> int:
        """Where in `pieces` that is."""
        return bisect_right(self._lows, address) - 1

    @cached_property
    def _lows(self) -> list[Address]:
        return [piece.low for piece in self.pieces]

    @property
    def takes_all(self) -> bool:
        """Whether everything that arrives is taken."""
        return all(piece.intake >= 1.0 for piece in self.pieces)

    def intakes(self, stage: int = 0) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], F64]:
        """As `arrays`, for rows that arrive: no floors, and the shares that are taken."""
        pieces = self._of_stage(stage)
        shares = np.array([piece.intake for piece in pieces], dtype=np.float64)
        return self._firsts(stage), np.full(len(pieces), np.iinfo(np.int64).min), shares

    def _of_stage(self, stage: int) -> Sequence[Piece]:
        return self.pieces[self.place(address_of(stage, 0)) : bisect_left(self._lows, address_of(stage + 1, 0))]

    def _firsts(self, stage: int) -> npt.NDArray[np.uint64]:
        begin = address_of(stage, 0)
        return np.array([max(piece.low - begin, 0) for piece in self._of_stage(stage)], dtype=np.uint64)

    def arrays(
        self, store: str, epoch: int, stage: int = 0
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], F64]:
        """For rows of a store that arrived until an epoch: at which hashes pieces begin, their floors and their caps.

        The pieces are those of the region of its stage.
        """
        pieces, lows, never = self._of_stage(stage), self._firsts(stage), np.iinfo(np.int64).min
        floors = np.array([piece.floors.get(store, never) for piece in pieces], dtype=np.int64)
        return lows, floors, np.array([piece.cap(epoch) for piece in pieces], dtype=np.float64)

    def fitted(self, lows: Sequence[Address]) -> Filter:
        """One piece for each group, given where the groups begin; the stricter where a group has several."""
        known = [piece.low for piece in self.pieces]
        pieces = []
        for at, low in enumerate(lows):
            first = bisect_right(known, low) - 1
            end = bisect_left(known, lows[at + 1]) if at + 1 < len(lows) else len(known)
            piece = self.pieces[first]
            for other in self.pieces[first + 1 : end]:
                piece = piece.with_(other)
            pieces.append(changed(piece, low=low))
        return changed(self, pieces=tuple(pieces))

    def pruned(self, oldest_epoch: int, horizons: Mapping[str, int]) -> Filter:
        """Without floors and caps that no row meets any more: those of rows that have expired."""

        def left(piece: Piece) -> Piece:
            floors = {s: t for s, t in piece.floors.items() if s not in horizons or t > horizons[s]}
            return changed(piece, floors=floors, caps=tuple(c for c in piece.caps if c[0] >= oldest_epoch))

        return changed(self, pieces=tuple(left(piece) for piece in self.pieces))

    def barriers(self) -> set[int]:
        """Epochs at which the cap changes so much that rows from before and after should not be merged."""
        found = set()
        for piece in self.pieces:
            shares = [*(share for _, share in piece.caps), 1.0]
            found |= {e for (e, q), after in zip(piece.caps, shares[1:], strict=True) if after > _APART * q}
        return found


def _ascending(caps: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Caps of which none is made pointless by a later one that is not higher."""
    kept: list[tuple[int, float]] = []
    for epoch, share in reversed(caps):
        if not kept or share < kept[-1][1]:
            kept.append((epoch, share))
    return tuple(reversed(kept))
