"""What a continuous query cannot have: one rule for each, with its place and a hint.

The parser reads all of Spark SQL; a query here is one SELECT over streams. `require_select` lets through only what the
rest of the language understands, so that nothing a user wrote is silently ignored.

Invariant: a SELECT that passes has no clauses but SELECT, FROM, JOIN, WHERE and GROUP BY, no subquery, and only
expressions that have one value for one composite, the same whenever it is computed. Functions are otherwise Spark's
business. Cost: one walk of the parsed query.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import TokenType, exp

from braidstream.errors import QueryError
from braidstream.query.source import FORM, Source, sql_of

__all__ = ["require_select"]

_CLAUSES = "SELECT, FROM with windows, JOIN ... ON, WHERE, GROUP BY"
_OWN_STREAM = "declare what it selects as a stream of its own"
_IN_DATAFRAME = "compute it in the DataFrame of the stream"
_ENDLESS = "leave it out; a continuous result has no end to sort"

_SUPPORTED_ARGS = {"expressions", "from_", "from", "joins", "where", "group"}
_UNSUPPORTED_ARGS: dict[str, tuple[str, tuple[TokenType, ...], str]] = {
    "distinct": ("DISTINCT", (TokenType.DISTINCT,), "leave it out; every match is produced exactly once"),
    "order": ("ORDER BY", (TokenType.ORDER_BY,), _ENDLESS),
    "sort": ("SORT BY", (TokenType.SORT_BY,), _ENDLESS),
    "having": ("HAVING", (TokenType.HAVING,), "filter the aggregated rows in the sink"),
    "limit": ("LIMIT", (TokenType.LIMIT, TokenType.FETCH), "leave it out; stop the flow when you have enough"),
    "with_": ("WITH", (TokenType.WITH,), _OWN_STREAM),
    "laterals": ("LATERAL VIEW", (TokenType.LATERAL,), _IN_DATAFRAME),
    "hint": ("a hint", (TokenType.HINT,), "leave it out; the controller balances the join while it runs"),
}
# Their value would differ when an epoch is computed again after a crash: the result would not be exactly-once.
_UNREPEATABLE = {
    *("RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID"),
    *("CURRENT_TIMESTAMP", "CURRENT_DATE", "NOW", "CURDATE", "LOCALTIMESTAMP", "INPUT_FILE_NAME", "SPARK_PARTITION_ID"),
}


def require_select(source: Source, statement: exp.Expr) -> exp.Select:
    """The statement, if it is a SELECT with nothing in it that a continuous query cannot have."""
    if isinstance(statement, exp.SetOperation):
        at = source.keyword(TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT)
        raise source.error(at, f"{statement.key.upper()} is not supported", _CLAUSES, "write one query for each part")
    if not isinstance(statement, exp.Select):
        raise source.error(0, "this is not a SELECT", FORM, "begin with SELECT")
    if not statement.expressions:
        raise source.error(source.keyword(TokenType.SELECT), "nothing is selected", FORM, "write SELECT *")
    for key, value in statement.args.items():
        if value and key not in _SUPPORTED_ARGS:
            raise _unsupported_clause(source, key)
    for part in statement.walk():
        for rule in _RULES:
            error = rule(source, part) if part is not statement else None
            if error is not None:
                raise error
    return statement


def _unsupported_clause(source: Source, key: str) -> QueryError:
    other = (key.strip("_").upper(), (), "leave it out")
    words, tokens, fix = _UNSUPPORTED_ARGS.get(key) or _UNSUPPORTED_ARGS.get(f"{key}_") or other
    at = source.keyword(*tokens, words=() if tokens else (words.split()[0],))
    return source.error(at, f"{words} is not supported", _CLAUSES, fix)


def _subquery(source: Source, part: exp.Expr) -> QueryError | None:
    if not isinstance(part, exp.Query):
        return None
    selects = [token.start for token in source.tokens if token.token_type == TokenType.SELECT]
    return source.error(selects[-1], "a subquery is not supported", _CLAUSES, _OWN_STREAM)


def _window_function(source: Source, part: exp.Expr) -> QueryError | None:
    if not isinstance(part, exp.Window):
        return None
    wrong, fix = "window functions (OVER) are not supported", "aggregate with GROUP BY"
    return source.error(source.keyword(TokenType.OVER), wrong, _CLAUSES, fix)


def _option_of_aggregate(source: Source, part: exp.Expr) -> QueryError | None:
    words: dict[type[exp.Expr], str] = {
        exp.Filter: "FILTER",
        exp.IgnoreNulls: "IGNORE",
        exp.RespectNulls: "RESPECT",
        exp.WithinGroup: "WITHIN",
    }
    word = words.get(type(part))
    if word is None or not isinstance(part.this, exp.AggFunc):
        return None
    wrong, fix = f"{word} after an aggregate is not supported", "SUM(CASE WHEN condition THEN value END)"
    at = source.keyword(words=(word, f"{word} NULLS", f"{word} GROUP"))
    return source.error(at, wrong, "aggregates of one expression", fix)


def _star_inside(source: Source, part: exp.Expr) -> QueryError | None:
    if not isinstance(part, exp.Star):
        return None
    owner = part.parent.parent if isinstance(part.parent, exp.Column) else part.parent
    if isinstance(owner, exp.Select) or isinstance(part.parent, exp.Count):
        return None
    at = source.start(part.parent) if isinstance(part.parent, (exp.Column, exp.Func)) else source.star()
    wrong = "* is not supported inside an expression"
    return source.error(at, wrong, "SELECT *, R.* or COUNT(*)", "name the columns")


def _parameter(source: Source, part: exp.Expr) -> QueryError | None:
    if not isinstance(part, (exp.Placeholder, exp.Parameter)):
        return None
    at = source.keyword(TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON)
    return source.error(at, "parameters are not supported", "values", "write the value itself")


def _several_rows(source: Source, part: exp.Expr) -> QueryError | None:
    if not isinstance(part, exp.UDTF) or not isinstance(part.parent, (exp.Select, exp.Alias)):
        return None
    wrong = "functions that make several rows are not supported"
    return source.error(source.start(part), wrong, "expressions with one value", _IN_DATAFRAME)


def _unrepeatable(source: Source, part: exp.Expr) -> QueryError | None:
    name = sql_of(part).split("(")[0].upper() if isinstance(part, exp.Func) else ""
    if name not in _UNREPEATABLE:
        return None
    at = source.keyword(words=(name,)) or source.start(part)
    wrong = f"{name} gives another value when an epoch is replayed after a crash"
    return source.error(at, wrong, "functions of the tuples alone", _IN_DATAFRAME)


_RULES: tuple[Callable[[Source, exp.Expr], QueryError | None], ...] = (
    _subquery,
    _window_function,
    _option_of_aggregate,
    _star_inside,
    _parameter,
    _several_rows,
    _unrepeatable,
)
