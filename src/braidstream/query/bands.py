"""Joins without an equality: what of their conditions the engine decides, and by what it can sort.

A conjunct that compares a number of one stream with a number of the other, give or take a constant, bounds a difference
or a sum: `ABS(R.x - S.x) < 5`, `R.a < S.b`, `R.x + S.y > 10`, `S.x BETWEEN R.x - 1 AND R.x + 1`. Rows sorted by such a
number are searched instead of compared one by one (`kernels.pairs`). Between whole numbers the bounds are all there is
to the conjunct, and Spark is not asked again; between others rounding may differ, so the bounds only choose candidates,
and the conjunct stays. A comparison of whole expressions over one stream each (of texts, dates, decimals) is decided by
the engine as in outer joins. Anything else is left for Spark to evaluate on the pairs.

Invariant: what is decided here means what Spark means by it, and what is left out is implied by what is kept. Where
whole numbers wrap around (no ANSI mode), their sums and differences are left for Spark. Cost: linear in the conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor

from sqlglot import exp

from braidstream.errors import QueryError
from braidstream.query.meaning import Uncomputable
from braidstream.query.model import Band, Match, Query
from braidstream.query.outer_joins import OPERATORS, comparisons_of, single_comparisons
from braidstream.query.scope import Scope
from braidstream.query.source import bare_sql

__all__ = ["NO_EQUALITY", "with_bands"]

NO_EQUALITY = "no-equality"
"""What a query's `allow` says to be joined without an equality."""
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_ORDERED = ("date", "timestamp", "timestamp_ntz")
"""Types without sums that are stored as whole numbers."""
_LARGEST = 1 << 62
"""Bounds beyond this are none: no two numbers that Spark can add or subtract are so far apart."""


_Term = tuple[str, int, "exp.Expr | Fraction"]
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class _Form:
    """A comparison as `left + sign * right + constant op 0`, each side over one stream; or |...| op `bound`."""

    left: exp.Expr
    right: exp.Expr
    sign: int
    constant: Fraction
    operator: str
    bound: Fraction | None

    @property
    def is_compared(self) -> bool:
        """Whether it only compares the two."""
        return self.constant == 0 and self.sign < 0 and self.bound is None


def with_bands(scope: Scope, query: Query, residual: Sequence[exp.Expr]) -> Query:
    """A query without an equality, with what the engine decides and sorts by; `residual` are its predicates."""
    _refuse_aggregates(scope, query)
    on: list[Match] = []
    bands: list[Band] = []
    decided: set[str] = set()
    for node in residual:
        found = list(_bands(scope, node))
        exact = bool(found) and all(band.is_whole for band in found)
        bands += found
        matches = [] if exact else _matches(scope, node)
        on += matches
        if exact or matches:
            decided.add(scope.text(node))
    left = tuple(text for text in query.residual if text not in decided)
    made = tuple(sorted(_merged(bands), key=lambda band: (band.width, repr(band))))
    return replace(query, residual=left, on=tuple(dict.fromkeys(on)), bands=made, identity=query.fingerprint)


def _refuse_aggregates(scope: Scope, query: Query) -> None:
    if query.is_aggregate:
        wrong = "aggregates over a join without an equality are not supported"
        fix = "add an equality, or aggregate the results in a query of their own"
        raise scope.source.error(scope.relations[1].offset, wrong, "columns and expressions in SELECT", fix)


def _matches(scope: Scope, node: exp.Expr) -> list[Match]:
    """The comparisons that a conjunct consists of; none where the engine cannot decide it."""
    try:
        return list(comparisons_of(scope, node))
    except QueryError:
        return []


def _bands(scope: Scope, node: exp.Expr) -> Iterator[Band]:
    """The bounds that a conjunct implies: all that it says, or none."""
    if not scope.means(node):
        return
    forms = [_form(scope, one) for one in single_comparisons(node)]
    made = [None if form is None else _band(scope, form) for form in forms]
    if all(band is not None for band in made):
        yield from (band for band in made if band is not None)


def _form(scope: Scope, node: exp.Expr) -> _Form | None:
    operators = OPERATORS.get(type(node))
    if operators is None or operators[0] in ("!=", "<=>"):
        return None
    one, other, operator = node.this.unnest(), node.expression.unnest(), operators[0]
    if isinstance(other, exp.Abs):
        one, other, operator = other, one, operators[1]
    if not isinstance(one, exp.Abs):
        both = _terms(scope, exp.Sub(this=exp.paren(one.copy()), expression=exp.paren(other.copy())), 1)
        return None if both is None else _collected(scope, both, operator, None)
    terms, bound = _terms(scope, one.this, 1), _number(other)
    if terms is None or bound is None or operator not in ("<", "<="):
        return None
    return _collected(scope, terms, operator, bound)


def _collected(scope: Scope, terms: list[_Term], operator: str, bound: Fraction | None) -> _Form | None:
    """One term of each stream, and a constant."""
    own = [(alias, sign, node) for alias, sign, node in terms if isinstance(node, exp.Expr)]
    if sorted(alias for alias, _, _ in own) != sorted(scope.aliases):
        return None
    (_, sign, left), (_, other, right) = sorted(own, key=lambda term: scope.aliases.index(term[0]))
    assert isinstance(left, exp.Expr)
    assert isinstance(right, exp.Expr)
    flipped = operator if bound is not None or sign > 0 else _FLIPPED[operator]
    return _Form(left, right, sign * other, sign * _constant(terms), flipped, bound)


def _constant(terms: Iterable[_Term]) -> Fraction:
    return sum((sign * node for _, sign, node in terms if isinstance(node, Fraction)), Fraction(0))


def _terms(scope: Scope, node: exp.Expr, sign: int) -> list[_Term] | None:
    """The terms of a sum: numbers, and expressions over one stream each; None for anything else."""
    node = node.unnest()
    if (number := _number(node)) is not None:
        return [("", sign, number)]
    if isinstance(node, exp.Neg):
        return _terms(scope, node.this, -sign)
    if isinstance(node, (exp.Add, exp.Sub)) and _is_apart(scope, node):
        one = _terms(scope, node.this, sign)
        other = _terms(scope, node.expression, sign if isinstance(node, exp.Add) else -sign)
        return None if one is None or other is None else [*one, *other]
    used = scope.used(node)
    return [(used[0], sign, node)] if len(used) == 1 else None


def _is_apart(scope: Scope, node: exp.Expr) -> bool:
    """Whether a sum is of two streams, or of one and a number."""
    sides = scope.used(node.this), scope.used(node.expression)
    return len({*sides[0], *sides[1]}) != 1 or not all(sides)


def _number(node: exp.Expr) -> Fraction | None:
    if isinstance(node, exp.Neg):
        inner = _number(node.this.unnest())
        return None if inner is None else -inner
    is_exact = isinstance(node, exp.Literal) and not node.is_string and re.fullmatch(r"\d+(\.\d*)?|\.\d+", node.this)
    return Fraction(node.this) if is_exact else None


def _band(scope: Scope, form: _Form) -> Band | None:
    types = [_type_of(scope, side) for side in (form.left, form.right)]
    kinds = [_kind(one) for one in types]
    if "" in kinds or ("time" in kinds and not (form.is_compared and types[0] == types[1])):
        return None
    is_whole = all(kind in ("whole", "time") for kind in kinds)
    if is_whole and not form.is_compared and scope.meaning is not None and not scope.meaning.is_ansi():
        return None
    low, high = _bounds(form, is_whole=is_whole)
    texts = bare_sql(form.left), bare_sql(form.right)
    return Band(texts[0], types[0] or "", texts[1], types[1] or "", low, high, form.sign > 0, is_whole)


def _bounds(form: _Form, *, is_whole: bool) -> tuple[float | None, float | None]:
    """The least and the largest value of `left + sign * right`."""
    bound = Fraction(0) if form.bound is None else form.bound
    low, high = -bound - form.constant, bound - form.constant
    has_low = form.bound is not None or form.operator in (">", ">=", "=")
    has_high = form.bound is not None or form.operator in ("<", "<=", "=")
    if not is_whole:
        return _near(float(low)) if has_low else None, _near(float(high)) if has_high else None
    is_strict = form.operator in ("<", ">")
    least, most = (floor(low) + 1, ceil(high) - 1) if is_strict else (ceil(low), floor(high))
    return _near(least) if has_low else None, _near(most) if has_high else None


def _near(bound: float | None) -> float | None:
    return None if bound is None or abs(bound) > _LARGEST else bound


def _type_of(scope: Scope, node: exp.Expr) -> str | None:
    if scope.is_plain(node) or scope.meaning is None:
        return scope.type(node)
    try:
        return scope.meaning.type_of(scope.inputs, scope.text(node)).text
    except Uncomputable:
        return None


def _kind(type_: str | None) -> str:
    if type_ in _WHOLE:
        return "whole"
    if type_ in _ORDERED:
        return "time"
    return "real" if type_ in ("float", "double") or (type_ or "").startswith("decimal(") else ""


def _merged(bands: Iterable[Band]) -> list[Band]:
    """Bounds on the same difference or sum as one."""
    found: dict[tuple[str, str, bool], Band] = {}
    for band in bands:
        key = (band.left, band.right, band.is_sum)
        known = found.get(key, band)
        lows = [one for one in (known.low, band.low) if one is not None]
        highs = [one for one in (known.high, band.high) if one is not None]
        found[key] = replace(known, low=max(lows, default=None), high=min(highs, default=None))
    return list(found.values())
