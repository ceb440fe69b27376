"""What a flow owes: results between the generations of pushed state, and what suspended joins have not produced yet.

`control.overflow` says what is cleaned up, `epoch.spiller` writes that into manifests, slots do `slot.cleaning`. Within
an epoch `clean` is one of its steps. Outside of epochs (a finite flow ends, a query is withdrawn, a start finds state
pushed that may not be) what is owed is delivered in steps of their own: Spark counts epochs, so these may not; each
replaces the manifest of the last epoch, and its results are delivered under a number of its own.

Invariant: the manifest with the intent is committed before any result of a step is delivered, and a step's number is
never used again. So what a lost attempt delivered is delivered again, the same, under the same number.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from braidstream.epoch.assignment import epoch_task
from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.deliveries import deliver_step, together, with_failed
from braidstream.epoch.flow_run import FlowRun, Reports
from braidstream.epoch.fold import fold
from braidstream.epoch.joining import resume_joins
from braidstream.epoch.progress import EpochProgress
from braidstream.model.faults import reach
from braidstream.model.values import changed
from braidstream.slot.cleaning import CleanTask, clean_task
from braidstream.state import generations
from braidstream.state.acting import intent, resumption
from braidstream.state.manifest import Manifest
from braidstream.state.notes import Cleaning

__all__ = ["clean", "cleaned", "intended", "is_in_step", "owes", "run_step"]


def owes(flow: FlowRun[EnvelopesT], manifest: Manifest, others: Collection[str]) -> bool:
    """Whether joins that are not among `others` miss results: of pushed state, or because they are suspended."""
    left = [join for join in flow.plan.joins if join.query not in others]
    if is_in_step(manifest) or {join.query for join in left} & manifest.notes.suspended.keys():
        return True
    read = {flow.plan.stores[entry.store].name for join in left for entry in join.inputs}
    return bool(read & generations.pushed_stores(manifest))


def is_in_step(manifest: Manifest) -> bool:
    """Whether a step was begun and not committed."""
    cleaning = manifest.notes.cleaning
    return cleaning is not None and cleaning.step > 0


def intended(flow: FlowRun[EnvelopesT], manifest: Manifest) -> Manifest | None:
    """The manifest with the next step; None when nothing is owed.

    Suspended joins first, for what they produce may be owed by pushed state.
    """
    step = manifest.notes.steps + 1
    if suspended := manifest.notes.suspended:
        return resumption(manifest, suspended, step)
    groups = [] if flow.decider.spiller is None else flow.decider.spiller.incomplete(manifest)
    return intent(manifest, groups, step) if groups else None


def run_step(flow: FlowRun[EnvelopesT], before: Manifest) -> tuple[Manifest, EpochProgress]:
    """Do what a manifest intends: produce, deliver, commit."""
    started, cleaning = time.perf_counter(), before.notes.cleaning
    assert cleaning is not None
    step, resumed = cleaning.step, cleaning.resumed
    before, reports = _resumed(flow, before, resumed) if resumed else clean(flow, before, cleaning)
    joined = time.perf_counter()
    placed = deliver_step(flow, step, reports)
    reach("clean-up-results", epoch=before.epoch)
    delivered = time.perf_counter()
    after = with_failed(cleaned(flow, fold(flow, before, before.epoch, reports)[0], cleaning), flow.outlets.failed())
    # Nothing arrives in a step, so nothing is suspended by it: joins would take turns, and never be settled.
    still = {join: since for join, since in before.notes.suspended.items() if join not in resumed}
    after = after.with_notes(changed(after.notes, steps=step, suspended=still))
    after = flow.checkpoint.commit(replace(after, delivered=together([after.delivered, placed])))
    reach("clean-up-end", epoch=before.epoch)
    ended = time.perf_counter()
    seconds = {"join": joined - started, "deliver": delivered - joined, "commit": ended - delivered}
    return after, flow.told(before, after, reports, {**seconds, "total": ended - started}, step=step)


def clean(flow: FlowRun[EnvelopesT], reached: Manifest, cleaning: Cleaning) -> tuple[Manifest, Reports]:
    """Run an intended clean-up on groups as the manifest reached so far has them, as a job of its own.

    Gives that manifest, as it was shown to the slots, and their reports.
    """
    assert flow.decider.spiller is not None
    reach("clean-up-start", epoch=reached.epoch)
    reached = reached.write(flow.checkpoint.files, pending=True)
    joins = flow.plan.cleaned_joins
    task = CleanTask(
        flow.checkpoint.root,
        f"{flow.run}:{uuid.uuid4().hex}",
        reached.epoch,
        flow.plan.stores,
        joins,
        {join.query: flow.outlets.staging(flow.result_of(join.query)) for join in joins},
        frozenset(cleaning.groups),
        flow.decider.spiller.overflow.piece_bytes,
        cleaning.only_some,
        flow.checkpoint.durable,
    )
    return reached, flow.woken(clean_task(task), reached)


def cleaned(flow: FlowRun[EnvelopesT], reached: Manifest, cleaning: Cleaning) -> Manifest:
    """The manifest after a clean-up."""
    if flow.decider.spiller is None:
        return intent(reached, (), 0)
    known = reached.directory.by_id
    some = {group: numbers for group, numbers in cleaning.only_some.items() if group in known}
    return flow.decider.spiller.cleaned(reached, [group for group in cleaning.groups if group in known], some)


def _resumed(flow: FlowRun[EnvelopesT], reached: Manifest, joins: Mapping[str, int]) -> tuple[Manifest, Reports]:
    """What suspended joins have not produced until a manifest."""
    reached = reached.write(flow.checkpoint.files, pending=True)
    return reached, resume_joins(flow, epoch_task(flow, reached, reached.epoch), joins, reached)
