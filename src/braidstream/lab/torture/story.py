"""A story of a flow: its streams, queries, options and all that befalls it, as one value.

A seed draws one (`drawing`), a player plays it (`playing`, `spark_playing`), what it should have given is DuckDB's
(`reference`), and one that ends wrong is made smaller (`shrinking`). It is JSON, so that it can be kept.

Invariant: two plays of one story do the same to the engine. Times are whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa

from braidstream.model.values import Value

__all__ = ["SECOND", "Ask", "Bound", "Budget", "Event", "Input", "Options", "Row", "Story", "TimeWindow"]

SECOND = 1_000_000
Row = tuple[int | str | None, int | None, int, int]
"""k, j, v, ts."""


class Input(Value, frozen=True):
    """A stream in a query. Without a window it has none written, or, `is_unbounded`, one that never ends."""

    alias: str
    stream: str
    window_us: int | None
    is_unbounded: bool = True


class Bound(Value, frozen=True):
    """How far the second is after the first, from and to, both included."""

    first: str
    second: str
    low_us: int
    high_us: int


class TimeWindow(Value, frozen=True):
    """The windows of time that results are counted in, by the time of the last input."""

    size_us: int
    slide_us: int
    offset_us: int = 0


class Ask(Value, frozen=True):
    """A query. Predicates are SQL that Spark and DuckDB read alike; it is there from epoch `begin` to before `end`."""

    name: str
    kind: str
    inputs: tuple[Input, ...]
    equalities: tuple[tuple[str, str], ...]
    predicates: tuple[str, ...] = ()
    """Between streams and on one, in WHERE; of an outer join in ON."""
    where: str | None = None
    """Of an outer join: on its results."""
    bounds: tuple[Bound, ...] = ()
    group_by: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    counted: TimeWindow | None = None
    begin: int = 0
    end: int | None = None
    n_left: int = 1
    """Of LEFT JOINs on top: how many of the last inputs are joined so."""

    @property
    def is_permanent(self) -> bool:
        """Whether it is there from the first epoch to the last."""
        return self.begin == 0 and self.end is None


class Event(Value, frozen=True):
    """Something that happens before or in an epoch. What `n`, `seed`, `point` and `slots` mean depends on it.

    crash       dies at a fault point of the epoch, or of the end
    kill        dies before (`seed` 0) or after (1) the n-th change of a file
    error       the n-th change of a file fails
    full        from the n-th on, files cannot be written until the next start
    restart     a new process, with other slots
    move        a new process, with groups split, merged and moved at random
    budget      a new process, with another budget
    zombie      a new process, while the old one still believes that it owns the checkpoint, and tries
    """

    epoch: int
    what: str
    point: str = ""
    n: int = 0
    seed: int = 0
    slots: int | None = None


class Budget(Value, frozen=True):
    """What a slot may hold, and how it pushes."""

    memory: int
    share: float = 0.3
    idle_after: int = 100
    piece: int = 200
    has_time: bool = False
    restless: int | None = None


class Options(Value, frozen=True):
    """How the flow runs."""

    slots: int = 1
    groups: int = 8
    n_tasks: int = 2
    keep: int = 10
    controller: str = ""
    """restless, default, or none."""
    grids: str = ""
    """restless, default, or none."""
    budget: Budget | None = None
    silence_us: int | None = None
    n_hashes: int = 0
    """How many hashes there are; 0: as they come."""
    biclique: int | None = None
    fan: int = 0
    """How many segments are merged at once; 0: as it is."""
    shaken: bool = False
    """Whether tasks are lost, retried, run twice and in any order."""
    final: bool = True
    takes_late: bool = False
    idle: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Streams that the watermark does not wait for once they have said nothing for so many epochs."""


class Story(Value, frozen=True):
    """All of it."""

    seed: int
    key: str
    """The type of `k`: long or string."""
    delays_us: dict[str, int]
    epochs: tuple[dict[str, list[Row]], ...]
    asks: tuple[Ask, ...]
    options: Options = Options()
    events: tuple[Event, ...] = ()

    @property
    def streams(self) -> list[str]:
        """Their names."""
        return list(self.delays_us)

    @property
    def schema(self) -> pa.Schema:
        """That of each stream."""
        key = pa.string() if self.key == "string" else pa.int64()
        return pa.schema([("k", key), ("j", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])

    def tables(self, number: int) -> dict[str, pa.Table]:
        """The rows of an epoch."""
        return {name: self.table(self.epochs[number].get(name, [])) for name in self.streams}

    def table(self, rows: list[Row]) -> pa.Table:
        """Rows as a table."""
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in self.schema]
        return pa.table(
            [pa.array(c, pa.int64() if f.name == "ts" else f.type) for c, f in zip(columns, self.schema, strict=True)],
            self.schema.names,
        ).cast(self.schema)

    def during(self, number: int) -> Iterator[Event]:
        """What happens in an epoch; the end counts as the epoch after the last."""
        return (event for event in self.events if event.epoch == number)

    @property
    def n_rows(self) -> int:
        """Of all streams."""
        return sum(len(rows) for epoch in self.epochs for rows in epoch.values())
