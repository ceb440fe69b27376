"""`braid entry`: the file by which spark-submit runs this command on a cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from braidstream.cli import JOBS, app

__all__ = ["show_entry"]


@app.command("entry", rich_help_panel=JOBS)
def show_entry() -> None:
    """Print the path of the file that spark-submit needs to run braid.

    Example:

      spark-submit --master yarn "$(braid entry)" run job.toml
    """
    typer.echo(Path(__file__).with_name("submit") / "braid_submit.py")
