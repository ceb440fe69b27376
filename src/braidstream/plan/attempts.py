"""What a query with an output for bad rows computes of single rows, and which of that may fail on a row.

A row of a stream fails for a query if a condition on it, a key or another value cannot be computed, and no condition
that can be computed rules it out. It then goes to the query's output for bad rows, and the query does not see it: its
filter is not passed, or it has no key. Of an expression that another query uses as well, and that wants the flow to
stop at such a row, nothing is tried: the flow stops.

What cannot be told apart so is refused (`refuse_bad`): where a value that is NULL, because it failed, would still be
put out, as by a LEFT JOIN, or counted.

Invariant: an expression that is not among `Branch.tried` means what it meant. Pure. Cost: a look at the texts of a
query, once for each plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braidstream.errors import QueryError
from braidstream.model.columns import FAILED
from braidstream.model.join_kinds import JoinKind
from braidstream.model.stores import Attempt, Branch, Passing
from braidstream.plan.aggregate_plan import Draft
from braidstream.plan.direct_keys import ARROW_TYPES
from braidstream.plan.keys import cast, comparable
from braidstream.plan.retention import compared_columns, matching
from braidstream.plan.unkeyed import band_columns
from braidstream.query import Query
from braidstream.query.model import UNKEYED
from braidstream.query.pieces import conjuncts_of
from braidstream.query.source import DIALECT

__all__ = ["Attempts", "attempted_streams", "may_fail", "refuse_bad", "shown_value"]

Schemas = Mapping[str, pa.Schema]
"""The columns of streams."""
_SAFE = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is,
    exp.In, exp.Between,
)  # fmt: skip
"""What compares, of which no row can fail where both sides are of one family of types."""
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Of integers by their bits, as a decimal that Spark compares with other decimals; it has at most `_MOST` of them."""
_MOST = 38
_NEVER = ("false",)
"""The condition of a filter that no query has any more: nobody asks, so no row is to fail in it."""


@dataclass
class Attempts:
    """Collects, query by query, what is tried of each stream, and what stops the flow."""

    schemas: Schemas
    _made: dict[str, list[Attempt]] = field(default_factory=dict)
    _tried: dict[str, dict[str, None]] = field(default_factory=dict)
    _strict: dict[str, set[str]] = field(default_factory=dict)
    _tests: dict[str, dict[str, Passing]] = field(default_factory=dict)
    _used: dict[str, set[str]] = field(default_factory=dict)

    def add(self, query: Query, draft: Draft | None = None, *, is_bad: bool) -> None:
        """A query; `is_bad` says whether it has an output for bad rows."""
        for alias in query.aliases:
            entry = query.input(alias)
            schema, stream = self.schemas[entry.stream], entry.stream
            if not is_bad:
                wanted = (entry.filter, entry.match, matching(entry), *_values(query, alias, schema, draft, whole=True))
                self._strict.setdefault(stream, set()).update(text for text in wanted if text is not None)
                continue
            made = _attempt(query, alias, schema, draft)
            if made is None:
                continue
            self._made.setdefault(stream, []).append(made)
            texts = (*made.conditions, *_values(query, alias, schema, draft, whole=True))
            self._tried.setdefault(stream, {}).update({one: None for one in texts if may_fail(one, schema)})
            tests = self._tests.setdefault(stream, {})
            if (text := tested(query, alias, schema, draft)) is not None:
                arguments = _arguments(query, alias, draft) if text != entry.filter else ()
                tests[text] = Passing(text, made.conditions, tuple(arguments))
            if entry.match is not None and (both := matching(entry)) is not None:
                tests[both] = Passing(both, (*made.conditions, entry.match))

    def uses(self, stream: str, condition: str | None) -> None:
        """A filter that some query has; stores remember those of others, too, for the sake of their bits."""
        if condition is not None:
            self._used.setdefault(stream, set()).add(condition)

    def on(self, branch: Branch) -> Branch:
        """A branch with what is tried of its rows; what fails goes the way of late tuples."""
        used, made = self._used.get(branch.stream, set()), self._made.get(branch.stream)
        known = dict.fromkeys(text for store in branch.stores for text in store.filters)
        branch = replace(branch, tests=tuple(Passing(text, _NEVER) for text in known if text not in used))
        if made is None or not branch.late_columns:
            return branch
        strict = self._strict.get(branch.stream, set())
        return replace(
            branch,
            late_columns=(*branch.late_columns, FAILED),
            attempts=tuple(made),
            tried=tuple(one for one in self._tried[branch.stream] if one not in strict),
            tests=(*branch.tests, *(one for text, one in self._tests[branch.stream].items() if text not in strict)),
        )


def attempted_streams(query: Query, schemas: Schemas, draft: Draft | None) -> tuple[str, ...]:
    """The streams of whose rows some expression of a query may fail."""
    found = (e.stream for e in query.inputs if _attempt(query, e.alias, schemas[e.stream], draft) is not None)
    return tuple(dict.fromkeys(found))


def tested(query: Query, alias: str, schema: pa.Schema, draft: Draft | None) -> str | None:
    """The filter of an input of a query with an output for bad rows; it has a name of its own if values are tested.

    Only for aggregates, whose rows are not stored: bits of rows that are stored keep their meaning.
    """
    own = query.input(alias).filter
    arguments = [one for one in _arguments(query, alias, draft) if may_fail(one, schema)]
    return f"{own or 'all'} /* where {', '.join(arguments)} can be computed */" if arguments else own


def _attempt(query: Query, alias: str, schema: pa.Schema, draft: Draft | None) -> Attempt | None:
    """What is computed of each row of an input; None where nothing can fail."""
    own = query.input(alias).filter
    conditions = () if own is None else conjuncts_of(own)
    values = tuple(one for one in _values(query, alias, schema, draft) if may_fail(one, schema))
    if not values and not any(may_fail(one, schema) for one in conditions):
        return None
    return Attempt(query.name, conditions, values)


def _values(query: Query, alias: str, schema: pa.Schema, draft: Draft | None, *, whole: bool = False) -> Iterator[str]:
    """The keys of an input, and what else routing computes of its rows; with `whole` in all forms that it takes."""
    for edge in (*query.key_classes, *query.join_edges):
        if alias in edge.aliases and edge.expression(alias) != UNKEYED:
            yield cast(edge, alias)
            if whole:
                yield comparable(cast(edge, alias), edge.type)
    for column in (*compared_columns(query, alias, schema), *band_columns(query, alias, schema)):
        if column.computed is not None:
            yield column.computed.key
    yield from _arguments(query, alias, draft)


def _arguments(query: Query, alias: str, draft: Draft | None) -> Iterator[str]:
    """What is aggregated or grouped by, computed before the exchange."""
    if draft is not None and draft.enumeration is None:
        yield from (one.key for one in draft.computed[query.aliases.index(alias)])


def refuse_bad(query: Query, schemas: Schemas) -> None:
    """Refuse an output for bad rows where a row that fails would still be a result, or be taken for another one."""
    for entry in query.inputs:
        schema = schemas[entry.stream]
        if entry.match is not None and may_fail(entry.match, schema):
            fix = f"compute it in stream {entry.stream}, or move it to WHERE, where it is over results"
            raise _refused(query, entry.match, f"ON of a {query.kind.words}, about rows that are put out anyway", fix)
        for column in compared_columns(query, entry.alias, schema):
            is_plain = column.computed is None or not may_fail(column.computed.key, schema)
            is_counted = query.kind is not JoinKind.INNER or any(one.operator == "<=>" for one in query.on)
            if not is_plain and is_counted and column.computed is not None:
                fix = f"compute it in stream {entry.stream}, or use try_cast or try_divide there"
                raise _refused(query, column.computed.key, f"what ON of a {query.kind.words} compares", fix)
        for edge in query.join_edges if query.tops else ():
            if entry.alias in edge.aliases and may_fail(cast(edge, entry.alias), schema):
                fix = f"compute it in stream {entry.stream}, or use try_cast or try_divide there"
                raise _refused(query, cast(edge, entry.alias), "a key of LEFT JOINs over other joins", fix)


def _refused(query: Query, text: str, what: str, fix: str) -> QueryError:
    wrong = f"query {query.name!r} has bad, and {shown_value(text)} may fail on a row: it is {what}"
    return QueryError(wrong, "expressions there that cannot fail: columns, and comparisons of one type", fix)


def shown_value(text: str) -> str:
    """An expression as the user knows it: without quotes, and without the type that keys are compared in."""
    node = _parsed(text)
    if isinstance(node, exp.Cast) and not isinstance(node.this, (exp.Column, exp.Literal)):
        inner, _, _ = text.strip().removeprefix("CAST(").rpartition(" AS ")
        text = inner if text.startswith("CAST(") and inner else text
    return text.replace("`", "")


def may_fail(text: str, schema: pa.Schema) -> bool:
    """Whether an expression over the columns of a stream may fail on a row, as far as that is easily seen."""
    node = _parsed(text)
    return node is None or not _is_safe(node, schema)


def _parsed(text: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(text, dialect=DIALECT)
    except SqlglotError:
        return None


def _is_safe(node: exp.Expr, schema: pa.Schema) -> bool:
    if isinstance(node, exp.Cast):
        return _widens(node, schema)
    if not isinstance(node, _SAFE):
        return _family(node, schema) is not None
    parts = [part for part in node.iter_expressions() if not isinstance(part, exp.Null)]
    if isinstance(node, exp.Paren):
        return _is_safe(node.this, schema)
    if isinstance(node, (exp.And, exp.Or, exp.Not)):  # a text there would be cast
        return all(_is_safe(part, schema) and _is_boolean(part, schema) for part in parts)
    families = {_family(part, schema) for part in parts}
    return None not in families and len(families) == 1 and _has_common_type(parts, schema)


def _is_boolean(node: exp.Expr, schema: pa.Schema) -> bool:
    """Whether what does not fail is a condition, and not a value of another type."""
    inner = node.unnest()
    return isinstance(inner, _SAFE) or _family(inner, schema) == "boolean"


def _family(node: exp.Expr, schema: pa.Schema) -> str | None:
    """The family of types of a column or a constant; None of everything else."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    if isinstance(inner, exp.Neg):
        inner, negated = inner.this, _kind(inner.this, schema)
        if negated is not None and pa.types.is_integer(negated):  # the least one has no opposite
            return None
    if isinstance(inner, exp.Boolean):
        return "boolean"
    if isinstance(inner, exp.Literal):
        return "text" if inner.is_string else "number"
    kind = _kind(inner, schema)
    if kind is None:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return {pa.string(): "text", pa.large_string(): "text", pa.bool_(): "boolean"}.get(kind, str(kind))


def _has_common_type(parts: Sequence[exp.Expr], schema: pa.Schema) -> bool:
    """Whether Spark's decimal for all of these has a place for every digit; else it fails on large numbers."""
    sizes = [size for part in parts if (size := _digits(part, schema)) is not None]
    return not sizes or max(whole for whole, _ in sizes) + max(scale for _, scale in sizes) <= _MOST


def _digits(node: exp.Expr, schema: pa.Schema) -> tuple[int, int] | None:
    """The digits before and after the point of an exact number; None of everything else."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    inner = inner.this if isinstance(inner, exp.Neg) else inner
    if isinstance(inner, exp.Literal):
        whole, _, rest = inner.name.partition(".")
        is_exact = not inner.is_string and (whole + rest).isdecimal()
        return (len(whole.lstrip("0")), len(rest)) if is_exact else None
    kind = _kind(inner, schema)
    if kind is None or not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return None
    return (_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else (kind.precision - kind.scale, kind.scale)


def _kind(node: exp.Expr, schema: pa.Schema) -> pa.DataType | None:
    """The type of a column of the stream."""
    is_column = isinstance(node, exp.Column) and len(node.parts) == 1 and node.name in schema.names
    return schema.field(node.name).type if is_column else None


def _widens(node: exp.Cast, schema: pa.Schema) -> bool:
    """Whether it is a column, or a constant, in its own type or one that has a place for it."""
    own, wanted = _kind(node.this, schema), node.to.sql(DIALECT).lower()
    if isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _takes(wanted, node.this.name)
    if own is None:
        return False
    if pa.types.is_decimal(own):
        return wanted.replace(" ", "") == f"decimal({own.precision},{own.scale})"
    target = ARROW_TYPES.get(wanted)
    if target is None:
        return False
    numbers = pa.types.is_integer(own) and pa.types.is_integer(target) and own.bit_width <= target.bit_width
    floats = (pa.types.is_integer(own) or pa.types.is_floating(own)) and pa.types.is_floating(target)
    return bool(numbers or floats or own == target or pa.types.is_string(target))


def _takes(wanted: str, text: str) -> bool:
    """Whether a type has a place for a number."""
    target = ARROW_TYPES.get(wanted)
    if target is not None and not pa.types.is_integer(target):
        return True
    try:
        number = Decimal(text)
    except ArithmeticError:
        return False
    if target is not None:
        return bool(-(2 ** (target.bit_width - 1)) <= number < 2 ** (target.bit_width - 1))
    precision, _, scale = wanted.replace(" ", "").removeprefix("decimal(").removesuffix(")").partition(",")
    if not wanted.startswith("decimal(") or not (precision + scale).isdecimal():
        return False
    return number < Decimal(10) ** (int(precision) - int(scale or 0)) - Decimal(5).scaleb(-int(scale or 0) - 1)
