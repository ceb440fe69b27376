"""The examples run as they are, from anywhere, and say what they promise."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples in it: they write beside it."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(*command: str | Path) -> str:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=True).stdout


def test_one_line_and_the_job_file_give_the_same_matches(clone: Path) -> None:
    assert "379832 matches" in run(clone / "examples/one_line.py")
    assert "379832 matches" in run(clone / "examples/one_line.py"), "a second run goes on, and finds nothing new"
    shown = run("-m", "braidstream", "run", clone / "examples/job.toml")
    assert "379,832 (pairs 379,832)" in shown


def test_the_overlay_loses_what_memory_and_failures_take_and_partners_bring_some_back(clone: Path) -> None:
    shown = run(clone / "examples/overlay.py")
    assert "6639 results" in shown
    told = {line.split(":")[0]: int(line.split(":")[1].split("%")[0]) for line in shown.splitlines() if "% of" in line}
    assert told["the busiest peer fails after 30 s"] < 100
    assert told["the same, with partners"] >= told["room for 25 tuples a peer"] + 20
    assert "equation 12 says 20 peers" in shown


def test_late_rows_go_to_their_own_output(clone: Path) -> None:
    shown = run(clone / "examples/late_rows.py")
    assert "epoch 1: order 4 (milk) was paid by cash" in shown
    assert "too late: [(5, 'bread')]" in shown


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("attribution", "verified: never_clicked"),
        ("payments", "verified: unpaid"),
        ("sensors", "the ringing is the loudest from second"),
        ("trades", "trades, identical to the batch answer"),
        ("near_duplicates", "there are 1432"),
    ],
)
def test_an_example_verifies_its_answer_and_draws_it(clone: Path, example: str, said: str) -> None:
    shown = run(clone / "examples" / f"{example}.py")
    assert "verified: " in shown
    assert said in shown
    assert (clone / "build" / "examples" / f"{example.replace('_', '-')}.png").stat().st_size > 10_000


def test_a_function_feeds_a_query_in_one_job_file(clone: Path) -> None:
    shown = run(clone / "examples/machines.py")
    assert "0-functions-sound: 3 epochs" in shown
    assert "verified: " in shown
    assert "sound" in run("-m", "braidstream", "state", clone / "build/examples/machines-checkpoint")


def test_orders_are_enriched_from_the_table_of_their_time(clone: Path) -> None:
    shown = run(clone / "examples/orders.py")
    assert "order 2 of Blaise of Paris: 5.5 by card" in shown
    assert "order 1 of Ada of London: 20.0 by cash" in shown, "it was read when she lived there"
    assert "order 4 of Ada of Oxford: 1.0 by card" in shown
    assert "order 3 of somebody: 9.0 by card" in shown
    assert "order 5 of Carl of Berlin: 2.0 by cash" in shown
    assert "verified: " in shown
