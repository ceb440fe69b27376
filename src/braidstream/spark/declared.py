"""What users declare of a flow, checked: its queries with their sinks, delays, counts, epochs and paths.

Everything here happens before anything starts; what is wrong is refused with what was expected. Pure, except that
`folders` and `resolved` look at directories and links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import InputError, SinkError, StreamError
from braidstream.model.secrets import kept_options, refuse_hidden
from braidstream.options import JobStream, options_of, texts_of
from braidstream.plan.joined_columns import is_plain
from braidstream.query import Query, parse_duration
from braidstream.spark.bad_rows import BadRows, FailedRows, GoodRows
from braidstream.spark.finishing import whole_name
from braidstream.spark.names import resolved
from braidstream.spark.sinks import CallableSink, MemorySink, Sink, make_sink, sink_as_before
from braidstream.spark.staged_folder import STAGING
from braidstream.state.notes import Submitted

__all__ = [
    "NAME",
    "ContinuousQuery",
    "bad_of",
    "check_count",
    "check_session",
    "check_stream_option",
    "delay_us",
    "folders",
    "for_stream",
    "interval_s",
    "located",
    "refuse_overlaps",
    "resolved",
    "sink_again",
    "trigger_of",
]

NAME = re.compile(r"[A-Za-z_]\w*$")
"""How streams and queries may be named."""


BadTarget = tuple[Any, "str | Path | None", Mapping[str, str]]
"""Where rows go that could not be read: what `Flow.bad` was given."""


def bad_of(known: Mapping[str, BadTarget], query: Query) -> dict[str, BadTarget]:
    """The targets of the streams that a query reads."""
    base = {one.name: one.stream for one in query.enriched}
    return {stream: known[own] for stream in query.streams if (own := base.get(stream, stream)) in known}


@dataclass(frozen=True)
class Failed:
    """Where rows go of which an expression fails."""

    of: BadTarget
    streams: tuple[str, ...]
    """Of whose rows one may fail."""
    whole: Sink | None
    """Where joined rows go; None where nothing of them is computed."""

    @property
    def shown(self) -> str:
        """The output in words."""
        return make_sink(*self.of).description


@dataclass
class ContinuousQuery:
    """A query of a flow and where its results go."""

    query: Query
    sink: Sink | None = None
    since: int = -1
    """The last epoch before it was submitted to a running flow."""
    late_sink: tuple[Any, str | Path | None, Mapping[str, str]] | None = None
    recovered: bool = False
    """Whether results carry the columns `recovered` and `epoch`."""
    unread: Mapping[str, BadTarget] = field(default_factory=dict)
    """Where rows that cannot be read go, by stream."""
    failing: Callable[[], Collection[str]] = tuple
    """The streams of whose rows some expression may fail; refuses an output for them that would not have all."""
    failed: Failed | None = None
    """Where rows go of which an expression fails."""
    _late: dict[str, tuple[Sink, ...]] = field(default_factory=dict)

    def to(
        self, target: str | Callable[[DataFrame, int], Any], path: str | Path | None = None, **options: Any
    ) -> ContinuousQuery:
        """Send results to a sink: a Spark batch format, "memory", "noop", or a function `(DataFrame, epoch)`."""
        self.sink = make_sink(target, path, texts_of(options))
        return self

    def table(self) -> pa.Table | None:
        """The results so far of a query that was sent to memory; None when there are none."""
        if not isinstance(self.sink, MemorySink):
            raise InputError("the results are not in memory", "a query that was sent to memory", '.to("memory")')
        return self.sink.table()

    def late(
        self, target: str | Callable[[DataFrame, int], Any], path: str | Path | None = None, **options: Any
    ) -> ContinuousQuery:
        """Send late tuples to a sink of their own; files go to one folder for each stream."""
        texts = texts_of(options)
        make_sink(target, path, texts)
        self.late_sink = (target, path, texts)
        self._late = {}
        return self

    def bad(
        self, target: str | Callable[[DataFrame, int], Any], path: str | Path | None = None, **options: Any
    ) -> ContinuousQuery:
        """Send rows, and joined rows, of which an expression fails to a sink of their own, and go on without them.

        Files go to a folder for each stream, `stream=R`, and one for joined rows, `stream=R+S`.
        """
        of = (target, path, texts_of(options))
        whole = None if is_plain(self.query) else for_stream(of, whole_name(self.query))
        make_sink(*of)
        self.failed = Failed(of, tuple(self.failing()), whole)
        self._late = {}
        return self

    @property
    def answers(self) -> list[Sink]:
        """What of it another query under its name would give otherwise: results, and what fails."""
        late = [sink for sinks in self.late_sinks().values() for sink in sinks if isinstance(sink, FailedRows)]
        return [*self.owed, *late]

    @property
    def told(self) -> str:
        """For `explain`: where rows go on which an expression fails."""
        return "" if self.failed is None else f"; rows on which an expression fails: {self.failed.shown}"

    @property
    def owed(self) -> list[Sink]:
        """What is delivered of it outside of epochs: results, and joined rows that fail."""
        whole = None if self.failed is None else self.failed.whole
        return [one for one in (self.sink, whole) if one is not None]

    @property
    def outputs(self) -> list[Sink]:
        """All that is written for it: its results, late tuples, and what fails."""
        return [*self.owed, *(sink for sinks in self.late_sinks().values() for sink in sinks)]

    def late_sinks(self) -> dict[str, tuple[Sink, ...]]:
        """Where late tuples and bad rows of its streams go, if they are asked for; the same objects each time."""
        if not self._late:
            kinds = (self._late_to, self._bad_to, self._failed_to)
            found = {stream: tuple(one for to in kinds for one in to(stream)) for stream in self.query.streams}
            self._late = {stream: sinks for stream, sinks in found.items() if sinks}
        return self._late

    def _late_to(self, stream: str) -> Iterator[Sink]:
        if self.late_sink is not None:
            made = for_stream(self.late_sink, stream)
            yield GoodRows(made) if stream in self.unread else made

    def _bad_to(self, stream: str) -> Iterator[Sink]:
        if stream in self.unread:
            base = {one.name: one.stream for one in self.query.enriched}
            yield BadRows(make_sink(*self.unread[stream]), base.get(stream, stream))

    def _failed_to(self, stream: str) -> Iterator[Sink]:
        if self.failed is not None and stream in self.failed.streams:
            yield FailedRows(for_stream(self.failed.of, stream), self.query.name)


def for_stream(of: BadTarget, stream: str) -> Sink:
    """The part of an output that rows of a stream go to. Names of Kafka's topics have no `+`."""
    target, path, options = of
    called = stream.replace("+", "-") if isinstance(target, str) and target.lower() == "kafka" else stream
    own = {name: value.replace("{stream}", called) for name, value in options.items()}
    return make_sink(target, None if path is None else f"{path}/stream={stream}", own)


def check_session(spark: Any) -> None:
    """Refuse what is no session with a driver of its own."""
    if isinstance(spark, SparkSession):
        return
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InputError(
            "the session is one of Spark Connect, which is not supported",
            "a session whose driver is this process: a flow decides in the driver, between epochs",
            "unset SPARK_REMOTE and use braidstream.local_session(), or spark-submit on the cluster",
        )
    wrong = f"a flow needs a SparkSession, not {type(spark).__name__}"
    raise InputError(wrong, "Flow(spark)", "spark = braidstream.local_session()")


def check_count(what: str, value: int | None, least: int, most: int) -> None:
    """Refuse what is not a whole number between two others; None is not given."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most):
        raise InputError(f"{what} is {value!r}", f"a whole number from {least} to {most}")


def check_stream_option(stream: str, name: str, value: object) -> None:
    """Refuse what an option of a stream cannot be."""
    try:
        options_of(JobStream)[name].check(value)
    except InputError as error:
        raise StreamError(f"stream {stream!r}: {error.wrong}", error.expected, error.fix) from None


def delay_us(name: str, delay: str | timedelta) -> int:
    """The delay of a stream in microseconds."""
    check_stream_option(name, "delay", delay)
    return parse_duration(delay)


def idle_us(name: str, idle: str | timedelta | None) -> int | None:
    """After how long a silence the watermark goes on without a stream, in microseconds."""
    check_stream_option(name, "idle", idle)
    return None if idle is None else parse_duration(idle)


def trigger_of(epoch: str | timedelta) -> dict[str, Any]:
    """What Spark calls the length of an epoch."""
    if epoch == "available":
        return {"availableNow": True}
    return {"processingTime": f"{max(parse_duration(epoch) // 1000, 0)} milliseconds"}


def interval_s(epoch: str | timedelta) -> float | None:
    """How long an epoch is meant to take; None where epochs follow each other as fast as they can."""
    return None if epoch == "available" else parse_duration(epoch) / 1_000_000 or None


def located(path: str | Path) -> str:
    """A path that does not depend on where the process is: an address as it is, others made absolute."""
    text = str(path)
    return text if "://" in text else str(Path(text).absolute())


def folders(path: str) -> Sequence[str]:
    """The names of the folders in a folder; none where it is none."""
    return [p.name for p in Path(path).iterdir() if p.is_dir()] if Path(path).is_dir() else []


def refuse_overlaps(sinks: Sequence[tuple[str, Sink]], taken: Sequence[tuple[str, str]]) -> None:
    """Refuse outputs that would be written to one folder, or into one that is read or kept (`taken`: what, path)."""
    kept = [(what, resolved(path)) for what, path in taken]
    owners: dict[str, str] = {}
    for name, sink in sinks:
        if sink.folder is None:
            continue
        path = resolved(sink.folder)
        for what, folder in kept:
            if _is_within(path, folder):
                wrong = f"the sink path {sink.folder!r} of {name!r} is {'' if path == folder else 'inside '}{what}"
                raise SinkError(wrong, "a folder of its own", "choose another path")
        other = next((own for folder, own in owners.items() if _collide(path, folder)), None)
        if other is not None:
            raise SinkError(
                f"{other!r} and {name!r} have the same sink path {sink.folder!r}", "a path of its own for each"
            )
        owners[path] = name


def _collide(path: str, other: str) -> bool:
    """Whether what is written to two folders may meet: they are one, or one is where the other stages its files."""
    return path == other or _is_within(path, f"{other}/{STAGING}") or _is_within(other, f"{path}/{STAGING}")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def submitted_of(query: ContinuousQuery, to: Any, path: str | None, options: Mapping[str, object]) -> Submitted:
    """What a manifest keeps of a query that was submitted; refused where it could not come back at a restart."""
    kept = kept_options(texts_of(options))
    refuse_hidden(kept, f"the sink of query {query.query.name!r}, which comes back at a restart")
    return Submitted(query.query.text, to if isinstance(to, str) else None, path, kept)


def sink_again(name: str, entry: Submitted, declared: ContinuousQuery | None) -> Sink:
    """The sink of a query that was submitted before a restart; functions are not remembered."""
    if entry.to is not None:
        refuse_hidden(entry.options, f"the sink of query {name!r}")
        return sink_as_before(entry.to, entry.path, dict(entry.options))
    if declared is not None and isinstance(declared.sink, CallableSink):
        return declared.sink
    raise SinkError(
        f"query {name!r}, submitted while the flow ran, had a function as its sink",
        "that sink again",
        f"flow.query(..., name={name!r}).to(function) before start",
    )
