"""What a table is read from, and which snapshot of it: files, Delta, Iceberg, a DataFrame, anything that Spark reads.

`newest` says which snapshot there is now, `frame` reads the one that is asked for. Delta and Iceberg keep their
versions, so an epoch that is done again reads what it read before. Files are listed when the frame is made, and a
replay lists them again: a digest of the list tells whether it is the same. Of anything else nothing is known.

Delta's log and Iceberg's metadata are read by `deltalake` and `pyiceberg`, and Spark reads the data files they name, so
that no JVM package is needed. Tables whose files alone do not say what the rows are (deletes beside the data, renamed
columns) are refused.

Cost: a look at the log, or a listing; Spark reads the rows.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from braidstream.errors import InputError, TableError
from braidstream.spark.causes import one_line
from braidstream.spark.delta_paths import data_files, refuse_delta_path
from braidstream.spark.extras import extra
from braidstream.spark.formats import BUILT_IN
from braidstream.spark.iceberg_sink import open_catalog
from braidstream.spark.names import literal_path, pattern_of, resolved
from braidstream.state.files import Files

__all__ = ["FrameTable", "TableSource", "check_table", "opened", "source_of"]

STREAMING = ("kafka", "rate", "rate-micro-batch", "socket")
"""Formats that are streams."""


class TableSource(ABC):
    """Where a table's rows come from. Unless it says otherwise, it has no snapshots that could be told apart."""

    keeps_versions = False
    """Whether a snapshot can be read again later."""
    version_words = ""
    """What a snapshot is called."""

    @property
    @abstractmethod
    def location(self) -> str:
        """What the table is, for notes: another location is another table."""

    @property
    def words(self) -> str:
        """What it is, for people."""
        return self.location

    @property
    @abstractmethod
    def promise(self) -> str:
        """What an epoch that is done again sees."""

    @property
    def folder(self) -> str | None:
        """The folder that it is read from, if there is one."""
        return None

    def newest(self) -> str | None:
        """The snapshot that there is now; None: they cannot be told apart."""
        return None

    @abstractmethod
    def frame(self, version: str | None) -> DataFrame:
        """The rows of a snapshot."""


@dataclass(frozen=True)
class FrameTable(TableSource):
    """A DataFrame, or a function that gives one anew at each refresh."""

    given: DataFrame | Callable[[], DataFrame]

    @property
    def location(self) -> str:
        """Nothing is known of it."""
        return "DataFrame"

    @property
    def words(self) -> str:
        """What it is."""
        return "a DataFrame" if isinstance(self.given, DataFrame) else "a function that gives a DataFrame"

    @property
    def promise(self) -> str:
        """What it may have become."""
        return "an epoch that is done again after a restart sees what it gives then: it has no versions"

    def frame(self, version: str | None) -> DataFrame:
        """What there is."""
        del version
        return self.given if isinstance(self.given, DataFrame) else self.given()


@dataclass(frozen=True)
class SparkTable(TableSource):
    """Anything that Spark reads by a format and options."""

    spark: SparkSession
    format: str
    path: str | None
    schema: str | None
    options: Mapping[str, str]

    @property
    def location(self) -> str:
        """Format and path, or what the options say."""
        shown = self.path or ", ".join(f"{k}={v}" for k, v in sorted(self.options.items()) if "password" not in k)
        return f"{self.format} {shown}"

    @property
    def folder(self) -> str | None:
        """Its path, unless that is a pattern."""
        return None if set(self.path or "*") & set("*?[{") else self.path

    @property
    def promise(self) -> str:
        """What it may have become."""
        return f"an epoch that is done again after a restart sees it as it is then: {self.format} has no versions"

    def frame(self, version: str | None) -> DataFrame:
        """As Spark reads it now."""
        del version
        reader = self.spark.read.format(self.format).options(**self.options)
        reader = reader if self.schema is None else reader.schema(self.schema)
        return reader.load() if self.path is None else reader.load(pattern_of(self.path))


@dataclass(frozen=True)
class ListedFiles(SparkTable):
    """Files below a path: listed when the frame is made, and not looked for again until the next refresh."""

    version_words = "files"

    @property
    def promise(self) -> str:
        """What a digest tells."""
        told = (
            "an epoch that is done again after a restart sees the files that are there then, and says if they changed"
        )
        return f"files are listed at each start and refresh; {told}: {self.format} has no versions"

    def newest(self) -> str | None:
        """A digest of names, sizes and times; None where the path is a pattern."""
        files = Files(self.path or "")
        if any(c in (self.path or "") for c in "*?[{"):
            return None
        listed = sorted(f"{one.path}:{one.size}:{one.mtime_ns}" for one in files.listed())
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DeltaFiles(TableSource):
    """A Delta table, read as of a version of its log."""

    keeps_versions, version_words = True, "version"

    spark: SparkSession
    path: str

    @property
    def location(self) -> str:
        """The table's folder."""
        return f"delta {self.path}"

    @property
    def words(self) -> str:
        """The same."""
        return f"Delta table {self.path}"

    @property
    def folder(self) -> str | None:
        """That of the table."""
        return self.path

    @property
    def promise(self) -> str:
        """The version is in the commit."""
        return "an epoch that is done again reads the same version"

    def newest(self) -> str | None:
        """The last version of the log."""
        return str(self._table(None).version())

    def frame(self, version: str | None) -> DataFrame:
        """The files of a version, read by Spark."""
        table = self._table(version)
        features = set(table.protocol().reader_features or ()) & {"deletionVectors", "columnMapping"}
        mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
        if features & {"deletionVectors"} or mapped:
            wrong = f"the Delta table {self.path} has {'renamed columns' if mapped else 'deletion vectors'}"
            fix = "give a DataFrame of Spark's Delta: flow.table(name, spark.read.format('delta').load(path))"
            raise TableError(wrong, "a table whose files hold its rows", fix)
        schema = _spark_schema(table.schema().to_arrow())
        return _of_files(self.spark.read.option("basePath", resolved(self.path)), schema, data_files(table, self.path))

    def _table(self, version: str | None) -> Any:
        delta = extra("delta")
        if not delta.DeltaTable.is_deltatable(resolved(self.path)):
            raise TableError(f"{self.path} is no Delta table", "the folder of a Delta table", "check the path")
        try:
            return delta.DeltaTable(resolved(self.path), version=None if version is None else int(version))
        except Exception as error:
            told = "" if version is None else f" as of version {version}"
            fix = "if the version was vacuumed, restore it from a copy"
            raise TableError(f"the Delta table {self.path} cannot be read{told}: {one_line(error)}", "", fix) from None


@dataclass(frozen=True)
class IcebergFiles(TableSource):
    """An Iceberg table of a catalog, read as of a snapshot."""

    keeps_versions, version_words = True, "snapshot"

    spark: SparkSession
    path: str | None
    options: Mapping[str, str]

    @property
    def location(self) -> str:
        """The table's name and its catalog."""
        return f"iceberg {self.options['table']} of {self.options.get('catalog') or self.path}"

    @property
    def words(self) -> str:
        """The same."""
        return f"Iceberg table {self.options['table']} of {self.options.get('catalog') or self.path}"

    @property
    def promise(self) -> str:
        """The snapshot is in the commit."""
        return "an epoch that is done again reads the same snapshot"

    def newest(self) -> str | None:
        """The current snapshot; empty where the table has had no rows so far."""
        found = self._table().current_snapshot()
        return "" if found is None else str(found.snapshot_id)

    def frame(self, version: str | None) -> DataFrame:
        """The data files of a snapshot, read by Spark."""
        table = self._table()
        self._refuse_renamed(table)
        schema = _spark_schema(extra("iceberg", "io.pyarrow").schema_to_pyarrow(table.schema()))
        if not version:
            return _of_files(self.spark.read, schema, ())
        try:
            tasks = list(table.scan(snapshot_id=int(version)).plan_files())
        except ValueError as error:
            wrong = f"the Iceberg table {self.options['table']} cannot be read as of snapshot {version}: {error}"
            raise TableError(wrong, "a snapshot that has not expired", "restore it from a copy") from None
        if any(task.delete_files for task in tasks):
            wrong = f"the Iceberg table {self.options['table']} has deletes beside its data"
            raise TableError(wrong, "a table whose files hold its rows", "rewrite its data files, or give a DataFrame")
        return _of_files(self.spark.read, schema, [task.file.file_path for task in tasks])

    def _table(self) -> Any:
        try:
            return open_catalog(self.path, self.options).load_table(self.options["table"])
        except InputError:
            raise
        except Exception as error:
            wrong = f"the Iceberg table {self.options['table']} cannot be read: {one_line(error)}"
            raise TableError(wrong, "a table of the catalog", "check table, path and catalog") from None

    def _refuse_renamed(self, table: Any) -> None:
        """Files are read by the names of columns: refuse a table in which a column once had another."""
        names: dict[int, str] = {}
        for schema in table.schemas().values():
            for field in schema.fields:
                if names.setdefault(field.field_id, field.name) != field.name:
                    wrong = f"the Iceberg table {self.options['table']} has a renamed column {field.name!r}"
                    raise TableError(wrong, "columns that kept their names", "rewrite it, or give a DataFrame")


def _spark_schema(schema: Any) -> StructType:
    """Columns of Arrow's as Spark's."""
    return from_arrow_schema(pa.schema(schema), prefer_timestamp_ntz=True)


def _of_files(reader: DataFrameReader, schema: StructType, files: Sequence[str]) -> DataFrame:
    """The rows of Parquet files, of which there may be none."""
    if not files:
        return reader._spark.createDataFrame([], schema)
    return reader.schema(schema).parquet(*map(literal_path, files))


def source_of(
    spark: SparkSession, name: str, format_: str, path: str | None, schema: str | None, options: Mapping[str, str]
) -> TableSource:
    """The source of a table that is told by its format; TableError where it cannot be one."""
    check_table(name, format_, path, options)
    own = format_.lower()
    if own == "delta":
        assert path is not None
        return DeltaFiles(spark, path)
    if own == "iceberg":
        return IcebergFiles(spark, path, options)
    kind = ListedFiles if own in (*BUILT_IN, "avro") else SparkTable
    return kind(spark, own if own in BUILT_IN else format_, path, schema, options)


def check_table(name: str, format_: str, path: str | None, options: Mapping[str, str]) -> None:
    """Refuse what cannot be a table, as far as its format, path and options tell."""
    own = format_.lower()
    if own in STREAMING:
        wrong = f"table {name!r} is a stream: {format_} has no end to join with"
        raise TableError(wrong, "a table", "declare it as a stream, with its event time and a window in the query")
    if own in (*BUILT_IN, "delta") and path is None:
        raise TableError(f"table {name!r} has no path", f"the folder of its {own} files", 'path="data/customers"')
    if own == "delta" and path is not None:
        refuse_delta_path(path, TableError)
    if own == "iceberg" and "table" not in options:
        raise TableError(f"table {name!r} has no option table", "its name in the catalog", 'table="shop.customers"')
    if path and "://" not in path and not any(c in path for c in "*?[{") and not Path(path).exists():
        raise TableError(f"table {name!r} cannot be read: {path} does not exist", "a table", "check the path")


def opened(name: str, source: TableSource, version: str | None) -> DataFrame:
    """The rows of a snapshot; TableError, with Spark's reason, where it cannot be read."""
    try:
        frame = source.frame(version)
        if not isinstance(frame, DataFrame):
            raise TableError(f"table {name!r} is {frame!r}", "a DataFrame, or a function that gives one")
        if frame.isStreaming:
            wrong = f"table {name!r} is a streaming DataFrame"
            raise TableError(wrong, "a DataFrame of spark.read", "declare it by flow.stream(...), with its event time")
        return frame
    except (PySparkException, Py4JError) as error:
        told = re.sub(r"\s+", " ", one_line(error))
        raise TableError(f"table {name!r} cannot be read: {told}", source.words, "check path and format") from None
