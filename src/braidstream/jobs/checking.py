"""Validates a job without starting Spark: what `braid check` does, and `braid run` does first.

The checks are an ordered list of plain functions, each of which raises what it finds: streams, epoch, queries, sinks,
checkpoint, ownership of the sinks' folders. Where Spark alone knows something (the columns of a source that brings its
own schema), the check is left for the run and named in `open`.

Invariant: nothing is written and nothing is started. Cost: milliseconds a query, and one look at the size of every
segment of an existing checkpoint.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from braidstream.epoch.ending import refuse_ended
from braidstream.errors import (
    CheckpointMismatch,
    DamagedState,
    InputError,
    JobError,
    Note,
    SinkError,
    StreamError,
    nearest,
)
from braidstream.functions.arrays import result_schema
from braidstream.functions.templates import FunctionPlan
from braidstream.jobs.code import named_code
from braidstream.jobs.form import Job, JobStream, with_place
from braidstream.jobs.piped import refuse_other_parts
from braidstream.jobs.taking_apart import is_mixed, parts_of
from braidstream.model.secrets import resolved_options
from braidstream.model.values import changed
from braidstream.options import JobSink, JobTableOptions
from braidstream.plan.attempts import refuse_bad
from braidstream.plan.catalogue import held_streams
from braidstream.plan.joined_columns import arrow_type
from braidstream.query import Column, Query, Schema, parse
from braidstream.query.bands import NO_EQUALITY
from braidstream.query.time_windows import expiring_groups
from braidstream.query.types import canonical_type, quote_name
from braidstream.spark.bad_rows import BAD, BAD_TYPE, FILE_BAD_TYPE
from braidstream.spark.declared import ContinuousQuery, for_stream
from braidstream.spark.evolving import bad_targets, declared_of, evolution, held_before, may_owe
from braidstream.spark.file_order import check_order, refuse_order_of_a_run
from braidstream.spark.finishing import whole_name
from braidstream.spark.formats import SINKS, SOURCES, check_source, is_known
from braidstream.spark.kafka_source import KAFKA_TIME, refuse_silent_brokers, takes_kafka_time
from braidstream.spark.moved import refuse_moved_streams
from braidstream.spark.names import resolved
from braidstream.spark.resolve import refuse_unknown_functions
from braidstream.spark.sinks import FileSink, Sink, TableSink, make_sink, spark_schema
from braidstream.spark.table_formats import check_table
from braidstream.state.begun_rollback import refuse_begun
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

__all__ = ["Checked", "check_job"]

FILE_SOURCES = ("parquet", "json", "csv", "orc", "avro", "xml", "text")
"""Sources that read files below a path."""
OWN_SCHEMA = {
    "rate": "timestamp timestamp, value long",
    "rate-micro-batch": "timestamp timestamp, value long",
    "socket": "value string",
    "text": "value string",
    "kafka": "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int",
}
"""Sources that bring their schema with them."""
_TIMES = ("timestamp", "timestamp_ntz")
_WILD = "*?[{"
_BRINGS = ("spark.jars", "spark.sql.extensions", "spark.sql.catalog", "spark.plugins", "spark.submit")
"""Settings by which a session may have functions that are none of Spark's."""
_OURS = {"manifests", "segments", "staged", "offsets", "lease"}
_LOOKS = 5


@dataclass(frozen=True)
class Checked:
    """What a check found out about a job that it did not refuse."""

    queries: Mapping[str, Query]
    """The queries that could be read without Spark."""
    epoch: int | None
    """The last epoch in the checkpoint; None when the job starts from the beginning."""
    open: tuple[str, ...] = ()
    """What only Spark can tell, a sentence each."""
    changes: tuple[str, ...] = ()
    """What a start would change in what the checkpoint holds, a sentence each."""
    warnings: tuple[str, ...] = ()
    """What is allowed, and perhaps not what was meant."""
    parts: Mapping[str, int | None] = field(default_factory=dict)
    """Of a job with functions and queries: the last epoch of each of its parts."""


def check_job(job: Job) -> Checked:
    """Raise what is wrong with the job, or tell what it is about to do; of a job with both kinds, part by part."""
    refuse_other_parts(job)
    if not is_mixed(job):
        return _check_flow(job, {})
    _refuse_overlaps(job, _sinks(job, {}))
    feeds: dict[str, Schema] = {}
    found, taken = dict[str, Checked](), dict[str, tuple[str, str]]()
    for part in parts_of(job):
        name = Path(part.flow.checkpoint).name
        found[name] = _check_flow(part, feeds)
        _refuse_taken(job, name, _sinks(part, found[name].queries), taken)
        known = {name: _results_of(part, name, feeds) for name in part.given}
        feeds |= {name: schema for name, schema in known.items() if schema is not None}
    every = found.values()
    return Checked(
        {name: query for one in every for name, query in one.queries.items()},
        None,
        tuple(line for one in every for line in one.open),
        tuple(line for one in every for line in one.changes),
        tuple(line for one in every for line in one.warnings),
        {name: one.epoch for name, one in found.items()},
    )


def _refuse_taken(job: Job, part: str, sinks: Mapping[str, Sink], taken: dict[str, tuple[str, str]]) -> None:
    """A folder is that of one part, for each is a flow; outputs of late rows may have one folder in a flow."""
    for place, path in _folders(sinks):
        other, at = taken.setdefault(path, (part, place))
        if other != part:
            wrong = f"{job.file}: {place}: the path {path} is also {at}, in another part of the job ({other})"
            raise SinkError(wrong, "a folder of its own", "choose another path")


def _results_of(part: Job, name: str, feeds: Mapping[str, Schema]) -> Schema | None:
    """The columns of a function's results, where those of its stream are known; of a query's, Spark says."""
    if name not in part.functions:
        return None
    first = next(iter(part.functions.values())).stream
    stream = feeds.get(first) if first in part.feeds else _schema_of(first, part.streams[first])
    if stream is None or stream.time is None:
        return None
    time = stream[stream.time]
    kind = pa.timestamp("us", "UTC" if time.type == "timestamp" else None)
    made = result_schema(FunctionPlan.of(part.functions[name].template()).gives, time.name, kind)
    columns = (Column(one.name, canonical_type(one.dataType.simpleString())) for one in spark_schema(made).fields)
    return Schema(tuple(columns), time.name)


def _check_flow(job: Job, feeds: Mapping[str, Schema]) -> Checked:
    """The same for what is one flow, of which `feeds` are known."""
    schemas = {
        name: with_place(job, f"[streams.{name}]", _schema_of, name, stream) for name, stream in job.streams.items()
    } | {name: feeds.get(name) for name in job.feeds}
    if job.flow.epoch != "available":
        for name, stream in job.streams.items():
            with_place(job, f"[streams.{name}]", refuse_order_of_a_run, name, stream.order)
    known = {name: schema for name, schema in schemas.items() if schema is not None}
    tables = {name: with_place(job, f"[tables.{name}]", _table_of, name, one) for name, one in job.tables.items()}
    found = _Found(known, {name: schema for name, schema in tables.items() if schema is not None})
    queries = _queries(job, found)
    for line in named_code({} if job.feeds else job.spark, queries, _ends(job)):  # said of the part before
        warnings.warn(Note(f"{job.file}: {line}"), stacklevel=2)
    sinks = _sinks(job, queries)
    _refuse_overlaps(job, sinks)
    identity, epoch, changes = with_place(job, "[flow] checkpoint", _checkpoint, job, found, queries)
    for place, sink in sinks.items():
        with_place(job, place, sink.check, "" if identity is None else identity.flow)
    left = [f"the columns of stream {name} are known when Spark runs" for name in schemas if name not in known]
    left += [f"the columns of table {name} are known when Spark runs" for name in tables if name not in found.tables]
    for name, query in queries.items():
        others = any(setting.startswith(_BRINGS) for setting in job.spark)
        unknown = with_place(job, f"[queries.{name}] cql", partial(refuse_unknown_functions, others=others), query)
        left += [f"the function {called} of query {name} is looked up when Spark runs" for called in unknown]
    left += [f"the types of function {name} are compared with its stream when Spark runs" for name in job.functions]
    left += [f"whether Spark has the format {told} is known when it runs" for told in _to_be_found(job, sinks)]
    _refuse_bad(job, known, queries)
    told = (expiring_groups(query, found.streams) for query in queries.values())
    return Checked(queries, epoch, tuple(left), changes, tuple(one for one in told if one is not None))


def _ends(job: Job) -> dict[str, tuple[str, Mapping[str, str]]]:
    """The format and the options of each stream, sink and table, by its place in the file."""
    places: list[tuple[str, JobStream | JobSink | JobTableOptions | None]] = []
    for name, stream in job.streams.items():
        places += [(f"[streams.{name}]", stream), (f"[streams.{name}] bad", stream.bad)]
    for name, entry in job.queries.items():
        at = f"[queries.{name}]"
        places += [(f"{at} sink", entry.sink), (f"{at} late", entry.late), (f"{at} bad", entry.bad)]
    places += [(f"[functions.{name}] sink", one.sink) for name, one in job.functions.items()]
    places += [(f"[tables.{name}]", one) for name, one in job.tables.items()]
    return {place: (one.format, one.options) for place, one in places if one is not None}


def _refuse_bad(job: Job, known: Mapping[str, Schema], queries: Mapping[str, Query]) -> None:
    """Where rows that fail cannot be told apart, as far as it is known without Spark."""
    shapes = {name: pa.schema([(c.name, arrow_type(c.type)) for c in schema]) for name, schema in known.items()}
    for name, query in queries.items():
        if job.queries[name].bad is not None and not query.enriched:
            with_place(job, f"[queries.{name}] bad", refuse_bad, query, shapes)


@dataclass(frozen=True)
class _Found:
    """The schemas that are known without Spark."""

    streams: Mapping[str, Schema]
    tables: Mapping[str, Schema]

    def is_all(self, job: Job) -> bool:
        return len(self.streams) == len(job.streams) + len(job.feeds) and len(self.tables) == len(job.tables)

    def parse(self, text: str, name: str, allow: str | None = NO_EQUALITY) -> Query:
        return parse(text, self.streams, name, tables=self.tables, allow=allow)


def _table_of(name: str, table: JobTableOptions) -> Schema | None:
    """The columns of a table, where the file says them."""
    check_table(name, table.format, table.path, table.options)
    return None if table.schema is None else Schema.from_ddl(table.schema)


def _to_be_found(job: Job, sinks: Mapping[str, Sink]) -> list[str]:
    """The formats that not every session has, with the places that use them."""
    used = [(stream.format, SOURCES, f"[streams.{name}]") for name, stream in job.streams.items()]
    used += [(sink.format, SINKS, place) for place, sink in sinks.items() if isinstance(sink, (FileSink, TableSink))]
    return [f"{format_} of {place}" for format_, known, place in used if not is_known(format_, known)]


def _schema_of(name: str, stream: JobStream) -> Schema | None:
    """The stream's schema, with its time column in it; None where only Spark knows it."""
    _check_path(stream)
    stream = replace(stream, options=resolved_options(stream.options, f"stream {name!r}"))
    check_source(name, stream.format, stream.options)
    _check_order(name, stream)
    if stream.value is not None:
        refuse_silent_brokers(name, stream.options)
    text = stream.schema or OWN_SCHEMA.get(stream.format.lower())
    if text is None:
        return None
    schema = Schema.from_ddl(text)
    if stream.value is not None and takes_kafka_time(stream.time, [column.name for column in schema]):
        text = f"{text}, {KAFKA_TIME} timestamp"
        schema = Schema.from_ddl(text)
    if stream.bad is not None:
        schema = Schema.from_ddl(f"{text}, {BAD} {FILE_BAD_TYPE if stream.value is None else BAD_TYPE}")
    schema = replace(schema, time=stream.time)
    _check_time(name, stream.time, schema)
    return schema


def _check_path(stream: JobStream) -> None:
    """A file source has a path, and a schema unless it brings one; a path that is given exists."""
    own = stream.format.lower()
    if own in FILE_SOURCES and stream.path is None:
        raise JobError(f"a {stream.format} stream without a path", "the folder of its files", 'add path = "data/R"')
    if own in FILE_SOURCES and stream.schema is None and own not in OWN_SCHEMA:
        fix = 'add schema = "k long, v long, ts timestamp"'
        raise JobError(f"a {stream.format} stream without a schema", "its columns and their types", fix)
    path = stream.path
    if path and "://" not in path and not any(c in path for c in _WILD) and not Path(path).exists():
        raise StreamError(f"the path {path} does not exist", "a folder of files", "create it, or correct the path")


def _check_order(name: str, stream: JobStream) -> None:
    """Only Parquet files are read in an order of ours."""
    check_order(name, stream.order)
    if stream.order is not None and not (stream.format == "parquet" and stream.path and stream.schema):
        wrong = f"order for a {stream.format} stream"
        raise JobError(wrong, "order for Parquet files with a path and a schema", "leave order out")


def _check_time(name: str, time: str, schema: Schema) -> None:
    column = schema.find(time)
    if column is None:
        fix = nearest(time, [c.name for c in schema if c.type in _TIMES])
        raise StreamError(f"stream {name!r} has no column {time!r} for its time", "a timestamp column", fix)
    if column.type not in _TIMES:
        times = [c.name for c in schema if c.type in _TIMES]
        raise StreamError(
            f"the time column {time!r} of stream {name!r} is of type {column.type}",
            "timestamp or timestamp_ntz",
            f"use {times[0]!r}" if times else f"declare it as {time} timestamp",
        )


def _queries(job: Job, found: _Found) -> dict[str, Query]:
    """The parsed queries, without those that may read a stream or table of unknown schema."""
    parsed = {}
    for name, entry in job.queries.items():
        with nullcontext() if found.is_all(job) else suppress(InputError):
            read = partial(found.parse, allow=entry.allow)
            parsed[name] = with_place(job, f"[queries.{name}] cql", read, entry.cql, name)
    return parsed


def _sinks(job: Job, queries: Mapping[str, Query]) -> dict[str, Sink]:
    """Every sink of the job, by its place in the file; a late sink has a folder for each stream."""
    made: dict[str, Sink] = {}
    for name, source in job.streams.items():
        if source.bad is not None:
            at, bad = f"[streams.{name}] bad", source.bad
            made[at] = with_place(job, at, make_sink, bad.format, bad.path, bad.options)
    for name, function in job.functions.items():
        at, sink = f"[functions.{name}] sink", function.sink
        if sink is not None:
            made[at] = with_place(job, at, make_sink, sink.format, sink.path, sink.options)
    for name, entry in job.queries.items():
        at = f"[queries.{name}]"
        made[f"{at} sink"] = with_place(
            job, f"{at} sink", make_sink, entry.sink.format, entry.sink.path, entry.sink.options
        )
        for what, one in (("late", entry.late), ("bad", entry.bad)):
            if one is None:
                continue
            send = partial(with_place, job, f"{at} {what}", for_stream, (one.format, one.path, one.options))
            for stream in _parts(queries.get(name), what):
                made[f"{at} {what} {stream}"] = send(stream)
    return made


def _parts(query: Query | None, what: str) -> Iterator[str]:
    """The folders of late tuples: one for each stream; of rows that fail one more, for joined rows."""
    if query is not None:
        yield from query.streams
        if what == "bad":
            yield whole_name(query)


def _refuse_overlaps(job: Job, sinks: Mapping[str, Sink]) -> None:
    """No two sinks in one folder, and none in a folder that is read or in the checkpoint."""
    taken = {f"[streams.{name}] path": stream.path for name, stream in job.streams.items() if stream.path}
    taken |= {f"[tables.{name}] path": table.path for name, table in job.tables.items() if table.path}
    taken["[flow] checkpoint"] = job.flow.checkpoint
    folders = {resolved(path): place for place, path in taken.items() if not any(c in path for c in _WILD)}
    kept = dict(folders)
    for place, path in _folders(sinks):
        for folder, other in kept.items():
            if path.startswith(folder.rstrip("/") + "/"):
                raise SinkError(
                    f"{job.file}: {place}: the path {path} is inside {other}",
                    "a folder of its own",
                    "choose another path",
                )
        other = folders.setdefault(path, place)
        shared = other != place and not (" late " in other and " late " in place)
        if shared:
            raise SinkError(
                f"{job.file}: {place}: the path {path} is also {other}", "a folder of its own", "choose another path"
            )


def _folders(sinks: Mapping[str, Sink]) -> Iterator[tuple[str, str]]:
    return ((place, resolved(sink.folder)) for place, sink in sinks.items() if sink.folder is not None)


def _checkpoint(
    job: Job, found: _Found, queries: Mapping[str, Query]
) -> tuple[Identity | None, int | None, tuple[str, ...]]:
    """What the checkpoint belongs to, its last epoch and what changes, when it is there, undamaged and this job's."""
    store = Checkpoint(job.flow.checkpoint)
    store.refuse_unreachable()
    identity = None if _is_file(store) else store.identity()
    if identity is None:
        _refuse_strange_folder(store)
        return None, None, ()
    refuse_begun(store.files)
    latest = _undamaged(store)
    refuse_ended(latest, job.flow.checkpoint)
    knows_all = len(queries) == len(job.queries) and found.is_all(job)
    changes: tuple[str, ...] = ()
    if not job.functions and knows_all and latest.epoch >= 0:  # what never committed an epoch may still change
        changes = _changes(job, identity, latest, found, queries)
    paths = {name: s.path if s.format.lower() in FILE_SOURCES else None for name, s in job.streams.items()}
    sources = _sources(job, held_streams(identity, latest))
    refuse_moved_streams(store, {name: paths.get(name) for name in sources}, job.flow.checkpoint)
    return identity, latest.epoch if latest.epoch >= 0 else None, changes


def _sources(job: Job, known: Iterable[str]) -> list[str]:
    """What is read, in the order of Spark's sources: as a checkpoint knows streams, or as functions take them."""
    first = next(iter(job.functions.values()), None)
    return list(dict.fromkeys([*known, *job.streams])) if first is None else [first.stream, *first.beside]


def _changes(
    job: Job, identity: Identity, latest: Manifest, known: _Found, queries: Mapping[str, Query]
) -> tuple[str, ...]:
    """What the job declares otherwise than its checkpoint was left; refused where that cannot be done."""
    mine = _identity(job, known.streams, queries)
    held = latest.with_notes(changed(latest.notes, streams=_comparable(held_streams(identity, latest))))
    declared = {name: declared_of(_declared(job, name, query)) for name, query in queries.items()}
    bad = {name: (s.bad.format, s.bad.path, s.bad.options) for name, s in job.streams.items() if s.bad is not None}
    found = evolution(identity, held, mine, declared, bad_targets(bad), known.parse)
    found.check(mine, job.flow.checkpoint)
    if found.ends and may_owe(latest):
        held_before(found, latest, known.parse, {}, job.flow.checkpoint)
    return found.lines


def _declared(job: Job, name: str, query: Query) -> ContinuousQuery:
    entry = job.queries[name]
    made = ContinuousQuery(query, recovered=entry.recovered).to(
        entry.sink.format, entry.sink.path, **entry.sink.options
    )
    if entry.late is not None:
        made.late(entry.late.format, entry.late.path, **entry.late.options)
    return made if entry.bad is None else made.bad(entry.bad.format, entry.bad.path, **entry.bad.options)


def _undamaged(store: Checkpoint, looks: int = _LOOKS) -> Manifest:
    """The last manifest of a checkpoint whose manifests can all be read, and whose segments are all there.

    One that a flow runs on may change while it is looked at; then it is looked at again.
    """
    try:
        return _looked_at(store)
    except DamagedState:
        if looks == 1 or (looks < _LOOKS and not store.is_held):
            raise
        return _undamaged(store, looks - 1)


def _looked_at(store: Checkpoint) -> Manifest:
    for epoch in Manifest.epochs(store.files):
        Manifest.read(store.files, epoch)
    latest = store.latest()
    store.check_offsets(latest.epoch)
    store.verify(latest)
    return latest


def _identity(job: Job, schemas: Mapping[str, Schema], queries: Mapping[str, Query]) -> Identity:
    """The identity that the job's checkpoint must have."""
    streams = {
        name: {"schema": _struct(schema), "time": schema[(job.feeds.get(name) or job.streams[name]).time].name}
        for name, schema in schemas.items()
    }
    return Identity.new(job.flow.name, streams, {name: query.fingerprint for name, query in queries.items()})


def _comparable(streams: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Streams with their schemas in canonical spelling, and of each what a job file can say."""
    return {name: {"schema": _canonical(known["schema"]), "time": known["time"]} for name, known in streams.items()}


def _struct(schema: Schema) -> str:
    return f"struct<{','.join(f'{quote_name(column.name)}:{column.type}' for column in schema)}>"


def _canonical(struct: str) -> str:
    try:
        return canonical_type(struct)
    except InputError:
        return struct


def _is_file(store: Checkpoint) -> bool:
    return store.files.is_local and Path(store.files.path("")).is_file()


def _refuse_strange_folder(store: Checkpoint) -> None:
    """A new checkpoint is made in a new or an empty folder, not among somebody's files."""
    if not store.files.is_local:
        return
    folder = Path(store.files.path(""))
    names = {entry.name.partition("-")[0] for entry in folder.iterdir()} if folder.is_dir() else set()
    if _is_file(store) or not names <= _OURS:
        raise CheckpointMismatch(
            f"the checkpoint {folder} is no checkpoint, and is not empty",
            "a checkpoint of this flow, or a new folder",
            "choose another folder",
        )
