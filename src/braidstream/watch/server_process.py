"""The dashboard in a process of its own: for a run that is about to begin, and for notebooks.

Invariant: it ends with whoever started it, at the latest when that process does, however that ends: its input is a pipe
that nobody writes to, and it ends with the pipe. What it says is read until it serves; after that it says nothing.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from contextlib import suppress

from braidstream.errors import InputError
from braidstream.packages import need

__all__ = ["BESIDE", "ServerProcess"]

BESIDE = "--until-input-ends"
"""What tells `braid watch` that it belongs to another process."""
_END_S = 5.0


class ServerProcess:
    """`braid watch` on a checkpoint, at a port of this machine; 0 is any that is free."""

    def __init__(self, checkpoint: str, port: int = 0) -> None:
        need("dashboard", "bokeh", "the dashboard")
        command = [sys.executable, "-m", "braidstream", "watch", checkpoint, "--port", str(port), BESIDE]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        atexit.register(self.stop)
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            assert self._process.stderr is not None
            told = self._process.stderr.read()
            self.stop()
            raise InputError(told.strip().removeprefix("error: ") or "the dashboard did not start")
        self.url = line.split()[-1]
        """Where a browser finds it."""

    def stop(self) -> None:
        """End it."""
        atexit.unregister(self.stop)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
