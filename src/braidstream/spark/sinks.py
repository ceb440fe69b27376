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

A process that has lost its checkpoint to another may not touch a folder of results either. So whatever changes there
passes, by one rename, through a folder in the staging area that is named after the holder of the lease, its gate; who
takes over removes the gates of others before it delivers (`state.lease`). Other sinks are asked after a look at the
lease only: between the look and the delivery a process may be stopped, and a table may then see an epoch twice.

A number below 0 is no epoch but a step of the last clean-up of a finite flow: -1, -2, ... over the life of the flow.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from braidstream.errors import LeaseLost, SinkError, SinkFailed, nearest
from braidstream.spark.causes import in_expression, one_line
from braidstream.spark.formats import check_sink, find_sink
from braidstream.spark.names import literal_path
from braidstream.state.checkpoint import IDENTITY
from braidstream.state.files import Files
from braidstream.state.staging import SPARK_FIELD, Staging, renamed_field

__all__ = ["CallableSink", "FileSink", "MemorySink", "NoopSink", "Sink", "TableSink", "make_sink"]

OWNER = "_braidstream.json"
STAGING = "_staging"
FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


class Sink(ABC):
    """Where results go."""

    description: str
    idempotent = True

    @property
    def parts(self) -> Sequence[Sink]:
        """The sinks that it is: one, but for `late.SeveralSinks`."""
        return [self]

    def find(self, spark: SparkSession) -> None:
        """Refuse, before anything starts, a sink whose format this session does not have."""
        del spark

    def check(self, flow: str) -> None:
        """Refuse, before anything starts, a sink that belongs to another flow or cannot be one."""
        del flow

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark the sink as this flow's; refuse it like `check`. `owner` holds the lease of the flow's checkpoint."""
        del flow, owner

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

    def find(self, spark: SparkSession) -> None:
        """Refuse files of a format whose package is not there."""
        find_sink(spark, self.format)

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

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark the folder as this flow's, or refuse it when it is another's."""
        self.check(flow)
        self.flow = flow
        self.files.gate = f"{STAGING}/{owner}" if owner and self.files.has_renames else None
        try:
            self.files.make(self._staging)
            if self._owner() != flow:
                self.files.replace(OWNER, json.dumps({"flow": flow}).encode())
        except OSError as error:
            raise SinkError(f"the sink path {self.path!r} cannot be written ({error})", "a writable folder") from None

    @property
    def _staging(self) -> str:
        return self.files.gate or STAGING

    def _owner(self) -> str | None:
        """The flow that the folder belongs to."""
        if not self.files.exists(OWNER):
            return None
        try:
            return str(json.loads(self.files.read(OWNER))["flow"])
        except (ValueError, KeyError, TypeError):
            raise SinkError(
                f"{self.files.path(OWNER)} is damaged: it says no longer to which flow the folder belongs",
                'a file such as {"flow": "..."}',
                f"restore it from a copy, or write it again with the flow's id from {IDENTITY} in the checkpoint",
            ) from None

    def sweep(self) -> None:
        """Drop what was staged and never moved into place, with the gates of others."""
        self.files.make(self._staging)
        for name in self.files.folders(STAGING):
            if f"{STAGING}/{name}" != self.files.gate:
                self.files.delete_folder(f"{STAGING}/{name}")
        for folder in {STAGING, self._staging}:
            for name in self.files.names(folder):
                self.files.delete(f"{folder}/{name}")

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Beside the folder's files when they can be moved into place as they are."""
        if finished and self._is_native:
            return Staging(self.path, self._staging, self.options.get("compression", "snappy"))
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
        written, folder = f"{STAGING}/{uuid.uuid4().hex}", f"{self._staging}/{number}"
        self._write(frame(), self.files.path(written))
        self.files.delete_folder(folder)
        self.files.move(written, self.files, folder)  # Spark makes any folder anew, so it must not write in the gate
        for i, name in enumerate(n for n in self.files.names(folder) if not n.startswith(("_", "."))):
            self.files.move(f"{folder}/{name}", self.files, f"{mark}{i:04d}.{name.split('.', 1)[-1]}")
        self.files.delete_folder(folder)

    def _write(self, frame: DataFrame, folder: str) -> None:
        """Let Spark write; Parquet files encoded as those that slots write, whatever the session says."""
        options = dict(self.options)
        if self.format != "parquet":
            frame.write.format(self.format).options(**options).mode("overwrite").save(folder)
            return
        compression = options.get("compression", "snappy")
        options["compression"] = {"lz4": "lz4_raw"}.get(compression, compression)
        with _setting(frame.sparkSession, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
            frame.write.options(**options).mode("overwrite").parquet(folder)


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A setting for what is written inside; Spark has no option for it."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


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

    def find(self, spark: SparkSession) -> None:
        """Refuse a format that Spark does not know, or whose package is not there."""
        find_sink(spark, self.format)

    def claim(self, flow: str, owner: str = "") -> None:
        """Remember the flow, for formats that recognize a repeated write."""
        del owner
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
            self._epochs[epoch] = _in_utc(frame().toArrow())
        if self._epochs[epoch] is None:
            del self._epochs[epoch]

    def table(self) -> pa.Table | None:
        """All results so far; None when there are none."""
        return pa.concat_tables(list(self._epochs.values())) if self._epochs else None


def _in_utc(table: pa.Table) -> pa.Table:
    """Times in the zone that slots write them in, instead of the session's."""
    kinds = [
        field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) and field.type.tz else field
        for field in table.schema
    ]
    return table.cast(pa.schema(kinds))


def make_sink(
    target: str | Callable[[DataFrame, int], Any], path: str | Path | None, options: Mapping[str, str]
) -> Sink:
    """The sink that `.to(...)` names."""
    if callable(target):
        if path or options:
            raise SinkError("a function as sink takes no path and no options", ".to(function)")
        return CallableSink(target)
    if not isinstance(target, str) or not isinstance(path, (str, Path, type(None))):
        shown = f"a sink is {target!r}" if not isinstance(target, str) else f"the path of a sink is {path!r}"
        raise SinkError(shown, "a format and a path, or a function", '.to("parquet", path="out")')
    name, path = target.lower(), None if path is None else str(path)
    check_sink(target, {**options, **({"path": path} if path else {})})
    if name == "memory":
        return MemorySink()
    if name == "noop":
        return NoopSink()
    if name in FILE_FORMATS:
        if not path:
            raise SinkError(f"the {name} sink has no path", f'.to("{name}", path="...")', "add a path")
        return FileSink(name, path, options)
    return TableSink(target if "." in target else name, {**options, **({"path": path} if path else {})})


def deliver(sink: Sink, query: str, epoch: int, **arguments: Any) -> None:
    """Deliver, naming query and epoch when it fails."""
    try:
        sink.deliver(epoch, **arguments)
    except LeaseLost:
        raise
    except Exception as error:
        raise SinkFailed(query, epoch, one_line(error), in_expression(error)) from error


def staged_frame(spark: SparkSession, root: str, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The staged files as a DataFrame; an empty one when there are none."""
    kind = _spark_schema(schema)
    if not names:
        return spark.createDataFrame([], kind)
    files = Files(root)
    read = spark.read.schema(kind).option("datetimeRebaseMode", "CORRECTED")
    return read.parquet(*(literal_path(files.path(name)) for name in names))


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
