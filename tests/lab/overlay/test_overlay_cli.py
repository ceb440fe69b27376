"""`braid overlay` and `braid paper dhtjoin`: what they print, and the exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from braidstream.lab.papers.registry import Outcome, Run, find
from tests.cli.workshop import Braid
from tests.lab.papers.known import is_as_known

QUICK = ("--nodes", "32", "--duration", "20", "--query-every", "5", "--window", "8")


def test_simulate_prints_json_and_draws_a_picture(braid: Braid, tmp_path: Path) -> None:
    done = braid("overlay", "simulate", *QUICK, "--json", "--plot", str(tmp_path / "messages.png"))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["traffic"] == found["messages"]["index"] + found["messages"]["disseminate"] > 0
    assert sum(found["by_second"]["index"]) == found["messages"]["index"]
    assert (tmp_path / "messages.png").read_bytes().startswith(b"\x89PNG")


def test_simulate_prints_a_table(braid: Braid) -> None:
    done = braid("overlay", "simulate", *QUICK, "--method", "rjoin")
    assert done.code == 0, done.err
    assert re.search(r"messages: index\s+│\s+[\d,]+", done.out)
    assert "rjoin on 32 nodes" in done.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("simulate", "--method", "rjoim"), "did you mean 'rjoin'"),
        (("simulate", "--nodes", "0"), "0 nodes"),
        (("simulate", "--partners"), "memory"),
        (("simulate", "--outage", "S0:5"), "STREAM:FROM:TO"),
        (("simulate", "--outage", "S99:1:2"), "S99"),
        (("sweep", "fig9"), "did you mean"),
        (("scale", "--from", "9", "--to", "4"), "the smaller first"),
    ],
)
def test_wrong_input_is_exit_code_2_with_a_message(braid: Braid, arguments: tuple[str, ...], complaint: str) -> None:
    done = braid("overlay", *arguments)
    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


def test_scale_checks_its_claims(braid: Braid) -> None:
    done = braid("overlay", "scale", "--to", "9", "--json")
    assert done.code == 0, done.err
    assert [size["nodes"] for size in json.loads(done.out)["sizes"]] == [1 << power for power in range(4, 10)]


@pytest.mark.slow
@pytest.mark.spark
def test_sweep_on_spark_prints_what_it_prints_one_by_one(braid: Braid) -> None:
    arguments = ("overlay", "sweep", "fig7a", "--quick", "--seeds", "1", "--json")
    command = [sys.executable, "-m", "braidstream", *arguments, "--master", "local[2]"]
    on_spark = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert on_spark.returncode == 0, on_spark.stderr
    assert json.loads(on_spark.stdout) == json.loads(braid(*arguments, "--one-by-one").out)


@pytest.mark.parametrize(
    "figure",
    [
        *("sec6", "scale"),
        *(
            pytest.param(figure, marks=pytest.mark.slow)
            for figure in ("fig7a", "fig7b", "fig7c", "fig8", "fig8b", "fig9")
        ),
        pytest.param("sec5", marks=pytest.mark.acceptance),
    ],
)
def test_the_papers_claims_hold_as_far_as_is_known(figure: str) -> None:
    outcome: Outcome = find("dhtjoin", figure).function(Run(quick=True))
    assert is_as_known(f"dhtjoin {figure}", outcome)
    assert all(len(series.x) == len(series.y) for series in outcome.series)
