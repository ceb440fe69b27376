"""Which event times a Parquet file holds: from its footer, or where that does not say, from its time column.

Statistics are there for times of 64 bits. There are none for INT96, which Spark writes unless told otherwise, so such
a file's time column is read, in a Spark task and in batches. A file without rows, or whose rows have no time, holds
none; nor does one that cannot be read: who reads it for the join will say what is wrong with it.

Cost: a footer (some 0.2 ms on a local disk) a file, by a bounded number of threads; one column of the files without
statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from braidstream.plan.footers import UNSAID, FileTimes, footer_times
from braidstream.spark.session import cores

__all__ = ["path_of_url", "times_of_files"]

_THREADS = 16


def times_of_files(spark: SparkSession, urls: Sequence[str], time: str) -> list[FileTimes | None]:
    """The times of each file; None where it has none."""
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda url: _file_times(path_of_url(url), time), urls))
    unsaid = [i for i, times in enumerate(found) if times is UNSAID]
    if unsaid:
        paths = [path_of_url(urls[i]) for i in unsaid]
        slices = spark.sparkContext.parallelize(paths, min(len(paths), 4 * cores(spark)))
        for i, times in zip(unsaid, slices.map(lambda path: _column_times(path, time)).collect(), strict=True):
            found[i] = times
    return found


def _file_times(path: str, time: str) -> FileTimes | None:
    try:
        return footer_times(pq.read_metadata(path), time)
    except (OSError, ValueError, pa.ArrowException):
        return None


def path_of_url(url: str) -> str:
    """The path that a URL of the local file system names."""
    return "/" + unquote(url.removeprefix("file:")).lstrip("/") if url.startswith("file:") else url


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
