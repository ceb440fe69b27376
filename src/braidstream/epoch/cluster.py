"""The port between an epoch and an engine: run slots' tasks over envelopes, wake slots, evaluate expressions.

`epoch/` says what happens in which order; where it happens is the business of whoever implements `Cluster`: Spark
(`spark.cluster`), or one process with a dictionary in the place of the exchange (`lab.testing.harness`). An engine has
its own form of envelopes (a DataFrame, a list of batches), which nothing here looks into.

What an implementation promises: every task's reports of the attempt that counts, and of no other, are what `run` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from braidstream.kernels.measures import AggregatePlan
from braidstream.query import Query
from braidstream.state.manifest import Manifest

__all__ = ["Cluster", "EnvelopesT", "SlotFunction"]

EnvelopesT = TypeVar("EnvelopesT")
"""An engine's form of envelopes."""

SlotFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What runs in a worker: over the envelopes of some slots."""


class Cluster(Protocol[EnvelopesT]):
    """What an epoch needs of an engine."""

    @property
    def handover(self) -> str | None:
        """A folder in which tasks may leave what others are to map (`slot.handover`); None where there is none."""
        ...

    def run(self, envelopes: EnvelopesT, stages: Sequence[SlotFunction], before: Manifest) -> list[bytes]:
        """Bring envelopes to their slots and run a function there, for each stage in turn; what the last gives.

        The manifest says how many slots there are, and where each ran last.
        """
        ...

    def ticks(self, n_slots: int) -> EnvelopesT:
        """Envelopes that only wake every slot."""
        ...

    def composites(
        self, query: Query, plan: AggregatePlan, files: Sequence[str], schema: pa.Schema, route: SlotFunction
    ) -> EnvelopesT:
        """Evaluate what an aggregate query asks of the composites in staged files, and route the rows to slots."""
        ...

    def together(self, parts: Sequence[EnvelopesT]) -> EnvelopesT:
        """All envelopes of several."""
        ...
