"""Sinks: where the results of a query go, once for each epoch.

A sink is handed the staged Parquet files of an epoch and delivers them so that delivering the same epoch again leaves
the same state: an epoch is replayed when the process died before its manifest was written.

- Parquet files: the staged files are moved into place under names that carry flow and epoch; files of a lost attempt at
  the same epoch are removed first. No row passes through the JVM.
- Other file formats: Spark writes them beside, then they are moved into place in the same way.
- Tables and other formats: Spark appends, with Delta's idempotence options set; formats without transactions of their
  own may then see an epoch twice after a crash, which `explain` says.
- A callable `(DataFrame, epoch)`, which should itself be idempotent for an epoch.
- Memory, for a notebook: the results are kept in the driver.

A number below 0 is no epoch but a step of the last clean-up of a finite flow: -1, -2, ... over the life of the flow.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from braidstream.errors import SinkError, SinkFailed, nearest
from braidstream.state.files import Files
from braidstream.state.results import SPARK_FIELD, Staging, renamed_field

__all__ = ["CallableSink", "FileSink", "MemorySink", "NoopSink", "Sink", "TableSink", "make_sink"]

OWNER = "_braidstream.json"
STAGING = "_staging"
FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


class Sink(ABC):
    """Where results go."""

    description: str
    idempotent = True

    def check(self, flow: str) -> None:
        """Refuse, before anything starts, a sink that belongs to another flow or cannot be one."""
        del flow

    def claim(self, flow: str) -> None:
        """Mark the sink as this flow's; refuse it like `check`."""
        del flow

    def sweep(self) -> None:
        """At a start: drop what a lost attempt left behind."""
        return

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Where slots stage results. `finished` says whether what they stage is the result itself."""
        del finished
        return Staging(checkpoint, "staged")

    @abstractmethod
    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Deliver the results of an epoch. `frame` gives them as a DataFrame, for sinks that go through Spark."""

    def end(self, staged: Files, names: Sequence[str]) -> None:
        """After delivery: drop what is left of the staged files."""
        for name in names:
            staged.delete(name)


class NoopSink(Sink):
    """Counts results and drops them."""

    description = "noop (results are counted and dropped)"

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Nothing is staged unless Spark has to finish the query."""
        return Staging(None) if finished else super().staging(checkpoint, finished)

    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Evaluate what Spark has to finish."""
        if not finished and staged:
            frame().write.format("noop").mode("append").save()


class FileSink(Sink):
    """A folder of files in one of Spark's file formats."""

    def __init__(self, format_: str, path: str, options: Mapping[str, str]) -> None:
        self.format, self.path, self.options = format_, path, dict(options)
        self.files = Files(path)
        self.flow = ""
        self.description = f"{format_} files in {path}"
        compression = self.options.get("compression", "snappy")
        if format_ == "parquet" and compression not in COMPRESSIONS:
            raise SinkError(
                f"unknown compression {compression!r}",
                f"one of {', '.join(COMPRESSIONS)}",
                nearest(compression, COMPRESSIONS),
            )

    @property
    def _is_native(self) -> bool:
        return self.format == "parquet" and set(self.options) <= {"compression"}

    def check(self, flow: str) -> None:
        """Refuse a file, and a folder that is another flow's."""
        if self._owner() not in (None, flow):
            raise SinkError(
                f"the sink path {self.path!r} belongs to another flow",
                "a path that no other flow writes to",
                "choose another path, or delete that folder if its results are no longer needed",
            )
        if self.files.exists() and self.files.size("") is not None:
            raise SinkError(f"the sink path {self.path!r} is a file", "a folder", "choose another path")

    def claim(self, flow: str) -> None:
        """Mark the folder as this flow's, or refuse it when it is another's."""
        self.check(flow)
        self.flow = flow
        if self._owner() == flow:
            return
        try:
            self.files.make("", STAGING)
            self.files.replace(OWNER, json.dumps({"flow": flow}).encode())
        except OSError as error:
            raise SinkError(f"the sink path {self.path!r} cannot be written ({error})", "a writable folder") from None

    def _owner(self) -> str | None:
        return json.loads(self.files.read(OWNER)).get("flow") if self.files.exists(OWNER) else None

    def sweep(self) -> None:
        """Drop what was staged and never moved into place."""
        self.files.delete_folder(STAGING)
        self.files.make(STAGING)

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Beside the folder's files when they can be moved into place as they are."""
        if finished and self._is_native:
            self.files.make(STAGING)
            return Staging(self.path, STAGING, self.options.get("compression", "snappy"))
        return super().staging(checkpoint, finished)

    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Replace the files of this epoch."""
        number = f"{epoch:010d}" if epoch >= 0 else f"c{-epoch:09d}"
        mark = f"part-{self.flow[:12]}-{number}-"
        for name in self.files.names(""):
            if name.startswith(mark):
                self.files.delete(name)
        if finished and self._is_native:
            for i, name in enumerate(sorted(staged)):
                self.files.move(name, self.files, f"{mark}{i:04d}.parquet")
            return
        if not staged:
            return
        folder = f"{STAGING}/{number}"
        self.files.delete_folder(folder)
        frame().write.format(self.format).options(**self.options).mode("overwrite").save(self.files.path(folder))
        for i, name in enumerate(n for n in self.files.names(folder) if not n.startswith(("_", "."))):
            self.files.move(f"{folder}/{name}", self.files, f"{mark}{i:04d}.{name.split('.', 1)[-1]}")
        self.files.delete_folder(folder)


class TableSink(Sink):
    """Any other batch format of Spark: tables, JDBC, Kafka, Delta, ..."""

    idempotent = False

    def __init__(self, format_: str, options: Mapping[str, str]) -> None:
        self.format, self.options = format_, dict(options)
        self.flow = ""
        self.idempotent = format_ == "delta"
        self.description = f"format {format_}" + (
            "" if self.idempotent else " (an epoch may be appended twice after a crash)"
        )

    def claim(self, flow: str) -> None:
        """Remember the flow, for formats that recognize a repeated write."""
        self.flow = flow

    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Append."""
        if not staged:
            return
        writer = self.flow if epoch >= 0 else f"{self.flow}-clean-up"
        once = {"txnAppId": writer, "txnVersion": str(abs(epoch))} if self.format == "delta" else {}
        frame().write.format(self.format).options(**self.options, **once).mode("append").save()


class CallableSink(Sink):
    """A user's function `(DataFrame, epoch)`, called for every epoch, also when it has no results."""

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self.function = function
        self.description = f"function {getattr(function, '__qualname__', function)!s}"

    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Call the function."""
        self.function(frame(), epoch)


class MemorySink(Sink):
    """Keeps all results in the driver, for a notebook or a test. `table()` gives them."""

    description = "memory (all results are kept in the driver)"

    def __init__(self) -> None:
        self._epochs: dict[int, pa.Table] = {}
        self._root = ""

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """In the checkpoint."""
        self._root = checkpoint
        return super().staging(checkpoint, finished)

    def deliver(self, epoch: int, staged: Sequence[str], frame: Callable[[], DataFrame], *, finished: bool) -> None:
        """Read the staged files."""
        if finished:
            files = Files(self._root)
            self._epochs[epoch] = pa.concat_tables([pq.read_table(files.map(n)) for n in staged]) if staged else None
        else:
            self._epochs[epoch] = frame().toArrow()
        if self._epochs[epoch] is None:
            del self._epochs[epoch]

    def table(self) -> pa.Table | None:
        """All results so far; None when there are none."""
        return pa.concat_tables(list(self._epochs.values())) if self._epochs else None


def make_sink(target: str | Callable[[DataFrame, int], Any], path: str | None, options: Mapping[str, str]) -> Sink:
    """The sink that `.to(...)` names."""
    if callable(target):
        if path or options:
            raise SinkError("a function as sink takes no path and no options", ".to(function)")
        return CallableSink(target)
    name = target.lower()
    if name == "memory":
        return MemorySink()
    if name == "noop":
        return NoopSink()
    if name in FILE_FORMATS:
        if not path:
            raise SinkError(f"the {name} sink has no path", f'.to("{name}", path="...")', "add a path")
        return FileSink(name, path, options)
    return TableSink(name, {**options, **({"path": path} if path else {})})


def deliver(sink: Sink, query: str, epoch: int, **arguments: Any) -> None:
    """Deliver, naming query and epoch when it fails."""
    try:
        sink.deliver(epoch, **arguments)
    except Exception as error:
        raise SinkFailed(query, epoch, f"{type(error).__name__}: {error}") from error


def staged_frame(spark: SparkSession, root: str, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The staged files as a DataFrame; an empty one when there are none."""
    kind = _spark_schema(schema)
    if not names:
        return spark.createDataFrame([], kind)
    files = Files(root)
    return spark.read.schema(kind).parquet(*(files.path(name) for name in names))


def _spark_schema(schema: pa.Schema) -> StructType:
    """Spark's types of staged columns: those that the stream declares, where Arrow's say less."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415  (only for sinks that go through Spark)

    found = from_arrow_schema(pa.schema([field.remove_metadata() for field in schema]), prefer_timestamp_ntz=True)
    declared = [(field.metadata or {}).get(SPARK_FIELD) for field in schema]
    return StructType(
        [
            one if known is None else StructField.fromJson(renamed_field(known, one.name))
            for one, known in zip(found.fields, declared, strict=True)
        ]
    )
