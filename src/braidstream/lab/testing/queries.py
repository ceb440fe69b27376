"""Continuous queries in CQL on the engine without Spark: planned by the engine's planner, come and gone while it runs.

    harness = QueryHarness(folder, {"A": schema, "B": schema, "C": schema}, {"q": "SELECT ... WHERE A.x = B.x AND ..."})
    harness.epoch({"A": table, "B": table})
    harness.submit("later", "SELECT ...")
    harness.restart(slots=3)
    harness.withdraw("q")

The text is parsed by `query.parse` and planned by `planner.make_plan`, as a `Flow` does; submitted and withdrawn
queries are remembered in the manifest by `plan.catalogue`, and a restart finds them there. What Spark computes before
and after the join is computed by DuckDB, which also knows the types of aggregates (`lab.testing.expressions`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.rows import HASH, KEY, MASK, TIME, stored_name
from braidstream.lab.testing.expressions import DuckTypes, evaluate, spark_type
from braidstream.lab.testing.harness import Harness, Indexed, LocalRunner
from braidstream.model.declarations import Declared, Target
from braidstream.model.faults import reach
from braidstream.model.stores import Branch
from braidstream.plan.catalogue import since_of, with_declared, with_plan, with_submitted, without_query
from braidstream.plan.planner import Plan, make_plan
from braidstream.plan.shapes import StreamShape
from braidstream.query import Column, Query, Schema, parse
from braidstream.query.bands import NO_EQUALITY
from braidstream.query.evolution import Held, Step, compare
from braidstream.query.tree import Statistics, tree_of
from braidstream.spark.sinks import FileSink
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.notes import Notes, Submitted

__all__ = ["QueryHarness"]


class QueryHarness(Harness):
    """Epochs of a flow of CQL queries in one process. Every stream has its event time in the column `ts`."""

    def __init__(
        self,
        folder: str | Path,
        schemas: Mapping[str, pa.Schema],
        queries: Mapping[str, str],
        *,
        silence_us: int | None = None,
        statistics: Statistics | None = None,
        **options: Any,
    ) -> None:
        self._first, self._silence_us, self._statistics = dict(queries), silence_us, statistics
        self._folders = {name: name for name in queries}
        super().__init__(folder, schemas, dict.fromkeys(queries, ()), **options)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self._plan

    def submit(self, name: str, text: str) -> None:
        """Add a query, effective at the next epoch."""
        self.runner.checkpoint.commit(with_submitted(self.manifest, name, Submitted(text)))
        self.restart()

    def withdraw(self, name: str) -> None:
        """Remove a query, effective at the next epoch; what it is owed is delivered first."""
        if self.runner.owes({j.query for j in self.plan.joins if j.query.split(":")[0] != name}):
            self.runner.settle()
        self.runner.checkpoint.commit(without_query(self.manifest, name))
        self.restart()

    def evolve(self, declared: Mapping[str, tuple[str, str]]) -> tuple[Step, ...]:
        """Start again with other declarations, by name a text and a folder, as `Flow.start` does; gives the changes."""
        parsed = lambda text, name: self._parsed({name: text})[name]  # noqa: E731
        before = self._declared({name: (text, self._folders[name]) for name, text in self._first.items()})
        now, notes = self._declared(declared), self.manifest.notes
        came = {name: Declared("", entry.text) for name, entry in notes.submitted.items()}
        steps = compare(Held(before, came, notes.withdrawn), now, parsed, self.manifest.epoch)
        ends = {step.ends for step in steps}
        if self.runner.owes({join.query for join in self.plan.joins if join.query.split(":")[0] not in ends}):
            self.runner.settle()
        reach("change-settled")
        self.runner.checkpoint.commit(with_declared(self.manifest, now, steps, {}, {}))
        self._first = {name: text for name, (text, _) in declared.items()}
        self._folders = {name: folder for name, (_, folder) in declared.items()}
        self.restart()
        return steps

    def _declared(self, declared: Mapping[str, tuple[str, str]]) -> dict[str, Declared]:
        queries = self._parsed({name: text for name, (text, _) in declared.items()})
        return {n: Declared(queries[n].fingerprint, text, Target(to)) for n, (text, to) in declared.items()}

    def _sink(self, name: str) -> FileSink:
        return super()._sink(self._folders.get(name, name))

    def _planned(self, joins: Mapping[str, Sequence[Indexed]], *, late: bool) -> Plan:
        del joins
        self._takes_late = late
        return self._plan_of(self._parsed(self._first), {}, Notes())

    def _start(self, checkpoint: Checkpoint) -> LocalRunner:
        """As `Flow.start` and `Launch.start`: the queries of the manifest, and what its rows are arranged by."""
        manifest = checkpoint.latest()
        submitted = manifest.notes.submitted
        texts = {**self._first, **{name: entry.text for name, entry in submitted.items()}}
        for name in manifest.notes.withdrawn:
            texts.pop(name, None)
        queries = self._parsed(texts)
        since = {name: since_of(manifest, name) for name in texts}
        since |= {name: entry.since for name, entry in submitted.items()}
        self._plan = self._plan_of(queries, since, manifest.notes)
        self._sinks = {name: self._sink(name) for name in queries}
        checkpoint.commit(with_plan(manifest, self._plan))
        return self._started(checkpoint, queries, self._silence_us)

    def _parsed(self, texts: Mapping[str, str]) -> dict[str, Query]:
        schemas = {
            name: Schema(tuple(Column(field.name, spark_type(field.type)) for field in schema), "ts")
            for name, schema in self.schemas.items()
        }
        return {name: _parsed(text, tuple(schemas.items()), name) for name, text in texts.items()}

    def _plan_of(self, queries: Mapping[str, Query], since: Mapping[str, int], notes: Notes) -> Plan:
        shapes = {name: StreamShape(name, schema, "ts") for name, schema in self.schemas.items()}
        late = {name: schema.names if self._takes_late else () for name, schema in self.schemas.items()}
        filters, known = notes.filters, notes.trees or {}
        trees = {name: tree_of(queries[name], known[name]) for name in known if name in queries}
        own, types = list(queries.values()), DuckTypes(self.schemas)
        made = make_plan(shapes, own, late, self._statistics, since, filters, trees, types)
        return made if self._hash_keys is hash_columns else _verified(made)

    def _branch_table(self, branch: Branch, table: pa.Table) -> pa.Table:
        """What Spark hands to the routing task, computed from the same expressions (`sources.general_frame`)."""
        wanted = {f"{KEY}{i}@{s.index}": key for s in branch.stores for i, key in enumerate(s.compared)}
        wanted |= {f"{HASH}{i}@{s.index}": key for s in branch.stores for i, key in enumerate(s.key)}
        wanted |= {f"filter{i}@{s.index}": f for s in branch.stores for i, f in enumerate(s.filters)}
        wanted |= {added.name: added.key for added in branch.computed}
        found = evaluate(table, wanted).combine_chunks()
        columns: dict[str, Any] = {stored_name(name): table.column(name) for name in table.column_names}
        columns[TIME] = table.column("ts")
        for added in branch.computed:
            columns[added.name] = self._hash(found, [added.name]) if added.is_hash else found.column(added.name)
        for store in branch.stores:
            mine = f"@{store.index}"
            columns[store.branch_column(HASH)] = self._hash(found, [f"{HASH}{i}{mine}" for i in range(len(store.key))])
            if store.verified:
                names = [f"{KEY}{i}" for i in range(len(store.compared))]
                columns |= {store.branch_column(name): found.column(f"{name}{mine}") for name in names}
            if store.filters:
                columns[store.branch_column(MASK)] = _mask(found, len(store.filters), mine)
        return pa.table(columns)

    def _hash(self, found: pa.Table, names: Sequence[str]) -> pa.Array:
        hashes, valid = self._hash_keys([found.column(name).combine_chunks() for name in names])
        return pa.array(hashes.view(np.int64), mask=~valid)


@lru_cache(maxsize=64)
def _parsed(text: str, schemas: tuple[tuple[str, Schema], ...], name: str) -> Query:
    """A query is a value; a start takes most of its time to read it again."""
    return parse(text, dict(schemas), name, allow=NO_EQUALITY)


def _verified(plan: Plan) -> Plan:
    """The plan for hashes that collide, also where the planner relies on it that they cannot."""
    stores = tuple(store if store.summarized else replace(store, verified=True) for store in plan.stores)
    own = [tuple(stores[store.index] for store in branch.stores) for branch in plan.branches]
    branches = tuple(replace(b, stores=mine) for b, mine in zip(plan.branches, own, strict=True))
    return replace(plan, stores=stores, branches=branches)


def _mask(found: pa.Table, n_filters: int, mine: str) -> pa.Array:
    mask = np.zeros(found.num_rows, dtype=np.int64)
    for bit in range(n_filters):
        passes = found.column(f"filter{bit}{mine}").fill_null(False).to_numpy(zero_copy_only=False)
        mask |= passes.astype(np.int64) << bit
    return pa.array(mask)
