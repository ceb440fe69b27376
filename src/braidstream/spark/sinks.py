"""Sinks: where the results of a query go, once for each epoch (`spark.sink` has the protocol).

- Parquet files: the staged files are moved into place under names that carry flow and epoch; files of a lost attempt at
  the same epoch are removed first. No row passes through the JVM. A mark says when an epoch is whole
  (`state.whole_epochs`).
- Other file formats: Spark writes them beside, then they are moved into place in the same way.
- Delta, Iceberg, PostgreSQL, Kafka, each in a module of its own: results and their mark in one transaction.
- Other tables and formats: Spark appends; without transactions of their own they may see an epoch twice after a crash,
  which `explain` says. Spark's Delta is given its idempotence options.
- A callable `(DataFrame, epoch)`, which should itself be idempotent for an epoch.
- Memory, for a notebook: the results are kept in the driver.

A process that has lost its checkpoint to another may not touch a folder of results either (`spark.staged_folder`).
Sinks that recognize do nothing for it, or fail. Others are asked after a look at the lease only: between the look and
the delivery a process may be stopped, and a table may then see an epoch twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from braidstream.errors import LeaseLost, SinkError, SinkFailed, nearest
from braidstream.model.declarations import FILE_FORMATS, Target
from braidstream.model.secrets import kept_options, resolved_options
from braidstream.model.snapshots import UNSEALED, Placed
from braidstream.spark.causes import in_expression, one_line
from braidstream.spark.delta_sink import DeltaSink
from braidstream.spark.extras import has_extra
from braidstream.spark.formats import check_sink, find_sink
from braidstream.spark.iceberg_sink import IcebergSink
from braidstream.spark.kafka_servers import known_topics, refuse_unreached
from braidstream.spark.kafka_sink import KafkaSink
from braidstream.spark.names import literal_path, resolved
from braidstream.spark.postgresql_sink import PostgresqlSink
from braidstream.spark.s3_client import refuse_no_s3_client
from braidstream.spark.sink import Delivery, Mark, Sink
from braidstream.spark.staged_folder import StagedFolder, refuse_file
from braidstream.state import syncing
from braidstream.state.checkpoint import IDENTITY
from braidstream.state.files import Files
from braidstream.state.staging import SPARK_FIELD, Staging, renamed_field
from braidstream.state.whole_epochs import MARKS, begin_marks, is_whole, unmark, unnamed, whole

__all__ = [
    "CallableSink",
    "FileSink",
    "MemorySink",
    "NoopSink",
    "Sink",
    "TableSink",
    "deliver",
    "make_sink",
    "sink_as_before",
    "spark_schema",
]

OWNER = "_braidstream.json"
_WITHOUT_PATH = {"postgresql": "options with url and table", "kafka": "options with servers and topic"}
COMPRESSIONS = ("none", "snappy", "gzip", "brotli", "zstd", "lz4")


class NoopSink(Sink):
    """Counts results and drops them."""

    description = "noop (results are counted and dropped)"

    @property
    def target(self) -> Target:
        """None."""
        return Target("noop")

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Nothing is staged unless Spark has to finish the query."""
        return Staging(None) if finished else super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Evaluate what Spark has to finish."""
        if not delivery.finished and delivery.staged:
            delivery.frame().write.format("noop").mode("append").save()


class FileSink(Sink):
    """A folder of files in one of Spark's file formats."""

    def __init__(self, format_: str, path: str, options: Mapping[str, str]) -> None:
        self.format, self.path, self.options = format_, path, dict(options)
        self._placed = StagedFolder(path, format_, options)
        self.files = self._placed.files
        self._left: dict[str, list[str]] = {}
        """By kind of number: files of this flow that may be those of a delivery that is done again."""
        self.flow = ""
        self.description = f"{format_} files in {path}"
        self.promise = "each epoch once: one that is delivered again replaces its files"
        if self.files.objects is not None:
            self.promise = "each epoch once for readers of result_files: its mark names its files"
        compression = self.options.get("compression", "snappy")
        if format_ == "parquet" and compression not in COMPRESSIONS:
            raise SinkError(
                f"unknown compression {compression!r}",
                f"one of {', '.join(COMPRESSIONS)}",
                nearest(compression, COMPRESSIONS),
            )

    @property
    def target(self) -> Target:
        """The folder."""
        return Target(self.format, resolved(self.path), self.options)

    @property
    def folder(self) -> str:
        """All of it."""
        return self.path

    def find(self, spark: SparkSession) -> None:
        """Refuse files of a format whose package is not there, and a bucket that Spark has to write to and cannot."""
        find_sink(spark, self.format)
        if not self._placed.is_native:
            refuse_no_s3_client(spark, "the sink path", self.path, SinkError)

    def check(self, flow: str) -> None:
        """Refuse a file, and a folder that is another flow's."""
        refuse_file(self.files, self.path)
        if self._owner() not in (None, flow):
            raise SinkError(
                f"the sink path {self.path!r} belongs to another flow ({self.files.path(OWNER)} says so)",
                "a path that no other flow writes to",
                "choose another path, or delete that folder if its results are no longer needed",
            )

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark the folder as this flow's, or refuse it when it is another's."""
        self.check(flow)
        self.flow, self._left = flow, {}
        try:
            self._placed.open(owner)
            if self._owner() != flow:
                self.files.replace(OWNER, json.dumps({"flow": flow}).encode())
            begin_marks(self.files, self._placed.place)
        except OSError as error:
            raise SinkError(f"the sink path {self.path!r} cannot be written ({error})", "a writable folder") from None

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
        self._placed.sweep()
        if self.files.objects is not None:
            for name in unnamed(self.files, self._placed.owner):
                self.files.delete(name)

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Beside the folder's files when they can be moved into place as they are."""
        return self._placed.staging() if finished and self._placed.is_native else super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Replace the files of this epoch; in an object store, which knows no gate, add them if they are not there."""
        mark = Mark(self.flow, delivery.outlet, delivery.number)
        begins = mark.file_name
        if self.files.objects is not None:
            self.placed = {resolved(self.path): self._added(delivery, begins)}
            return
        left = self._left_behind(mark)
        old = [name for name in left if name.startswith(begins)]
        if old:
            unmark(self.files, delivery.number)
        for name in old:
            self.files.delete(name)
        put = self._placed.put(delivery, lambda i, ending: f"{begins}{i:04d}.{ending}")
        self.placed = {resolved(self.path): self._noted(put, delivery)}
        delivery.reach("delivery-put")
        if put:
            whole(self.files, delivery.number)
        self._left[mark.kind] = [name for name in left if name not in old] + put
        if delivery.durable and self.files.has_renames and (put or old):
            syncing.sync_folders(self.files.path(name) for name in ("", MARKS))
        delivery.reach("delivery-done")

    def _left_behind(self, mark: Mark) -> list[str]:
        """Files of this number and later ones of its kind, which a lost attempt may have left.

        The folder, which grows with the stream, is listed once for a start: later on only its owner adds files.
        """
        known = self._left.pop(mark.kind, None)  # until the delivery is done they are not known
        if known is None or self.files.gate is None:
            flow = f"part-{self.flow[:12]}-"
            last = f"{flow}{'c' if mark.kind == 'epoch' else 'd'}"
            known = [name for name in self.files.names("") if name.startswith(flow) and name < last]
        return [name for name in known if name >= mark.file_name]

    def _added(self, delivery: Delivery, begins: str) -> tuple[Placed, ...]:
        """The mark of an epoch names its files and is put once: files that no mark names are nobody's."""
        if not delivery.staged or is_whole(self.files, delivery.number):
            return ()
        put = self._placed.put(delivery, lambda i, ending: f"{begins}{i:04d}-{self._placed.owner}.{ending}")
        delivery.reach("delivery-put")
        if not whole(self.files, delivery.number, put):
            for name in put:
                self.files.delete(name)
            return ()
        delivery.reach("delivery-done")
        return self._noted(put, delivery)

    def _noted(self, put: Sequence[str], delivery: Delivery) -> tuple[Placed, ...]:
        """What is there now, so that a later start can tell whether somebody has changed it."""
        if not put:
            return ()
        is_as_staged = delivery.finished and self._placed.is_native
        sums = [delivery.checksums.get(name, UNSEALED) for name in sorted(delivery.staged)] if is_as_staged else []
        sums += [UNSEALED] * (len(put) - len(sums))
        stamps = self._placed.stamps(put)
        return tuple(Placed(name, *stamps[name], own) for name, own in zip(put, sums, strict=True) if name in stamps)


class TableSink(Sink):
    """Any other batch format of Spark: tables, JDBC, Kafka, Delta, ..."""

    idempotent = False

    def __init__(self, format_: str, options: Mapping[str, str]) -> None:
        self.format, self.options = format_, dict(options)
        self.flow = ""
        self.idempotent = self.recognizes = format_ == "delta"
        self.description = f"format {format_}" + (
            "" if self.idempotent else " (an epoch may be appended twice after a crash)"
        )
        self.promise = "each epoch once: Delta recognizes flow and epoch" if self.idempotent else ""

    @property
    def target(self) -> Target:
        """Spark's format and options."""
        return Target(self.format, None, self.options)

    @property
    def folder(self) -> str | None:
        """That of a Delta table: Spark's writer knows it by the flow alone, so one query may write there."""
        return self.options.get("path") if self.format == "delta" else None

    def find(self, spark: SparkSession) -> None:
        """Refuse a format that Spark does not know, or whose package is not there."""
        find_sink(spark, self.format)
        if self.format == "kafka":
            known_topics(spark, "the kafka sink", self.options, SinkError)

    def check(self, flow: str) -> None:
        """Refuse brokers of Kafka that cannot be reached: Spark would try for minutes, in the first epoch."""
        del flow
        if self.format == "kafka":
            refuse_unreached("the kafka sink", self.options, SinkError)

    def claim(self, flow: str, owner: str = "") -> None:
        """Remember the flow, for formats that recognize a repeated write."""
        del owner
        self.flow = flow

    def deliver(self, delivery: Delivery) -> None:
        """Append."""
        if not delivery.staged:
            return
        writer = self.flow if delivery.number >= 0 else f"{self.flow}-clean-up"
        once = {"txnAppId": writer, "txnVersion": str(abs(delivery.number))} if self.format == "delta" else {}
        delivery.frame().write.format(self.format).options(**self.options, **once).mode("append").save()


class CallableSink(Sink):
    """A user's function `(DataFrame, epoch)`, called for every epoch, also when it has no results."""

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self.function = function
        self.description = f"function {getattr(function, '__qualname__', function)!s}"
        self.promise = "after a crash it is called again with the same epoch, and has to know it"

    def deliver(self, delivery: Delivery) -> None:
        """Call the function."""
        self.function(delivery.frame(), delivery.number)


class MemorySink(Sink):
    """Keeps all results in the driver, for a notebook or a test. `table()` gives them."""

    description = "memory (all results are kept in the driver)"

    def __init__(self) -> None:
        self._epochs: dict[int, pa.Table] = {}
        self._root = ""

    @property
    def target(self) -> Target:
        """This process."""
        return Target("memory")

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """In the checkpoint."""
        self._root = checkpoint
        return super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Read the staged files."""
        self._epochs.pop(delivery.number, None)
        if not delivery.finished:
            self._epochs[delivery.number] = _in_utc(delivery.frame().toArrow())
        elif delivery.staged:
            files = Files(self._root)
            tables = [pq.read_table(files.map(name)) for name in delivery.staged]
            self._epochs[delivery.number] = pa.concat_tables(tables)

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
    """The sink that `.to(...)` names; `given` are its options as they may be written down."""
    sink = _made_sink(target, path, resolved_options(options, "a sink") if isinstance(options, Mapping) else options)
    sink.given = kept_options(options)
    return sink


def sink_as_before(target: str, path: str | None, options: Mapping[str, str]) -> Sink:
    """A sink as a checkpoint has it: its path is left out where it had no effect, and is refused by now."""
    return make_sink(target, None if target.lower() in _WITHOUT_PATH else path, options)


def _made_sink(
    target: str | Callable[[DataFrame, int], Any], path: str | Path | None, options: Mapping[str, str]
) -> Sink:
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
    return _table_sink(target if "." in target else name, path, options)


def _table_sink(format_: str, path: str | None, options: Mapping[str, str]) -> Sink:
    """A sink with transactions of its own where there is one for what is declared; else what Spark appends to.

    Delta without options, Iceberg with `table`, Kafka with `servers`: declared otherwise they are Spark's, as in 0.1.0.
    """
    by_spark = TableSink(format_, {**options, **({"path": path} if path else {})})
    is_transactional = format_ == "kafka" and "kafka.bootstrap.servers" not in {option.lower() for option in options}
    if path and format_ == "kafka" and not is_transactional:  # 0.1.0 took it
        logging.getLogger("braidstream").warning("the kafka sink takes no path: %r has no effect", path)
    elif path and format_ in _WITHOUT_PATH:
        raise SinkError(f"the {format_} sink takes no path, and is given {path!r}", _WITHOUT_PATH[format_])
    if format_ == "postgresql":
        return PostgresqlSink(options)
    if is_transactional:
        return KafkaSink(options)
    if format_ == "iceberg" and "table" in options:
        given = {name: value for name, value in options.items() if name != "path"}
        return IcebergSink(path or options.get("path"), given)
    if format_ == "delta" and set(by_spark.options) == {"path"} and has_extra("delta"):
        return DeltaSink(by_spark.options["path"], by_spark)
    return by_spark


def deliver(sink: Sink, delivery: Delivery) -> None:
    """Deliver, naming query and epoch when it fails."""
    try:
        sink.deliver(delivery)
    except LeaseLost:
        raise
    except Exception as error:
        raise SinkFailed(delivery.outlet, delivery.number, one_line(error), in_expression(error)) from error


def staged_frame(spark: SparkSession, root: str, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The staged files as a DataFrame; an empty one when there are none."""
    kind = spark_schema(schema)
    if not names:
        return spark.createDataFrame([], kind)
    files = Files(root)
    read = spark.read.schema(kind).option("datetimeRebaseMode", "CORRECTED")
    return read.parquet(*(literal_path(files.address(name)) for name in names))


def spark_schema(schema: pa.Schema) -> StructType:
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
