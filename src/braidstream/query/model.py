"""What a query means, as values: the contract between the language and the engine.

`cql.parse` and the builder produce a `Query`; the planner and the kernels read it. A column of an input appears in two
forms of Spark SQL text: *bare* (`` `k` ``) where an expression is computed on one stream alone, before the exchange,
and *qualified* (`` `R`.`k` ``) where it is computed on composites.

    inputs ── filter (bare) ── key_classes / join_edges (bare) ──▶ composites ── residual ── outputs   (qualified)
                                                                            └── group_by, aggregates (qualified)
                                                                                      └── outputs   (over their names)

Invariants: `key_classes` is not empty iff the query is of type 1 (DHTJoin 2.1: all joins on one attribute class), and
then every class has one member for each input, in the order of `inputs`; otherwise `join_edges` connects all inputs.
A query of another kind than an inner join has two inputs and is of type 1, or it is LEFT JOINs of the last inputs, one
after the other, with an inner join of the first, and of type 2 whatever its keys; `on` and `Input.match` decide there
what a match is, and `residual` filters results, also those with NULLs in the place of a row.
Texts are canonical, so equal texts mean the same and queries can share an exchange by comparing strings.
Cost: values only; the fingerprint is one hash of the canonical form.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from braidstream.model.join_kinds import JoinKind

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "UNKEYED",
    "Aggregate",
    "Band",
    "Enriched",
    "Gap",
    "Input",
    "KeyClass",
    "Lookup",
    "Match",
    "Output",
    "Query",
    "TimeWindow",
]

AGGREGATE_FUNCTIONS = ("sum", "count", "avg", "min", "max")
UNKEYED = "0"
"""The key of a join without an equality: all rows have the same."""


@dataclass(frozen=True)
class Input:
    """A stream as one query uses it. The same stream may be two inputs under two aliases (a self join)."""

    alias: str
    stream: str
    window_us: int | None
    """How long a tuple stays joinable; None is unbounded."""
    filter: str | None
    """Bare condition that a tuple must satisfy to be indexed at all, or None."""
    columns: tuple[str, ...]
    """The columns, in schema order, that composites need: for outputs, residual predicates and aggregates."""
    match: str | None = None
    """Bare condition that a tuple must satisfy to have a match, where tuples without one are results as well."""


@dataclass(frozen=True)
class KeyClass:
    """One class of equal attributes: for each alias in it one bare expression; all are compared in `type`."""

    members: tuple[tuple[str, str], ...]
    type: str

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs that the class joins."""
        return tuple(alias for alias, _ in self.members)

    def expression(self, alias: str) -> str:
        """The bare key expression of one input."""
        return dict(self.members)[alias]


@dataclass(frozen=True)
class Match:
    """A comparison that decides what a match is: bare expressions over the first and the second input, in `type`."""

    left: str
    operator: str
    right: str
    type: str
    alias: str = ""
    """Of more than two inputs: that of the left side."""
    last: str = ""
    """That of the right side, where it is not the last input's."""


@dataclass(frozen=True)
class Band:
    """What a match of a join without an equality satisfies: low <= left - right <= high, or of left + right (`is_sum`).

    Bare expressions over the first and the second input, with their types. Of whole numbers (`is_whole`) the bounds
    decide; of others they are necessary, and the predicate that they follow from is left for Spark.
    """

    left: str
    left_type: str
    right: str
    right_type: str
    low: float | None
    high: float | None
    is_sum: bool = False
    is_whole: bool = False

    @property
    def width(self) -> float:
        """How narrow it is."""
        return float("inf") if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Gap:
    """How far apart the times of two inputs lie in a result: low <= right's time - left's <= high, both inclusive."""

    left: str
    right: str
    low_us: int | None
    high_us: int | None
    """None is no bound."""


@dataclass(frozen=True)
class Lookup:
    """A table that is joined to a stream before its rows are routed: rows without a match have NULL in its columns."""

    table: str
    name: str
    """Under which its columns stand beside the stream's: `name.column`."""
    condition: str
    """Bare, over the stream's columns and those of tables that were joined so far."""

    @property
    def flag(self) -> str:
        """The column that is true where the table has a match, and NULL elsewhere."""
        return f"{self.name} is there"

    def column(self, name: str) -> str:
        """A column of the table as the enriched stream calls it."""
        return f"{self.name}.{name}"


@dataclass(frozen=True)
class Enriched:
    """A stream with the tables that are joined to it. Queries that say the same share it."""

    stream: str
    lookups: tuple[Lookup, ...]

    @cached_property
    def name(self) -> str:
        """What it is called: as its parts, and a digest of how they are joined."""
        form = json.dumps([[one.table, one.condition] for one in self.lookups], ensure_ascii=True)
        digest = hashlib.sha256(form.encode()).hexdigest()[:6]
        return "+".join([self.stream, *(one.table for one in self.lookups)]) + f".{digest}"


@dataclass(frozen=True)
class Output:
    """A named column of the result. `column` is (alias, column) iff it is a column of an input as it is."""

    name: str
    sql: str
    column: tuple[str, str] | None = None


@dataclass(frozen=True)
class TimeWindow:
    """Windows of an input's event time that results are counted in: one of `size` begins every `slide`.

    Its start is the GROUP BY entry that is the time column in brackets, its end the one in two of them.
    """

    alias: str
    size_us: int
    slide_us: int
    offset_us: int

    def part(self, sql: str) -> str | None:
        """Whether a GROUP BY entry is the start or the end of the window."""
        depth = len(sql) - len(sql.lstrip("("))
        is_own = depth and sql[depth:].startswith(f"`{self.alias}`.") and sql.endswith(")" * depth)
        return {1: "start", 2: "end"}.get(depth) if is_own else None


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the live composites: `function(argument)`. COUNT(*) has no argument."""

    name: str
    function: str
    argument: str | None
    """Qualified Spark SQL."""
    aliases: tuple[str, ...]
    """The inputs that the argument uses, in the order of `Query.inputs`. One alias: no composites are needed for it."""


@dataclass(frozen=True)
class Query:
    """A continuous query: an equi-join over m streams with filters, and a projection or aggregates.

    In an aggregate query `outputs` is computed over the aggregated rows: its texts name `group_by` and `aggregates`
    entries (backquoted, e.g. `` `total` / `n` ``), usually each just one of them.
    """

    name: str
    text: str
    inputs: tuple[Input, ...]
    key_classes: tuple[KeyClass, ...]
    join_edges: tuple[KeyClass, ...]
    residual: tuple[str, ...]
    outputs: tuple[Output, ...]
    aggregates: tuple[Aggregate, ...] = ()
    group_by: tuple[Output, ...] = ()
    kind: JoinKind = JoinKind.INNER
    on: tuple[Match, ...] = ()
    """Comparisons between its inputs that a match satisfies, of a join that is no inner one, or has no equality."""
    bands: tuple[Band, ...] = ()
    """Of a join without an equality, the narrowest first."""
    gaps: tuple[Gap, ...] = ()
    """What intervals say of pairs of inputs beyond the windows, in the order of FROM, as narrow as all allow."""
    window: TimeWindow | None = None
    """Of an aggregate query whose groups are put out once, when their window is over."""
    enriched: tuple[Enriched, ...] = ()
    """The streams among its inputs that are joined with tables before they are routed."""
    n_left: int = 1
    """Of more than two inputs and a LEFT JOIN: how many of the last are joined so."""
    identity: str = ""
    """The digest of the query as written, where windows and predicates were derived from its conditions."""

    @property
    def type(self) -> int:
        """DHTJoin's type: 1 if one key partitions all inputs, 2 if the join is a pipeline over several attributes."""
        return 1 if self.key_classes else 2

    @property
    def is_unkeyed(self) -> bool:
        """Whether no equality joins its inputs: all rows have one key, which every slot has a part of."""
        return any(expression == UNKEYED for one in self.key_classes for _, expression in one.members)

    @property
    def is_aggregate(self) -> bool:
        """Whether the result is aggregated rows instead of composites."""
        return bool(self.aggregates)

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs' aliases, in the order of FROM."""
        return tuple(entry.alias for entry in self.inputs)

    @property
    def tops(self) -> tuple[str, ...]:
        """Of more than two inputs: those that are joined by LEFT JOIN with what the ones before them give."""
        is_stacked = self.kind is JoinKind.LEFT and len(self.inputs) > 2
        return self.aliases[len(self.inputs) - self.n_left :] if is_stacked else ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads, each once."""
        return tuple(dict.fromkeys(entry.stream for entry in self.inputs))

    def input(self, alias: str) -> Input:
        """The input of that alias."""
        return {entry.alias: entry for entry in self.inputs}[alias]

    @cached_property
    def fingerprint(self) -> str:
        """A digest of what the query means: not of its name, its white space or the order of its conjuncts."""
        if self.identity:
            return self.identity
        left_out = {"name", "text", "identity", "bands"} | {
            field for field in ("gaps", "window", "enriched") if not getattr(self, field)
        }
        if self.n_left == 1:
            left_out.add("n_left")
        meaning = {field: value for field, value in asdict(self).items() if field not in left_out}
        if self.kind is JoinKind.INNER:  # as it was before there were other kinds
            del meaning["kind"], meaning["on"]
        meaning["inputs"] = [{k: v for k, v in one.items() if k != "match" or v} for one in meaning["inputs"]]
        if "on" in meaning:
            meaning["on"] = [{k: v for k, v in one.items() if k != "last" or v} for one in meaning["on"]]
        for unordered in ("key_classes", "join_edges", "residual", *(("on",) if "on" in meaning else ())):
            meaning[unordered] = sorted(meaning[unordered], key=repr)
        form = json.dumps(meaning, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(form.encode()).hexdigest()[:32]
