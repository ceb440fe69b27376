"""Aggregates as columns of a result: from exact components and extremes to the types of SQL.

NULL and zero are as in SQL: over nothing COUNT is 0 and all others are NULL. Results are given for groups that changed.

Invariant: integers and decimals are exact, and a result that does not fit its type is an error, never another number.
Cost: a few NumPy operations for each aggregate; decimals go through Python's integers, one changed group at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.errors import RunError
from braidstream.kernels.exact import Exact, to_decimals
from braidstream.kernels.measures import FOREVER, SPECIALS, WATERMARK, AggregateColumn, Aggregation, Clock
from braidstream.kernels.rows import I64, take
from braidstream.kernels.sizes import narrow
from braidstream.kernels.summaries import LARGEST, LEAST, SAME, same_values
from braidstream.kernels.touched import Values, extreme_names

__all__ = ["changed_results", "only_result"]

Bools = npt.NDArray[np.bool_]


def changed_results(
    aggregation: Aggregation, clock: Clock, groups: pa.Table, before: Values, after: Values
) -> pa.Table:
    """The new values of the groups whose values changed; of a group that is empty now, zero counts and NULLs."""
    if not after.size:
        return aggregation.schema.empty_table()
    changed = np.zeros(after.size, dtype=np.bool_)
    for name in {*before.components, *after.components}:
        changed |= after.component(name).differs(before.component(name))
    for name, values in after.extremes.items():
        changed |= ~same_values(before.extremes[name], values)
    rows = np.flatnonzero(changed)
    return _visibly_changed(aggregation, clock, take(groups, rows), _taken(before, rows), _taken(after, rows))


def _taken(values: Values, rows: I64) -> Values:
    components = {name: exact.take(rows) for name, exact in values.components.items()}
    extremes = {name: extreme.take(pa.array(rows)) for name, extreme in values.extremes.items()}
    return Values(len(rows), components, extremes)


def _visibly_changed(
    aggregation: Aggregation, clock: Clock, groups: pa.Table, before: Values, after: Values
) -> pa.Table:
    """Without groups that look as before: the same mean of other numbers, the same minimum with one more NULL."""
    old, new = (_results_of(aggregation, clock, groups, values) for values in (before, after))
    changed = before.component("n").nonzero() != after.component("n").nonzero()
    for column in aggregation.columns:
        changed |= ~same_values(old.column(column.name), new.column(column.name))
    return new if changed.all() else take(new, np.flatnonzero(changed))


def only_result(aggregation: Aggregation, clock: Clock, values: Values | None) -> pa.Table:
    """The row of a query without GROUP BY, also when there never was a composite."""
    if values is None or not values.size:
        kinds = dict(extreme_names(aggregation))
        values = Values(1, {}, {name: pa.nulls(1, kind) for name, kind in kinds.items()})
    return _results_of(aggregation, clock, pa.table({}), values)


def _results_of(aggregation: Aggregation, clock: Clock, groups: pa.Table, values: Values) -> pa.Table:
    """Values as the result's columns."""
    columns: list[Any] = [groups.column(f"{SAME}{name}") for name, _ in aggregation.group_by]
    columns += [_Finished(aggregation.query, column, values).array() for column in aggregation.columns]
    columns.append(pa.array(np.full(values.size, clock.epoch, dtype=np.int64)))
    time = aggregation.schema.field(WATERMARK).type
    reached = None if clock.after == FOREVER else clock.after
    columns.append(pa.array([reached] * values.size, pa.int64()).cast(time))
    kinds = [narrow(column.type) for column in columns]
    fields = zip(columns, kinds, aggregation.schema, strict=True)
    typed = [column if kind == field.type else column.cast(field.type) for column, kind, field in fields]
    return pa.table(typed, names=aggregation.schema.names)


@dataclass(frozen=True)
class _Finished:
    """One aggregate as a column of the result."""

    query: str
    column: AggregateColumn
    values: Values

    def array(self) -> pa.Array:
        function = self.column.function
        if function == "count":
            return pa.array(self._fitting(self._count))
        if function == "sum":
            return self._sum()
        if function == "avg":
            return self._average()
        mark = LEAST if function == "min" else LARGEST
        return self.values.extremes[f"{mark}{self._address}"]

    @property
    def _address(self) -> str:
        return f"{self.column.input}:{self.column.column}"

    @property
    def _count(self) -> Exact:
        return self.values.component("n" if self.column.input is None else f"c:{self._address}")

    @property
    def _empty(self) -> Bools:
        return ~self._count.nonzero()

    def _sum(self) -> pa.Array:
        total = self.values.component(f"s:{self._address}")
        if pa.types.is_decimal(self.column.type):
            found, too_large = to_decimals(total.to_objects(), self.column.type)
            self._refuse(too_large)
            return found if not self._empty.any() else found.take(pa.array(np.arange(len(found)), mask=self._empty))
        if pa.types.is_floating(self.column.type):
            return pa.array(self._with_specials(total.to_float64()), mask=self._empty)
        return pa.array(self._fitting(total), mask=self._empty)

    def _average(self) -> pa.Array:
        total, count, empty = self.values.component(f"s:{self._address}"), self._count, self._empty
        if pa.types.is_decimal(self.column.type):
            return self._decimal_average(total, count, empty)
        with np.errstate(invalid="ignore", divide="ignore"):
            quotient = total.to_float64() / count.to_float64()
        return pa.array(self._with_specials(quotient), mask=empty)

    def _decimal_average(self, total: Exact, count: Exact, empty: Bools) -> pa.Array:
        """Rounded half up, as Spark does; Python's integers do it, one group at a time."""
        kind: pa.Decimal128Type = self.column.type
        shift = kind.scale - self.column.scale
        numbers = np.where(empty, 0, total.to_objects() * 10**shift)
        counts = np.where(empty, 1, count.to_objects())
        sign = np.where(numbers < 0, -1, 1)
        rounded = sign * ((2 * np.abs(numbers) + counts) // (2 * counts)) if len(numbers) else numbers
        found, too_large = to_decimals(rounded, kind)
        self._refuse(too_large)
        return found.take(pa.array(np.arange(len(found)), mask=empty))

    def _with_specials(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        nan, inf, ninf = (self.values.component(f"{name}:{self._address}").nonzero() for name, _ in SPECIALS)
        numbers = np.where(inf, np.inf, np.where(ninf, -np.inf, numbers))
        return np.where(nan | (inf & ninf), np.nan, numbers)

    def _fitting(self, exact: Exact) -> I64:
        values, too_large = exact.to_int64()
        self._refuse(too_large)
        return values

    def _refuse(self, too_large: Bools) -> None:
        if too_large.any():
            raise RunError(
                f"query {self.query!r}: {self.column.name!r} does not fit in {self.column.type}",
                "a result within the range of its type",
                "cast the argument to double, or make the window shorter",
            )
