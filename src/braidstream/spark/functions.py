"""Stream functions in a flow: windows of a stream, a function or template over them, a sink.

    flow = Flow(spark)
    flow.stream("radio", frame, time="ts").windows(size=1024, step=512).apply("fft3").to("parquet", path="spectra")
    flow.start("ck").await_termination()

Several streams may be aligned (`beside`): their rows, side by side, are windowed together (`functions.aligning`). The
results of a function are a stream of windows as well: `.apply(...).windows(...).apply(...)` (`functions.chains`).

A flow has either join queries, or functions that feed one another: both are one Structured Streaming query with one
manifest. Everything that can be wrong with types, templates and columns is found before anything starts.

Two ways lead to the first node, both without an exchange. Any streaming DataFrame: the node's task reads the source's
partitions one after the other, through Spark. Parquet files: Spark's file source hands out paths, and the node reads
them itself; no row passes through the JVM.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as PySpark's users know it)
from pyspark.sql.types import StructType

from braidstream.errors import InputError, nearest
from braidstream.functions.aligning import ALIGNED_BY, STREAM_TAG, Alignment
from braidstream.functions.arrays import check_columns, infer_type, needed_columns
from braidstream.functions.function import StreamFunction
from braidstream.functions.jobfile import JobFunction
from braidstream.functions.stream_types import Field, Kind, StreamType, find_type
from braidstream.functions.templates import FunctionPlan, Template
from braidstream.functions.training import Monitor
from braidstream.functions.windowing import WindowSpec
from braidstream.options import texts_of
from braidstream.plan.keys import quoted
from braidstream.spark.arrow_types import arrow_schema, readable_columns
from braidstream.spark.session import cores
from braidstream.spark.sinks import MemorySink, Sink, make_sink
from braidstream.spark.sources import Stream

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = [
    "FunctionQuery",
    "WindowedStream",
    "attach_job_function",
    "explain_function",
    "refuse_place",
    "ship_modules_of",
]


@dataclass(frozen=True)
class WindowedStream:
    """A stream of windows: what a function is applied to."""

    flow: Flow
    stream: Stream
    spec: WindowSpec
    declared: StreamType
    """The type of the stream's rows."""
    alignment: Alignment | None = None
    """Of several streams, of which `stream` is made."""
    before: FunctionQuery | None = None
    """The function whose results these are windows of; then `stream` is that of the first function."""

    @property
    def name(self) -> str:
        """The name of what windows are formed of: a stream, or a function."""
        return self.stream.name if self.before is None else self.before.name

    @property
    def giver(self) -> str:
        """The same for messages."""
        return f"{'stream' if self.before is None else 'function'} {self.name!r}"

    @classmethod
    def aligned(
        cls, flow: Flow, streams: Sequence[Stream], by: str, size: int | None, step: int | None
    ) -> WindowedStream:
        """The windows of several streams whose rows are put side by side; fields are called `stream_field`."""
        if by not in ALIGNED_BY:
            raise InputError(f"streams aligned by {by!r}", " or ".join(ALIGNED_BY), nearest(by, ALIGNED_BY))
        names = [stream.name for stream in streams]
        if len(set(names)) < len(names):
            raise InputError(f"streams aligned: {', '.join(names)}", "each of them once", "leave the second out")
        made = _united(streams)
        windows = cls.of(flow, made, size, step, None)
        known = {entry.name for entry in windows.declared.values}
        fields = tuple(
            tuple(entry.name for entry in infer_type(one.name, arrow_schema(one.schema), made.time).values)
            for one in (_renamed(stream, made.time) for stream in streams)
        )
        assert known == {name for own in fields for name in own}
        alignment = Alignment(by, tuple(names), fields, tuple(stream.delay_us for stream in streams))
        return replace(windows, alignment=alignment)

    @property
    def parts(self) -> tuple[StreamType, ...]:
        """The types of the aligned streams, if they are several."""
        if self.alignment is None:
            return ()
        stamp = tuple(entry for entry in self.declared.fields if entry not in self.declared.values)
        own = (tuple(entry for entry in self.declared.values if entry.name in names) for names in self.alignment.fields)
        return tuple(
            StreamType(name, (*stamp, *fields)) for name, fields in zip(self.alignment.names, own, strict=True)
        )

    @classmethod
    def of(
        cls, flow: Flow, stream: Stream, size: int | None, step: int | None, stream_type: str | StreamType | None
    ) -> WindowedStream:
        """The windows of a declared stream; its type is checked against its columns, or read from them."""
        schema = arrow_schema(stream.schema)
        if stream_type is None:
            declared = infer_type(stream.name, schema, stream.time)
        else:
            declared = find_type(stream_type)
            _refuse_other_time(declared, stream)
        if not declared.values:
            raise InputError(f"stream {stream.name!r} has no column of numbers", "at least one field")
        check_columns(declared, schema, stream.name)
        spec = WindowSpec(size, step)
        if spec.size is not None:
            declared.windowed(spec.size)
        return cls(flow, stream, spec, declared)

    @classmethod
    def of_results(
        cls, before: FunctionQuery, size: int | None, step: int | None, stream_type: str | StreamType | None
    ) -> WindowedStream:
        """The windows of a function's results; a type says which of their fields."""
        stream, spec = before.source.stream, WindowSpec(size, step)
        given = StreamType(before.name, (Field(stream.time, Kind("timestamp")), *before.plan.gives.values))
        declared = given
        if stream_type is not None:
            declared = find_type(stream_type)
            _refuse_other_time(declared, stream)
            declared.refuse_misfit(given, "the next function", f"function {before.name!r}")
        if not declared.values:
            raise InputError(f"type {declared.name!r} has no field but the time", "at least one field")
        if spec.size is not None:
            declared.windowed(spec.size)
        return cls(before.source.flow, stream, spec, declared, before=before)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read of a stream of rows."""
        schema = arrow_schema(self.stream.schema)
        needed = (column for entry in self.declared.values for column in needed_columns(entry, schema))
        tag = () if self.alignment is None else (STREAM_TAG,)
        return tuple(dict.fromkeys([self.stream.time, *tag, *needed]))

    @property
    def windows(self) -> StreamType:
        """The type of the windows."""
        return self.declared if self.spec.size is None else self.declared.windowed(self.spec.size)

    def apply(
        self, function: str | StreamFunction | Template, name: str | None = None, *, also: Sequence[Template] = (),
        monitor: Monitor | None = None,
    ) -> FunctionQuery:  # fmt: skip
        """Apply a function, or a template of functions. With a monitor, the flow may switch to one of `also`."""
        plan = FunctionPlan.of(function)
        plans = {p.strategy: p for p in (plan, *(FunctionPlan.of(template) for template in also))}
        for candidate in plans.values():
            candidate.check(self.windows, self.giver)
            if candidate.gives.values != plan.gives.values:
                wrong = f"the plan {candidate.strategy} gives {candidate.gives.describe()}"
                raise InputError(wrong, f"as {plan.strategy}, {plan.gives.describe()}")
        taken = {self.stream.time, "seq"} & {entry.name for entry in plan.gives.values}
        if taken:
            raise InputError(f"function {plan.function.name!r} gives a field {taken.pop()!r}", "a name of its own")
        query = FunctionQuery(name or plan.function.name, self, plan, plans, monitor)
        self.flow.add_function(query)
        return query


def _refuse_other_time(declared: StreamType, stream: Stream) -> None:
    if declared.time not in (None, stream.time):
        wrong = f"type {declared.name!r} has the time {declared.time!r}, stream {stream.name!r} {stream.time!r}"
        raise InputError(wrong, "the same column", f"flow.stream(..., time={declared.time!r})")


@dataclass
class FunctionQuery:
    """A function over windows of a stream or of another function's results, and where its own results go."""

    name: str
    source: WindowedStream
    plan: FunctionPlan
    plans: Mapping[str, FunctionPlan]
    monitor: Monitor | None = None
    sink: Sink | None = None

    def to(
        self, target: str | Callable[[DataFrame, int], Any], path: str | Path | None = None, **options: Any
    ) -> FunctionQuery:
        """Send results to a sink: a Spark batch format, "memory", "noop", or a function `(DataFrame, epoch)`."""
        self.sink = make_sink(target, path, texts_of(options))
        return self

    def windows(
        self, size: int | None = None, step: int | None = None, *, of: str | StreamType | None = None
    ) -> WindowedStream:
        """Windows of the results, for another function of the flow; without a size, each result is a window.

        `of` is a type, or the name of a declared one, with the fields that windows have; without it, all.
        """
        return WindowedStream.of_results(self, size, step, of)

    @property
    def chain(self) -> tuple[FunctionQuery, ...]:
        """The functions that feed one another up to this one."""
        before = self.source.before
        return (self,) if before is None else (*before.chain, self)

    def table(self) -> pa.Table | None:
        """The results so far, in the order of the stream, of a function that was sent to memory."""
        if not isinstance(self.sink, MemorySink):
            raise InputError("the results are not in memory", "a function that was sent to memory", '.to("memory")')
        return self.sink.table()

    @property
    def fingerprint(self) -> str:
        """What a checkpoint belongs to: stream, windows, function and result, but not how the work is spread."""
        parts = [self.source.name, str(self.source.spec), self.source.declared.describe()]
        parts += [] if self.source.alignment is None else [str(self.source.alignment)]
        text = "; ".join([*parts, self.plan.function.name, self.plan.gives.describe()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def reads_files(self) -> bool:
        """Whether the first node reads Parquet files itself."""
        readable = readable_columns(self.source.stream)
        read = set(self.source.columns).intersection(self.source.stream.schema.names)
        return readable is not None and read <= readable


def _united(streams: Sequence[Stream]) -> Stream:
    """All rows of some streams as one stream, each with the columns of its own and the number of its stream."""
    time = streams[0].time
    tagged = [
        _renamed(stream, time).frame.withColumn(STREAM_TAG, F.lit(number)) for number, stream in enumerate(streams)
    ]
    frame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tagged)
    schema = StructType([entry for entry in frame.schema.fields if entry.name != STREAM_TAG])
    name, delay_us = "_".join(stream.name for stream in streams), max(stream.delay_us for stream in streams)
    return Stream(name, frame, schema, time, delay_us)


def _renamed(stream: Stream, time: str) -> Stream:
    """The stream with its name before that of each column but the time."""
    columns = [
        F.col(quoted(name)).alias(time if name == stream.time else f"{stream.name}_{name}")
        for name in stream.schema.names
    ]
    frame = stream.frame.select(*columns)
    return replace(stream, frame=frame, schema=frame.schema, time=time, files=None, source=None)


def attach_job_function(flow: Flow, name: str, entry: JobFunction) -> FunctionQuery:
    """What a job file's `[functions.NAME]` table asks for; its types are declared already (`jobfile.read_tables`)."""
    windows = flow.windows(
        entry.size, entry.step, stream=entry.stream, of=entry.type, beside=entry.beside, align=entry.align
    )
    query = windows.apply(entry.template(), name, also=entry.others(), monitor=entry.monitor(cores(flow.spark)))
    return query if entry.sink is None else query.to(entry.sink.format, entry.sink.path, **entry.sink.options)


def ship_modules_of(folder: Path) -> None:
    """Send modules that lie in a folder (beside a job file) to the workers with the functions that use them.

    Workers import by name what is installed there; what only the driver's path reaches must travel by value.
    """
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).parent == folder and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)


def refuse_place(function: FunctionQuery, last: FunctionQuery | None, *, has_queries: bool) -> None:
    """Refuse a function that does not take the results of the flow's last one, if it has any."""
    before = function.source.before
    if has_queries or (last is not None and before is None):
        wrong = f"function {function.name!r} is not alone in its flow"
        what = "join queries, or functions each of which takes the results of the one before"
        raise InputError(wrong, what, "use a Flow of its own, or apply it to what apply(...).windows(...) gives")
    if last is not None and last is not before:
        wrong = f"function {function.name!r} takes the results of {function.source.name!r}, which has one after it"
        raise InputError(wrong, "one function after each", f"apply it to the results of {last.name!r}")
    if any(one.name == function.name for one in function.chain[:-1]):
        wrong = f"there is already a function named {function.name!r}"
        raise InputError(wrong, "a name of its own for each function", 'apply(function, name="...")')


def explain_function(name: str, functions: Sequence[FunctionQuery]) -> str:
    """The plan in words, of functions that feed one another."""
    first = functions[0].source
    way = "Parquet files read by the first node" if functions[0].reads_files else "rows from Spark"
    lines = [
        f"flow {name}",
        *([] if first.alignment is None else [f"  streams {first.alignment}"]),
        f"  stream {first.stream.name}: time {first.stream.time}, delay {first.stream.shown_delay}; {way}",
    ]
    for one in functions:
        lines += _of_one(one, is_last=one is functions[-1])
    return "\n".join(lines)


def _of_one(query: FunctionQuery, *, is_last: bool) -> Iterator[str]:
    source = query.source
    if source.before is not None:
        yield f"  results of {source.name}"
    yield f"    {source.spec}; {source.windows.describe()}"
    yield f"  function {query.name}: {query.plan.gives.describe()}"
    yield from (f"    {line}" for line in query.plan.describe().splitlines())
    if others := [plan for plan in query.plans if plan != query.plan.strategy]:
        yield f"    may switch to {', '.join(others)}"
    if query.sink is not None or is_last:
        yield f"    to {query.sink.explained}" if query.sink is not None else "    to no sink yet"
