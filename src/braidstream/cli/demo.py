"""`braid demo`: from nothing to a verified answer."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from braidstream.cli import TRY, app, words
from braidstream.errors import InputError
from braidstream.pictures import check_target

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress
    from braidstream.lab.showcase import Demo

__all__ = ["run_demo"]


@app.command("demo", rich_help_panel=TRY)
def run_demo(
    minutes: float = typer.Option(20.0, help="How many minutes of event time to join.", min=0.1, max=600.0),
    seed: int = typer.Option(1, help="The seed of the random source."),
    folder: Path = typer.Option(Path("build/demo"), help="Where streams, job file, checkpoint and results go."),
    picture: Path = typer.Option(Path("build/demo.png"), help="The file of the picture."),
    master: str | None = typer.Option(None, help="Where Spark runs. [default: local[*]]"),
    verbose: bool = typer.Option(False, "--verbose", help="Show what Spark itself writes."),
) -> None:
    """Join two made streams on local Spark and verify the answer against a batch join.

    The last line is 'verified: N matches, identical to the batch join'; exit code 1 if they are not identical.

    Examples:

      braid demo

      braid demo --minutes 60 --folder build/long
    """
    _require("duckdb", "dev")
    _require("matplotlib", "plot")
    from braidstream.lab.showcase import Demo, draw  # noqa: PLC0415

    check_target(picture)
    demo = Demo(folder, minutes, seed)
    _prepare(demo)
    epochs, code = _join(demo, master, verbose=verbose)
    if code:
        raise typer.Exit(code)
    draw(epochs, picture)
    typer.echo(f"picture: {picture}")
    typer.echo(f"look further: braid explain {demo.job}; braid state {folder / 'checkpoint'}")
    began = time.monotonic()
    difference = demo.verify()
    typer.echo(f"batch join by DuckDB, compared row by row: {words.length(time.monotonic() - began)}")
    if not difference.identical:
        typer.echo(f"NOT verified: the batch join is the right one of these\n{difference}")
        raise typer.Exit(1)
    typer.echo(f"verified: {difference.left_rows} matches, identical to the batch join")


def _require(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise InputError(f"the demo needs {package}", "", f"pip install 'braidstream[{extra}]'")


def _prepare(demo: Demo) -> None:
    from braidstream.lab.showcase import RATE, WINDOW_MINUTES  # noqa: PLC0415

    typer.echo("two streams as in WSJ: Poisson arrivals, b-model keys (b = 0.7, ten million), tuples of 64 bytes;")
    typer.echo(f"{RATE} tuples/s each, windows of {WINDOW_MINUTES} minutes, {demo.minutes:g} minutes of event time")
    began = time.monotonic()
    made = demo.prepare()
    rows = words.number(sum(stream.rows for stream in made))
    typer.echo(f"{rows} rows written below {demo.folder} in {words.length(time.monotonic() - began)}")


def _join(demo: Demo, master: str | None, *, verbose: bool) -> tuple[list[EpochProgress], int]:
    from braidstream import jobs  # noqa: PLC0415
    from braidstream.cli.run import run_loaded  # noqa: PLC0415

    job = jobs.read(demo.job)
    jobs.check(job)
    seen: list[EpochProgress] = []
    code = run_loaded(job, dict(job.spark), master, as_json=False, quiet=False, verbose=verbose, seen=seen)
    return seen, code
