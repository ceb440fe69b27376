"""Tables in a query: `FROM orders o [RANGE 1 HOUR] JOIN payments p [RANGE 1 HOUR] ON ... JOIN customers c ON ...`.

A table is joined to one stream of the query, by Spark, before rows are routed: the *host*, found by the first equality
between a column of the table and something of one stream (or of a table that was joined before, whose host it is then).
From there on the table's columns are columns of the stream, under names of their own, and everything else in the query
is about streams. Rows without a match get NULLs; an inner join is that, and a filter on the rows that have one. So the
watermark sees every row, and queries that join the table by LEFT and by INNER JOIN share stores.

Refused are what would have to look at rows of the table by themselves (RIGHT, FULL, SEMI, ANTI), and tables at a stream
whose rows may be NULL in the result, where the join does not commute with the table's.

Invariant: conditions that are about the table and its host decide what a match is; whatever else ON says of an inner
join is a condition of WHERE. Cost: linear in the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from braidstream.errors import QueryError
from braidstream.model.join_kinds import JoinKind
from braidstream.query.model import Enriched, Lookup
from braidstream.query.outer_joins import join_word, kind_of_join
from braidstream.query.pieces import mark
from braidstream.query.predicates import conjuncts
from braidstream.query.scope import Relation, Scope
from braidstream.query.source import Source, sql_of
from braidstream.query.types import Column, Schema
from braidstream.query.windows import Window

__all__ = ["TakenTable", "attached", "matched", "take_tables"]


@dataclass(frozen=True)
class TakenTable:
    """A table in FROM, and how it is joined."""

    relation: Relation
    is_inner: bool
    on: exp.Expr | None
    """None where its condition stands in WHERE."""


def take_tables(
    source: Source, select: exp.Select, windows: Sequence[Window], tables: Mapping[str, Schema]
) -> tuple[TakenTable, ...]:
    """Take the tables out of FROM, so that what is left is about streams; each part knows its text before."""
    joins, from_ = select.args.get("joins") or [], select.args.get("from_") or select.args.get("from")
    known = {name.lower(): name for name in tables}
    found = {id(join): known[name] for join in joins if (name := _name(join.this)) in known}
    first = None if from_ is None else known.get(_name(from_.this))
    if from_ is None or (not found and first is None):
        return ()
    mark(source, select)
    taken = [_taken(source, join, tables, found[id(join)]) for join in joins if id(join) in found]
    _refuse_windows(source, [from_.this, *(join.this for join in joins)], windows, known)
    streams = [join for join in joins if id(join) not in found]
    if first is not None:
        taken.insert(0, TakenTable(_relation(source, from_.this, tables, first), is_inner=True, on=None))
        streams = _promoted(source, select, from_, streams)
    select.set("joins", streams)
    return tuple(taken)


def attached(scope: Scope, kind: JoinKind, taken: Sequence[TakenTable], select: exp.Select) -> Scope:
    """The scope in which the tables' columns are their hosts'; what else ON says of them goes to WHERE."""
    for one in taken:
        _refuse_name(scope, one.relation)
        scope = _attach(scope, kind, one, select)
    return scope


def matched(scope: Scope) -> Iterator[exp.Expr]:
    """What the rows of inner joins with tables satisfy: that there is a match."""
    for table in scope.tables:
        if table.lookup is not None and not table.is_open:
            alias, flag = (exp.to_identifier(name, quoted=True) for name in (table.host, table.lookup.flag))
            yield exp.column(flag, table=alias)


def _name(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Table) else ""


def _relation(source: Source, node: exp.Expr, tables: Mapping[str, Schema], table: str) -> Relation:
    return Relation(node.alias or table, table, tables[table], None, source.start(node))


def _taken(source: Source, join: exp.Join, tables: Mapping[str, Schema], table: str) -> TakenTable:
    kind, relation = kind_of_join(source, join), _relation(source, join.this, tables, table)
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        at = join_word(source, join)
        wrong = f"{kind.words} with table {table}: a table has no event time, so none of its rows can be put out alone"
        raise source.error(at, wrong, "JOIN or LEFT JOIN with a table", "declare it as a stream, if it is one")
    if join.args.get("using"):
        wrong, fix = "USING is not supported", f"write ON ... = {relation.alias}.{join.args['using'][0].name}"
        raise source.error(relation.offset, wrong, "JOIN ... ON", fix)
    on = join.args.get("on")
    if on is None and kind is JoinKind.LEFT:
        raise _no_equality(source, relation)
    return TakenTable(replace(relation, is_open=kind is JoinKind.LEFT), kind is JoinKind.INNER, on)


def _refuse_windows(
    source: Source, entries: Sequence[exp.Expr], windows: Sequence[Window], known: Mapping[str, str]
) -> None:
    for window in windows:
        before = [entry for entry in entries if source.start(entry) < window.start]
        if before and _name(before[-1]) in known:
            wrong = f"a window on {known[_name(before[-1])]}, which is a table"
            raise source.error(window.start, wrong, "windows after streams", "leave out the brackets")


def _promoted(source: Source, select: exp.Select, from_: exp.Expr, streams: list[exp.Join]) -> list[exp.Join]:
    """FROM begins with a table: the first stream after it takes its place, if all are inner joins."""
    other = next((one for one in streams if kind_of_join(source, one) is not JoinKind.INNER), None)
    if not streams or other is not None:
        wrong = f"FROM begins with {from_.this.name}, which is a table" + ("" if streams else ", and has no stream")
        raise source.error(source.start(from_.this), wrong, "a stream first", "write the table after the streams")
    first, *others = streams
    from_.set("this", first.this)
    if first.args.get("on") is not None:
        _add_where(select, [first.args["on"]])
    return others


def _add_where(select: exp.Select, nodes: Iterable[exp.Expr]) -> None:
    for node in nodes:
        where = select.args.get("where")
        if where is None:
            select.set("where", exp.Where(this=node))
        else:
            where.set("this", exp.And(this=where.this, expression=node))


def _refuse_name(scope: Scope, table: Relation) -> None:
    if any(one.alias.lower() == table.alias.lower() for one in scope.named):
        wrong, fix = f"{table.alias!r} stands twice in FROM", f"write {table.stream} AS {table.alias}2"
        raise scope.source.error(table.offset, wrong, "an alias of its own for each", fix)


def _attach(scope: Scope, kind: JoinKind, one: TakenTable, select: exp.Select) -> Scope:
    """The scope with one table more."""
    table = one.relation
    open_ = replace(scope, tables=(*scope.tables, table), meaning=None)
    where = select.args.get("where")
    written = one.on if one.on is not None else None if where is None else where.this
    parts = list(conjuncts(written)) if written is not None else []
    host = next((found for part in parts if (found := _host(open_, part, table))), "")
    if not host:
        raise _no_equality(scope.source, table)
    _refuse_place(scope, kind, one, host)
    is_own = [_decides(open_, part, one, host) for part in parts]
    own, others = (
        [part for part, mine in zip(parts, is_own, strict=True) if mine is wanted] for wanted in (True, False)
    )
    if others and not one.is_inner:
        wrong = f"ON of the LEFT JOIN with table {table.stream} has {sql_of(others[0])}"
        expected = f"conditions on {table.alias} and {host}, the stream that it is joined to"
        raise scope.source.error(scope.source.start(others[0]), wrong, expected, "move the condition to WHERE")
    if one.on is not None:
        _add_where(select, others)
    return _joined(scope, table, host, own)


def _used(scope: Scope, node: exp.Expr) -> set[str]:
    """The streams that a part uses, tables before counted as their hosts, and the table that is being joined."""
    return {column.table for column in scope.resolve(node).find_all(exp.Column)}


def _host(scope: Scope, part: exp.Expr, table: Relation) -> str:
    """The stream of an equality of the table with one; empty where it is none."""
    others = _used(scope, part) - {table.alias}
    if not isinstance(part, exp.EQ) or len(others) != 1:
        return ""
    sides = [_used(scope, side) for side in (part.this, part.expression)]
    return next(iter(others)) if {table.alias} in sides and others in sides else ""


def _decides(scope: Scope, part: exp.Expr, one: TakenTable, host: str) -> bool:
    """Whether a conjunct is about what a match in the table is."""
    used, table = _used(scope, part), one.relation.alias
    return used <= {table, host} and (table in used or not one.is_inner)


def _joined(scope: Scope, table: Relation, host: str, own: Sequence[exp.Expr]) -> Scope:
    hosting = scope.relation(host)
    before = () if hosting.enriched is None else hosting.enriched.lookups
    n_same = sum(one.table == table.stream for one in before)
    lookup = Lookup(table.stream, f"{table.stream}#{n_same + 1}" if n_same else table.stream, "")
    table = replace(table, host=host, lookup=lookup)
    found = (Column(lookup.column(column.name), column.type) for column in table.schema)
    schema = Schema((*hosting.schema.columns, *found, Column(lookup.flag, "boolean")), hosting.schema.time)
    wider = replace(hosting, schema=schema, own=hosting.own or hosting.schema)
    made = _with(scope, wider, replace(table, lookup=lookup), Enriched(hosting.stream, (*before, lookup)))
    texts = sorted({made.text(made.resolve(part), bare=True) for part in own})
    lookup = replace(lookup, condition=" AND ".join(f"({text})" for text in texts))
    return _with(scope, wider, replace(table, lookup=lookup), Enriched(hosting.stream, (*before, lookup)))


def _with(scope: Scope, host: Relation, table: Relation, enriched: Enriched) -> Scope:
    """The scope with a table more at a stream, of which whoever knows what expressions mean is told."""
    if scope.meaning is not None:
        scope.meaning.enrich(enriched)
    host = replace(host, enriched=enriched)
    relations = tuple(host if other.alias == host.alias else other for other in scope.relations)
    return replace(scope, relations=relations, tables=(*scope.tables, table))


def _refuse_place(scope: Scope, kind: JoinKind, one: TakenTable, host: str) -> None:
    """A table at a stream whose rows may be NULL, or are not shown, would be joined to something else."""
    if kind is JoinKind.INNER:
        return
    place, n_streams = scope.aliases.index(host), len(scope.relations)
    is_whole = place < n_streams - scope.n_left if n_streams > 2 else place in kind.whole
    is_shown = n_streams > 2 or place in kind.shown
    if is_whole or (is_shown and not one.is_inner and not kind.is_asof):
        return
    table = one.relation
    wrong = f"table {table.stream} is joined to {host}, on the other side of a {kind.words}"
    whole = [alias for at, alias in enumerate(scope.aliases) if at in kind.whole] or ["no stream here"]
    fix = f"write LEFT JOIN {table.stream}" if is_shown and not kind.is_asof else "join it to the results"
    raise scope.source.error(table.offset, wrong, f"a table at {whole[0]}, whose rows are never NULL", fix)


def _no_equality(source: Source, table: Relation) -> QueryError:
    wrong = f"no equality connects table {table.stream} with a stream"
    key = table.schema.names[0]
    return source.error(
        table.offset, wrong, "an equality of a column of it with one stream", f"add ON ... = {table.alias}.{key}"
    )
