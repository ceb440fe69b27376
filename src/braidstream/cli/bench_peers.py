"""`braid bench peers` and `braid bench nexmark`, a part of it: several systems on the same files, as one table."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from braidstream.errors import InputError, nearest
from braidstream.lab.bench.measure import Measurement, as_json
from braidstream.lab.bench.peers.beside import Comparison
from braidstream.lab.bench.peers.nexmark_queries import NEXMARK
from braidstream.lab.bench.peers.rates_picture import draw_peers
from braidstream.lab.bench.peers.recorded import merged, read
from braidstream.lab.bench.peers.workloads import JOINS
from braidstream.pictures import check_target

__all__ = ["Chosen", "bench_peers"]

_WIDE = 170
_FORMS = {
    "rows_per_s": "{:,.0f}",
    "ratio_to_spark_memory": "{:.2f}",
    "epoch_ms": "{:,.0f} ms",
    "peak_mb": "{:,.0f}",
}


@dataclass(frozen=True)
class Chosen:
    """What is measured, and where things are."""

    kind: str
    workloads: tuple[str, ...]
    systems: tuple[str, ...]
    rounds: int
    output: Path
    data: Path | None
    plot: Path | None
    environment: Path
    is_checked: bool
    is_timed: bool
    is_added: bool


def bench_peers(chosen: Chosen, *, is_json: bool) -> None:
    """Compare, write, draw and print."""
    known = {**JOINS, **NEXMARK} if chosen.kind == "peers" else NEXMARK
    systems = sorted({system for workload in known.values() for system in workload.systems})
    for given, names in ((chosen.workloads, list(known)), (chosen.systems, systems)):
        for name in given:
            if name not in names:
                raise InputError(f"unknown name {name!r}", f"one of {', '.join(names)}", nearest(name, names))
    if chosen.plot is not None:
        check_target(chosen.plot)
    console = Console(stderr=True)
    folder = chosen.data or Path(tempfile.mkdtemp(prefix="braidstream-peers-"))
    comparison = Comparison(folder, chosen.environment, chosen.rounds, chosen.is_checked, chosen.is_timed)
    try:
        workloads = [known[name] for name in chosen.workloads or known]
        measured = comparison.run(workloads, chosen.systems, lambda entry: console.print(_line(entry)))
    finally:
        if chosen.data is None:
            shutil.rmtree(folder, ignore_errors=True)
    entries = merged(read(chosen.output) if chosen.is_added else (), measured, [*JOINS, *NEXMARK])
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(as_json(entries), indent=1))
    if chosen.plot is not None:
        draw_peers(entries, chosen.plot)
    _print(entries, chosen.output, is_json=is_json)


def _print(entries: Sequence[Measurement], output: Path, *, is_json: bool) -> None:
    if is_json:
        typer.echo(json.dumps(as_json(entries)))
        return
    table = Table("workload", "system", "version", "rows/s", "ratio to Spark in memory", "median epoch", "peak MB",
                  "status", "checked")  # fmt: skip
    for entry in entries:
        table.add_row(entry.workload, entry.system, entry.version, *_cells(entry), entry.status, entry.checked)
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    for entry in entries:
        if entry.note:
            typer.echo(f"{entry.workload}, {entry.system}: {entry.note}")
    typer.echo(f"written to {output}")


def _cells(entry: Measurement) -> list[str]:
    return ["-" if (value := getattr(entry, name)) is None else form.format(value) for name, form in _FORMS.items()]


def _line(entry: Measurement) -> str:
    return f"{entry.workload} {entry.system}: {', '.join(_cells(entry))} {entry.status} {entry.checked} {entry.note}"
