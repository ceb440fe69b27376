"""One epoch, from envelopes to the commit, as an ordered tuple of steps.

    join       slots join, store and report; composites of aggregates; what was suspended; what is to be cleaned up
    deliver    staged results to the sinks
    commit     what is decided, the manifest, and what only older manifests refer to is deleted

Each step adds to an `Epoch`: reports, the manifest after them. The manifest before defines everything, now and on
replay. Cost: what the reports and the manifest have; nothing grows with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from braidstream.epoch.assignment import epoch_task
from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.deliveries import deliver_epoch, staged_files, with_failed
from braidstream.epoch.flow_run import FlowRun, Reports
from braidstream.epoch.fold import fold
from braidstream.epoch.idleness import silence
from braidstream.epoch.joining import join_stages, resume_joins, wake_joins
from braidstream.epoch.outlets import Composites
from braidstream.epoch.owed import clean, cleaned
from braidstream.epoch.phases import Steps, commit, retire, run_phases
from braidstream.epoch.progress import EpochProgress, tallies_of
from braidstream.model.faults import reach
from braidstream.model.numbers import EpochNumber
from braidstream.model.reports import slot_reports
from braidstream.model.stores import Stage
from braidstream.model.values import changed
from braidstream.plan.aggregate_plan import composites_of
from braidstream.slot.aggregation import reached_watermark, route_composites
from braidstream.slot.epoch_task import EpochTask, routes_of
from braidstream.slot.task import SlotTask
from braidstream.state.checksums import seal_seconds
from braidstream.state.manifest import Manifest
from braidstream.state.staging import check_staged

__all__ = ["PHASES", "Epoch", "run_epoch"]


@dataclass
class Epoch(Generic[EnvelopesT]):
    """An epoch on its way."""

    number: EpochNumber
    envelopes: EnvelopesT
    before: Manifest
    task: EpochTask
    after: Manifest
    started: float
    reports: Reports = field(default_factory=list)
    spare_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    composites: dict[str, Composites] = field(default_factory=dict)
    sealing_s: float = 0.0
    """What the driver has spent on checksums."""

    @contextmanager
    def sealing(self) -> Iterator[None]:
        """What is spent meanwhile is the driver's."""
        began = seal_seconds()
        yield
        self.sealing_s += seal_seconds() - began


def run_epoch(
    flow: FlowRun[EnvelopesT], envelopes: EnvelopesT, before: Manifest, number: EpochNumber
) -> tuple[Manifest, EpochProgress]:
    """Run all steps; the manifest that was committed, and what there is to say of the epoch."""
    started = time.perf_counter()
    reach("epoch-start", epoch=number)
    flow.checkpoint.sync_offsets(number)
    epoch = Epoch(number, envelopes, before, epoch_task(flow, before, number), before, started)
    run_phases(PHASES, flow, epoch)
    return epoch.after, flow.told(
        before, epoch.after, epoch.reports, epoch.seconds, epoch.spare_s, sealing_s=epoch.sealing_s
    )


def join(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Slots join what arrived, store it and report."""
    epoch.reports += join_stages(flow, epoch.envelopes, epoch.task, epoch.before)


def aggregate_composites(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Aggregate the composites that slots staged, in a job of its own, since the engine computes their expressions."""
    plans = [plan for plan in flow.plan.aggregates if plan.enumeration is not None]
    if not plans:
        return
    cluster, task, before = flow.cluster, epoch.task, epoch.before
    root = flow.checkpoint.root
    with epoch.sealing():
        staged = {p.query: check_staged(root, staged_files(composites_of(p), epoch.reports)) for p in plans}
    schemas = {plan.query: flow.plan.schema_of(composites_of(plan)) for plan in plans}
    parts = [cluster.ticks(before.n_slots)]
    for plan in (plan for plan in plans if staged[plan.query]):
        route = route_composites(plan, task.manifest, routes_of)
        parts.append(cluster.composites(flow.queries[plan.query], plan, staged[plan.query], schemas[plan.query], route))
    seen = tallies_of(slot_reports(epoch.reports)).values()
    reached = reached_watermark(before.newest, seen, task.delays_us, before.watermark, task.idle)
    last = SlotTask(replace(task, reached=reached), Stage.COMPOSITES)
    epoch.reports += flow.ran(cluster.together(parts), [last], before)
    epoch.composites = {p.query: Composites(staged[p.query], schemas[p.query], p) for p in plans}


def wake_silent(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Where no slot ran, an aggregate that has a row in every epoch has none in this one: wake them."""
    given = {query for report in epoch.reports for query in report.results}
    if any(plan.emits_always and plan.query not in given for plan in flow.plan.aggregates):
        epoch.reports += wake_joins(flow, epoch.task, epoch.before)


def resume(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Joins that were suspended and whose streams spoke again produce what they have not."""
    epoch.after, resumed = fold(flow, epoch.before, epoch.number, epoch.reports)
    if not resumed:
        return
    reached, _ = fold(flow, epoch.before, epoch.number, epoch.reports, expires=False)
    reached = reached.write(flow.checkpoint.files, pending=True)
    epoch.reports += resume_joins(flow, epoch.task, resumed, epoch.before)
    epoch.after, _ = fold(flow, replace(epoch.before, scratch=reached.scratch), epoch.number, epoch.reports)


def clean_up(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """What the manifest before asks for: results between the generations of some groups."""
    if cleaning := epoch.before.notes.cleaning:
        epoch.after, reports = clean(flow, epoch.after, cleaning)
        epoch.reports += reports
        before = replace(epoch.before, scratch=epoch.after.scratch)
        epoch.after = cleaned(flow, fold(flow, before, epoch.number, epoch.reports)[0], cleaning)


def deliver(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Results and late tuples to their sinks."""
    reach("after-join", epoch=epoch.number)
    with epoch.sealing():
        delivered = deliver_epoch(flow, epoch.number, epoch.reports, epoch.composites)
    epoch.after = replace(epoch.after, delivered=delivered)
    for name in (name for one in epoch.composites.values() for name in one.names):
        flow.checkpoint.files.delete(name)
    epoch.after = with_failed(epoch.after, flow.outlets.failed())
    reach("after-results", epoch=epoch.number)


def note_silence(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Which streams the watermark does not wait for from the next epoch on."""
    if not flow.patience.idle_us and not epoch.before.notes.silence.heard:
        return
    spoke = {stream for stream, tally in tallies_of(slot_reports(epoch.reports)).items() if tally.newest is not None}
    known = epoch.before.notes.silence
    noted = silence(known, flow.patience, spoke, flow.patience.clock())
    epoch.after = epoch.after.with_notes(changed(epoch.after.notes, silence=noted))


def decide(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """What the controller, the grids and the budget ask for, in the manifest that is about to be committed."""
    spiller = flow.decider.spiller
    epoch.spare_s = 0.0 if spiller is None else spiller.spare_s(time.perf_counter() - epoch.started)
    epoch.after = flow.decider.decide(epoch.after, flow.plan.stores, epoch.reports, epoch.spare_s)
    reach("spill", epoch=epoch.number)


def sealed_commit(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """The commit; what it writes has checksums."""
    with epoch.sealing():
        commit(flow, epoch)


PHASES: Steps[FlowRun[Any], Epoch[Any]] = {
    "join": (join, aggregate_composites, wake_silent, resume, clean_up),
    "deliver": (deliver,),
    "commit": (note_silence, decide, sealed_commit, retire),
}
"""All that an epoch does, in order; progress says how long each phase took."""
