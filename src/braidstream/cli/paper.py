"""`braid paper`: run the papers' experiments and check their claims."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from braidstream.cli import app
from braidstream.errors import InputError
from braidstream.papers.registry import Experiment, Outcome, Run, experiments, find

__all__ = ["run_paper"]


@app.command("paper")
def run_paper(
    paper: str = typer.Argument(help="wsj, dhtjoin, gsdm, dcape or shc; or 'list' to see every experiment."),
    figure: str = typer.Argument("", help="The figure, such as fig5."),
    quick: bool = typer.Option(False, "--quick", help="A smaller run of the same experiment."),
    seed: int = typer.Option(1, help="The seed of the random source."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    plot: Path | None = typer.Option(None, help="Write the figure to this PNG file."),
) -> None:
    """Run one experiment and check the paper's claim: exit code 0 when it holds, 1 when it does not."""
    if paper == "list":
        _list()
        return
    if not figure:
        raise InputError(
            "no figure was named", "braid paper PAPER FIGURE", f"'braid paper list' shows {paper}'s figures"
        )
    chosen = find(paper, figure)
    outcome = _run(chosen, quick, seed, silent=as_json)
    if plot is not None:
        from braidstream.papers.plot import draw  # noqa: PLC0415  (matplotlib is an extra)

        draw(chosen, outcome, plot)
    if as_json:
        typer.echo(json.dumps(chosen.as_json(outcome)))
    else:
        _show(chosen, outcome)
    raise typer.Exit(0 if outcome.holds else 1)


def _run(chosen: Experiment, quick: bool, seed: int, silent: bool) -> Outcome:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=silent) as progress:
        task = progress.add_task(f"{chosen.paper} {chosen.figure}", total=1.0)

        def tell(share: float, word: str) -> None:
            progress.update(task, completed=share, description=f"{chosen.paper} {chosen.figure} {word}")

        return chosen.function(Run(quick=quick, seed=seed, progress=tell))


def _list() -> None:
    table = Table("paper", "figure", "how", "claim")
    for found in experiments():
        table.add_row(found.paper, found.figure, found.how, found.claim)
    Console().print(table)


def _show(chosen: Experiment, outcome: Outcome) -> None:
    console = Console()
    table = Table("series", chosen.x_label, chosen.y_label, title=chosen.title)
    for series in outcome.series:
        for x, y in zip(series.x, series.y, strict=True):
            table.add_row(series.label, f"{x:g}" if isinstance(x, (int, float)) else x, f"{y:,.4g}")
    console.print(table)
    for note in outcome.notes:
        console.print(f"note: {note}")
    console.print(f"claim: {chosen.claim}\n{'holds' if outcome.holds else 'DOES NOT HOLD'} ({chosen.how})")
