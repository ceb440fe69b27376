"""`braid verify`: all files of a checkpoint against their checksums. It only reads, and needs no Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from braidstream.cli import JOBS, app, words
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

    Nothing is changed; a flow may be running. Exit code 1 when something is damaged, with the names of the files.
    docs/runbook.md says what to do then.

    Examples:

      braid verify ck

      braid verify s3://bucket/ck --json
    """
    try:
        found = _with_bar(located(checkpoint), shown=not as_json)
    except OSError as error:
        wrong = f"{checkpoint} cannot be read: {str(error).splitlines()[0]}"
        raise InputError(wrong, "the folder of a checkpoint", "check the path") from None
    if as_json:
        typer.echo(json.dumps(_plain(found)))
    else:
        _show(checkpoint, found)
    if found.damaged:
        raise typer.Exit(1)


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
