"""`braidstream.join`: two streaming DataFrames joined in one line.

    braidstream.join(orders, payments, on="order_id", within="1 hour").to("parquet", path="out").start("ck")

It writes the query that it means over a `Flow` with the streams `left` and `right`; whatever it does not cover is said
with the flow itself. Without `select` the result has every column once: keys of one name once, other names that both
sides have as `left_name` and `right_name`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import TimestampNTZType, TimestampType

from braidstream.arguments import checked_arguments
from braidstream.epoch.progress import EpochProgress
from braidstream.errors import InputError, StreamError, nearest
from braidstream.model.join_kinds import JoinKind
from braidstream.query import JoinBuilder
from braidstream.query import join as build_join
from braidstream.query.duration import is_signed
from braidstream.query.types import quote_name
from braidstream.spark.flow import Flow
from braidstream.spark.handle import Handle

__all__ = ["Joined", "join", "only_time", "session_of"]

Length: TypeAlias = str | timedelta
Keys: TypeAlias = str | Sequence[str | tuple[str, str]]
Target: TypeAlias = str | Callable[[DataFrame, int], Any]
Value = TypeVar("Value")
_SIDES = ("left", "right")


@checked_arguments(
    "join",
    {
        "on": 'name the key: on="id"; or None, with where=... and allow="no-equality"',
        "within": 'say how far apart in time: within="1 hour", or None for unbounded',
    },
    {},
)
def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: Keys | None,
    within: Length | tuple[Length | None, Length | None] | None,
    how: str = "inner",
    where: str | Sequence[str] | None = None,
    allow: str | None = None,
    time: str | tuple[str, str] | None = None,
    delay: Length | tuple[Length, Length] = "0 seconds",
    select: str | Sequence[str] | None = None,
    name: str = "join",
    slots: int | None = None,
    groups: int | None = None,
    controller: bool = True,
) -> Joined:
    """Join two streaming DataFrames on equal keys, within windows of event time.

    `on` is a column that both have, several of them, or pairs of columns. `within` is the length of the windows, a pair
    (left, right) of different ones, or None for unbounded. A pair with a sign, such as ("-5 seconds", "10 seconds") or
    ("+1 minute", "30 minutes"), is an interval: how much later the right side may be, at least and at most. `how` is a
    kind by PySpark's names ("left", "left_outer", "right", "full", "semi", "anti", ...), or "asof" or "asof_left": each
    row of `left` with the newest of `right` that is not newer, `within` so much time. `where` has further conditions,
    in CQL over `left` and `right`; with `allow="no-equality"` they may be all there is, and `on` is None. `time` is the
    event-time column; without it, the only timestamp column. `select` has CQL expressions over `left` and `right`. A
    pair of times or delays is (left, right). With `controller=False` groups stay where they are.
    """
    flow = Flow(session_of(left, right), name, slots=slots, groups=groups, controller=controller)
    times = _pair(time)
    delays: tuple[Length, Length] = _pair(delay)
    for side, frame, own_time, own_delay in zip(("left", "right"), (left, right), times, delays, strict=True):
        flow.stream(side, frame, time=own_time or only_time(side, frame), delay=own_delay)
    keys = [] if on is None else _keys(on, left, right)
    builder = _timed(build_join("left", "right").how(how), within, [flow.schemas[s].time or "" for s in _SIDES])
    for left_key, right_key in keys:
        builder = builder.on(left=quote_name(left_key), right=quote_name(right_key))
    builder = builder.where(*([where] if isinstance(where, str) else where or ()))
    items = [select] if isinstance(select, str) else select
    chosen = _all_columns(left, right, keys, builder.kind) if items is None else items
    return Joined(flow, builder.select(*chosen).cql, allow)


class Joined:
    """A join of two streams that knows its query and waits for its sink."""

    def __init__(self, flow: Flow, cql: str, allow: str | None = None) -> None:
        self.flow, self.cql = flow, cql
        self._query = flow.query(cql, "join", allow=allow)

    def to(self, target: Target, path: str | Path | None = None, **options: Any) -> Joined:
        """Send results to a sink: a Spark batch format, "memory", "noop", or a function `(DataFrame, epoch)`."""
        self._query.to(target, path, **options)
        return self

    def late(self, target: Target, path: str | Path | None = None, **options: Any) -> Joined:
        """Send late tuples to a sink of their own."""
        self._query.late(target, path, **options)
        return self

    @checked_arguments("start", {"checkpoint": 'name the folder of its state: start(checkpoint="ck")'})
    def start(
        self, checkpoint: str | Path, *, epoch: Length = "available", keep: int = 10, final: bool = False
    ) -> Handle[EpochProgress]:
        """Start, or go on where the checkpoint ends; with `final` it is closed, since no more input comes."""
        return self.flow.start(checkpoint, epoch=epoch, keep=keep, final=final)

    def explain(self) -> str:
        """The plan in words; nothing is started."""
        return self.flow.explain()

    def table(self) -> pa.Table | None:
        """The results so far of a join that was sent to memory; None when there are none."""
        return self._query.table()


def _timed(
    builder: JoinBuilder, within: Length | tuple[Length | None, Length | None] | None, times: Sequence[str]
) -> JoinBuilder:
    """The query with its windows, or with the interval between the times of the two sides."""
    first, second = _pair(within)
    if not isinstance(within, tuple) or not (is_signed(first) or is_signed(second)):
        made = builder.window(right=second)
        return made if made.kind.is_asof else made.window(left=first)
    if builder.kind.is_asof:
        wrong = f"within={within!r} is an interval, and an as-of join takes the newest row of a window"
        raise InputError(wrong, "how old that row may be", 'write within="10 seconds"')
    if first is None or second is None:
        builder = builder.window(None)
    left, right = (f"{side}.{quote_name(time)}" for side, time in zip(_SIDES, times, strict=True))
    return builder.between(left, right, first, second)


def session_of(left: DataFrame, right: DataFrame) -> Any:
    """The session of two sides, which are streams of it."""
    for side, frame in (("left", left), ("right", right)):
        if not isinstance(frame, DataFrame):
            wrong = f"the {side} side is {type(frame).__name__}"
            raise StreamError(wrong, "a streaming DataFrame", "use spark.readStream")
    return left.sparkSession


def _pair(value: Value | tuple[Value, Value]) -> tuple[Value, Value]:
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise InputError(f"{value!r} has {len(value)} parts", "one value, or a pair (left, right)")
    return value


def only_time(side: str, frame: DataFrame) -> str:
    """The only timestamp column of one side."""
    times = [f.name for f in frame.schema.fields if isinstance(f.dataType, (TimestampType, TimestampNTZType))]
    if len(times) != 1:
        wrong = f"the {side} side has {len(times)} timestamp columns" + (f": {', '.join(times)}" if times else "")
        fix = f'name it: time="{times[0]}"' if times else "cast a column to timestamp and name it: time=..."
        raise StreamError(wrong, "one, or its name", fix)
    return str(times[0])


def _keys(on: Keys, left: DataFrame, right: DataFrame) -> list[tuple[str, str]]:
    several = isinstance(on, Iterable) and not isinstance(on, (str, Column))
    entries: list[Any] = list(on) if several else [on]
    keys: list[Any] = [(entry, entry) if isinstance(entry, str) else entry for entry in entries]
    if not keys or not all(_is_key(key) for key in keys):
        has_column = any(isinstance(part, Column) for key in keys for part in (key if _is_pair(key) else [key]))
        expected = "names of columns" if has_column else "a column, several columns, or pairs of them"
        raise InputError(f"on={on!r}", expected, 'on="a", or on=["a", ("left_b", "right_b")]')
    for key in keys:
        for side, frame, name in zip(("left", "right"), (left, right), key, strict=True):
            if name.lower() not in {known.lower() for known in frame.columns}:
                wrong = f"the {side} side has no column {name!r}"
                raise StreamError(wrong, f"one of {', '.join(frame.columns)}", nearest(name, frame.columns))
    return keys


def _is_pair(key: Any) -> bool:
    return isinstance(key, (tuple, list)) and len(key) == 2


def _is_key(key: Any) -> bool:
    return _is_pair(key) and all(isinstance(name, str) for name in key)


def _all_columns(left: DataFrame, right: DataFrame, keys: Sequence[tuple[str, str]], kind: JoinKind) -> list[str]:
    shared_keys = {a.lower() for a, b in keys if a.lower() == b.lower()}
    shown = [
        (side, frame) for place, (side, frame) in enumerate((("left", left), ("right", right))) if place in kind.shown
    ]
    both = (
        {name.lower() for name in left.columns} & {name.lower() for name in right.columns} if len(shown) > 1 else set()
    )
    items = []
    taken = {name.lower() for name in (*left.columns, *right.columns)}
    for side, frame in shown:
        for name in frame.columns:
            if name.lower() in shared_keys:
                items += [_key_item(name, kind)] if side == "left" else []
                continue
            apart = name.lower() in both
            shown_name = _fresh(f"{side}_{name}", taken) if apart else name
            items.append(f"{side}.{quote_name(name)} AS {quote_name(shown_name)}")
    return items


def _key_item(name: str, kind: JoinKind) -> str:
    """A key that both sides have under one name, of the side that is there: as PySpark's `on="k"` does."""
    quoted = quote_name(name)
    sides = {JoinKind.RIGHT: f"right.{quoted}", JoinKind.FULL: f"coalesce(left.{quoted}, right.{quoted})"}
    return f"{sides.get(kind, f'left.{quoted}')} AS {quoted}"


def _fresh(name: str, taken: set[str]) -> str:
    """The name, with underscores behind it where a column has it already."""
    while name.lower() in taken:
        name += "_"
    taken.add(name.lower())
    return name
