"""What an epoch pays for trust: checksums of all files, and waiting for the disk.

    python -m braidstream.lab.bench.trust_cost [ROUNDS [ROWS]]

`braid run` in processes of their own, in alternating rounds: as it is by default; with `durability = "process"`, where
nobody waits for the disk; and without checksums, which the product has no option for, so that all Python processes of
the run are given a module that takes them out. Prints a line for each run and a JSON object at the end: medians of the
time between two epochs in milliseconds, their ratios, and the share of an epoch that slots say they spent on checksums.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from braidstream.lab.workloads import UniformKeys, write_stream

__all__ = ["main"]

N_EPOCHS, WARM = 40, 12
VARIANTS = ("power", "process", "without checksums")
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
name = "trusted"
checkpoint = "ck"
epoch = "available"
slots = 2
durability = "{durability}"

[queries.q]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
sink = {{ format = "parquet", path = "out" }}
""" + "".join(_STREAM.format(name=name) for name in "RS").replace("{", "{{").replace("}", "}}")
_WITHOUT = """
import os, zlib
zlib.crc32 = lambda data, value=0: 0
from braidstream.state import seals
seals.check_seal = lambda *_, **__: None
seals.file_checksum = lambda files, name, told=None: (0, os.path.getsize(files.path(name)))
"""


def main() -> None:
    """Measure and print."""
    rounds, n_rows = (int(value) for value in (*sys.argv[1:], *("3", "10000")[len(sys.argv) - 1 :]))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, seen in found.items():
            seen.append(_run(name, n_rows))
            print(f"{name}: {seen[-1][0]:.1f} ms an epoch, {seen[-1][1]:.2%} of it checksums", flush=True)
    medians = {name: statistics.median(ms for ms, _ in seen) for name, seen in found.items()}
    ratios = {f"{name} / power": medians[name] / medians["power"] for name in VARIANTS[1:]}
    share = statistics.median(share for _, share in found["power"])
    print(json.dumps({"rows": n_rows, "ms": medians, "ratios": ratios, "sealing_share": share}))


def _run(variant: str, n_rows: int) -> tuple[float, float]:
    """The mean time of an epoch in ms, and the share of checksums as slots tell it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, stream in enumerate("RS"):
            keys, total = UniformKeys(20 * n_rows), N_EPOCHS * n_rows
            write_stream(folder / stream, rate=n_rows, keys=keys, rows_per_file=n_rows, seed=seed, n_rows=total)
        durability = "process" if variant == "process" else "power"
        (folder / "job.toml").write_text(_JOB.format(durability=durability), encoding="utf-8")
        paths = [os.environ.get("PYTHONPATH", "")]
        if variant == "without checksums":
            (folder / "without").mkdir()
            (folder / "without" / "sitecustomize.py").write_text(_WITHOUT, encoding="utf-8")
            paths.insert(0, str(folder / "without"))
        command = [sys.executable, "-m", "braidstream", "run", str(folder / "job.toml"), "--json"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        ends, shares = [], []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as run:
            for told in map(json.loads, run.stdout or ()):
                if told["event"] == "epoch":
                    ends.append(time.monotonic())
                    shares.append(told["sealing_s"] / max(told["seconds"]["total"], 1e-9))
        # a mean: `braid run` tells of epochs when it looks, five times a second, and a median would be its rhythm
        return 1000 * float(np.mean(np.diff(ends[WARM:]))), statistics.median(shares[WARM:])


if __name__ == "__main__":
    main()
