"""Parquet files read as Spark reads them, without Spark: which column of a file is which, and what its type becomes.

Files differ from the declared schema: columns are missing, in another order, in another case, of another type. Spark's
vectorized reader converts between some types and refuses the others; `conversion` is that table, leaf by leaf of nested
types (`tests/spark/test_parquet.py` compares every pair with Spark). So a stream of files means the same whoever reads
it, and what Spark refuses is refused here with the name of file and column.

Invariants: what `ParquetReader.read` gives has exactly the wanted columns in the types of the schema, and is what Spark
gives for the same file under the settings that `reads_as_spark` asks for. Times before 1900 (dates: 1582) of files that
Spark 2 wrote are in another calendar: such files are refused where they hold any.
Cost: that of pyarrow's reader, and one pass over each column whose type differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from braidstream.errors import RunError, StreamError

__all__ = [
    "Leaf",
    "ParquetReader",
    "conversion",
    "is_case_sensitive",
    "is_readable",
    "local_path",
    "reads_as_spark",
]

_USUAL = {
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "true",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "corrected",
    "spark.sql.parquet.int96RebaseModeInRead": "corrected",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
"""Settings that change what Spark reads from a file, and the values that this module is written for."""
_EPOCH_1900, _EPOCH_1582 = -2_208_988_800_000_000, -141_427
_UTC = pa.timestamp("us", "UTC")
_NTZ = pa.timestamp("us")
_PLAIN = (
    BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, BinaryType, DateType, DecimalType,
    TimestampType, TimestampNTZType, DayTimeIntervalType, StringType,
)  # fmt: skip

Convert = Callable[[pa.Array], pa.Array]


def reads_as_spark(spark: SparkSession) -> bool:
    """Whether a session's settings are those under which Spark reads what is read here."""
    return all(str(spark.conf.get(name, usual)).lower() == usual for name, usual in _USUAL.items())


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names that differ in case are different names."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def is_readable(kind: DataType) -> bool:
    """Whether columns of a type are read here; those of all others are left to Spark."""
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(is_readable(field.dataType) for field in kind.fields)
    if isinstance(kind, MapType):
        return is_readable(kind.keyType) and is_readable(kind.valueType)
    if isinstance(kind, ArrayType):
        return is_readable(kind.elementType)
    return type(kind) in _PLAIN


def local_path(path: str) -> str:
    """The path of a local file that Spark's file source names."""
    local = path.removeprefix("file:")
    return "/" + local.lstrip("/") if local != path else local


@dataclass(frozen=True)
class Leaf:
    """A column of values in a file: its physical type, and what it is said to mean."""

    physical: str
    logical: str = "NONE"
    unit: str = ""
    """Of times: s, ms, us or ns."""
    is_signed: bool = True
    bits: int = 0
    precision: int = 0
    scale: int = 0

    @classmethod
    def of(cls, column: pq.ColumnSchema) -> Leaf:
        """From the footer."""
        told = json.loads(column.logical_type.to_json())
        unit = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}.get(told.get("timeUnit", ""), "")
        logical = column.logical_type.type
        return cls(
            column.physical_type, "NONE" if logical in ("NULL", "UNDEFINED") else logical, unit,
            told.get("isSigned", True), told.get("bitWidth", 0), told.get("precision", 0), told.get("scale", 0),
        )  # fmt: skip

    def __str__(self) -> str:
        details = {"TIMESTAMP": self.unit, "TIME": self.unit, "DECIMAL": f"{self.precision}, {self.scale}"}
        details["INT"] = f"{self.bits}" if self.is_signed else f"{self.bits}, unsigned"
        shown = f"({details[self.logical]})" if self.logical in details else ""
        return self.physical + ("" if self.logical == "NONE" else f" {self.logical}{shown}")


def conversion(leaf: Leaf, wanted: pa.DataType) -> Convert | None:
    """How values of a file become values of a declared type; None where Spark refuses, or reads bytes as they lie."""
    if leaf.logical == "DECIMAL" and pa.types.is_decimal(wanted):
        more = wanted.scale - leaf.scale
        return partial(_cast, kind=wanted) if 0 <= more <= wanted.precision - leaf.precision else None
    if leaf.physical == "INT32":
        return _of_int32(leaf, wanted)
    if leaf.physical == "INT64":
        return _of_int64(leaf, wanted)
    same = {
        "BOOLEAN": (pa.bool_(),),
        "FLOAT": (pa.float32(), pa.float64()),
        "DOUBLE": (pa.float64(),),
        "INT96": (_UTC, _NTZ),
        "BYTE_ARRAY": () if leaf.logical == "DECIMAL" else (pa.string(), pa.binary()),
        "FIXED_LEN_BYTE_ARRAY": (pa.binary(),) if leaf.logical == "NONE" else (),
    }
    if wanted not in same.get(leaf.physical, ()):
        return None
    return partial(_moments, unit="us", kind=wanted) if leaf.physical == "INT96" else partial(_cast, kind=wanted)


def _of_int32(leaf: Leaf, wanted: pa.DataType) -> Convert | None:
    is_unsigned = leaf.logical == "INT" and not leaf.is_signed
    if pa.types.is_decimal(wanted):
        fits = leaf.logical in ("NONE", "INT") and not is_unsigned and wanted.precision - wanted.scale >= 10
        return partial(_of_whole, leaf=leaf, kind=wanted) if fits else None
    if is_unsigned and leaf.bits == 32 and wanted != pa.float64():  # as a double, Spark takes it for signed
        return partial(_cast, kind=wanted) if wanted == pa.int64() else None
    if leaf.logical == "DATE" and wanted == _NTZ:
        return lambda values: values.cast(pa.date32()).cast(wanted)
    numbers = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.date32())
    return partial(_of_whole, leaf=leaf, kind=wanted) if wanted in numbers else None


def _of_int64(leaf: Leaf, wanted: pa.DataType) -> Convert | None:
    is_plain = leaf.logical in ("NONE", "INT") and leaf.is_signed
    if leaf.logical == "INT" and not leaf.is_signed:
        return partial(_cast, kind=wanted) if wanted == pa.decimal128(20, 0) else None
    if pa.types.is_decimal(wanted):
        fits = is_plain and wanted.precision - wanted.scale >= 20
        return partial(_of_whole, leaf=leaf, kind=wanted) if fits else None
    if leaf.logical == "TIMESTAMP" and leaf.unit != "ns" and wanted in (_UTC, _NTZ):
        return partial(_moments, unit=leaf.unit, kind=wanted)
    if is_plain and pa.types.is_duration(wanted):
        return lambda values: _whole(values, leaf).cast(wanted)
    return partial(_of_whole, leaf=leaf, kind=wanted) if wanted == pa.int64() else None


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return _plain(values).cast(kind)


def _moments(values: pa.Array, unit: str, kind: pa.DataType) -> pa.Array:
    """Times in UTC or without a zone alike: Spark takes the number as it is."""
    whole = _whole(values, Leaf("INT64", "TIMESTAMP", unit))
    return whole.cast(pa.timestamp(unit)).cast(_NTZ).cast(pa.int64()).cast(kind)


def _of_whole(values: pa.Array, leaf: Leaf, kind: pa.DataType) -> pa.Array:
    """What is stored as a whole number, as a number of another width (which may wrap), or as days."""
    whole = _whole(values, leaf)
    return whole.cast(pa.int32()).cast(kind) if kind == pa.date32() else whole.cast(kind, safe=False)


def _whole(values: pa.Array, leaf: Leaf) -> pa.Array:
    """The numbers that are stored, whatever Arrow has made of them."""
    values, width = _plain(values), pa.int32() if leaf.physical == "INT32" else pa.int64()
    if pa.types.is_decimal(values.type):
        words = np.frombuffer(values.buffers()[1], dtype=np.int64)[0::2][values.offset : values.offset + len(values)]
        return pa.array(words, mask=np.asarray(values.is_null().to_numpy(zero_copy_only=False))).cast(width)
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp(leaf.unit, values.type.tz))
    elif pa.types.is_date(values.type):
        values = values.cast(pa.date32())
    elif pa.types.is_time(values.type):
        values = values.cast(pa.time32("ms") if leaf.physical == "INT32" else pa.time64(leaf.unit))
    return values.cast(width, safe=False)


def _plain(values: pa.Array) -> pa.Array:
    """Without what only Arrow knows of: extension types and dictionaries."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


@dataclass(frozen=True)
class _Node:
    """A column of a file, or a part of a nested one: in the tree that the footer describes."""

    name: str
    leaf: Leaf | None
    children: tuple[_Node, ...] = ()
    shape: str = ""
    """Of what has children: struct, list or map."""

    def __str__(self) -> str:
        return str(self.leaf) if self.leaf is not None else self.shape


def _nodes(fields: Sequence[pa.Field], leaves: Iterator[Leaf]) -> tuple[_Node, ...]:
    return tuple(_node(field.name, field.type, leaves) for field in fields)


def _node(name: str, kind: pa.DataType, leaves: Iterator[Leaf]) -> _Node:
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_struct(kind):
        return _Node(name, None, _nodes([kind.field(i) for i in range(kind.num_fields)], leaves), "struct")
    if pa.types.is_map(kind):
        return _Node(name, None, _nodes([kind.key_field, kind.item_field], leaves), "map")
    if hasattr(kind, "value_field"):
        return _Node(name, None, _nodes([kind.value_field], leaves), "list")
    return _Node(name, next(leaves))


class _NotReadable(Exception):
    """What Spark would not read, in words."""

    def __init__(self, where: str, found: str, expected: str) -> None:
        super().__init__(f"column {where!r} is {found}, which is not read as {expected}")

    expected = "files of the declared schema, or of types that Spark widens to it"
    fix = "correct the schema, move the file away, or read the files by spark.readStream and cast"


@dataclass(frozen=True)
class _Matching:
    """How the parts of one file become the parts of a schema."""

    is_case_sensitive: bool
    old_moments: bool
    """Whether times before 1900 are in the calendar that Spark 2 used, and dates before 1582."""
    old_int96: bool

    def found(self, name: str, nodes: Sequence[_Node], where: str) -> int | None:
        """The place of the node of that name; None where there is none."""
        same = [i for i, node in enumerate(nodes) if self._key(node.name) == self._key(name)]
        if len(same) > 1:
            names = ", ".join(repr(nodes[i].name) for i in same)
            raise _NotReadable(where, f"the columns {names}", "one that has the name in any case of letters")
        return same[0] if same else None

    def _key(self, name: str) -> str:
        return name if self.is_case_sensitive else name.lower()

    def convert(self, node: _Node, wanted: pa.DataType, where: str) -> Convert:
        """How values of a node become values of the wanted type."""
        if node.leaf is not None:
            return self._leaf(node.leaf, wanted, where)
        if node.shape == "struct" and pa.types.is_struct(wanted):
            return self._struct(node, wanted, where)
        if node.shape == "map" and pa.types.is_map(wanted):
            key = self.convert(node.children[0], wanted.key_type, f"{where}.key")
            return partial(_mapped, wanted, key, self.convert(node.children[1], wanted.item_type, f"{where}.value"))
        if node.shape == "list" and pa.types.is_list(wanted):
            return partial(_listed, wanted, self.convert(node.children[0], wanted.value_type, f"{where}.element"))
        raise _NotReadable(where, str(node), str(wanted))

    def _struct(self, node: _Node, wanted: pa.DataType, where: str) -> Convert:
        parts: list[tuple[int, Convert] | None] = []
        for field in wanted:
            inner = f"{where}.{field.name}"
            at = self.found(field.name, node.children, inner)
            parts.append(None if at is None else (at, self.convert(node.children[at], field.type, inner)))
        return partial(_structured, wanted, parts)

    def _leaf(self, leaf: Leaf, wanted: pa.DataType, where: str) -> Convert:
        made = conversion(leaf, wanted)
        if made is None:
            raise _NotReadable(where, str(leaf), str(wanted))
        if pa.types.is_date(wanted) or leaf.logical == "DATE":
            return partial(_modern, made, _EPOCH_1582, where) if self.old_moments else made
        is_old = self.old_int96 if leaf.physical == "INT96" else self.old_moments
        return partial(_modern, made, _EPOCH_1900, where) if is_old and wanted == _UTC else made


def _modern(convert: Convert, first: int, where: str, values: pa.Array) -> pa.Array:
    """Converted values, none of which lies before the time from which on all calendars agree."""
    made = convert(values)
    days_or_us = made.cast(pa.int32() if pa.types.is_date(made.type) else pa.int64())
    least = pc.min(days_or_us).as_py()
    limit = first * 86_400_000_000 if made.type == _NTZ else first
    if least is not None and least < limit:
        year = 1582 if first == _EPOCH_1582 else 1900
        raise _NotReadable(where, f"a time before {year} in the calendar of an old version of Spark", "later ones")
    return made


def _structured(kind: pa.DataType, parts: Sequence[tuple[int, Convert] | None], values: pa.Array) -> pa.Array:
    children = [
        pa.nulls(len(values), field.type) if part is None else part[1](values.field(part[0]))
        for field, part in zip(kind, parts, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _listed(kind: pa.DataType, convert: Convert, values: pa.Array) -> pa.Array:
    if not pa.types.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(kind, len(values), buffers, -1, values.offset, [convert(values.values)])


def _mapped(kind: pa.DataType, key: Convert, value: Convert, values: pa.Array) -> pa.Array:
    both, fields = [key(values.keys), value(values.items)], [kind.key_field, kind.item_field]
    entries = pa.StructArray.from_arrays(both, fields=fields)
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], -1, values.offset, [entries])


@dataclass(frozen=True)
class ParquetReader:
    """Reads files of a stream: its columns and their types, and how names are compared."""

    schema: pa.Schema
    is_case_sensitive: bool = False

    def read(self, path: str, columns: Sequence[str]) -> pa.Table:
        """These columns of a file, NULL where it has none of the name."""
        with _opened(local_path(path)) as file:
            parts = self._parts(file, columns)
            leaves = sorted(at for part in parts if part is not None for at in part[1])
            table = file.reader.read_all(column_indices=leaves, use_threads=False)
            order = {place: at for at, place in enumerate(sorted(part[0] for part in parts if part is not None))}
            n_rows = file.metadata.num_rows
            read = [
                pa.nulls(n_rows, self.schema.field(name).type)
                if part is None
                else _converted(table.column(order[part[0]]), self.schema.field(name).type, part[2])
                for name, part in zip(columns, parts, strict=True)
            ]
        return pa.table(read, names=list(columns))

    def check(self, stream: str, path: str, columns: Sequence[str]) -> None:
        """Refuse a stream with a file of which `read` could not give these columns, from its footer."""
        try:
            with suppress(OSError, pa.ArrowException), pq.ParquetFile(path, memory_map=True) as file:
                self._parts(file, columns)
        except _NotReadable as error:
            raise StreamError(f"stream {stream!r}: {path}: {error}", error.expected, error.fix) from None

    def _parts(self, file: pq.ParquetFile, columns: Sequence[str]) -> list[tuple[int, list[int], Convert] | None]:
        """For each column: its place in the file, the places of its leaves, and how it is converted."""
        leaves = [Leaf.of(file.schema.column(i)) for i in range(len(file.schema))]
        left = iter(leaves)
        nodes = _nodes(list(file.schema_arrow), left)
        first = np.cumsum([0, *(_n_leaves(node) for node in nodes)]).tolist()
        told = file.metadata.metadata or {}
        version = told.get(b"org.apache.spark.version", b"").decode()
        matching = _Matching(
            self.is_case_sensitive,
            b"org.apache.spark.legacyDateTime" in told or bool(version and _before(version, (3, 0))),
            b"org.apache.spark.legacyINT96" in told or bool(version and _before(version, (3, 1))),
        )
        parts: list[tuple[int, list[int], Convert] | None] = []
        for name in columns:
            at = matching.found(name, nodes, name)
            if at is None:
                parts.append(None)
            else:
                convert = matching.convert(nodes[at], self.schema.field(name).type, name)
                parts.append((at, list(range(first[at], first[at + 1])), convert))
        return parts


def _n_leaves(node: _Node) -> int:
    return 1 if node.leaf is not None else sum(_n_leaves(child) for child in node.children)


def _before(version: str, first: tuple[int, int]) -> bool:
    numbers = [int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2]]
    return (*numbers, 0, 0)[:2] < first


def _converted(values: pa.ChunkedArray, kind: pa.DataType, convert: Convert) -> pa.ChunkedArray:
    return pa.chunked_array([convert(chunk) for chunk in values.chunks], kind)


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    """A file; errors name it."""
    try:
        with pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
            yield file
    except _NotReadable as error:
        raise RunError(f"{path}: {error}", error.expected, error.fix) from None
    except (OSError, pa.ArrowException) as error:
        raise RunError(
            f"{path}: cannot be read as Parquet ({error})", "complete Parquet files", "move the file away, then restart"
        ) from None
