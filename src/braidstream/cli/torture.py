"""`braid torture`: random flows that are killed, starved, moved and changed, compared with DuckDB."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from braidstream.cli import RESEARCH, app
from braidstream.errors import InputError

if TYPE_CHECKING:
    from braidstream.lab.torture.record import Failure, Record

__all__ = ["torture"]


@app.command("torture", rich_help_panel=RESEARCH)
def torture(
    runs: int = typer.Option(100, min=1, help="How many random flows."),
    seed: int = typer.Option(0, min=0, help="The seed of the first; the others have the next ones."),
    on_spark: bool = typer.Option(
        False, "--spark", help="With processes on Spark that are killed, half a minute each."
    ),
    shrink: float = typer.Option(60.0, min=0, help="Seconds to make one that ends wrong smaller."),
    keep: Path | None = typer.Option(None, help="Keep the smallest of those that end wrong in this folder, as JSON."),
    minutes: float = typer.Option(
        0.0, min=0, help="Instead: one flow on Spark for so long, with a fault every minute."
    ),
    epoch: float = typer.Option(2.0, min=0.5, help="With --minutes: an epoch every so many seconds."),
    plot: Path | None = typer.Option(None, help="With --minutes: draw memory and files over time to this file."),
    as_json: bool = typer.Option(False, "--json", help="Print what was met, and what went wrong, as JSON."),
) -> None:
    """Run random flows through crashes and compare their results with DuckDB's.

    Streams, queries of every kind, options, slots and budgets are random; so is what befalls them: processes die at any
    point, tasks are lost, files cannot be written, disks are full, groups move, queries come and go. Exit code 0: all
    results are DuckDB's. 1: some are not, and the seed is shown that does it again; with --minutes also when memory
    or files have grown.

    Example:

      braid torture --runs 100 --seed 7
    """
    if minutes or plot is not None:
        _soak(minutes, seed, epoch, plot, as_json=as_json)
    from braidstream.lab.torture.playing import play  # noqa: PLC0415
    from braidstream.lab.torture.record import torture as run  # noqa: PLC0415

    player = play
    if on_spark:
        from braidstream.lab.torture.spark_playing import play_on_spark  # noqa: PLC0415

        player = play_on_spark
    with _bar(runs, silent=as_json) as step:
        record = run(
            range(seed, seed + runs), player, lambda s, outcome, _: step(s, outcome.wrong), 0 if on_spark else shrink
        )
    if keep is not None:
        _keep(record, keep)
    if as_json:
        typer.echo(json.dumps(record.as_json()))
    else:
        _show(record, on_spark=on_spark)
    raise typer.Exit(1 if record.failures else 0)


def _soak(minutes: float, seed: int, epoch_s: float, plot: Path | None, *, as_json: bool) -> NoReturn:
    """One flow for a long time; exit code 1 when its results are not DuckDB's, or when something has grown."""
    from braidstream.lab.torture.soak import soak  # noqa: PLC0415
    from braidstream.lab.torture.soak_picture import draw_soak  # noqa: PLC0415
    from braidstream.pictures import check_target  # noqa: PLC0415

    if not minutes:
        raise InputError("--plot without --minutes", "a long run to draw", "braid torture --minutes 15 --plot soak.png")
    if plot is not None:
        check_target(plot)
    folder = Path(tempfile.mkdtemp(prefix="braidstream-soak-"))
    console = Console(stderr=True, highlight=False)
    try:
        seen = soak(folder, minutes, seed, console.print, epoch_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if plot is not None:
        draw_soak(seen, plot)
    if as_json:
        typer.echo(json.dumps(seen.as_json()))
    else:
        typer.echo(f"{seen.rows:,} rows, {seen.results:,} results compared, {seen.epochs:,} epochs")
        paused = f", stopped from outside for {sum(s for _, s in seen.pauses):,.0f} s" if seen.pauses else ""
        typer.echo(
            f"{len(seen.faults)} faults in {seen.minutes:g} minutes{paused}; the last third beside the middle one:"
        )
        lives = seen.growth_of_lives()
        for name, ratio in seen.growth().items():
            within = f" (within a driver's life at most {max(life[name] for life in lives):.2f})" if lives else ""
            typer.echo(f"  {name:<12} {ratio:.2f}{within}")
        for told in seen.grown():
            typer.echo(f"grown {told}")
        typer.echo(f"wrong: {seen.wrong}" if seen.wrong else "all results are DuckDB's")
    raise typer.Exit(1 if seen.wrong or seen.grown() else 0)


@contextmanager
def _bar(runs: int, *, silent: bool) -> Iterator[Callable[[int, str], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=silent, transient=True) as progress:
        task, wrong = progress.add_task("torture", total=runs), 0

        def step(seed: int, told: str) -> None:
            nonlocal wrong
            wrong += bool(told)
            if told:
                progress.console.print(f"seed {seed} ended wrong", highlight=False)
            progress.update(task, advance=1, description=f"torture, {wrong} wrong" if wrong else "torture")

        yield step


def _keep(record: Record, folder: Path) -> None:
    import msgspec  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for failure in record.failures:
        (folder / f"torture-{failure.seed}.json").write_bytes(msgspec.json.encode(failure.story))


def _show(record: Record, *, on_spark: bool) -> None:
    groups: dict[str, Counter[str]] = {}
    for name, n in record.met.items():
        group, _, what = name.partition(": ")
        groups.setdefault(group, Counter())[what or name] += n
    for group, found in sorted(groups.items()):
        typer.echo(f"{group}: " + ", ".join(f"{what} {n:,}" for what, n in sorted(found.items())))
    for failure in record.failures:
        _show_failure(failure, on_spark=on_spark)
    slowest = f"the slowest, seed {record.slowest[1]}, took {record.slowest[0]:.1f} s"
    typer.echo(f"{record.runs:,} runs in {record.seconds:,.0f} s, {len(record.failures)} differences; {slowest}")


def _show_failure(failure: Failure, *, on_spark: bool) -> None:
    from braidstream.lab.torture.record import described  # noqa: PLC0415

    typer.echo(
        f"\nseed {failure.seed} ended wrong; again: braid torture --seed {failure.seed} --runs 1"
        + (" --spark" * on_spark)
    )
    typer.echo(failure.wrong)
    typer.echo("the smallest that was found:")
    typer.echo(described(failure.story))
    if failure.smallest_wrong != failure.wrong:
        typer.echo(failure.smallest_wrong)
