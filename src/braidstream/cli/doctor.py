"""`braid doctor`: whether everything is there that jobs need, and what to do where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import typer
from rich.console import Console
from rich.text import Text

from braidstream.cli import START, app, checkup
from braidstream.cli.checkup import Finding
from braidstream.cli.installed import versions
from braidstream.cli.quiet_session import parse_settings, spark_session
from braidstream.errors import BraidstreamError

__all__ = ["examine"]

_MARKS = {True: ("ok", "green"), False: ("wrong", "bold red"), None: ("-", "dim")}
_PLACES = typer.Argument(None, help="Folders or addresses that checkpoints will be in.", show_default=False)


@app.command("doctor", rich_help_panel=START)
def examine(
    places: list[str] | None = _PLACES,
    master: str | None = typer.Option(None, help="Where Spark runs: local[4], yarn, ... [default: local[*]]"),
    conf: list[str] = typer.Option([], "--conf", help="A setting of Spark, name=value.", metavar="NAME=VALUE"),
    spark: bool = typer.Option(True, help="Whether Spark is started, to look at its workers."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    verbose: bool = typer.Option(False, "--verbose", help="Show what Spark itself writes."),
) -> None:
    """Check Java, Spark, Python, packages, folders, clock and memory, here and on Spark's workers.

    Exit code 0 when all is well, 1 when something is wrong; each line that is wrong says what to do.

    Examples:

      braid doctor

      braid doctor s3://bucket/checkpoints --master yarn
    """
    settings, console = parse_settings(conf), Console(highlight=False, soft_wrap=True)
    findings = []
    for finding in _findings(places or [], settings, master, with_spark=spark, verbose=verbose):
        findings.append(finding)
        if not as_json:
            console.print(_line(finding))
    wrong = [finding.name for finding in findings if finding.holds is False]
    if as_json:
        told = {"well": not wrong, "versions": versions(), "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(told, indent=2))
    else:
        console.print(f"\n{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "\nall is well")
    raise typer.Exit(1 if wrong else 0)


def _findings(
    places: Sequence[str], settings: dict[str, str], master: str | None, *, with_spark: bool, verbose: bool
) -> Iterator[Finding]:
    yield from (before := list(checkup.here()))
    if with_spark:
        yield from _of_spark(before, places, settings, master, verbose=verbose)
    for root in places:
        yield from checkup.place(root)
    yield from checkup.extras()


def _of_spark(
    before: Sequence[Finding], places: Sequence[str], settings: dict[str, str], master: str | None, *, verbose: bool
) -> Iterator[Finding]:
    """Spark and its workers; not tried where it cannot start."""
    missing = [one.name for one in before if one.holds is False and one.name in ("Java", "pyspark", "py4j", "pyarrow")]
    if missing:
        yield Finding("Spark", False, f"not tried without {' and '.join(missing)}", "see above")
        return
    try:
        with spark_session("doctor", settings, master=master, verbose=verbose) as session:
            yield from checkup.cluster(session, places)
    except BraidstreamError as error:
        yield Finding("Spark", False, " ".join(error.wrong.split()), error.fix)


def _line(finding: Finding) -> Text:
    word, style = _MARKS[finding.holds]
    line = Text.assemble((f"{word:<6}", style), f"{finding.name:<24} ", finding.found)
    if finding.remedy:
        line.append(f"\n{'':<6}{'':<24} {finding.remedy}", "dim" if finding.holds is None else "")
    return line
