"""The `braid` command.

Exit codes: 0 done, 1 a check did not hold, 2 wrong input, 3 failed while running, 130 interrupted.

Each command lives in a module of its own and imports what it needs when it runs, so that `braid --help` is fast.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import typer
from rich.console import Console

from braidstream.errors import BraidstreamError, Note
from braidstream.hiding import scrubbed

__all__ = ["JOBS", "RESEARCH", "START", "TRY", "app", "main"]

START, JOBS, TRY = "Begin", "Jobs", "Try, measure and plan"
RESEARCH = "Research: the papers' experiments and simulations"
"""The panels of the help."""

app = typer.Typer(
    name="braid",
    help="Adaptive, skew-proof, exactly-once stream joins on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


_VERSION = typer.Option(
    False, "--version", help="Print the versions of Braidstream, Spark, Java, Arrow and Python.", is_eager=True
)


@app.callback(invoke_without_command=True)
def _top(version: bool = _VERSION) -> None:
    if version:
        from braidstream.cli.installed import versions  # noqa: PLC0415

        for name, found in versions().items():
            typer.echo(f"{name} {found}")
        raise typer.Exit


def main() -> None:
    """Run the command line and turn the package's errors into exit codes."""
    from braidstream.cli import commands  # noqa: F401, PLC0415  (registers the commands)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except BraidstreamError as error:
        if _was_interrupted(error):
            sys.exit(130)
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # 1 would mean that a check did not hold
        if _was_interrupted(error):
            sys.exit(130)
        if type(error).__module__.startswith(("pyspark.", "py4j.")) or isinstance(error, ConnectionError):
            from braidstream.spark.causes import has_gone, one_line  # noqa: PLC0415

            _say(f"error: Spark failed: {'its process has ended' if has_gone(error) else one_line(error)}")
            sys.exit(3)
        sys.stderr.write(scrubbed(traceback.format_exc()))
        _say(f"unexpected error: {error!r}")
        sys.exit(3)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether it came up while an interrupt was on its way out: what is cleaned up then may find no Spark any more."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(scrubbed(text))


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Notes of ours in a line; what libraries warn of is for developers."""
    if issubclass(category, Note):
        _say(f"note: {message}")
