"""LEFT JOINs on top of inner joins: `FROM A JOIN B ON A.x = B.x LEFT JOIN C ON A.y = C.y LEFT JOIN D ON ...`.

What is kept are the matches of the streams before the first LEFT JOIN: each is put out with every match among the rows
of the next stream, or once with NULLs, and what that gives goes on to the stream after it. Conditions of the inner
joins, and those of WHERE that name no stream of a LEFT JOIN, decide what these matches are; an inner one of several
streams may as well be looked at afterwards, for it drops a match with all that was joined to it. ON of a LEFT JOIN has
equalities of one stream before with its own (at least one), conditions on its own, and comparisons; a condition on the
streams before alone is refused.

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


def stacked_condition(scope: Scope, on: Sequence[Sequence[exp.Expr]], where: Sequence[exp.Expr]) -> Joined:
    """Sort the conjuncts of the ON of each join, first inner ones and then LEFT JOINs, and of WHERE."""
    n_whole = len(scope.relations) - scope.n_left
    below, open_ = [node for own in on[: n_whole - 1] for node in own], set(scope.aliases[n_whole:])
    _refuse_early(scope, below, open_)
    own = [node for node in where if open_.isdisjoint(scope.used(node))]
    whole = replace(scope, relations=scope.relations[:n_whole])
    inner = join_condition(whole, [*below, *own], clause="ON", needs_equality=n_whole > 1)
    tops = [_Top(scope, place) for place in range(n_whole, len(scope.relations))]
    for top in tops:
        top.read(on[top.place - 1])
    filters = {top.alias: conjunction(top.filters) for top in tops if top.filters}
    return Joined(
        {**inner.filters, **filters},
        (),
        (*inner.key_classes, *inner.join_edges, *dict.fromkeys(edge for top in tops for edge in top.edges)),
        (
            *inner.residual,
            *(interval.node for interval in inner.intervals),
            *(node for node in where if not open_.isdisjoint(scope.used(node))),
        ),
        (*inner.conditions, *(text for top in tops for text in top.conditions)),
        on=tuple(dict.fromkeys(match for top in tops for match in top.matches)),
        compared=tuple(node for top in tops for node in top.compared),
    )


def _refuse_early(scope: Scope, on: Sequence[exp.Expr], later: set[str]) -> None:
    """Refuse an ON that names a stream which is joined after it."""
    for node in on:
        early = next((alias for alias in scope.used(node) if alias in later), None)
        if early is not None:
            wrong, fix = f"ON names {early} before it is joined", f"name {early} in its own ON"
            raise scope.source.error(scope.source.start(node), wrong, "streams that stand before it", fix)


class _Top:
    """What ON of a LEFT JOIN says."""

    def __init__(self, scope: Scope, place: int) -> None:
        self.scope, self.place, self.alias = scope, place, scope.aliases[place]
        self.edges: list[KeyClass] = []
        self.filters: list[str] = []
        self.conditions: list[str] = []
        self.matches: list[Match] = []
        self.compared: list[exp.Expr] = []

    def read(self, on: Sequence[exp.Expr]) -> None:
        """Sort its conjuncts."""
        _refuse_early(self.scope, on, set(self.scope.aliases[self.place + 1 :]))
        for node in on:
            self._take(node)
        if not self.edges:
            wrong = f"no equality in ON connects {self.alias} with {', '.join(self.scope.aliases[: self.place])}"
            at, fix = self.scope.relations[self.place].offset, f"add ... = {self.alias}.key to ON"
            raise self.scope.source.error(at, wrong, "an equality", fix)

    def _take(self, node: exp.Expr) -> None:
        used = self.scope.used(node)
        others = [alias for alias in used if alias != self.alias]
        if not others:
            self.filters.append(self.scope.text(node, bare=True))
            self.conditions.append(self.scope.text(node))
        elif self.alias not in used or len(others) > 1:
            raise self._refused(node)
        elif (edge := edge_of(self.scope, node)) is not None:
            self.edges.append(edge)
        else:
            pair = replace(self.scope, relations=(self.scope.relation(others[0]), self.scope.relations[self.place]))
            last = "" if self.place == len(self.scope.relations) - 1 else self.alias
            self.matches += [replace(one, alias=others[0], last=last) for one in comparisons_of(pair, node)]
            self.compared.append(node)

    def _refused(self, node: exp.Expr) -> QueryError:
        wrong = f"ON of the LEFT JOIN has {sql_of(node).replace('`', '')}"
        expected = f"equalities and comparisons of one stream with {self.alias}, and conditions on {self.alias}"
        fix = "compute it in a stream, or join two streams in a query of their own"
        return self.scope.source.error(self.scope.source.start(node), wrong, expected, fix)
