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

__all__ = [
    "Aggregate", "Composite", "Epoch", "Equality", "Row", "Stream", "aggregate", "join", "join_of_kind",
    "left_joins_on_top", "project", "split_late", "watermark_of",
]  # fmt: skip

Row = Mapping[str, Any]
Composite = Mapping[str, Row]
"""One row of each stream, by the stream's name; of an outer join, an empty one stands for NULLs."""

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


def join_of_kind(
    kind: str,
    streams: tuple[Stream, Stream],
    equalities: Sequence[Equality],
    on: Sequence[Residual] = (),
    *,
    watermark_us: int | None = None,
) -> list[Composite]:
    """The results of an inner, left, right, full, semi, anti, asof or asof_left join of what has arrived so far.

    `on` are the other predicates that decide a match. A row without a match is a result once the watermark is later
    than its time and its window; a row of an as-of join, once it is later than its time. None: all of them are.
    """
    first, second = streams
    if kind in ("asof", "asof_left"):
        own = (row for row in first.rows if watermark_us is None or row[first.time] < watermark_us)
        found = [_with_newest(row, first, second, equalities, on) for row in own]
        return found if kind == "asof_left" else [one for one in found if one[second.name]]
    matches = join(streams, equalities, on)
    matched = {id(row) for composite in matches for row in composite.values()}
    if kind == "semi":
        return [{first.name: row, second.name: {}} for row in first.rows if id(row) in matched]
    results: list[Composite] = [] if kind == "anti" else matches
    kept = {"left": [first], "anti": [first], "right": [second], "full": [first, second]}.get(kind, [])
    for stream in kept:
        nothing: Composite = {one.name: {} for one in streams}
        closed = [row for row in stream.rows if watermark_us is None or _end(stream, row) < watermark_us]
        results = [*results, *({**nothing, stream.name: row} for row in closed if id(row) not in matched)]
    return results


def left_joins_on_top(
    streams: Sequence[Stream],
    equalities: Sequence[Equality],
    below: Sequence[Residual] = (),
    on: Sequence[Sequence[Residual]] = ((),),
    *,
    watermark_us: int | None = None,
) -> list[Composite]:
    """LEFT JOINs of the last streams, one for each of `on`, on top of the inner join of those before them.

    Equalities with its stream, and its part of `on`, decide a match of each. What is without one is a result, with
    NULLs, once the watermark is later than the end of some window of it; then it goes on to the next.
    """
    n_whole = len(streams) - len(on)
    first = streams[:n_whole]
    results = join(first, _between(first, equalities), below)
    for place, residuals in enumerate(on, n_whole):
        so_far = streams[: place + 1]
        own = [pair for pair in _between(so_far, equalities) if streams[place].name in _names(pair)]
        results = [made for kept in results for made in _left(kept, so_far, own, residuals, watermark_us)]
    return results


def _between(streams: Sequence[Stream], equalities: Sequence[Equality]) -> list[Equality]:
    names = {stream.name for stream in streams}
    return [pair for pair in equalities if _names(pair) <= names]


def _left(
    kept: Composite,
    streams: Sequence[Stream],
    equalities: Sequence[Equality],
    residuals: Sequence[Residual],
    watermark_us: int | None,
) -> list[Composite]:
    """What a LEFT JOIN with the last stream makes of one composite of those before it, of what has arrived so far."""
    *before, last = streams
    there = [stream for stream in before if kept[stream.name]]
    found: list[Composite] = [
        c
        for c in ({**kept, last.name: row} for row in last.rows)
        if _holds(equalities, c) and _within_windows([*there, last], c) and all(p(c) for p in residuals)
    ]
    is_closed = watermark_us is None or min(_end(stream, kept[stream.name]) for stream in there) < watermark_us
    return found or ([{**kept, last.name: {}}] if is_closed else [])


def watermark_of(epochs: Sequence[Epoch], delays_us: Mapping[str, int], time: str = "ts") -> int | None:
    """The watermark after some epochs; None before every stream has spoken."""
    newest = {name: [row[time] for epoch in epochs for row in epoch.get(name, ())] for name in delays_us}
    if not all(newest.values()):
        return None
    return min(int(max(times)) - delays_us[name] for name, times in newest.items())


def _with_newest(
    row: Row, first: Stream, second: Stream, equalities: Sequence[Equality], on: Sequence[Residual]
) -> Composite:
    """A row with the newest row of the other stream that is not newer; of several, the largest in its columns."""
    start = None if second.window_us is None else row[first.time] - second.window_us
    fitting = [
        other
        for other in second.rows
        if other[second.time] <= row[first.time]
        and (start is None or other[second.time] >= start)
        and _holds(equalities, both := {first.name: row, second.name: other})
        and all(check(both) for check in on)
    ]
    chosen = max(fitting, key=lambda other: (other[second.time], _ranked(other)), default={})
    return {first.name: row, second.name: chosen}


def _ranked(row: Row) -> tuple[Any, ...]:
    """What rows of one time are told apart by, NULL first."""
    return tuple((value is not None, value) if value is not None else (False, 0) for value in row.values())


def _end(stream: Stream, row: Row) -> int | float:
    return float("inf") if stream.window_us is None else row[stream.time] + stream.window_us


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
    return composite[stream][name] if composite[stream] else None


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
