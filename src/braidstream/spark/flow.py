"""`Flow`: streams and continuous queries over a Spark session. The public way in.

    flow = Flow(spark)
    flow.stream("R", r, time="ts", delay="5 seconds")
    flow.stream("S", s, time="ts")
    text = "SELECT R.k, R.v, S.w FROM R [RANGE 10 SECONDS], S [RANGE 1 MINUTE] WHERE R.k = S.k"
    flow.query(text).to("parquet", path="out")
    flow.start(checkpoint="ck", epoch="2 seconds").await_termination()

Everything that can be wrong with the declarations is found before anything starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from braidstream.arguments import checked_arguments
from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.epoch.decider import Decider
from braidstream.epoch.ending import refuse_ended
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.epoch.routers import Routing
from braidstream.epoch.stages import explain_stages
from braidstream.errors import InputError, StreamError, nearest
from braidstream.functions.stream_types import StreamType
from braidstream.model.directory import Directory, enough_groups
from braidstream.model.numbers import BEFORE_FIRST
from braidstream.options import FlowOptions, StartOptions, chosen, parse_size
from braidstream.plan.aggregate_plan import draft
from braidstream.plan.attempts import attempted_streams, refuse_bad
from braidstream.plan.catalogue import held_streams, since_of, with_submitted, with_tables, without_query
from braidstream.plan.explain import explain, explain_layout, explain_memory
from braidstream.plan.planner import Plan, make_plan
from braidstream.plan.statistics import better_trees, known_statistics
from braidstream.plan.told import check_told, told
from braidstream.query import Query, parse_duration
from braidstream.query.evolution import Held
from braidstream.query.time_windows import expiring_groups
from braidstream.query.tree import tree_of
from braidstream.spark.arrow_types import shapes_of
from braidstream.spark.declared import (
    NAME,
    ContinuousQuery,
    bad_of,
    check_session,
    interval_s,
    located,
    sink_again,
    submitted_of,
    trigger_of,
)
from braidstream.spark.evolving import (
    Begun,
    Evolution,
    bad_targets,
    declared_of,
    evolution,
    held_before,
    may_owe,
    refuse_recognized,
    with_failed,
)
from braidstream.spark.feeds import FeedingCheckpoint, FeedLog
from braidstream.spark.file_order import arrange
from braidstream.spark.flow_handle import Change, FlowHandle
from braidstream.spark.flow_inputs import FlowInputs
from braidstream.spark.function_launch import prepare_function, refuse_for_functions, start_function
from braidstream.spark.functions import FunctionQuery, WindowedStream, explain_function, refuse_place
from braidstream.spark.handle import Handle
from braidstream.spark.joined_tables import explain_tables
from braidstream.spark.late import late_columns
from braidstream.spark.launch import RECENT, Launch, Prepared, gone_folders
from braidstream.spark.meaning import refuse_mixed_times
from braidstream.spark.moved import refuse_moved_streams
from braidstream.spark.session import cores, default_memory
from braidstream.spark.sources import Stream
from braidstream.spark.starting import begin, identity_of, is_begun, refuse_later
from braidstream.spark.unreachable import refuse_unreachable
from braidstream.state.cells import resettled
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Notes

__all__ = ["ContinuousQuery", "Flow"]


class Flow(FlowInputs):
    """Streams and queries over a Spark session."""

    @checked_arguments("Flow", {"spark": "Flow(spark), with spark = braidstream.local_session()"})
    def __init__(
        self,
        spark: SparkSession,
        name: str = "flow",
        *,
        slots: int | None = None,
        groups: int | None = None,
        placement: Sequence[int] = (),
        silence: str | timedelta | None = None,
        controller: Controller | bool | None = True,
        router: str = "auto",
        rule: str = "even",
        subgroups: int | None = None,
        epsilon: float | None = None,
        memory: str | int | None = None,
        on_overflow: str = "spill",
        spill_share: float = 0.3,
        idle_after: int = 100,
        shed_by: str = "oldest",
        push_by: str = "unproductive",
    ) -> None:
        is_on = isinstance(controller, Controller) or controller or False
        self.options = chosen(FlowOptions, {**locals(), "controller": is_on})
        check_session(spark)
        super().__init__(spark)
        self.name, self.slots, self.groups, self.silence = name, slots, groups, silence
        self.is_budgeted, budget = memory is not None, default_memory(spark) if memory is None else parse_size(memory)
        self.routing = Routing(router, rule, subgroups, epsilon).under(on_overflow)
        self.controller = self.routing.steered(controller)
        self.overflow = Overflow(budget, on_overflow, spill_share, idle_after, shed_by, push_by)
        self._handle: FlowHandle | None = None
        self._arranged: dict[str, Stream] = {}
        """The streams as the last start reads them, in their order and with measured delays."""
        self._names: set[str] = set()
        self._queries: dict[str, ContinuousQuery] = {}
        self._function: FunctionQuery | None = None
        self.feeds: dict[str, FeedLog] = {}
        """By folder of results: what makes them a stream of another flow of the same job."""

    def windows(
        self,
        size: int | None = None,
        step: int | None = None,
        *,
        stream: str | None = None,
        of: str | StreamType | None = None,
        beside: Sequence[str] = (),
        align: str = "time",
    ) -> WindowedStream:
        """Windows of a stream, the last declared one unless it is named, for a function; without a size, its rows.

        The results of a function of the flow are a stream by its name, if no stream is called so.
        With other streams `beside` it, rows are aligned by "time" or "count". `of` is the stream's type, or the name
        of a declared one; without it, the type is read from the columns.
        """
        if not self._streams:
            raise StreamError(
                "the flow has no stream to form windows of", "at least one", "flow.stream(...).windows(...)"
            )
        chosen = stream or list(self._streams)[-1]
        functions = () if self._function is None else self._function.chain
        before = next((one for one in functions if one.name == chosen and chosen not in self._streams), None)
        if before is not None:
            if beside:
                wrong = f"streams beside the results of function {chosen!r}"
                raise InputError(wrong, "results of a function alone", "leave `beside` out")
            return before.windows(size, step, of=of)
        if chosen not in self._streams:
            raise StreamError(f"there is no stream {chosen!r}", "a declared stream", nearest(chosen, self._streams))
        if not beside:
            return WindowedStream.of(self, self._streams[chosen], size, step, of)
        if of is not None:
            raise InputError("a type for aligned streams", "the types of their columns", "leave `of` out")
        for name in beside:
            if name not in self._streams:
                raise StreamError(f"there is no stream {name!r}", "a declared stream", nearest(name, self._streams))
        return WindowedStream.aligned(self, [self._streams[name] for name in (chosen, *beside)], align, size, step)

    def add_function(self, function: FunctionQuery) -> None:
        """What `.windows(...).apply(...)` calls: a flow has either join queries, or functions that feed one another."""
        refuse_place(function, self._function, has_queries=bool(self._queries))
        self._function = function

    def query(
        self, text: str | Query, name: str | None = None, *, recovered: bool = False, allow: str | None = None
    ) -> ContinuousQuery:
        """Add a continuous query in CQL; `recovered` and `allow` are as in job files (docs/options.md)."""
        if self._function is not None:
            raise InputError("the flow has a function", "join queries or functions", "a Flow of its own, or a job file")
        made = self._made(text, name, recovered=recovered, allow=allow)
        self._queries[made.query.name] = made
        return made

    def _made(self, text: str | Query, name: str | None, *, recovered: bool, allow: str | None) -> ContinuousQuery:
        """A query with a name of its own, parsed and checked; not one of the flow's yet."""
        if not isinstance(text, (str, Query)):
            raise InputError(
                f"a query is {text!r}", "a text in CQL", 'flow.query("SELECT ... FROM R [RANGE ...], ...")'
            )
        chosen = name or (text.name if isinstance(text, Query) else self._new_name())
        if not isinstance(chosen, str) or not NAME.match(chosen):
            raise InputError(f"a query cannot be named {chosen!r}", "letters, digits and underscores")
        if chosen in self._queries:
            raise InputError(f"there is already a query named {chosen!r}", "a name of its own for each query")
        parsed = replace(text, name=chosen) if isinstance(text, Query) else self._parsed(text, chosen, allow)
        if parsed.is_aggregate:
            draft(parsed, self._meaning)
        if recovered:
            check_told(parsed)
        self._names.add(chosen)
        unread = bad_of(self._bad, parsed)
        return ContinuousQuery(parsed, recovered=recovered, unread=unread, failing=lambda: self._failing(parsed))

    def _failing(self, query: Query) -> tuple[str, ...]:
        """The streams of whose rows an expression may fail; refused where such a row would be put out all the same."""
        refuse_bad(query, {name: shape.schema for name, shape in shapes_of(self._all.used([query])).items()})
        return self._attempted(query)

    def _attempted(self, query: Query) -> tuple[str, ...]:
        """The streams of whose rows an expression may fail."""
        made = draft(query, self._meaning) if query.is_aggregate else None
        schemas = {name: shape.schema for name, shape in shapes_of(self._all.used([query])).items()}
        return attempted_streams(query, schemas, made)

    def _new_name(self) -> str:
        """The next number that no query of this flow has had."""
        taken = {*self._names, *self._queries}
        return next(name for i in count(len(self._queries) + 1) if (name := f"query{i}") not in taken)

    @property
    def functions(self) -> tuple[FunctionQuery, ...]:
        """The flow's functions, each of which feeds the next."""
        return () if self._function is None else self._function.chain

    def declared(self, name: str) -> tuple[Query, Plan]:
        """A query of the flow, and the plan of all."""
        return self._queries[name].query, self._plan(self._queries)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the flow's queries."""
        return tuple(self._queries)

    def explain(self) -> str:
        """The plan in words; nothing is started."""
        if self._function is not None:
            return explain_function(self.name, self._function.chain)
        manifest = self._handle.manifest if self._handle is not None else None
        plan, queries = self._plan(self._queries, manifest), [q.query for q in self._queries.values()]
        better = better_trees(
            queries, plan.trees, known_statistics(manifest, shapes_of(self._all.used(queries)), queries, plan.trees)
        )
        sinks = {name: q.sink.explained + q.told for name, q in self._queries.items() if q.sink is not None}
        streams = shapes_of(self._all.over({**self._streams, **self._arranged}).used(queries))
        shown = explain(self.name, streams, queries, plan, sinks, self.routing.router, better)
        n_slots = self.slots or cores(self.spark)
        stages = explain_stages(plan.stores, manifest, self.groups_over(n_slots), n_slots)
        memory, layout = explain_memory(self.overflow, plan), explain_layout(self.controller, self.options)
        tables = explain_tables(self.tables, queries, {} if manifest is None else manifest.notes.tables)
        return "\n".join([shown, *tables, *stages, *memory, *layout])

    def groups_over(self, n_slots: int) -> int:
        """How many groups a stage begins with over so many slots."""
        return self.groups or enough_groups(n_slots)

    def _repr_html_(self) -> str:
        from braidstream.spark.notebook import flow_html  # noqa: PLC0415

        return flow_html(self)

    @checked_arguments("start", {"checkpoint": 'name the folder of its state: start(checkpoint="ck")'})
    def start(
        self,
        checkpoint: str | Path,
        *,
        epoch: str | timedelta = "available",
        keep: int = 10,
        history: int = 4096,
        durability: str = "power",
        final: bool = False,
        warm: bool = True,
        wait: str | timedelta = "0 seconds",
    ) -> Handle[Any]:
        """Start, or go on where the checkpoint ends. `epoch` is a length, or "available": what is there, then stop.

        With `final` the input ends with what is there: open windows are closed, and then the checkpoint, for good.
        `CheckpointInUse` while another flow, here or elsewhere, runs on the checkpoint; `wait` says how long to wait
        for its end.
        """
        chosen(StartOptions, locals())
        if Path(checkpoint).is_file():
            raise InputError(f"the checkpoint {checkpoint} is a file", "a folder", "choose another path")
        trigger, is_durable = trigger_of(epoch), durability == "power"
        made = partial(FeedingCheckpoint, feeds=self.feeds) if self.feeds else Checkpoint
        store = made(located(checkpoint), keep, history=history, durable=is_durable)
        refuse_unreachable(self.spark, store.root, self._streams.values())
        with store.starting(wait_s=parse_duration(wait) / 1e6):
            if self._function is not None:
                refuse_for_functions(self._streams.values(), final=final)
                return start_function(self, self._function, store, trigger, warm=warm, shown=str(checkpoint))
            begun = self._prepared(store, str(checkpoint), trigger, interval_s(epoch), is_final=final)
            return self._start(store, begun, warm=warm)

    def _start(self, store: Checkpoint, begun: Begun, *, warm: bool) -> FlowHandle:
        """Start with the lease of the checkpoint."""
        launch, prepared, first = begun.launch, begun.prepared, begun.manifest
        begin(self.spark, store, begun.identity, first if begun.is_new else None, prepared.outputs, warm=warm)
        if warm:
            launch.warm(prepared)
        self._queries, self._arranged = dict(prepared.queries), dict(launch.streams.declared)
        running = launch.run(*begun.committed())
        self._handle = FlowHandle(*running, self.explain, launch, begun.warnings, begun.changes.lines)
        return self._handle

    def check(self, checkpoint: str | Path) -> tuple[str, ...]:
        """Refuse what `start` would refuse, and say what it would change; Spark resolves every expression.

        Nothing is started or written.
        """
        store, trigger = Checkpoint(located(checkpoint)), trigger_of("available")
        refuse_unreachable(self.spark, store.root, self._streams.values())
        store.refuse_begun()
        if self._function is not None:
            prepare_function(self, self._function, store, trigger, str(checkpoint))
            return ()
        return self._prepared(store, str(checkpoint), trigger, None).changes.lines

    def _prepared(
        self,
        store: Checkpoint,
        shown: str,
        trigger: Mapping[str, Any],
        interval: float | None,
        *,
        is_final: bool = False,
    ) -> Begun:
        """What a start is about to write and run, or why it is refused. Nothing is changed."""
        if not self._queries:
            raise InputError("the flow has no query", "at least one", "flow.query('...').to('parquet', path='...')")
        refuse_mixed_times(self.spark, self._streams)
        known = store.identity()
        last = None if known is None else store.latest()
        if known is not None and last is not None:
            self.in_order_of(held_streams(known, last))
        mine = self._identity(known)
        declared = {name: declared_of(query) for name, query in self._queries.items()}
        bad = bad_targets(self._bad)
        changes = first = Evolution(Held({}), declared, mine.streams, bad)
        if known is not None and last is not None:
            refuse_ended(last, shown)
            changes = evolution(known, last, mine, declared, bad, self._parsed)
        is_other = bool(changes.lines or changes.expected)
        is_new = last is None or (last.epoch < 0 and is_other)  # what never committed may still change
        if last is None or is_new:
            last, changes = self._first(last), first
        else:
            changes.check(mine, shown)
            last = self._resumed(store, last)
            paths = {name: s.files.path if s.files else None for name, s in self._streams.items()}
            refuse_moved_streams(store, paths, shown)
        streams, last = arrange(self.spark, store, last, self._streams, is_finite="availableNow" in trigger)
        last, warnings = self.tables.noted(last, is_replay=store.log.last_begun(last.epoch) > last.epoch)
        reorganizer = Reorganizer.within(self.controller, interval, self.overflow, is_budgeted=self.is_budgeted)
        recent: deque[EpochProgress] = deque(maxlen=RECENT)
        decider = Decider(reorganizer, self.routing.regridder())
        launch = Launch(self, store, trigger, mine.flow, recent, decider, interval, self._all.over(streams), is_final)
        noted = changes.noted(last)
        prepared = launch.prepare(self._recalled(noted), noted)
        held = dict[str, ContinuousQuery]()
        if changes.ends and may_owe(last):
            owed = held_before(changes, last, self._parsed, self._queries, shown)
            held = with_failed(owed, changes, self._queries, self._attempted, shown)
        refuse_recognized(changes, prepared.queries, last, shown, is_begun=is_begun(store, last), is_settled=bool(held))
        refuse_later(mine.flow, store, last, prepared.outlets)
        warnings += gone_folders(prepared, last, store)
        warnings += tuple(filter(None, (expiring_groups(q.query, self.schemas) for q in prepared.queries.values())))
        return Begun(launch, prepared, last, mine, is_new, warnings, changes, held)

    def submit(
        self,
        text: str | Query,
        name: str | None = None,
        to: str | Callable[[DataFrame, int], Any] = "memory",
        path: str | None = None,
        allow: str | None = None,
        **options: Any,
    ) -> ContinuousQuery:
        """Add a query to the running flow, effective at the next epoch. It sees the tuples that arrive from then on.

        What is refused changes nothing: the flow goes on as it was.
        """
        made: list[ContinuousQuery] = []

        def prepare(launch: Launch, manifest: Manifest) -> Change:
            added = self._made(text, name, recovered=False, allow=allow).to(to, path, **options)
            added.since, own = manifest.epoch, added.query.name
            made.append(added)
            prepared = launch.prepare({**self._queries, own: added}, manifest, {own})
            entry = submitted_of(added, to, path, options)

            def noted(last: Manifest) -> Manifest:
                added.since = last.epoch
                return with_submitted(last, own, entry)

            return Change(prepared, (added,), noted, self._taken(prepared))

        self._running("use flow.query(...) before start").change("submitting a query", prepare)
        return made[0]

    def withdraw(self, name: str) -> None:
        """Remove a query from the running flow, effective at the next epoch. What it is owed is delivered first."""

        def prepare(launch: Launch, manifest: Manifest) -> Change:
            if name not in self._queries:
                raise InputError(f"there is no query {name!r}", "a query of the flow", nearest(name, self._queries))
            if len(self._queries) == 1:
                raise InputError(f"{name!r} is the last query of the flow", "at least one", "stop the flow instead")
            prepared = launch.prepare({key: q for key, q in self._queries.items() if key != name}, manifest, ())
            return Change(prepared, (), lambda last: without_query(last, name), self._taken(prepared))

        self._running().change(f"withdrawing query {name!r}", prepare)

    def refresh(self, *names: str) -> None:
        """Let the running flow see the newest snapshots of tables (all, unless some are named) from the next epoch on.

        Where there are none that are newer, nothing is done.
        """
        handle = self._running("a start reads the newest snapshots")
        wanted = names or tuple(self.tables.declared)
        refreshed = self.tables.refreshed(handle.manifest.notes.tables, wanted)
        if refreshed == handle.manifest.notes.tables:
            return

        def prepare(launch: Launch, manifest: Manifest) -> Change:
            prepared = launch.prepare(self._queries, with_tables(manifest, refreshed), ())
            return Change(prepared, (), lambda last: with_tables(last, refreshed), lambda: None)

        handle.change("refreshing tables", prepare)

    def _running(self, fix: str = "") -> FlowHandle:
        if self._handle is None:
            raise InputError("the flow is not running", "a started flow", fix)
        return self._handle

    def _taken(self, prepared: Prepared) -> Callable[[], None]:
        def take() -> None:
            self._queries = dict(prepared.queries)

        return take

    def _recalled(self, manifest: Manifest) -> dict[str, ContinuousQuery]:
        """The queries to start with: the declared ones, with what was submitted, without what was withdrawn."""
        left = {n: q for n, q in self._queries.items() if n not in manifest.notes.withdrawn}
        queries = {n: replace(q, since=since_of(manifest, n)) for n, q in left.items()}
        for name, entry in manifest.notes.submitted.items():
            query = self._parsed(entry.text, name)
            known = self._queries.get(name)
            if known is not None and known.query.fingerprint == query.fingerprint:
                queries[name] = replace(known, since=entry.since)
            else:
                again = sink_again(name, entry, known)
                queries[name] = ContinuousQuery(query, again, entry.since, unread=bad_of(self._bad, query))
        return queries

    def _plan(self, declared: Mapping[str, ContinuousQuery], manifest: Manifest | None = None) -> Plan:
        since = {name: q.since for name, q in declared.items()}
        queries = [q.query for q in declared.values()]
        notes = Notes() if manifest is None else manifest.notes
        known = notes.trees or {}
        trees = {q.name: tree_of(q, known[q.name]) for q in queries if q.name in known}
        shapes = shapes_of(self._all.used(queries))
        late = late_columns(declared.values(), {name: shape.schema.names for name, shape in shapes.items()})
        statistics = known_statistics(manifest, shapes, queries, trees)
        bad = {name for name, q in declared.items() if q.failed is not None}
        plan = make_plan(shapes, queries, late, statistics, since, notes.filters, trees, self._meaning, bad)
        return told(plan, {name for name, q in declared.items() if q.recovered})

    def _identity(self, known: Identity | None) -> Identity:
        queries = {name: q.query.fingerprint for name, q in self._queries.items()}
        return identity_of(self.name, self._streams, queries, known)

    def _first(self, before: Manifest | None) -> Manifest:
        """The manifest of a new checkpoint; `before` is that of one without commits, whose notes stay."""
        n_slots = self.slots or cores(self.spark)
        known = Notes() if before is None else before.notes
        notes = Notes(biclique=self.routing.biclique(n_slots), submitted=known.submitted, withdrawn=known.withdrawn)
        directory = Directory.of(self.groups_over(n_slots), n_slots, shares=self.options.placement)
        return Manifest(BEFORE_FIRST, directory, n_slots, notes=notes)

    def _resumed(self, store: Checkpoint, last: Manifest) -> Manifest:
        """The last manifest, over the slots that this start asks for; or those that a controller has arrived at."""
        store.check_offsets(last.epoch)
        store.verify(last)
        self.routing.check_restart(last, self.slots)
        declusters = self.controller is not None and self.controller.settings.declustering
        wanted = last.n_slots if declusters else self.slots or last.n_slots
        if wanted != last.n_slots:
            return resettled(replace(last.fitted(last.directory.resized(wanted)), executors={}), wanted)
        return last
