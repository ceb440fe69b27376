"""What runs for a set of queries, as a value: made by `planner.make_plan`, read by whoever runs or explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from braidstream.kernels.measures import AggregatePlan
from braidstream.model.stores import Branch, Join, Store
from braidstream.plan.direct_keys import KeyColumns
from braidstream.query.tree import Node

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """What runs for a set of queries."""

    stores: tuple[Store, ...]
    branches: tuple[Branch, ...]
    joins: tuple[Join, ...]
    direct: Mapping[str, KeyColumns]
    """For each stream that is read directly: the key columns."""
    finished: Mapping[str, bool]
    """For each query whether the slots' output is its result, or Spark still has to finish it."""
    trees: Mapping[str, Node] = field(default_factory=dict)
    """The tree of each query of type 2."""
    siblings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each intermediate join the streams that its result is to be joined with next."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """For each intermediate join the join that it feeds."""
    aggregates: tuple[AggregatePlan, ...] = ()
    plain: Mapping[str, KeyColumns] = field(default_factory=dict)
    """For each other stream: the key columns that Spark sends, and routing hashes."""

    @property
    def cleaned_joins(self) -> tuple[Join, ...]:
        """The joins whose inputs may have been pushed."""
        return tuple(join for join in self.joins if join.goes_to_sink)

    @property
    def n_stages(self) -> int:
        """How many exchanges an epoch has."""
        second = any(plan.totals is not None for plan in self.aggregates)
        return 1 + max([int(second), *(join.stage for join in self.joins)])

    def schema_of(self, query: str) -> pa.Schema:
        """The schema of what the slots put out for a query."""
        found = {plan.query: plan.schema for plan in self.aggregates}
        return found[query] if query in found else next(join.schema for join in self.joins if join.query == query)
