"""`braid tune`: training mode. Measures candidate plans of a job's function on a sample of its stream, and chooses one.

Nothing is written, and the job's checkpoint is not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braidstream.functions.tuning import StreamTable

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from braidstream.cli import TRY, app
from braidstream.cli.words import count, size
from braidstream.errors import InputError

if TYPE_CHECKING:
    from braidstream.functions.training import Trained

__all__ = ["tune_job"]

_PHASES = ("partition", "compute", "combine")


@app.command("tune", rich_help_panel=TRY)
def tune_job(
    job: Path = typer.Argument(help=r"The job file (TOML), with a \[functions.NAME] table.", show_default=False),
    function: str = typer.Option("", help="Which of the job's functions, if it has several."),
    nodes: int = typer.Option(0, help="The nodes at hand.", show_default="this machine's cores"),
    windows: int = typer.Option(240, help="How many windows the sample has."),
    model: str = typer.Option(
        "stages", help="stages: an epoch's phases follow each other, as on Spark; pipeline: all at once, as in GSDM."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Measure plans for a job's function on a sample of its stream, and choose the best.

    Starts with 2 partitions and grows while compute is the most loaded phase (GSDM 5), for window distribute and, where
    the job names split and combine functions, window split; flat and as a tree.

    Example:

      braid tune job.toml --nodes 6
    """
    from braidstream.functions.tuning import tune  # noqa: PLC0415

    if nodes < 0 or windows < 1:
        raise InputError(f"--nodes {nodes} --windows {windows}", "1 or more of each", "--nodes 4 --windows 240")
    with Console(stderr=True).status("measuring") as status:

        def tell(plan: str) -> None:
            status.update(f"measuring {plan}")

        name, trained = tune(job, function, windows, nodes or os.cpu_count() or 1, model, _first_rows, tell)
    if as_json:
        found = {"function": name, "nodes": trained.nodes, "model": model, "best": trained.best.plan.strategy}
        typer.echo(json.dumps({**found, "plans": trained.table()}))
    else:
        _show(name, trained)


def _first_rows(stream: StreamTable, path: str | None, n_rows: int) -> Any:
    """The beginning of a stream that is not Parquet files, through Spark, as a batch."""
    from braidstream.cli.quiet_session import spark_session  # noqa: PLC0415

    options = {key: str(value) for key, value in stream.get("options", {}).items()}
    with spark_session("tune", {}, master=None, verbose=False) as spark:
        reader = spark.read.format(stream["format"]).options(**options)
        reader = reader.schema(stream["schema"]) if "schema" in stream else reader
        frame = reader.load() if path is None else reader.load(path)
        return frame.orderBy(stream["time"]).limit(n_rows).toArrow()


def _show(name: str, trained: Trained) -> None:
    columns = ("plan", "nodes", *_PHASES, "most loaded", "stages/s", "pipeline/s")
    table = Table(
        *columns, title=f"{name}: time of the most loaded node and bytes sent, for a window; windows a second"
    )
    for row in trained.table():
        is_best = row["plan"] == trained.best.plan.strategy
        table.add_row(
            f"{row['plan']} *" if is_best else row["plan"],
            str(row["nodes"]),
            *(f"{row[f'{phase}_us']:,.0f} µs, {size(row[f'{phase}_bytes'])}" for phase in _PHASES),
            row["most_loaded"],
            f"{row['stages_per_s']:,.0f}",
            f"{row['pipeline_per_s']:,.0f}",
        )
    console = Console()
    console.print(table)
    best = trained.best
    rate = best.phases.throughput(trained.model, trained.nodes)
    console.print(
        f"best for {count(trained.nodes, 'node')} ({trained.model}): {best.plan.strategy}, {rate:,.0f} windows/s"
    )
    console.print(best.plan.describe())
