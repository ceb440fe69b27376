"""Parquet files read without Spark give what Spark's own reader gives, for every pair of types, or are refused alike."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, _parse_datatype_string

from braidstream.errors import RunError, StreamError
from braidstream.spark.parquet import Leaf, ParquetReader, conversion, is_readable

pytestmark = pytest.mark.spark

N_ROWS = 40
WANTED = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "decimal(4,1)", "decimal(5,2)", "decimal(7,3)", "decimal(9,0)", "decimal(10,0)", "decimal(12,2)",
    "decimal(20,0)", "decimal(22,2)", "decimal(38,10)", "decimal(38,0)",
)  # fmt: skip
RAW = {("float16", "binary"), ("decimal_5_2", "binary"), ("decimal_25_4", "binary"), ("decimal_38_0", "binary")}
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
    moments = [datetime(2024, 1, 2, 3, 4, 5, 678901), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1850, 1, 1)]
    narrow = pa.array(mixed(random, moments), pa.timestamp("us"))
    wide = pa.array(mixed(random, [*moments, datetime(1500, 1, 1), datetime(9999, 1, 1)]), pa.timestamp("us"))
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
    with pytest.raises(Exception, match="FAILED_READ_FILE|PARQUET"):  # noqa: PT011
        spark.read.schema(f"{name} {wanted}").parquet(str(path)).collect()


def test_some_of_the_other_pairs_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    pairs = refused_pairs(tmp_path)
    known = [("double", "decimal(5,2)"), ("int64", "string"), ("timestamp_ns", "timestamp"), ("int64", "int")]
    chosen = [next(p for p in pairs if p[1:] == pair) for pair in known]
    for pair in [*chosen, *Random(3).sample(pairs, 6)]:
        check_refused(spark, *pair)


@pytest.mark.slow
def test_all_other_pairs_are_refused_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    for pair in refused_pairs(tmp_path):
        check_refused(spark, *pair)
