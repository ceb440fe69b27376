"""SELECT and GROUP BY: the columns of the result, plain or aggregated.

`*` and `R.*` are expanded in the order of FROM and of the schemas. A column that a star brings in and whose name
another output also has is named `alias_column` (`SELECT *` over R(k, v) and S(k, w) gives R_k, v, S_k, w); names that
the query spells out are never changed, and two equal ones are refused.

In an aggregate query each SUM, COUNT, AVG, MIN or MAX becomes an `Aggregate`, each GROUP BY entry an `Output`, and the
select items become texts over their names; so `sum(R.v) / count(*)` costs the engine nothing special.

Invariant: output names differ in more than letter case. Cost: linear in the select list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import TokenType, exp

from braidstream.errors import QueryError, nearest
from braidstream.model.join_kinds import JoinKind
from braidstream.query.model import AGGREGATE_FUNCTIONS, Aggregate, Output
from braidstream.query.scope import Relation, Scope
from braidstream.query.source import DIALECT, Source, bare_sql, sql_of

__all__ = ["Selected", "select_outputs"]

_FUNCTIONS = {exp.Sum: "sum", exp.Count: "count", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}
_SUPPORTED = ", ".join(name.upper() for name in AGGREGATE_FUNCTIONS)


@dataclass(frozen=True)
class Selected:
    """The parts of a Query that come from SELECT and GROUP BY, and the expressions over composites they need."""

    outputs: tuple[Output, ...]
    aggregates: tuple[Aggregate, ...]
    group_by: tuple[Output, ...]
    needs: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class _Item:
    """One output column: its name, its resolved expression, its place; `star` is the alias of the star it came from."""

    name: str
    node: exp.Expr
    offset: int
    star: str = ""

    @property
    def output(self) -> Output:
        plain = (self.node.table, self.node.name) if isinstance(self.node, exp.Column) else None
        return Output(self.name, sql_of(self.node), plain)

    def meant(self, scope: Scope) -> Output:
        """The output as Spark is to compute it."""
        return replace(self.output, sql=scope.text(self.node))


@dataclass
class _Aggregation:
    """What was found so far in the items of an aggregate query."""

    scope: Scope
    groups: dict[str, Output]
    taken: set[str]
    aggregates: dict[tuple[str, str | None], Aggregate] = field(default_factory=dict)
    arguments: list[exp.Expr] = field(default_factory=list)


def select_outputs(scope: Scope, select: exp.Select, kind: JoinKind = JoinKind.INNER) -> Selected:
    """Resolve and sort the select list and GROUP BY."""
    shown = scope.aliases if len(kind.shown) == 2 else scope.aliases[:1]
    items = _distinct(scope.source, [item for node in select.expressions for item in _items(scope, node, shown)])
    _refuse_hidden(scope, items, shown, kind)
    groups = _group_nodes(scope, select.args.get("group"), items)
    if kind is not JoinKind.INNER:
        _refuse_aggregates(scope, select, items, kind)
    if not groups and not any(item.node.find(exp.AggFunc) for item in items):
        return Selected(tuple(item.meant(scope) for item in items), (), (), tuple(item.node for item in items))
    return _aggregated(scope, items, groups)


def _refuse_hidden(scope: Scope, items: list[_Item], shown: Sequence[str], kind: JoinKind) -> None:
    for item in items:
        hidden = next((alias for alias in scope.used(item.node) if alias not in shown), None)
        if hidden is not None:
            wrong = f"{hidden} is not in the result of a {kind.words}"
            fix = f"leave {sql_of(item.node).replace('`', '')} out"
            raise scope.source.error(item.offset, wrong, f"columns of {', '.join(shown)}", fix)


def _refuse_aggregates(scope: Scope, select: exp.Select, items: list[_Item], kind: JoinKind) -> None:
    aggregated = next((item for item in items if item.node.find(exp.AggFunc)), None)
    if aggregated is None and select.args.get("group") is None:
        return
    at = scope.source.keyword(TokenType.GROUP_BY) if aggregated is None else aggregated.offset
    wrong = f"aggregates over a {kind.words} are not supported"
    fix = "send its results to a sink, and aggregate them there"
    raise scope.source.error(at, wrong, "columns and expressions, or an inner join", fix)


def _items(scope: Scope, node: exp.Expr, shown: Sequence[str]) -> Iterator[_Item]:
    if isinstance(node, exp.Star):
        _refuse_star_options(scope.source, node)
        at = scope.source.star()
        for relation in scope.named:
            if (relation.host or relation.alias) in shown:
                yield from _starred(scope, relation, at)
    elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        _refuse_star_options(scope.source, node.this)
        yield from _starred(scope, _star_relation(scope, node), scope.source.start(node))
    else:
        yield _named(scope, node)


def _named(scope: Scope, node: exp.Expr) -> _Item:
    resolved = scope.resolve(node.unalias())
    offset = scope.source.start(node.args["alias"] if isinstance(node, exp.Alias) else node)
    return _Item(node.alias or _default_name(resolved, scope), resolved, offset)


def _starred(scope: Scope, relation: Relation, offset: int) -> Iterator[_Item]:
    for name in relation.columns:
        alias, column = (exp.to_identifier(part, quoted=True) for part in relation.place(name))
        yield _Item(name, exp.column(column, table=alias), offset, star=relation.alias)


def _star_relation(scope: Scope, node: exp.Column) -> Relation:
    found = [relation for relation in scope.named if relation.alias.lower() == node.table.lower()]
    if not found:
        aliases = [relation.alias for relation in scope.named]
        expected, fix = f"one of {', '.join(aliases)}", nearest(node.table, aliases)
        at = scope.source.start(node)
        raise scope.source.error(at, f"FROM has no stream or alias {node.table!r}", expected, fix)
    return found[0]


def _refuse_star_options(source: Source, star: exp.Star) -> None:
    if any(star.args.values()):
        at = source.star()
        raise source.error(at, "EXCEPT after * is not supported", "* alone", "list the columns you want")


def _default_name(node: exp.Expr, scope: Scope | None = None) -> str:
    """The column's own name, the last field's, or the expression in short: `sum(size)`, `v + 1`."""
    if isinstance(node, exp.Column):
        return node.name if scope is None else scope.shown(node)
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    is_own = scope is not None and not node.find(exp.AggFunc)
    text = (scope.text(node, bare=True) if scope is not None and is_own else bare_sql(node)).replace("`", "")
    return re.sub(r"\b[A-Z][A-Z0-9_]*(?=\()", lambda found: found[0].lower(), text)


def _distinct(source: Source, items: list[_Item]) -> list[_Item]:
    """Names that differ: stars give way, names that are spelled out do not."""
    names = [item.name.lower() for item in items]
    items = [
        replace(item, name=f"{item.star}_{item.name}") if item.star and names.count(item.name.lower()) > 1 else item
        for item in items
    ]
    seen: set[str] = set()
    for item in items:
        if item.name.lower() in seen:
            raise _duplicate(source, item)
        seen.add(item.name.lower())
    return items


def _duplicate(source: Source, item: _Item) -> QueryError:
    owner = item.node.table if isinstance(item.node, exp.Column) else "other"
    fix = f"give one of them another name: {sql_of(item.node).replace('`', '')} AS {owner}_{item.name}"
    return source.error(item.offset, f"two output columns are named {item.name!r}", "names that differ", fix)


def _group_nodes(scope: Scope, group: exp.Expr | None, items: list[_Item]) -> list[exp.Expr]:
    if group is None:
        return []
    if any(value for key, value in group.args.items() if key != "expressions") or not group.expressions:
        raise _plain_group_only(scope.source)
    return [_group_node(scope, node, items) for node in group.expressions]


def _group_node(scope: Scope, node: exp.Expr, items: list[_Item]) -> exp.Expr:
    """A GROUP BY entry: an expression, the position of a select item, or its alias (columns first, as in Spark)."""
    if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        raise _plain_group_only(scope.source)
    chosen = _by_position_or_alias(scope, node, items)
    resolved = chosen.node if chosen else scope.resolve(node)
    if resolved.find(exp.AggFunc):
        at = scope.source.start(node)
        raise scope.source.error(at, "GROUP BY cannot hold an aggregate", "columns", "leave it out of GROUP BY")
    return resolved


def _by_position_or_alias(scope: Scope, node: exp.Expr, items: list[_Item]) -> _Item | None:
    if isinstance(node, exp.Literal) and node.is_int:
        if not 1 <= int(node.name) <= len(items):
            wrong = f"GROUP BY {node.name} is no position in the select list"
            raise scope.source.error(scope.source.start(node), wrong, f"1 to {len(items)}", "name the column instead")
        return items[int(node.name) - 1]
    is_name = isinstance(node, exp.Column) and not node.table
    if is_name and not any(node.name in relation.schema for relation in scope.named):
        return next((item for item in items if item.name.lower() == node.name.lower()), None)
    return None


def _plain_group_only(source: Source) -> QueryError:
    wrong = "ROLLUP, CUBE, GROUPING SETS and ALL are not supported in GROUP BY"
    return source.error(source.keyword(TokenType.GROUP_BY), wrong, "a list of columns", "write GROUP BY R.k")


def _aggregated(scope: Scope, items: list[_Item], nodes: list[exp.Expr]) -> Selected:
    if not any(item.node.find(exp.AggFunc) for item in items):
        at = scope.source.keyword(TokenType.GROUP_BY)
        raise scope.source.error(at, "GROUP BY without an aggregate", f"one of {_SUPPORTED}", "add COUNT(*) AS n")
    _refuse_other_meanings(scope, items, nodes)
    taken = {item.name.lower() for item in items}
    found = _Aggregation(scope, _groups(scope, nodes, items, taken), taken)
    outputs = tuple(Output(item.name, sql_of(_over_aggregates(found, item))) for item in items)
    groups = tuple(found.groups.values())
    return Selected(outputs, tuple(found.aggregates.values()), groups, (*nodes, *found.arguments))


def _refuse_other_meanings(scope: Scope, items: list[_Item], nodes: list[exp.Expr]) -> None:
    """Aggregates are taken apart and put together again as texts: what does not survive that is refused."""
    groups = [sql_of(node) for node in nodes]
    for node in [*nodes, *(item.node for item in items)]:
        again = sql_of(sqlglot.parse_one(sql_of(node), dialect=DIALECT))
        if again != sql_of(node) or not scope.means(node, groups if node.find(exp.AggFunc) else None):
            wrong = f"{sql_of(node).replace('`', '')} is not supported in a query with aggregates"
            fix = "compute it in the stream: frame.withColumn(...), or in a query over the results"
            raise scope.source.error(scope.source.start(node), wrong, "functions that need no rewriting", fix)


def _groups(scope: Scope, nodes: list[exp.Expr], items: list[_Item], taken: set[str]) -> dict[str, Output]:
    """The GROUP BY entries by their text, named as they are selected."""
    selected = {sql_of(item.node): item.name for item in reversed(items)}
    groups: dict[str, Output] = {}
    for node in nodes:
        sql = sql_of(node)
        name = selected.get(sql) or _fresh(_default_name(node, scope if isinstance(node, exp.Column) else None), taken)
        groups[sql] = _Item(name, node, 0).output
    return groups


def _fresh(name: str, taken: set[str]) -> str:
    """`name`, with a number where it is taken already; taken from now on."""
    free, number = name, 1
    while free.lower() in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free.lower())
    return free


def _over_aggregates(found: _Aggregation, item: _Item) -> exp.Expr:
    """The item's expression with aggregates and groups replaced by their names."""

    def replaced(node: exp.Expr) -> exp.Expr:
        group = found.groups.get(sql_of(node)) if not isinstance(node, exp.Identifier) else None
        if group is not None:
            return _name(group.name)
        if isinstance(node, exp.AggFunc):
            return _name(_aggregate(found, node, item).name)
        if isinstance(node, exp.Column):
            raise _not_grouped(found, node, item)
        return node

    return item.node.transform(replaced)


def _name(name: str) -> exp.Expr:
    return exp.to_identifier(name, quoted=True)


def _aggregate(found: _Aggregation, node: exp.AggFunc, item: _Item) -> Aggregate:
    function = _FUNCTIONS.get(type(node))
    if function == "count" and isinstance(node.this, exp.Distinct):
        function = "count_distinct"
    if function is None:
        raise _unsupported_function(found.scope.source, node)
    argument = _argument(found.scope.source, node)
    sql = None if argument is None else sql_of(argument)
    if (function, sql) not in found.aggregates:
        is_whole_item = sql_of(node) == sql_of(item.node)
        name = item.name if is_whole_item else _fresh(_default_name(node), found.taken)
        used = () if argument is None else found.scope.used(argument)
        found.aggregates[function, sql] = Aggregate(name, function, sql, used)
        found.arguments.extend([argument] if argument is not None else [])
    return found.aggregates[function, sql]


def _argument(source: Source, node: exp.AggFunc) -> exp.Expr | None:
    """The argument of an aggregate; None for COUNT(*) and COUNT of a constant, which count every composite."""
    inner = node.this
    if isinstance(node, exp.Count) and isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
        (inner,) = inner.expressions
    if isinstance(inner, exp.Distinct) or inner is None or node.expressions:
        what = "DISTINCT" if isinstance(inner, exp.Distinct) else "more or less than one argument"
        wrong = f"an aggregate with {what} is not supported"
        raise source.error(source.start(node), wrong, f"{_SUPPORTED} of one expression", "aggregate one expression")
    if inner.find(exp.AggFunc):
        wrong, fix = "an aggregate inside an aggregate", "aggregate once"
        raise source.error(source.start(node), wrong, f"{_SUPPORTED} of columns", fix)
    if isinstance(node, exp.Count) and inner is node.this and isinstance(inner, (exp.Star, exp.Literal)):
        return None
    assert isinstance(inner, exp.Expr)
    return inner


def _not_grouped(found: _Aggregation, node: exp.Column, item: _Item) -> QueryError:
    text = f"{node.table}.{node.name}"
    wrong = f"{text} is neither aggregated nor in GROUP BY"
    at = item.offset if item.star else found.scope.source.start(node)
    return found.scope.source.error(
        at, wrong, "aggregates and columns of GROUP BY", f"add GROUP BY {text}, or MIN({text})"
    )


def _unsupported_function(source: Source, node: exp.AggFunc) -> QueryError:
    name = sql_of(node).split("(")[0]
    return source.error(
        source.start(node), f"the aggregate {name} is not supported", _SUPPORTED, f"use one of {_SUPPORTED}"
    )
