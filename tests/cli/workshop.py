"""A folder with two small streams and a job file over them, and the `braid` command in this process."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from braidstream.cli import main
from braidstream.lab.testing.batch import BatchStream, Difference, batch_join, same_rows
from braidstream.lab.workloads import UniformKeys, write_stream

JOB = """
[flow]
name = "pairs"
checkpoint = "ck"
epoch = "available"
slots = 2
groups = 8

[streams.R]
format = "parquet"
path = "R"
schema = "k long, v long, ts timestamp"
time = "ts"
options = { maxFilesPerTrigger = "1" }

[streams.S]
format = "parquet"
path = "S"
schema = "k long, v long, ts timestamp"
time = "ts"
delay = "0 seconds"
options = { maxFilesPerTrigger = "1" }

[queries.pairs]
cql = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
sink = { format = "parquet", path = "out/pairs" }
"""
WINDOWS_US = {"R": 10_000_000, "S": 5_000_000}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Workshop:
    folder: Path

    @classmethod
    def make(cls, folder: Path, files: int = 3, rows_per_file: int = 200) -> Workshop:
        """Two streams of `files` files each, 100 rows a second of event time."""
        for seed, name in enumerate("RS"):
            write_stream(
                folder / name,
                rate=100,
                keys=UniformKeys(40),
                rows_per_file=rows_per_file,
                seed=seed,
                n_rows=files * rows_per_file,
            )
        return cls(folder)

    def job(self, *changes: tuple[str, str], name: str = "job.toml") -> Path:
        """Write the job file, with some texts in it replaced."""
        text = JOB
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def verify(self, results: str = "out/pairs") -> Difference:
        """Compare results with the batch join of all rows."""
        streams = [BatchStream(name, self.folder / name, WINDOWS_US[name]) for name in "RS"]
        expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
        return same_rows(self.folder / results, expected)

    def tree(self, below: str = "") -> dict[str, str]:
        """Every file and what is in it."""
        files = sorted(path for path in (self.folder / below).rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True)
class Braid:
    """The `braid` command, run in this process."""

    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: object) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["braid", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = self.capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, shown.out, shown.err)
