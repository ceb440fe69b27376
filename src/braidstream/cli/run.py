"""`braid run`, `braid check` and `braid explain`: the commands on a job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from braidstream import jobs
from braidstream.cli import JOBS, app
from braidstream.cli.logs import LogView, logging_as
from braidstream.cli.metric_view import serving
from braidstream.cli.ports import OptionalPorts
from braidstream.cli.quiet_session import Say, settings_of, spark_session
from braidstream.cli.watch import beside
from braidstream.errors import InputError
from braidstream.query.duration import parse_duration

if TYPE_CHECKING:
    from braidstream.cli.follow import View
    from braidstream.epoch.progress import EpochProgress
    from braidstream.jobs.checking import Checked

__all__ = ["check_job", "explain_job", "run_job", "run_loaded"]

_JOB = typer.Argument(help="The job file (TOML).", show_default=False)
_MASTER = typer.Option(None, help="Where Spark runs: local[4], spark://host:7077, yarn, ... [default: local[*]]")
_CONF = typer.Option([], "--conf", help="A setting of Spark, name=value. May be repeated.", metavar="NAME=VALUE")
_VERBOSE = typer.Option(False, "--verbose", help="Show what Spark itself writes.")


@app.command("run", rich_help_panel=JOBS, cls=OptionalPorts)
def run_job(
    job: Path = _JOB,
    master: str | None = _MASTER,
    conf: list[str] = _CONF,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object for each epoch, and one at the end."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print nothing but errors."),
    verbose: bool = _VERBOSE,
    wait: str = typer.Option("0s", help="How long to wait for another run of the job to end.", metavar="TIME"),
    final: bool = typer.Option(False, "--final", help="The input ends with what is there: close the checkpoint."),
    dashboard: int | None = typer.Option(
        None,
        "--dashboard",
        help="Show a page that follows the run, at this port or any.",
        metavar="[PORT]",
        min=0,
        max=65535,
    ),
    metrics: str | None = typer.Option(
        None, "--metrics", help="Serve counters and gauges for Prometheus, at a port or HOST:PORT.", metavar="PORT"
    ),
    log_format: str = typer.Option("text", help="How logs are written: text, or json, an object a line."),
) -> None:
    """Run a job file, or go on where its checkpoint ends.

    A job that is running already is refused with exit code 2, unless --wait lets it end first.

    Ctrl-C stops after the running epoch, a second one at once; both leave a checkpoint that restarts.

    Examples:

      braid run job.toml

      braid run job.toml --master 'local[4]' --conf spark.driver.memory=4g

      braid run job.toml --json > progress.jsonl

      braid run job.toml --dashboard --metrics 9100
    """
    with logging_as(log_format, str(job)):  # until the job has a name
        loaded = _final(jobs.read(job)) if final else jobs.read(job)
    name, place = loaded.flow.name, loaded.flow.checkpoint
    with logging_as(log_format, name) as say:
        if not parse_duration(wait):
            jobs.refuse_running(loaded)
        jobs.check(loaded)
        settings = settings_of(loaded.spark, conf)
        if dashboard is not None and loaded.functions and loaded.queries:
            wrong = "--dashboard for a job with functions and queries, which has a checkpoint for each part"
            raise InputError(wrong, "a job with one", f"braid watch {place} in another terminal")
        with serving(name, metrics, say) as counting, beside(place, dashboard, say):
            also = [*counting, *([LogView()] if log_format == "json" else [])]
            is_quiet = quiet or log_format == "json"
            code = run_loaded(
                loaded, settings, master,
                as_json=as_json, quiet=is_quiet, verbose=verbose, wait=wait, also=also, say=say,
            )  # fmt: skip
    raise typer.Exit(code)


def _goes_on(checked: Checked) -> str:
    """Where a start begins."""
    if checked.parts and any(epoch is not None for epoch in checked.parts.values()):
        told = (f"{name} after epoch {'none' if epoch is None else epoch}" for name, epoch in checked.parts.items())
        return f"goes on: {', '.join(told)}"
    return "starts from the beginning" if checked.epoch is None else f"goes on after epoch {checked.epoch}"


def _final(job: jobs.Job) -> jobs.Job:
    return replace(job, flow=jobs.with_place(job, "[flow]", lambda: replace(job.flow, final=True)))


def run_loaded(
    job: jobs.Job,
    settings: Mapping[str, str],
    master: str | None,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    seen: list[EpochProgress] | None = None,
    wait: str = "0s",
    also: Sequence[View] = (),
    say: Say | None = None,
) -> int:
    """Run a job that was checked, and give the exit code. The epochs are added to `seen`; `also` views see them too."""
    from braidstream.cli.follow import INTERRUPTED, Views, follow  # noqa: PLC0415
    from braidstream.cli.view import choose_view  # noqa: PLC0415

    view = choose_view(job.flow.name, job.flow.checkpoint, as_json=as_json, quiet=quiet, verbose=verbose)
    try:
        view.phase("starting Spark")
        with spark_session(job.flow.name, settings, master=master, verbose=verbose, say=say) as spark:
            view.phase("warming up")
            run = follow(lambda: jobs.start(job, spark, wait), Views((view, *also)) if also else view, seen)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        view.close()
    return INTERRUPTED if run.interrupted else 0


@app.command("check", rich_help_panel=JOBS)
def check_job(
    job: Path = _JOB,
    with_spark: bool = typer.Option(False, "--spark", help="Also start Spark, and let it resolve every expression."),
    master: str | None = _MASTER,
    conf: list[str] = _CONF,
) -> None:
    """Validate a job file; no flow is started and nothing is written.

    Exit code 2 and a message when something is wrong with the job, 3 when its checkpoint is damaged.

    Examples:

      braid check job.toml

      braid check job.toml --spark
    """
    loaded = jobs.read(job)
    checked = jobs.check(loaded)
    if with_spark:
        settings = settings_of(loaded.spark, conf)
        try:
            with spark_session(loaded.flow.name, settings, master=master, verbose=False) as spark:
                changes = jobs.build(loaded, spark).check(loaded.flow.checkpoint)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        checked = replace(checked, open=(), changes=changes)
    at = _goes_on(checked)
    parts = {"streams": loaded.streams, "queries": loaded.queries, "functions": loaded.functions}
    told = [f"  {what}: {', '.join(names)}" for what, names in parts.items() if names]
    typer.echo("\n".join([f"{job}: ok", *told, f"  {at}"]))
    for change in checked.changes:
        typer.echo(f"  would change: {change}")
    for warning in checked.warnings:
        typer.echo(f"  warning: {warning}")
    for left in checked.open:
        typer.echo(f"  not checked: {left}")


@app.command("explain", rich_help_panel=JOBS)
def explain_job(
    job: Path = _JOB,
    master: str | None = _MASTER,
    conf: list[str] = _CONF,
    verbose: bool = _VERBOSE,
) -> None:
    """Show the plan of a job file in words. Spark is started to make it, but no row is read.

    Example:

      braid explain job.toml
    """
    loaded = jobs.read(job)
    checked = jobs.check(loaded)
    settings = settings_of(loaded.spark, conf)
    try:
        with spark_session(loaded.flow.name, settings, master=master, verbose=verbose) as spark:
            plan = jobs.build(loaded, spark).explain()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    at = _goes_on(checked)
    typer.echo(f"{plan}\n  checkpoint {loaded.flow.checkpoint}: {at}")
