"""Streams as a flow declares them, and the branch of the streaming plan that routes each.

Two ways lead to the same envelopes. The *general* one takes any streaming DataFrame: Spark computes key hashes, filters
and columns, and a `mapInArrow` routes. The *direct* one serves Parquet files: Spark's file source lists them and keeps
the offsets, but hands out only their paths; the routing task reads them with pyarrow, so that no row passes through the
JVM. Which one a stream takes changes nothing in the result; `explain` says it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from braidstream.kernels.hashing import hash_columns, unkeyed_hashes
from braidstream.kernels.routing import Routes, Tally, route
from braidstream.kernels.rows import HASH, KEY, MASK, TIME, stored_name, user_name
from braidstream.kernels.sizes import cut, joined, narrow, one_chunk
from braidstream.model.columns import FAILED
from braidstream.model.envelopes import Content, Envelope, Kind
from braidstream.model.stores import Branch, Passing, Store
from braidstream.model.values import changed
from braidstream.plan.direct_keys import KeyColumns
from braidstream.query import describe_duration
from braidstream.slot.allocators import spare_what_stays
from braidstream.slot.epoch_task import read_manifest, routes_of
from braidstream.slot.handover import handed_over
from braidstream.spark.names import column_of, pattern_of
from braidstream.spark.parquet import ParquetReader
from braidstream.spark.tasks import ENVELOPE, batch_id
from braidstream.spark.trying import Tries, failed_column
from braidstream.spark.utc_schemas import utc_schema

__all__ = [
    "DIRECT_OPTIONS",
    "DirectRouter",
    "FilesSource",
    "Router",
    "Stream",
    "direct_frame",
    "fixed_width",
    "general_columns",
    "general_frame",
    "sent_frame",
]

DIRECT_OPTIONS = frozenset(
    name.lower()
    for name in (
        "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly", "cleanSource",
        "sourceArchiveDir", "pathGlobFilter", "recursiveFileLookup", "maxCachedFiles", "discardCachedInputRatio",
    )
)  # fmt: skip
"""Options that say which files are read, not how: a stream with only these can be read directly."""
_PATHS = "path string, modificationTime timestamp, length long, content binary"
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1_000_000, 1 << 27
_FIRST_FILES = 8


@dataclass(frozen=True)
class FilesSource:
    """Parquet files under a path."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    order: str | None = None
    """In which order they are read, where that was asked for (`spark/file_order.py`)."""
    is_partitioned: bool = False
    """Whether folders in the path hold values, so that the files cannot be read from elsewhere."""

    @property
    def pattern(self) -> str:
        """The path for Spark, which takes it for a pattern."""
        return pattern_of(self.path)

    def first_files(self) -> list[str]:
        """A few of the files that are there already; none where the path is no folder on this machine."""
        folder = Path(self.path)
        names = sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
        glob = {name.lower(): value for name, value in self.options.items()}.get("pathglobfilter", "*")
        return [str(p) for p in names if not p.name.startswith(("_", ".")) and fnmatch(p.name, glob)][:_FIRST_FILES]


@dataclass(frozen=True)
class Stream:
    """A declared stream: its DataFrame, its event time, and how late a tuple may come."""

    name: str
    frame: DataFrame
    schema: StructType
    time: str
    delay_us: int
    files: FilesSource | None = None
    """Where it may be read directly."""
    source: FilesSource | None = None
    """Where it is files at all, that this machine can look at."""
    is_measured: bool = False
    """Whether no delay was given, so that it is measured from the files when the flow starts."""
    idle_us: int | None = None
    """After how long a silence, in wall time, the watermark goes on without it; None: never."""
    told: str = ""
    """What a start found out about its files, for `explain`."""

    @property
    def shown_delay(self) -> str:
        """Its delay in words, and what is known of the order of its files."""
        if self.is_measured and not self.told and not self.delay_us:
            return "as measured from its files at the start"
        return describe_duration(self.delay_us) + self.told


@dataclass(frozen=True)
class Router:
    """What a routing task needs: the branch, the Arrow types of the stream's columns, and where the manifests are."""

    root: str
    run: str
    branch: Branch
    schema: pa.Schema
    folder: str | None = None
    """Where large envelopes are handed over, if slots run on the same machine."""
    keys: KeyColumns = field(default_factory=dict)
    """The keys that arrive as columns, to be hashed here."""

    def routes(self) -> Routes:
        """The routes of the epoch that this task belongs to, from the manifest before it."""
        return routes_of(read_manifest(self.root, batch_id() - 1, self.run))

    def envelopes(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Route tables of the branch; the tally of all of them comes last."""
        return handed_over(self._routed(tables), self.folder)

    def _routed(self, tables: Iterator[pa.Table]) -> Iterator[Envelope]:
        spare_what_stays("routing")
        tally = Tally(self.branch.stream, began=time.time())
        routes = self.routes()
        for table in _gathered(tables):
            envelopes, seen = route(self._keyed(table), self.branch, routes)
            tally = tally.plus(seen)
            yield from envelopes
        tally = changed(tally, ended=time.time())
        yield Envelope(0, Kind(Content.TALLY), tally.pack())
        if self.branch.tells_all:
            yield from (Envelope(slot, Kind(Content.SEEN), tally.pack()) for slot in range(routes.n_slots))

    def _keyed(self, table: pa.Table) -> pa.Table:
        """With what routing needs of the keys that arrived as columns."""
        for name, values in _made_of_keys(table, self.branch, self.keys, stored_name).items():
            table = table.append_column(name, values)
        return table

    def cast(self, table: pa.Table) -> pa.Table:
        """The stream's columns in the types that are stored, whatever time zone or width Arrow was given."""
        kinds = {stored_name(field.name): field.type for field in self.schema}
        columns = []
        for name, values in zip(table.column_names, table.columns, strict=True):
            wanted = kinds[name] if name in kinds else _in_utc(values.type)
            columns.append(values if values.type == wanted else values.cast(wanted))
        return pa.table(columns, names=table.column_names)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Times of keys are stored in UTC, whatever the session's zone."""
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def general_columns(time: str, branch: Branch, keys: KeyColumns) -> dict[str, Column]:
    """What Spark sends of a stream's rows: what routing needs, and columns of keys that it hashes itself."""
    columns, tries = {TIME: column_of(time)}, Tries(branch.tried)
    for store in branch.stores:
        if store.index not in keys:
            columns |= _computed_keys(store, tries)
        if store.filters:
            columns[store.branch_column(MASK)] = _mask(store.filters, tries, branch.tests)
        if store.keyless is not None and tries.are_in(store.key):
            columns[store.branch_column(FAILED)] = reduce(Column.__or__, map(tries.fails, store.key))
    if branch.attempts:
        columns[FAILED] = failed_column(branch.attempts, tries)
    for added in branch.computed:
        if added.name not in keys:
            key = tries.value(added.key)
            columns[added.name] = F.when(key.isNotNull(), F.xxhash64(key)) if added.is_hash else key
    named = {stored_name(name): name for own in keys.values() for name, _ in own}
    named |= {name: user_name(name) for name in branch.payload}
    return columns | {stored: column_of(name) for stored, name in named.items()}


def _computed_keys(store: Store, tries: Tries) -> dict[str, Column]:
    """The hash of a store's key, and the key where hashes may collide."""
    keys = [tries.value(key) for key in store.key]
    present = reduce(Column.__and__, [key.isNotNull() for key in keys])
    columns = {store.branch_column(HASH): F.when(present, F.xxhash64(*keys))}
    if store.verified:
        columns |= {store.branch_column(f"{KEY}{i}"): tries.value(key) for i, key in enumerate(store.compared)}
    return columns


def general_frame(stream: Stream, router: Router, n_tasks: int) -> DataFrame:
    """The branch of any stream: Spark computes what routing needs, Python routes, in no more tasks than cores."""
    columns = general_columns(stream.time, router.branch, router.keys)
    names = list(columns)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([batch]).rename_columns(names) for batch in batches)
        return router.envelopes(router.cast(table) for table in tables)

    # mapInArrow resolves columns by name, and chokes on dots and quotes: numbers instead.
    needed = (
        Tries(router.branch.tried)
        .over(stream.frame)
        .select(*(column.alias(f"c{i}") for i, column in enumerate(columns.values())))
    )
    needed = needed if router.branch.stores else needed.where(F.lit(False))
    return needed.coalesce(n_tasks).mapInArrow(run, ENVELOPE)


def sent_frame(stream: Stream, branch: Branch, keys: KeyColumns) -> DataFrame:
    """The rows that Spark hands to routing, where no expression may fail."""
    columns = general_columns(stream.time, branch, keys).values()
    return stream.frame.select(*(column.alias(f"c{i}") for i, column in enumerate(columns)))


def fixed_width(stream: Stream, branch: Branch, keys: KeyColumns) -> int | None:
    """The bytes that Spark hands to routing of each row, where every row has as many; None where rows differ.

    And where Python functions run on the way, for what these are handed is limited in the same way.
    """
    if branch.attempts:
        return None
    frame = sent_frame(stream, branch, keys)
    sent = utc_schema(frame.schema)
    if not all(_is_fixed(field.type) for field in sent) or _runs_python(frame):
        return None
    return sum(-(-int(field.type.bit_width) // 8) for field in sent)


def _runs_python(frame: DataFrame) -> bool:
    """Whether Spark's plan of a frame has functions that Python workers run."""
    patterns: Any = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    analyzed = frame._jdf.queryExecution().analyzed()
    names = str(patterns.values().mkString(",")).split(",")
    return any(analyzed.containsPattern(patterns.withName(name)) for name in names if "PYTHON" in name)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _mask(filters: Sequence[str], tries: Tries, tests: Sequence[Passing]) -> Column:
    mask, tested = F.lit(0).cast("long"), {test.filter: tries.passes(test) for test in tests}
    for bit, condition in enumerate(filters):
        holds = tested[condition] if condition in tested else F.expr(condition)
        mask = mask.bitwiseOR(F.when(holds, F.lit(1 << bit)).otherwise(F.lit(0)).cast("long"))
    return mask


@dataclass(frozen=True)
class DirectRouter:
    """A router that reads its files itself."""

    router: Router
    time: str
    keys: KeyColumns
    is_case_sensitive: bool = False

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        payload = [user_name(name) for name in self.router.branch.payload]
        return list(dict.fromkeys([self.time, *payload, *(name for key in self.keys.values() for name, _ in key)]))

    @property
    def reader(self) -> ParquetReader:
        """What reads them."""
        return ParquetReader(self.router.schema, self.is_case_sensitive)

    def check(self, source: FilesSource) -> None:
        """Refuse files whose footers say already that their columns are not what the stream declares."""
        for path in source.first_files() if self.router.branch.stores else ():
            self.reader.check(self.router.branch.stream, path, self.columns)

    def envelopes(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Route the rows of files."""
        if not self.router.branch.stores:
            return iter(())
        return self.router.envelopes(self._read(path) for path in paths)

    def _read(self, path: str) -> pa.Table:
        """The branch's table of a file."""
        found, branch = self.reader.read(path, self.columns), self.router.branch
        columns = {TIME: found.column(self.time), **{n: found.column(user_name(n)) for n in branch.payload}}
        return pa.table(columns | _made_of_keys(found, branch, self.keys, str))


def direct_frame(spark: SparkSession, streams: Sequence[tuple[Stream, DirectRouter]], n_tasks: int) -> DataFrame:
    """The branches of all streams that are read directly, in as few tasks as there are cores, since each costs time."""
    frames = []
    for place, (stream, _) in enumerate(streams):
        assert stream.files is not None
        source = spark.readStream.format("binaryFile").schema(_PATHS).options(**stream.files.options)
        frames.append(source.load(stream.files.pattern).select(F.lit(place).alias("place"), "path"))
    routers = [router for _, router in streams]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths: dict[int, list[str]] = defaultdict(list)
        for batch in batches:
            for place, path in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                paths[place].append(path)
        for place in sorted(paths):
            yield from routers[place].envelopes(paths[place])

    return reduce(DataFrame.unionByName, frames).coalesce(n_tasks).mapInArrow(run, ENVELOPE)


def _made_of_keys(
    table: pa.Table, branch: Branch, keys: KeyColumns, named: Callable[[str], str]
) -> dict[str, pa.Array]:
    """What routing needs of keys that are columns of a table under such names: hashes, and values to compare."""
    values = {of: [_key(table, named(name), kind) for name, kind in own] for of, own in keys.items()}
    columns = {}
    for added in branch.computed:
        if added.name in keys:
            columns[added.name] = _hashes(values[added.name]) if added.is_hash else values[added.name][0]
    for store in branch.stores:
        if store.index in keys:
            own = values[store.index]
            columns[store.branch_column(HASH)] = (
                unkeyed_hashes(table.num_rows) if store.is_unkeyed else _hashes(own[: len(store.key)])
            )
            if store.verified:
                columns |= {store.branch_column(f"{KEY}{i}"): one for i, one in enumerate(own)}
    return columns


def _key(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    values = one_chunk(table, name)
    return values if narrow(values.type) == kind else values.cast(kind)


def _hashes(keys: Sequence[pa.Array]) -> pa.Array:
    hashes, valid = hash_columns(keys)
    return pa.array(hashes.view("int64"), mask=None if valid.all() else ~valid)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Batches of the source put together, because each costs a fixed amount to route; large ones cut by bytes."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        for piece in [table] if table.nbytes <= _BYTES_AT_ONCE else cut(table, _BYTES_AT_ONCE):
            waiting.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield joined(waiting)
                waiting, rows, size = [], 0, 0
    if rows:
        yield joined(waiting)
