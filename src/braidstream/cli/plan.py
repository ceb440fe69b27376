"""`braid plan`: how many slots a join needs to be as complete as wanted, or how complete it is on the slots at hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from braidstream.cli import TRY, app, words
from braidstream.control.completeness import (
    Load,
    Model,
    completeness,
    completeness_engine,
    completeness_probing,
    completeness_refusing,
    nodes_for,
)
from braidstream.control.overflow import parse_size
from braidstream.control.shedding import STRATEGIES
from braidstream.errors import InputError, nearest
from braidstream.query.duration import parse_duration

__all__ = ["plan_slots"]

MODELS: dict[str, Model] = {
    "engine": completeness_engine,
    "probing": completeness_probing,
    "paper": completeness,
    "refusing": completeness_refusing,
}
"""What becomes of a tuple for which there is no room: joined but not kept, a sample of the keys excepted, as the engine
sheds; joined but not kept; lost altogether, as DHTJoin's equations count; or refused when memory is full."""


@app.command("plan", rich_help_panel=TRY)
def plan_slots(
    rate: list[float] = typer.Option(
        [], help="Tuples a second of a stream; once for all streams, or once for each.", show_default=False
    ),
    window: list[str] = typer.Option(
        [], help="A window, such as '10 minutes'; once for all streams, or once for each.", show_default=False
    ),
    memory: str = typer.Option("512 MB", help="What a slot may hold of all streams together."),
    tuple_bytes: float = typer.Option(100.0, help="What a stored tuple takes (`braid state` shows rows and bytes)."),
    streams: int = typer.Option(
        0, help="How many streams are joined.", show_default="as many rates as given, at least 2"
    ),
    wanted: float = typer.Option(0.0, "--completeness", help="The share of the results that is wanted, up to 1."),
    slots: int = typer.Option(0, help="The slots at hand; the answer is then the completeness they reach."),
    epoch: str = typer.Option("", help="How much event time an epoch covers: within one, nothing is shed."),
    shed_by: str = typer.Option("oldest", help="Which tuples go first, where an epoch is given: oldest or random."),
    model: str = typer.Option("engine", help=f"What becomes of tuples without room: {', '.join(MODELS)}."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Plan the slots of a join that sheds load (DHTJoin 5, equations 7, 8, 11 and 12).

    Examples:

      braid plan --rate 50000 --window '10 minutes' --memory '512 MB' --completeness 0.95

      braid plan --rate 50000 --rate 2000 --window '1 hour' --memory '1 GB' --slots 8
    """
    if model not in MODELS:
        raise InputError(f"there is no model {model!r}", f"one of {', '.join(MODELS)}", nearest(model, MODELS))
    if not wanted and not slots:
        raise InputError("nothing is asked for", "--completeness or --slots", "--completeness 0.95")
    if streams < 0:
        raise InputError(f"{streams} streams", "2 or more", "--streams 2")
    if slots < 0:
        raise InputError(f"{slots} slots", "1 or more", "--slots 4")
    loads = _loads(rate, window, parse_size(memory), tuple_bytes, streams or max(len(rate), len(window), 2))
    if shed_by not in ("oldest", "random"):
        raise InputError(f"there is no formula for {shed_by!r}", "oldest or random", nearest(shed_by, STRATEGIES[:2]))
    epoch_s = parse_duration(epoch) / 1e6 if epoch else 0.0
    sheds: Model = partial(completeness_engine, epoch_s=epoch_s, by=shed_by)
    count = sheds if model == "engine" else MODELS[model]
    n = slots or nodes_for(loads, wanted, count)
    found: dict[str, Any] = {
        "slots": n,
        "completeness": count(loads, n),
        "model": model,
        "streams": len(loads),
        "slots_for_all": math.ceil(max(load.tuples / load.memory for load in loads) - 1e-9),
        "window_tuples": sum(load.tuples for load in loads),
        "slot_tuples": sum(load.memory for load in loads),
    }
    if as_json:
        typer.echo(json.dumps(found))
    else:
        _show(found, loads, count)


def _loads(rates: Sequence[float], windows: Sequence[str], memory: int, tuple_bytes: float, m: int) -> list[Load]:
    """One load a stream; a slot's memory is shared by the streams as their windows are."""
    if tuple_bytes <= 0:
        raise InputError(f"a tuple of {tuple_bytes} bytes", "more than 0", "--tuple-bytes 100")
    each_rate = _for_each("--rate", rates, m)
    each_window = [parse_duration(text) / 1e6 for text in _for_each("--window", windows, m)]
    held = [r * w for r, w in zip(each_rate, each_window, strict=True)]
    if min(held) <= 0:
        raise InputError(f"rates {each_rate} and windows {each_window}", "rates and windows above 0")
    room = memory / tuple_bytes
    return [Load(r, w, room * h / sum(held)) for r, w, h in zip(each_rate, each_window, held, strict=True)]


def _for_each(option: str, given: Sequence[Any], m: int) -> list[Any]:
    if len(given) not in (1, m):
        raise InputError(f"{option} is given {len(given)} times for {m} streams", f"once, or {m} times")
    return list(given) * (m // len(given))


def _show(found: dict[str, Any], loads: Sequence[Load], count: Model) -> None:
    console = Console()
    table = Table("slots", "completeness", "kept of the windows", title=f"a join of {len(loads)} streams")
    n = found["slots"]
    for slots in sorted({max(n // 2, 1), n, min(n * 2, max(found["slots_for_all"], n)), found["slots_for_all"]}):
        kept = min(1.0, slots * found["slot_tuples"] / found["window_tuples"])
        mark = " *" if slots == n else ""
        table.add_row(f"{slots}{mark}", f"{count(loads, slots):.1%}", f"{kept:.1%}")
    console.print(table)
    whole = words.number(found["window_tuples"])
    typer.echo(f"{words.count(n, 'slot')}: {found['completeness']:.1%} of the results ({whole} tuples in the windows)")
