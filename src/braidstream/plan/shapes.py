"""What planning knows of a stream: its columns as Arrow stores them, and what its files can tell.

The border makes it of a declared stream (`spark/arrow_types.py: shape_of`); a test writes it down. Cost: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["StreamShape"]


@dataclass(frozen=True)
class StreamShape:
    """A stream as the planner sees it."""

    name: str
    schema: pa.Schema
    """Its columns in the types in which they are stored; where the stream is Spark's, fields know Spark's types."""
    time: str
    delay: str = "0 s"
    """How late a tuple may come, in words."""
    idle: str | None = None
    """After how long a silence the watermark goes on without it, in words."""
    folder: str | None = None
    """Where its Parquet files are, if it is files that this machine can look at."""
    readable: frozenset[str] | None = None
    """The columns that a routing task can read from its files by itself; None where all rows come from Spark."""
