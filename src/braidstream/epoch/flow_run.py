"""What stays the same over the epochs of one start of a flow: its plan, its checkpoint, its cluster, its deciders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

import pyarrow as pa

from braidstream.epoch.cluster import Cluster, EnvelopesT, SlotFunction
from braidstream.epoch.decider import Decider
from braidstream.epoch.idleness import Patience
from braidstream.epoch.outlets import Outlet, Outlets
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.recorder import NO_RECORDER, Recorder, Told, decided_in
from braidstream.model.reports import Report, decoded
from braidstream.plan.planner import Plan
from braidstream.query import Query
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["FlowRun", "Reports"]

Reports = list[Report]


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
    decider: Decider = field(default_factory=Decider)
    patience: Patience = field(default_factory=Patience)
    """With streams that say nothing: after which wall time the watermark goes on without them."""
    is_final: bool = False
    """Whether the input ends with what is there, so that the checkpoint is closed (`epoch.ending`)."""
    recorder: Recorder = NO_RECORDER
    merge_spans: Mapping[str, int | None] = field(init=False)
    """For each store the time that one segment may span (None: any)."""

    def __post_init__(self) -> None:
        spans = {store.name: store.merge_span_us for store in self.plan.stores}
        object.__setattr__(self, "merge_spans", spans)

    @property
    def piece_bytes(self) -> int | None:
        """What a task may hold of the state at once; None: it does not matter."""
        return None if self.decider.spiller is None else self.decider.spiller.overflow.piece_bytes

    def result_of(self, query: str) -> Outlet:
        """The outlet of a query."""
        return Outlet(query, self.plan.schema_of(query), self.plan.finished[query], self.queries[query])

    def late_of(self, stream: str) -> Outlet:
        """The outlet of a stream's late tuples."""
        return Outlet(stream, self.late[stream], is_late=True)

    def told(
        self, before: Manifest, after: Manifest, reports: Reports, seconds: Mapping[str, float], spare_s: float = 0.0,
        step: int = 0, sealing_s: float = 0.0,
    ) -> EpochProgress:  # fmt: skip
        """What there is to say of an epoch that is committed, and the same for the record."""
        progress = EpochProgress.of(before, after, reports, seconds, spare_s, step, sealing_s)
        spiller, epoch = self.decider.spiller, after.epoch
        budget = None if spiller is None else spiller.overflow.memory_bytes
        decisions = [] if step else decided_in(self.decider.decisions, epoch)
        self.recorder.epoch(Told(before, after, reports, progress, decisions, self.delays_us, budget))
        return progress

    def woken(self, run: SlotFunction, before: Manifest) -> Reports:
        """Wake every slot to run a function, and gather the reports."""
        return self.ran(self.cluster.ticks(before.n_slots), [run], before)

    def ran(self, envelopes: EnvelopesT, stages: Sequence[SlotFunction], before: Manifest) -> Reports:
        """Run functions over envelopes, stage by stage, and gather the reports; what a slot could not do is raised."""
        return decoded(self.cluster.run(envelopes, stages, before))
