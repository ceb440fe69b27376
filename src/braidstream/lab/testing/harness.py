"""The engine without Spark: routing, slots, manifests and sinks in one process, for tests that run by the hundred.

    harness = Harness(folder, {"R": schema, "S": schema}, {"pairs": [Indexed("R", "R", ("k",), 10), ...]}, slots=3)
    harness.epoch({"R": table, "S": table})
    harness.restart(slots=5)
    harness.results("pairs")

All that the engine does with rows and files is its own code: `Router` routes, `SlotTask` joins and stores,
`EpochRunner` commits, `FileSink` delivers. `LocalCluster` is in Spark's place, with a dict of envelopes by slot for the
exchange; what Spark computes upstream of the routing (key hashes and filters) is done here with NumPy. `hash_keys` may
be replaced, to make keys collide. `braidstream.lab.testing.queries` takes CQL instead of joins on columns.

An epoch that fails (`braidstream.model.faults.armed`) is lost as with Spark: `restart` and give it again.

Cost: some milliseconds an epoch, most of it for files.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.epoch.cluster import SlotFunction
from braidstream.epoch.decider import Decider, Regridder
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.idleness import Patience
from braidstream.epoch.outlets import Outlet
from braidstream.epoch.recorder import Recorder
from braidstream.epoch.regions import with_regions
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.epoch.runner import EpochRunner
from braidstream.epoch.shedder import spiller_of
from braidstream.epoch.single_grids import with_grids
from braidstream.epoch.spiller import Spiller
from braidstream.functions.node_cluster import NodeStage
from braidstream.kernels.families import with_families
from braidstream.kernels.hashing import hash_columns
from braidstream.kernels.measures import EPOCH, WATERMARK, AggregatePlan
from braidstream.kernels.routing import Routes, envelopes_to_batch
from braidstream.kernels.rows import DEADLINE, HASH, KEY, MASK, TIME
from braidstream.lab.testing.expressions import evaluate
from braidstream.lab.testing.restless import RestlessSpiller
from braidstream.model.directory import Directory
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.numbers import BEFORE_FIRST
from braidstream.model.reports import StagedFile
from braidstream.model.snapshots import Placed
from braidstream.model.stores import Branch, Join, JoinInput, OutputColumn, Store
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.slot.epoch_task import read_manifest, routes_of
from braidstream.spark.sink import Delivery
from braidstream.spark.sinks import FileSink, deliver
from braidstream.spark.sources import Router
from braidstream.state.cells import resettled
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Notes
from braidstream.state.staging import Staging, check_staged

__all__ = ["Condition", "Harness", "HashKeys", "Indexed", "LocalCluster", "LocalOutlets", "LocalRunner", "by_slot"]

LocalRunner = EpochRunner[Sequence[pa.RecordBatch]]

Condition = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""A filter on the rows of one stream."""

HashKeys = Callable[[Sequence[pa.Array]], tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]]
"""The hashes of rows from their key columns, and which rows have no NULL among them."""


@dataclass(frozen=True)
class Indexed:
    """One input of a join: a stream under an alias, its key columns and its window."""

    alias: str
    stream: str
    key: tuple[str, ...]
    window_us: int | None
    condition: Condition | None = None


class Harness:
    """Epochs of a flow in one process. Every stream has its event time in the column `ts`."""

    def __init__(
        self,
        folder: str | Path,
        schemas: Mapping[str, pa.Schema],
        joins: Mapping[str, Sequence[Indexed]],
        *,
        delays_us: Mapping[str, int] | None = None,
        slots: int = 1,
        groups: int = 8,
        shares: Sequence[int] = (),
        hash_keys: HashKeys = hash_columns,
        keep: int = 10,
        late: bool = False,
        root: str | None = None,
        out: str | None = None,
        controller: Controller | None = None,
        regridder: Regridder | None = None,
        biclique: int | None = None,
        overflow: Overflow | None = None,
        interval_s: float | None = None,
        restless_spills: int | None = None,
        leased: bool = False,
        patience: Patience | None = None,
        history: int = 0,
        durable: bool = False,
    ) -> None:
        self._history, self._durable = history, durable
        self._patience = patience or Patience()
        self.folder, self.schemas, self._leased = Path(folder), schemas, leased
        self._overflow, self._interval_s, self._restless_spills = overflow, interval_s, restless_spills
        self._hash_keys, self._keep, self._controller, self._groups = hash_keys, keep, controller, groups
        self._shares = shares
        self._regridder = regridder
        self._root, self._out = root or str(self.folder / "ck"), out or str(self.folder)
        self._conditions: dict[str, Condition] = {}
        self._delays_us = {name: (delays_us or {}).get(name, 0) for name in schemas}
        self._plan = self._planned(joins, late=late)
        self._sinks = {name: self._sink(name) for name in joins}
        self._late = {name: FileSink("parquet", f"{self._out}/late/{name}", {}) for name in schemas} if late else {}
        checkpoint = self._checkpoint()
        self._identity = Identity.new("harness", {}, {})
        first = Manifest(
            BEFORE_FIRST, Directory.of(groups, slots, shares=shares), slots, notes=Notes(biclique=biclique)
        )
        checkpoint.create(self._identity, first)
        self.runner = self._start(checkpoint)

    @property
    def manifest(self) -> Manifest:
        """The last manifest."""
        return self.runner.manifest

    def epoch(self, tables: Mapping[str, pa.Table], n_tasks: int = 2) -> None:
        """Run the next epoch; the rows of each stream come in `n_tasks` routing tasks."""
        number = self.manifest.epoch + 1
        self.runner(self.envelopes(tables, number, n_tasks), number)

    def envelopes(self, tables: Mapping[str, pa.Table], number: int, n_tasks: int = 2) -> list[pa.RecordBatch]:
        """What the routing tasks of an epoch make of its rows."""
        batches: list[pa.RecordBatch] = []
        for branch in self._plan.branches:
            table = tables.get(branch.stream)
            if table is None:
                continue
            router = _LocalRouter(self._root, self.runner.flow.run, branch, self.schemas[branch.stream], epoch=number)
            size = max(-(-table.num_rows // n_tasks), 1)
            for begin in range(0, table.num_rows, size):
                piece = self._branch_table(branch, table.slice(begin, size))
                batches += router.envelopes(iter([piece]))
        return batches

    def restart(
        self, slots: int | None = None, directory: Directory | None = None, overflow: Overflow | None = None
    ) -> None:
        """Begin again from what is on disk, as a new process would; with other slots, any other directory, a budget."""
        self._overflow = overflow or self._overflow
        checkpoint = self._checkpoint()
        self._sinks = {name: self._sink(name) for name in self._sinks}  # the runner before keeps its own
        self._late = {name: FileSink("parquet", sink.path, {}) for name, sink in self._late.items()}
        self._identity = checkpoint.identity() or self._identity
        last = checkpoint.latest()
        checkpoint.verify(last)
        n_slots = slots or last.n_slots
        changed = directory or last.directory.resized(n_slots)
        if changed != last.directory or n_slots != last.n_slots:
            checkpoint.commit(resettled(replace(last.fitted(changed), executors={}), n_slots))
        self.runner = self._start(checkpoint)

    def _checkpoint(self) -> Checkpoint:
        """The checkpoint; with its lease, where that is asked for, which every start takes from the one before."""
        checkpoint = Checkpoint(self._root, self._keep, history=self._history, durable=self._durable)
        if self._leased:
            checkpoint.take(ttl_s=0.0)
        return checkpoint

    def finish(self, *, final: bool = False) -> None:
        """The last clean-up of a finite flow; `final` also closes the checkpoint."""
        self.runner.flow = replace(self.runner.flow, is_final=final)
        self.runner.finish()

    def results(self, join: str) -> list[dict[str, Any]]:
        """All results of a join, as a reader of its sink's folder sees them."""
        return _rows_in(f"{self._out}/out/{join}")

    def late(self, stream: str) -> list[dict[str, Any]]:
        """The late rows of a stream."""
        return _rows_in(f"{self._out}/late/{stream}")

    def _sink(self, name: str) -> FileSink:
        return FileSink("parquet", f"{self._out}/out/{name}", {})

    def _start(self, checkpoint: Checkpoint) -> LocalRunner:
        queries = {join.query: Query(join.query, "", (), (), (), (), ()) for join in self._plan.joins}
        return self._started(checkpoint, queries)

    def _started(
        self, checkpoint: Checkpoint, queries: Mapping[str, Query], silence_us: int | None = None
    ) -> LocalRunner:
        for sink in [*self._sinks.values(), *self._late.values()]:
            sink.claim(self._identity.flow, checkpoint.owner)
            sink.sweep()
        checkpoint.sweep()
        last = checkpoint.latest()
        manifest = with_regions(last, self._plan.stores, self._groups, self._shares)
        manifest = with_grids(manifest, self._plan.stores, keeps_heavy=True)
        if manifest != last:
            manifest = checkpoint.commit(manifest)
        flow = FlowRun(
            checkpoint,
            uuid.uuid4().hex,
            self._plan,
            queries,
            {branch.stream: self._delays_us[branch.stream] for branch in self._plan.branches if branch.stores},
            {name: self.schemas[name] for name in self._late},
            self._cluster(),
            LocalOutlets(self._root, self._sinks, self._late, durable=self._durable),
            silence_us,
            Decider(
                None if self._controller is None else Reorganizer(self._controller), self._regridder, self._spiller()
            ),
            replace(self._patience),
            recorder=Recorder(checkpoint),
        )
        runner = EpochRunner(flow, manifest)
        runner.prepare()
        return runner

    def _cluster(self) -> LocalCluster:
        return LocalCluster(self._root)

    def _spiller(self) -> Spiller | None:
        if self._overflow is None:
            return None
        made = spiller_of(self._overflow, self._plan.stores, self._plan.joins, self._interval_s)
        if self._restless_spills is None:
            return made
        return RestlessSpiller(made.overflow, made.stores, made.interval_s, made.closed, self._restless_spills)

    def _planned(self, joins: Mapping[str, Sequence[Indexed]], *, late: bool) -> Plan:
        stores: dict[tuple[str, tuple[str, ...]], Store] = {}
        for indexed in (indexed for inputs in joins.values() for indexed in inputs):
            address = (indexed.stream, indexed.key)
            known = stores.get(address) or self._new_store(len(stores), *address)
            stores[address] = self._with_use(known, indexed)
        made = tuple(self._join(name, inputs, stores) for name, inputs in joins.items())
        related = with_families(tuple(stores.values()), made)
        branches = tuple(
            Branch(i, name, own, tuple(self.schemas[name].names) if late else ())
            for i, name in enumerate(self.schemas)
            if (own := tuple(store for store in related if store.stream == name))
        )
        return Plan(related, branches, made, {}, dict.fromkeys(joins, True))

    def _new_store(self, index: int, stream: str, key: tuple[str, ...]) -> Store:
        columns = tuple(self.schemas[stream].names)
        name = f"{stream}[{', '.join(key)}]"
        return Store(index, name, stream, key, key, True, (), takes_all=False, columns=columns, window_us=-1)

    def _with_use(self, store: Store, indexed: Indexed) -> Store:
        window = indexed.window_us
        widest = None if window is None or store.window_us is None else max(window, store.window_us)
        if indexed.condition is None:
            return replace(store, window_us=widest, takes_all=True)
        name = _filter_name(indexed.condition)
        self._conditions[name] = indexed.condition
        return replace(store, window_us=widest, filters=tuple(dict.fromkeys((*store.filters, name))))

    def _join(self, name: str, inputs: Sequence[Indexed], stores: Mapping[tuple[str, tuple[str, ...]], Store]) -> Join:
        entries, outputs, fields = [], [], []
        for place, indexed in enumerate(inputs):
            store = stores[indexed.stream, indexed.key]
            filtered = indexed.condition is not None and store.masked
            bit = store.filters.index(_filter_name(indexed.condition)) if filtered and indexed.condition else None
            entries.append(JoinInput(store.index, indexed.window_us, bit))
            for column in self.schemas[indexed.stream]:
                outputs.append(OutputColumn(f"{indexed.alias}.{column.name}", place, column.name))
                fields.append(pa.field(f"{indexed.alias}.{column.name}", column.type))
        return Join(name, tuple(entries), tuple(outputs), pa.schema(fields))

    def _branch_table(self, branch: Branch, table: pa.Table) -> pa.Table:
        """What Spark hands to the routing task: the time, and for each store hash, keys and mask."""
        columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        columns[TIME] = table.column("ts")
        for store in branch.stores:
            keys = [table.column(name).combine_chunks() for name in store.key]
            hashes, valid = self._hash_keys(keys)
            columns[store.branch_column(HASH)] = pa.array(hashes.view(np.int64), mask=~valid)
            columns |= {store.branch_column(f"{KEY}{i}"): key for i, key in enumerate(keys)}
            mask = np.zeros(table.num_rows, dtype=np.int64)
            for bit, name in enumerate(store.filters):
                mask |= self._conditions[name](table).astype(np.int64) << bit
            if store.filters:
                columns[store.branch_column(MASK)] = pa.array(mask)
        return pa.table(columns)


@dataclass(frozen=True)
class _LocalRouter(Router):
    """A router that is told its epoch instead of asking Spark."""

    epoch: int = 0

    def routes(self) -> Routes:
        return routes_of(read_manifest(self.root, self.epoch - 1, self.run))


class LocalCluster:
    """A cluster in one process: the exchange is a dict of envelopes by slot, SQL is computed by DuckDB."""

    handover: str | None = None

    def __init__(self, root: str) -> None:
        self._files = Files(root)

    def run(self, envelopes: Sequence[pa.RecordBatch], stages: Sequence[SlotFunction], before: Manifest) -> list[bytes]:
        """Slot after slot, stage after stage."""
        del before
        for stage in stages:
            envelopes = self.exchanged(envelopes, stage)
        return [report.as_py() for batch in envelopes for report in batch.column("report")]

    def run_nodes(self, rows: Sequence[pa.RecordBatch], stages: Sequence[NodeStage]) -> list[bytes]:
        """Node after node, stage after stage."""
        first, *later = stages
        envelopes = list(first.run(iter(rows)))
        for stage in later:
            envelopes = self.exchanged(envelopes, stage.run)
        return [blob.as_py() for batch in envelopes for blob in batch.column("blob")]

    def ticks(self, n_slots: int) -> Sequence[pa.RecordBatch]:
        """Envelopes that only wake every slot."""
        ticks = [Envelope(slot, Kind(Content.TICK), b"") for slot in range(n_slots)]
        return list(envelopes_to_batch(ticks))

    def composites(
        self, query: Query, plan: AggregatePlan, files: Sequence[str], schema: pa.Schema, route: SlotFunction
    ) -> Sequence[pa.RecordBatch]:
        """What Spark's SQL engine would compute."""
        del query, schema
        assert plan.enumeration is not None
        computed = {**dict(plan.enumeration.columns), DEADLINE: DEADLINE}
        found = [evaluate(self._read(name), computed, plan.enumeration.residual) for name in files]
        return [batch for rows in found for batch in route(iter(rows.to_batches()))]

    def exchanged(self, batches: Sequence[pa.RecordBatch], run: SlotFunction) -> list[pa.RecordBatch]:
        """The envelopes at their slots, and what each slot makes of its own."""
        return [made for _, own in sorted(by_slot(batches).items()) for made in run(iter(own))]

    def together(self, parts: Sequence[Sequence[pa.RecordBatch]]) -> Sequence[pa.RecordBatch]:
        """One after the other."""
        return [batch for part in parts for batch in part]

    def _read(self, name: str) -> pa.Table:
        return _table(self._files, name)


def _no_frame() -> NoReturn:
    raise AssertionError("there is no Spark here, and what is delivered is finished")


class LocalOutlets:
    """The folders that a harness's results go to."""

    def __init__(
        self, root: str, sinks: Mapping[str, FileSink], late: Mapping[str, FileSink], *, durable: bool = False
    ) -> None:
        self._durable = durable
        self._root, self._files, self._sinks, self._late = root, Files(root), sinks, late

    def staging(self, outlet: Outlet) -> Staging:
        """Where the outlet's sink takes files from."""
        return self._sink(outlet).staging(self._root, outlet.finished)

    def deliver(self, outlet: Outlet, number: int, files: Sequence[StagedFile]) -> Mapping[str, tuple[Placed, ...]]:
        """As Spark would have finished a query, so is it finished here; then it is delivered like any other."""
        sink, query = self._sink(outlet), outlet.query
        if query is not None and not outlet.finished:
            names = check_staged(self._root, files)
            finished = [_finish(query, _table(self._files, name)) for name in names]
            for name in names:
                self._files.delete(name)
            staging = sink.staging(self._root, True)
            files = [file for rows in finished if (file := _staged(rows, staging, number))]
            names = [file.name for file in files]
        else:
            staging = self.staging(outlet)
            names = check_staged(staging.root or self._root, files)
        sums = {one.name: one.checksum for one in files}
        deliver(sink, Delivery(outlet.shown, number, names, _no_frame, True, sums, self._durable))
        if staging.root is not None:
            sink.end(Files(staging.root), names)
        return sink.placed

    def failed(self) -> Mapping[str, int]:
        """Nothing is told apart here."""
        return {}

    def _sink(self, outlet: Outlet) -> FileSink:
        return self._late[outlet.name] if outlet.is_late else self._sinks[outlet.name]


def by_slot(batches: Sequence[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """Envelopes by the slot that they go to."""
    found: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for batch in batches:
        for at, slot in enumerate(batch.column("slot").to_pylist()):
            found[slot].append(batch.slice(at, 1))
    return found


def _finish(query: Query, raw: pa.Table) -> pa.Table:
    """The counterpart of `spark.finishing.finish`."""
    outputs = {output.name: output.sql for output in query.outputs}
    if query.is_aggregate:
        return evaluate(raw, {**outputs, EPOCH: EPOCH, WATERMARK: WATERMARK})
    return evaluate(raw, outputs, query.residual)


def _staged(rows: pa.Table, staging: Staging, epoch: int) -> StagedFile | None:
    writer = staging.writer(rows.schema, epoch, 0)
    for batch in rows.combine_chunks().to_batches():
        writer.write(batch.columns)
    return writer.close()


def _filter_name(condition: Condition) -> str:
    return f"filter {id(condition)}"


def _rows_in(folder: str) -> list[dict[str, Any]]:
    files = Files(folder)
    names = [name for name in files.names("") if name.endswith(".parquet") and not name.startswith(("_", "."))]
    return [row for name in names for row in _table(files, name).to_pylist()]


def _table(files: Files, name: str) -> pa.Table:
    with files.open(name) as source:
        return pq.read_table(source)
