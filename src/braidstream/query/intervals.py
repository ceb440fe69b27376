"""Intervals between the times of streams: `c.ts BETWEEN i.ts + INTERVAL 1 MINUTE AND i.ts + INTERVAL 30 MINUTES`.

A comparison of the event times of two streams, each with lengths of time added or taken off, bounds a difference:
t_b - t_a <= c. Windows bound differences too: t_b - t_a <= W_a for every b. All of them together are a system of
difference constraints; its closure, the shortest paths between streams, has for each pair the narrowest bounds that
follow. From them come the *gaps* that the join filters by, and how long a stream's tuples are kept: a tuple of a may
meet one that comes later, of b, only until t_a + (bound on t_b - t_a), so the longest of these is its window.

Bounds are whole microseconds, the resolution of Spark's timestamps, so a strict one is the next microsecond.

Invariant: a composite satisfies what was written iff it satisfies all gaps and windows. Where Spark's answer depends on
the session's zone (a day may have 23 hours there) the gap is wider by a day and the condition stays a predicate.
Cost: O(m^3) for m streams, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sqlglot import exp

from braidstream.query.duration import DurationProblem, describe_signed, measure
from braidstream.query.model import Gap
from braidstream.query.scope import Relation, Scope
from braidstream.query.source import sql_of

__all__ = ["Apart", "Bound", "Interval", "derive", "interval_of"]

_DAY_US = 86_400_000_000
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Bound:
    """later's time - earlier's time <= most. (Either may be the earlier one: `most` may be negative.)"""

    earlier: str
    later: str
    most_us: int


@dataclass(frozen=True)
class Interval:
    """A condition that bounds differences of times. If it is not exact, composites must satisfy it as well."""

    node: exp.Expr
    bounds: tuple[Bound, ...]
    is_exact: bool


@dataclass(frozen=True)
class Apart:
    """What follows for the join: the window of each input, and gaps where they are narrower than windows say."""

    windows_us: Mapping[str, int | None]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True)
class _Sum:
    """Times of streams, each added or taken off once, plus a length; `depends` where a zone may matter to Spark."""

    times: tuple[tuple[str, int], ...]
    us: int
    depends: bool

    def plus(self, other: _Sum, sign: int) -> _Sum:
        signs: dict[str, int] = dict(self.times)
        for alias, own in other.times:
            signs[alias] = signs.get(alias, 0) + sign * own
        times = tuple((alias, own) for alias, own in signs.items() if own)
        return _Sum(times, self.us + sign * other.us, self.depends or other.depends)


def interval_of(scope: Scope, node: exp.Expr) -> Interval | None:
    """The bounds that a resolved condition says; None where it is no interval between the times of two streams."""
    sides = list(_comparisons(node))
    found = [_bound(scope, *side) for side in sides]
    bounds = [one for one in found if one is not None]
    if not bounds or len(bounds) < len(found):
        return None
    depends = any(own for _, own in bounds) and not scope.has_even_days
    slack = _DAY_US if depends else 0
    widened = (Bound(one.earlier, one.later, one.most_us + slack) for one, _ in bounds)
    return Interval(node, tuple(widened), is_exact=not depends)


def derive(scope: Scope, intervals: Sequence[Interval]) -> Apart:
    """Windows and gaps that follow from all intervals and written windows; refuses what nothing can satisfy."""
    for interval in intervals:
        _refuse_empty(scope, interval.bounds, interval)
    bounds = [bound for interval in intervals for bound in interval.bounds]
    _refuse_empty(scope, bounds, intervals[-1] if intervals else None)
    most = _closure(scope.relations, bounds)
    windows = {relation.alias: _window(scope, relation, most) for relation in scope.relations}
    return Apart(windows, tuple(_gaps(scope.relations, windows, most)))


def _comparisons(node: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr, int]]:
    """The comparisons that a condition is: (smaller side, larger side, 1 if strict)."""
    if isinstance(node, exp.Between):
        yield node.args["low"], node.this, 0
        yield node.this, node.args["high"], 0
    elif isinstance(node, (exp.LT, exp.LTE)):
        yield node.this, node.expression, int(isinstance(node, exp.LT))
    elif isinstance(node, (exp.GT, exp.GTE)):
        yield node.expression, node.this, int(isinstance(node, exp.GT))


def _bound(scope: Scope, smaller: exp.Expr, larger: exp.Expr, strict: int) -> tuple[Bound, bool] | None:
    """What `smaller <= larger` says of the times of two streams, and whether a zone may matter."""
    low, high = _sum(scope, smaller), _sum(scope, larger)
    if low is None or high is None:
        return None
    apart = low.plus(high, -1)
    signs = {sign: alias for alias, sign in apart.times}
    if len(apart.times) != 2 or set(signs) != {1, -1}:
        return None
    return Bound(signs[-1], signs[1], -apart.us - strict), apart.depends


def _sum(scope: Scope, node: exp.Expr) -> _Sum | None:
    """An expression of times and lengths as a sum; None where it is something else."""
    inner = node.unnest()
    if isinstance(inner, exp.Column):
        return _Sum(((inner.table, 1),), 0, depends=False) if _is_time(scope, inner) else None
    if isinstance(inner, exp.Interval):
        return _length(inner)
    if isinstance(inner, exp.Neg):
        own = _sum(scope, inner.this)
        return None if own is None or own.times else _Sum((), 0, depends=False).plus(own, -1)
    if not isinstance(inner, (exp.Add, exp.Sub)):
        return None
    left, right = _sum(scope, inner.this), _sum(scope, inner.expression)
    if left is None or right is None:
        return None
    made = left.plus(right, 1 if isinstance(inner, exp.Add) else -1)
    local = len(left.times) + len(right.times) > 1 and _is_local(scope, made)
    return _Sum(made.times, made.us, made.depends or local)


def _is_local(scope: Scope, made: _Sum) -> bool:
    """Whether times with a zone are subtracted, which Spark does on local clocks."""
    relations = [scope.relation(alias) for alias, _ in made.times]
    return any(r.schema.time is not None and r.schema[r.schema.time].type == "timestamp" for r in relations)


def _is_time(scope: Scope, column: exp.Column) -> bool:
    schema = scope.relation(column.table).schema
    return schema.time is not None and schema[schema.time].name == column.name and schema[column.name].type in _TIMES


def _length(node: exp.Interval) -> _Sum | None:
    """A length of time as SQL writes it; None for those that vary (months), or in a form that is not read here."""
    unit = node.args.get("unit")
    if not isinstance(node.this, exp.Literal) or isinstance(unit, exp.IntervalSpan):
        return None
    text = f"{node.this.name} {unit.name if unit is not None else ''}".strip()
    sign = -1 if text.startswith("-") else 1
    if sign < 0 and len(text.split()) > 2:  # the sign is that of the first part alone
        return None
    try:
        us = measure(text.lstrip("+-").strip())
    except DurationProblem:
        return None
    return _Sum((), sign * us, depends=us >= _DAY_US)


def _closure(relations: Sequence[Relation], bounds: Sequence[Bound]) -> dict[tuple[str, str], int]:
    """The least bound on (b's time - a's time) for each pair (a, b) that has one: shortest paths."""
    aliases = [relation.alias for relation in relations]
    most: dict[tuple[str, str], int] = {}
    for relation in relations:
        if relation.window_us is not None:
            most |= {(relation.alias, other): relation.window_us for other in aliases if other != relation.alias}
    for bound in bounds:
        pair = bound.earlier, bound.later
        most[pair] = min(most.get(pair, bound.most_us), bound.most_us)
    for via in aliases:
        for a, b in ((a, b) for a in aliases for b in aliases):
            if (a, via) in most and (via, b) in most:
                way = most[a, via] + most[via, b]
                most[a, b] = min(most.get((a, b), way), way)
    return most


def _window(scope: Scope, relation: Relation, most: Mapping[tuple[str, str], int]) -> int | None:
    """How long a tuple may meet others that come later; None is for ever, if that was written."""
    alias = relation.alias
    ways = [most.get((alias, other.alias)) for other in scope.relations if other.alias != alias]
    known = [way for way in ways if way is not None]
    if len(known) == len(ways):
        return max(0, *known)
    if not relation.is_open:
        return relation.window_us
    other = next(o.alias for o, way in zip(_others(scope, alias), ways, strict=True) if way is None)
    raise scope.source.error(relation.offset, *_unbounded(scope, relation, other))


def _unbounded(scope: Scope, relation: Relation, other: str) -> tuple[str, str, str]:
    own, time = relation.schema.time or "ts", scope.relation(other).schema.time or "ts"
    wrong = (
        f"stream {relation.stream} has no window, and nothing says how much later than {relation.alias} {other} may be"
    )
    upper = f"{other}.{time} <= {relation.alias}.{own} + INTERVAL 10 MINUTES"
    return wrong, "a window after the stream, or an interval", f"write {relation.stream} [RANGE 10 SECONDS], or {upper}"


def _others(scope: Scope, alias: str) -> list[Relation]:
    return [relation for relation in scope.relations if relation.alias != alias]


def _gaps(
    relations: Sequence[Relation], windows: Mapping[str, int | None], most: Mapping[tuple[str, str], int]
) -> Iterator[Gap]:
    """Of each pair of inputs the bounds, where one of them is narrower than the windows."""
    for left, right in combinations((relation.alias for relation in relations), 2):
        high, back = most.get((left, right)), most.get((right, left))
        if high != windows[left] or back != windows[right]:
            yield Gap(left, right, None if back is None else -back, high)


def _refuse_empty(scope: Scope, bounds: Sequence[Bound], of: Interval | None) -> None:
    """Bounds that contradict each other: a stream would have to be earlier than itself."""
    most = _closure(scope.relations, bounds)
    wrong = next(
        (relation.alias for relation in scope.relations if most.get((relation.alias, relation.alias), 0) < 0), None
    )
    if wrong is None or of is None:
        return
    at = scope.source.start(of.node)
    pair = _pair(of.bounds) or _pair(bounds)
    if pair is not None:
        earlier, later, low, high = pair
        said = f"{later} is to come {describe_signed(low)} to {describe_signed(high)} after {earlier}"
        said += ": the lower bound is above the upper one"
        raise scope.source.error(at, said, "a lower bound that is not above the upper one", "exchange the bounds")
    said = f"no times satisfy {sql_of(of.node).replace('`', '')} together with the other intervals and windows"
    raise scope.source.error(at, said, "intervals that some times satisfy", "correct a bound, or leave one out")


def _pair(bounds: Sequence[Bound]) -> tuple[str, str, int, int] | None:
    """(earlier, later, low, high) where two bounds are one of each direction of one pair and leave nothing."""
    for one, other in combinations(bounds, 2):
        if (one.earlier, one.later) == (other.later, other.earlier) and one.most_us + other.most_us < 0:
            upper, lower = (one, other) if one.most_us >= 0 or other.most_us < 0 else (other, one)
            return upper.earlier, upper.later, -lower.most_us, upper.most_us
    return None
