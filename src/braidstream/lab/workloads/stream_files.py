"""Streams as folders of Parquet files that a file source reads in order, one or more files an epoch.

Invariants: rows are in event-time order over all files of a folder; names sort in the order of the files
(`00000.parquet`, `00001.parquet`, ...); and so do modification times, which lie whole seconds apart, because Spark's
file source orders by modification time in milliseconds. A file appears under its name only when it is complete. Writing
into a folder that already has files is refused; `append_files` goes on after them.

A file is one row group, plain-encoded and not compressed: the fastest to write and to read. Cost: the times and keys of
the whole stream are held (16 bytes a tuple), the rest file by file; a million 64-byte tuples take under a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream.errors import InputError
from braidstream.lab.workloads.arrivals import Schedule, constant_arrivals, poisson_arrivals
from braidstream.lab.workloads.key_values import Keys

__all__ = ["STREAM_SCHEMA", "WSJ_PAYLOAD_BYTES", "StreamFiles", "append_files", "cut", "make_tables", "write_stream"]

Ints = npt.NDArray[np.int64]

STREAM_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
"""The columns of a made stream; with a payload there is also `pad binary`."""

WSJ_PAYLOAD_BYTES = 40
"""With this payload a tuple has the 64 bytes of WSJ VI-A: three columns of 8 bytes, and the pad."""

# Spark ignores files a week older than the newest one of the folder, so not further back than that.
FIRST_FILE_AGE_S = 24 * 60 * 60
LARGEST_BINARY_COLUMN = 2**31 - 1
LAST_FILE = 99_999  # names of five digits sort as their numbers do


@dataclass(frozen=True)
class StreamFiles:
    """A stream that was written: its folder, its files in order, how many rows, and the event times of the ends."""

    path: Path
    files: tuple[Path, ...]
    rows: int
    first_us: int | None
    last_us: int | None


def write_stream(
    path: str | os.PathLike[str],
    *,
    rate: float | Schedule,
    keys: Keys,
    rows_per_file: int,
    seed: int,
    n_rows: int | None = None,
    seconds: float | None = None,
    payload_bytes: int = 0,
    arrivals: Literal["poisson", "constant"] = "poisson",
    start_us: int = 0,
) -> StreamFiles:
    """Make a stream of `n_rows` tuples, or of `seconds` of event time, and write it as files of `rows_per_file`.

    `v` numbers the rows of the stream from 0. Give the streams of a join the same `keys` and different seeds.
    """
    _check(rows_per_file, payload_bytes)
    folder = Path(path)
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", "a new or an empty folder", "remove it, or choose another folder")
    time_seed, key_seed, pad_seed = np.random.SeedSequence(seed).spawn(3)
    times = _arrival_times(arrivals, rate, (n_rows, seconds), start_us, time_seed)
    drawn = keys.draw(len(times), np.random.default_rng(key_seed))
    tables = make_tables(times, drawn, rows_per_file, payload_bytes, np.random.default_rng(pad_seed))
    files = append_files(folder, tables)
    ends = (int(times[0]), int(times[-1])) if len(times) else (None, None)
    return StreamFiles(folder, files, len(times), *ends)


def append_files(path: str | os.PathLike[str], tables: Iterable[pa.Table]) -> tuple[Path, ...]:
    """Write each table as the next file of the folder, which is made if it is missing. Returns the new files."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    present = sorted(folder.glob("*.parquet"))
    number = _number(present[-1]) + 1 if present else 0
    modified_s = int(present[-1].stat().st_mtime) + 1 if present else int(time.time()) - FIRST_FILE_AGE_S
    return tuple(_write_file(folder / _name(number + i), table, modified_s + i) for i, table in enumerate(tables))


def cut(table: pa.Table, rows_per_file: int) -> Iterator[pa.Table]:
    """The table in pieces of `rows_per_file`; one empty piece when it has no rows."""
    for first in range(0, max(table.num_rows, 1), rows_per_file):
        yield table.slice(first, rows_per_file)


def make_tables(
    times: Ints, keys: Ints, rows_per_file: int, payload_bytes: int, rng: np.random.Generator
) -> Iterator[pa.Table]:
    """The tables of a made stream, one a file."""
    for first in range(0, max(len(times), 1), rows_per_file):
        ts, k = times[first : first + rows_per_file], keys[first : first + rows_per_file]
        v = np.arange(first, first + len(ts), dtype=np.int64)
        columns = [pa.array(k), pa.array(v), pa.array(ts).cast(STREAM_SCHEMA.field("ts").type)]
        table = pa.Table.from_arrays(columns, schema=STREAM_SCHEMA)
        yield table.append_column("pad", _pad(len(ts), payload_bytes, rng)) if payload_bytes else table


def _arrival_times(
    kind: str,
    rate: float | Schedule,
    length: tuple[int | None, float | None],
    start_us: int,
    seed: np.random.SeedSequence,
) -> Ints:
    n_rows, seconds = length
    if kind == "poisson":
        return poisson_arrivals(rate, seed=seed, n=n_rows, seconds=seconds, start_us=start_us)
    if kind == "constant":
        return constant_arrivals(rate, n=n_rows, seconds=seconds, start_us=start_us)
    raise InputError(f"arrivals is {kind!r}", "'poisson' or 'constant'", "WSJ uses 'poisson'")


def _pad(n: int, payload_bytes: int, rng: np.random.Generator) -> pa.Array:
    """Random bytes, which no compression on the way makes smaller."""
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(payload_bytes)
    return pa.Array.from_buffers(
        pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(rng.bytes(n * payload_bytes))]
    )


def _name(number: int) -> str:
    if number > LAST_FILE:
        raise InputError(f"the folder would have more than {LAST_FILE + 1} files", "", "write more rows a file")
    return f"{number:05d}.parquet"


def _number(file: Path) -> int:
    if not (file.stem.isdecimal() and file.name == _name(int(file.stem))):
        raise InputError(f"{file} is not a file of a made stream", "names like 00000.parquet", "choose another folder")
    return int(file.stem)


def _write_file(file: Path, table: pa.Table, modified_s: int) -> Path:
    # Sources skip names that begin with a dot, so nobody reads half a file.
    unfinished = file.with_name(f".{file.name}.unfinished")
    pq.write_table(table, unfinished, row_group_size=max(table.num_rows, 1), compression="none", use_dictionary=False)
    os.utime(unfinished, (modified_s, modified_s))
    unfinished.rename(file)
    return file


def _check(rows_per_file: int, payload_bytes: int) -> None:
    if rows_per_file < 1:
        raise InputError(f"rows_per_file is {rows_per_file}", "1 or more", "choose how many rows an epoch reads")
    if payload_bytes < 0 or rows_per_file * payload_bytes > LARGEST_BINARY_COLUMN:
        raise InputError(
            f"payload_bytes is {payload_bytes} with {rows_per_file} rows a file",
            f"0 or more, and at most {LARGEST_BINARY_COLUMN} bytes of payload a file",
            f"{WSJ_PAYLOAD_BYTES} makes the 64-byte tuples of WSJ; use fewer rows a file for larger ones",
        )
