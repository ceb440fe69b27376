"""The dashboard's server as a process beside another one: it ends with that one, and says what is wrong."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("bokeh")  # the extra `dashboard`

from braidstream.errors import InputError
from braidstream.watch.server_process import ServerProcess
from braidstream.watch.serving import serve, url_of
from tests.watch.histories import Story

OWNER = """
import sys, time
from braidstream.watch.server_process import ServerProcess
server = ServerProcess(sys.argv[1])
print(server._process.pid, server.url, flush=True)
time.sleep(600)
"""


@contextmanager
def _owner(checkpoint: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A process that has a server beside it, the server's number and its address."""
    command = [sys.executable, "-c", OWNER, str(checkpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            pid, url = owner.stdout.readline().split()
            yield owner, int(pid), url
        finally:
            owner.kill()


@pytest.mark.slow
def test_the_server_of_a_process_that_is_killed_ends_too(tmp_path: Path) -> None:
    Story(tmp_path / "ck").start().run(1).write()
    with _owner(tmp_path / "ck") as (owner, server, url):
        assert "Braidstream" in urlopen(url).read().decode()
        watched = os.pidfd_open(server)
        os.kill(owner.pid, signal.SIGKILL)
        ended, _, _ = select.select([watched], [], [], 60)
        os.close(watched)
        assert ended, "the server outlived who started it"


@pytest.mark.slow
def test_a_server_that_has_much_to_complain_about_goes_on(tmp_path: Path) -> None:
    """What it says goes nowhere once it serves, so no pipe can fill up."""
    Story(tmp_path / "ck").start().run(1).write()
    server = ServerProcess(str(tmp_path / "ck"))
    try:
        assert "Braidstream" in urlopen(server.url).read().decode()
        own = Path(f"/proc/{server._process.pid}/fd")
        assert {str((own / str(one)).readlink()) for one in (1, 2)} == {os.devnull}
    finally:
        server.stop()
    assert server._process.returncode is not None


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no checkpoint")
    with pytest.raises(InputError, match="is no checkpoint"):
        ServerProcess(str(tmp_path))


def test_it_listens_at_an_address_of_the_newer_kind_and_refuses_one_that_is_nobodys(tmp_path: Path) -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())
    server = serve([str(tmp_path)], 0, "::1")
    try:
        assert url_of(server, "::1") == f"http://[::1]:{server.port}/"
    finally:
        server.stop()
        server.io_loop.close()
    for host in ("no.such.host.invalid", "203.0.113.9"):
        with pytest.raises(InputError, match=f"cannot listen at {host}"):
            serve([str(tmp_path)], 0, host)
