"""`braid rollback`, `braid repair`, `braid export`: what to do with a checkpoint when something is wrong. No Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from braidstream.cli import JOBS, app, words
from braidstream.cli.state import parts_in
from braidstream.cli.verify import located
from braidstream.errors import BraidstreamError, InputError
from braidstream.jobs.parts_file import is_part
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.exporting import Exported, export
from braidstream.state.identity import Identity
from braidstream.state.manifest import Manifest
from braidstream.state.rolling_back import RollbackPlan, plan_rollback, roll_back

__all__ = ["export_state", "repair", "rollback"]

_CHECKPOINT = typer.Argument(help="The folder of a checkpoint, or its URI.", show_default=False)


@app.command("rollback", rich_help_panel=JOBS)
def rollback(
    checkpoint: str = _CHECKPOINT,
    to: int = typer.Option(help="The epoch to go back to, one of those that are kept.", show_default=False),
    sinks_restored: bool = typer.Option(
        False, "--sinks-restored", help="Sinks that are no folders were taken back to that epoch, with their marks."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be done, and do nothing."),
) -> None:
    """Go back to an epoch that is still kept: state, Spark's offsets, and results in folders as they were after it.

    The flow must not be running. Results of later epochs are removed from folders of files; other sinks are listed, and
    have to be taken back by hand first (docs/runbook.md). The next start goes on from there, and gives the same answer.

    Examples:

      braid state ck

      braid rollback ck --to 41
    """
    _refuse_part(checkpoint)
    store, identity = _opened(checkpoint)
    store.durable = True
    if dry_run:
        _say_plan(checkpoint, plan_rollback(store, to))
        return
    store.refuse_held()
    _refuse_others(plan_rollback(store, to, checked=False), sinks_restored=sinks_restored)
    store.take()  # and plan only then: a flow that goes on retires the epoch, and delivers more
    try:
        plan = plan_rollback(store, to)
        _refuse_others(plan, sinks_restored=sinks_restored)
        _say_plan(checkpoint, plan)
        removed = roll_back(store, plan, identity.flow)
    finally:
        store.release()
    for path in removed:
        typer.echo(f"removed {path}")
    gone = words.count(len(removed), "file")
    typer.echo(f"{checkpoint} is at epoch {to}; {gone} of results were removed. The next start goes on from there.")


def _refuse_others(plan: RollbackPlan, *, sinks_restored: bool) -> None:
    if plan.others and not sinks_restored:
        listed = "; ".join(plan.others)
        raise InputError(
            f"epochs {plan.epoch + 1} to {plan.last} went to sinks that a rollback cannot take back: {listed}",
            f"sinks that are, with their marks, as after epoch {plan.epoch}",
            "take them back (docs/runbook.md), then say --sinks-restored",
        )


def _say_plan(checkpoint: str, plan: RollbackPlan) -> None:
    n_epochs = words.count(max(plan.last - plan.epoch, 0), "epoch")
    typer.echo(f"{checkpoint}: back from epoch {plan.last} to {plan.epoch}, over {n_epochs}")
    for folder in plan.folders:
        typer.echo(f"  results in {folder}: those of later epochs are removed")
    for epoch in plan.unread:
        typer.echo(f"  the manifest of epoch {epoch} is damaged: results in sinks that it alone names stay there")
    for other in plan.others:
        typer.echo(f"  {other}: has to be taken back by hand")


@app.command("repair", rich_help_panel=JOBS)
def repair(
    checkpoint: str = _CHECKPOINT,
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be done, and do nothing."),
) -> None:
    """Do what is safe to do for a checkpoint: delete orphans, and free the lease of an owner that is dead.

    An orphan is a file that no kept manifest refers to: what an attempt left that was lost. Nothing is deleted when a
    manifest cannot be read or is missing, and nothing while a flow is running. Every start does the same.

    Examples:

      braid repair ck --dry-run

      braid repair ck
    """
    store, _ = _opened(checkpoint)
    store.refuse_held()
    orphans = store.orphans()
    if dry_run:
        for name in orphans:
            typer.echo(f"would delete {store.files.path(name)}")
        return
    store.take()
    try:
        gone = store.repair()
    finally:
        store.release()
    for name in gone:
        typer.echo(f"deleted {store.files.path(name)}")
    typer.echo(f"{checkpoint}: {words.count(len(gone), 'orphan')} deleted; the lease is free")


@app.command("export", rich_help_panel=JOBS)
def export_state(
    checkpoint: str = _CHECKPOINT,
    out: Path = typer.Option(help="The folder to write to; it must be new or empty.", show_default=False),
    epoch: int = typer.Option(None, help="An epoch that is kept; the last one unless given.", show_default=False),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Write the live state of a checkpoint as Parquet, a folder for each store, to look at or to start anew from.

    Each live row is there once, with the columns that queries need, its keys, and its event time as __t. Nothing is
    changed. What is damaged is left out and named, and the exit code is 1.

    docs/runbook.md says how to start anew from it.

    Examples:

      braid export ck --out state

      braid export ck --out state --epoch 41
    """
    store, _ = _opened(checkpoint)
    manifest = _exported(store, epoch)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("exporting", total=None)
        made = export(store.files, manifest, out, lambda done, n: bar.update(task, completed=done, total=n))
    if as_json:
        typer.echo(json.dumps({"epoch": manifest.epoch, "rows": made.rows, "left_out": list(made.damaged)}))
    else:
        _say_exported(checkpoint, manifest.epoch, out, made)
    if made.damaged:
        raise typer.Exit(1)


def _exported(store: Checkpoint, epoch: int | None) -> Manifest:
    """The manifest of an epoch, or of the last one, without its ledger, which says nothing of rows."""
    epochs = store.kept()
    if epoch is not None and epoch not in epochs:
        raise InputError(f"epoch {epoch} is not kept", f"one of {epochs[0]} to {epochs[-1]}", "see braid state")
    return Manifest.read(store.files, epochs[-1] if epoch is None else epoch, whole=False)


def _say_exported(checkpoint: str, epoch: int, out: Path, made: Exported) -> None:
    for name, rows in sorted(made.rows.items()):
        typer.echo(f"{out / name}: {words.count(rows, 'row')}")
    for damage in made.damaged.values():
        typer.echo(f"left out: {damage.wrong}")
    if made.damaged:
        files = words.count(len(made.damaged), "damaged file")
        typer.echo(f"{out} has the state of {checkpoint} after epoch {epoch}, but for the rows of {files}")
        return
    typer.echo(f"{out} has the state of {checkpoint} after epoch {epoch}")


def _refuse_part(checkpoint: str) -> None:
    """Another part of its job has read the results that a rollback would take away."""
    if is_part(located(checkpoint).files):
        wrong = f"{checkpoint} is a part of a job with functions and queries, which cannot be rolled back"
        fix = "start the job with a new checkpoint folder"
        raise InputError(wrong, "the checkpoint of a job of functions alone, or of queries alone", fix)


def _opened(checkpoint: str) -> tuple[Checkpoint, Identity]:
    if parts := parts_in(checkpoint):
        wrong = f"{checkpoint} has the checkpoints of a job's parts: {', '.join(parts)}"
        raise InputError(wrong, "the checkpoint of one of them", f"{checkpoint}/{parts[0]}")
    store = located(checkpoint)
    try:
        identity = store.identity()
    except BraidstreamError:
        raise
    except OSError as error:
        wrong = f"{checkpoint} cannot be read: {str(error).splitlines()[0]}"
        raise InputError(wrong, "the folder of a checkpoint", "check the path") from None
    if identity is None:
        there = "is no checkpoint" if store.files.exists() else "does not exist"
        raise InputError(f"{checkpoint} {there}", "the folder of a checkpoint", "check the path")
    return store, identity
