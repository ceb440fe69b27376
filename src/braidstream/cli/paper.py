"""`braid paper`: run the papers' experiments, check their claims, and make the report.

`braid paper list`, `braid paper PAPER FIGURE`, `braid paper PAPER all`, `braid paper all`, `braid paper report`, and
`braid paper mutate` (`cli.paper_mutate`). Every run is kept (`build/papers/`), so that the report runs nothing. One
experiment that fails does not stop the others.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from braidstream.cli import RESEARCH, app
from braidstream.cli.paper_mutate import mutate
from braidstream.cli.words import count, length
from braidstream.errors import InputError
from braidstream.lab.papers.bibliography import BIBLIOGRAPHY
from braidstream.lab.papers.registry import Check, Experiment, Run, experiments, find
from braidstream.lab.papers.results import FOLDER, Result, attempt, keep, kept, run
from braidstream.pictures import check_target

__all__ = ["run_paper"]

_STYLES = {"held": "green", "did not hold": "red", "failed": "bold red"}
Tell = Callable[[float, str], None]


@app.command("paper", rich_help_panel=RESEARCH, add_help_option=False)
def run_paper(
    context: typer.Context,
    paper: str = typer.Argument(
        "", help="wsj, dhtjoin, gsdm, dcape or shc; or one of the words list, all, report and mutate."
    ),
    figure: str = typer.Argument(
        "", help="The figure, such as fig5; or 'all'. After mutate: a paper, or a figure as 'wsj:fig5'."
    ),
    quick: bool = typer.Option(False, "--quick/--full", help="A smaller run of the same experiment, or the whole one."),
    seed: int = typer.Option(1, help="The seed of the random source."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    plot: Path | None = typer.Option(None, help="Write the figure to this PNG file."),
    results: Path = typer.Option(FOLDER, help="The folder in which results are kept."),
    output: Path | None = typer.Option(None, help="The report's file; report.html among the results if not given."),
    helped: bool = typer.Option(False, "--help", help="Show this message and what the paper, or the figure, has."),
) -> None:
    """Run the papers' experiments and check their claims: exit code 0 when they hold, 1 when one does not.

    Examples:

      braid paper list

      braid paper wsj fig5 --quick

      braid paper wsj --help
    """
    if helped or not paper:
        _help(context, paper, figure)
        return
    if plot is not None:
        check_target(plot)
    how = Run(quick=quick, seed=seed)
    if paper == "list":
        _list(as_json)
    elif paper == "mutate":
        raise typer.Exit(mutate(figure, how, as_json))
    elif paper == "report":
        _report(results, output or results / "report.html", quick, as_json)
    elif "all" in (paper, figure):
        if plot is not None:
            raise InputError("--plot is for one figure", "", "'braid paper report' draws all of them")
        _run_all(list(experiments(None if paper == "all" else paper)), how, results, as_json)
    elif not figure:
        known = ", ".join(found.figure for found in experiments(paper)) or "none yet"
        raise InputError("no figure was named", "braid paper PAPER FIGURE", f"{paper} has {known}; or 'all' of them")
    else:
        _run_one(find(paper, figure), how, results, as_json, plot)


def _help(context: typer.Context, paper: str, figure: str) -> None:
    """The options, and what is known of a paper's figures, or of one of them."""
    if paper in ("", "list", "all", "report", "mutate"):
        typer.echo(context.get_help())
        return
    if figure in ("", "all"):
        known = list(experiments(paper))
        source = BIBLIOGRAPHY[paper]
        typer.echo(f"\nbraid paper {paper} FIGURE, or 'all': {source.short}, {source.title}")
        _print_table(known)
        typer.echo("options: braid paper --help; more of one figure: braid paper PAPER FIGURE --help")
        return
    found = find(paper, figure)
    parameters = ", ".join(f"{name} {value}" for name, value in found.parameters.items())
    typer.echo(f"\nbraid paper {found.name} [--quick] [--plot FILE] [--json]")
    for name, told in (
        ("title", found.title),
        ("claim", found.claim),
        ("checked", found.check),
        ("runs", f"{found.how}; {found.obtained}" if found.obtained else found.how),
        ("axes", f"{found.x_label}; {found.y_label}"),
        ("parameters", parameters),
        ("differs", found.differs),
    ):
        if told:
            typer.echo(f"  {name:<11} {told}")


def _run_one(chosen: Experiment, how: Run, folder: Path, as_json: bool, plot: Path | None) -> None:
    with _bars(1, silent=as_json) as bars:
        result = run(chosen, Run(how.quick, how.seed, bars.begin(chosen)))
    keep(result, folder)
    if plot is not None:
        from braidstream.lab.papers.plot import draw  # noqa: PLC0415  (matplotlib is an extra)

        draw(chosen, result.outcome, plot)
    if as_json:
        typer.echo(json.dumps(result.as_json()))
    else:
        _show(result)
    raise typer.Exit(0 if result.outcome.holds else 1)


def _run_all(chosen: Sequence[Experiment], how: Run, folder: Path, as_json: bool) -> None:
    began = time.perf_counter()
    found: list[Result] = []
    with _bars(len(chosen), silent=as_json) as bars:
        for one in chosen:
            result = attempt(one, Run(how.quick, how.seed, bars.begin(one)))
            keep(result, folder)
            found.append(result)
            bars.say(_line(result))
    seconds = time.perf_counter() - began
    if as_json:
        typer.echo(json.dumps({"seconds": round(seconds, 1), "experiments": [one.as_json() for one in found]}))
    _out(as_json).print(_summary(found, seconds, folder))
    raise typer.Exit(_exit_code(found))


def _exit_code(found: Sequence[Result]) -> int:
    """1 when a claim did not hold, 3 when all held that could be run but one failed."""
    statuses = {result.status for result in found}
    return 1 if "did not hold" in statuses else 3 if "failed" in statuses else 0


def _line(result: Result) -> str:
    declared = result.declared
    style = _STYLES[result.status]
    verdict = f"[{style}]{result.status:<12}[/] {declared.name:<15} {result.seconds:6.1f} s"
    told = f"{verdict}  {declared.how:<9}  {_escaped(declared.title)}"
    return f"{told}\n             [red]{_escaped(result.reason)}[/]" if result.error else told


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def _summary(found: Sequence[Result], seconds: float, folder: Path) -> str:
    counts = Counter(result.status for result in found)
    told = ", ".join(f"{counts[status]} {status}" for status in sorted(counts, key=list(_STYLES).index))
    return f"{count(len(found), 'experiment')}: {told or 'nothing to run'}; {length(seconds)}; kept in {folder}"


def _out(as_json: bool) -> Console:
    """Where lines for people go: not among the JSON."""
    return Console(stderr=as_json, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class _Bars:
    """A bar for the running experiment below one for all of them; `out` prints lines above the bars."""

    progress: Progress
    whole: TaskID
    part: TaskID
    out: Console

    def begin(self, chosen: Experiment) -> Tell:
        """Show an experiment; gives what is told its progress."""
        self.progress.advance(self.whole)
        self.progress.reset(self.part, description=chosen.name, total=100)

        def tell(share: float, word: str) -> None:
            self.progress.update(self.part, completed=round(100 * share), description=f"{chosen.name} {word}")

        return tell

    def say(self, line: str) -> None:
        """Print a line."""
        self.out.print(line)


@contextmanager
def _bars(n: int, silent: bool) -> Iterator[_Bars]:
    # Bars are on the terminal only. Lines go there too, above them; into a file or a pipe they go by themselves.
    bars_out = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f}%"), TimeElapsedColumn())
    is_shown = bars_out.is_terminal and not silent
    with Progress(*columns, console=bars_out, transient=True, disable=not is_shown, redirect_stdout=False) as progress:
        whole = progress.add_task("all", total=n, visible=n > 1, completed=-1)
        part = progress.add_task("", total=100)
        yield _Bars(progress, whole, part, bars_out if is_shown and sys.stdout.isatty() else _out(silent))


def _list(as_json: bool) -> None:
    found = list(experiments())
    if as_json:
        names = ("paper", "figure", "how", "title", "claim")
        typer.echo(json.dumps([{name: getattr(one, name) for name in names} for one in found]))
        return
    _print_table(found)


def _print_table(found: Sequence[Experiment]) -> None:
    table = Table("paper", "figure", "how", "title", "claim")
    for one in found:
        table.add_row(one.paper, one.figure, one.how, one.title, one.claim)
    Console().print(table)


def _report(folder: Path, output: Path, quick: bool, as_json: bool) -> None:
    from braidstream.lab.papers.report import write  # noqa: PLC0415  (matplotlib is an extra)

    found = kept(folder, quick_only=quick)
    if not found:
        raise InputError(
            f"there are no results in {folder}", "results that were kept", "run 'braid paper all --quick' first"
        )
    pictures = write(list(experiments()), found, output)
    if as_json:
        typer.echo(json.dumps({"report": str(output), "pictures": [str(path) for path in pictures]}))
    else:
        typer.echo(f"{output}: {count(len(found), 'result')}, {output.stat().st_size / 1e6:.1f} MB; pictures beside it")


def _show(result: Result) -> None:
    declared, outcome, console = result.declared, result.outcome, Console(highlight=False)
    table = Table("series", declared.x_label, declared.y_label, title=declared.title)
    for series in outcome.series:
        label = f"{series.label} ({series.panel})" if series.panel else series.label
        for x, y in zip(series.x, series.y, strict=True):
            table.add_row(label, _told(x) if isinstance(x, (int, float)) else x, _told(y))
    console.print(table)
    for name, value in declared.stated.items():
        console.print(
            f"{name}: the paper {_told(value)}, here {_told(outcome.ours.get(name, float('nan')))}", markup=False
        )
    for check in outcome.checks:
        console.print(_checked(check), markup=False)
    for word, told in (("note", outcome.notes), ("differs", [declared.differs, *outcome.differs])):
        for one in filter(None, told):
            console.print(f"{word}: {one}", markup=False)
    verdict = "holds" if outcome.holds else "DOES NOT HOLD"
    console.print(f"claim: {declared.claim}\n{verdict} ({declared.how}; {length(result.seconds)})", markup=False)


def _checked(check: Check) -> str:
    """A check with what it was decided by."""
    paper = f"; paper: {check.paper}" if check.paper else ""
    tolerance = f"; {check.tolerance}" if check.tolerance else ""
    return f"{check.word.replace('no', 'NO'):<5}  {check.what}: {check.ours}{paper}{tolerance}"


def _told(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
