"""An aggregate query as values, and the columns of a summary that its aggregates need of each new row.

A *measure* is what is kept of one column of one input: the number of NULLs, the digits of exact sums, the extremes. NaN
and the infinities are counted apart, so that they are gone when their rows are.

Invariant: a column that would be zero everywhere is left out; summaries take a missing column for zero.
Cost: a few NumPy operations for each new row and measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.kernels.exact import Exact
from braidstream.kernels.hashing import hash_columns, hashable
from braidstream.kernels.rows import HASH, I64, TIME, U64, key_columns
from braidstream.kernels.sizes import one_chunk
from braidstream.kernels.summaries import ALL_TIME, GROUP, LARGEST, LEAST, SAME, SUM

__all__ = [
    "EPOCH",
    "FOREVER",
    "ROWS",
    "SPECIALS",
    "WATERMARK",
    "AggregateColumn",
    "AggregateInput",
    "AggregatePlan",
    "Aggregation",
    "Clock",
    "Enumeration",
    "Measure",
    "Periods",
    "alive_from",
    "canonical",
    "hash_groups",
    "measured",
]


EPOCH, WATERMARK = "epoch", "watermark"
"""The columns that every result of an aggregate query has at its end."""
FOREVER = 1 << 62
"""The end of a lease where no window ends."""
ROWS = f"{SUM}n"
SPECIALS = (("nan", np.isnan), ("inf", np.isposinf), ("ninf", np.isneginf))


@dataclass(frozen=True)
class Measure:
    """What is kept of one column of an input: its count always, its sum and its extremes where asked for."""

    column: str
    type: pa.DataType
    summed: bool = False
    least: bool = False
    largest: bool = False


@dataclass(frozen=True)
class AggregateInput:
    """One input of an aggregate query: where its rows come from, its window, and what is kept of its columns."""

    store: int
    window_us: int | None
    bit: int | None
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class AggregateColumn:
    """One aggregate: COUNT(*) has no input and no column."""

    name: str
    function: str
    input: int | None
    column: str | None
    type: pa.DataType
    scale: int = 0
    """The scale of the argument, where that is a decimal."""


@dataclass(frozen=True)
class Aggregation:
    """An aggregate query as the stages see it."""

    query: str
    inputs: tuple[AggregateInput, ...]
    grouped: int
    """The input whose columns are grouped by; any, when there is no GROUP BY."""
    group_by: tuple[tuple[str, str], ...]
    """For each GROUP BY entry its name in the result and the column of the grouped input."""
    local: bool
    """Whether every group lies within one key."""
    columns: tuple[AggregateColumn, ...]
    schema: pa.Schema
    """Of the result: groups, aggregates, epoch, watermark."""

    @property
    def is_leased(self) -> bool:
        """Whether there is a MIN or a MAX."""
        return any(m.least or m.largest for entry in self.inputs for m in entry.measures)


@dataclass(frozen=True)
class Enumeration:
    """Where counts and sums do not multiply: composites are made, and Spark computes what is aggregated of each."""

    join: str
    """The join that makes the composites."""
    residual: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    """Names and expressions of groups and arguments."""


@dataclass(frozen=True)
class Periods:
    """The windows of time that composites are counted in: one of `size` begins every `slide`."""

    start: str
    end: str
    """The columns that have the time when they are computed, and start and end of a window when they are routed."""
    size_us: int
    slide_us: int
    offset_us: int
    wait_us: int
    """How long after its end a window may still get composites: as long as rows of that input are kept."""
    distinct: tuple[tuple[str, pa.DataType], ...] = ()
    """Columns whose different values are counted."""

    def of(self, times: I64) -> tuple[I64, I64, I64]:
        """For the windows that times lie in: the place of the time, their start, and their last moment to change."""
        last = (times - self.offset_us) // self.slide_us * self.slide_us + self.offset_us
        n_each = -(-self.size_us // self.slide_us)
        rows = np.repeat(np.arange(len(times)), n_each)
        starts = np.repeat(last, n_each) - np.tile(np.arange(n_each), len(times)) * self.slide_us
        inside = times[rows] < starts + self.size_us
        rows, starts = rows[inside], starts[inside]
        return rows, starts, starts + (self.size_us + self.wait_us - 1)


@dataclass(frozen=True)
class AggregatePlan:
    """An aggregate query as tasks see it: the aggregation, and the stores that keep its state, by index."""

    aggregation: Aggregation
    kept: tuple[int, ...]
    """The store of each input's summary."""
    totals: int | None
    leases: int | None
    selected: tuple[tuple[str, str], ...] | None
    """Names of the result's columns and of the aggregation's they are; None when Spark has to finish."""
    enumeration: Enumeration | None = None
    """None when no composite has to be made."""
    periods: Periods | None = None
    """The windows of time that groups are put out by, once; None: groups are put out as they change."""

    @property
    def query(self) -> str:
        """The query's name."""
        return self.aggregation.query

    @property
    def emits_always(self) -> bool:
        """Whether every epoch has a result row."""
        return not self.aggregation.group_by

    @property
    def schema(self) -> pa.Schema:
        """The schema of what slots put out."""
        own = self.aggregation.schema
        if self.selected is None:
            return own
        return pa.schema([own.field(source).with_name(name) for name, source in self.selected])


@dataclass(frozen=True)
class Clock:
    """An epoch, and the watermarks before and after it."""

    epoch: int
    before: int | None
    after: int | None

    def alive(self, window_us: int | None) -> tuple[int, int]:
        """The earliest live times before and after."""
        return alive_from(self.before, window_us), alive_from(self.after, window_us)


def alive_from(watermark: int | None, window_us: int | None) -> int:
    """The earliest time that is live at a watermark: t + W >= T."""
    return ALL_TIME if watermark is None or window_us is None else watermark - window_us


def measured(aggregation: Aggregation, place: int, table: pa.Table) -> pa.Table:
    """New rows of one input with the columns that `summarize` takes."""
    entry = aggregation.inputs[place]
    n_rows = table.num_rows
    columns: dict[str, Any] = {name: table.column(name) for name in (HASH, *key_columns(table))}
    columns[TIME] = pa.array(np.zeros(n_rows, dtype=np.int64)) if entry.window_us is None else table.column(TIME)
    if place == aggregation.grouped and aggregation.group_by:
        groups = [canonical(one_chunk(table, column)) for _, column in aggregation.group_by]
        columns[GROUP] = pa.array(hash_groups(groups).view(np.int64))
        names = [f"{SAME}{name}" for name, _ in aggregation.group_by]
        columns |= dict(zip(names, groups, strict=True))
    columns[ROWS] = pa.array(np.ones(n_rows, dtype=np.int64))
    for measure in entry.measures:
        columns |= measure_columns(measure, one_chunk(table, measure.column))
    return pa.table(columns)


def hash_groups(columns: Sequence[pa.Array]) -> U64:
    """Hashes of the values of group columns; NULL is a value like others."""
    hashed = [values if hashable(values.type) else values.cast(pa.string()) for values in columns]
    return hash_columns(hashed)[0]


def canonical(values: pa.Array) -> pa.Array:
    """Values that group together made the same: one zero, one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    plain = np.asarray(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    plain = plain + plain.dtype.type(0)
    plain[np.isnan(plain)] = np.nan
    return pa.array(plain, mask=np.asarray(values.is_null().to_numpy(zero_copy_only=False)))


def measure_columns(measure: Measure, values: pa.Array) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    name = measure.column
    if values.null_count:
        columns[f"{SUM}null:{name}"] = pa.array(
            np.asarray(values.is_null().to_numpy(zero_copy_only=False)).astype(np.int64)
        )
    if measure.summed:
        columns |= _sum_columns(name, values)
    if measure.least:
        columns[f"{LEAST}{name}"] = values
    if measure.largest:
        columns[f"{LARGEST}{name}"] = values
    return columns


def _sum_columns(name: str, values: pa.Array) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if pa.types.is_decimal(values.type):
        exact = Exact.of_decimals(values)
    elif pa.types.is_floating(values.type):
        numbers = np.asarray(values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        for special, test in SPECIALS:
            found = test(numbers)
            if found.any():
                columns[f"{SUM}{special}:{name}"] = pa.array(found.astype(np.int64))
        exact = Exact.of_floats(np.where(np.isfinite(numbers), numbers, 0.0))
    else:
        exact = Exact.of_ints(np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)))
    return columns | {f"{SUM}s:{name}:{place}": pa.array(digits) for place, digits in exact.digits.items()}
