"""The long run with a fault every minute: its job file is valid, its growth is measured; a short one on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidstream import jobs
from braidstream.errors import InputError
from braidstream.lab.torture.soak import SERIES, Soak, _job, soak
from braidstream.lab.torture.soak_picture import draw_soak


def of(values: list[float]) -> Soak:
    return Soak(1.0, [(float(i), dict.fromkeys(SERIES, value)) for i, value in enumerate(values)], [(3.0, "x")])


def test_growth_is_the_last_third_beside_the_middle_one() -> None:
    assert set(of([900.0] * 3 + [100.0] * 6).growth().values()) == {1.0}
    assert set(of([1.0] * 3 + [100.0] * 3 + [250.0] * 3).growth().values()) == {2.5}


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_soak(of([10.0, 20.0, 30.0]), tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000


@pytest.mark.parametrize("final", [False, True])
def test_the_job_is_a_valid_one(tmp_path: Path, final: bool) -> None:
    for name in "AB":
        (tmp_path / name).mkdir()
    (tmp_path / "job.toml").write_text(_job(3, final=final))
    job = jobs.read(tmp_path / "job.toml")
    assert set(job.queries) == {"pairs", "alone", "counts"}
    assert job.flow.slots == 3
    (tmp_path / "job.toml").write_text(_job(0, final=final))
    with pytest.raises(InputError):
        jobs.read(tmp_path / "job.toml")


@pytest.mark.acceptance
@pytest.mark.spark
def test_two_minutes_with_faults_give_what_duckdb_gives(tmp_path: Path) -> None:
    seen = soak(tmp_path, 2.2)
    assert not seen.wrong, seen.wrong
    assert [what for _, what in seen.faults][:2] == ["a worker killed", "all processes stopped for 4 s"]
    assert seen.results > 1000
