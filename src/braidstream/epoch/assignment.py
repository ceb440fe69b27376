"""What the slots of an epoch are asked to do: join, store, merge by which rules, and the adoptions that are due.

All of it follows from the plan and the manifest before the epoch, so a replay asks for the same.

Cost: O(plan), and O(parts of a section) for each key whose grid is young.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun
from braidstream.plan.aggregate_plan import composites_of
from braidstream.slot.epoch_task import EpochTask
from braidstream.slot.section_writing import Merging
from braidstream.state import adoption
from braidstream.state.checkpoint import STAGED
from braidstream.state.compaction import Rules
from braidstream.state.manifest import Manifest
from braidstream.state.staging import Staging

__all__ = ["adoptions_of", "epoch_task", "suspended_joins"]


def epoch_task(flow: FlowRun[EnvelopesT], before: Manifest, epoch: int) -> EpochTask:
    """What every slot's task of an epoch is given."""
    root, plan, outlets = flow.checkpoint.root, flow.plan, flow.outlets
    staging = {query: outlets.staging(flow.result_of(query)) for query in flow.queries}
    staging |= {composites_of(p): Staging(root, STAGED) for p in plan.aggregates if p.enumeration is not None}
    adoptions = adoptions_of(flow, before, epoch)
    return EpochTask(
        root,
        flow.run,
        epoch,
        plan.stores,
        plan.branches,
        plan.joins,
        staging,
        {stream: outlets.staging(flow.late_of(stream)) for stream in flow.late},
        _merging(flow, before, adoptions),
        suspended=frozenset(suspended_joins(before)),
        aggregates=plan.aggregates,
        delays_us=flow.delays_us,
        idle=before.notes.silence.idle,
        adoptions=adoptions,
        tracks=flow.decider.regridder is not None and before.n_slots > 1,
        shed=frozenset() if flow.decider.spiller is None else flow.decider.spiller.shed_stores,
        durable=flow.checkpoint.durable,
        piece_bytes=flow.piece_bytes,
        handover=flow.cluster.handover,
    )


def adoptions_of(flow: FlowRun[EnvelopesT], before: Manifest, epoch: int) -> tuple[adoption.Adoption, ...]:
    """What cells take over from other layouts in an epoch."""
    return adoption.plan(before, flow.merge_spans, epoch, _barriers(flow, before))


def suspended_joins(manifest: Manifest) -> dict[str, int]:
    """The suspended joins, each with the last epoch whose tuples it has joined."""
    return dict(manifest.notes.suspended)


def _merging(flow: FlowRun[EnvelopesT], before: Manifest, adoptions: Sequence[adoption.Adoption]) -> Merging:
    """How slots merge their segments."""
    spiller = flow.decider.spiller
    barriers, busy = frozenset(_barriers(flow, before)), adoption.sources(adoptions)
    rules = Rules(flow.merge_spans, barriers, busy, flow.piece_bytes)
    if spiller is None:
        return Merging(rules)
    return Merging(rules, spiller.overflow.piece_bytes, spiller.shed_windows)


def _barriers(flow: FlowRun[EnvelopesT], before: Manifest) -> set[int]:
    """Epochs that somebody still tells apart: see `compaction.plan`."""
    submitted = {join.since for join in flow.plan.joins if join.since >= 0}
    return submitted | set(suspended_joins(before).values())
