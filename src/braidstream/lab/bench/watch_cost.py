"""What being watched costs a flow: epochs of 200 rows with history, metrics and a page that is looked at, and without.

    python -m braidstream.lab.bench.watch_cost [ROUNDS]

`braid run` in processes of their own, in alternating rounds; the page has one reader, who opens a session as a browser
does and draws nothing. Metrics are read every second. Prints a line for each run and a JSON object at the end: the
medians in milliseconds, their ratio, and the share of a core that the page's server took.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
from bokeh.client import pull_session

from braidstream.lab.workloads import UniformKeys, write_stream

__all__ = ["main"]

N_EPOCHS, N_ROWS, WARM = 60, 100, 15
_STREAM = """
[streams.{name}]
format = "parquet"
path = "{name}"
schema = "k long, v long, ts timestamp"
time = "ts"
delay = "0 seconds"
options = {{ maxFilesPerTrigger = "1" }}
"""
_JOB = """
[flow]
name = "watched"
checkpoint = "ck"
epoch = "available"
slots = 2
history = {history}

[queries.q]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
sink = {{ format = "parquet", path = "out" }}
""" + "".join(_STREAM.format(name=name) for name in "RS").replace("{", "{{").replace("}", "}}")


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: dict[str, list[float]] = {"plain": [], "watched": []}
    shares = []
    for _ in range(rounds):
        for name, times in found.items():
            epoch_ms, share = _run(is_watched=name == "watched")
            times.append(epoch_ms)
            shares += [share] if name == "watched" else []
            print(f"{name}: {epoch_ms:.0f} ms an epoch", flush=True)
    medians = {name: statistics.median(times) for name, times in found.items()}
    print(json.dumps({**medians, "ratio": medians["watched"] / medians["plain"], "page_of_a_core": max(shares)}))


def _run(*, is_watched: bool) -> tuple[float, float]:
    """The mean time of an epoch in ms, and the share of a core that the page's server took.

    A mean, since `braid run` tells of epochs when it looks, five times a second: a median would be its rhythm.
    """
    with tempfile.TemporaryDirectory() as folder:
        for seed, name in enumerate("RS"):
            keys, n_rows = UniformKeys(40), N_EPOCHS * N_ROWS
            write_stream(Path(folder) / name, rate=100, keys=keys, rows_per_file=N_ROWS, seed=seed, n_rows=n_rows)
        job = Path(folder) / "job.toml"
        job.write_text(_JOB.format(history=4096 if is_watched else 0), encoding="utf-8")
        port = _free_port()
        flags = ["--dashboard", "0", "--metrics", str(port)] if is_watched else []
        command = [sys.executable, "-m", "braidstream", "run", str(job), "--json", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            shares: list[float] = []
            if is_watched:
                threading.Thread(target=_look, args=(process, port, shares), daemon=True).start()
            ends = [time.monotonic() for line in process.stdout or () if json.loads(line)["event"] == "epoch"]
        return 1000 * float(np.mean(np.diff(ends[WARM:]))), max(shares, default=0.0)


def _look(process: subprocess.Popen[str], port: int, shares: list[float]) -> None:
    """Open the page and read the metrics as long as the run lasts."""
    url = next(found[0] for line in process.stderr or () if (found := re.findall(r"watching at (\S+)", line)))
    threading.Thread(target=lambda: list(process.stderr or ()), daemon=True).start()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    server = next(
        Path("/proc") / one for one in children if "java" not in (Path("/proc") / one / "cmdline").read_text()
    )
    session, began, spent = pull_session(url=url), time.monotonic(), _cpu_s(server)
    with contextlib.suppress(OSError), session:
        while process.poll() is None:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()
            shares.append((_cpu_s(server) - spent) / max(time.monotonic() - began, 1.0))
            time.sleep(1)


def _cpu_s(process: Path) -> float:
    fields = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
