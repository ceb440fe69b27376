"""Queries without text, in the manner of DataFrames.

    join("R", "S").window("10 seconds", S=None).on("k").where("R.low < S.v").select("R.k AS k", "S.v AS price")
    join("R", "S").how("left").window("10 seconds").on("k").match("R.low < S.v").where("S.k IS NULL")

A builder is a value: every method returns another one. It writes the CQL that it means (`.cql`) and parses that, so
there is one language, one set of checks, and one meaning; errors point into the text that was written.

Invariant: names given as names (streams, aliases, columns of `on`) are quoted where they need it; conditions and select
items are CQL expressions and are taken as they are. Cost: that of parsing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braidstream.errors import InputError, nearest
from braidstream.model.join_kinds import JoinKind
from braidstream.query.cql import parse
from braidstream.query.duration import describe_duration, describe_signed, parse_duration, parse_signed
from braidstream.query.model import Query
from braidstream.query.scope import TypeOf
from braidstream.query.source import DIALECT, sql_of
from braidstream.query.types import Schema, quote_name

__all__ = ["JoinBuilder", "join", "kind_named"]

Length = str | timedelta | None

_NAMES = {
    "inner": JoinKind.INNER,
    "left": JoinKind.LEFT,
    "leftouter": JoinKind.LEFT,
    "right": JoinKind.RIGHT,
    "rightouter": JoinKind.RIGHT,
    "full": JoinKind.FULL,
    "outer": JoinKind.FULL,
    "fullouter": JoinKind.FULL,
    "semi": JoinKind.SEMI,
    "leftsemi": JoinKind.SEMI,
    "anti": JoinKind.ANTI,
    "leftanti": JoinKind.ANTI,
    "asof": JoinKind.ASOF,
    "asofleft": JoinKind.ASOF_LEFT,
}


def _folded(how: str) -> str:
    return how.replace("_", "").replace(" ", "").lower()


def kind_named(how: str) -> JoinKind:
    """The kind of a join by the names that PySpark has for it, and those of as-of joins: "left_outer", "asof"."""
    found = _NAMES.get(_folded(how)) if isinstance(how, str) else None
    if found is None:
        known = ["inner", "left", "right", "full", "semi", "anti", "asof", "asof_left"]
        turned = {"rightsemi": "semi", "rightanti": "anti", "asofright": "asof_left"}.get(_folded(str(how)))
        if _folded(str(how)) == "cross":
            raise InputError(f"how={how!r}", f"one of {', '.join(known)}", 'write how="inner" with allow="no-equality"')
        fix = nearest(str(how), known) if turned is None else f'exchange the streams, and write how="{turned}"'
        raise InputError(f"how={how!r}", f"one of {', '.join(known)}", fix)
    return found


def join(*streams: str, **aliased: str) -> JoinBuilder:
    """Begin a query over streams: `join("R", "S")`, or under aliases: `join(a="R", b="R")`."""
    inputs = {**{name: name for name in streams}, **aliased}
    if len(inputs) < len(streams) + len(aliased):
        twice = next(name for name in (*streams, *aliased) if [*streams, *aliased].count(name) > 1)
        wrong, fix = f"{twice!r} stands twice in the join", f'write join(a="{twice}", b="{twice}")'
        raise InputError(wrong, "an alias of its own for each", fix)
    return JoinBuilder(inputs)


@dataclass(frozen=True)
class JoinBuilder:
    """A query in the making: streams by alias, their windows, and the texts of its clauses."""

    inputs: Mapping[str, str]
    windows_us: Mapping[str, int | None] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    kind: JoinKind = JoinKind.INNER
    matches: tuple[str, ...] = ()
    """The conditions that decide a match, where the join is no inner one."""
    has_intervals: bool = False

    def how(self, kind: str) -> JoinBuilder:
        """The kind of the join of two streams: "left", "right", "full", "semi", "anti", "asof" or "asof_left"."""
        return replace(self, kind=kind_named(kind))

    def match(self, *conditions: str) -> JoinBuilder:
        """Further conditions on a match, for a join that is no inner one: `match("R.low < S.v")`."""
        return replace(self, matches=(*self.matches, *(f"({condition})" for condition in conditions)))

    def window(self, *every: Length, **each: Length) -> JoinBuilder:
        """Windows: one for every stream, and others by alias; None is unbounded."""
        if len(every) > 1:
            fix = 'write window("10 seconds", S="1 hour")'
            raise InputError(f"{len(every)} windows without an alias", "one for all streams", fix)
        self._check_aliases(each)
        lengths = {**dict.fromkeys(self.inputs, *every), **each} if every else each
        found = {alias: None if length is None else parse_duration(length) for alias, length in lengths.items()}
        return replace(self, windows_us={**self.windows_us, **found})

    def between(self, earlier: str, later: str, low: Length, high: Length) -> JoinBuilder:
        """How far apart two event times are: `between("R.ts", "S.ts", "-5 seconds", "10 seconds")` is of S.ts - R.ts.

        A bound of None is none. Windows that this says need not be given.
        """
        bounds = [None if one is None else parse_signed(one) for one in (low, high)]
        if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
            wrong = f"the lower bound {describe_signed(bounds[0])} is above the upper one, {describe_signed(bounds[1])}"
            raise InputError(wrong, "a lower bound that is not above the upper one", "exchange the bounds")
        made = [
            f"{later} {sign} {earlier} {'-' if us < 0 else '+'} INTERVAL {describe_duration(abs(us)).upper()}"
            for sign, us in zip((">=", "<="), bounds, strict=True)
            if us is not None
        ]
        conditions, matches = (*self.conditions, *made), (*self.matches, *made)
        return replace(self, conditions=conditions, matches=matches, has_intervals=True)

    def on(self, *names: str, **keys: str) -> JoinBuilder:
        """Equal keys: `on("k")` for a column that all streams have, `on(R="k", S="lower(id)")` otherwise."""
        self._check_aliases(keys)
        if len(keys) == 1:
            raise InputError(
                f"on({next(iter(keys))}=...) names one stream", "two streams or more", "add the other's key"
            )
        chains = [{alias: quote_name(name) for alias in self.inputs} for name in names] + ([keys] if keys else [])
        made = [" = ".join(_qualified(alias, key) for alias, key in chain.items()) for chain in chains]
        return replace(self, conditions=(*self.conditions, *made), matches=(*self.matches, *made))

    def where(self, *conditions: str) -> JoinBuilder:
        """Conditions, all of which must hold: `where("R.v > 3", "R.low < S.v")`."""
        return replace(self, conditions=(*self.conditions, *(f"({condition})" for condition in conditions)))

    def select(self, *items: str) -> JoinBuilder:
        """Output columns: `select("R.k AS k", "sum(S.v) AS total")`. Without it, all columns."""
        return replace(self, items=(*self.items, *items))

    def group_by(self, *expressions: str) -> JoinBuilder:
        """What aggregates are grouped by."""
        return replace(self, groups=(*self.groups, *expressions))

    @property
    def cql(self) -> str:
        """The query as text, one clause a line."""
        is_inner = self.kind is JoinKind.INNER
        where = self.conditions if is_inner else [one for one in self.conditions if one not in self.matches]
        if is_inner:
            where = [*where, *(one for one in self.matches if one not in where)]
        lines = [
            f"SELECT {', '.join(self.items) or '*'}",
            f"FROM {', '.join(self._entry(alias) for alias in self.inputs)}" if is_inner else self._from(),
            f"WHERE {' AND '.join(where)}" if where else "",
            f"GROUP BY {', '.join(self.groups)}" if self.groups else "",
        ]
        return "\n".join(line for line in lines if line)

    def parse(
        self,
        streams: Mapping[str, Schema],
        name: str = "query",
        *,
        type_of: TypeOf | None = None,
        allow: str | None = None,
    ) -> Query:
        """The Query over the declared streams; `allow` is as in `cql.parse`."""
        return parse(self.cql, streams, name, type_of=type_of, allow=allow)

    def _from(self) -> str:
        """FROM of a join of two streams that is no inner one."""
        entries = [self._entry(alias) for alias in self.inputs]
        joined = f" {self.kind.words} ".join(entries)
        return f"FROM {joined} ON {' AND '.join(self.matches) or 'true'}"

    def _entry(self, alias: str) -> str:
        stream = quote_name(self.inputs[alias])
        named = f" AS {quote_name(alias)}" if alias != self.inputs[alias] else ""
        is_first = alias == next(iter(self.inputs))
        if alias not in self.windows_us and (self.has_intervals or (self.kind.is_asof and is_first)):
            return f"{stream}{named}"
        if alias not in self.windows_us:
            fix = f'write window({alias}="10 seconds"), or None for unbounded'
            raise InputError(f"stream {self.inputs[alias]} has no window", "a window for each stream", fix)
        length = self.windows_us[alias]
        shown = "UNBOUNDED" if length is None else describe_duration(length).upper()
        return f"{stream} [RANGE {shown}]{named}"

    def _check_aliases(self, named: Iterable[str]) -> None:
        for alias in named:
            if alias not in self.inputs:
                expected = f"one of {', '.join(self.inputs)}"
                raise InputError(f"the join has no stream {alias!r}", expected, nearest(alias, self.inputs))


def _qualified(alias: str, key: str) -> str:
    """A key expression over bare columns of one stream, with its columns qualified."""
    if key.isidentifier():  # a column may be named like a keyword
        return f"{quote_name(alias)}.{quote_name(key)}"
    try:
        node = sqlglot.parse_one(key, dialect=DIALECT)
    except SqlglotError:
        fix = 'write on(R="k", S="lower(id)")'
        raise InputError(f"cannot read the key {key!r} of {alias}", "a column or an expression", fix) from None
    made = node.transform(lambda part: _under(alias, part) if isinstance(part, exp.Column) else part)
    return sql_of(made if isinstance(node, (exp.Column, exp.Func)) else exp.paren(made))


def _under(alias: str, column: exp.Column) -> exp.Expr:
    parts = [part.copy() for part in column.parts]
    if parts[0].name.lower() != alias.lower():
        parts.insert(0, exp.to_identifier(alias, quoted=True))
    return exp.Dot.build(parts) if len(parts) > 1 else column
