"""What a query means, as a nested loop that can be checked by reading it.

The engine is tested against these functions, so they share nothing with its kernels: rows are dicts, a time is a whole
number of microseconds, and every combination of rows is looked at.

Composite (s1..sm) is a result iff every equality and every residual predicate holds and, with t* the newest of its
times, t* - si.t <= Wi for every stream i. Bounds are inclusive, a window of None never ends, None equals nothing.

Cost: the product of the numbers of rows, less what the equalities rule out early. For more than a few hundred rows a
stream use `braidstream.lab.testing.batch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from braidstream.errors import InputError, nearest

__all__ = ["Aggregate", "Composite", "Epoch", "Equality", "Row", "Stream", "aggregate", "join", "project", "split_late"]

Row = Mapping[str, Any]
Composite = Mapping[str, Row]
"""One row of each stream, by the stream's name."""

Equality = tuple[str, str]
"""Two columns of two streams, as ("R.k", "S.k")."""

Residual = Callable[[Composite], bool | None]
"""Any other predicate over a composite. As in SQL, None (unknown) does not hold."""

Epoch = Mapping[str, Sequence[Row]]
"""The rows of each stream in one epoch; a stream that is not named sends none."""


@dataclass(frozen=True)
class Stream:
    """All rows of a stream, in any order, and its window. `time` is the column with the microseconds."""

    name: str
    rows: Sequence[Row]
    window_us: int | None
    time: str = "ts"


@dataclass(frozen=True)
class Aggregate:
    """SUM, COUNT, AVG, MIN or MAX of a column ("S.v"). COUNT without a column counts composites."""

    function: str
    column: str | None = None


def join(
    streams: Sequence[Stream], equalities: Sequence[Equality], residuals: Sequence[Residual] = ()
) -> list[Composite]:
    """All results of the query, each once for every combination of rows that makes it."""
    return [
        composite
        for composite in _equal_composites(streams, equalities)
        if _within_windows(streams, composite) and all(residual(composite) for residual in residuals)
    ]


def project(composites: Iterable[Composite], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The named columns ("R.k") of each composite."""
    return [tuple(_value(composite, column) for column in columns) for composite in composites]


def aggregate(
    streams: Sequence[Stream],
    equalities: Sequence[Equality],
    aggregates: Sequence[Aggregate],
    *,
    watermark_us: int,
    group_by: Sequence[str] = (),
    residuals: Sequence[Residual] = (),
) -> list[tuple[Any, ...]]:
    """The aggregates at a watermark, over all composites whose components are all live then: si.t + Wi >= watermark.

    One tuple a group: the values of `group_by`, then the aggregates. Without `group_by` there is always one tuple.
    NULLs are left out of every aggregate, and are a group of their own. Liveness is the only condition on time: it
    alone lets the sums of the streams multiply. Where no tuple is newer than the watermark it implies `join`'s windows.
    """
    groups: dict[tuple[Any, ...], list[Composite]] = {} if group_by else {(): []}
    live = [_live_part(stream, watermark_us) for stream in streams]
    for composite in _equal_composites(live, equalities):
        if all(residual(composite) for residual in residuals):
            groups.setdefault(tuple(_value(composite, column) for column in group_by), []).append(composite)
    return [(*group, *(_aggregated(a, members) for a in aggregates)) for group, members in groups.items()]


def split_late(
    epochs: Sequence[Epoch], delays_us: Mapping[str, int], time: str = "ts"
) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """The rows of each stream that are on time, and those that are late. `delays_us` names every stream.

    After each epoch the watermark is the minimum over the streams of (largest time seen - delay); it does not exist
    before every stream has spoken. A row is late when it is older than the watermark at the start of its epoch.
    """
    on_time: dict[str, list[Row]] = {name: [] for name in delays_us}
    late: dict[str, list[Row]] = {name: [] for name in delays_us}
    largest: dict[str, int] = {}
    for epoch in epochs:
        known = len(largest) == len(delays_us)
        watermark = min(largest[name] - delays_us[name] for name in delays_us) if known else None
        for name, rows in epoch.items():
            for row in rows:
                is_late = watermark is not None and row[time] < watermark
                (late if is_late else on_time)[name].append(row)
                largest[name] = max(row[time], largest.get(name, row[time]))
    return on_time, late


def _equal_composites(streams: Sequence[Stream], equalities: Sequence[Equality]) -> list[Composite]:
    """All combinations of rows that satisfy the equalities, each checked as soon as both its streams are placed."""
    composites: list[Composite] = [{}]
    placed: set[str] = set()
    _check_streams(streams, equalities)
    for stream in streams:
        placed.add(stream.name)
        now = [pair for pair in equalities if stream.name in _names(pair) and _names(pair) <= placed]
        composites = [
            candidate
            for composite in composites
            for row in stream.rows
            if _holds(now, candidate := {**composite, stream.name: row})
        ]
    return composites


def _holds(equalities: Sequence[Equality], composite: Composite) -> bool:
    return all(_equal(_value(composite, left), _value(composite, right)) for left, right in equalities)


def _equal(left: Any, right: Any) -> bool:
    """Equality of SQL in Spark and DuckDB: NULL equals nothing, NaN equals NaN."""
    if left is None or right is None:
        return False
    both_nan = left != left and right != right  # noqa: PLR0124  only NaN differs from itself
    return bool(both_nan or left == right)


def _within_windows(streams: Sequence[Stream], composite: Composite) -> bool:
    times = [composite[stream.name][stream.time] for stream in streams]
    newest = max(times)
    return all(
        stream.window_us is None or newest - time <= stream.window_us
        for stream, time in zip(streams, times, strict=True)
    )


def _live_part(stream: Stream, watermark_us: int) -> Stream:
    window = stream.window_us
    live = [row for row in stream.rows if window is None or row[stream.time] + window >= watermark_us]
    return Stream(stream.name, live, window, stream.time)


def _aggregated(wanted: Aggregate, members: Sequence[Composite]) -> Any:
    if wanted.column is None:
        return len(members)
    column = wanted.column
    values = [value for value in (_value(composite, column) for composite in members) if value is not None]
    if wanted.function == "COUNT":
        return len(values)
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "SUM": sum,
        "AVG": lambda v: sum(v) / len(v),
        "MIN": min,
        "MAX": max,
    }
    if wanted.function not in functions:
        raise InputError(
            f"the aggregate is {wanted.function!r}",
            "SUM, COUNT, AVG, MIN or MAX",
            nearest(wanted.function, ["COUNT", *functions]),
        )
    return functions[wanted.function](values) if values else None


def _value(composite: Composite, column: str) -> Any:
    stream, name = column.split(".", 1)
    return composite[stream][name]


def _names(pair: Equality) -> set[str]:
    return {column.split(".", 1)[0] for column in pair}


def _check_streams(streams: Sequence[Stream], equalities: Sequence[Equality]) -> None:
    names = [stream.name for stream in streams]
    if len(set(names)) < len(names):
        raise InputError(
            f"the streams are named {names}", "a name for each", "a stream joined to itself needs two names"
        )
    for pair in equalities:
        for name in sorted(_names(pair) - set(names)):
            raise InputError(f"the equality {pair} names no stream of the query: {name!r}", "", nearest(name, names))
