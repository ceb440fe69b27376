"""Parquet files read without Spark give what Spark's reader gives, for every pair of types, or are refused alike."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from braidstream.errors import RunError, StreamError
from braidstream.spark.parquet import Leaf, ParquetReader, conversion, is_readable

pytestmark = pytest.mark.spark


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


N_ROWS = 40
WANTED = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal(4,1)", "decimal(5,2)", "decimal(7,3)", "decimal(9,0)", "decimal(10,0)", "decimal(12,2)",
    "decimal(20,0)", "decimal(22,2)", "decimal(38,10)", "decimal(38,0)",
)  # fmt: skip
_BYTES = ("float16", "decimal_5_2", "decimal_9_0", "decimal_15_2", "decimal_25_4", "decimal_38_0")
RAW = {(name, "binary") for name in _BYTES}
"""Pairs that Spark reads as the bytes lie, and that are refused here."""


def mixed(random: Random, values: list[Any]) -> list[Any]:
    return [*values, *(random.choice([None, *values]) for _ in range(N_ROWS - len(values)))]


def kinds(random: Random) -> dict[str, pa.Array]:
    """A column of every kind that files are written with, by the name of the kind."""
    found: dict[str, pa.Array] = {"bool": pa.array(mixed(random, [True, False]))}
    for bits in (8, 16, 32, 64):
        info, unsigned = np.iinfo(f"int{bits}"), np.iinfo(f"uint{bits}")
        found[f"int{bits}"] = pa.array(mixed(random, [info.min, info.max, 0, 1, -1]), f"int{bits}")
        found[f"uint{bits}"] = pa.array(mixed(random, [0, 1, unsigned.max, info.max + 1]), f"uint{bits}")
    found["float16"] = pa.array([np.float16(x) for x in range(N_ROWS)], pa.float16())
    floats = [0.0, -0.0, 1.1, float("inf"), float("nan"), -1e30]
    found |= {"float": pa.array(mixed(random, floats), "float"), "double": pa.array(mixed(random, floats), "double")}
    texts = ["", "a", "1", "ü 😀", "x" * 300]
    found |= {"string": pa.array(mixed(random, texts)), "large_string": pa.array(mixed(random, texts), "large_string")}
    found["dictionary"] = pa.array(mixed(random, texts)).dictionary_encode()
    found["binary"] = pa.array(mixed(random, [text.encode() for text in texts]), "binary")
    found["fixed_binary"] = pa.array(mixed(random, [b"abcd", b"\x00\x01\x02\x03"]), pa.binary(4))
    days = mixed(random, [date(2024, 2, 29), date(1969, 12, 31), date(1500, 3, 1), date(9999, 12, 31), date(1, 1, 1)])
    found |= {"date32": pa.array(days, "date32"), "date64": pa.array(days, "date64")}
    found |= {"time_ms": pa.array(range(N_ROWS), pa.time32("ms")), "time_us": pa.array(range(N_ROWS), pa.time64("us"))}
    found |= {
        "time_ns": pa.array(range(N_ROWS), pa.time64("ns")),
        "duration": pa.array(range(N_ROWS), pa.duration("us")),
    }
    moments = [utc(2024, 1, 2, 3, 4, 5, 678901), utc(1969, 12, 31, 23, 59, 59, 999999), utc(1850, 1, 1)]
    narrow = pa.array(mixed(random, moments), pa.timestamp("us"))
    wide = pa.array(mixed(random, [*moments, utc(1500, 1, 1), utc(9999, 1, 1)]), pa.timestamp("us"))
    for unit in ("s", "ms", "us", "ns"):
        values = (narrow if unit == "ns" else wide).cast(pa.timestamp(unit), safe=False)
        found |= {f"timestamp_{unit}": values, f"timestamp_{unit}_utc": values.cast(pa.timestamp(unit, "UTC"))}
    for precision, scale in ((5, 2), (9, 0), (15, 2), (25, 4), (38, 0)):
        most = f"{'9' * precision}e-{scale}"
        numbers = mixed(random, [Decimal(most), Decimal(f"-{most}"), Decimal(0), Decimal(f"1e-{scale}")])
        found[f"decimal_{precision}_{scale}"] = pa.array(numbers, pa.decimal128(precision, scale))
    return found


def written(folder: Path, random: Random) -> Iterator[tuple[Path, dict[str, pa.Array]]]:
    """Files with a column of every kind, as different writers write them."""
    columns = kinds(random)
    at_times = {name: values for name, values in columns.items() if name in ("timestamp_us", "timestamp_us_utc")}
    decimals = {
        name: values for name, values in columns.items() if name in ("decimal_5_2", "decimal_9_0", "decimal_15_2")
    }
    for name, own, options in (
        ("usual", columns, {}),
        ("int96", at_times, {"use_deprecated_int96_timestamps": True}),
        ("whole", decimals, {"store_decimal_as_integer": True}),
        ("foreign", {n: v for n, v in columns.items() if n != "float16"}, {"store_schema": False}),
    ):
        path = folder / f"{name}.parquet"
        pq.write_table(pa.table(own), path, **options)
        yield path, own


def reader_of(ddl: str | StructType, **options: Any) -> ParquetReader:
    kind = _parse_datatype_string(ddl) if isinstance(ddl, str) else ddl
    return ParquetReader(to_arrow_schema(kind, timezone="UTC"), **options)


def by_spark(spark: SparkSession, path: Path, ddl: str) -> pa.Table:
    return spark.read.schema(ddl).parquet(str(path)).toArrow()


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal row by row; NaN is NaN, and the two zeros differ."""
    return [repr(row) for row in plain(found)] == [repr(row) for row in plain(expected)]


def plain(table: pa.Table) -> list[Any]:
    """The rows, with numbers for days and moments: Python knows only those of some years."""
    numbers = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()}
    kinds = [pa.field(field.name, numbers.get(field.type, field.type)) for field in table.schema]
    return list(table.cast(pa.schema(kinds)).to_pylist())


@pytest.mark.parametrize("seed", [1])
def test_every_conversion_gives_what_spark_gives(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    n_pairs, unequal = 0, []
    for path, columns in written(tmp_path, Random(seed)):
        leaves = pq.ParquetFile(path).schema
        for wanted in WANTED:
            kind = reader_of(f"x {wanted}").schema.field(0).type
            read = [n for i, n in enumerate(columns) if conversion(Leaf.of(leaves.column(i)), kind) is not None]
            ddl = ", ".join(f"{name} {wanted}" for name in read)
            if read:
                found = reader_of(ddl).read(f"file:{path}", read)
                expected = by_spark(spark, path, ddl)
                differ = (n for n in read if not same(found.select([n]), expected.select([n])))
                unequal += [(path.name, name, wanted) for name in differ]
                assert found.schema.types == [kind] * len(read)
            n_pairs += len(read)
    assert not unequal
    assert n_pairs > 200


def refused_pairs(folder: Path) -> list[tuple[Path, str, str]]:
    found = []
    for path, columns in written(folder, Random(2)):
        leaves = pq.ParquetFile(path).schema
        for i, name in enumerate(columns):
            refused = (
                w for w in WANTED if conversion(Leaf.of(leaves.column(i)), reader_of(f"x {w}").schema[0].type) is None
            )
            found += [(path, name, wanted) for wanted in refused if (name, wanted) not in RAW]
    return found


def check_refused(spark: SparkSession, path: Path, name: str, wanted: str) -> None:
    with pytest.raises(RunError, match=f"{path}: column '{name}'"):
        reader_of(f"{name} {wanted}").read(str(path), [name])
    with pytest.raises(StreamError, match=f"stream 'R': {path}: column '{name}'"):
        reader_of(f"{name} {wanted}").check("R", str(path), [name])
    with pytest.raises((PySparkException, Py4JJavaError)):
        spark.read.schema(f"{name} {wanted}").parquet(str(path)).collect()


def test_some_of_the_other_pairs_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    pairs = refused_pairs(tmp_path)
    known = [("double", "decimal(5,2)"), ("int64", "string"), ("timestamp_ns", "timestamp"), ("int64", "int")]
    chosen = [next(p for p in pairs if p[1:] == pair) for pair in known]
    for pair in [*chosen, *Random(3).sample(pairs, 6)]:
        check_refused(spark, *pair)


@pytest.mark.acceptance
def test_all_other_pairs_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    for pair in refused_pairs(tmp_path):
        check_refused(spark, *pair)


NESTED = pa.table(
    {
        "s": [{"a": 1, "B": "x", "more": 2}, None, {"a": None, "B": None, "more": None}, {"a": 2, "B": "", "more": 0}],
        "l": [[{"A": 1, "t": 5}], None, [], [None, {"A": None, "t": 6}, {"A": 7, "t": None}]],
        "m": pa.array(
            [[("k", {"A": 1})], None, [], [("x", None), ("y", {"A": 2})]],
            pa.map_(pa.string(), pa.struct([("A", pa.int32())])),
        ),
        "d": pa.array([[[1], None], None, [[]], [[2, None]]], pa.large_list(pa.list_(pa.int32()))),
        "f": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int16(), 2)),
        "K": pa.array([1, 2, 3, 4], pa.int32()),
    }
).set_column(1, "l", pa.array([[{"A": 1, "t": 5}], None, [], [None, {"A": None, "t": 6}, {"A": 7, "t": None}]],
    pa.list_(pa.struct([("A", pa.int32()), ("t", pa.int64())]))))  # fmt: skip


def test_nested_names_and_types_are_matched_as_spark_matches_them(spark: SparkSession, tmp_path: Path) -> None:
    """In any case of letters, in any order, at any depth; missing fields are NULL, others are left out."""
    path = tmp_path / "nested.parquet"
    pq.write_table(NESTED.slice(0, 4), path, row_group_size=3)
    ddls = (
        "S struct<b: string, A: bigint, zz: int>, k bigint, L array<struct<zz: int, a: double>>, missing string",
        "m map<string, struct<a: decimal(12,2), zz: string>>, d array<array<bigint>>, f array<bigint>",
        "s struct<zz: int>, l array<struct<T: bigint>>, m map<binary, struct<zz: array<int>>>, gone struct<a: int>",
    )
    for ddl in ddls:
        expected = by_spark(spark, path, ddl)
        assert same(reader_of(ddl).read(str(path), expected.column_names), expected)


@pytest.mark.parametrize("seed", range(3))
def test_random_nested_columns_are_read_as_spark_reads_them(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path = tmp_path / "random.parquet"
    shapes = [random_shape(random, 3) for _ in range(4)]
    columns = {
        f"c{i}": pa.array([value_of(random, kind) for _ in range(30)], kind) for i, (kind, _) in enumerate(shapes)
    }
    pq.write_table(pa.table(columns), path, row_group_size=random.choice([7, 100]))
    ddl = ", ".join(f"C{i} {wanted}" for i, (_, wanted) in enumerate(shapes))
    expected = by_spark(spark, path, ddl)
    assert same(reader_of(ddl).read(str(path), expected.column_names), expected)


def random_shape(random: Random, depth: int) -> tuple[pa.DataType, str]:
    """A type in the file, and one that it is read as."""
    shape = random.choice(["leaf", "list", "map", "struct"] if depth else ["leaf"])
    if shape == "leaf":
        kind = random.choice([pa.int32(), pa.string(), pa.float32(), pa.date32(), pa.timestamp("ms", "UTC"), pa.int8()])
        wanted = {"int32": ["bigint", "double"], "float": ["double"], "string": ["binary"], "int8": ["smallint", "int"]}
        plain = {"date32[day]": "date", "timestamp[ms, tz=UTC]": "timestamp", "float": "float", "int32": "int"}
        return kind, random.choice(
            [plain.get(str(kind), {"int8": "tinyint"}.get(str(kind), "string")), *wanted.get(str(kind), [])]
        )
    if shape == "list":
        kind, wanted_inner = random_shape(random, depth - 1)
        return pa.list_(kind), f"array<{wanted_inner}>"
    if shape == "map":
        kind, wanted_inner = random_shape(random, depth - 1)
        return pa.map_(pa.string(), kind), f"map<string, {wanted_inner}>"
    inner = [random_shape(random, depth - 1) for _ in range(random.randint(1, 3))]
    fields = [f"{random.choice(['F', 'f'])}{i}: {wanted}" for i, (_, wanted) in enumerate(inner)]
    random.shuffle(fields)
    kept = [*fields[: random.randint(1, len(fields))], *random.choice([[], ["absent: int"]])]
    return pa.struct([(f"f{i}", kind) for i, (kind, _) in enumerate(inner)]), f"struct<{', '.join(kept)}>"


def value_of(random: Random, kind: pa.DataType) -> Any:
    if random.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value_of(random, field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, value_of(random, kind.item_type)) for key in random.sample("abc", random.randint(0, 3))]
    if pa.types.is_list(kind):
        return [value_of(random, kind.value_type) for _ in range(random.randint(0, 3))]
    moments: list[Any] = [utc(2024, 1, 2), utc(1500, 3, 1)]
    some = ["", "a", "ü"] if pa.types.is_string(kind) else [0, 1, -5, 100]
    return random.choice(moments if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else some)


def test_two_columns_of_one_name_are_refused_unless_case_matters(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "twice.parquet"
    pq.write_table(pa.table({"k": [1], "K": [2], "s": [{"a": 1, "A": 2}], "v": [3]}), path)
    assert reader_of("v bigint, s struct<z: int>").read(str(path), ["v"])["v"].to_pylist() == [3]
    for ddl, column in (("k bigint", "k"), ("s struct<a: bigint>", "s")):
        with pytest.raises(RunError, match="in any case of letters"):
            reader_of(ddl).read(str(path), [column])
        with pytest.raises((PySparkException, Py4JJavaError), match="FAILED_READ_FILE"):
            by_spark(spark, path, ddl)
        found = reader_of(ddl, is_case_sensitive=True).read(str(path), [column])
        assert found[column].to_pylist() == [1 if column == "k" else {"a": 1}]


LEGACY = (
    {"org.apache.spark.version": "2.4.8"},
    {"org.apache.spark.version": "3.2.0", "org.apache.spark.legacyDateTime": ""},
)


@pytest.mark.parametrize("told", LEGACY, ids=["Spark 2", "the legacy mode of Spark 3"])
def test_files_in_an_old_calendar_are_read_alike_or_refused(
    spark: SparkSession, tmp_path: Path, told: dict[str, str]
) -> None:
    columns = "d date, t timestamp, n timestamp_ntz, i int"
    for name, moment in (("new", utc(1900, 1, 2)), ("old", utc(1500, 1, 1))):
        values = pa.array([moment, None], pa.timestamp("us"))
        table = pa.table({"d": values.cast(pa.date32()), "t": values.cast(pa.timestamp("us", "UTC")), "n": values})
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table.append_column("i", table["d"].cast(pa.int32())).replace_schema_metadata(told), path)
        expected = by_spark(spark, path, columns)
        safe = ["n", "i"] if name == "old" else expected.column_names
        assert same(reader_of(columns).read(str(path), safe), expected.select(safe))
        for column in set(expected.column_names) - set(safe):
            with pytest.raises(RunError, match="in the calendar of an old version of Spark"):
                reader_of(columns).read(str(path), [column])


@pytest.mark.parametrize(
    ("ddl", "readable"),
    [("array<map<string, decimal(5,2)>>", True), ("string", True), ("string collate UTF8_LCASE", True),
     ("interval day to second", True), ("struct<a: variant>", False), ("time", False), ("void", False)],
)  # fmt: skip
def test_types_that_arrow_has_no_equal_for_are_left_to_spark(spark: SparkSession, ddl: str, readable: bool) -> None:
    kind = _parse_datatype_string(f"x {ddl}")
    assert isinstance(kind, StructType)
    assert is_readable(kind.fields[0].dataType) is readable
