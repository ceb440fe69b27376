"""`braid watch`: the dashboard of flows that run, here or elsewhere, or have ended. It needs no Spark."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from braidstream.cli import JOBS, app
from braidstream.cli.state import parts_in
from braidstream.errors import InputError
from braidstream.packages import need
from braidstream.state.checkpoint import IDENTITY
from braidstream.state.files import Files
from braidstream.watch.server_process import BESIDE, ServerProcess

__all__ = ["beside", "watch_flows"]

PORT = 8787
_LOOPBACK = "127.0.0.1"


@app.command("watch", rich_help_panel=JOBS)
def watch_flows(
    checkpoints: list[str] = typer.Argument(help="Folders of checkpoints, or their URIs.", show_default=False),
    port: int = typer.Option(PORT, help="The port of the page; 0 takes any that is free.", min=0, max=65535),
    host: str = typer.Option(_LOOPBACK, help="The address to listen at; other machines reach it only if you say so."),
    is_beside: bool = typer.Option(False, BESIDE, hidden=True),
) -> None:
    """Show flows on a page that follows them: what they do, where their time goes, what was decided, why they ended.

    Nothing is changed, and the flows are not slowed. Ctrl-C ends it. A job with functions and queries is several flows.

    Examples:

      braid watch ck

      braid watch s3://bucket/ck other/ck --port 9000
    """
    checkpoints = [folder for one in checkpoints for folder in ([f"{one}/{p}" for p in parts_in(one)] or [one])]
    for one in checkpoints:
        _refuse_other(one)
    need("dashboard", "bokeh", "the dashboard")
    from braidstream.watch.serving import serve, url_of  # noqa: PLC0415

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    server = serve(checkpoints, port, host)
    typer.echo(f"watching at {url_of(server, host)}")
    if is_beside:
        loop.add_reader(sys.stdin.fileno(), server.io_loop.stop)  # nothing is ever written: it is the end
        _fall_silent()
    try:
        server.io_loop.start()
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@contextmanager
def beside(checkpoint: str, port: int | None, say: Callable[[str], None]) -> Iterator[None]:
    """The dashboard of a flow that is about to run, in a process of its own that ends with this."""
    if port is None:
        yield
        return
    server = ServerProcess(checkpoint, port)
    try:
        say(f"watching at {server.url}")
        yield
    finally:
        server.stop()


def _fall_silent() -> None:
    """Nobody reads what this process writes from here on, and a pipe that is full would hold it up."""
    sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _refuse_other(checkpoint: str) -> None:
    """What is there must be a checkpoint; what is not there may come."""
    try:
        files = Files(checkpoint)
        is_other = files.exists() and not files.exists(IDENTITY) and bool(files.names(""))
    except OSError as error:
        raise InputError(f"{checkpoint} cannot be read: {str(error).splitlines()[0]}", "a checkpoint") from None
    if is_other:
        fix = "see checkpoint in [flow] of the job file"
        raise InputError(f"{checkpoint} is no checkpoint", "the folder of a checkpoint", fix)
