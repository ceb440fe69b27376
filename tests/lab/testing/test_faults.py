"""Fault points strike where the environment says, and nowhere else; each case is a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from braidstream.errors import InputError
from braidstream.model import faults
from braidstream.model.faults import ONCE_VARIABLE, POINTS, VARIABLE, Fault, InjectedFault, armed, reach

STORY = """
from braidstream.model.faults import reach
for epoch in range(4):
    reach("epoch-start", epoch=epoch)
    print(f"joined {epoch}", flush=True)
    reach("compaction")
    print(f"wrote {epoch}", flush=True)
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in {VARIABLE, ONCE_VARIABLE}}
    return subprocess.run(
        [sys.executable, "-c", STORY], env=inherited | environment, capture_output=True, text=True, check=False
    )


def test_nothing_happens_without_the_variable() -> None:
    child = run()
    assert child.returncode == 0
    assert child.stdout.splitlines()[-1] == "wrote 3"


def test_kill_strikes_at_its_epoch() -> None:
    child = run(BRAIDSTREAM_FAULT="epoch-start:2:kill")
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.splitlines()[-1] == "wrote 1"


def test_without_an_epoch_the_number_counts_visits_from_one() -> None:
    child = run(BRAIDSTREAM_FAULT="compaction:2:kill")
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.splitlines()[-1] == "joined 1"


def test_raise_raises() -> None:
    child = run(BRAIDSTREAM_FAULT="epoch-start:0:raise")
    assert child.returncode == 1
    assert child.stdout == ""
    assert "InjectedFault: injected fault at 'epoch-start', number 0" in child.stderr


def test_with_a_marker_file_the_same_command_goes_through_the_second_time(tmp_path: Path) -> None:
    environment = {VARIABLE: "epoch-start:2:kill", ONCE_VARIABLE: str(tmp_path / "struck")}
    assert run(**environment).returncode == -signal.SIGKILL
    assert run(**environment).returncode == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch-begin:1:kill", "names no fault point: 'epoch-begin'"),
        ("epoch-start:1:burn", "names no action: 'burn'"),
        ("epoch-start:kill", "point:number:action"),
        ("epoch-start:-1:kill", "point:number:action"),
        ("epoch-start:one:kill", "point:number:action"),
    ],
)
def test_a_fault_that_cannot_be_read_is_refused_at_the_start(text: str, said: str) -> None:
    child = run(BRAIDSTREAM_FAULT=text)
    assert child.returncode == 1
    assert child.stdout == ""
    assert said in child.stderr


def test_a_misspelt_point_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'before-manifest'"):
        Fault.parse("before-manifests:1:kill")


@pytest.mark.parametrize("point", POINTS)
def test_every_point_can_strike_in_this_process(point: str) -> None:
    with armed(f"{point}:5:raise"):
        reach(point, epoch=4)
        with pytest.raises(InjectedFault) as struck:
            reach(point, epoch=5)
    assert (struck.value.point, struck.value.number) == (point, 5)
    reach(point, epoch=5)


def test_an_unknown_point_in_the_code_is_refused_when_a_fault_is_armed() -> None:
    with armed("compaction:1:raise"), pytest.raises(InputError, match="no fault point is named 'lunch'"):
        reach("lunch")
    assert faults._fault is None


def test_an_injected_fault_survives_the_way_from_a_worker() -> None:
    fault = pickle.loads(pickle.dumps(InjectedFault("task-start", 3)))
    assert (fault.point, fault.number) == ("task-start", 3)
