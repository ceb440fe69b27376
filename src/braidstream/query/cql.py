"""CQL, the language of continuous queries: text in, `Query` out.

    SELECT R.k, S.v AS price
    FROM R [RANGE 10 SECONDS], S [RANGE 1 HOUR]
    WHERE R.k = S.k AND R.v > 3 AND R.low < S.v

    SELECT R.k, S.v AS price
    FROM R [RANGE 10 SECONDS] LEFT JOIN S [RANGE 1 HOUR] ON R.k = S.k AND R.low < S.v

The steps: take the windows out of the text (`windows`), parse what is left as Spark SQL, refuse what a continuous query
cannot have (`refusals`), find the streams and how they are joined (`outer_joins`), resolve names (`scope`), sort the
conditions (`predicates`) and the select list (`outputs`).

Invariant: nothing is ignored. Every part of the text is either in the Query or refused, with its place, what is
supported, and a hint. Cost: some milliseconds a query, once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import Token, TokenType, exp

from braidstream.errors import InputError, nearest
from braidstream.model.join_kinds import JoinKind
from braidstream.query.bands import NO_EQUALITY, with_bands
from braidstream.query.intervals import derive
from braidstream.query.lookups import attached, matched, take_tables
from braidstream.query.meaning import Meaning, Uncomputable
from braidstream.query.model import Input, Query
from braidstream.query.outer_joins import joined_left, kind_of, matched_condition, require_windows
from braidstream.query.outputs import Selected, select_outputs
from braidstream.query.pieces import mark
from braidstream.query.predicates import Joined, conjuncts, join_condition, on_its_time
from braidstream.query.refusals import require_select
from braidstream.query.scope import Relation, Scope, TypeOf
from braidstream.query.source import FORM, Source
from braidstream.query.stacked_joins import stacked_condition
from braidstream.query.time_windows import has_time_window, masked_calls, take_time_window
from braidstream.query.types import Schema
from braidstream.query.windows import Window, take_windows

__all__ = ["MAX_INPUTS", "parse", "relation_names"]

MAX_INPUTS = 8


def relation_names(text: str) -> frozenset[str]:
    """The names of the streams and tables that a query reads, whatever they are."""
    source = Source.of(text)
    masked, _ = take_windows(source)
    select = require_select(source, source.parse(masked_calls(source, masked)))
    return frozenset(table.name for table in select.find_all(exp.Table))


def parse(
    text: str,
    streams: Mapping[str, Schema],
    name: str = "query",
    *,
    type_of: TypeOf | None = None,
    meaning: Meaning | None = None,
    tables: Mapping[str, Schema] | None = None,
    allow: str | None = None,
) -> Query:
    """The query that `text` says over the declared streams; QueryError, with the place, where it cannot be used.

    `meaning` is Spark's view of the expressions. Without it types are inferred, or told by `type_of(stream, bare_sql)`,
    and a key whose type cannot be inferred needs a CAST. `tables` may be joined to streams (`lookups`). `allow` is what
    would else be refused because of its cost: NO_EQUALITY.
    """
    if allow not in (None, NO_EQUALITY):
        raise InputError(f"allow is {allow!r}", f'"{NO_EQUALITY}", or nothing', nearest(str(allow), [NO_EQUALITY]))
    source = Source.of(text)
    _refuse_other_statements(source)
    _refuse_empty_items(source)
    masked, windows = take_windows(source)
    select = require_select(source, source.parse(masked_calls(source, masked)))
    taken = take_tables(source, select, windows, tables or {})
    kind = kind_of(source, select.args.get("joins") or [])
    n_left = max(joined_left(source, select.args.get("joins") or []), 1)
    relations = _relations(source, select, windows, streams, kind)
    if not taken:
        mark(source, select)
    scope = attached(Scope(source, relations, type_of, meaning, n_left=n_left), kind, taken, select)
    window = take_time_window(scope, select)
    *on, where = _conditions(scope, select)
    where += matched(scope)
    if kind is JoinKind.INNER:
        conjoined = [*(node for own in on for node in own), *where]
        joined = join_condition(scope, conjoined, needs_equality=allow != NO_EQUALITY and len(relations) > 1)
    elif len(relations) == 2:
        joined = matched_condition(scope, kind, on[0], where)
    else:
        joined = stacked_condition(scope, on, where)
    selected = select_outputs(scope, select, kind)
    timed = [one.node for one in joined.intervals] if kind is JoinKind.INNER else []
    joined = joined if len(relations) > 1 else on_its_time(relations[0], joined)
    query = replace(_query(scope, name, kind, joined, selected, [*joined.residual, *timed]), window=window)
    _refuse_uncomputable(scope, query, [*joined.conditions, *(scope.text(node) for node in joined.compared)])
    made = _with_intervals(scope, query, joined, selected)
    return with_bands(scope, made, joined.residual) if made.is_unkeyed else made


def _query(
    scope: Scope, name: str, kind: JoinKind, joined: Joined, selected: Selected, residual: Sequence[exp.Expr]
) -> Query:
    needed = [*selected.needs, *residual]
    return Query(
        name=name,
        text=scope.source.text,
        inputs=tuple(_input(relation, joined, needed) for relation in scope.relations),
        key_classes=joined.key_classes,
        join_edges=joined.join_edges,
        residual=tuple(dict.fromkeys(scope.text(node) for node in residual)),
        outputs=selected.outputs,
        aggregates=selected.aggregates,
        group_by=selected.group_by,
        kind=kind,
        n_left=scope.n_left,
        on=joined.on,
        enriched=tuple(dict.fromkeys(one.enriched for one in scope.relations if one.enriched is not None)),
    )


def _with_intervals(scope: Scope, query: Query, joined: Joined, selected: Selected) -> Query:
    """The query with the windows that its intervals need, and without the predicates that they decide.

    Aggregates are over what the windows hold, however far apart: to them an interval is a predicate like any other.
    A join of several stages does not know the times of all components at each: there the predicates stay as well.
    """
    is_sliding = query.is_aggregate and query.window is None
    _refuse_distinct(scope, query)
    if is_sliding:
        _refuse_open(scope, "an aggregate is over the windows of its streams")
    if len(query.inputs) == 1:
        return _alone(scope, query)
    if is_sliding or not joined.intervals:
        _refuse_open(scope, _no_interval(query), _kept(query), query.kind)
        require_windows(scope.source, scope.relations, query.kind, query.n_left)
        return _closing(scope, query)
    apart = derive(scope, joined.intervals)
    is_inner = query.kind is JoinKind.INNER
    left = [one.node for one in joined.intervals if is_inner and (query.type == 2 or not one.is_exact)]
    made = _query(scope, query.name, query.kind, joined, selected, [*joined.residual, *left])
    inputs = tuple(replace(entry, window_us=apart.windows_us[entry.alias]) for entry in made.inputs)
    narrowed = [replace(relation, window_us=apart.windows_us[relation.alias]) for relation in scope.relations]
    require_windows(scope.source, narrowed, query.kind, query.n_left)
    made = replace(made, inputs=inputs, gaps=apart.gaps, window=query.window, identity=query.fingerprint)
    return _closing(scope, made)


def _alone(scope: Scope, query: Query) -> Query:
    """A stream that is joined with nothing is not kept: its rows are counted as they come."""
    (relation,) = scope.relations
    if not relation.is_open:
        wrong, fix = f"a window on {relation.stream}, which is joined with nothing", "leave out the brackets"
        raise scope.source.error(relation.offset, wrong, "GROUP BY window(...) alone", fix)
    return replace(query, inputs=(replace(query.inputs[0], window_us=0),))


def _closing(scope: Scope, query: Query) -> Query:
    """The query, whose windows of time are over at some time, if it has any."""
    if query.window is not None and query.input(query.window.alias).window_us is None:
        relation = scope.relation(query.window.alias)
        wrong = f"rows of {relation.alias} are kept for ever: its windows of time would never be put out"
        raise scope.source.error(
            relation.offset, wrong, "a window that ends", f"write {relation.stream} [RANGE 1 HOUR]"
        )
    return query


def _refuse_distinct(scope: Scope, query: Query) -> None:
    distinct = next((one for one in query.aggregates if one.function == "count_distinct"), None)
    if distinct is not None and query.window is None:
        wrong = "COUNT(DISTINCT) over windows that slide is not supported"
        at = scope.source.keyword(TokenType.DISTINCT)
        raise scope.source.error(at, wrong, "COUNT(DISTINCT) in windows of time", "add GROUP BY window(R.ts, '1 hour')")


def _no_interval(query: Query) -> str:
    """Why windows do not follow from intervals in a query; empty where they would."""
    if query.kind.is_asof:
        return f"{query.kind.words} looks back as far as its window"
    return (
        "a LEFT JOIN after other joins needs one each"
        if query.kind is not JoinKind.INNER and len(query.inputs) > 2
        else ""
    )


def _kept(query: Query) -> Collection[str]:
    """The streams whose windows have to end: rows of them are put out when they have no match."""
    if query.tops:
        return [alias for alias in query.aliases if alias not in query.tops]
    return [query.aliases[place] for place in query.kind.kept if not query.kind.is_asof]


def _refuse_open(scope: Scope, reason: str, kept: Collection[str] = (), kind: JoinKind = JoinKind.INNER) -> None:
    for relation in (relation for relation in scope.relations if relation.is_open):
        never = "" if relation.alias in kept else f" or {relation.stream} [RANGE UNBOUNDED]"
        fix = f"write {relation.stream} [RANGE 10 SECONDS]{never}"
        if not reason and relation.schema.time is not None:
            place = "" if kind is JoinKind.INNER else " in ON"
            fix += f", or bound its time by an interval{place}"
        wrong = f"stream {relation.stream} has no window" + (f": {reason}" if reason else "")
        raise scope.source.error(relation.offset, wrong, "a window after each stream", fix)


def _refuse_uncomputable(scope: Scope, query: Query, conditions: Iterable[str]) -> None:
    """What Spark would refuse while the query runs is refused now."""
    if scope.meaning is None:
        return
    computed = [output.sql for output in query.outputs if output.column is None and not query.is_aggregate]
    try:
        scope.meaning.check(scope.inputs, computed, [*conditions, *query.residual])
    except Uncomputable as error:
        raise scope.source.error(
            0,
            f"Spark cannot compute it: {error}",
            "expressions of Spark SQL",
            "write what Spark computes on the streams",
        ) from None


def _refuse_other_statements(source: Source) -> None:
    first = source.tokens[0]
    if first.token_type not in (TokenType.SELECT, TokenType.WITH):
        raise source.error(first.start, f"the text begins with {first.text!r}", FORM, "begin with SELECT")


_BEFORE_ITEM = (TokenType.COMMA, TokenType.SELECT, TokenType.FROM, TokenType.L_PAREN, TokenType.GROUP_BY)
_AFTER_ITEM = (TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.R_PAREN)


def _refuse_empty_items(source: Source) -> None:
    """The parser skips an item that is missing between commas: nothing is ignored here."""
    tokens = source.tokens
    for at, token in enumerate(tokens):
        if token.token_type != TokenType.COMMA:
            continue
        is_first = tokens[at - 1].token_type in _BEFORE_ITEM and not _is_name(tokens[at - 2])
        is_last = at + 1 == len(tokens) or tokens[at + 1].token_type in _AFTER_ITEM
        if is_first or is_last:
            wrong = f"nothing stands {'before' if is_first else 'after'} the comma"
            raise source.error(
                token.start, wrong, "something between commas", "remove the comma, or add what is missing"
            )


def _is_name(before: Token) -> bool:
    """Whether a keyword is none, because it is a column or an alias: `R.from`, `AS from`."""
    return before.token_type in (TokenType.DOT, TokenType.ALIAS)


def _relations(
    source: Source, select: exp.Select, windows: tuple[Window, ...], streams: Mapping[str, Schema], kind: JoinKind
) -> tuple[Relation, ...]:
    tables = list(_tables(source, select))
    lengths = _window_of_each(source, [source.start(table) for table in tables], windows)
    relations: list[Relation] = []
    if kind.is_asof and lengths[0] is None:  # nothing that comes after a row is its partner
        lengths[0] = Window(source.start(tables[0]), 0)
    for table, length in zip(tables, lengths, strict=True):
        relation = _relation(source, table, length, streams)
        _refuse_alias_twice(source, relation, relations)
        relations.append(relation)
    _check_number(source, relations, 1 if has_time_window(select) else 2)
    return tuple(relations)


def _tables(source: Source, select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_") or select.args.get("from")
    if from_ is None:
        raise source.error(len(source.text), "FROM is missing", FORM, "name the streams to join")
    yield _table(source, from_.this)
    for join in select.args.get("joins") or []:
        _refuse_using(source, join, from_.this.alias_or_name)
        yield _table(source, join.this)


def _table(source: Source, node: exp.Expr) -> exp.Expr:
    """A stream's entry in FROM; anything else there is refused."""
    is_named = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
    is_plain = not any(value for key, value in node.args.items() if key not in ("this", "alias"))
    alias = node.args.get("alias")
    if is_named and is_plain and (alias is None or not alias.args.get("columns")):
        return node
    wrong = "FROM holds something else than a stream"
    raise source.error(source.start(node), wrong, "streams by name, with a window each", "write R [RANGE 10 SECONDS]")


def _refuse_using(source: Source, join: exp.Join, first: str) -> None:
    if join.args.get("using"):
        key = join.args["using"][0]
        fix = f"write ON {first}.{key.name} = {join.this.alias_or_name}.{key.name}"
        raise source.error(source.keyword(TokenType.USING), "USING is not supported", "JOIN ... ON", fix)


def _window_of_each(source: Source, tables: list[int], windows: tuple[Window, ...]) -> list[Window | None]:
    """The window that follows each table in the text."""
    found: list[Window | None] = [None] * len(tables)
    for window in windows:
        before = [i for i, start in enumerate(tables) if start < window.start]
        if not before or found[before[-1]] is not None:
            wrong = "a second window for one stream" if before else "a window without a stream"
            fix = "put a comma between streams, or remove the window"
            raise source.error(window.start, wrong, "one window after each stream", fix)
        found[before[-1]] = window
    return found


def _relation(source: Source, table: exp.Expr, window: Window | None, streams: Mapping[str, Schema]) -> Relation:
    offset = source.start(table)
    folded = {name.lower(): name for name in streams}
    stream = table.name if table.name in streams else folded.get(table.name.lower())
    if stream is None:
        expected = f"one of {', '.join(sorted(streams)) or 'the declared streams (there are none)'}"
        raise source.error(offset, f"unknown stream {table.name!r}", expected, nearest(table.name, streams))
    length_us = None if window is None else window.length_us
    return Relation(table.alias or stream, stream, streams[stream], length_us, offset, is_open=window is None)


def _refuse_alias_twice(source: Source, relation: Relation, before: Iterable[Relation]) -> None:
    if any(one.alias.lower() == relation.alias.lower() for one in before):
        wrong = f"{relation.alias!r} stands twice in FROM"
        fix = f"write {relation.stream} [RANGE 10 SECONDS] AS {relation.alias}2"
        raise source.error(relation.offset, wrong, "an alias of its own for each", fix)


def _check_number(source: Source, relations: list[Relation], least: int) -> None:
    if not least <= len(relations) <= MAX_INPUTS:
        n_found = len(relations)
        wrong = "only one stream" if n_found == 1 else f"{n_found} streams"
        fix = (
            "add a stream to join with, or GROUP BY window(...)"
            if n_found == 1
            else "join some of them in a query of their own"
        )
        at = relations[0 if n_found == 1 else MAX_INPUTS].offset
        raise source.error(at, f"{wrong} in FROM", f"2 to {MAX_INPUTS} streams", fix)


def _conditions(scope: Scope, select: exp.Select) -> list[list[exp.Expr]]:
    """The conjuncts of each ON, and those of WHERE, resolved."""
    where = select.args.get("where")
    joins = select.args.get("joins") or []
    on = [_conjuncts(scope, [join.args["on"]] if join.args.get("on") else []) for join in joins]
    return [*(on or [[]]), _conjuncts(scope, [where.this] if where else [])]


def _conjuncts(scope: Scope, written: Iterable[exp.Expr]) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for condition in written:
        _refuse_aggregate(scope.source, condition)
        found += conjuncts(scope.resolve(condition))
    return found


def _refuse_aggregate(source: Source, condition: exp.Expr) -> None:
    aggregate = condition.find(exp.AggFunc)
    if aggregate:
        wrong = "an aggregate cannot stand in WHERE or ON"
        raise source.error(source.start(aggregate), wrong, "conditions on tuples", "move it to SELECT")


def _input(relation: Relation, joined: Joined, needed: list[exp.Expr]) -> Input:
    names = {one.name for node in needed for one in node.find_all(exp.Column) if one.table == relation.alias}
    columns = tuple(name for name in relation.schema.names if name in names)
    filter_, match = joined.filters.get(relation.alias), joined.matching.get(relation.alias)
    return Input(relation.alias, relation.reads, relation.window_us, filter_, columns, match)
