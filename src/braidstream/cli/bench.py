"""`braid bench`: measure Braidstream beside Spark's built-in join."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from braidstream.cli import TRY, app
from braidstream.errors import InputError, nearest

__all__ = ["bench"]

_WIDE = 150
"""Columns of the table where there is no terminal to fit it to."""


@app.command("bench", rich_help_panel=TRY)
def bench(
    workload: list[str] = typer.Option([], "--workload", "-w", help="Only this workload; may be given again."),
    system: list[str] = typer.Option([], "--system", "-s", help="Only this system; may be given again."),
    settings: list[str] = typer.Option([], "--settings", help="default, default-4g or parallel-8g; all by default."),
    rounds: int = typer.Option(1, min=1, help="How often every system runs, in turns; figures are over all rounds."),
    output: Path = typer.Option(Path("build/bench.json"), help="Where the measurements are written."),
    data: Path | None = typer.Option(None, help="Keep the generated streams here, and use them again."),
    as_json: bool = typer.Option(False, "--json", help="Print the measurements as JSON."),
) -> None:
    """Run the benchmark: the same data through Spark's built-in stream-stream join and through Braidstream."""
    from braidstream.lab.bench import CASES, run_bench  # noqa: PLC0415
    from braidstream.lab.bench.measure import SETTINGS, Measurement  # noqa: PLC0415
    from braidstream.lab.bench.measure import as_json as to_plain  # noqa: PLC0415

    systems = sorted({name for case in CASES.values() for name in case.systems})
    for given, known in ((workload, CASES), (settings, SETTINGS), (system, systems)):
        for name in given:
            if name not in known:
                raise InputError(f"unknown name {name!r}", f"one of {', '.join(known)}", nearest(name, known))
    taking_part = {name for case in workload or CASES for name in CASES[case].systems}
    if system and not taking_part & set(system):
        raise InputError(f"no chosen workload runs {', '.join(system)}", f"one of {', '.join(sorted(taking_part))}")
    if output.is_dir() or (output.parent.exists() and not output.parent.is_dir()):
        raise InputError(f"the measurements cannot be written to {output}", "a file in a folder", "choose --output")
    console = Console(stderr=True)
    folder = data or Path(tempfile.mkdtemp(prefix="braidstream-bench-"))

    def tell(entry: Measurement) -> None:
        console.print(_line(entry))

    try:
        measured = run_bench(workload or list(CASES), settings or list(SETTINGS), folder, tell, rounds, system)
    finally:
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(to_plain(measured), indent=1))
    if as_json:
        typer.echo(json.dumps(to_plain(measured)))
        return
    table = Table(
        "workload",
        "system",
        "settings",
        "rows/s",
        "median epoch",
        "of the best round",
        "ratio to Spark in memory",
        "peak MB",
        "stored rows",
        "status",
    )
    for entry in measured:
        table.add_row(entry.workload, entry.system, entry.settings, *_cells(entry), entry.status)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    typer.echo(f"written to {output}")


def _cells(entry: object) -> list[str]:
    forms = {
        "rows_per_s": "{:,.0f}",
        "epoch_ms": "{:,.0f} ms",
        "best_ms": "{:,.0f} ms",
        "ratio_to_spark_memory": "{:.2f}",
        "peak_mb": "{:,.0f}",
        "stored_rows": "{:,}",
    }
    return ["-" if (value := getattr(entry, name)) is None else form.format(value) for name, form in forms.items()]


def _line(entry: object) -> str:
    name = f"{getattr(entry, 'workload')} {getattr(entry, 'system')} ({getattr(entry, 'settings')})"  # noqa: B009
    return f"{name}: {', '.join(_cells(entry))} {getattr(entry, 'status')} {getattr(entry, 'note')}"  # noqa: B009
