"""Outer, semi, anti and as-of joins: which words say them, what decides a match, and what filters afterwards.

ON says what a match is. Of its conjuncts equalities are keys, as in any join; what is about one stream alone filters it
before the exchange, unless its rows are put out without a match as well: then it is a condition that only rows which
match have to satisfy (`Input.match`). A comparison of an expression over one stream with one over the other is
evaluated by the engine on candidate matches (`Query.on`); an interval between their times narrows the range of times in
which partners are looked up (`Query.gaps`), and is a comparison as well only where a zone may matter. Anything else in
ON is refused, since what Spark finds out about results comes too late to decide whether a row has a match.

WHERE filters results. What is about a stream that never has NULLs in the place of a row filters that stream already;
the rest is left for Spark to evaluate on results, NULLs included.

Invariant: nothing is ignored: a conjunct is a key, a filter, a condition, a comparison, residual, or refused.
Cost: linear in the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sqlglot import TokenType, exp

from braidstream.errors import QueryError
from braidstream.model.join_kinds import JoinKind
from braidstream.query.model import Match
from braidstream.query.predicates import Joined, conjunction, join_condition, typed_sides
from braidstream.query.scope import Relation, Scope
from braidstream.query.source import Source, bare_sql, sql_of

__all__ = [
    "OPERATORS",
    "comparisons_of",
    "join_word",
    "joined_left",
    "kind_of",
    "kind_of_join",
    "matched_condition",
    "require_windows",
    "single_comparisons",
]

_KINDS = {
    (): JoinKind.INNER,
    ("INNER",): JoinKind.INNER,
    ("CROSS",): JoinKind.INNER,
    ("LEFT",): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT",): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL",): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("SEMI",): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("ANTI",): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
    ("ASOF",): JoinKind.ASOF,
    ("ASOF", "LEFT"): JoinKind.ASOF_LEFT,
}
_SUPPORTED = "JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, LEFT SEMI JOIN, LEFT ANTI JOIN, ASOF JOIN or ASOF LEFT JOIN"
OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("!=", "!="),
    exp.NullSafeEQ: ("<=>", "<=>"),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""Comparisons, and what each is with its sides exchanged."""
_COMPARED = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp")


def kind_of(source: Source, joins: Sequence[exp.Join]) -> JoinKind:
    """The kind of a query's join; refused where only two streams, or none, can be joined so."""
    kinds = [kind_of_join(source, join) for join in joins]
    other = next((at for at, kind in enumerate(kinds) if kind is not JoinKind.INNER), None)
    if other is None:
        return JoinKind.INNER
    odd = next((at for at in range(other, len(kinds)) if kinds[at] is not JoinKind.LEFT), None)
    if len(joins) > 1 and odd is not None:
        after = f" after a {JoinKind.LEFT.words}" if odd > other else ""
        wrong = f"{kinds[odd].words}{after} in a query of {len(joins) + 1} streams"
        fix = "join two of them in a query of their own, and its results with the others"
        expected = "two streams, or inner joins and then LEFT JOINs"
        raise source.error(join_word(source, joins[odd]), wrong, expected, fix)
    kind, own = kinds[other], joins[other:]
    n_on = sum(token.token_type == TokenType.ON for token in source.tokens)
    if n_on < len(own):  # the parser takes it for ON TRUE
        without = next((join for join in own if not join.args.get("on") or join.args["on"] == exp.true()), own[0])
        fix = f"write {kind.words} ... ON, with an equality between the streams"
        if using := without.args.get("using"):
            above = without.parent_select or exp.Select()
            from_ = above.args.get("from_") or above.args.get("from")
            first, last = from_.this.alias_or_name if from_ is not None else "", without.alias_or_name
            equal = " AND ".join(f"{first}.{column.name} = {last}.{column.name}" for column in using)
            fix = f"write ON {equal} in the place of USING"
        raise source.error(join_word(source, without), f"{kind.words} without ON", f"{kind.words} ... ON", fix)
    return kind


def joined_left(source: Source, joins: Sequence[exp.Join]) -> int:
    """How many streams LEFT JOINs have on top."""
    return sum(kind_of_join(source, join) is JoinKind.LEFT for join in joins)


def kind_of_join(source: Source, join: exp.Join) -> JoinKind:
    """The kind that the words before one JOIN say."""
    words = _words(join)
    found = _KINDS.get(words)
    if found is not None:
        return found
    at, wrong = join_word(source, join), f"{' '.join(words)} JOIN is not supported"
    turned = {("RIGHT", "SEMI"): "LEFT SEMI", ("RIGHT", "ANTI"): "LEFT ANTI", ("ASOF", "RIGHT"): "ASOF LEFT"}
    fix = f"exchange the streams, and write {turned[words]} JOIN" if words in turned else "write JOIN"
    raise source.error(at, wrong, _SUPPORTED, fix)


def _words(join: exp.Join) -> tuple[str, ...]:
    return tuple(str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key))


def join_word(source: Source, join: exp.Join) -> int:
    """Where the words before a JOIN begin: the last place of the first of them before the joined table."""
    word, table_at = (*_words(join), "JOIN")[0], source.start(join.this)
    places = [token.start for token in source.tokens if token.text.upper() == word and token.start < table_at]
    return places[-1] if places else table_at


def require_windows(source: Source, relations: Sequence[Relation], kind: JoinKind, n_left: int) -> None:
    """A row is decided when its window has passed: refuse one that never does."""
    kept = [relations[place] for place in kind.kept] if len(relations) == 2 else relations[:-n_left]
    for relation in kept if kind.kept and not kind.is_asof else ():
        if relation.window_us is None:
            wrong = f"{kind.words} keeps the rows of {relation.alias}, whose window never ends"
            expected = "a window, after which a row without a match is put out"
            fix = f"write {relation.stream} [RANGE 10 SECONDS]"
            raise source.error(relation.offset, wrong, expected, fix)


def matched_condition(scope: Scope, kind: JoinKind, on: Sequence[exp.Expr], where: Sequence[exp.Expr]) -> Joined:
    """Sort the conjuncts of ON and WHERE of a join of two streams that is no inner one."""
    decided = join_condition(scope, on, clause="ON")
    conditional = {scope.aliases[place] for place in kind.kept}
    timely = [interval for interval in decided.intervals if interval.is_exact and not kind.is_asof]
    between = [*decided.residual, *(interval.node for interval in decided.intervals if interval not in timely)]
    comparisons = tuple(match for node in between for match in comparisons_of(scope, node))
    matching = {alias: text for alias, text in decided.filters.items() if alias in conditional}
    filters = {alias: [text] for alias, text in decided.filters.items() if alias not in conditional}
    residual: list[exp.Expr] = []
    conditions = [*decided.conditions]
    for node in where:
        place = _filtered(scope, kind, node)
        if place is None:
            residual.append(node)
        else:
            filters.setdefault(place, []).append(scope.text(node, bare=True))
            conditions.append(scope.text(node))
    return replace(
        decided,
        filters={alias: conjunction(texts) for alias, texts in filters.items()},
        residual=tuple(residual),
        conditions=tuple(conditions),
        matching=matching,
        on=tuple(dict.fromkeys(comparisons)),
        compared=tuple(between),
        intervals=() if kind.is_asof else decided.intervals,
    )


def _filtered(scope: Scope, kind: JoinKind, node: exp.Expr) -> str | None:
    """The alias whose rows a conjunct of WHERE filters before the join; None: it filters results."""
    used, whole = scope.used(node), [scope.aliases[place] for place in kind.whole]
    shown = [scope.aliases[place] for place in kind.shown]
    hidden = next((alias for alias in used if alias not in shown), None)
    if hidden is not None:
        wrong = f"WHERE names {hidden}, of which a {kind.words} has no columns"
        fix = "move the condition to ON, where it decides what a match is"
        raise scope.source.error(scope.source.start(node), wrong, f"columns of {shown[0]}", fix)
    if not used:
        return whole[0] if whole else None
    return used[0] if len(used) == 1 and used[0] in whole else None


def comparisons_of(scope: Scope, node: exp.Expr) -> Iterator[Match]:
    """The comparisons that a conjunct of ON consists of, each with the first stream's side first."""
    if not scope.means(node):
        raise _not_compared(scope, node)
    for one in single_comparisons(node):
        yield _match(scope, node, one)


def single_comparisons(node: exp.Expr) -> Iterable[exp.Expr]:
    """A conjunct as comparisons: BETWEEN is two of them."""
    if not isinstance(node, exp.Between):
        return (node,)
    low, high = node.args["low"], node.args["high"]
    return exp.GTE(this=node.this, expression=low), exp.LTE(this=node.this, expression=high)


def _match(scope: Scope, whole: exp.Expr, node: exp.Expr) -> Match:
    operators = OPERATORS.get(type(node))
    if operators is None:
        raise _not_compared(scope, whole)
    sides = node.this.unnest(), node.expression.unnest()
    used = [scope.used(side) for side in sides]
    if any(len(one) != 1 for one in used) or used[0] == used[1]:
        raise _not_compared(scope, whole)
    type_ = typed_sides(scope, *sides)
    if type_ not in (*_COMPARED, "timestamp_ntz", "binary") and not type_.startswith("decimal("):
        raise _not_compared(scope, whole)
    is_turned = used[0][0] != scope.aliases[0]
    left, right = (sides[1], sides[0]) if is_turned else sides
    return Match(bare_sql(left), operators[is_turned], bare_sql(right), type_)


def _not_compared(scope: Scope, node: exp.Expr) -> QueryError:
    text = sql_of(node).replace("`", "")
    wrong = f"ON has {text}, which the engine cannot evaluate to decide what a match is"
    expected = "equalities, and comparisons (=, !=, <, <=, >, >=, <=>, BETWEEN) of one stream's value with the other's"
    fix = "compute what is compared in the streams: frame.withColumn(...); WHERE takes any condition, on results"
    return scope.source.error(scope.source.start(node), wrong, expected, fix)
