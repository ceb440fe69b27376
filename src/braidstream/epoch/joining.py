"""Jobs that join: over the envelopes of an epoch, or, by waking all slots, what suspended joins left out."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun, Reports
from braidstream.slot.epoch_task import EpochTask
from braidstream.slot.task import SlotTask
from braidstream.state.manifest import Manifest

__all__ = ["join_stages", "resume_joins", "wake_joins"]


def join_stages(flow: FlowRun[EnvelopesT], envelopes: EnvelopesT, task: EpochTask, before: Manifest) -> Reports:
    """Run the slots' task over envelopes, stage after stage."""
    last = flow.plan.n_stages - 1
    stages = [SlotTask(task, stage, stage == last) for stage in range(last + 1)]
    return flow.ran(envelopes, stages, before)


def wake_joins(flow: FlowRun[EnvelopesT], task: EpochTask, before: Manifest) -> Reports:
    """The same with nothing that arrived, and without the merges and adoptions of an epoch, which are done once."""
    return join_stages(flow, flow.cluster.ticks(before.n_slots), replace(task, merging=None, adoptions=()), before)


def resume_joins(flow: FlowRun[EnvelopesT], task: EpochTask, joins: Mapping[str, int], before: Manifest) -> Reports:
    """What suspended joins have not produced until the pending manifest, each since an epoch."""
    deferred = replace(task, suspended=frozenset(), deferred=joins, pending=uuid.uuid4().hex)
    return wake_joins(flow, deferred, before)
