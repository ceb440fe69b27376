"""What an epoch pays for trust: checksums of all files, and waiting for the disk.

    python -m braidstream.lab.bench.trust_cost [ROUNDS [ROWS...]]

`braid run` in processes of their own: as it is by default; with `durability = "process"`, where nobody waits for the
disk; and without checksums, which the product has no option for, so that all Python processes of the run are given a
module that takes them out. A round has one run of each, one after the other, the first of them another one each time,
over the same files; so what the machine does beside falls on all alike. Default: 5 rounds, of 10,000 and of 500,000
rows an epoch and stream; about 20 minutes on two cores that do nothing else.

The time of an epoch is that between two entries of the flow's own history, the median of a run. Prints a line for each
run, and a JSON object at the end: for each number of rows the quartiles over rounds of these medians, of their ratios
to the default of the same round, and of what progress says of checksums (slots and driver, what runs side by side added
up, so that its share of an epoch is an upper bound). A run that fails is told and named there, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from braidstream.errors import RunError
from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.state.files import Files
from braidstream.state.history import read_history

__all__ = ["Measured", "main", "summary"]

WARM = 12
SIZES = {10_000: 60, 500_000: 30}
"""Rows of an epoch and stream, and how many epochs there are of these; 30 of others."""
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
import os
from braidstream.state import checksums
checksums.crc32 = lambda data, value=0: 0
checksums.Checksum.update = lambda self, data: None
from braidstream.state import seals
seals.check_seal = lambda *_, **__: None
seals.file_checksum = lambda files, name, like=0, told=None: (0, os.path.getsize(files.path(name)))
"""


@dataclass(frozen=True)
class Measured:
    """The medians of a run: an epoch, and what of it went into checksums at most."""

    epoch_ms: float
    sealing_ms: float
    share: float


def main() -> None:
    """Measure and print."""
    rounds, *sizes = (int(value) for value in sys.argv[1:] or ["5"])
    found, failed = {}, list[str]()
    for n_rows in sizes or SIZES:
        runs = _rounds(rounds, n_rows, failed)
        found[n_rows] = summary(runs)
    print(json.dumps({"rounds": rounds, "rows": found, "failed": failed}))
    sys.exit(1 if failed else 0)


def _rounds(rounds: int, n_rows: int, failed: list[str]) -> list[dict[str, Measured]]:
    """The runs that did not fail, by round and variant."""
    found: list[dict[str, Measured]] = []
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), n_rows)
        for number in range(rounds):
            found.append({})
            for at in range(len(VARIANTS)):
                variant = VARIANTS[(number + at) % len(VARIANTS)]
                shown = f"{n_rows:,} rows, round {number + 1}, {variant}"
                try:
                    one = found[-1][variant] = _run(Path(name), variant)
                    print(f"{shown}: {one.epoch_ms:.1f} ms, checksums {one.sealing_ms:.1f} ms", flush=True)
                except RunError as error:
                    failed.append(f"{shown}: {error.wrong}")
                    print(f"{shown} failed: {error.wrong}", flush=True)
    return found


def summary(rounds: Sequence[dict[str, Measured]]) -> dict[str, object]:
    """Quartiles over rounds; a ratio is of two runs of one round."""
    runs = {name: [one[name] for one in rounds if name in one] for name in VARIANTS}
    pairs = {name: [(one[name], one["power"]) for one in rounds if {name, "power"} <= one.keys()] for name in VARIANTS}
    return {
        "ms": {name: _quartiles([run.epoch_ms for run in own]) for name, own in runs.items()},
        "ratios": {
            f"{name} / power": _quartiles([mine.epoch_ms / other.epoch_ms for mine, other in pairs[name]])
            for name in VARIANTS[1:]
        },
        "sealing_ms": _quartiles([run.sealing_ms for run in runs["power"]]),
        "sealing_share": _quartiles([run.share for run in runs["power"]]),
    }


def _quartiles(values: Sequence[float]) -> list[float] | None:
    """The first, the median and the third; None where there is no value."""
    return [round(float(one), 4) for one in np.quantile(values, [0.25, 0.5, 0.75])] if values else None


def _write(folder: Path, n_rows: int) -> None:
    n_epochs = SIZES.get(n_rows, 30)
    for seed, stream in enumerate("RS"):
        keys, total = UniformKeys(20 * n_rows), n_epochs * n_rows
        write_stream(folder / stream, rate=n_rows, keys=keys, rows_per_file=n_rows, seed=seed, n_rows=total)
    (folder / "without").mkdir()
    (folder / "without" / "sitecustomize.py").write_text(_WITHOUT, encoding="utf-8")


def _run(inputs: Path, variant: str) -> Measured:
    """One run over files that are there, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream in "RS":
            (folder / stream).symlink_to(inputs / stream)
        durability = "process" if variant == "process" else "power"
        (folder / "job.toml").write_text(_JOB.format(durability=durability), encoding="utf-8")
        paths = [str(inputs / "without") if variant == "without checksums" else "", os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with (folder / "errors").open("w+b") as errors:
            run = subprocess.run(
                _command(folder), stdout=subprocess.PIPE, stderr=errors, text=True, env=env, check=False
            )
            errors.seek(0)
            words = errors.read()[-1000:].decode(errors="replace")
        if run.returncode != 0:
            raise RunError(f"exit code {run.returncode}: {words.strip()}")
        told = [one for one in map(json.loads, run.stdout.splitlines()) if one["event"] == "epoch"][WARM:]
        return _measured(str(folder / "ck"), [(one["sealing_s"], one["seconds"]["total"]) for one in told])


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "braidstream", "run", str(folder / "job.toml"), "--json"]


def _measured(root: str, sealing: Sequence[tuple[float, float]]) -> Measured:
    """The time of an epoch by the history of a checkpoint, beside what was told of checksums."""
    entries = [one for one in read_history(Files(root)).to_pylist() if one["kind"] == "epoch" and not one["step"]]
    spans = np.diff([one["at_us"] for one in entries[WARM:]]) / 1000
    if len(spans) < 3 or len(sealing) < 3:
        raise RunError(f"{len(entries)} epochs, of which {WARM} are to warm up")
    share = statistics.median(spent / max(total, 1e-9) for spent, total in sealing)
    return Measured(float(np.median(spans)), 1000 * statistics.median(spent for spent, _ in sealing), share)


if __name__ == "__main__":
    main()
