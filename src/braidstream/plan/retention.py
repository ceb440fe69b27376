"""Outer, semi, anti and as-of joins in a plan: how long rows are kept, and which columns decide a match.

A row r of an input that is closed is decided when the watermark passes r.t + W, the last time at which a partner could
come. Nothing is remembered of what it has met until then: its partners are looked up once more. So the other input
keeps its rows for that much longer, W + W', since a partner may be W' older than r. A semi join asks in the same way
whether a row has had a match before.

What ON compares beside keys is stored with the rows: the column itself where it has the type that it is compared in,
else a column that routing computes.

Invariant: equal texts have equal names, so that queries share columns. Cost: a look at the query, once for each plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from braidstream.kernels.rows import VALUE_OF, stored_name
from braidstream.model.join_kinds import JoinKind
from braidstream.model.stores import Computed, Join
from braidstream.plan.direct_keys import ARROW_TYPES
from braidstream.plan.keys import quoted
from braidstream.query import Input, Query
from braidstream.query.predicates import conjunction

__all__ = ["Compared", "compared", "compared_columns", "comparisons", "decided_stores", "matching", "with_retention"]


@dataclass(frozen=True)
class Compared:
    """A stored column that ON compares."""

    name: str
    type: str
    computed: Computed | None
    """Where routing computes it."""


def with_retention(query: Query) -> Query:
    """The query with the time for which the rows of each input are kept in the place of its window."""
    windows = [entry.window_us for entry in query.inputs]
    if query.kind is JoinKind.INNER:
        return query
    if len(windows) > 2:
        return _with_retention_on_top(query)
    if query.kind.is_asof:
        windows[0] = 0
    kept = list(windows)
    for closed in (0,) if query.kind is JoinKind.SEMI else query.kind.closed:
        own, other = windows[closed], windows[1 - closed]
        kept[1 - closed] = None if own is None or other is None else own + other
    return replace(query, inputs=tuple(replace(e, window_us=w) for e, w in zip(query.inputs, kept, strict=True)))


def _with_retention_on_top(query: Query) -> Query:
    """What LEFT JOINs keep is closed at its deadline, at most the shortest window of the inner joins after its time."""
    own = [entry.window_us for entry in query.inputs if entry.alias not in query.tops and entry.window_us is not None]
    inputs = (
        replace(entry, window_us=None if entry.window_us is None else entry.window_us + min(own))
        if entry.alias in query.tops
        else entry
        for entry in query.inputs
    )
    return replace(query, inputs=tuple(inputs))


def matching(entry: Input) -> str | None:
    """What a row must satisfy to have a match; None: nothing."""
    conditions = [one for one in (entry.filter, entry.match) if one is not None]
    return conjunction(conditions) if conditions else None


def compared_columns(query: Query, alias: str, schema: pa.Schema) -> Iterator[Compared]:
    """The columns of an input that ON compares."""
    for match in query.on:
        if alias == (match.alias or query.aliases[0]):
            yield compared(match.left, match.type, schema)
        if alias == (match.last or query.aliases[-1]):
            yield compared(match.right, match.type, schema)


def comparisons(query: Query, last: str, schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, str, str, str]]:
    """The comparisons of an input's ON over stored columns: the alias of the first, it, the operator, the input's."""
    for match in query.on:
        if last == (match.last or query.aliases[-1]):
            alias = match.alias or query.aliases[0]
            left = compared(match.left, match.type, schemas[alias]).name
            yield alias, left, match.operator, compared(match.right, match.type, schemas[last]).name


def decided_stores(joins: Sequence[Join]) -> set[int]:
    """The stores of joins that decide a row where all its partners are: their keys stay in one slot."""
    return {entry.store for join in joins if join.kind is not JoinKind.INNER for entry in join.inputs}


def compared(expression: str, type_: str, schema: pa.Schema) -> Compared:
    """The stored column of an expression in a type: the stream's own where it is that, else one that is computed."""
    plain = {quoted(name): name for name in schema.names}
    if expression in plain and _is_of(schema.field(plain[expression]).type, type_):
        return Compared(stored_name(plain[expression]), type_, None)
    key = f"CAST({expression} AS {type_})"
    return Compared(f"{VALUE_OF}{key}", type_, Computed(f"{VALUE_OF}{key}", key, is_hash=False))


def _is_of(kind: pa.DataType, type_: str) -> bool:
    if pa.types.is_decimal(kind):
        return type_ == f"decimal({kind.precision},{kind.scale})"
    return bool(ARROW_TYPES.get(type_) == kind)
