"""Results: what a run leaves behind, kept and read again."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from braidstream.errors import InputError
from braidstream.lab.papers.registry import Outcome, Run, Series
from braidstream.lab.papers.results import Result, attempt, keep, kept, run
from tests.lab.papers.invented import FAILS, HOLDS, HOLDS_NOT, invented


def test_a_kept_result_says_what_the_run_said(tmp_path: Path) -> None:
    result = run(HOLDS, Run(quick=True, seed=7))
    path = keep(result, tmp_path)
    assert path.name == "wsj-fig5.quick.json"
    again = Result.from_json(json.loads(path.read_text()))
    assert again.as_json() == result.as_json()
    assert (again.status, again.quick, again.seed) == ("held", True, 7)
    assert again.declared.stated == {"delay (s)": 2.0, "rate": 4000.0}
    assert math.isnan(again.outcome.series[0].y[1])
    assert again.outcome.series[1].is_model


def test_the_file_is_json_that_any_reader_takes(tmp_path: Path) -> None:
    outcome = Outcome(
        bool(np.bool_(True)), [Series("s", np.arange(2), [np.float64(1), np.inf])], ours={"n": np.int64(3)}
    )
    text = keep(run(invented("fig5", outcome), Run()), tmp_path).read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["series"][0]["y"] == [1.0, None]
    assert found["ours"] == {"n": 3}
    assert {"paper", "figure", "claim", "holds", "how", "series"} <= set(found)


@pytest.mark.parametrize(
    ("chosen", "status", "holds"), [(HOLDS, "held", True), (HOLDS_NOT, "did not hold", False), (FAILS, "failed", False)]
)
def test_an_attempt_always_gives_a_result(chosen: object, status: str, holds: bool) -> None:
    result = attempt(chosen, Run())  # type: ignore[arg-type]
    assert (result.status, result.as_json()["holds"]) == (status, holds)


def test_a_failure_keeps_its_reason(tmp_path: Path) -> None:
    keep(attempt(FAILS, Run()), tmp_path)
    (result,) = kept(tmp_path).values()
    assert result.reason == "RuntimeError: no [memory] left"
    assert "Traceback" in result.error


def test_of_two_runs_the_full_one_is_taken_unless_told_otherwise(tmp_path: Path) -> None:
    for quick in (False, True):
        keep(run(HOLDS, Run(quick=quick)), tmp_path)
    assert [one.quick for one in kept(tmp_path).values()] == [False]
    assert [one.quick for one in kept(tmp_path, quick_only=True).values()] == [True]


@pytest.mark.parametrize("text", ["", "[]", '{"paper": "wsj"}', '{"series": 3}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "wsj-fig5.full.json").write_text(text)
    with pytest.raises(InputError, match=r"wsj-fig5\.full\.json is no result"):
        kept(tmp_path)


def test_a_result_names_no_host() -> None:
    import getpass
    import platform

    text = json.dumps([dict(run(HOLDS, Run()).machine), dict(run(HOLDS, Run()).versions)])
    assert platform.node() not in text
    assert f'"{getpass.getuser()}"' not in text
