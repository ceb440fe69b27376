"""From a query to its operators: where each stream is indexed, and where intermediate results go next.

Idea: streams that share a class of equal attributes meet in one MJoin. A query of type 1 is a single one over all its
inputs (DHTJoin 3.3.1). A query of type 2 is a tree (3.3.2): the classes are taken one after another, every second one
first, and each makes an operator of the parts that it connects: a bushy tree whose subtrees work at the same time.

Invariant: each operator finds all equalities between its inputs: its own class by the key that the inputs are indexed
on, the others (in cyclic queries) as `residual` pairs. By induction the root enforces the whole query.
Cost: once a query. Limitation: join keys are plain columns; filters and other predicates are the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from braidstream.errors import QueryError
from braidstream.query.model import KeyClass, Query

__all__ = ["Field", "Operator", "OperatorTree", "Port", "Target", "plan"]

UNBOUNDED_US = 1 << 62


@dataclass(frozen=True)
class Field:
    """A column of one member of a composite: the member's place in it, and the column's place in its tuple."""

    member: int
    column: int


@dataclass(frozen=True)
class Target:
    """One input of one operator of one query of a simulation."""

    query: int
    operator: int
    port: int


@dataclass(frozen=True)
class Port:
    """One input of an operator: a stream (by alias) or another operator, and the field that it is indexed on."""

    alias: str
    operator: int | None
    key: Field
    attribute: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Operator:
    """An MJoin: composites of all ports with equal keys. The output goes to (operator, port), or to the user."""

    number: int
    ports: tuple[Port, ...]
    residual: tuple[tuple[Field, Field], ...]
    consumer: tuple[int, int] | None

    @property
    def members(self) -> tuple[str, ...]:
        """The aliases of the output, in order."""
        return tuple(alias for port in self.ports for alias in port.members)


@dataclass(frozen=True)
class OperatorTree:
    """The operators of a query, producers before consumers; the last one is the root."""

    query: Query
    operators: tuple[Operator, ...]
    windows_us: Mapping[str, int]
    stream_of: Mapping[str, str]

    @property
    def root(self) -> Operator:
        """The operator whose output is the answer."""
        return self.operators[-1]

    @property
    def depth(self) -> int:
        """How many operators a tuple passes at most."""
        depth = [1] * len(self.operators)
        for operator in self.operators:
            below = [depth[p.operator] for p in operator.ports if p.operator is not None]
            depth[operator.number] = 1 + max(below, default=0)
        return max(depth)

    def leaves(self) -> list[tuple[str, str, int, int]]:
        """Every stream input: (stream, attribute it is indexed on, operator, port)."""
        return [
            (self.stream_of[port.alias], port.attribute, operator.number, number)
            for operator in self.operators
            for number, port in enumerate(operator.ports)
            if port.operator is None
        ]


@dataclass(frozen=True)
class _Part:
    """A part of the query that is joined already: its aliases, and its operator or None for a single stream."""

    aliases: tuple[str, ...]
    operator: int | None


def plan(query: Query, columns: Mapping[str, Sequence[str]]) -> OperatorTree:
    """The plan of a query over streams with these columns."""
    _refuse_more_than_joins(query)
    stream_of = {entry.alias: entry.stream for entry in query.inputs}
    finder = _Finder(columns, stream_of)
    parts = [_Part((alias,), None) for alias in query.aliases]
    operators: list[Operator] = []
    classes = query.key_classes or query.join_edges
    for key in (*classes[::2], *classes[1::2]):
        meeting = [part for part in parts if set(part.aliases) & set(key.aliases)]
        if len(meeting) > 1:
            operators.append(_operator(len(operators), meeting, key, classes, finder))
            joined = _Part(operators[-1].members, len(operators) - 1)
            parts = [part for part in parts if part not in meeting] + [joined]
    windows = {e.alias: UNBOUNDED_US if e.window_us is None else e.window_us for e in query.inputs}
    return OperatorTree(query, _with_consumers(operators), windows, stream_of)


@dataclass(frozen=True)
class _Finder:
    columns: Mapping[str, Sequence[str]]
    stream_of: Mapping[str, str]

    def field(self, aliases: Sequence[str], key: KeyClass, first: int = 0) -> tuple[Field, str] | None:
        """The class's field in a composite of these aliases, and its column's name; None if no alias is in it."""
        for place, alias in enumerate(aliases):
            if alias in key.aliases:
                name = _plain_column(key.expression(alias))
                return Field(first + place, list(self.columns[self.stream_of[alias]]).index(name)), name
        return None


def _operator(
    number: int, meeting: Sequence[_Part], key: KeyClass, classes: Sequence[KeyClass], finder: _Finder
) -> Operator:
    ports = []
    for part in meeting:
        found = finder.field(part.aliases, key)
        assert found is not None, "a part that meets in a class has a member in it"
        ports.append(Port(part.aliases[0], part.operator, found[0], found[1], part.aliases))
    residual = [pair for other in classes if other != key for pair in _pairs(meeting, other, finder)]
    return Operator(number, tuple(ports), tuple(residual), None)


def _pairs(meeting: Sequence[_Part], key: KeyClass, finder: _Finder) -> list[tuple[Field, Field]]:
    """The equalities of a class between the parts, over the places of the joined composite."""
    found, first = [], 0
    for part in meeting:
        place = finder.field(part.aliases, key, first)
        found += [place[0]] if place else []
        first += len(part.aliases)
    return list(pairwise(found))


def _with_consumers(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    consumer = {
        port.operator: (operator.number, number)
        for operator in operators
        for number, port in enumerate(operator.ports)
        if port.operator is not None
    }
    return tuple(Operator(o.number, o.ports, o.residual, consumer.get(o.number)) for o in operators)


def _plain_column(expression: str) -> str:
    name = expression.strip("`")
    if expression != f"`{name}`":
        raise QueryError(f"the join key {expression} is computed", "a plain column", "compute it where tuples are made")
    return name


def _refuse_more_than_joins(query: Query) -> None:
    filters = [entry.filter for entry in query.inputs if entry.filter is not None]
    if filters or query.residual:
        raise QueryError(
            f"the overlay does not evaluate {[*filters, *query.residual][0]}", "equality joins only", "run it on Spark"
        )
    if len(query.inputs) < 2:
        raise QueryError("the overlay joins streams, and this query has one", "two streams or more", "run it on Spark")
