"""Job files: a flow in TOML. `read` makes a `Job` of a file, `check` validates it, `build` makes the `Flow` of it.

    [flow]                  checkpoint, and optionally name, epoch, slots, groups, keep, silence, router, rule,
                            subgroups, memory, on_overflow, spill_share, idle_after, shed_by
    [streams.NAME]          format, time, and as the format needs them path, schema, delay, order, options
    [queries.NAME]          cql, sink = { format, path, options }, and optionally late, a sink for late tuples
    [types.NAME]            the fields of a stream type (docs/functions.md)
    [functions.NAME]        stream, function, sink, and as wanted type, size, step, degrees, ... instead of queries
    [control]               enabled, and the controller's settings (docs/controller.md)
    [spark]                 settings of Spark; `master` is short for spark.master

The dataclasses below are the form: an option is known because it is a field of one of them. The form is a contract:
it is extended, never broken.

Invariant: nothing is ignored. An option that is not in the form, or is of the wrong type, is refused with its place and
the nearest name. Relative paths are relative to the job file. `check` starts no Spark, writes nothing, and finds all
that can be found so; what only Spark knows (the columns of a stream without a schema) it names in `Checked.open`.

Cost: milliseconds; `check` looks at the size of every segment of an existing checkpoint.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from braidstream.control.settings import Settings
from braidstream.errors import BraidstreamError, InputError, JobError, nearest
from braidstream.functions.jobfile import JobFunction, read_tables
from braidstream.jobs.control import read_control

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from braidstream.functions.stream_types import StreamType
    from braidstream.spark.flow import Flow
    from braidstream.spark.handle import Handle

__all__ = ["Job", "JobFlow", "JobQuery", "JobSink", "JobStream", "build", "read", "start"]

_NAME = re.compile(r"[A-Za-z_]\w*$")
Form = TypeVar("Form")
Result = TypeVar("Result")


@dataclass(frozen=True)
class JobFlow:
    """`[flow]`: where the state is, and how epochs are made."""

    checkpoint: str
    name: str = ""
    epoch: str = "available"
    slots: int | None = None
    groups: int = 64
    keep: int = 10
    silence: str | None = None
    """How long a stream may be silent before work that waits for it is suspended."""
    router: str = "auto"
    """How rows of one key are spread over slots: "auto", "hash", "grid" or "biclique" (docs/skew.md)."""
    rule: str = "even"
    """For grids: "even", or "paper" with router = "grid"."""
    subgroups: int | None = None
    """For a biclique."""
    memory: str | None = None
    """The active state a slot may hold; by default a share of the executor's memory."""
    on_overflow: str = "spill"
    spill_share: float = 0.3
    """The share of a slot's state that is pushed when it outgrows its memory."""
    idle_after: int = 100
    """After how many epochs without a new tuple a group is pushed first."""
    shed_by: str = "oldest"
    """Which tuples go first where they are shed: the oldest, random ones, or those of unproductive groups."""


@dataclass(frozen=True)
class JobStream:
    """`[streams.NAME]`: a streaming source of Spark, its event time, and how late tuples may come."""

    format: str
    time: str
    path: str | None = None
    schema: str | None = None
    delay: str | None = None
    """Without it: of Parquet files as measured from them, of other sources none."""
    order: str | None = None
    """For Parquet files: "time", "name" or "modified"."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSink:
    """`sink` and `late` of a query: a batch format of Spark, "memory" or "noop"."""

    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobQuery:
    """`[queries.NAME]`: a continuous query and where its results go."""

    cql: str
    sink: JobSink
    late: JobSink | None = None
    recovered: bool = False
    """Whether results carry the columns `recovered` and `epoch`."""


@dataclass(frozen=True)
class Job:
    """A job file that was read: its form is right. Whether it fits the data is for `check` to say."""

    file: Path
    flow: JobFlow
    streams: Mapping[str, JobStream]
    queries: Mapping[str, JobQuery]
    spark: Mapping[str, str] = field(default_factory=dict)
    control: Settings | None = None
    """The controller's settings; None: groups stay where they are."""
    types: Mapping[str, StreamType] = field(default_factory=dict)
    functions: Mapping[str, JobFunction] = field(default_factory=dict)
    """A flow has queries, or one function."""


def read(file: str | Path) -> Job:
    """Read a job file; JobError, with the place, where it is not in the form of one."""
    path = Path(file)
    top = _Table(str(file), "", _parsed(path))
    top.refuse_unknown([entry.name for entry in fields(Job) if entry.name != "file"], "table")
    flow = top.table("flow").read(JobFlow)
    named = flow if flow.name else JobFlow(**{**vars(flow), "name": path.stem})
    streams = {name: _at_home(path, table.read(JobStream)) for name, table in top.tables("streams")}
    types, functions = _functions(path, top, streams)
    queries = {} if functions else {name: _query(path, table) for name, table in top.tables("queries")}
    control = read_control(str(file), top.values["control"], flow.epoch) if "control" in top.values else None
    return Job(path, _at_home(path, named), streams, queries, _settings(top), control, types, functions)


def build(job: Job, spark: Any) -> Flow:
    """The job's flow over a Spark session, which is neither stopped nor reconfigured."""
    from braidstream.control.controller import Controller  # noqa: PLC0415
    from braidstream.spark.flow import Flow  # noqa: PLC0415  (brings Spark along)

    controller = None if job.control is None else Controller(job.control)
    flow = Flow(
        spark,
        job.flow.name,
        slots=job.flow.slots,
        groups=job.flow.groups,
        silence=job.flow.silence,
        controller=controller,
        router=job.flow.router,
        rule=job.flow.rule,
        subgroups=job.flow.subgroups,
        memory=job.flow.memory,
        on_overflow=job.flow.on_overflow,
        spill_share=job.flow.spill_share,
        idle_after=job.flow.idle_after,
        shed_by=job.flow.shed_by,
    )
    for name, stream in job.streams.items():
        with_place(job, f"[streams.{name}]", _declare, flow, spark, name, stream)
    for name, entry in job.queries.items():
        added = partial(flow.query, recovered=entry.recovered)
        query = with_place(job, f"[queries.{name}] cql", added, entry.cql, name)
        with_place(job, f"[queries.{name}] sink", _send, query.to, spark, entry.sink)
        if entry.late is not None:
            with_place(job, f"[queries.{name}] late", _send, query.late, spark, entry.late)
    for name, function in job.functions.items():
        from braidstream.spark.functions import attach_job_function, ship_modules_of  # noqa: PLC0415

        ship_modules_of(job.file.absolute().parent)
        with_place(job, f"[functions.{name}]", attach_job_function, flow, name, function)
    return flow


def start(job: Job, spark: Any, wait: str = "0 seconds") -> Handle[Any]:
    """Build the job's flow and start it, or go on where its checkpoint ends; `wait` for another run's end."""
    return build(job, spark).start(job.flow.checkpoint, epoch=job.flow.epoch, keep=job.flow.keep, wait=wait)


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
    if stream.format.lower() == "parquet" and stream.path and stream.schema:
        read = {"delay": stream.delay, "options": stream.options, "order": stream.order}
        flow.files(name, stream.path, schema=stream.schema, time=stream.time, **read)  # type: ignore[arg-type]
        return
    from braidstream.spark.formats import open_stream  # noqa: PLC0415

    frame = open_stream(spark, name, stream.format, stream.path, stream.schema, stream.options)
    flow.stream(name, frame, time=stream.time, delay=stream.delay or "0 seconds")


def _send(send: Callable[..., Any], spark: Any, sink: JobSink) -> None:
    from braidstream.spark.formats import find_sink  # noqa: PLC0415

    send(sink.format, sink.path, **sink.options)
    find_sink(spark, sink.format)


@dataclass(frozen=True)
class _Table:
    """A table of the file, its place in it, and how its options become a value of the form."""

    file: str
    place: str
    values: Mapping[str, Any]

    def read(self, form: type[Form]) -> Form:
        """The table as one of the dataclasses of the form."""
        known = {entry.name: entry for entry in fields(form)}  # type: ignore[arg-type]
        self.refuse_unknown(known, "option")
        for name, entry in known.items():
            if name not in self.values and entry.default is MISSING and entry.default_factory is MISSING:
                raise self.error(name, "is missing", _FORMS[entry.type][0], f"add {name} = {_EXAMPLES[name]}")
        return form(**{name: self._value(name, known[name].type) for name in self.values})

    def table(self, name: str) -> _Table:
        """A table inside this one."""
        if name not in self.values:
            raise JobError(f"{self.file}: the table [{self.within(name)}] is missing", *_TABLES[name])
        if not isinstance(self.values[name], Mapping):
            raise self.error(name, f"is {self.values[name]!r}", "a table")
        return _Table(self.file, self.within(name), self.values[name])

    def tables(self, name: str) -> Sequence[tuple[str, _Table]]:
        """The named tables inside a table: at least one."""
        outer = self.table(name)
        if not outer.values:
            raise JobError(f"{self.file}: the table [{name}] is empty", *_TABLES[name])
        for one in outer.values:
            if not _NAME.match(one):
                raise JobError(f"{self.file}: [{name}.{one}]: not a name", "letters, digits and underscores")
        return [(one, outer.table(one)) for one in outer.values]

    def refuse_unknown(self, known: Iterable[str], what: str) -> None:
        """Nothing is ignored."""
        names = list(known)
        for name in self.values:
            if name not in names:
                shown = f"[{self.place}] {name}" if self.place else f"[{name}]"
                raise JobError(
                    f"{self.file}: unknown {what} {shown}", f"one of {', '.join(names)}", nearest(name, names)
                )

    def error(self, name: str, wrong: str, expected: str, fix: str = "") -> JobError:
        """An error about one option."""
        return JobError(f"{self.file}: [{self.place}] {name} {wrong}", expected, fix)

    def within(self, name: str) -> str:
        """The place of something in this table."""
        return f"{self.place}.{name}" if self.place else name

    def _value(self, name: str, kind: Any) -> Any:
        value = self.values[name]
        if kind == "Mapping[str, str]":
            return self._texts(name)
        if kind.startswith("JobSink"):
            return self.table(name).read(JobSink)
        expected, types = _FORMS[kind]
        if not isinstance(value, types) or isinstance(value, bool) is not (types is bool):
            raise self.error(name, f"is {_shown(value)}", expected, f"write {name} = {_EXAMPLES[name]}")
        if types is int:
            least, most = _RANGES[name]
            if not least <= value <= most:
                raise self.error(
                    name, f"is {value}", f"a whole number from {least} to {most}", f"write {name} = {_EXAMPLES[name]}"
                )
        return value

    def _texts(self, name: str) -> dict[str, str]:
        inner = self.table(name)
        for key, value in inner.values.items():
            if key == "path":
                raise inner.error(key, "is among the options", "the path beside them", f'write path = "{value}"')
            if not isinstance(value, (str, int, float)):
                raise inner.error(key, f"is {_shown(value)}", "a text, a number, true or false")
        return {key: _text(value) for key, value in inner.values.items()}


_FORMS: Mapping[Any, tuple[str, Any]] = {
    "str": ("a text in quotes", str),
    "str | None": ("a text in quotes", str),
    "int": ("a whole number", int),
    "int | None": ("a whole number", int),
    "float": ("a number", (int, float)),
    "bool": ("true or false", bool),
    "JobSink": ("a table with a format", Mapping),
}
_RANGES = {
    "slots": (1, 4096),
    "groups": (1, 1 << 16),
    "keep": (2, 1 << 20),
    "subgroups": (1, 4096),
    "idle_after": (0, 1 << 30),
}
_EXAMPLES = {
    "checkpoint": '"ck"',
    "name": '"pairs"',
    "epoch": '"available" or "2 seconds"',
    "slots": "4",
    "groups": "64",
    "keep": "10",
    "silence": '"10 minutes"',
    "router": '"auto"',
    "rule": '"even"',
    "subgroups": "2",
    "memory": '"512 MB"',
    "on_overflow": '"spill" or "shed"',
    "spill_share": "0.3",
    "idle_after": "100",
    "shed_by": '"oldest"',
    "recovered": "true",
    "format": '"parquet"',
    "time": '"ts"',
    "path": '"data/R"',
    "schema": '"k long, v long, ts timestamp"',
    "delay": '"5 seconds"',
    "order": '"time"',
    "cql": '"SELECT ... FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"',
    "sink": '{ format = "parquet", path = "out/pairs" }',
}
_TABLES = {
    "flow": ("a [flow] table with a checkpoint", 'add [flow] and checkpoint = "ck"'),
    "streams": ("a table [streams.NAME] for each stream", "add [streams.R] with format, path, schema and time"),
    "queries": ("a table [queries.NAME] for each query", "add [queries.pairs] with cql and sink"),
}


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


def _query(file: Path, table: _Table) -> JobQuery:
    query = table.read(JobQuery)
    late = None if query.late is None else _at_home(file, query.late)
    return JobQuery(query.cql, _at_home(file, query.sink), late, query.recovered)


def _functions(
    file: Path, top: _Table, streams: Mapping[str, JobStream]
) -> tuple[dict[str, StreamType], dict[str, JobFunction]]:
    """The types and the function; `module:function` may name a module beside the job file."""
    if "functions" not in top.values and "types" not in top.values:
        return {}, {}
    home = str(file.absolute().parent)
    if home not in sys.path:
        sys.path.insert(0, home)
    types, functions = read_tables(top.values, str(file))
    for name, entry in functions.items():
        place = _Table(str(file), f"functions.{name}", top.values["functions"][name])
        if entry.stream not in streams:
            raise place.error("stream", f"is {entry.stream!r}", "a stream of the job", nearest(entry.stream, streams))
        if entry.sink is None:
            raise place.error("sink", "is missing", "a table with a format", f"add sink = {_EXAMPLES['sink']}")
        functions[name] = replace(entry, sink=vars(_at_home(file, place.table("sink").read(JobSink))))
    others = [*functions, *(top.values.get("queries") or {})]
    if functions and len(others) > 1:
        wrong = f"{file}: a function and {len(others) - 1} more ({', '.join(others[1:])}) in one job"
        raise JobError(wrong, "queries, or one function", "write a job file for each function")
    return types, functions


def _at_home(file: Path, part: Form) -> Form:
    """The part with its path, if it is relative, below the folder of the job file."""
    option = "checkpoint" if isinstance(part, JobFlow) else "path"
    path = getattr(part, option)
    if path is None or "://" in path:
        return part
    return type(part)(**{**vars(part), option: str((file.absolute().parent / path).resolve())})


def _settings(top: _Table) -> dict[str, str]:
    if "spark" not in top.values:
        return {}
    table, found = top.table("spark"), {}
    for name, value in _flat(table.values, ""):
        full = "spark.master" if name == "master" else name
        if not full.startswith("spark."):
            raise table.error(name, "is no setting of Spark", "names that begin with spark.", f"write spark.{name}")
        if not isinstance(value, (str, int, float)):
            raise table.error(name, f"is {_shown(value)}", "a text, a number, true or false")
        found[full] = _text(value)
    return found


def _flat(values: Mapping[str, Any], before: str) -> Iterable[tuple[str, Any]]:
    """TOML reads spark.sql.x = 1 as tables inside tables; Spark knows one dotted name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    return _text(value) if isinstance(value, bool) else repr(value)
