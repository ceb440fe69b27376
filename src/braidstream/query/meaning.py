"""What an expression means is Spark's to say: the one seam through which queries are read and planned.

A flow gives `spark.meaning.SparkMeaning`, which asks Spark's analyzer. Where there is no Spark (a job file that is only
checked, the engine in one process) types are guessed by `query.scope` and `query.types`, and texts are taken as the
parser's library writes them.

Invariant: texts are qualified (`` `R`.`k` ``); `inputs` says which stream each alias is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from braidstream.query.model import Enriched

__all__ = ["Meaning", "Typed", "Types", "Uncomputable"]


class Uncomputable(Exception):
    """Spark refuses an expression; the text says why, in Spark's words."""


@dataclass(frozen=True)
class Typed:
    """The type of an expression: as Spark SQL writes it, and as Arrow stores its values."""

    text: str
    arrow: pa.DataType


class Types(Protocol):
    """The part of it that planning asks: of which types expressions are. Raises `Uncomputable` as `Meaning` does."""

    def type_of(self, inputs: Mapping[str, str], sql: str, *, aggregated: bool = False) -> Typed:
        """The type of an expression; with `aggregated`, of one over aggregates of all rows."""
        ...


class Meaning(Types, Protocol):
    """Spark's view of expressions over the inputs of a query. Raises `Uncomputable` for what Spark refuses."""

    def enrich(self, made: Enriched) -> None:
        """Learn of a stream with tables, before anything is asked about it under its name."""
        ...

    def same(self, inputs: Mapping[str, str], written: str, canonical: str, groups: Sequence[str] | None) -> bool:
        """Whether Spark reads both texts as the same expression; with `groups`, of an aggregate query."""
        ...

    def compared(self, inputs: Mapping[str, str], left: str, right: str) -> tuple[str, str, str]:
        """The types of both sides of an equality, and the type in which Spark compares them."""
        ...

    def has_even_days(self) -> bool:
        """Whether every day has 24 hours in the session's zone."""
        ...

    def is_ansi(self) -> bool:
        """Whether whole numbers that overflow are an error, instead of wrapping around."""
        ...

    def check(self, inputs: Mapping[str, str], expressions: Sequence[str], conditions: Sequence[str]) -> None:
        """Whether Spark can compute all of them, and the conditions are conditions."""
        ...
