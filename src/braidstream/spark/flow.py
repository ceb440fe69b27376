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

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from braidstream.control.controller import Controller
from braidstream.control.directory import Directory
from braidstream.control.overflow import Overflow, parse_size
from braidstream.errors import InputError, SinkError, StreamError, nearest
from braidstream.functions.types import StreamType
from braidstream.query import Column, Query, Schema, parse, parse_duration
from braidstream.query.tree import Node, Statistics, tree_of
from braidstream.spark.aggregate_plan import draft
from braidstream.spark.catalogue import with_submitted, without_query
from braidstream.spark.declared import (
    ContinuousQuery,
    check_count,
    delay_us,
    folders,
    interval_s,
    located,
    refuse_shared_paths,
    trigger_of,
)
from braidstream.spark.explain import explain, explain_memory
from braidstream.spark.functions import FunctionQuery, WindowedStream, explain_function, start_function
from braidstream.spark.handle import Handle
from braidstream.spark.launch import RECENT, Launch
from braidstream.spark.meaning import SparkMeaning, refuse_mixed_times
from braidstream.spark.planner import Plan, make_plan
from braidstream.spark.reorganize import Reorganizer
from braidstream.spark.routers import Routing
from braidstream.spark.session import cores, default_memory, warm_up
from braidstream.spark.sinks import Sink, make_sink
from braidstream.spark.sources import FilesSource, Stream
from braidstream.spark.stages import explain_stages
from braidstream.spark.statistics import better_trees, measured_statistics, sampled_statistics
from braidstream.spark.told import check_told, told
from braidstream.state.cells import resettled
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

__all__ = ["ContinuousQuery", "Flow"]

MOST_SLOTS = 4096
_NAME = re.compile(r"[A-Za-z_]\w*$")
_RESERVED = ("__h", "__t", "__k", "__m")


class Flow:
    """Streams and queries over a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        name: str = "flow",
        *,
        slots: int | None = None,
        groups: int = 64,
        silence: str | timedelta | None = None,
        controller: Controller | None = None,
        router: str = "auto",
        rule: str = "even",
        subgroups: int | None = None,
        memory: str | int | None = None,
        on_overflow: str = "spill",
        spill_share: float = 0.3,
        idle_after: int = 100,
        shed_by: str = "oldest",
    ) -> None:
        if not isinstance(spark, SparkSession):
            raise InputError(f"a flow needs a SparkSession, not {type(spark).__name__}", "Flow(spark)")
        check_count("slots", slots, 1, MOST_SLOTS)
        check_count("groups", groups, 1, 1 << 16)
        self.spark, self.name = spark, name
        self.slots, self.groups, self.silence, self.controller = slots, groups, silence, controller
        budget = default_memory(spark) if memory is None else parse_size(memory)
        self.is_budgeted = memory is not None
        self.routing = Routing(router, rule, subgroups).under(on_overflow)
        self.overflow = Overflow(budget, on_overflow, spill_share, idle_after, shed_by)
        self._handle: Handle | None = None
        if silence is not None:
            parse_duration(silence)
        self._streams: dict[str, Stream] = {}
        self._meaning = SparkMeaning(spark, self._streams)
        self._queries: dict[str, ContinuousQuery] = {}
        self._function: FunctionQuery | None = None

    def stream(self, name: str, frame: DataFrame, *, time: str, delay: str | timedelta = "0 seconds") -> Flow:
        """Declare a stream: any streaming DataFrame, its event-time column, and how late its tuples may come."""
        if not isinstance(frame, DataFrame) or not frame.isStreaming:
            raise StreamError(
                f"stream {name!r} is not a streaming DataFrame",
                "a DataFrame of spark.readStream",
                "use spark.readStream",
            )
        self._add(Stream(name, frame, frame.schema, time, delay_us(name, delay)))
        return self

    def files(
        self,
        name: str,
        path: str | Path,
        *,
        schema: str | StructType,
        time: str,
        delay: str | timedelta = "0 seconds",
        options: Mapping[str, str] | None = None,
    ) -> Flow:
        """Declare a stream of Parquet files. The same as `stream` with Spark's file source, but faster."""
        given = {key: str(value) for key, value in (options or {}).items()}
        located = str(path) if "://" in str(path) else str(Path(path).absolute())
        if "://" not in located and not any(c in located for c in "*?[{") and not Path(located).is_dir():
            raise StreamError(
                f"the path of stream {name!r} does not exist: {path}",
                "a folder of Parquet files",
                "create the folder first",
            )
        frame = self.spark.readStream.schema(schema).options(**given).parquet(located)
        plain = "://" not in located and not any("=" in part for part in folders(located))
        source = FilesSource(located, given) if plain else None
        self._add(Stream(name, frame, frame.schema, time, delay_us(name, delay), source))
        return self

    def windows(
        self,
        size: int | None = None,
        step: int | None = None,
        *,
        stream: str | None = None,
        of: str | StreamType | None = None,
    ) -> WindowedStream:
        """Windows of a stream, the last declared one unless it is named, for a function; without a size, its rows.

        `of` is the stream's type, or the name of a declared one; without it, the type is read from the columns.
        """
        if not self._streams:
            raise StreamError(
                "the flow has no stream to form windows of", "at least one", "flow.stream(...).windows(...)"
            )
        chosen = stream or list(self._streams)[-1]
        if chosen not in self._streams:
            raise StreamError(f"there is no stream {chosen!r}", "a declared stream", nearest(chosen, self._streams))
        return WindowedStream.of(self, self._streams[chosen], size, step, of)

    def add_function(self, function: FunctionQuery) -> None:
        """What `.windows(...).apply(...)` calls: a flow has either join queries, or one function."""
        if self._queries or self._function is not None:
            raise InputError(
                f"function {function.name!r} is not alone in its flow",
                "join queries or one function",
                "use a Flow of its own",
            )
        self._function = function

    def query(self, text: str | Query, name: str | None = None, *, recovered: bool = False) -> ContinuousQuery:
        """Add a continuous query in CQL; with `recovered`, results say whether clean-up found them, and their epoch."""
        if self._function is not None:
            raise InputError("the flow has a function", "join queries or one function", "use a Flow of its own")
        chosen = name or (text.name if isinstance(text, Query) else f"query{len(self._queries) + 1}")
        if not _NAME.match(chosen):
            raise InputError(f"a query cannot be named {chosen!r}", "letters, digits and underscores")
        if chosen in self._queries:
            raise InputError(f"there is already a query named {chosen!r}", "a name of its own for each query")
        if isinstance(text, Query):
            parsed = replace(text, name=chosen)
        else:
            parsed = parse(text, self.schemas, chosen, meaning=self._meaning)
        self._refuse_unsupported(parsed)
        if recovered:
            check_told(parsed)
        self._queries[chosen] = ContinuousQuery(parsed, recovered=recovered)
        return self._queries[chosen]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the flow's queries."""
        return tuple(self._queries)

    @property
    def schemas(self) -> dict[str, Schema]:
        """The schemas of the declared streams, as the query language knows them."""
        return {
            name: Schema(tuple(Column(field.name, field.dataType.simpleString()) for field in stream.schema.fields))
            for name, stream in self._streams.items()
        }

    def explain(self) -> str:
        """The plan in words; nothing is started."""
        if self._function is not None:
            return explain_function(self.name, self._function)
        manifest = self._handle.manifest if self._handle is not None else None
        plan, queries = self._plan(manifest), [q.query for q in self._queries.values()]
        better = better_trees(queries, plan.trees, self._statistics(manifest, plan.trees))
        shown = explain(self.name, self._streams, queries, plan, self._sinks(), self.routing.router, better)
        stages = explain_stages(plan.stores, manifest, self.groups, self._n_slots())
        return "\n".join([shown, *stages, *explain_memory(self.overflow, plan)])

    def start(
        self, checkpoint: str | Path, *, epoch: str | timedelta = "available", keep: int = 10, warm: bool = True
    ) -> Handle:
        """Start, or go on where the checkpoint ends. `epoch` is a length, or "available": what is there, then stop."""
        if self._function is None:
            self._check_complete()
            refuse_mixed_times(self.spark, self._streams)
            plan, unused = self._plan(), {"a controller": self.controller, "a length of silence": self.silence}
            self.routing.check(plan.stores, plan.joins, unused)
        trigger = trigger_of(epoch)
        check_count("keep", keep, 2, 1 << 20)
        store = Checkpoint(located(checkpoint), keep)
        if self._function is not None:
            return start_function(self, self._function, store, trigger, warm=warm, shown=str(checkpoint))
        identity = store.identity()
        mine = self._identity(identity)
        if identity is not None:
            identity.check(mine, str(checkpoint))
            first = self._resumed(store)
            self._recall(first)
        else:
            n_slots = self._n_slots()
            first = Manifest(-1, Directory.of(self.groups, n_slots), n_slots, memory=self.routing.memory(n_slots))
        sinks, late = self._sinks(), self._late_sinks()
        refuse_shared_paths([*sinks.items(), *((f"late {s}", sink) for s, sink in late.items())])
        every_sink = [*sinks.values(), *late.values()]
        for sink in every_sink:
            sink.check(mine.flow)
        if identity is None:
            store.create(mine, first)
        for sink in every_sink:  # once the checkpoint says which flow this is: a start that dies here can be repeated
            sink.claim(mine.flow)
            sink.sweep()
        store.sweep()
        if warm:
            warm_up(self.spark)
        reorganizer = None
        if self.controller is not None:
            reorganizer = Reorganizer.of(self.controller, interval_s(epoch), self._balanced_bytes())
        launch = Launch(
            self,
            store,
            trigger,
            mine.flow,
            deque(maxlen=RECENT),
            reorganizer,
            self.routing.regridder(),
            interval_s(epoch),
        )
        self._handle = Handle(*launch.start(first), self.explain, launch)
        return self._handle

    def submit(
        self,
        text: str | Query,
        name: str | None = None,
        to: str | Callable[[DataFrame, int], Any] = "memory",
        path: str | None = None,
        **options: Any,
    ) -> ContinuousQuery:
        """Add a query to the running flow, effective at the next epoch. It sees the tuples that arrive from then on."""
        if self._handle is None or not self._handle.is_active:
            raise InputError("the flow is not running", "a started flow", "use flow.query(...) before start")
        added = self.query(text, name).to(to, path, **options)
        try:
            self._handle.relaunch(lambda manifest: self._remember(manifest, added, to, path, options))
        except InputError:
            del self._queries[added.query.name]
            raise
        return added

    def withdraw(self, name: str) -> None:
        """Remove a query from the running flow, effective at the next epoch."""
        if self._handle is None or not self._handle.is_active:
            raise InputError("the flow is not running", "a started flow")
        if name not in self._queries:
            raise InputError(f"there is no query {name!r}", "a query of the flow", nearest(name, self._queries))
        if len(self._queries) == 1:
            raise InputError(f"{name!r} is the last query of the flow", "at least one", "stop the flow instead")
        del self._queries[name]
        self._handle.relaunch(lambda manifest: without_query(manifest, name))

    def _remember(
        self, manifest: Manifest, added: ContinuousQuery, to: Any, path: str | None, options: Any
    ) -> Manifest:
        """The manifest with a submitted query: its text and sink, and the last epoch before it."""
        added.since = manifest.epoch
        texts = {key: str(value) for key, value in options.items()}
        target = to if isinstance(to, str) else None
        entry = {"text": added.query.text, "path": path, "to": target, "options": texts}
        return with_submitted(manifest, added.query.name, entry)

    def _recall(self, manifest: Manifest) -> None:
        """After a restart: the queries that were submitted to the running flow, without those withdrawn from it."""
        for name, entry in manifest.memory.get("submitted", {}).items():
            known = self._queries.get(name)
            if known is None:
                if entry["to"] is None:
                    raise SinkError(
                        f"query {name!r}, submitted while the flow ran, had a function as its sink",
                        "that sink again",
                        f"flow.query(..., name={name!r}).to(function) before start",
                    )
                known = self.query(entry["text"], name).to(entry["to"], entry["path"], **entry["options"])
            known.since = entry["since"]
        for name in manifest.memory.get("withdrawn", []):
            self._queries.pop(name, None)

    def _add(self, stream: Stream) -> None:
        if not _NAME.match(stream.name):
            raise StreamError(f"a stream cannot be named {stream.name!r}", "letters, digits and underscores")
        if stream.name in self._streams:
            raise StreamError(f"there is already a stream named {stream.name!r}", "a name of its own for each stream")
        fields = {field.name: field for field in stream.schema.fields}
        known = {name.lower(): name for name in fields}
        if stream.time.lower() not in known:
            raise StreamError(
                f"stream {stream.name!r} has no column {stream.time!r} for its time",
                "a timestamp column",
                nearest(stream.time, fields),
            )
        spelled = known[stream.time.lower()]
        kind = fields[spelled].dataType
        if not isinstance(kind, (TimestampType, TimestampNTZType)):
            times = [n for n, f in fields.items() if isinstance(f.dataType, (TimestampType, TimestampNTZType))]
            raise StreamError(
                f"the time column {stream.time!r} of stream {stream.name!r} is of type {kind.simpleString()}",
                "timestamp or timestamp_ntz",
                f"use {times[0]!r}" if times else f"cast it: F.col({stream.time!r}).cast('timestamp')",
            )
        reserved = [name for name in fields if name.startswith(_RESERVED)]
        if reserved:
            raise StreamError(
                f"stream {stream.name!r} has a column {reserved[0]!r}", "no column begins with __h, __t, __k or __m"
            )
        self._streams[stream.name] = replace(stream, time=spelled)

    def _refuse_unsupported(self, query: Query) -> None:
        if query.is_aggregate:
            draft(query, self._streams)

    def _check_complete(self) -> None:
        if not self._queries:
            raise InputError(
                "the flow has no query", "at least one", "flow.query('SELECT ...').to('parquet', path='...')"
            )
        for name, query in self._queries.items():
            if query.sink is None:
                raise SinkError(
                    f"query {name!r} has no sink",
                    "a sink for each query",
                    ".to('parquet', path='...') or .to('memory')",
                )

    def _plan(self, manifest: Manifest | None = None) -> Plan:
        late = {stream: True for q in self._queries.values() if q.late_sink for stream in q.query.streams}
        since = {name: q.since for name, q in self._queries.items()}
        queries = [q.query for q in self._queries.values()]
        memory = {} if manifest is None else manifest.memory
        trees = {q.name: tree_of(q, memory["trees"][q.name]) for q in queries if q.name in memory.get("trees", {})}
        filters = memory.get("filters", {})
        plan = make_plan(self._streams, queries, late, self._statistics(manifest, trees), since, filters, trees)
        return told(plan, {name for name, q in self._queries.items() if q.recovered})

    def _statistics(self, manifest: Manifest | None, trees: Mapping[str, Node]) -> Statistics:
        """What trees are chosen from: a sample before the first epoch, then what was measured."""
        queries = [q.query for q in self._queries.values()]
        if manifest is None or manifest.epoch < 0:
            return sampled_statistics(self._streams, queries)
        if "trees" not in manifest.memory:  # written before trees were remembered: they were chosen from nothing
            return Statistics()
        return measured_statistics(manifest, queries, trees)

    def _sinks(self) -> dict[str, Sink]:
        return {name: q.sink for name, q in self._queries.items() if q.sink is not None}

    def _late_sinks(self) -> dict[str, Sink]:
        sinks: dict[str, Sink] = {}
        for q in self._queries.values():
            if q.late_sink is None:
                continue
            target, path, options = q.late_sink
            for stream in q.query.streams:
                folder = None if path is None else f"{path}/stream={stream}"
                sinks.setdefault(stream, make_sink(target, folder, options))
        return sinks

    def _balanced_bytes(self) -> int | None:
        """The budget that the controller balances memory by: one that was asked for, relocation before spilling."""
        disk = "none" if self.controller is None else self.controller.settings.disk
        return self.overflow.memory_bytes if self.is_budgeted or disk != "none" else None

    def _n_slots(self) -> int:
        return self.slots or cores(self.spark)

    def _identity(self, known: Identity | None) -> Identity:
        streams = {
            name: {"schema": stream.schema.simpleString(), "time": stream.time}
            for name, stream in self._streams.items()
        }
        queries = {name: q.query.fingerprint for name, q in self._queries.items()}
        made = Identity.new(self.name, streams, queries)
        return made if known is None else replace(made, flow=known.flow)

    def _resumed(self, store: Checkpoint) -> Manifest:
        """The last manifest, over the slots that this start asks for; or those that a controller has arrived at."""
        last = store.latest()
        store.check_offsets(last.epoch)
        store.verify(last)
        self.routing.check_restart(last, self.slots)
        declusters = self.controller is not None and self.controller.settings.declustering
        wanted = last.n_slots if declusters else self.slots or last.n_slots
        if wanted != last.n_slots:
            last = resettled(replace(last.fitted(last.directory.resized(wanted)), executors={}), wanted)
            last.write(store.files)
        return last
