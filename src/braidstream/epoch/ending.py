"""The end of a finite flow: `final = true` says that the input ends with what is there.

After the last epoch, and after all that is owed, one more epoch is run with nothing that arrived and a watermark behind
all times (`END`): whatever waits for the watermark is put out. Then there is no state left, and the checkpoint is
closed for good.

Invariant: that the end has begun is committed before anything of it is delivered; from then on a start only ends it.
So what a lost attempt delivered is delivered again, the same, under the same number. Cost: that of an epoch.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

from braidstream.epoch.assignment import epoch_task
from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.fold import fold
from braidstream.epoch.phases import Steps, commit, run_phases
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.steps import Epoch, aggregate_composites, deliver, join
from braidstream.errors import InputError
from braidstream.model.faults import reach
from braidstream.model.numbers import EpochNumber
from braidstream.model.values import changed
from braidstream.state.acting import activated
from braidstream.state.manifest import Manifest
from braidstream.state.notes import CLOSED

__all__ = ["ending", "has_begun_to_end", "is_ended", "refuse_ended", "run_end"]

BEGUN, DONE = "begun", CLOSED


def is_ended(manifest: Manifest) -> bool:
    """Whether the checkpoint is closed."""
    return manifest.notes.is_closed


def has_begun_to_end(manifest: Manifest) -> bool:
    """Whether all that may still happen to the checkpoint is its end."""
    return manifest.notes.ended == BEGUN


def refuse_ended(manifest: Manifest, shown: str) -> None:
    """Refuse to start on a checkpoint that is closed."""
    if is_ended(manifest):
        wrong = f"the checkpoint {shown} is closed: the flow ended for good after epoch {manifest.epoch} (final = true)"
        raise InputError(wrong, "a checkpoint that may go on", "start with a new checkpoint folder, without final")


def ending(manifest: Manifest) -> Manifest:
    """The manifest with the intent to end. Pushed state owes nothing by now: all is active, and closes."""
    whole = activated(manifest, ())
    return whole.with_notes(changed(whole.notes, ended=BEGUN))


def run_end(flow: FlowRun[EnvelopesT], before: Manifest) -> tuple[Manifest, EpochProgress]:
    """Do what `ending` intends: put out what waits for the watermark, and close the checkpoint."""
    started, number = time.perf_counter(), EpochNumber(before.epoch + 1)
    reach("epoch-start", epoch=number)
    run = f"{flow.run}:{uuid.uuid4().hex}"
    task = replace(epoch_task(flow, before, number), run=run, merging=None, adoptions=(), ends=True)
    epoch = Epoch(number, flow.cluster.ticks(before.n_slots), before, task, before, started)
    run_phases(PHASES, flow, epoch)
    return epoch.after, flow.told(before, epoch.after, epoch.reports, epoch.seconds)


def close(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """The manifest after the end: no state, and a note that nothing may follow."""
    after, _ = fold(flow, epoch.before, epoch.number, epoch.reports)
    notes = changed(after.notes, ended=DONE, cleaning=None, suspended={})
    epoch.after = replace(after, notes=notes).with_segments(())


def retire_all(flow: FlowRun[EnvelopesT], epoch: Epoch[EnvelopesT]) -> None:
    """Delete all manifests before, and their state: nobody goes on from there."""
    flow.checkpoint.retire(epoch.number + flow.checkpoint.keep - 1)


PHASES: Steps[FlowRun[Any], Epoch[Any]] = {
    "join": (join, aggregate_composites, close),
    "deliver": (deliver,),
    "commit": (commit, retire_all),
}
