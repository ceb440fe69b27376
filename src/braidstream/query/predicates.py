"""WHERE and ON: which conjuncts are filters, which are join keys, which are left for the composites.

A conjunct over one stream filters that stream before the exchange. An equality between expressions over one stream each
joins them: equalities chain into *classes* (DHTJoin 2.1's attribute classes), found by union-find, so
`X.a = Y.a AND Y.a = Z.a` and the paper's `X.a = Y.a = Z.a` are the same class. Comparisons of event times are intervals
(`intervals`). Everything else is residual.

Invariants: the conjunction of filters, classes, intervals and residual is equivalent to the condition as written; NULL
equals nothing throughout. A class has at most one member for each input: a second one becomes a filter of that input.
Cost: linear in the condition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from braidstream.errors import QueryError
from braidstream.query.intervals import Interval, interval_of
from braidstream.query.meaning import Uncomputable
from braidstream.query.model import UNKEYED, KeyClass, Match
from braidstream.query.pieces import is_clear
from braidstream.query.scope import Relation, Scope
from braidstream.query.source import sql_of
from braidstream.query.types import common_type, family, is_comparable, keeps_apart

__all__ = ["Joined", "conjunction", "conjuncts", "edge_of", "join_condition", "on_its_time", "typed_sides"]


@dataclass(frozen=True)
class Joined:
    """What a condition means for the join: the parts of a Query that come from WHERE and ON."""

    filters: dict[str, str]
    key_classes: tuple[KeyClass, ...]
    join_edges: tuple[KeyClass, ...]
    residual: tuple[exp.Expr, ...]
    conditions: tuple[str, ...]
    """The conjuncts that became filters, qualified."""
    matching: dict[str, str] = field(default_factory=dict)
    """By alias: what its rows must satisfy to have a match, where they are put out without one as well."""
    on: tuple[Match, ...] = ()
    compared: tuple[exp.Expr, ...] = ()
    """The conjuncts that these comparisons come from."""
    intervals: tuple[Interval, ...] = ()
    """Bounds on how far apart the times of streams are; they are not among the residual."""


@dataclass(frozen=True)
class _Term:
    """One side of an equality between streams."""

    alias: str
    sql: str
    type: str
    node: exp.Expr

    @property
    def id(self) -> tuple[str, str]:
        return self.alias, self.sql

    def cast(self, type_: str) -> str:
        return self.sql if self.type == type_ else f"CAST({self.sql} AS {type_.upper()})"


@dataclass(frozen=True)
class _Equality:
    """An equality between two streams, as written."""

    left: _Term
    right: _Term
    node: exp.Expr
    type: str


@dataclass(frozen=True)
class _Class:
    """The equalities of one class, its terms in the order of FROM, and the type they are compared in."""

    equalities: tuple[_Equality, ...]
    terms: tuple[_Term, ...]
    type: str

    @property
    def members(self) -> tuple[_Term, ...]:
        """The first term of each alias."""
        first: dict[str, _Term] = {}
        for term in self.terms:
            first.setdefault(term.alias, term)
        return tuple(first.values())

    @property
    def key_class(self) -> KeyClass:
        return KeyClass(tuple(term.id for term in self.members), self.type)

    def filters(self) -> Iterator[tuple[str, str]]:
        """Second members of an input must equal its first."""
        first = {term.alias: term for term in self.members}
        for term in self.terms:
            if term is not first[term.alias]:
                yield term.alias, f"{first[term.alias].cast(self.type)} = {term.cast(self.type)}"

    def inexact(self) -> Iterator[exp.Expr]:
        """Equalities that the class, compared in a wider type, no longer decides: composites are checked again."""
        return (one.node for one in self.equalities if not keeps_apart(one.type, self.type))


def join_condition(
    scope: Scope, parts: Iterable[exp.Expr], clause: str = "WHERE", *, needs_equality: bool = True
) -> Joined:
    """Sort the conjuncts of resolved conditions (`conjuncts`); `clause` is where they stand, for messages.

    Two streams that no equality joins have one key that all rows share, unless equalities are needed.
    """
    filters: dict[str, set[str]] = {}
    equalities: list[_Equality] = []
    residual: list[exp.Expr] = []
    filtering: list[str] = []
    intervals: list[Interval] = []
    for conjunct in parts:
        used = scope.used(conjunct)
        if len(used) < 2:
            filters.setdefault((used or scope.aliases)[0], set()).add(scope.text(conjunct, bare=True))
            filtering.append(scope.text(conjunct))
        elif _joins(scope, conjunct):
            equalities.append(_equality(scope, conjunct))
        elif (interval := interval_of(scope, conjunct)) is not None:
            intervals.append(interval)
        else:
            residual.append(conjunct)
    classes = _classes(scope, equalities)
    if needs_equality or classes or len(scope.relations) != 2:
        _require_connected(scope, classes, clause, needs_equality=needs_equality)
    joined = _assembled(scope, filters, classes, residual)
    if not classes and len(scope.relations) == 2:
        joined = replace(joined, key_classes=(KeyClass(tuple((alias, UNKEYED) for alias in scope.aliases), "int"),))
    return replace(joined, conditions=tuple(filtering), intervals=tuple(intervals))


def on_its_time(relation: Relation, joined: Joined) -> Joined:
    """A stream that is joined with nothing is spread by its time, which every row that counts has."""
    assert relation.schema.time is not None
    column = relation.schema[relation.schema.time]
    key = sql_of(exp.column(exp.to_identifier(column.name, quoted=True)))
    return replace(joined, key_classes=(KeyClass(((relation.alias, key),), column.type),), join_edges=())


def _assembled(scope: Scope, filters: dict[str, set[str]], classes: list[_Class], residual: list[exp.Expr]) -> Joined:
    covering = [one for one in classes if len(one.members) == len(scope.relations)]
    for one in classes:
        if one in covering or not covering:
            residual.extend(one.inexact())
            for alias, condition in one.filters():
                filters.setdefault(alias, set()).add(condition)
        else:
            residual.extend(equality.node for equality in one.equalities)
    edges = () if covering else tuple(one.key_class for one in classes)
    return Joined(_joined_filters(filters), tuple(one.key_class for one in covering), edges, tuple(residual), ())


def _joined_filters(filters: dict[str, set[str]]) -> dict[str, str]:
    """One condition for each alias. Sorted, so that equal filters are equal texts and can share an exchange."""
    return {alias: conjunction(parts) for alias, parts in filters.items()}


def conjunction(parts: Iterable[str]) -> str:
    """Several conditions as one."""
    distinct = sorted(set(parts))
    return distinct[0] if len(distinct) == 1 else " AND ".join(f"({part})" for part in distinct)


def edge_of(scope: Scope, node: exp.Expr) -> KeyClass | None:
    """The class of one equality between two streams, in the order of FROM; None where it is none."""
    if not _joins(scope, node):
        return None
    one = _equality(scope, node)
    terms = sorted((one.left, one.right), key=lambda term: scope.aliases.index(term.alias))
    return KeyClass(tuple(term.id for term in terms), one.type)


def typed_sides(scope: Scope, left: exp.Expr, right: exp.Expr) -> str:
    """The type in which two expressions, over one stream each, are compared; refused where they do not compare."""
    return _equality(scope, exp.EQ(this=left.copy(), expression=right.copy())).type


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a conjunction; chains `a = b = c` are taken apart into `a = b` and `b = c`."""
    inner = node.unnest()
    if isinstance(inner, exp.And):
        for part in inner.flatten():
            yield from conjuncts(part)
    elif isinstance(inner, exp.EQ) and isinstance(inner.this, exp.EQ):
        yield from conjuncts(inner.this)
        yield exp.EQ(this=inner.this.expression.copy(), expression=inner.expression.copy())
    elif not (isinstance(inner, exp.Boolean) and inner.this):
        yield inner


def _joins(scope: Scope, node: exp.Expr) -> bool:
    """Whether it is an equality between two streams, each side over one of them."""
    if not isinstance(node, exp.EQ) or not is_clear(node):
        return False
    left, right = scope.used(node.this), scope.used(node.expression)
    return len(left) == 1 and len(right) == 1 and left != right


def _equality(scope: Scope, node: exp.Expr) -> _Equality:
    if scope.meaning is not None:
        return _analyzed(scope, node)
    types = _known_types(scope, node.this, node.expression)
    left, right = _term(scope, node.this, types[0]), _term(scope, node.expression, types[1])
    type_ = common_type(left.type, right.type)
    if type_ is None:
        raise _incomparable(scope, left, right)
    return _Equality(left, right, node, type_)


def _analyzed(scope: Scope, node: exp.Expr) -> _Equality:
    """An equality in the types that Spark's analyzer gives it."""
    assert scope.meaning is not None
    sides = node.this.unnest(), node.expression.unnest()
    types = _same_columns(scope, *sides)
    try:
        types = types or scope.meaning.compared(scope.inputs, scope.text(sides[0]), scope.text(sides[1]))
    except Uncomputable as error:
        raise scope.refused(node, error) from None
    left, right = _term(scope, sides[0], types[0]), _term(scope, sides[1], types[1])
    if family(left.type) != family(right.type) or not (is_comparable(left.type) and is_comparable(right.type)):
        raise _incomparable(scope, left, right)
    for refused, fix in _NOT_AS_KEYS:
        if re.search(refused, types[2]):
            raise _not_as_key(scope, left, right, types[2], fix)
    is_computed = any(not scope.is_plain(side) and not isinstance(side, exp.Cast) for side in sides)
    return _Equality(left, right, node, _roomy(*types) if is_computed else types[2])


def _same_columns(scope: Scope, left: exp.Expr, right: exp.Expr) -> tuple[str, str, str] | None:
    """Columns of one plain type are compared in it: Spark need not be asked."""
    type_ = scope.type(left) if scope.is_plain(left) and scope.is_plain(right) else None
    is_known = type_ is not None and type_ == scope.type(right) and re.fullmatch(r"\w+(\(\d+,\d+\))?", type_)
    return (type_, type_, type_) if type_ is not None and is_known else None


_NOT_AS_KEYS = (
    (r"\bcollate\b", "compare bytes, COLLATE UTF8_BINARY on both sides, or fold both, such as lower(...)"),
    (r"interval (year|month)|interval$", "compare numbers: extract(YEAR FROM ...), extract(MONTH FROM ...)"),
)
"""Types that Spark compares in ways that it does not offer to others: the keys are hashed and compared here."""


def _not_as_key(scope: Scope, left: _Term, right: _Term, type_: str, fix: str) -> QueryError:
    wrong = f"join keys {_readable(left.node)} and {_readable(right.node)} are compared as {type_}"
    return scope.source.error(scope.source.start(left.node), wrong, "keys that are equal where their bytes are", fix)


def _roomy(left: str, right: str, common: str) -> str:
    """Expressions of narrow numbers are keyed by the widest of their kind, so that more queries share a store."""
    if common == "float":
        return "double" if left == right == "float" else common
    return {"tinyint": "bigint", "smallint": "bigint", "int": "bigint"}.get(common, common)


def _known_types(scope: Scope, *sides: exp.Expr) -> list[str]:
    types = [scope.type(side) for side in sides]
    for side, type_, other in zip(sides, types, reversed(types), strict=True):
        if type_ is None:
            text = _readable(side)
            wrong, expected = f"the type of the join key {text} is not known", "a column, or an expression with a type"
            fix = f"write CAST({text} AS {(other or 'string').upper()})"
            raise scope.source.error(scope.source.start(side), wrong, expected, fix)
    return [type_ for type_ in types if type_ is not None]


def _term(scope: Scope, node: exp.Expr, type_: str) -> _Term:
    return _Term(scope.used(node)[0], scope.text(node.unnest(), bare=True), type_, node)


def _classes(scope: Scope, equalities: list[_Equality]) -> list[_Class]:
    """The classes, in the order in which they begin in the text."""
    groups: list[list[_Equality]] = []
    for equality in equalities:
        ids = {equality.left.id, equality.right.id}
        touched = [group for group in groups if any(ids & {one.left.id, one.right.id} for one in group)]
        if not touched:
            groups.append([equality])
            continue
        touched[0].extend(one for group in touched[1:] for one in group)
        touched[0].append(equality)
        groups = [group for group in groups if group not in touched[1:]]
    return [_class(scope, group) for group in groups]


def _class(scope: Scope, equalities: list[_Equality]) -> _Class:
    distinct = {term.id: term for one in equalities for term in (one.left, one.right)}
    terms = sorted(distinct.values(), key=lambda term: scope.aliases.index(term.alias))
    type_ = equalities[0].type
    for one in equalities:
        common = common_type(type_, one.type)
        if common is None:
            raise _incomparable(scope, equalities[0].left, one.right)
        type_ = common
    for one in equalities:
        if one.type != type_ and not all(keeps_apart(term.type, one.type) for term in (one.left, one.right)):
            raise _incomparable(scope, one.left, one.right)  # what one equality takes for equal, the class would not
    return _Class(tuple(equalities), tuple(terms), type_)


def _require_connected(scope: Scope, classes: list[_Class], clause: str, *, needs_equality: bool) -> None:
    """Every input must be reachable from the first by equalities."""
    reached, frontier = set(), {scope.aliases[0]}
    while frontier:
        reached |= frontier
        touching = [one for one in classes if reached & set(one.key_class.aliases)]
        frontier = {alias for one in touching for alias in one.key_class.aliases} - reached
    lost = [relation for relation in scope.relations if relation.alias not in reached]
    if lost:
        told = _no_predicate(scope, lost[0].alias, clause)
        if not needs_equality:
            told = told[0], "equalities between all streams, or two streams without one", told[2]
        raise scope.source.error(lost[0].offset, *told)


def _no_predicate(scope: Scope, alias: str, clause: str) -> tuple[str, str, str]:
    first = scope.aliases[0]
    wrong = f"no join predicate connects {alias} with {', '.join(one for one in scope.aliases if one != alias)}"
    shared = [name for name in scope.relation(first).schema.names if name in scope.relation(alias).schema]
    key = shared[0] if shared else "key"
    expected, fix = "equalities between streams, joined by AND", f"add {first}.{key} = {alias}.{key} to {clause}"
    if len(scope.relations) != 2:
        return wrong, expected, fix
    if clause == "ON":
        return wrong, f"{expected} (only an inner join may do without)", fix
    cost = f"each new row then meets the other window: |{first}| x |{alias}| / p pairs on p slots"
    return wrong, expected, f'{fix}, or allow it: allow = "no-equality" ({cost})'


def _incomparable(scope: Scope, left: _Term, right: _Term) -> QueryError:
    texts = _readable(left.node), _readable(right.node)
    wrong = f"join keys {texts[0]} ({left.type}) and {texts[1]} ({right.type}) do not compare"
    fix = f"write CAST({texts[1]} AS {left.type.upper()})"
    if "string" in (left.type, right.type):  # a cast to string never fails, a cast of a string may
        fix = f"write CAST({texts[1 if left.type == 'string' else 0]} AS STRING)"
    if not (is_comparable(left.type) and is_comparable(right.type)):
        fix = "join on a column, a field or an element that is no map"
    return scope.source.error(scope.source.start(left.node), wrong, "types that compare without a guess", fix)


def _readable(node: exp.Expr) -> str:
    return sql_of(node).replace("`", "")
