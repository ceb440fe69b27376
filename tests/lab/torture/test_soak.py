"""The long run with a fault every minute: its job file is valid, its growth is measured; a short one on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from braidstream import jobs
from braidstream.errors import InputError
from braidstream.lab.torture import soak as soaking
from braidstream.lab.torture.soak import DRIVER, SERIES, Clock, Soak, _due, _job, _session, soak
from braidstream.lab.torture.soak_picture import draw_soak
from tests.cli.workshop import Braid


def of(values: list[float]) -> Soak:
    return Soak(1.0, [(float(i), dict.fromkeys(SERIES, value)) for i, value in enumerate(values)], [(3.0, "x")])


def test_growth_is_the_last_third_beside_the_middle_one() -> None:
    assert set(of([900.0] * 3 + [100.0] * 6).growth().values()) == {1.0}
    assert set(of([1.0] * 3 + [100.0] * 3 + [250.0] * 3).growth().values()) == {2.5}


def test_a_leak_that_every_start_of_the_driver_hides_is_seen_within_its_life() -> None:
    """Memory grows for twenty minutes, and is small again after each start."""
    seconds = [5.0 * i for i in range(720)]
    seen = Soak(60.0, [(s, dict.fromkeys(SERIES, 100.0 + s % 1200)) for s in seconds])
    seen.faults = [(60.0, "a worker killed"), (1200.0, DRIVER), (2400.0, "ended with 1"), (3590.0, DRIVER)]
    assert 0.95 < seen.growth()["driver MB"] < 1.05
    lives = seen.growth_of_lives()
    assert len(lives) == 3  # the last is too short to tell
    assert all(life["driver MB"] > 1.4 for life in lives)


def leaking(name: str, per_s: float) -> Soak:
    """An hour in which one series grows, within lives of twenty minutes."""
    flat = dict.fromkeys(SERIES, 200.0)
    seconds = [5.0 * i for i in range(720)]
    samples = [(s, {**flat, name: 200.0 + per_s * (s % 1200)}) for s in seconds]
    return Soak(60.0, samples, [(1200.0, DRIVER), (2400.0, DRIVER)])


@pytest.mark.parametrize("name", [name for name in SERIES if name != "offset log"])
def test_a_leak_in_a_drivers_life_is_growth_and_noise_is_not(name: str) -> None:
    assert leaking(name, 0.0).grown() == []
    assert leaking(name, 0.03).grown() == []  # 6% in a third of a life, and few
    told = leaking(name, 0.5).grown()
    assert len(told) == 3
    assert all(name in one and "driver's life" in one for one in told)


def test_what_grows_over_all_lives_is_growth() -> None:
    seen = Soak(60.0, [(5.0 * i, dict.fromkeys(SERIES, 100.0 + i // 240 * 100)) for i in range(720)])
    seen.faults = [(1200.0, DRIVER), (2400.0, DRIVER)]
    assert {one.split(":")[0] for one in seen.grown()} == {"over all"}
    assert not any("offset log" in one for one in seen.grown())


def test_of_a_few_minutes_no_growth_is_told() -> None:
    """A process that is warming up grows."""
    seen = leaking("JVM MB", 5.0)
    assert Soak(3.0, seen.samples[:36]).grown() == []


@pytest.mark.parametrize(("per_s", "code"), [(0.0, 0), (0.5, 1)])
def test_the_command_ends_with_1_when_something_has_grown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], per_s: float, code: int
) -> None:
    monkeypatch.setattr(soaking, "soak", lambda *_: leaking("driver MB", per_s))
    told = Braid(capsys, monkeypatch)("torture", "--minutes", "60")
    assert told.code == code
    assert ("grown in the driver's life" in told.out) == bool(code)
    assert "all results are DuckDB's" in told.out


def test_the_clock_leaves_out_the_time_in_which_it_was_stopped() -> None:
    times = iter([100.0, 100.2, 104.5, 704.5, 704.7])
    clock = Clock(lambda: next(times))
    looks = [clock.look() for _ in range(4)]
    assert [round(now, 1) for now, _ in looks] == [0.2, 4.5, 4.5, 4.7]
    assert [pause for _, pause in looks] == [0.0, 0.0, 600.0, 0.0]


def test_a_driver_lives_for_twenty_minutes() -> None:
    assert [turn for turn in range(120) if _due(turn) == DRIVER] == [3, 23, 43, 63, 83, 103]
    assert len({_due(turn) for turn in range(4)}) == 3


def test_workers_whose_parent_was_killed_are_still_seen() -> None:
    orphan = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    command = ["sh", "-c", f'{sys.executable} -c "{orphan}"; sleep 60']
    leader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdin is not None
    assert leader.stdout is not None
    worker = int(leader.stdout.readline())
    parents = [process for process, words in _session(leader.pid) if words.endswith(b"read()\0")]
    for process in parents:
        os.kill(process, signal.SIGKILL)
    assert worker in dict(_session(leader.pid))
    for process in dict(_session(leader.pid)):
        with suppress(ProcessLookupError):  # of those killed above, one may end only now
            os.kill(process, signal.SIGKILL)
    leader.communicate()


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
    jobs.check(job)
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
