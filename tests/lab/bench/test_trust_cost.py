"""The measurement of checksums: times are the history's, a run that fails is told, a ratio is of one round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from braidstream.errors import RunError
from braidstream.lab.bench import trust_cost
from braidstream.lab.bench.trust_cost import VARIANTS, WARM, Measured, summary
from braidstream.state.files import Files
from braidstream.state.history import Entry, HistoryWriter


def of(ms: float) -> Measured:
    return Measured(ms, ms / 10, 0.1)


def test_a_ratio_is_of_two_runs_of_one_round() -> None:
    """The machine was three times slower in the second round, for all alike."""
    rounds = [
        dict(zip(VARIANTS, map(of, (factor * 100.0, factor * 90.0, factor * 97.0)), strict=True)) for factor in (1, 3)
    ]
    found = summary(rounds)
    assert found["ratios"] == {"process / power": [0.9] * 3, "without checksums / power": [0.97] * 3}
    assert found["ms"]["power"] == [150.0, 200.0, 250.0]  # type: ignore[index]
    assert found["sealing_share"] == [0.1] * 3


def test_a_round_in_which_one_failed_counts_for_the_others() -> None:
    found = summary([{"power": of(100), "process": of(50)}, {"process": of(60)}, {}])
    assert found["ratios"] == {"process / power": [0.5] * 3, "without checksums / power": None}


def test_a_run_that_fails_is_told_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trust_cost, "_command", lambda _: [sys.executable, "-c", "raise SystemExit('no such sink')"])
    monkeypatch.setattr(sys, "argv", ["trust_cost", "2", "100"])
    with pytest.raises(SystemExit) as ended:
        trust_cost.main()
    assert ended.value.code == 1
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(told["failed"]) == 2 * len(VARIANTS)
    assert all("exit code 1: no such sink" in one for one in told["failed"])
    assert told["rows"]["100"]["ms"] == dict.fromkeys(VARIANTS)


def test_without_checksums_ours_are_gone_and_those_of_zip_files_are_not(tmp_path: Path) -> None:
    """PySpark's workers read themselves from a zip file."""
    (tmp_path / "sitecustomize.py").write_text(trust_cost._WITHOUT)
    asked = (
        "import zlib; from braidstream.state import packed; print(zlib.crc32(b'x'), packed.pack('a', b'{}', {})[:17])"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=env).stdout
    assert told.split(maxsplit=1) == [str(zlib.crc32(b"x")), "b'braid1 a 00000000'\n"]


def test_times_are_those_of_the_history(tmp_path: Path) -> None:
    writer = HistoryWriter(Files(str(tmp_path)), 100)
    at = [1000 * n + (500 if n == WARM + 2 else 0) for n in range(WARM + 8)]
    for epoch, us in enumerate(at):
        writer.append([Entry("epoch", us, epoch)])
    found = trust_cost._measured(str(tmp_path), [(0.002, 0.1)] * 5)
    assert found == Measured(1.0, 2.0, 0.02)
    with pytest.raises(RunError, match="0 epochs"):
        trust_cost._measured(str(tmp_path / "empty"), [(0.002, 0.1)] * 5)
