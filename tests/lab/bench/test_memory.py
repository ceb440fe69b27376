"""The programs that measure memory: what they sample, and how they tell why something failed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from braidstream.lab.bench.memory import ALLOWED, _compared, write_streams
from braidstream.lab.bench.memory_spark import reason_of
from braidstream.lab.bench.process_memory import Sampler

HEAP = "java.lang.OutOfMemoryError: Java heap space"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_sampler_sees_the_largest_worker_below_this_process() -> None:
    held = "import time; kept = bytearray(b'1') * (600 << 20); print('ready', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", held, "pyspark.worker"]
    with Sampler() as sampler, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        until = time.monotonic() + 30
        while sampler.peak("worker")["anonymous"] < 600 and time.monotonic() < until:
            time.sleep(0.01)
        child.kill()
    peak = sampler.peak("worker")
    assert 600 <= peak["anonymous"] < 640
    assert peak["rss"] >= peak["anonymous"]
    assert sampler.peak("driver")["rss"] > 10
    assert sampler.peak("nobody") == {"rss": 0.0, "anonymous": 0.0, "mapped": 0.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"Job aborted: Lost task (driver): {HEAP}\n\tat x", HEAP),
        ("x" * 300 + " Connection refused\nmore", "x" * 181 + " Connection refused"),
    ],
)
def test_the_reason_of_a_failure_is_found_in_its_message(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_paired_rows_match_at_the_same_time(tmp_path: Path) -> None:
    write_streams(tmp_path, 600, 3, paired=True)
    left, right = (pq.read_table(tmp_path / name / "0001.parquet") for name in "RS")
    assert left.num_rows == 100
    assert left.select(["k", "ts"]).equals(right.select(["k", "ts"]))
    assert left["k"].to_pylist() == list(range(100, 200))


def test_what_is_allowed_is_counted_from_both_bases() -> None:
    peak = {"rss": 230.0, "anonymous": 150.0, "mapped": 80.0}
    first = {"rss": 200.0, "anonymous": 140.0, "mapped": 60.0}
    base = {"rss": 210.0, "anonymous": 145.0, "mapped": 60.0}
    found = _compared(
        {"peak_mb": peak, "first_epochs_mb": first},
        {"status": "ok", "peak_mb": base, "active_mb": 2.0, "results": 5},
        16.0,
    )
    assert found["allowed_mb"]["base_mb"]["rss"] == pytest.approx(ALLOWED * 16 + 210)
    assert found["kept"] == {
        "base_mb": {"rss": True, "anonymous": True},
        "first_epochs_mb": {"rss": False, "anonymous": True},
    }
