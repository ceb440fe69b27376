"""What stays the same over the epochs of one start of a flow: its plan, its checkpoint, its cluster, its deciders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol

import pyarrow as pa

from braidstream.epoch.cluster import Cluster, EnvelopesT, SlotFunction
from braidstream.epoch.outlets import Outlet, Outlets
from braidstream.epoch.reorganizer import Reorganizer
from braidstream.epoch.spiller import Spiller
from braidstream.model.instructions import Decision
from braidstream.model.reports import Report, SlotReport, decoded
from braidstream.model.stores import Store
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["FlowRun", "Regridder", "Reports"]

Reports = list[Report]


class Regridder(Protocol):
    """Gives heavy keys their grids."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """What was decided recently."""
        ...

    def regridded(self, manifest: Manifest, stores: Sequence[Store], reports: Sequence[SlotReport]) -> Manifest:
        """The manifest to commit, after the reports of its epoch."""
        ...


@dataclass(frozen=True)
class FlowRun(Generic[EnvelopesT]):
    """One start of a flow."""

    checkpoint: Checkpoint
    run: str
    """Unique for each start."""
    plan: Plan
    queries: Mapping[str, Query]
    delays_us: Mapping[str, int]
    """Of the streams that define the watermark."""
    late: Mapping[str, pa.Schema]
    """The streams whose late tuples are asked for, with their columns."""
    cluster: Cluster[EnvelopesT]
    outlets: Outlets
    silence_us: int | None = None
    """How long a stream may be silent, in event time, before work that waits for it is suspended."""
    reorganizer: Reorganizer | None = None
    """None: groups stay where they are."""
    regridder: Regridder | None = None
    """None: no key is given a grid."""
    spiller: Spiller | None = None
    """None: all state is active, however much there is."""
    merge_spans: Mapping[str, int | None] = field(init=False)
    """For each store the time that one segment may span (None: any)."""

    def __post_init__(self) -> None:
        spans = {store.name: store.merge_span_us for store in self.plan.stores}
        object.__setattr__(self, "merge_spans", spans)

    @property
    def piece_bytes(self) -> int | None:
        """What a task may hold of the state at once; None: it does not matter."""
        return None if self.spiller is None else self.spiller.overflow.piece_bytes

    @property
    def decisions(self) -> list[Decision]:
        """What was decided recently: the controller's, refused ones too, and changes of grids."""
        made = [
            *(() if self.reorganizer is None else self.reorganizer.decisions),
            *(() if self.regridder is None else self.regridder.decisions),
        ]
        return sorted(made, key=lambda decision: decision.epoch)

    def result_of(self, query: str) -> Outlet:
        """The outlet of a query."""
        return Outlet(query, self.plan.schema_of(query), self.plan.finished[query], self.queries[query])

    def late_of(self, stream: str) -> Outlet:
        """The outlet of a stream's late tuples."""
        return Outlet(stream, self.late[stream])

    def woken(self, run: SlotFunction, before: Manifest) -> Reports:
        """Wake every slot to run a function, and gather the reports."""
        return self.ran(self.cluster.ticks(before.n_slots), [run], before)

    def ran(self, envelopes: EnvelopesT, stages: Sequence[SlotFunction], before: Manifest) -> Reports:
        """Run functions over envelopes, stage by stage, and gather the reports; what a slot could not do is raised."""
        return decoded(self.cluster.run(envelopes, stages, before))
