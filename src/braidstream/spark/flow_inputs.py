"""What a flow is declared over: streams, tables beside them, and what becomes of rows that cannot be read.

Everything that can be wrong with a declaration is refused here, before a query is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from braidstream.arguments import checked_arguments
from braidstream.errors import InputError, StreamError, TableError, nearest
from braidstream.options import JobTableOptions, options_of, texts_of
from braidstream.query import Query, Schema, parse, parse_duration
from braidstream.query.bands import NO_EQUALITY
from braidstream.spark.bad_rows import BAD
from braidstream.spark.declared import NAME, delay_us, folders, idle_us, located
from braidstream.spark.declared_files import checked_stream, declared_files, read_schema, schema_of
from braidstream.spark.file_order import check_order
from braidstream.spark.joined_tables import AllStreams, Table, Tables
from braidstream.spark.meaning import SparkMeaning
from braidstream.spark.sinks import make_sink
from braidstream.spark.sources import FilesSource, Stream
from braidstream.spark.table_formats import FrameTable, TableSource, opened, source_of

__all__ = ["FlowInputs"]

_NAME_TIME = 'name the event-time column: time="ts"'
_Self = TypeVar("_Self", bound="FlowInputs")


class FlowInputs:
    """Streams and tables over a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.tables = Tables()
        self._streams: dict[str, Stream] = {}
        self._all = AllStreams(self._streams, self.tables)
        self._meaning = SparkMeaning(spark, self._all)
        self._bad: dict[str, tuple[Any, str | Path | None, Mapping[str, str]]] = {}

    @checked_arguments("flow.stream", {"time": _NAME_TIME, "frame": "use spark.readStream"})
    def stream(
        self: _Self,
        name: str,
        frame: DataFrame,
        *,
        time: str,
        delay: str | timedelta = "0 seconds",
        idle: str | timedelta | None = None,
    ) -> _Self:
        """Declare a stream: any streaming DataFrame, its event-time column, and how late its tuples may come.

        After a silence as long as `idle`, in wall time, the watermark goes on without it.
        """
        if not isinstance(frame, DataFrame) or not frame.isStreaming:
            raise StreamError(
                f"stream {name!r} is not a streaming DataFrame",
                "a DataFrame of spark.readStream",
                "use spark.readStream",
            )
        self._add(Stream(name, frame, frame.schema, time, delay_us(name, delay), idle_us=idle_us(name, idle)))
        return self

    @checked_arguments("flow.files", {"time": _NAME_TIME, "path": 'name the folder of the files: "data/R"'})
    def files(
        self: _Self,
        name: str,
        path: str | Path,
        *,
        schema: str | StructType | None = None,
        time: str,
        delay: str | timedelta | None = None,
        options: Mapping[str, str] | None = None,
        order: str | None = None,
        idle: str | timedelta | None = None,
    ) -> _Self:
        """Declare a stream of Parquet files. The same as `stream` with Spark's file source, but faster.

        They are read in an `order`: "time" (of events, the default with epoch="available"), "name" or "modified" (the
        default of a flow that runs on). Without a `delay`, the one that this order needs is measured from the files.
        Without a schema it is read from the files that are there. `idle` is as in `stream`.
        """
        if not isinstance(path, (str, Path)):
            raise StreamError(f"the path of stream {name!r} is {path!r}", "a folder of Parquet files", 'path="data/R"')
        given = {key: str(value) for key, value in (options or {}).items()}
        located = str(path) if "://" in str(path) else str(Path(path).absolute())
        if "://" not in located and not any(c in located for c in "*?[{") and not Path(located).is_dir():
            raise StreamError(
                f"the path of stream {name!r} does not exist: {path}",
                "a folder of Parquet files",
                "create the folder first",
            )
        columns = read_schema(self.spark, name, located, given) if schema is None else schema
        frame = declared_files(self.spark, name, located, columns, given)
        plain = "://" not in located and not any("=" in part for part in folders(located))
        source = FilesSource(located, given, order, is_partitioned=not plain)
        check_order(name, order, source)
        files, local = source if plain else None, source if "://" not in located else None
        known_us = 0 if delay is None else delay_us(name, delay)
        is_measured = delay is None and local is not None
        self._add(Stream(name, frame, frame.schema, time, known_us, files, local, is_measured, idle_us(name, idle)))
        return self

    @checked_arguments("flow.table", {"name": 'name the table: flow.table("customers", frame)'})
    def table(
        self: _Self,
        name: str,
        frame: DataFrame | Callable[[], DataFrame] | None = None,
        *,
        path: str | Path | None = None,
        format: str = "parquet",  # noqa: A002  (as in a job file, and in Spark)
        schema: str | None = None,
        refresh: str | timedelta | None = None,
        options: Mapping[str, str] | None = None,
    ) -> _Self:
        """Declare a table that queries may join to streams, by JOIN or LEFT JOIN; Spark does it before rows are routed.

        It is a DataFrame, a function that gives one, or what Spark reads by a `format`, a `path` and `options`. The
        newest snapshot is looked for at each start, and every `refresh` while the flow runs.
        """
        _check_name(name, self._streams, self.tables.declared)
        if (frame is None) == (path is None and not options):
            has = "neither a frame nor a path" if frame is None else "both a frame and a path"
            wrong = f"table {name!r} has {has}"
            raise TableError(wrong, "one of them", 'flow.table("customers", path="data/customers", format="delta")')
        source: TableSource
        if frame is None:
            source = source_of(
                self.spark, name, format, None if path is None else located(path), schema, texts_of(options or {})
            )
        else:
            source = FrameTable(frame)
        if isinstance(frame, DataFrame) and refresh is not None:
            wrong = f"refresh for table {name!r}, which is a DataFrame and stays what it is"
            raise TableError(
                wrong, "refresh for a path, or for a function that gives a DataFrame", "lambda: spark.read..."
            )
        columns = opened(name, source, source.newest()).schema
        self.tables.declared[name] = Table(name, source, columns, _refresh_us(name, refresh))
        return self

    def bad(
        self: _Self,
        stream: str,
        target: str | Callable[[DataFrame, int], Any],
        path: str | Path | None = None,
        **options: Any,
    ) -> _Self:
        """Send rows of a stream that could not be read, those with a `_bad`, to a sink; before queries are added."""
        if stream not in self._streams or BAD not in self._streams[stream].schema.names:
            wrong = f"stream {stream!r} has no column {BAD!r} that says which of its rows could not be read"
            raise StreamError(wrong, f"a declared stream with a column {BAD}, a struct", nearest(stream, self._streams))
        make_sink(target, path, texts_of(options))
        self._bad[stream] = (target, path, texts_of(options))
        return self

    @property
    def schemas(self) -> dict[str, Schema]:
        """The schemas of the declared streams, as the query language knows them."""
        return {name: schema_of(stream) for name, stream in self._streams.items()}

    def in_order_of(self, known: Iterable[str]) -> None:
        """Put the streams in the order of those that a checkpoint knows: Spark knows its sources by that."""
        for name in dict.fromkeys([*known, *self._streams]):
            if name in self._streams:
                self._streams[name] = self._streams.pop(name)

    def _parsed(self, text: str, name: str, allow: str | None = NO_EQUALITY) -> Query:
        """A query; what is in a checkpoint was taken before, and needs no leave."""
        return parse(text, self.schemas, name, meaning=self._meaning, tables=self.tables.schemas, allow=allow)

    def _add(self, stream: Stream) -> None:
        if stream.name in self.tables.declared:
            raise StreamError(f"there is already a table named {stream.name!r}", "a name of its own for each")
        self._streams[stream.name] = checked_stream(stream, self._streams)


def _check_name(name: object, *others: Collection[str]) -> None:
    if not isinstance(name, str) or not NAME.match(name):
        raise TableError(f"a table cannot be named {name!r}", "letters, digits and underscores")
    if any(name.lower() == known.lower() for one in others for known in one):
        raise TableError(f"there is already a stream or table named {name!r}", "a name of its own for each")


def _refresh_us(name: str, refresh: str | timedelta | None) -> int | None:
    try:
        options_of(JobTableOptions)["refresh"].check(refresh)
    except InputError as error:
        raise TableError(f"table {name!r}: {error.wrong}", error.expected, error.fix) from None
    return None if refresh is None else parse_duration(refresh)
