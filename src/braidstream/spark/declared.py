"""What users declare of a flow, checked: its queries with their sinks, delays, counts, epochs and paths.

Everything here happens before anything starts; what is wrong is refused with what was expected. Pure, except that
`folders` looks at a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import InputError, SinkError, StreamError
from braidstream.query import Query, parse_duration
from braidstream.spark.sinks import FileSink, MemorySink, Sink, make_sink

__all__ = [
    "ContinuousQuery",
    "check_count",
    "check_session",
    "delay_us",
    "folders",
    "interval_s",
    "located",
    "refuse_shared_paths",
    "trigger_of",
]


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

    def to(
        self, target: str | Callable[[DataFrame, int], Any], path: str | Path | None = None, **options: Any
    ) -> ContinuousQuery:
        """Send results to a sink: a Spark batch format, "memory", "noop", or a function `(DataFrame, epoch)`."""
        self.sink = make_sink(target, path, {key: str(value) for key, value in options.items()})
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
        texts = {key: str(value) for key, value in options.items()}
        make_sink(target, path, texts)
        self.late_sink = (target, path, texts)
        return self


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


def delay_us(name: str, delay: str | timedelta) -> int:
    """The delay of a stream in microseconds."""
    try:
        return parse_duration(delay)
    except InputError as error:
        raise StreamError(f"the delay of stream {name!r}: {error.wrong}", error.expected, error.fix) from None


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


def refuse_shared_paths(sinks: Sequence[tuple[str, Sink]]) -> None:
    """Refuse two outputs that would be written to one folder."""
    owners: dict[str, str] = {}
    for name, sink in sinks:
        if isinstance(sink, FileSink):
            path = sink.files.path("")
            if path in owners:
                raise SinkError(
                    f"{owners[path]!r} and {name!r} have the same sink path {sink.path!r}", "a path of its own for each"
                )
            owners[path] = name
