"""`braid bench`: measure Braidstream beside Spark's built-in join."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from braidstream.cli import TRY, app
from braidstream.errors import InputError, nearest

if TYPE_CHECKING:
    from braidstream.lab.bench.measure import Measurement

__all__ = ["bench"]

_WIDE = 150
"""Columns of the table where there is no terminal to fit it to."""


_KINDS = ("joins", "scale", "peers", "nexmark")
_SLOTS = (2, 10, 100, 1000)
_SLOTS_ON_SPARK = (2, 16, 64, 256)


@app.command("bench", rich_help_panel=TRY)
def bench(
    kind: str = typer.Argument(
        "joins",
        help="joins: beside Spark's; scale: what metadata costs at many slots; peers: beside other systems; "
        "nexmark: of these, Nexmark's queries.",
    ),
    workload: list[str] = typer.Option([], "--workload", "-w", help="Only this workload; may be given again."),
    system: list[str] = typer.Option([], "--system", "-s", help="Only this system; may be given again."),
    settings: list[str] = typer.Option([], "--settings", help="default, default-4g or parallel-8g; all by default."),
    rounds: int = typer.Option(1, min=1, help="How often every system runs, in turns; figures are over all rounds."),
    slots: list[int] = typer.Option([], min=1, help="Of scale: so many slots; may be given again."),
    on_spark: bool = typer.Option(True, "--spark/--no-spark", help="Of scale: also epochs on local Spark."),
    output: Path | None = typer.Option(
        None, help="Where the measurements are written; build/bench.json by default, of another kind build/KIND.json."
    ),
    data: Path | None = typer.Option(None, help="Keep the generated streams here, and use them again."),
    plot: Path | None = typer.Option(None, help="Of scale and peers: draw a picture to this file."),
    environment: Path = typer.Option(Path(".venv-peers"), help="Of peers: what tools/peers.sh has made."),
    checked: bool = typer.Option(True, "--check/--no-check", help="Of peers: compare answers with DuckDB's first."),
    timed: bool = typer.Option(True, "--time/--no-time", help="Of peers: measure."),
    add: bool = typer.Option(False, "--add", help="Of peers: keep what the output has of other systems and workloads."),
    as_json: bool = typer.Option(False, "--json", help="Print the measurements as JSON."),
) -> None:
    """Run the benchmark: the same data through Spark's built-in stream-stream join and through Braidstream.

    With `scale`: what an epoch's metadata costs routing tasks, slots and the driver, at 2 to 1,000 slots. With `peers`
    and `nexmark`: the same questions to other systems, which `tools/peers.sh` installs beside (`make bench-peers`).
    """
    if kind not in _KINDS:
        raise InputError(f"unknown benchmark {kind!r}", f"one of {', '.join(_KINDS)}", nearest(kind, _KINDS))
    output = output or Path(f"build/{'bench' if kind == 'joins' else kind}.json")
    if output.is_dir() or (output.parent.exists() and not output.parent.is_dir()):
        raise InputError(f"the measurements cannot be written to {output}", "a file in a folder", "choose --output")
    if kind == "scale":
        _scale(slots, output, plot, on_spark=on_spark, as_json=as_json)
        return
    if kind in ("peers", "nexmark"):
        try:
            from braidstream.cli.bench_peers import Chosen, bench_peers  # noqa: PLC0415
        except ImportError as error:
            raise InputError(
                f"`braid bench {kind}` needs {error.name}", "the extra 'dev'", "run make bench-peers"
            ) from None

        names = (tuple(workload), tuple(system))
        chosen = Chosen(kind, *names, rounds, output, data, plot, environment, checked, timed, add)
        bench_peers(chosen, is_json=as_json)
        return
    _joins(workload, system, settings, rounds, output, data, as_json=as_json)


def _joins(
    workload: list[str],
    system: list[str],
    settings: list[str],
    rounds: int,
    output: Path,
    data: Path | None,
    *,
    as_json: bool,
) -> None:
    from braidstream.lab.bench import CASES, run_bench  # noqa: PLC0415
    from braidstream.lab.bench.measure import SETTINGS  # noqa: PLC0415
    from braidstream.lab.bench.measure import as_json as to_plain  # noqa: PLC0415

    systems = sorted({name for case in CASES.values() for name in case.systems})
    for given, known in ((workload, CASES), (settings, SETTINGS), (system, systems)):
        for name in given:
            if name not in known:
                raise InputError(f"unknown name {name!r}", f"one of {', '.join(known)}", nearest(name, known))
    taking_part = {name for case in workload or CASES for name in CASES[case].systems}
    if system and not taking_part & set(system):
        raise InputError(f"no chosen workload runs {', '.join(system)}", f"one of {', '.join(sorted(taking_part))}")
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
    wide = Console(width=None if sys.stdout.isatty() else _WIDE)
    wide.print(table)
    parts = [(entry, entry.parts) for entry in measured if entry.parts]
    if parts:
        wide.print(_divided(parts))
    typer.echo(f"written to {output}")


def _divided(parts: list[tuple[Measurement, Mapping[str, float]]]) -> Table:
    """Where the time of an epoch goes."""
    names = list(parts[0][1])
    table = Table("workload", "system", *(f"{name}, ms" for name in names), "second epoch : tenth")
    for entry, own in parts:
        cells = [f"{own[name]:,.0f}" for name in names]
        table.add_row(entry.workload, entry.system, *cells, "-" if entry.warm_up is None else f"{entry.warm_up:.1f}")
    return table


def _scale(slots: list[int], output: Path, plot: Path | None, *, on_spark: bool, as_json: bool) -> None:
    from braidstream.lab.bench.scale_control import control_ms  # noqa: PLC0415
    from braidstream.lab.bench.scale_metadata import LIMITS, Shape, measure  # noqa: PLC0415
    from braidstream.lab.bench.scale_picture import draw_scale  # noqa: PLC0415
    from braidstream.lab.bench.scale_spark import measure_on_spark  # noqa: PLC0415
    from braidstream.pictures import check_target  # noqa: PLC0415

    if plot is not None:
        check_target(plot)
    console = Console(stderr=True)
    measured = [measure(Shape(n), console.print) for n in slots or _SLOTS]
    plain = [one.as_json() for one in measured]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(plain, indent=1))
    if plot is not None:
        draw_scale(measured, plot)
    largest = max(one.slots for one in measured)
    decided = {name: round(ms, 1) for name, ms in control_ms(largest).items()}
    output.with_name("scale-control.json").write_text(json.dumps({"slots": largest, "ms": decided}, indent=1))
    if on_spark:
        folder = Path(tempfile.mkdtemp(prefix="braidstream-scale-"))
        try:
            found = measure_on_spark([n for n in slots or _SLOTS_ON_SPARK if n <= 256], folder, console.print)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        output.with_name("scale-spark.json").write_text(json.dumps([one.as_json() for one in found], indent=1))
    if as_json:
        typer.echo(json.dumps(plain))
        return
    table = Table("slots", *(f"{name} (at most {most:g})" for name, most in LIMITS.items()))
    for row in plain:
        table.add_row(str(row["slots"]), *(f"{row[name]:,.2f}" for name in LIMITS))
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    for name, ms in decided.items():
        typer.echo(f"  {ms:8.1f} ms at {largest} slots, every few epochs: {name}")
    for cost in measured:
        for name in cost.missed():
            typer.echo(f"not kept at {cost.slots} slots: {name}")
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
