"""Which event times a Parquet file holds: from its footer, or where that does not say, from its time column.

Statistics are there for times of 64 bits. There are none for INT96, which Spark writes unless told otherwise, so such
a file's time column is read, in a Spark task and in batches. A file without rows, or whose rows have no time, holds
none; nor does one that cannot be read: who reads it for the join will say what is wrong with it.

Cost: a footer (some 0.2 ms on a local disk) a file, by a bounded number of threads; one column of the files without
statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from braidstream.spark.session import cores

__all__ = ["FileTimes", "footer_times", "path_of_url", "times_of_files"]

_THREADS = 16
_PER_US = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
"""What a time of that unit is multiplied with, and divided by, to be microseconds."""


@dataclass(frozen=True)
class FileTimes:
    """The oldest and the newest event time of a file, in microseconds."""

    oldest: int
    newest: int


def times_of_files(spark: SparkSession, urls: Sequence[str], time: str) -> list[FileTimes | None]:
    """The times of each file; None where it has none."""
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda url: _file_times(path_of_url(url), time), urls))
    unsaid = [i for i, times in enumerate(found) if times is _UNSAID]
    if unsaid:
        paths = [path_of_url(urls[i]) for i in unsaid]
        slices = spark.sparkContext.parallelize(paths, min(len(paths), 4 * cores(spark)))
        for i, times in zip(unsaid, slices.map(lambda path: _column_times(path, time)).collect(), strict=True):
            found[i] = times
    return found


_UNSAID = FileTimes(1, 0)
"""In the place of the times of a file whose footer does not tell them."""


def _file_times(path: str, time: str) -> FileTimes | None:
    try:
        return footer_times(pq.read_metadata(path), time)
    except (OSError, ValueError, pa.ArrowException):
        return None


def footer_times(metadata: pq.FileMetaData, time: str) -> FileTimes | None:
    """The times that a footer tells, with an oldest after the newest where it does not tell them."""
    leaf = _leaf(metadata.schema, time)
    if leaf is None or not metadata.num_rows:
        return None
    scale = _scale(metadata.schema.column(leaf))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return _UNSAID if scale is None else _all_times([_group_times(g.column(leaf), scale) for g in groups])


def _leaf(schema: pq.ParquetSchema, column: str) -> int | None:
    """Where a column stands among a file's leaves, in whatever case; None where the file has no such plain column."""
    found = {schema.column(i).path.lower(): i for i in range(len(schema))}
    return found.get(column.lower())


def path_of_url(url: str) -> str:
    """The path that a URL of the local file system names."""
    return "/" + unquote(url.removeprefix("file:")).lstrip("/") if url.startswith("file:") else url


def _scale(column: Any) -> tuple[int, int] | None:
    if column.physical_type != "INT64" or column.logical_type.type != "TIMESTAMP":
        return None
    return _PER_US.get(json.loads(column.logical_type.to_json())["timeUnit"])


def _group_times(column: Any, scale: tuple[int, int]) -> FileTimes | None:
    found, (times, per) = column.statistics, scale
    if found is None or not found.has_min_max:
        is_empty = found is not None and found.has_null_count and found.null_count == column.num_values
        return None if is_empty else _UNSAID
    return FileTimes(found.min_raw * times // per, found.max_raw * times // per)


def _all_times(groups: Iterable[FileTimes | None]) -> FileTimes | None:
    timed = [group for group in groups if group is not None]
    if not timed or _UNSAID in timed:
        return _UNSAID if timed else None
    return FileTimes(min(group.oldest for group in timed), max(group.newest for group in timed))


def _column_times(path: str, time: str) -> FileTimes | None:
    """The times in the time column itself."""
    try:
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
        name = next(name for name in file.schema_arrow.names if name.lower() == time.lower())
        ends = [pc.min_max(_micros(batch.column(0))) for batch in file.iter_batches(columns=[name])]
    except (OSError, StopIteration, pa.ArrowException):
        return None
    found = [end.as_py() for end in ends if end["min"].is_valid]
    return FileTimes(min(e["min"] for e in found), max(e["max"] for e in found)) if found else None


def _micros(times: pa.Array) -> pa.Array:
    zone = times.type.tz if pa.types.is_timestamp(times.type) else None
    return times.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
