"""The port between an epoch and an engine: run slots' tasks over envelopes, wake slots, deliver what they staged.

`epoch/` says what happens in which order; where it happens is the business of whoever implements `Cluster`: Spark
(`spark.cluster`), or one process with a dictionary in the place of the exchange (`lab.testing.harness`). An engine has
its own form of envelopes (a DataFrame, a list of batches), which nothing here looks into.

What an implementation promises: every task's reports of the attempt that counts, and of no other, are what `run` gives;
delivering the same files under the same number again leaves the sink as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from braidstream.kernels.measures import AggregatePlan
from braidstream.query import Query
from braidstream.state.manifest import Manifest
from braidstream.state.staging import Staging

__all__ = ["Cluster", "EnvelopesT", "Output", "SlotFunction"]

EnvelopesT = TypeVar("EnvelopesT")
"""An engine's form of envelopes."""

SlotFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What runs in a worker: over the envelopes of some slots."""


@dataclass(frozen=True)
class Output:
    """What goes to one sink: the results of a query, or, without one, the late tuples of a stream."""

    name: str
    schema: pa.Schema
    """Of what slots stage."""
    finished: bool = True
    """Whether that is the result itself, or the engine still has to evaluate predicates and expressions."""
    query: Query | None = None

    @property
    def shown(self) -> str:
        """For messages."""
        return self.name if self.query is not None else f"late {self.name}"


class Cluster(Protocol[EnvelopesT]):
    """What an epoch needs of an engine."""

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

    def staging(self, output: Output) -> Staging:
        """Where slots stage an output."""
        ...

    def deliver(self, output: Output, number: int, files: Sequence[str]) -> None:
        """Hand staged files to the sink of an output, as those of an epoch, or of a step if the number is below 0."""
        ...
