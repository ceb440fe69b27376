"""What tasks need to know of streams and queries: plain values, made once by the driver and sent with the tasks.

A *store* is one stream indexed on one key: it holds the columns and rows that any query joining on that key needs, for
the longest window of those queries. Queries over the same stream and key share a store; a stream has one store for each
distinct key (DHTJoin 3.2). A *branch* routes one stream to its stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from braidstream.kernels.rows import HASH, KEY, MASK, TIME

__all__ = ["Branch", "Join", "JoinInput", "OutputColumn", "Store"]


@dataclass(frozen=True)
class Store:
    """One stream indexed on one key. `name` is stable over restarts; `index` is its place in the flow."""

    index: int
    name: str
    stream: str
    key: tuple[str, ...]
    """Spark SQL expressions over the stream's columns, already cast to the type they are compared in."""
    compared: tuple[str, ...]
    """The same keys in a form that can be compared for equality column by column."""
    verified: bool
    """Whether hashes may collide, so that the keys are stored and compared."""
    filters: tuple[str, ...]
    """The distinct filters of its queries: bit i of a row's mask says whether it passes filter i."""
    takes_all: bool
    """Whether some query has no filter; otherwise rows that pass no filter are skipped."""
    columns: tuple[str, ...]
    window_us: int | None

    @property
    def masked(self) -> bool:
        """Whether queries filter the stream differently, so that each stored row carries the filters it passes."""
        return bool(self.filters) and (self.takes_all or len(self.filters) > 1)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The engine's columns, in front of the stream's."""
        keys = tuple(f"{KEY}{i}" for i in range(len(self.key))) if self.verified else ()
        return (HASH, TIME, *keys, *((MASK,) if self.masked else ()))

    def branch_column(self, own: str) -> str:
        """The name that one of the engine's columns of this store has in the branch, where a stream has many stores."""
        return own if own == TIME else f"{own}@{self.index}"


@dataclass(frozen=True)
class Branch:
    """The routing of one stream to its stores."""

    index: int
    stream: str
    stores: tuple[Store, ...]
    late_columns: tuple[str, ...]
    """The columns of the late output; empty when late tuples are only counted."""


@dataclass(frozen=True)
class JoinInput:
    """One input of a query: a store, its window there, and the bit of its filter (None: every row passes)."""

    store: int
    window_us: int | None
    bit: int | None


@dataclass(frozen=True)
class OutputColumn:
    """One output column: a column of one input."""

    name: str
    input: int
    column: str


@dataclass(frozen=True)
class Join:
    """A query as the kernel sees it: its inputs and the columns it puts out, with their Arrow schema."""

    query: str
    inputs: tuple[JoinInput, ...]
    outputs: tuple[OutputColumn, ...]
    schema: pa.Schema
