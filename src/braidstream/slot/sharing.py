"""Joins that have the same composites enumerate them once, and each takes its own columns of them.

Two joins are *alike* when they read the same stores, with the same windows, gaps and conditions, the tuples since the
same epoch, and are deferred alike: then their composites are the same, whatever they put out. Ten queries that differ
in their SELECT lists cost one enumeration, and a column that several of them put out is taken once.

Invariant: every join of a slot is in exactly one set of alike joins.
Cost: a hash of each join an epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from braidstream.kernels.join import Composites, Pool, column
from braidstream.model.stores import Join, OutputColumn

__all__ = ["CompositeBatch", "shared", "told_columns"]


def shared(joins: Sequence[Join], deferred: Mapping[str, int]) -> list[tuple[Join, ...]]:
    """The joins in sets of those that have the same composites, in the order of the first of each."""
    alike: dict[Any, list[Join]] = defaultdict(list)
    for join in joins:
        matches = (join.on, join.gaps, join.bands, join.is_unkeyed)
        alike[join.inputs, matches, join.since, join.lives, deferred.get(join.query)].append(join)
    return [tuple(own) for own in alike.values()]


@dataclass(frozen=True)
class CompositeBatch:
    """A batch of composites; a column that is asked for again is not taken again."""

    pools: Sequence[Pool]
    composites: Composites
    _taken: dict[tuple[int, str], Any] = field(default_factory=dict)

    def column(self, out: OutputColumn) -> Any:
        """The values of one column of one input."""
        address = (out.input, out.column)
        if address not in self._taken:
            self._taken[address] = column(self.pools[out.input], out.column, self.composites.index[out.input])
        return self._taken[address]


def told_columns(join: Join, n: int, epoch: int, *, recovered: bool) -> list[pa.Array]:
    """The columns for `n` results of a join; none where they are not asked for."""
    if not join.told:
        return []
    return [pa.repeat(pa.scalar(recovered), n), pa.repeat(pa.scalar(epoch, pa.int64()), n)]
