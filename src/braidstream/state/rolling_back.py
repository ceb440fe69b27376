"""Back to an epoch that is still kept: state, Spark's log, and results in folders, as they were after it.

A rollback is one act for whoever starts a flow: its intent is written first (`rollback.json`), and until it is done a
start refuses the checkpoint. What dies half-way is done again from the beginning; each step may be repeated. Then, once
the disk has the intent:

1. results of later epochs and steps are removed from folders: the marks first, so that no reader takes a part for all.
   Before that the gates of others in these folders go: whoever was stopped there changes nothing when it wakes up.
   In object stores the marks of all later epochs are barred, those that are not there too
2. the roots of later epochs, the last one first: from then on the state is that of the epoch
3. Spark's log is cut: commits, then offsets, then what its file sources have listed since
4. the intent

The files that only later manifests refer to are orphans now, and are swept.

Spark's file source forgets which files it has seen since, and lists them again. Where its log was compacted since, the
list cannot be cut without rewriting it; then those files come in the first epoch, all at once. Epochs are numbered anew
from the one after, and may hold other files than before: results are the same, for they do not depend on where epochs
end, unless rows were late.

Invariant: nothing that the epoch's manifest refers to is touched. Cost: the listings of the folders, and a pass
over the epoch's state, which is checked before anything is given up for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from braidstream.errors import DamagedState, InputError
from braidstream.model.declarations import Target
from braidstream.state import syncing
from braidstream.state.begun_rollback import INTENT, begun_rollback, intended
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest, manifest_name, old_name
from braidstream.state.seals import check_seal
from braidstream.state.whole_epochs import MARKS, STAGING, bar_mark, begin_owner, remove_after

__all__ = ["RollbackPlan", "plan_rollback", "roll_back"]

_OWNED = "_braidstream.json"
_PLAIN = ("noop", "memory")


@dataclass(frozen=True)
class RollbackPlan:
    """What a rollback is going to do."""

    epoch: int
    last: int
    steps: int
    """Of clean-up, until the epoch."""
    folders: tuple[str, ...]
    """Of results: files of later epochs are removed."""
    others: tuple[str, ...]
    """Sinks that have results of later epochs, or may have, and that only their owner can take back."""
    last_step: int = 0
    """The last one that was committed."""
    unread: tuple[int, ...] = ()
    """Later epochs whose manifests are damaged: sinks that they alone name are not known."""


def plan_rollback(checkpoint: Checkpoint, epoch: int, *, checked: bool = True) -> RollbackPlan:
    """What is to be done; refused when the epoch is not kept, or what it needs is damaged. Nothing is changed.

    An epoch that Spark has logged is later even if it has no manifest: it may have been delivered before it died.
    Only under the lease does it stay true: `roll_back` refuses a plan that something was committed after.
    """
    files = checkpoint.files
    files.direct = True
    known = Manifest.epochs(files)
    if not known:
        raise DamagedState(files.path("manifests"), "no manifest is left")
    _refuse_unkept(epoch, known)
    _refuse_later(files, epoch, known)
    try:
        target = Manifest.read(files, epoch)
        if checked:
            _check(checkpoint, target)
            _check_before(files, epoch, known)
    except DamagedState:
        _refuse_unkept(epoch, Manifest.epochs(files))  # a flow has gone on, and what is missing was retired
        raise
    after = {one: _readable(files, one) for one in known if one > epoch}
    later = [one for one in after.values() if one is not None]
    folders = dict.fromkeys(folder for one in (target, *later) for folder in one.notes.folders)
    others = dict.fromkeys(name for one in (target, *later) for name in _not_folders(one))
    last = _last(checkpoint, known)
    others_then = tuple(others) if last > epoch else ()
    unread = tuple(one for one, manifest in after.items() if manifest is None)
    last_step = max(one.notes.steps for one in (target, *later))
    return RollbackPlan(epoch, last, target.notes.steps, tuple(folders), others_then, last_step, unread)


def _refuse_unkept(epoch: int, known: Sequence[int]) -> None:
    if epoch not in known or epoch < 0:
        kept = [one for one in known if one >= 0]
        said = f"one of those that are kept: {kept[0]} to {kept[-1]}" if kept else "an epoch; none is kept"
        raise InputError(f"epoch {epoch} is not kept", said, "see braid state")


def _refuse_later(files: Files, epoch: int, known: Sequence[int]) -> None:
    """Refuse an epoch whose results a rollback to an earlier one, which was not finished, may have removed."""
    begun = begun_rollback(files)
    to = intended(files, "epoch")
    oldest = min(one for one in known if one >= 0) if to is None else to
    if begun is not None and epoch > oldest:
        raise InputError(
            f"{files.path(INTENT)}: {begun}, and results of epochs after {oldest} may be gone",
            f"epoch {oldest}, or one before",
            f"finish it: braid rollback {files.root} --to {oldest}",
        )


def _check(checkpoint: Checkpoint, target: Manifest) -> None:
    """Refuse an epoch from which no start could go on: what came later would be given up for nothing."""
    checkpoint.verify(target)
    checked = set[str]()
    for entry in target.sections.entries().values():
        sums = entry.section.checksums()
        for name, size in entry.section.sizes().items():
            if name not in checked:
                check_seal(checkpoint.files, name, sums[name], size)
            checked.add(name)
    checkpoint.log.check_epoch(target.epoch)
    checkpoint.log.check_logged(target.epoch)


def _check_before(files: Files, epoch: int, known: Sequence[int]) -> None:
    """A start reads all manifests that are kept, and one that is damaged would still be there."""
    for one in known:
        if one < epoch and _readable(files, one) is None and one in Manifest.epochs(files):
            Manifest.read(files, one)


def _readable(files: Files, epoch: int) -> Manifest | None:
    """A manifest; None if it is damaged: of a later epoch, going back is the way out of that."""
    try:
        return Manifest.read(files, epoch)
    except DamagedState:
        return None


def _refuse_stale(checkpoint: Checkpoint, plan: RollbackPlan) -> None:
    """Refuse a plan that was made before the lease was taken, if anything was committed, begun or retired since."""
    known = Manifest.epochs(checkpoint.files)
    if plan.epoch not in known or _last(checkpoint, known) != plan.last:
        raise InputError(
            f"{checkpoint.root} has gone on since the rollback to epoch {plan.epoch} was planned",
            "a checkpoint that is as it was",
            "see braid state, and do it again",
        )


def _last(checkpoint: Checkpoint, known: Sequence[int]) -> int:
    """The last epoch that was committed, or begun, or was there before a rollback that was not finished."""
    begun = max(checkpoint.log.last(log) for log in ("offsets", "commits"))
    return max(known[-1], begun, intended(checkpoint.files, "last") or -1)


def roll_back(checkpoint: Checkpoint, plan: RollbackPlan, flow: str) -> list[str]:
    """Do it, under the lease; gives the files of results that were removed."""
    files = checkpoint.files
    checkpoint.fence()
    _refuse_stale(checkpoint, plan)
    _hold(files, plan.epoch)
    files.replace(INTENT, json.dumps({"epoch": plan.epoch, "last": plan.last}).encode())
    checkpoint.sync_names()
    removed, touched = [], []
    for folder in plan.folders:
        own = Files(folder)
        if own.exists(_OWNED):
            _take_over(own, checkpoint)
            touched += [own.path(""), own.path(MARKS)] if own.has_renames else []
            _bar_marks(own, plan)
            removed += [own.path(name) for name in remove_after(own, flow, plan.epoch, plan.steps)]
    for later in sorted((one for one in Manifest.epochs(files) if one > plan.epoch), reverse=True):
        for name in (manifest_name(later), old_name(later)):
            files.delete(name)
    cut = checkpoint.log.cut(plan.epoch)
    checkpoint.sync_roots()
    if files.has_renames:
        syncing.sync_folders([*(files.path(folder) for folder in cut), *touched])
    files.delete(INTENT)
    checkpoint.sync_names()
    checkpoint.sweep()
    checkpoint.check_offsets(plan.epoch)
    return removed


def _hold(files: Files, epoch: int) -> None:
    """Without a gate: who had the checkpoint before cannot retire the epoch; refused where he has done it.

    `LeaseLost` where another rollback was quicker, which has written the same epoch anew.
    """
    if files.objects is None:
        return
    files.expect(manifest_name(epoch))
    try:
        Manifest.read(files, epoch).write(files)
    except (DamagedState, FileExistsError):
        files.check()
        _refuse_unkept(epoch, Manifest.epochs(files))
        raise


def _take_over(results: Files, checkpoint: Checkpoint) -> None:
    """Let all that is done to a folder of results pass through a gate of ours, and take away those of others.

    So a flow that was stopped in the middle of a delivery puts nothing there when it wakes up, and a rollback that was
    stopped takes nothing away.
    """
    if results.objects is not None:
        results.check = checkpoint.fence
        begin_owner(results, f"{STAGING}/{checkpoint.owner}")
    if not results.has_renames:
        return
    results.gate = f"{STAGING}/{checkpoint.owner}"
    results.make(results.gate)
    checkpoint.fence()  # who takes the checkpoint from here on finds the gate
    for name in results.folders(STAGING):
        if name != checkpoint.owner:
            results.delete_folder(f"{STAGING}/{name}")


def _bar_marks(results: Files, plan: RollbackPlan) -> None:
    """In an object store: nobody who delivers a later epoch or step marks it any more, however late he does it."""
    if results.objects is not None:
        later = [*range(plan.epoch + 1, plan.last + 1), *(-one for one in range(plan.steps + 1, plan.last_step + 2))]
        for number in later:
            bar_mark(results, number)


def _not_folders(manifest: Manifest) -> Iterable[str]:
    """The sinks of a manifest's queries that are no folders of files, or not known, in words."""
    notes = manifest.notes
    if manifest.ledger is None:
        yield "the sinks of epochs that 0.1.0 wrote, which did not note them"
    if notes.plan is not None:
        yield "the sinks of functions"
    for name, one in (notes.declared or {}).items():
        for what, sink in (("", one.sink), ("", one.late), (", bad rows", one.bad)):
            if sink is not None and _is_elsewhere(sink):
                yield f"query {name}{what}: {sink}"
    for name, sink in (notes.bad or {}).items():
        if _is_elsewhere(sink):
            yield f"stream {name}, bad rows: {sink}"
    for name, entry in notes.submitted.items():
        if _is_elsewhere(sink := Target(entry.to, entry.path)):
            yield f"query {name}: {sink}"


def _is_elsewhere(sink: Target) -> bool:
    return sink.to not in _PLAIN and not sink.is_folder
