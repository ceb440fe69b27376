"""Which event times a Parquet file's footer tells.

Statistics are there for times of 64 bits; there are none for INT96. A file without rows, or whose rows have no time,
holds none. Cost: a look at each row group's statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

__all__ = ["UNSAID", "FileTimes", "footer_times"]

_PER_US = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
"""What a time of that unit is multiplied with, and divided by, to be microseconds."""


@dataclass(frozen=True)
class FileTimes:
    """The oldest and the newest event time of a file, in microseconds."""

    oldest: int
    newest: int


UNSAID = FileTimes(1, 0)
"""In the place of the times of a file whose footer does not tell them."""


def footer_times(metadata: pq.FileMetaData, time: str) -> FileTimes | None:
    """The times that a footer tells, with an oldest after the newest where it does not tell them."""
    leaf = _leaf(metadata.schema, time)
    if leaf is None or not metadata.num_rows:
        return None
    scale = _scale(metadata.schema.column(leaf))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return UNSAID if scale is None else _all_times([_group_times(g.column(leaf), scale) for g in groups])


def _leaf(schema: pq.ParquetSchema, column: str) -> int | None:
    """Where a column stands among a file's leaves, in whatever case; None where the file has no such plain column."""
    found = {schema.column(i).path.lower(): i for i in range(len(schema))}
    return found.get(column.lower())


def _scale(column: Any) -> tuple[int, int] | None:
    if column.physical_type != "INT64" or column.logical_type.type != "TIMESTAMP":
        return None
    return _PER_US.get(json.loads(column.logical_type.to_json())["timeUnit"])


def _group_times(column: Any, scale: tuple[int, int]) -> FileTimes | None:
    found, (times, per) = column.statistics, scale
    if found is None or not found.has_min_max:
        is_empty = found is not None and found.has_null_count and found.null_count == column.num_values
        return None if is_empty else UNSAID
    return FileTimes(found.min_raw * times // per, found.max_raw * times // per)


def _all_times(groups: Iterable[FileTimes | None]) -> FileTimes | None:
    timed = [group for group in groups if group is not None]
    if not timed or UNSAID in timed:
        return UNSAID if timed else None
    return FileTimes(min(group.oldest for group in timed), max(group.newest for group in timed))
