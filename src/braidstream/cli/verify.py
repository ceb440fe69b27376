"""`braid verify`: all files of a checkpoint against their checksums. It only reads, and needs no Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from braidstream.cli import JOBS, app, words
from braidstream.cli.state import parts_in
from braidstream.errors import InputError
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.verifying import Found, verify

__all__ = ["located", "verify_checkpoint"]


@app.command("verify", rich_help_panel=JOBS)
def verify_checkpoint(
    checkpoint: str = typer.Argument(help="The folder of a checkpoint, or its URI.", show_default=False),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Compare every file of a checkpoint with what was written: manifests, sections, segments, Spark's log.

    Of a job with functions and queries, the same of each of its parts.

    Nothing is changed; a flow may be running. Exit code 1 when something is damaged, with the names of the files.
    docs/runbook.md says what to do then.

    Examples:

      braid verify ck

      braid verify s3://bucket/ck --json
    """
    folders = {name: f"{checkpoint}/{name}" for name in parts_in(checkpoint)}
    found = {folder: _found(folder, shown=not as_json) for folder in folders.values() or [checkpoint]}
    if as_json and folders:
        typer.echo(json.dumps({"parts": {name: _plain(found[folder]) for name, folder in folders.items()}}))
    elif as_json:
        typer.echo(json.dumps(_plain(found[checkpoint])))
    else:
        for folder, one in found.items():
            _show(folder, one)
    if any(one.damaged for one in found.values()):
        raise typer.Exit(1)


def _found(checkpoint: str, *, shown: bool) -> Found:
    try:
        return _with_bar(located(checkpoint), shown=shown)
    except OSError as error:
        wrong = f"{checkpoint} cannot be read: {str(error).splitlines()[0]}"
        raise InputError(wrong, "the folder of a checkpoint", "check the path") from None


def located(checkpoint: str) -> Checkpoint:
    """The checkpoint that a command names."""
    return Checkpoint(checkpoint if "://" in checkpoint else str(Path(checkpoint).absolute()))


def _with_bar(checkpoint: Checkpoint, *, shown: bool) -> Found:
    columns = TextColumn("verifying"), BarColumn(), DownloadColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not (shown and sys.stderr.isatty())) as bar:
        task = bar.add_task("verifying", total=None)
        return verify(checkpoint, lambda done, total: bar.update(task, completed=done, total=total))


def _plain(found: Found) -> dict[str, object]:
    return {
        "files": found.files,
        "bytes": found.bytes,
        "unsealed": found.unsealed,
        "epochs": found.epochs,
        "damaged": [{"path": one.path, "what": one.what} for one in found.damaged],
    }


def _show(checkpoint: str, found: Found) -> None:
    epochs = [epoch for epoch in found.epochs if epoch >= 0]  # before the first there is a manifest, too
    kept = f", epochs {epochs[0]} to {epochs[-1]}" if epochs else ""
    looked = f"{words.count(found.files, 'file')}, {words.size(found.bytes)} of state{kept}"
    if found.unsealed:
        typer.echo(f"note: {words.count(found.unsealed, 'segment')} of an earlier version have no checksum: sizes only")
    if not found.damaged:
        typer.echo(f"{checkpoint} is whole: {looked}")
        return
    for one in found.damaged:
        typer.echo(f"damaged: {one}")
    typer.echo(f"{checkpoint} is damaged: {words.count(len(found.damaged), 'file')} of {looked}")
