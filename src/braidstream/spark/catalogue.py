"""What a manifest remembers of a flow's queries: which came and went while it ran, and how their state is arranged.

A query that is submitted or withdrawn is in the manifest before anything runs by it, so a restart finds the same
queries. The filters that rows were marked with, and the trees by which intermediate results are arranged, are
remembered as soon as they are chosen: state on disk means the same to every later start.

Pure: manifests in, manifests out. Cost: the number of queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from braidstream.query.tree import plain_tree
from braidstream.spark.planner import Plan
from braidstream.state.manifest import Manifest

__all__ = ["with_plan", "with_submitted", "without_query"]


def with_submitted(manifest: Manifest, name: str, entry: Mapping[str, Any]) -> Manifest:
    """The manifest with a query that sees what arrives after the manifest's epoch; `entry` has its text and sink."""
    memory = dict(manifest.memory)
    memory["submitted"] = {**memory.get("submitted", {}), name: {**entry, "since": manifest.epoch}}
    memory["withdrawn"] = [other for other in memory.get("withdrawn", []) if other != name]
    return replace(manifest, memory=memory)


def without_query(manifest: Manifest, name: str) -> Manifest:
    """The manifest after a query was withdrawn."""
    memory = dict(manifest.memory)
    memory["submitted"] = {key: value for key, value in memory.get("submitted", {}).items() if key != name}
    memory["withdrawn"] = sorted({*memory.get("withdrawn", []), name})
    return replace(manifest, memory=memory)


def with_plan(manifest: Manifest, plan: Plan) -> Manifest:
    """The manifest with the filters and trees of a plan, and without suspended joins that are not in it."""
    memory = dict(manifest.memory)
    memory["filters"] = {store.name: list(store.filters) for store in plan.stores if store.masked}
    memory["trees"] = {query: plain_tree(tree) for query, tree in plan.trees.items()}
    known = memory.get("suspended", {})
    memory["suspended"] = {join: epoch for join, epoch in known.items() if join in plan.siblings}
    return replace(manifest, memory=memory)
