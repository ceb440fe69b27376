"""What tasks need to know of streams and queries: plain values, made once by the driver and sent with the tasks.

A *store* is one stream indexed on one key: it holds the columns and rows that any query joining on that key needs, for
the longest window of those queries. Queries over the same stream and key share a store; a stream has one store for each
distinct key (DHTJoin 3.2). A *branch* routes one stream to its stores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from braidstream.model.columns import DEADLINE, FAILED, HASH, KEY, MASK, TIME
from braidstream.model.join_kinds import JoinKind

__all__ = [
    "UNKEYED_KEY",
    "Attempt",
    "Branch",
    "Closing",
    "Comparison",
    "Computed",
    "Derived",
    "Join",
    "JoinBand",
    "JoinGap",
    "JoinInput",
    "OutputColumn",
    "Stage",
    "Store",
    "closed_stores",
    "sheddable",
    "shown_stage",
    "shown_store",
    "spillable",
]

UNKEYED_KEY = "CAST(0 AS int)"
"""The key of stores of joins without an equality."""
_KEPT = re.compile(r"(\w+):[0-9a-f]{12}:-?\d+:(\w+)(@\d+)?")


class Stage(IntEnum):
    """The stages that have a meaning of their own; a join of more inputs has as many as it has exchanges, from 0 on.

    Directories in checkpoints have the numbers.
    """

    FIRST = 0
    """Of tuples by their key."""
    TOTALS = 1
    """Of aggregates: what changed, by group."""
    COMPOSITES = 1000
    """Of composites that were enumerated for aggregates: a job of its own after the others, however many they are."""


def shown_stage(stage: int) -> str:
    """A stage as people count them."""
    return "aggregates" if stage == Stage.COMPOSITES else str(stage + 1)


def shown_store(name: str) -> str:
    """A store as people know it: what an aggregate query keeps is told by the query, not by its fingerprint."""
    found = _KEPT.fullmatch(name)
    if found is None:
        return name
    query, part, stage = found.groups()
    words = {"totals": "the totals", "leases": "the extremes", "composites": "the composites"}
    return f"{words.get(part, f'the summaries of {part}')} of {query}{stage or ''}"


@dataclass(frozen=True)
class Store:
    """One stream indexed on one key. `name` is stable over restarts; `index` is its place in the flow."""

    index: int
    name: str
    stream: str
    key: tuple[str, ...]
    """Spark SQL expressions over the stream's columns, already cast to the type they are compared in."""
    compared: tuple[str, ...]
    """The keys in a form that can be compared column by column, and further ones that are compared but not hashed."""
    verified: bool
    """Whether hashes may collide, so that the keys are stored and compared."""
    filters: tuple[str, ...]
    """The distinct filters of its queries: bit i of a row's mask says whether it passes filter i."""
    takes_all: bool
    """Whether some query has no filter; otherwise rows that pass no filter are skipped."""
    columns: tuple[str, ...]
    window_us: int | None
    stage: int = 0
    """The exchange after which it is kept and joined: 0 for the first."""
    marked: bool = False
    """Whether rows were stored that some query does not take, when others filtered differently."""
    derived: bool = False
    """Whether its rows are intermediate results: each then carries its deadline."""
    kept: bool = True
    """Whether its rows are stored; aggregate queries keep summaries of them instead."""
    summarized: bool = False
    """Whether it holds summaries (`kernels.summaries`) of an aggregate query, not rows."""
    family: str = ""
    """The stores that share grids with it (`kernels.families`); empty where keys stay in one slot however heavy."""
    places: tuple[int, ...] = ()
    """Its dimensions in those grids, one for each use."""
    keyless: int | None = None
    """The store that takes its rows without a key, where some join puts these out; None: they go nowhere."""

    @property
    def merge_span_us(self) -> int | None:
        """What compaction takes for the window: leases, which end at their time, are merged however far apart."""
        return None if self.summarized and self.window_us == 0 else self.window_us

    @property
    def masked(self) -> bool:
        """Whether queries filter the stream differently, so that each stored row carries the filters it passes."""
        return bool(self.filters) and (self.takes_all or len(self.filters) > 1 or self.marked)

    @property
    def is_unkeyed(self) -> bool:
        """Whether all its rows have one key, and are in the cells of one grid."""
        return self.key == (UNKEYED_KEY,)

    @property
    def keyless_columns(self) -> tuple[str, ...]:
        """The engine's columns of its rows without a key, but for hash and time."""
        return (MASK,) if self.masked else ()

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The engine's columns, in front of the stream's."""
        n_keys = len(self.key) if self.derived else len(self.compared)
        keys = tuple(f"{KEY}{i}" for i in range(n_keys)) if self.verified else ()
        return (HASH, TIME, *keys, *((MASK,) if self.masked else ()), *((DEADLINE,) if self.derived else ()))

    def branch_column(self, own: str) -> str:
        """The name that one of the engine's columns of this store has in the branch, where a stream has many stores."""
        return own if own == TIME else f"{own}@{self.index}"


@dataclass(frozen=True)
class Computed:
    """A column that routing adds for later exchanges: the hash of a key expression, or its value for comparison."""

    name: str
    key: str
    is_hash: bool


@dataclass(frozen=True)
class Attempt:
    """What a query with an output for bad rows computes of each row of a stream: one of which that fails goes there.

    Bare expressions. A row that a condition rules out has not failed, whatever else would; values are computed of rows
    that pass all conditions.
    """

    query: str
    conditions: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Passing:
    """A filter of stores as its conditions, and the values that have to be computable: it fails on no row."""

    filter: str
    conditions: tuple[str, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Branch:
    """The routing of one stream to its stores."""

    index: int
    stream: str
    stores: tuple[Store, ...]
    late_columns: tuple[str, ...]
    """The columns of the late output; empty when late tuples are only counted."""
    computed: tuple[Computed, ...] = ()
    tells_all: bool = False
    """Whether every slot is told what was read: aggregates need the watermark after the epoch while it runs."""
    attempts: tuple[Attempt, ...] = ()
    tried: tuple[str, ...] = ()
    """The expressions that may fail on a row, for nobody wants the flow to stop at them: they are NULL there."""
    tests: tuple[Passing, ...] = ()
    """The filters that do not fail: those of which that is wanted, and those that nobody has any more."""

    @property
    def payload(self) -> list[str]:
        """The stored names of the columns that are read of the stream, beside time and keys."""
        added = {computed.name for computed in self.computed}
        needed = [*(c for store in self.stores for c in store.columns), *self.late_columns]
        added.add(FAILED)
        return [name for name in dict.fromkeys(needed) if name not in added]


@dataclass(frozen=True)
class JoinInput:
    """One input of a query: a store, its window there, and the bit of its filter (None: every row passes)."""

    store: int
    window_us: int | None
    bit: int | None


@dataclass(frozen=True)
class JoinGap:
    """How far apart the times of two inputs, by their places, may lie: low <= right's time - left's <= high."""

    left: int
    right: int
    low_us: int | None
    high_us: int | None


@dataclass(frozen=True)
class JoinBand:
    """What pairs of a join without an equality satisfy: low <= left - right <= high, or of left + right (`is_sum`).

    Stored columns of its two inputs. Of whole numbers the bounds are exact; of others they are necessary, up to a share
    `slack` of the values.
    """

    left: str
    right: str
    low: float | None
    high: float | None
    is_sum: bool = False
    is_whole: bool = True
    slack: float = 0.0


@dataclass(frozen=True)
class OutputColumn:
    """One output column: a column of one input."""

    name: str
    input: int
    column: str


@dataclass(frozen=True)
class Comparison:
    """What a match satisfies: a column of a join's first input against one of its second."""

    left: str
    operator: str
    right: str


@dataclass(frozen=True)
class Closing:
    """An input of which something is put out when a row closes (`model.join_kinds`)."""

    input: int
    bit: int | None
    """Of the filter on its rows; that of its `JoinInput` is of the rows that may have a match."""
    keyless: int | None
    """The store of its rows without a key, which have no match; None: they are not put out."""


@dataclass(frozen=True)
class Derived:
    """Where an intermediate result goes: the store it is indexed in, and which columns hold its hash and keys there."""

    store: int
    hash: OutputColumn
    keys: tuple[OutputColumn, ...]


@dataclass(frozen=True)
class Join:
    """A join as the kernel sees it: its inputs and the columns it puts out, with their Arrow schema.

    `query` names it: the query whose result it is, or, when it has a target, the query and the inputs below it.
    """

    query: str
    inputs: tuple[JoinInput, ...]
    outputs: tuple[OutputColumn, ...]
    schema: pa.Schema
    stage: int = 0
    target: Derived | None = None
    since: int = -1
    """Only tuples that arrived after this epoch are joined."""
    told: bool = False
    """Whether each result says by which epoch it came, and whether clean-up recovered it (`recovered`, `epoch`)."""
    lives: bool = False
    """For aggregates: whether a composite counts while all its components are live, however far apart their times are.
    Each then carries the time until which that holds."""
    is_counted: bool = False
    """Whether its results are aggregated, and so are no results of the query."""
    kind: JoinKind = JoinKind.INNER
    on: tuple[Comparison, ...] = ()
    closings: tuple[Closing, ...] = ()
    gaps: tuple[JoinGap, ...] = ()
    """Where the times of two inputs must lie closer together, or further apart, than windows say."""
    is_late: bool = False
    """Whether rows of its first input may come after their deadlines: what a LEFT JOIN before it found no match for."""
    is_unkeyed: bool = False
    """Whether it has no equality: it is of two inputs, all rows of which are in the cells of one grid."""
    bands: tuple[JoinBand, ...] = ()
    """Of one without an equality: by the first of them rows are sorted and searched."""

    @property
    def taken(self) -> tuple[OutputColumn, ...]:
        """The columns that are taken of its inputs: what it puts out, and what its target is indexed by."""
        target = self.target
        return self.outputs if target is None else (*self.outputs, target.hash, *target.keys)

    @property
    def goes_to_sink(self) -> bool:
        """Whether what it puts out is a result of the query as it is: then its inputs may be pushed, and joined later.

        Not where rows may come after they close: whether one was decided could not be told by its time.
        """
        is_whole = self.target is None and not self.is_counted
        return is_whole and not self.is_unkeyed and not self.is_late


def spillable(stores: Sequence[Store], joins: Sequence[Join]) -> frozenset[str]:
    """The names of the stores whose rows may be pushed: all that they are joined with gives results to a sink."""
    blocked = {entry.store for join in joins if not join.goes_to_sink for entry in join.inputs}
    while more := {
        entry.store
        for join in joins
        if any(entry.store in blocked for entry in join.inputs)
        for entry in join.inputs
        if entry.store not in blocked
    }:
        blocked |= more
    read = {entry.store for join in joins for entry in join.inputs}
    return frozenset(stores[index].name for index in read - blocked if not stores[index].summarized)


def sheddable(stores: Sequence[Store], joins: Sequence[Join]) -> frozenset[str]:
    """The names of the stores whose rows may be dropped: likewise, and no row is decided by them (`JoinKind`)."""
    kept = {
        entry.store for join in joins for place, entry in enumerate(join.inputs) if place not in join.kind.droppable
    }
    return spillable(stores, joins) - {stores[index].name for index in kept}


def closed_stores(stores: Sequence[Store], joins: Sequence[Join]) -> dict[str, frozenset[str]]:
    """The stores of which rows are decided when they close, each with those that its partners are in, and itself."""
    found: dict[str, frozenset[str]] = {}
    for join in joins:
        names = frozenset(stores[entry.store].name for entry in join.inputs)
        for closing in join.closings:
            own = stores[join.inputs[closing.input].store].name
            found[own] = found.get(own, frozenset()) | names
    return found
