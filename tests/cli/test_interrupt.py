"""Ctrl-C in a real terminal's way: a child process in a group of its own, and SIGINT to the whole group.

The JVM and Spark's Python workers are in reach of the signal too, and must survive it: the running epoch has to end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from braidstream import jobs
from braidstream.state.checkpoint import Checkpoint
from tests.cli.workshop import Workshop

pytestmark = pytest.mark.spark

N_FILES = 14
LIMIT_S = 120


@pytest.fixture
def long_job(tmp_path: Path) -> Workshop:
    """A job of so many epochs that it does not end by itself before it is interrupted."""
    return Workshop.make(tmp_path, files=N_FILES, rows_per_file=100)


@contextmanager
def running(job: Path) -> Iterator[subprocess.Popen[str]]:
    """`braid run` in a process group of its own, as a shell would start it."""
    command = [sys.executable, "-m", "braidstream", "run", str(job), "--json", "--master", "local[2]"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def epochs_until(process: subprocess.Popen[str], n: int) -> list[dict[str, Any]]:
    """Wait for the first `n` epochs."""
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(n)]
    assert [line["event"] for line in lines] == ["epoch"] * n
    return lines


def finish_and_verify(workshop: Workshop, spark: object) -> None:
    """The checkpoint restarts, here with all that is left in one epoch; the results are those of an undisturbed run."""
    job = workshop.job(('maxFilesPerTrigger = "1"', 'maxFilesPerTrigger = "100"'))
    jobs.start(jobs.read(job), spark).await_termination()
    assert workshop.verify()


@pytest.mark.slow
def test_one_interrupt_stops_after_the_running_epoch(long_job: Workshop, spark: object) -> None:
    job = long_job.job()
    with running(job) as process:
        epochs_until(process, 2)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "stopping after the running epoch" in err
    assert "Traceback" not in err
    end = json.loads(out.splitlines()[-1])
    assert (end["event"], end["interrupted"]) == ("end", True)
    assert end["epoch"] < N_FILES - 1, "it ended by itself: the test proves nothing"
    assert jobs.check(jobs.read(job)).epoch == end["epoch"], "an epoch was committed after the end was reported"
    finish_and_verify(long_job, spark)


@pytest.mark.slow
def test_two_interrupts_stop_at_once(long_job: Workshop, spark: object) -> None:
    job = long_job.job()
    with running(job) as process:
        epochs_until(process, 1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        assert "stopping after the running epoch" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["epoch"] < N_FILES - 1
    finish_and_verify(long_job, spark)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupt_while_it_is_warming_up_ends_quietly(long_job: Workshop, number: int) -> None:
    made = long_job.folder / "ck" / "flow.json"
    with running(long_job.job()) as process:
        while not made.exists():  # it is made right before the workers are warmed up
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err
    Checkpoint(str(long_job.folder / "ck")).refuse_held()
