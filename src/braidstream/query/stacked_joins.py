"""A LEFT JOIN on top of inner joins: `FROM A JOIN B ON A.x = B.x LEFT JOIN C ON A.y = C.y AND B.v < C.v`.

What is kept are the matches of the streams before the last: each is put out with every match among the rows of the last
stream, or once with NULLs. Conditions of the inner joins, and those of WHERE that do not name the last stream, decide
what these are; an inner one of several streams may as well be looked at afterwards, for it drops a match with all that
was joined to it. ON of the LEFT JOIN has equalities of one stream before with the last (at least one), conditions on
the last, and comparisons; a condition on the streams before alone is refused.

Invariant: equalities of that ON are classes of their own, whatever else is equal: two of them with one expression of
the last stream do not make the other sides equal in a result without a match. Cost: linear in the conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from braidstream.errors import QueryError
from braidstream.query.model import KeyClass, Match
from braidstream.query.outer_joins import comparisons_of
from braidstream.query.predicates import Joined, conjunction, edge_of, join_condition
from braidstream.query.scope import Scope
from braidstream.query.source import sql_of

__all__ = ["stacked_condition"]


def stacked_condition(
    scope: Scope, below: Sequence[exp.Expr], on: Sequence[exp.Expr], where: Sequence[exp.Expr]
) -> Joined:
    """Sort the conjuncts of inner joins, of the LEFT JOIN after them, and of WHERE."""
    last = scope.aliases[-1]
    early = next((node for node in below if last in scope.used(node)), None)
    if early is not None:
        fix = f"name {last} in its own ON"
        raise scope.source.error(scope.source.start(early), f"ON names {last} before it is joined", "", fix)
    own = [node for node in where if last not in scope.used(node)]
    inner = join_condition(replace(scope, relations=scope.relations[:-1]), [*below, *own], clause="ON")
    top = _Top(scope)
    for node in on:
        top.take(node)
    if not top.edges:
        wrong = f"no equality in ON connects {last} with {', '.join(scope.aliases[:-1])}"
        raise scope.source.error(scope.relations[-1].offset, wrong, "an equality", f"add ... = {last}.key to ON")
    filters = {**inner.filters, **({last: conjunction(top.filters)} if top.filters else {})}
    return Joined(
        filters,
        (),
        (*inner.key_classes, *inner.join_edges, *dict.fromkeys(top.edges)),
        (
            *inner.residual,
            *(interval.node for interval in inner.intervals),
            *(node for node in where if last in scope.used(node)),
        ),
        (*inner.conditions, *top.conditions),
        on=tuple(dict.fromkeys(top.matches)),
        compared=tuple(top.compared),
    )


class _Top:
    """What ON of the LEFT JOIN says."""

    def __init__(self, scope: Scope) -> None:
        self.scope, self.last = scope, scope.aliases[-1]
        self.edges: list[KeyClass] = []
        self.filters: list[str] = []
        self.conditions: list[str] = []
        self.matches: list[Match] = []
        self.compared: list[exp.Expr] = []

    def take(self, node: exp.Expr) -> None:
        """Sort one conjunct."""
        used = self.scope.used(node)
        others = [alias for alias in used if alias != self.last]
        if not others:
            self.filters.append(self.scope.text(node, bare=True))
            self.conditions.append(self.scope.text(node))
        elif self.last not in used or len(others) > 1:
            raise self._refused(node)
        elif (edge := edge_of(self.scope, node)) is not None:
            self.edges.append(edge)
        else:
            pair = replace(self.scope, relations=(self.scope.relation(others[0]), self.scope.relations[-1]))
            self.matches += [replace(match, alias=others[0]) for match in comparisons_of(pair, node)]
            self.compared.append(node)

    def _refused(self, node: exp.Expr) -> QueryError:
        wrong = f"ON of the LEFT JOIN has {sql_of(node).replace('`', '')}"
        expected = f"equalities and comparisons of one stream with {self.last}, and conditions on {self.last}"
        fix = "compute it in a stream, or join two streams in a query of their own"
        return self.scope.source.error(self.scope.source.start(node), wrong, expected, fix)
