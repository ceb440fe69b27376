"""From an aggregate query to what its stages need: which columns of which input, which groups, which types.

An aggregate query is *factored* when it is of type 1 without predicates between streams, each aggregate's argument uses
one input, and all GROUP BY entries are columns or expressions of one input (a key counts for every input, since it is
equal in all of them). Then no composite is ever made. For other queries, and all of type 2, composites are
*enumerated*: slots make them, Spark computes predicates, groups and arguments, and they are summarized by group.

Expressions over one input are computed by Spark before the exchange, as further columns of its rows; Spark's analyzer
also says what types arguments and results have, so that they are those of the same query in batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from braidstream.errors import QueryError
from braidstream.kernels.closing_windows import DISTINCT
from braidstream.kernels.measures import EPOCH, WATERMARK, AggregateColumn, AggregatePlan, Enumeration, Measure, Periods
from braidstream.kernels.rows import VALUE_OF, stored_name
from braidstream.model.stores import Computed
from braidstream.query import Query
from braidstream.query.meaning import Typed, Types, Uncomputable
from braidstream.query.source import DIALECT, sql_of

__all__ = ["Draft", "composites_of", "draft"]

TIMESTAMP = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Draft:
    """The parts of an aggregation that follow from the query and the schemas alone."""

    columns: tuple[tuple[str, ...], ...]
    """For each input the columns that are routed, plain ones and computed ones."""
    computed: tuple[tuple[Computed, ...], ...]
    measures: tuple[tuple[Measure, ...], ...]
    grouped: int
    group_by: tuple[tuple[str, str], ...]
    local: bool
    aggregates: tuple[AggregateColumn, ...]
    schema: pa.Schema
    selected: tuple[tuple[str, str], ...] | None
    enumeration: Enumeration | None = None
    periods: Periods | None = None


def draft(query: Query, types: Types) -> Draft:
    """Plan an aggregate query, or refuse it; `types` says which ones arguments and results have."""
    _refuse(query)
    return _Drafting(query, types).draft()


def composites_of(plan: AggregatePlan) -> str:
    """The name of the join that makes a query's composites."""
    assert plan.enumeration is not None
    return plan.enumeration.join


def _refuse(query: Query) -> None:
    for output in query.outputs:
        if output.name.lower() in (EPOCH, WATERMARK):
            wrong = f"query {query.name!r} names an output {output.name!r}"
            expected = f"other names: results have columns {EPOCH} and {WATERMARK} of their own"
            raise QueryError(wrong, expected, "rename it with AS")


class _Drafting:
    """One query being drafted."""

    def __init__(self, query: Query, types: Types) -> None:
        self.query, self._types = query, types
        self._inputs = {entry.alias: entry.stream for entry in query.inputs}
        self.columns: list[dict[str, None]] = [{} for _ in query.inputs]
        self.computed: list[dict[str, Computed]] = [{} for _ in query.inputs]
        self.kinds: dict[tuple[int, str], pa.DataType] = {}
        self._distinct: list[str] = []

    def draft(self) -> Draft:
        """The draft: factored where that is possible."""
        several = any(len(entry.aliases) > 1 for entry in self.query.aggregates)
        if self.query.type == 2 or several or self.query.residual or self.query.window is not None:
            return self._enumerated()
        grouping = self._grouping()
        if grouping is None:
            return self._enumerated()
        return self._factored(*grouping)

    def _enumerated(self) -> Draft:
        """Composites as the rows of one input, grouped by what Spark computes of them."""
        groups = [(entry.name, f"g{i}", entry.sql) for i, entry in enumerate(self.query.group_by)]
        for name, source, sql in groups:
            self.kinds[0, source] = self._type(sql)
            self._refuse_group(name, sql, self.kinds[0, source])
        arguments: dict[str, str] = {}
        aggregates = tuple(self._enumerated_aggregate(entry, arguments) for entry in self.query.aggregates)
        fields = [pa.field(name, self.kinds[0, source]) for name, source, _ in groups]
        fields += [pa.field(entry.name, entry.type) for entry in aggregates]
        fields += [pa.field(EPOCH, pa.int64()), pa.field(WATERMARK, TIMESTAMP)]
        computed = [*((source, sql) for _, source, sql in groups), *((name, sql) for sql, name in arguments.items())]
        return Draft(
            tuple(entry.columns for entry in self.query.inputs),
            ((),) * len(self.query.inputs),
            (self._measures(0, aggregates),),
            0,
            tuple((name, source) for name, source, _ in groups),
            True,
            aggregates,
            pa.schema(fields),
            self._selected([field.name for field in fields]),
            Enumeration(f"{self.query.name}:composites", self.query.residual, tuple(computed)),
            self._periods({sql: source for _, source, sql in groups}),
        )

    def _periods(self, sources: Mapping[str, str]) -> Periods | None:
        window = self.query.window
        if window is None:
            return None
        parts = {window.part(sql): source for sql, source in sources.items()}
        wait_us = self.query.input(window.alias).window_us
        assert wait_us is not None
        distinct = tuple((column, self.kinds[0, column]) for column in self._distinct)
        return Periods(
            parts["start"], parts["end"], window.size_us, window.slide_us, window.offset_us, wait_us, distinct
        )

    def _enumerated_aggregate(self, entry: Any, arguments: dict[str, str]) -> AggregateColumn:
        if entry.argument is None:
            return AggregateColumn(entry.name, "count", None, None, pa.int64())
        if entry.function == "count_distinct":
            return self._distinct_count(entry, arguments)
        kind, cast, result = self._types_of(entry)
        sql = entry.argument if cast is None else f"CAST({entry.argument} AS {cast})"
        column = arguments.setdefault(sql, f"a{len(arguments)}")
        self.kinds[0, column] = pa.float64() if cast else kind
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        return AggregateColumn(entry.name, entry.function, 0, column, result, scale)

    def _distinct_count(self, entry: Any, arguments: dict[str, str]) -> AggregateColumn:
        column = arguments.setdefault(entry.argument, f"a{len(arguments)}")
        self.kinds[0, column] = self._type(entry.argument)
        self._refuse_group(entry.name, entry.argument, self.kinds[0, column])
        self.kinds[0, f"{DISTINCT}{column}"] = pa.int64()
        self._distinct.append(column)
        return AggregateColumn(entry.name, "count", 0, f"{DISTINCT}{column}", pa.int64())

    def _factored(self, grouped: int, entries: list[tuple[str, str]]) -> Draft:
        group_by = tuple((name, self._column(grouped, sql, None)) for name, sql in entries)
        for (name, column), (_, sql) in zip(group_by, entries, strict=True):
            self._refuse_group(name, sql, self.kinds[grouped, column])
        keys = {
            self.query.key_classes[c].expression(self.query.aliases[grouped])
            for c in range(len(self.query.key_classes))
        }
        local = keys <= {_bare(sql) for _, sql in entries}
        aggregates = tuple(self._aggregate(entry) for entry in self.query.aggregates)
        fields = [pa.field(name, self.kinds[grouped, column]) for name, column in group_by]
        fields += [pa.field(entry.name, entry.type) for entry in aggregates]
        fields += [pa.field(EPOCH, pa.int64()), pa.field(WATERMARK, TIMESTAMP)]
        return Draft(
            tuple(tuple(own) for own in self.columns),
            tuple(tuple(own.values()) for own in self.computed),
            tuple(self._measures(i, aggregates) for i in range(len(self.query.inputs))),
            grouped,
            group_by,
            local and bool(entries),
            aggregates,
            pa.schema(fields),
            self._selected([field.name for field in fields]),
        )

    def _grouping(self) -> tuple[int, list[tuple[str, str]]] | None:
        """The grouped input, and each GROUP BY entry's name and its text over that input; None if there is none."""
        if not self.query.group_by:
            return 0, []
        used = [_aliases(entry.sql) for entry in self.query.group_by]
        for place in sorted(
            range(len(self.query.inputs)), key=lambda i: -sum(self.query.aliases[i] in u for u in used)
        ):
            alias = self.query.aliases[place]
            texts = [self._over(entry.sql, alias) for entry in self.query.group_by]
            if all(text is not None for text in texts):
                names = [entry.name for entry in self.query.group_by]
                return place, [(name, text) for name, text in zip(names, texts, strict=True) if text is not None]
        return None

    def _over(self, sql: str, alias: str) -> str | None:
        """A GROUP BY entry as an expression of one input: as it is, or a key, which is equal in all inputs."""
        used = _aliases(sql)
        if used <= {alias}:
            return sql
        if len(used) > 1:
            return None
        (other,) = used
        for entry in self.query.key_classes:
            if entry.expression(other) == _bare(sql):
                if _rewritten(entry.expression(alias), list) != entry.expression(alias):
                    return None  # a text that only Spark reads right: composites are enumerated instead
                mine = _qualified(entry.expression(alias), alias)
                return mine if self._type(mine) == self._type(sql) else None
        return None

    def _aggregate(self, entry: Any) -> AggregateColumn:
        if entry.argument is None:
            return AggregateColumn(entry.name, "count", None, None, pa.int64())
        place = self.query.aliases.index(entry.aliases[0]) if entry.aliases else 0
        kind, cast, result = self._types_of(entry)
        column = self._column(place, entry.argument, cast)
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        return AggregateColumn(entry.name, entry.function, place, column, result, scale)

    def _types_of(self, entry: Any) -> tuple[pa.DataType, str | None, pa.DataType]:
        """The type of an aggregate's argument, what it is cast to first, and the type of the result."""
        kind = self._type(entry.argument)
        result = self._type(f"{entry.function}({entry.argument})", aggregated=True)
        cast = None
        if entry.function in ("sum", "avg") and not _is_number(kind):
            if not pa.types.is_floating(result):
                raise self._refused(entry, kind)
            cast = "double"  # as Spark does with text
        if entry.function in ("min", "max") and _is_nested(kind):
            raise self._refused(entry, kind)
        if entry.function in ("min", "max"):
            self._refuse_collation(entry.argument, f"{entry.function.upper()} is over")
        return kind, cast, result

    def _refused(self, entry: Any, kind: pa.DataType) -> QueryError:
        called = f"{entry.function.upper()}({entry.argument})".replace("`", "")
        return QueryError(
            f"query {self.query.name!r}: {called} is over type {kind}", "numbers, or comparable values for MIN and MAX"
        )

    def _refuse_group(self, name: str, sql: str, kind: pa.DataType) -> None:
        if _is_nested(kind):
            shown = sql.replace("`", "")
            raise QueryError(
                f"query {self.query.name!r} groups by {shown} of type {kind}",
                "a column of a simple type",
                f"use to_json({shown})",
            )
        self._refuse_collation(sql, "it groups by")

    def _refuse_collation(self, sql: str, what: str) -> None:
        """Values are told apart and ordered by their bytes here."""
        type_ = self._typed(sql).text
        if "collate" in type_:
            shown = sql.replace("`", "")
            raise QueryError(
                f"query {self.query.name!r}: {what} {shown} of type {type_}",
                "texts that are compared by their bytes",
                f"use {shown} COLLATE UTF8_BINARY, or fold it, such as lower({shown} COLLATE UTF8_BINARY)",
            )

    def _column(self, place: int, sql: str, cast: str | None) -> str:
        """The column of an input that holds an expression: its own, or one that Spark computes before the exchange."""
        bare = _bare(sql) if cast is None else f"CAST({_bare(sql)} AS {cast})"
        node = sqlglot.parse_one(bare, read=DIALECT)
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            name = stored_name(node.name)
        else:
            name = f"{VALUE_OF}{bare}"
            self.computed[place][name] = Computed(name, bare, is_hash=False)
        self.columns[place][name] = None
        self.kinds[place, name] = pa.float64() if cast else self._type(sql)
        return name

    def _measures(self, place: int, aggregates: Sequence[AggregateColumn]) -> tuple[Measure, ...]:
        own = [entry for entry in aggregates if entry.input == place and entry.column is not None]
        made = []
        for column in dict.fromkeys(entry.column for entry in own if entry.column is not None):
            functions = {entry.function for entry in own if entry.column == column}
            made.append(
                Measure(
                    column,
                    self.kinds[place, column],
                    bool(functions & {"sum", "avg"}),
                    "min" in functions,
                    "max" in functions,
                )
            )
        return tuple(made)

    def _selected(self, names: Sequence[str]) -> tuple[tuple[str, str], ...] | None:
        selected = []
        for output in self.query.outputs:
            source = output.sql[1:-1].replace("``", "`") if output.sql[:1] == output.sql[-1:] == "`" else None
            if source is None or source not in names:
                return None
            selected.append((output.name, source))
        return (*selected, (EPOCH, EPOCH), (WATERMARK, WATERMARK))

    def _type(self, sql: str, *, aggregated: bool = False) -> pa.DataType:
        return self._typed(sql, aggregated=aggregated).arrow

    def _typed(self, sql: str, *, aggregated: bool = False) -> Typed:
        try:
            return self._types.type_of(self._inputs, sql, aggregated=aggregated)
        except Uncomputable as reason:
            shown = sql.replace("`", "")
            raise QueryError(f"query {self.query.name!r}: Spark cannot compute {shown} ({reason})") from None


def _aliases(sql: str) -> set[str]:
    columns = sqlglot.parse_one(sql, read=DIALECT).find_all(exp.Column)
    return {parts[0].name for column in columns if len(parts := column.parts) > 1}


def _bare(sql: str) -> str:
    """An expression over one input without its alias."""
    return _rewritten(sql, lambda parts: parts[1:])


def _qualified(sql: str, alias: str) -> str:
    """A bare expression with its alias."""
    return _rewritten(sql, lambda parts: [alias, *parts])


def _rewritten(sql: str, change: Callable[[list[str]], list[str]]) -> str:
    """The expression with other parts in the names of its columns (alias, column, fields of a struct)."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        first, *rest = (exp.to_identifier(part, quoted=True) for part in change([part.name for part in node.parts]))
        made: exp.Expr = exp.column(first)
        for part in rest:
            made = exp.Dot(this=made, expression=part)
        return made

    return sql_of(sqlglot.parse_one(sql, read=DIALECT).transform(replaced))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_nested(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_null(kind)
    )
