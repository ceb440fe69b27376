"""The same job under spark-submit, and in a process of its own: quiet, and with the same exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LIMIT_S = 240


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)


@pytest.fixture(scope="module")
def submit() -> list[str]:
    """`spark-submit --master local[2] "$(braid entry)"`."""
    entry = run(sys.executable, "-m", "braidstream", "entry").stdout.strip()
    return [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", entry]


def test_a_job_under_spark_submit(submit: list[str], workshop: Workshop) -> None:
    ended = run(*submit, "run", workshop.job())
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "pairs: done after 3 epochs" in ended.stdout
    assert workshop.verify()


def test_bad_input_under_spark_submit_has_the_same_exit_code(submit: list[str], workshop: Workshop) -> None:
    ended = run(*submit, "run", workshop.job(("slots = 2", "slot = 2")))
    assert ended.returncode == 2
    assert "did you mean 'slots'?" in ended.stdout  # where spark-submit sends all that a Python program writes


def test_a_process_of_its_own_shows_nothing_of_spark(workshop: Workshop) -> None:
    ended = run(sys.executable, "-m", "braidstream", "run", workshop.job(), "--master", "local[2]")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    assert [line for line in lines if not line.startswith(("pairs: ", "epoch "))] == []
    assert workshop.verify()


def test_a_master_that_does_not_exist(workshop: Workshop) -> None:
    ended = run(sys.executable, "-m", "braidstream", "run", workshop.job(), "--master", "lokal")
    assert ended.returncode == 2
    assert "Master must" in ended.stderr
    assert "check --master" in ended.stderr
    assert "\n    at " not in ended.stderr


def test_java_that_is_missing(workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    ended = run(sys.executable, "-m", "braidstream", "run", workshop.job())
    assert ended.returncode == 3
    assert "Spark did not start" in ended.stderr
    assert "Java 17 or later" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (workshop.folder / "ck").exists()
