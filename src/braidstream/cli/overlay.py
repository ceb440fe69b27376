"""`braid overlay`: DHTJoin and RJoin on a simulated wide-area network.

`simulate` runs one scenario, `sweep` many of them as a Spark job for the paper's figures, `scale` computes
dissemination and lookups up to 2^20 nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from braidstream.cli import RESEARCH, app
from braidstream.cli.words import count
from braidstream.errors import InputError, nearest
from braidstream.pictures import check_target

if TYPE_CHECKING:
    from braidstream.lab.overlay.predicted import Predicted
    from braidstream.lab.overlay.shared import Failure, Outage, Outcome
    from braidstream.lab.overlay.simulate import Scenario

__all__ = ["overlay"]

overlay = typer.Typer(help="DHTJoin and RJoin on a simulated wide-area network.", no_args_is_help=True)
app.add_typer(overlay, name="overlay", rich_help_panel=RESEARCH)

FIGURES = ("fig7a", "fig7b", "fig7c")


@overlay.command("simulate")
def simulate_command(
    nodes: int = typer.Option(1024, help="How many nodes the network has."),
    method: str = typer.Option("dhtjoin", help="dhtjoin or rjoin."),
    rate: float = typer.Option(30.0, help="Tuples a second, of all streams together."),
    duration: float = typer.Option(300.0, help="Seconds during which tuples arrive."),
    window: float = typer.Option(50.0, help="The length of every window, in seconds."),
    query_every: float = typer.Option(50.0, help="Mean seconds between two queries."),
    joins: int = typer.Option(2, help="Joins in a query."),
    query_type: int = typer.Option(1, "--type", help="1: all joins on one attribute; 2: a chain over several."),
    streams: int = typer.Option(10, help="How many streams there are."),
    attributes: int = typer.Option(10, help="How many attributes a stream has."),
    zipf: float = typer.Option(0.9, help="The skew of the attributes' values; 0 is uniform."),
    domain: int = typer.Option(1000, help="How many values an attribute has."),
    dissemination: str = typer.Option("chord", help="chord or pastry."),
    memory: int | None = typer.Option(None, help="Tuples that fit into a peer; unlimited if not given."),
    shedding: str = typer.Option(
        "oldest",
        help="What goes when memory is full: oldest, random, least-productive, refuse; sample and planned go by "
        "equation 11.",
    ),
    partners: bool = typer.Option(False, "--partners", help="Let overloaded peers find partners; needs --memory."),
    delta: float = typer.Option(0.9, help="The share of its memory above which a peer is overloaded."),
    outage: list[str] = typer.Option([], help="STREAM:FROM:TO in seconds, such as S0:90:150; may be given again."),
    fail: list[str] = typer.Option([], help="NODE:TIME, a peer that fails at that second; may be given again."),
    alerts: str = typer.Option("off", help="On an outage: off, paper (drop at once) or exact (lose nothing)."),
    seed: int = typer.Option(1, help="The seed of everything random."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    plot: Path | None = typer.Option(None, help="Write a picture of the messages over time to this PNG file."),
) -> None:
    """Simulate one scenario; the defaults are the paper's."""
    from braidstream.lab.overlay.peer import Memory  # noqa: PLC0415
    from braidstream.lab.overlay.predicted import predicted  # noqa: PLC0415
    from braidstream.lab.overlay.shared import PartnerRule, Settings  # noqa: PLC0415
    from braidstream.lab.overlay.simulate import Scenario, completeness, simulate  # noqa: PLC0415
    from braidstream.lab.overlay.workload import Workload  # noqa: PLC0415

    if plot is not None:
        check_target(plot)
    workload = Workload(
        streams, attributes, zipf, domain, rate, window, duration, query_every, joins=joins, type=query_type
    )
    settings = Settings(
        dissemination=dissemination,
        memory=Memory(per_peer=memory),
        shedding=shedding,
        alerts=alerts,
        outages=tuple(_outage(text, workload.stream_names) for text in outage),
        failures=tuple(_failure(text) for text in fail),
        partners=PartnerRule(delta=delta) if partners else None,
    )
    scenario = Scenario(nodes, method, seed, workload, settings)
    with _bar(f"{method}, {count(nodes, 'node')}", silent=as_json) as tell:
        outcome = simulate(scenario, tell)
    is_limited = scenario.complete() != scenario
    share = completeness(outcome, simulate(scenario.complete())) if is_limited else None
    foretold = predicted(scenario) if is_limited else None
    if plot is not None:
        _draw(outcome, scenario, plot)
    if as_json:
        plain = {"nodes": nodes, "seed": seed, **outcome.as_json(), "completeness": share}
        plain["predicted"] = asdict(foretold) if foretold else None
        typer.echo(json.dumps({**plain, "by_second": outcome.by_second}))
        return
    _show(scenario, outcome, share, foretold)


@overlay.command("sweep")
def sweep_command(
    figure: str = typer.Argument(help="fig7a, fig7b or fig7c."),
    seeds: int = typer.Option(3, help="How many seeds to average over."),
    quick: bool = typer.Option(False, "--quick", help="A smaller network and a shorter time."),
    master: str = typer.Option("local[*]", help="The Spark master."),
    one_by_one: bool = typer.Option(False, "--one-by-one", help="Without Spark, in this process."),
    seed: int = typer.Option(1, help="The first seed."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Run the simulations of a figure as one Spark job, one simulation a task."""
    if figure not in FIGURES:
        raise InputError(f"unknown figure {figure!r}", ", ".join(FIGURES), nearest(figure, FIGURES))
    if seeds < 1:
        raise InputError(f"{seeds} seeds", "1 or more")
    from braidstream.lab.papers.dhtjoin import figure_7_scenarios  # noqa: PLC0415

    by_x = figure_7_scenarios(figure, [seed + i for i in range(seeds)], quick)
    scenarios = [scenario for some in by_x.values() for scenario in some]
    outcomes = _one_by_one(scenarios, as_json) if one_by_one else _on_spark(scenarios, master)
    traffic = dict(zip(scenarios, (outcome.traffic for outcome in outcomes), strict=True))
    methods = list(dict.fromkeys(scenario.method for scenario in scenarios))
    means = {m: [sum(traffic[s] for s in by_x[x] if s.method == m) / seeds for x in by_x] for m in methods}
    if as_json:
        plain = {"figure": figure, "x": list(by_x), "messages": means, "simulations": len(scenarios)}
        typer.echo(json.dumps({**plain, "traffic": [traffic[s] for s in scenarios]}))
        return
    table = Table(figure, *methods, title=f"mean messages of {count(len(scenarios), 'simulation')}")
    for place, x in enumerate(by_x):
        table.add_row(f"{x:g}", *(f"{means[method][place]:,.0f}" for method in methods))
    Console().print(table)


@overlay.command("scale")
def scale_command(
    smallest: int = typer.Option(4, "--from", help="The first power of two."),
    largest: int = typer.Option(20, "--to", help="The last power of two."),
    even: bool = typer.Option(False, "--even", help="A fully populated ring instead of random identifiers."),
    dissemination: str = typer.Option("chord", help="chord or pastry."),
    seed: int = typer.Option(1, help="The seed of the identifiers and lookups."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Dissemination and lookups at every power of two; exit code 1 if a claim does not hold."""
    from braidstream.lab.overlay.scale import check_powers, measure_all  # noqa: PLC0415

    powers = check_powers(smallest, largest)
    with _bar("nodes up to 2^" + str(largest), silent=as_json) as tell:
        sizes = measure_all(powers, seed, is_even=even, way=dissemination, progress=tell)
    holds = all(all(size.claims.values()) for size in sizes)
    if as_json:
        typer.echo(json.dumps({"holds": holds, "sizes": [size.as_json() for size in sizes]}))
        raise typer.Exit(0 if holds else 1)
    table = Table("nodes", "messages", "depth", "most sent by a node", "mean hops", "most hops", "claims")
    for size in sizes:
        failed = [claim for claim, is_true in size.claims.items() if not is_true]
        cells = (size.nodes, size.messages, size.depth, size.most_sent)
        hops = f"{size.mean_hops:.2f}", str(size.most_hops)
        table.add_row(*(f"{cell:,}" for cell in cells), *hops, "hold" if not failed else f"FAIL: {', '.join(failed)}")
    Console().print(table)
    raise typer.Exit(0 if holds else 1)


@contextmanager
def _bar(word: str, silent: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on the error output."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=silent) as progress:
        task = progress.add_task(word, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _outage(text: str, streams: tuple[str, ...]) -> Outage:
    from braidstream.lab.overlay.shared import Outage  # noqa: PLC0415

    stream, *times = text.split(":")
    try:
        from_s, to_s = (float(time) for time in times)
    except ValueError:
        raise InputError(f"--outage {text!r}", "STREAM:FROM:TO in seconds", "write S0:90:150") from None
    if stream not in streams:
        raise InputError(f"--outage of stream {stream!r}", f"{streams[0]} to {streams[-1]}", nearest(stream, streams))
    return Outage(stream, from_s, to_s)


def _failure(text: str) -> Failure:
    from braidstream.lab.overlay.shared import Failure  # noqa: PLC0415

    try:
        node, at_s = text.split(":")
        return Failure(int(node), float(at_s))
    except ValueError:
        raise InputError(f"--fail {text!r}", "NODE:TIME in seconds", "write 17:90") from None


def _draw(outcome: Outcome, scenario: Scenario, plot: Path) -> None:
    from braidstream.lab.overlay.picture import draw_messages  # noqa: PLC0415

    shape = scenario.workload
    draw_messages(outcome, f"{scenario.method}: {count(scenario.nodes, 'node')}, {shape.rate:g} tuples/s", plot)


def _show(scenario: Scenario, outcome: Outcome, share: float | None, foretold: Predicted | None) -> None:
    title = f"{scenario.method} on {count(scenario.nodes, 'node')}, {scenario.workload.duration_s:g} s"
    table = Table("", "", title=title, show_header=False)
    for kind, n in sorted(outcome.messages.items(), key=lambda item: -item[1]):
        table.add_row(f"messages: {kind}", f"{n:,}")
    rows = {
        "traffic (all messages but results)": outcome.traffic,
        "tuples inserted": outcome.tuples,
        "index operations": outcome.indexed,
        "intermediate results": outcome.intermediate,
        "queries": len(outcome.results),
        "results": sum(outcome.results),
        "tuples shed": outcome.shed,
        **{word.replace("_", " "): n for word, n in outcome.counters.items()},
    }
    for word, n in rows.items():
        table.add_row(word, f"{n:,}")
    if share is not None:
        table.add_row("completeness", f"{share:.1%}")
    if foretold is not None:
        if foretold.expected is not None:
            table.add_row("  expected of these peers, values, shedding", f"{foretold.expected:.1%}")
        table.add_row("  by equation 11 (all peers alike, sample)", f"{foretold.equation_11:.1%}")
    Console().print(table)


def _on_spark(scenarios: list[Scenario], master: str) -> list[Outcome]:
    from braidstream.cli.quiet_session import spark_session  # noqa: PLC0415
    from braidstream.lab.overlay.sweep import sweep  # noqa: PLC0415

    with spark_session("braid overlay sweep", {}, master=master, verbose=False) as spark:
        return sweep(spark, scenarios)


def _one_by_one(scenarios: list[Scenario], silent: bool) -> list[Outcome]:
    from braidstream.lab.overlay.simulate import simulate  # noqa: PLC0415

    with _bar(count(len(scenarios), "simulation"), silent) as tell:
        outcomes = []
        for number, scenario in enumerate(scenarios):
            tell(number / len(scenarios))
            outcomes.append(simulate(scenario))
        return outcomes
