"""`braid new`: a job file, made data and a page of explanation, to run at once and to change."""

from __future__ import annotations

from pathlib import Path

import typer

from braidstream.cli import START, app, words

__all__ = ["new_job"]

_USES = ("clicks", "payments", "sensors", "trades")
_FOLDER = typer.Argument(None, help="The folder to make; without one, the name of the use.", show_default=False)


@app.command("new", rich_help_panel=START)
def new_job(
    use: str = typer.Argument(
        help="clicks, payments, sensors or trades.", show_default=False, autocompletion=lambda: list(_USES)
    ),
    folder: Path | None = _FOLDER,
    seed: int = typer.Option(1, help="The seed of the made data.", min=0),
) -> None:
    """Write a first job: a job file, made data and a README, ready for `braid run`.

    The folder must be new or empty; nothing is overwritten.

    Examples:

      braid new clicks

      braid new payments my-job
    """
    from braidstream.lab.starters import find_use, write  # noqa: PLC0415  (slow to import)

    found = find_use(use)
    target = Path(use) if folder is None else folder
    rows = write(found, target, seed)
    typer.echo(f"{target}: {found.about}")
    for path in sorted(target.iterdir()):
        typer.echo(f"  {path.name + ('/' if path.is_dir() else ''):<12} {_about(path, words.each(rows))}".rstrip())
    typer.echo(f"\nNow:  cd {target} && braid run job.toml")


def _about(path: Path, rows: str) -> str:
    known = {"job.toml": "streams, queries and where results go", "README.md": "what it does, and how to go on"}
    return known.get(path.name, f"made streams: {rows} rows" if path.is_dir() else "what the job computes")
