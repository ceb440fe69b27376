"""Families: the stores that are joined with each other, which share the grid of a heavy key.

A grid has one dimension for each use of a store: a store that one join uses twice (a stream joined with itself) has
two, and each of its rows then goes to the cells of both. The family's name lists its dimensions in a fixed order, and
says at which stage they are joined unless that is the first, so that a grid of an earlier run can be understood
whatever queries there are now.

Stores whose rows aggregates summarize stay hash-routed, with all that they are joined with: a summary needs all rows of
a key in one place. Cost: O(joins), once for each plan.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from braidstream.kernels.stripes import store_of, use_name
from braidstream.model.stores import UNKEYED_KEY, Join, Store

__all__ = [
    "dimensions_of",
    "family_of",
    "input_uses",
    "is_unkeyed_family",
    "shown_dimension",
    "stage_of",
    "with_families",
]


def family_of(dimensions: Sequence[str], stage: int = 0) -> str:
    """The name of a family."""
    return json.dumps({"stage": stage, "dimensions": list(dimensions)} if stage else list(dimensions))


def dimensions_of(family: str) -> tuple[str, ...]:
    """The dimensions that a family's name lists."""
    plain = json.loads(family)
    return tuple(plain["dimensions"] if isinstance(plain, dict) else plain)


def shown_dimension(name: str) -> str:
    """The stream and key of a dimension, for people."""
    return store_of(name).replace("`", "")


def is_unkeyed_family(family: str) -> bool:
    """Whether a family is of joins without an equality: its one key always has a grid."""
    return bool(family) and all(store_of(name).endswith(f"[{UNKEYED_KEY}]") for name in dimensions_of(family))


def stage_of(family: str) -> int:
    """The stage at which a family's stores are joined."""
    plain = json.loads(family)
    return int(plain["stage"]) if isinstance(plain, dict) else 0


def input_uses(join: Join) -> list[tuple[int, int]]:
    """For each input of a join its store, and how many inputs before it have the same store."""
    seen: Counter[int] = Counter()
    uses = []
    for entry in join.inputs:
        uses.append((entry.store, seen[entry.store]))
        seen[entry.store] += 1
    return uses


def with_families(stores: Sequence[Store], joins: Sequence[Join], summarized: Iterable[int] = ()) -> tuple[Store, ...]:
    """The stores, each with its family and its places in it. `summarized` are stores that aggregates read."""
    n_uses: dict[int, int] = defaultdict(int)
    for join in joins:
        for store, use in input_uses(join):
            n_uses[store] = max(n_uses[store], use + 1)
    excluded = set(summarized)
    made = list(stores)
    for members in _components(joins):
        if excluded & members:
            continue
        uses = sorted((stores[i].name, use, i) for i in members for use in range(n_uses[i]))
        family = family_of([use_name(name, use) for name, use, _ in uses], max(stores[i].stage for i in members))
        for i in members:
            made[i] = replace(stores[i], family=family, places=tuple(p for p, use in enumerate(uses) if use[2] == i))
    return tuple(made)


def _components(joins: Sequence[Join]) -> list[set[int]]:
    """The stores connected by joins."""
    found: list[set[int]] = []
    for join in joins:
        together = {entry.store for entry in join.inputs}
        apart = [one for one in found if not one & together]
        found = [*apart, together.union(*(one for one in found if one & together))]
    return found
