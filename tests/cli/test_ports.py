"""A port that may be left out, and one that is none."""

from __future__ import annotations

import pytest
import typer

from braidstream.cli.ports import OptionalPorts
from tests.cli.workshop import Braid


@pytest.mark.parametrize(
    ("said", "port", "rest"),
    [
        (["job.toml"], None, "job.toml"),
        (["job.toml", "--dashboard"], 0, "job.toml"),
        (["--dashboard", "job.toml"], 0, "job.toml"),
        (["--dashboard", "8787", "job.toml"], 8787, "job.toml"),
        (["--dashboard=8787", "job.toml"], 8787, "job.toml"),
        (["job.toml", "--dashboard", "--quiet"], 0, "job.toml"),
    ],
)
def test_a_port_that_is_not_said_is_any(said: list[str], port: int | None, rest: str) -> None:
    assert _parsed(said) == (port, rest)


def _parsed(said: list[str]) -> tuple[int | None, str]:
    app, found = typer.Typer(), list[tuple[int | None, str]]()

    @app.command(cls=OptionalPorts)
    def run(job: str, dashboard: int | None = typer.Option(None, "--dashboard"), quiet: bool = False) -> None:
        found.append((dashboard, job))

    app(said, standalone_mode=False)
    return found[0]


def test_a_port_that_is_none_is_refused_by_the_command_itself(braid: Braid) -> None:
    outcome = braid("run", "job.toml", "--dashboard", "99999")
    assert outcome.code == 2
    assert "braid run [OPTIONS]" in outcome.err
    assert "--dashboard" in outcome.err
