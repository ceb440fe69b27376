"""The names a query can use: its inputs under their aliases, and the columns of each.

`Scope.resolve` rewrites an expression so that every column is `` `alias`.`column` `` in the declared spelling, found as
Spark finds it: in any letter case, unqualified where only one input has it, `alias.column.field` into structs.

Invariant: after `resolve` every `Column` node names an input and a column that exist; parameters of lambda functions
are left alone. Cost: one walk of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from braidstream.errors import QueryError, nearest
from braidstream.query.meaning import Meaning, Uncomputable
from braidstream.query.model import Enriched, Lookup
from braidstream.query.pieces import same_tokens, written
from braidstream.query.source import DIALECT, Source, bare_sql, sql_of
from braidstream.query.types import Column, Schema, field_names, field_type, type_of_node

__all__ = ["Relation", "Scope", "TypeOf"]

TypeOf = Callable[[str, str], "str | None"]
"""The type of a bare expression over a stream, (stream, sql) -> type; None where it is not known."""


@dataclass(frozen=True)
class Relation:
    """One entry of FROM: a stream under an alias, with its window, at its place in the text."""

    alias: str
    stream: str
    schema: Schema
    window_us: int | None
    offset: int
    is_open: bool = False
    """Whether no window was written: intervals are to say how long its tuples are kept."""
    own: Schema | None = None
    """Of a stream that tables are joined to: its own columns; `schema` has those of the tables as well."""
    enriched: Enriched | None = None
    """Of such a stream: how."""
    host: str = ""
    """Of a table: the alias of the stream that it is joined to, which has its columns."""
    lookup: Lookup | None = None
    """Of a table: how."""

    @property
    def reads(self) -> str:
        """The stream that is read, with its tables."""
        return self.stream if self.enriched is None else self.enriched.name

    @property
    def columns(self) -> tuple[str, ...]:
        """Its own columns."""
        return (self.own or self.schema).names

    def place(self, name: str) -> tuple[str, str]:
        """The alias and the name under which a column of it stands in composites."""
        return (self.alias, name) if self.lookup is None else (self.host, self.lookup.column(name))


@dataclass(frozen=True)
class Scope:
    """The relations of a query, and how to find and type what an expression names."""

    source: Source
    relations: tuple[Relation, ...]
    type_of: TypeOf | None = None
    meaning: Meaning | None = None
    tables: tuple[Relation, ...] = ()
    """Tables, whose columns are found as columns of the streams that they are joined to."""
    n_left: int = 1
    """Of more than two streams: how many of the last LEFT JOINs have, if they are no inner joins."""

    @property
    def named(self) -> tuple[Relation, ...]:
        """All that FROM has, in its order."""
        return tuple(sorted((*self.relations, *self.tables), key=lambda one: one.offset))

    @property
    def inputs(self) -> dict[str, str]:
        """The stream of each alias."""
        return {relation.alias: relation.reads for relation in self.relations}

    @property
    def has_even_days(self) -> bool:
        """Whether every day has 24 hours in the zone in which Spark computes."""
        return self.meaning is None or self.meaning.has_even_days()

    @property
    def aliases(self) -> tuple[str, ...]:
        """All aliases, in the order of FROM."""
        return tuple(relation.alias for relation in self.relations)

    def relation(self, alias: str) -> Relation:
        """The relation of that alias, in any letter case."""
        return self._by_alias[alias.lower()]

    def shown(self, column: exp.Column) -> str:
        """A resolved column as its stream or table calls it."""
        for one in self.tables:
            if one.host == column.table and one.lookup is not None and column.name.startswith(f"{one.lookup.name}."):
                return column.name[len(one.lookup.name) + 1 :]
        return column.name

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """A copy of the expression with every column qualified and backquoted."""
        root = exp.Paren(this=node.copy())  # so that the expression itself can be replaced
        for column in list(root.find_all(exp.Column)):
            if not isinstance(column.this, exp.Star):
                column.replace(self._resolved(column))
        resolved = root.this
        resolved.pop()
        assert isinstance(resolved, exp.Expr)
        return resolved

    def used(self, node: exp.Expr) -> tuple[str, ...]:
        """The aliases that a resolved expression uses, in the order of FROM."""
        found = {column.table for column in node.find_all(exp.Column)}
        return tuple(alias for alias in self.aliases if alias in found)

    def text(self, node: exp.Expr, *, bare: bool = False) -> str:
        """A resolved expression as Spark SQL: canonical where Spark reads that as the same, else as it was written."""
        canonical = bare_sql(node) if bare else sql_of(node)
        if self.meaning is None or _path(node) or self.means(node):
            return canonical
        own = written(self.source, node, bare=bare)
        return canonical if own is None else own

    def means(self, node: exp.Expr, groups: Sequence[str] | None = None) -> bool:
        """Whether Spark reads the canonical text of a resolved expression as it reads what the user wrote."""
        canonical, own = sql_of(node), written(self.source, node, bare=False)
        if self.meaning is None or own is None or same_tokens(own, canonical):
            return True
        try:
            return self.meaning.same(self.inputs, own, canonical, groups)
        except Uncomputable as error:
            raise self.refused(node, error) from None

    def refused(self, node: exp.Expr, error: Uncomputable) -> QueryError:
        """What Spark says of an expression, at its place."""
        text = written(self.source, node, bare=False) or sql_of(node)
        wrong, expected = f"Spark cannot compute {text.replace('`', '')}: {error}", "an expression of Spark SQL"
        return self.source.error(self.source.start(node), wrong, expected, "write what Spark computes on the streams")

    def is_plain(self, node: exp.Expr) -> bool:
        """Whether a resolved expression is a column, or a field in one."""
        return bool(_path(node))

    def type(self, node: exp.Expr) -> str | None:
        """The type of a resolved expression over one relation, or None where it is not known."""
        relation = self.relation(self.used(node)[0])
        path = _path(node)
        if path:
            return field_type(relation.schema[path[0]].type, path[1:])
        if self.type_of is not None:
            return self.type_of(relation.reads, bare_sql(node))
        return _inferred(node, relation)

    def _resolved(self, column: exp.Column) -> exp.Expr:
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        relation, at = self._owner(parts)
        found = relation.schema[parts[at].name]
        if found.type.startswith("struct<") and not _has_field(found.type, parts[at + 1 :]):
            raise self._unknown_field(parts[at + 1 :], found)
        alias, name = relation.place(found.name)
        result: exp.Expr = exp.column(_identifier(name, parts[at]), table=_identifier(alias, parts[0]))
        for part in parts[at + 1 :]:
            result = exp.Dot(this=result, expression=_identifier(part.name, part))
        return result

    def _owner(self, parts: list[exp.Identifier]) -> tuple[Relation, int]:
        """The relation that a dotted name means, and which of its parts is the column."""
        first = parts[0].name
        qualified = self._by_alias.get(first.lower()) if len(parts) > 1 else None
        if qualified and parts[1].name in qualified.schema:
            return qualified, 1
        owners = [relation for relation in self.named if first in relation.schema]
        if len(owners) == 1 and (len(parts) == 1 or self._has_fields(owners[0], first)):
            return owners[0], 0
        if qualified:
            raise self._unknown_column(parts[1], qualified)
        if len(parts) > 1 and not owners:
            raise self._unknown_alias(parts)
        raise self._unclear(parts[0], owners)

    def _has_fields(self, relation: Relation, name: str) -> bool:
        return relation.schema[name].type.startswith(("struct<", "map<", "array<struct<"))

    def _unknown_field(self, parts: list[exp.Identifier], column: Column) -> QueryError:
        """`parts` are the fields after the column; the first that does not exist is the one to point at."""
        names = [part.name for part in parts]
        depth = next(n for n in range(len(parts)) if field_type(column.type, names[: n + 1]) is None)
        known = field_names(field_type(column.type, names[:depth]) or "")
        wrong = f"{'.'.join([column.name, *names[:depth]])!r} has no field {names[depth]!r}"
        expected = f"one of {', '.join(known)}" if known else "no field: it is no struct"
        fix = nearest(names[depth], known) if known else f"remove .{names[depth]}"
        return self.source.error(self.source.start(parts[depth]), wrong, expected, fix)

    def _unknown_column(self, part: exp.Identifier, relation: Relation) -> QueryError:
        kind = "stream" if relation.lookup is None else "table"
        wrong = f"{kind} {relation.stream!r} has no column {part.name!r}"
        expected = f"one of {', '.join(relation.columns)}"
        return self.source.error(self.source.start(part), wrong, expected, nearest(part.name, relation.columns))

    def _unknown_alias(self, parts: list[exp.Identifier]) -> QueryError:
        name = parts[0].name
        hidden = [relation for relation in self.named if relation.stream.lower() == name.lower()]
        aliases = [relation.alias for relation in self.named]
        fix = nearest(name, aliases)
        if hidden:
            fix = f"here {hidden[0].stream} is called {hidden[0].alias}: write {hidden[0].alias}.{parts[1].name}"
        expected = f"one of {', '.join(aliases)}"
        return self.source.error(self.source.start(parts[0]), f"FROM has no stream or alias {name!r}", expected, fix)

    def _unclear(self, part: exp.Identifier, owners: list[Relation]) -> QueryError:
        if owners:
            options = [f"{relation.alias}.{part.name}" for relation in owners]
            wrong, fix = f"column {part.name!r} is ambiguous", f"write {' or '.join(options)}"
            return self.source.error(self.source.start(part), wrong, "a column of one stream", fix)
        names = {name for relation in self.named for name in relation.columns}
        wrong, expected = f"no stream has a column {part.name!r}", f"a column of {', '.join(self.aliases)}"
        return self.source.error(self.source.start(part), wrong, expected, nearest(part.name, names))

    @cached_property
    def _by_alias(self) -> Mapping[str, Relation]:
        return {relation.alias.lower(): relation for relation in self.named}


def _identifier(name: str, origin: exp.Identifier) -> exp.Identifier:
    """A backquoted name that keeps the place of the one it replaces."""
    made = exp.to_identifier(name, quoted=True)
    made.meta.update(origin.meta)
    return made


def _has_field(type_: str, parts: list[exp.Identifier]) -> bool:
    """Whether the fields exist. Beyond a map, an array or a type with odd names it is Spark that knows."""
    if not field_names(type_):
        return True
    for n_parts in range(1, len(parts) + 1):
        inner = field_type(type_, [part.name for part in parts[:n_parts]])
        if inner is None or inner.startswith(("map<", "array<")):
            return inner is not None
    return True


def _path(node: exp.Expr) -> list[str]:
    """The column and the fields that a resolved name consists of; empty for any other expression."""
    if isinstance(node, exp.Column):
        return [node.name]
    before = _path(node.this) if isinstance(node, exp.Dot) else []
    return [*before, node.expression.name] if before else []


def _inferred(node: exp.Expr, relation: Relation) -> str | None:
    """The type as the parser's library infers it, widened so that a cast to it cannot lose anything.

    It is less exact than Spark about widths of numbers: whole numbers count as bigint, floats as double, and decimals
    (whose digits change with every operation) as unknown unless there is an explicit CAST.
    """
    types = {column.name: column.type for column in relation.schema if "`" not in column.type}
    try:
        select = exp.select(node.copy()).from_(exp.table_(exp.to_identifier(relation.alias, quoted=True)))
        typed = annotate_types(select, schema={relation.alias: types}, dialect=DIALECT).expressions[0]
    except SqlglotError:
        return None
    found = type_of_node(typed.type)
    if isinstance(node.unnest(), exp.Cast):
        return found
    widened = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double"}
    if found is None or found.startswith("decimal"):
        return None
    return widened.get(found, found)
