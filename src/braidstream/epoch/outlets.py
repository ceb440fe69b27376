"""The port between an epoch and its sinks: where slots stage an outlet, and who delivers what they staged.

What an implementation promises: delivering the same files under the same number again leaves the sink as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from braidstream.kernels.measures import AggregatePlan
from braidstream.model.reports import StagedFile
from braidstream.model.snapshots import Placed
from braidstream.query import Query
from braidstream.state.staging import Staging

__all__ = ["Composites", "Outlet", "Outlets"]


@dataclass(frozen=True)
class Composites:
    """What slots have staged of composites that were aggregated in the same epoch."""

    names: Sequence[str]
    """Checked, in the checkpoint."""
    schema: pa.Schema
    plan: AggregatePlan


@dataclass(frozen=True)
class Outlet:
    """What goes to one sink: the results of a query or of a function, or the late tuples of a stream."""

    name: str
    schema: pa.Schema
    """Of what slots stage."""
    finished: bool = True
    """Whether that is the result itself, or the engine still has to evaluate predicates and expressions."""
    query: Query | None = None
    is_late: bool = False
    composites: Composites | None = None
    """Of an aggregate query that enumerates: some of them may not be aggregated, because an expression fails."""

    @property
    def shown(self) -> str:
        """For messages."""
        return f"late {self.name}" if self.is_late else self.name


class Outlets(Protocol):
    """The sinks of one start of a flow."""

    def staging(self, outlet: Outlet) -> Staging:
        """Where slots stage an outlet."""
        ...

    def deliver(self, outlet: Outlet, number: int, files: Sequence[StagedFile]) -> Mapping[str, tuple[Placed, ...]]:
        """Hand staged files to the sink of an outlet, as those of an epoch, or of a step if the number is below 0.

        Gives the files that a folder of results has of them, by the folder.
        """
        ...

    def failed(self) -> Mapping[str, int]:
        """Joined rows of which an expression failed since it was last asked, by the streams that they are of."""
        ...
