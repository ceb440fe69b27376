"""Join-biclique with subgroups (BiStream, SHC's second baseline): each side is stored once, and probes the other side.

The slots are divided: one half are the units of the first side, the other half those of the second. The units of a side
are divided into `subgroups` by key hash. A row is *stored* in one unit of its own side, chosen within its subgroup by
its stripe number, and *probes* all units of its subgroup on the other side. So no row is stored twice, whatever the
skew; but every row, heavy key or not, is sent to 1 + (units of a side / subgroups) slots.

A pair is produced where its earlier row is stored: by the epoch of arrival, and within one epoch by event time (of
equal times the first side's row counts as the earlier). With one slot both sides are there.

Cost: that of routing, times the number of copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braidstream.kernels.rows import I64, U64

__all__ = ["PROBE", "STORED", "Biclique"]

STORED, PROBE = 14, 15
"""The uses (`routing.cells_kind`) of rows that are stored, and of rows that only probe."""

U16 = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Biclique:
    """Which slots are units of which side and subgroup."""

    n_slots: int
    subgroups: int = 1

    @cached_property
    def units(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each side and subgroup its slots."""
        half = self.n_slots // 2
        sides = (range(half), range(half, self.n_slots)) if half else (range(1), range(1))
        n = min(self.subgroups, *(len(side) for side in sides))
        return tuple(tuple(tuple(side[group::n]) for group in range(n)) for side in sides)

    def homes(self, hashes: U64, stripes: U64, side: int) -> U16:
        """The slot that stores each row of a side."""
        groups = self._groups(hashes)
        made = np.zeros(len(hashes), dtype=np.uint16)
        for group, units in enumerate(self.units[side]):
            own = groups == group
            made[own] = np.array(units, dtype=np.uint16)[(stripes[own] % np.uint64(len(units))).astype(np.int64)]
        return made

    def probes(self, hashes: U64, side: int) -> tuple[I64, U16]:
        """Rows of a side repeated to all units that they probe: which row each is of, and its slot."""
        groups = self._groups(hashes)
        rows, slots = [], []
        for group, units in enumerate(self.units[1 - side]):
            own = np.flatnonzero(groups == group)
            rows.append(np.repeat(own, len(units)))
            slots.append(np.tile(np.array(units, dtype=np.uint16), len(own)))
        return np.concatenate(rows), np.concatenate(slots)

    def _groups(self, hashes: U64) -> I64:
        return (hashes % np.uint64(len(self.units[0]))).astype(np.int64)
