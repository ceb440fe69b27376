"""The user's own text of each part of a query that is computed: select items, conjuncts, and the sides of equalities.

The parser's tree says which columns an expression uses; what it means is Spark's to say, so the text must reach Spark
as it was written. The parser keeps no places of whole expressions, so they are found from the tokens here, by Spark's
own precedence: OR, then AND, then predicates (IS, LIKE, IN, ...), then comparisons.

Invariant: after `mark`, a select item, a GROUP BY entry and a conjunct know their piece of the text; an equality whose
sides the tokens do not set clearly apart is marked as unclear and joins nothing. Cost: one pass over the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from braidstream.errors import QueryError
from braidstream.query.source import DIALECT, Source, bare_sql, sql_of

__all__ = ["conjuncts_of", "is_clear", "mark", "same_tokens", "written"]

_PIECE, _UNCLEAR = "piece", "unclear"
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_PREDICATES = frozenset(
    ("IS", "LIKE", "ILIKE", "RLIKE", "REGEXP", "IN", "BETWEEN", "NOT", "!", "EXISTS", "ISNULL", "NOTNULL", "OR", "AND")
) | {"<", ">", "<=", ">=", "!=", "<>", "<=>"}
_ENDS_ON = {"JOIN", "INNER", "CROSS", "ON", "WHERE", ",", ";"}
_KINDS = {"LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "ASOF", "NATURAL", "JOIN"}
"""Words before JOIN; elsewhere they may be names: `left(R.k, 3)`."""
_ENDS_WHERE = {"GROUP BY", "HAVING", "ORDER BY", "LIMIT", "QUALIFY", "WINDOW", "CLUSTER BY", "SORT BY", ";"}


@dataclass(frozen=True)
class _Run:
    """Tokens that follow each other."""

    source: Source
    tokens: Sequence[Token]

    @property
    def piece(self) -> tuple[int, int]:
        return self.tokens[0].start, max(token.end for token in self.tokens)

    def outer(self) -> Iterator[tuple[int, str]]:
        """The words that stand in no bracket and no CASE, with their places."""
        depth = 0
        for at, token in enumerate(self.tokens):
            word = _word(token, self.tokens[at - 1] if at else None)
            depth -= token.token_type in _CLOSE or word == "END"
            if depth == 0:
                yield at, word
            depth += token.token_type in _OPEN or word == "CASE"

    def split(self, is_cut: Callable[[str], bool]) -> list[_Run]:
        """The runs between the outer words that are cuts."""
        cuts = [at for at, word in self.outer() if is_cut(word)]
        ends = [-1, *cuts, len(self.tokens)]
        return [_Run(self.source, self.tokens[a + 1 : b]) for a, b in pairwise(ends)]

    def conjuncts(self) -> list[_Run]:
        """The runs between ANDs, but for those of BETWEEN."""
        open_betweens = 0
        cuts = []
        for at, word in self.outer():
            if word == "BETWEEN":
                open_betweens += 1
            elif word == "AND" and open_betweens:
                open_betweens -= 1
            elif word == "AND":
                cuts.append(at)
        ends = [-1, *cuts, len(self.tokens)]
        return [_Run(self.source, self.tokens[a + 1 : b]) for a, b in pairwise(ends)]

    def has(self, *words: str) -> bool:
        return any(word in words for _, word in self.outer())

    def unwrapped(self) -> _Run:
        """Without brackets around the whole."""
        run = self
        while len(run.tokens) > 2 and run.tokens[0].token_type == TokenType.L_PAREN and run._is_one_bracket():
            run = _Run(run.source, run.tokens[1:-1])
        return run

    def _is_one_bracket(self) -> bool:
        depth = 0
        for at, token in enumerate(self.tokens):
            depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
            if depth == 0:
                return at == len(self.tokens) - 1
        return False


def mark(source: Source, select: exp.Select) -> None:
    """Tell each part of the parsed query which piece of the text it is."""
    clauses = _Clauses.of(source)
    _mark_all(source, clauses.items, select.expressions)
    group = select.args.get("group")
    _mark_all(source, clauses.groups, group.expressions if group is not None and clauses.groups else [])
    where = select.args.get("where")
    conditions = [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
    conditions += [where.this] if where else []
    if len(conditions) != len(clauses.conditions):
        raise _unreadable(source, clauses.items[0])
    for node, run in zip(conditions, clauses.conditions, strict=True):
        _mark_condition(node, run)


def written(source: Source, node: exp.Expr, *, bare: bool) -> str | None:
    """A resolved expression as the user wrote it, but for the names of its columns; None where it was not written."""
    piece = node.meta.get(_PIECE)
    if piece is None:
        return _written_sides(source, node, bare=bare)
    start, end = piece
    parts = []
    for first, last, name in sorted(_columns(node, bare=bare)):
        parts += [source.code[start:first], name]
        start = last + 1
    return "".join([*parts, source.code[start : end + 1]]).strip()


def is_clear(node: exp.Expr) -> bool:
    """Whether the sides of an equality are what they seem, by Spark's precedence as well."""
    return not node.meta.get(_UNCLEAR)


def conjuncts_of(condition: str) -> tuple[str, ...]:
    """The parts of a condition that `predicates.conjunction` made: each in brackets, or the only one."""
    tokens = sqlglot.tokenize(condition, dialect=DIALECT)
    depth, opened, parts = 0, 0, list[str]()
    for at, token in enumerate(tokens):
        is_and = depth == 0 and bool(parts) and token.token_type == TokenType.AND and at == opened
        opened = at + 1 if is_and else opened
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if depth or is_and:
            continue
        if tokens[opened].token_type != TokenType.L_PAREN:
            return (condition,)
        parts.append(condition[tokens[opened].end + 1 : token.start])
        opened = at + 1
    return tuple(parts) if len(parts) > 1 else (condition,)


def same_tokens(one: str, other: str) -> bool:
    """Whether two texts differ in white space and the letter case of words at most."""
    try:
        return _tokens(one) == _tokens(other)
    except SqlglotError:
        return False


def _tokens(text: str) -> list[str]:
    """The tokens as they stand there: a text in quotes as it is, since what its escapes mean is Spark's to say."""
    slices = [text[token.start : token.end + 1] for token in sqlglot.tokenize(text, dialect=DIALECT)]
    return [one if one[:1] in "'\"`" or one[1:2] in ("'", '"') else one.upper() for one in slices]


def _written_sides(source: Source, node: exp.Expr, *, bare: bool) -> str | None:
    """An equality that a chain `a = b = c` was taken apart into."""
    if not isinstance(node, exp.EQ):
        return None
    sides = [written(source, side, bare=bare) for side in (node.this, node.expression)]
    return None if None in sides else f"({sides[0]}) = ({sides[1]})"


def _columns(node: exp.Expr, *, bare: bool) -> Iterator[tuple[int, int, str]]:
    """The columns of a resolved expression: their places, and the names that replace them."""
    for column in node.find_all(exp.Column):
        places = [part.meta for part in column.parts if "start" in part.meta]
        if places:
            name = bare_sql(column) if bare else sql_of(column)
            yield min(place["start"] for place in places), max(place["end"] for place in places), name


@dataclass(frozen=True)
class _Clauses:
    """The tokens of the clauses: select items, conditions (those of ON first) and GROUP BY entries."""

    items: Sequence[_Run]
    conditions: Sequence[_Run]
    groups: Sequence[_Run]

    @classmethod
    def of(cls, source: Source) -> _Clauses:
        run = _Run(source, source.tokens)
        outer = list(run.outer())
        start = {word: at for at, word in reversed(outer) if word in ("FROM", "WHERE", "GROUP BY")}
        if "FROM" not in start:
            return cls((), (), ())
        first = 1 + (_word(source.tokens[1]) == "ALL")
        items = _Run(source, source.tokens[first : start["FROM"]]).split(lambda word: word == ",")
        conditions = [_until(run, at, _ENDS_ON | _ENDS_WHERE) for at, word in outer if word == "ON"]
        conditions += [_until(run, start["WHERE"], _ENDS_WHERE)] if "WHERE" in start else []
        groups = (
            _until(run, start["GROUP BY"], _ENDS_WHERE).split(lambda word: word == ",") if "GROUP BY" in start else []
        )
        return cls(items, conditions, groups)


def _until(run: _Run, at: int, ends: set[str]) -> _Run:
    """The tokens after a keyword, until the next clause."""
    after = ((place, word) for place, word in run.outer() if place > at)
    end = next((place for place, word in after if word in ends or _begins_join(run, place)), len(run.tokens))
    return _Run(run.source, run.tokens[at + 1 : end])


def _begins_join(run: _Run, at: int) -> bool:
    """Whether the next JOIN begins with this word."""
    for place in range(at, len(run.tokens)):
        word = _word(run.tokens[place], run.tokens[place - 1])
        if word not in _KINDS:
            return False
        if word == "JOIN":
            return True
    return False


def _mark_all(source: Source, runs: Sequence[_Run], nodes: Sequence[exp.Expr]) -> None:
    if len(runs) != len(nodes):
        return  # a form that is refused later, such as GROUP BY ROLLUP
    for run, node in zip(runs, nodes, strict=True):
        if run.tokens:
            node.unalias().meta[_PIECE] = _without_alias(run, node).piece


def _without_alias(run: _Run, node: exp.Expr) -> _Run:
    if not isinstance(node, exp.Alias):
        return run
    end = -2 if len(run.tokens) > 2 and run.tokens[-2].token_type == TokenType.ALIAS else -1
    return _Run(run.source, run.tokens[:end])


def _mark_condition(node: exp.Expr, run: _Run) -> None:
    run, node = run.unwrapped(), node.unnest()
    if not run.tokens:
        return
    node.meta[_PIECE] = run.piece
    if isinstance(node, exp.And):
        parts, pieces = list(node.flatten()), run.conjuncts()
        if run.has("OR") or len(parts) != len(pieces):
            raise _unreadable(run.source, run)
        for part, piece in zip(parts, pieces, strict=True):
            _mark_condition(part, piece)
    elif isinstance(node, exp.EQ):
        _mark_sides(node, run)


def _mark_sides(node: exp.Expr, run: _Run) -> None:
    """The sides of an equality, or of a chain of them, which leans to the left."""
    sides = run.split(lambda word: word in ("=", "=="))
    if run.has(*_PREDICATES) or not all(side.tokens for side in sides):
        node.meta[_UNCLEAR] = True
        return
    while isinstance(node, exp.EQ) and len(sides) > 1:
        node.expression.unnest().meta[_PIECE] = node.expression.meta[_PIECE] = sides.pop().unwrapped().piece
        node, before = node.this, node
    if len(sides) != 1 or isinstance(node, exp.EQ):
        before.meta[_UNCLEAR] = True
        return
    node.unnest().meta[_PIECE] = node.meta[_PIECE] = sides[0].unwrapped().piece


def _word(token: Token, before: Token | None = None) -> str:
    """The token as a keyword, if it is one: names and texts are none, nor is the FROM of IS DISTINCT FROM."""
    is_text = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER, TokenType.RAW_STRING)
    is_name = before is not None and before.token_type in (TokenType.DOT, TokenType.ALIAS, TokenType.DISTINCT)
    return "" if is_text or is_name else token.text.upper()


def _unreadable(source: Source, run: _Run) -> QueryError:
    return source.error(
        run.tokens[0].start, "cannot tell the conditions apart", "conditions joined by AND", "put brackets around each"
    )
