"""Job files: a flow in TOML. `read` makes a `Job` of a file, `check` validates it, `build` makes the `Flow` of it.

    [flow]                  checkpoint, and the options of the flow and its start
    [streams.NAME]          format, time, and as the format needs them path, schema, delay, order, options
    [tables.NAME]           format, and as wanted path, schema, refresh, options
    [queries.NAME]          cql, sink = { format, path, options }, and optionally late and bad, sinks for late tuples
                            and for rows of which an expression fails
    [types.NAME]            the fields of a stream type (docs/functions.md)
    [functions.NAME]        stream, function, sink, and as wanted type, size, step, degrees, ...
    [control]               the controller's settings, and enabled (docs/controller.md)
    [spark]                 settings of Spark; `master` is short for spark.master, `packages` lists spark.jars.packages

The options are those of `braidstream.options`; docs/options.md lists them. The form is a contract: it is extended,
never broken.

Invariant: nothing is ignored. An option that is not in the form, or is of the wrong type, is refused with its place and
the nearest name. Relative paths are relative to the job file. `check` starts no Spark, writes nothing, and finds all
that can be found so; what only Spark knows (the columns of a stream without a schema) it names in `Checked.open`.

Cost: milliseconds; `check` looks at the size of every segment of an existing checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from braidstream.errors import BraidstreamError, InputError, JobError, nearest
from braidstream.functions.jobfile import JobFunction, in_order, read_tables
from braidstream.jobs.control import read_control
from braidstream.model.secrets import resolved_options
from braidstream.options import (
    FlowOptions,
    JobFlow,
    JobQuery,
    JobSink,
    JobStream,
    JobTableOptions,
    Settings,
    chosen,
    options_of,
)
from braidstream.options.job_table import JobTable, shown_value, text_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from braidstream.functions.stream_types import StreamType
    from braidstream.spark.flow import Flow
    from braidstream.spark.handle import Handle

__all__ = ["Job", "JobFlow", "JobQuery", "JobSink", "JobStream", "build", "read", "start"]

FEED_FILES = "100"
"""How many files of a feed queries read in an epoch; functions take all, since what comes in one epoch is in order."""
_NO_TABLES = ("file", "feeds", "given")
Form = TypeVar("Form")
Result = TypeVar("Result")


PARTS = "parts.json"
"""In the checkpoint of a job with functions and queries: which parts are in it (`jobs.taking_apart`)."""
FEEDS = "feeds"
"""Likewise the folder with what leads from one to another."""


@dataclass(frozen=True)
class Feed:
    """A stream of a part of a job: the results of a query or a function in another part (`jobs.taking_apart`)."""

    folder: str
    time: str
    delay: str


@dataclass(frozen=True)
class Job:
    """A job file that was read: its form is right. Whether it fits the data is for `check` to say."""

    file: Path
    flow: JobFlow
    streams: Mapping[str, JobStream]
    queries: Mapping[str, JobQuery]
    spark: Mapping[str, str] = field(default_factory=dict)
    control: Settings | None = None
    """The controller's settings; None: groups stay where they are. What `read` gives has them unless it is off."""
    types: Mapping[str, StreamType] = field(default_factory=dict)
    functions: Mapping[str, JobFunction] = field(default_factory=dict)
    """Each takes a stream, or the results of another function or of a query."""
    tables: Mapping[str, JobTableOptions] = field(default_factory=dict)
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    """Of a part of a job: what it reads of other parts, by the names there."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Of a part of a job: what others read of it, and the folders of their feeds."""


def read(file: str | Path) -> Job:
    """Read a job file; JobError, with the place, where it is not in the form of one."""
    path = Path(file)
    top = JobTable(str(file), "", _parsed(path))
    top.refuse_unknown([entry.name for entry in fields(Job) if entry.name not in _NO_TABLES], "table")
    flow = _flow(top.table("flow"), path.stem)
    streams = {name: _stream(path, table) for name, table in top.tables("streams")}
    has_functions = bool(top.values.get("functions"))
    named = top.tables("queries") if "queries" in top.values or not has_functions else ()
    queries = {name: _query(path, table) for name, table in named}
    types, functions = _functions(path, top, streams, queries)
    control = read_control(top, flow)
    beside = top.tables("tables") if "tables" in top.values else ()
    tables = {name: _at_home(path, table.read(JobTableOptions)) for name, table in beside}
    _refuse_both(path, streams, tables)
    return Job(path, _at_home(path, flow), streams, queries, _settings(top), control, types, functions, tables)


def build(job: Job, spark: Any, columns: Mapping[str, Any] | None = None) -> Flow:
    """The job's flow over a Spark session, which is neither stopped nor reconfigured.

    `columns` are those of the feeds that a part of a job reads.
    """
    from braidstream.control.controller import Controller  # noqa: PLC0415
    from braidstream.spark.flow import Flow  # noqa: PLC0415  (brings Spark along)

    # What nobody set is left to the flow: a biclique has no use for a controller, and refuses one that is named.
    controller = job.control is not None if job.control in (None, Settings()) else Controller(job.control)
    flow = Flow(spark, **{**vars(chosen(FlowOptions, vars(job.flow))), "controller": controller})
    for name, stream in job.streams.items():
        with_place(job, f"[streams.{name}]", _declare, flow, spark, name, stream)
    for name, feed in job.feeds.items():
        options = {"recursiveFileLookup": "true", **({} if job.functions else {"maxFilesPerTrigger": FEED_FILES})}
        read = {"schema": (columns or {})[name], "time": feed.time, "delay": feed.delay, "order": "modified"}
        with_place(job, f"results of {name}", partial(flow.files, name, feed.folder, **read, options=options))
    for name, table in job.tables.items():
        with_place(job, f"[tables.{name}]", _declare_table, flow, name, table)
    for name, entry in job.queries.items():
        added = partial(flow.query, recovered=entry.recovered, allow=entry.allow)
        query = with_place(job, f"[queries.{name}] cql", added, entry.cql, name)
        with_place(job, f"[queries.{name}] sink", _send, query.to, spark, entry.sink)
        if entry.late is not None:
            with_place(job, f"[queries.{name}] late", _send, query.late, spark, entry.late)
        if entry.bad is not None:
            with_place(job, f"[queries.{name}] bad", _send, query.bad, spark, entry.bad)
    for name, function in job.functions.items():
        from braidstream.spark.functions import attach_job_function, ship_modules_of  # noqa: PLC0415

        ship_modules_of(job.file.absolute().parent)
        with_place(job, f"[functions.{name}]", attach_job_function, flow, name, function)
    return flow


def start(job: Job, spark: Any, wait: str = "0 seconds") -> Handle[Any]:
    """Build the job's flow and start it, or go on where its checkpoint ends; `wait` for another run's end."""
    flow = job.flow
    return build(job, spark).start(
        flow.checkpoint,
        epoch=flow.epoch,
        keep=flow.keep,
        history=flow.history,
        durability=flow.durability,
        final=flow.final,
        wait=wait,
    )


def refuse_running(job: Job) -> None:
    """Refuse, before Spark is started, a job that surely runs already."""
    from braidstream.state.checkpoint import Checkpoint  # noqa: PLC0415  (reading a job needs none of it)

    Checkpoint(job.flow.checkpoint).refuse_held()


def with_place(job: Job, place: str, action: Callable[..., Result], *arguments: Any) -> Result:
    """Do something for a part of the job; an error of input then names the file and the place in it."""
    try:
        return action(*arguments)
    except InputError as error:
        BraidstreamError.__init__(error, f"{job.file}: {place}: {error.wrong}", error.expected, error.fix)
        raise


def _declare(flow: Flow, spark: Any, name: str, stream: JobStream) -> None:
    stream = replace(stream, options=resolved_options(stream.options, f"stream {name!r}"))
    if stream.format.lower() == "parquet" and stream.path and stream.schema:
        read = {"delay": stream.delay, "options": stream.options, "order": stream.order, "idle": stream.idle}
        flow.files(name, stream.path, schema=stream.schema, time=stream.time, **read)  # type: ignore[arg-type]
        return
    from braidstream.spark.formats import open_stream  # noqa: PLC0415
    from braidstream.spark.kafka_source import kafka_frame  # noqa: PLC0415
    from braidstream.spark.text_files import TEXT_FILES, text_frame  # noqa: PLC0415

    if stream.value is not None and stream.schema is not None:
        keeps_bad = stream.bad is not None
        fields = (stream.schema, stream.time, stream.options)
        frame = kafka_frame(spark, name, *fields, value=stream.value, keeps_bad=keeps_bad)
    elif stream.schema is not None and stream.format.lower() in TEXT_FILES:
        given = (stream.format, stream.path, stream.schema, stream.options)
        frame = text_frame(spark, name, *given, keeps_bad=stream.bad is not None)
    else:
        frame = open_stream(spark, name, stream.format, stream.path, stream.schema, stream.options)
    flow.stream(name, frame, time=stream.time, delay=stream.delay or "0 seconds", idle=stream.idle)
    if stream.bad is not None:
        flow.bad(name, stream.bad.format, stream.bad.path, **stream.bad.options)


def _declare_table(flow: Flow, name: str, table: JobTableOptions) -> None:
    flow.table(name, **vars(table))


def _refuse_both(file: Path, streams: Mapping[str, JobStream], tables: Mapping[str, JobTableOptions]) -> None:
    both = next((name for name in tables if name.lower() in {stream.lower() for stream in streams}), None)
    if both is not None:
        raise JobError(f"{file}: {both} is a stream and a table", "a name of its own for each", "rename one of them")


def _send(send: Callable[..., Any], spark: Any, sink: JobSink) -> None:
    declared = send(sink.format, sink.path, **sink.options)
    for one in declared.outputs:
        one.find(spark)


def _parsed(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JobError(f"there is no job file {path}", "the path of a TOML file", "check the path") from None
    except tomllib.TOMLDecodeError as error:
        raise JobError(
            f"{path} is not TOML: {error}", 'lines like epoch = "available"', "check quotes and brackets"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"the job file {path} cannot be read ({error})", "a TOML file in UTF-8") from None


def _flow(table: JobTable, stem: str) -> JobFlow:
    """The flow is named after the file, unless it has a name that is not empty."""
    if table.values.get("name") == "":
        table = replace(table, values={**table.values, "name": stem})
    return table.read(JobFlow, name=stem)


def _stream(file: Path, table: JobTable) -> JobStream:
    stream = table.read(JobStream)
    return _at_home(file, stream if stream.bad is None else replace(stream, bad=_at_home(file, stream.bad)))


def _query(file: Path, table: JobTable) -> JobQuery:
    query = table.read(JobQuery)
    late, bad = (None if one is None else _at_home(file, one) for one in (query.late, query.bad))
    return replace(query, sink=_at_home(file, query.sink), late=late, bad=bad)


def _functions(
    file: Path, top: JobTable, streams: Mapping[str, JobStream], queries: Mapping[str, JobQuery]
) -> tuple[dict[str, StreamType], dict[str, JobFunction]]:
    """The types, and the functions in the order in which they feed one another.

    `module:function` may name a module beside the job file.
    """
    if "functions" not in top.values and "types" not in top.values:
        return {}, {}
    home = str(file.absolute().parent)
    if home not in sys.path:
        sys.path.insert(0, home)
    types, functions = read_tables(top.values, str(file))
    for name, entry in functions.items():
        place, known = top.table("functions").table(name), [*streams, *functions, *queries]
        if entry.stream not in known:
            what = "a stream, a function or a query of the job" if queries else "a stream or a function of the job"
            raise place.error("stream", f"is {entry.stream!r}", what, nearest(entry.stream, known))
        _refuse_time(place, entry, is_of_query=entry.stream not in {*streams, *functions})
        _refuse_bad(place, entry, streams)
        feeds = {one.stream for one in functions.values()} - set(streams)
        read = {one.lower() for query in queries.values() for one in _named(query.cql)}
        if entry.sink is None and name not in feeds and name.lower() not in read:
            raise place.error(
                "sink", "is missing", "a table with a format", f"add {options_of(JobQuery)['sink'].written}"
            )
        if entry.sink is not None:
            functions[name] = replace(entry, sink=_at_home(file, place.table("sink").read(JobSink)))
    return types, functions if queries else _in_order(file, functions, streams)


def _named(text: str) -> frozenset[str]:
    """What a query names; one that cannot be read is refused where its place is known."""
    from braidstream.query.cql import relation_names  # noqa: PLC0415  (a job of functions alone needs none of it)

    try:
        return relation_names(text)
    except InputError:
        return frozenset()


def _refuse_time(place: JobTable, entry: JobFunction, *, is_of_query: bool) -> None:
    given = next((option for option in ("time", "delay") if getattr(entry, option) is not None), None)
    if given is not None and not is_of_query:
        raise place.error(
            given, f"is said, and {entry.stream!r} is no query", f"{given} for the results of a query", "leave it out"
        )


def _refuse_bad(place: JobTable, entry: JobFunction, streams: Mapping[str, JobStream]) -> None:
    """Rows that cannot be read are NULLs beside their `bad`, which a function would leave out."""
    read = [name for name in (entry.stream, *entry.beside) if name in streams and streams[name].bad is not None]
    if read:
        what = "a stream without it: functions have no output for rows that cannot be read, and stop at the first"
        fix = "leave bad out, or declare the stream once more without it, under another name"
        option = "stream" if read[0] == entry.stream else "beside"
        raise place.error(option, f"names {read[0]}, which has bad", what, fix)


def _in_order(
    file: Path, functions: Mapping[str, JobFunction], streams: Mapping[str, JobStream]
) -> dict[str, JobFunction]:
    try:
        return in_order(functions, streams)
    except InputError as error:
        raise JobError(f"{file}: [functions] {error.wrong}", error.expected, error.fix) from None


def _at_home(file: Path, part: Form) -> Form:
    """The part with its path, if it is relative, below the folder of the job file."""
    option = "checkpoint" if isinstance(part, JobFlow) else "path"
    path = getattr(part, option)
    if path is None or "://" in path:
        return part
    return type(part)(**{**vars(part), option: str((file.absolute().parent / path).resolve())})


def _settings(top: JobTable) -> dict[str, str]:
    if "spark" not in top.values:
        return {}
    table, found = top.table("spark"), {}
    for name, value in _flat(table.values, ""):
        full = {"master": "spark.master", "packages": "spark.jars.packages"}.get(name, name)
        if name == "packages" and isinstance(value, list) and all(isinstance(one, str) for one in value):
            value = ",".join(value)  # noqa: PLW2901
        if not full.startswith("spark."):
            raise table.error(name, "is no setting of Spark", "names that begin with spark.", f"write spark.{name}")
        if not isinstance(value, (str, int, float)):
            raise table.error(name, f"is {shown_value(value)}", "a text, a number, true or false")
        found[full] = text_of(value)
    return found


def _flat(values: Mapping[str, Any], before: str) -> Iterable[tuple[str, Any]]:
    """TOML reads spark.sql.x = 1 as tables inside tables; Spark knows one dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value
