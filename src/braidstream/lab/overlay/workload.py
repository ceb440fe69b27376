"""Tuples and queries of a simulation: the paper's workload (DHTJoin 7), or given ones.

A `Feed` is all tuples in the order of their times; each names its stream and has one value for each column. Times are
whole microseconds, and no two tuples of a generated feed have the same one. Queries are CQL text, read by the engine's
own parser; `paper_queries` writes them. Everything follows from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braidstream.errors import InputError
from braidstream.query.cql import parse
from braidstream.query.model import Query
from braidstream.query.types import Schema

__all__ = ["Feed", "Submission", "Workload", "zipf_shares", "zipf_values"]

SECOND_US = 1_000_000
TIME_COLUMN = "ts"
MOST_TUPLES = 20_000_000
MOST_QUERIES = 10_000


@dataclass(frozen=True)
class Feed:
    """All tuples of a simulation, by row: time, stream and values (None is NULL). `columns` names the values."""

    columns: Mapping[str, tuple[str, ...]]
    times_us: Sequence[int]
    streams: Sequence[str]
    values: Sequence[Sequence[int | None]]

    def __post_init__(self) -> None:
        if any(a > b for a, b in zip(self.times_us, self.times_us[1:], strict=False)):
            raise InputError("the tuples are not in the order of their times", "ascending times", "sort them")

    def __len__(self) -> int:
        return len(self.times_us)

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """The streams as the query parser wants them declared."""
        return {
            stream: Schema.from_ddl(", ".join([f"{TIME_COLUMN} timestamp", *(f"{c} bigint" for c in columns)]))
            for stream, columns in self.columns.items()
        }

    def parse(self, text: str, name: str = "query") -> Query:
        """A query over the feed's streams."""
        return parse(text, self.schemas, name)


@dataclass(frozen=True)
class Submission:
    """A query handed in at a node (its user query peer) at a time."""

    time_us: int
    node: int
    query: Query


@dataclass(frozen=True)
class Workload:
    """The paper's synthetic workload; the defaults are the paper's.

    `rate` is the tuples a second of all streams together: each new tuple chooses its stream uniformly. `joins` is the
    number of joins of a query, `type` DHTJoin's 1 (one attribute) or 2 (a chain over different attributes).
    """

    streams: int = 10
    attributes: int = 10
    zipf: float = 0.9
    domain: int = 1000
    rate: float = 30.0
    window_s: float = 50.0
    duration_s: float = 300.0
    query_every_s: float = 50.0
    joins: int = 2
    type: int = 1

    def __post_init__(self) -> None:
        positive = ("streams", "attributes", "domain", "rate", "window_s", "duration_s", "query_every_s", "joins")
        for name in positive:
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} = {getattr(self, name)}", "a positive number")
        if self.rate * self.duration_s > MOST_TUPLES:
            wrong = f"{self.rate:g} tuples/s for {self.duration_s:g} s"
            raise InputError(wrong, f"at most {MOST_TUPLES:,} tuples", "lower the rate or the duration")
        if self.duration_s / self.query_every_s > MOST_QUERIES:
            wrong = f"a query every {self.query_every_s:g} s for {self.duration_s:g} s"
            raise InputError(wrong, f"at most {MOST_QUERIES:,} queries", "let queries arrive less often")
        if not 0 <= self.zipf < math.inf or self.type not in (1, 2):
            raise InputError(f"zipf = {self.zipf}, type = {self.type}", "zipf 0 or more, type 1 or 2")
        if self.joins >= self.streams:
            raise InputError(f"{self.joins} joins of {self.streams} streams", "fewer joins than streams")
        if self.type == 2 and self.attributes < 2:
            raise InputError("type 2 queries over 1 attribute", "2 attributes or more", "take type 1")

    @property
    def stream_names(self) -> tuple[str, ...]:
        """S0, S1, ..."""
        return tuple(f"S{i}" for i in range(self.streams))

    @property
    def column_names(self) -> tuple[str, ...]:
        """A0, A1, ..."""
        return tuple(f"A{i}" for i in range(self.attributes))

    def feed(self, seed: int) -> Feed:
        """The tuples: a constant rate, uniform streams, Zipf values."""
        rng = np.random.default_rng([seed, 1])
        count = int(self.rate * self.duration_s)
        times = np.floor(np.arange(1, count + 1) * (SECOND_US / self.rate)).astype(np.int64)
        names = self.stream_names
        chosen = [names[i] for i in rng.integers(0, self.streams, count).tolist()]
        values = zipf_values(rng, self.zipf, self.domain, (count, self.attributes))
        return Feed(dict.fromkeys(names, self.column_names), times.tolist(), chosen, values.tolist())

    def submissions(self, feed: Feed, n_nodes: int, seed: int) -> list[Submission]:
        """The queries: one at the start, others after exponential times, each at a random node."""
        rng = np.random.default_rng([seed, 2])
        at = 0.0
        found: list[Submission] = []
        while at < self.duration_s:
            text = self._query_text(rng)
            query = feed.parse(text, f"q{len(found)}")
            found.append(Submission(int(at * SECOND_US), int(rng.integers(n_nodes)), query))
            at += float(rng.exponential(self.query_every_s))
        return found

    def _query_text(self, rng: np.random.Generator) -> str:
        streams = [self.stream_names[i] for i in rng.permutation(self.streams)[: self.joins + 1]]
        if self.type == 1:
            attributes = [self.column_names[int(rng.integers(self.attributes))]] * self.joins
        else:
            attributes = _chain(rng, self.column_names, self.joins)
        window = f"[RANGE {round(self.window_s * 1000)} MILLISECONDS]"
        pairs = zip(streams, streams[1:], attributes, strict=False)
        conditions = " AND ".join(f"{left}.{column} = {right}.{column}" for left, right, column in pairs)
        return f"SELECT * FROM {', '.join(f'{s} {window}' for s in streams)} WHERE {conditions}"


def zipf_values(
    rng: np.random.Generator, exponent: float, domain: int, shape: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Values 1 to `domain` whose probabilities fall with their rank to the power of `exponent`."""
    return 1 + np.searchsorted(np.cumsum(zipf_shares(exponent, domain)), rng.random(shape)).clip(max=domain - 1)


def zipf_shares(exponent: float, domain: int) -> npt.NDArray[np.float64]:
    """How often each of the values 1 to `domain` occurs."""
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def _chain(rng: np.random.Generator, columns: Sequence[str], count: int) -> list[str]:
    """Attributes for a chain of joins, each different from the one before."""
    chosen: list[str] = []
    while len(chosen) < count:
        column = columns[int(rng.integers(len(columns)))]
        if not chosen or column != chosen[-1]:
            chosen.append(column)
    return chosen
