"""The port between a function's epoch and an engine: run the stages of a plan, each on nodes of its own number.

The counterpart of `epoch.cluster.Cluster`, which runs every stage on the slots of a manifest. Rows come in an engine's
own form, which nothing here looks into; what stages send each other are envelopes (`NODE_ENVELOPE`).

What an implementation promises: the first stage runs once an epoch, over all its rows (or paths of files) in the order
of arrival, every other one once for each of its nodes that is sent anything; and what `run_nodes` gives is what the
attempts that count have given, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

from braidstream.epoch.cluster import SlotFunction

__all__ = ["NODE_ENVELOPE", "NodeCluster", "NodeStage", "RowsT"]

RowsT = TypeVar("RowsT")
"""An engine's form of rows."""
RowsT_contra = TypeVar("RowsT_contra", contravariant=True)

NODE_ENVELOPE = pa.schema([("slot", pa.int32()), ("head", pa.string()), ("blob", pa.binary())])
"""The node at the next stage; whom it is for and what it is, empty for a report; a batch of windows, or the report."""


@dataclass(frozen=True)
class NodeStage:
    """What runs in the workers of one stage."""

    run: SlotFunction
    n_nodes: int


class NodeCluster(Protocol[RowsT_contra]):
    """What an epoch of a function needs of an engine."""

    def run_nodes(self, rows: RowsT_contra, stages: Sequence[NodeStage]) -> list[bytes]:
        """Run the first stage over all rows, and each other one over what the stage before sends; the last's blobs."""
        ...
