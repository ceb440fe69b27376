"""Training: phases are measured, the heuristic grows while compute limits, and the monitor switches for 20%."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from braidstream.cli import app, commands  # noqa: F401  (registers the commands)
from braidstream.errors import InputError, JobError
from braidstream.functions import StreamFunction, WindowBatch, stream_type
from braidstream.functions.fft import fft3_combine, fft3_part
from braidstream.functions.jobfile import read_tables
from braidstream.functions.templates import FunctionPlan
from braidstream.functions.training import Load, Measured, Monitor, Phases, Trained, measure, train, window_distribute
from braidstream.lab.papers.gsdm import sample_of
from braidstream.lab.papers.registry import Run, experiments, find
from braidstream.lab.workloads import append_files

F = "braidstream.functions.fft:fft3_part"
"""Some function that a job file may name."""


class Clock:
    """Moves only when user code says so: each window of the function costs `cost_s`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def costly(clock: Clock, cost_s: float) -> StreamFunction:
    def work(windows: WindowBatch) -> dict[str, Any]:
        clock.now += cost_s * len(windows)
        return {"v": windows["x"].real}

    return StreamFunction("work", work, stream_type("R", v="vector of float"))


def loads(partition: float, compute: float, combine: float, n: int = 2) -> Phases:
    return Phases(
        (
            Load("partition", 1, partition, 0.0, 0.0),
            Load("compute", n, compute, 0.0, 0.0),
            Load("combine", 1, combine, 0.0, 0.0),
        )
    )


def test_the_load_of_a_phase_is_that_of_its_most_loaded_node() -> None:
    clock = Clock()
    found = measure(window_distribute(costly(clock, 0.01), 4), sample_of(64, 4, 1), clock=clock)
    assert [round(load.total_s, 6) for load in found.phases.loads] == [0.0, 0.0025, 0.0]
    assert found.phases.most_loaded == "compute"
    assert found.phases.loads[0].bytes_out > 3 * 64 * 16
    assert found.phases.throughput("pipeline", 6) == pytest.approx(400)
    assert found.phases.throughput("stages", 2) == pytest.approx(200), "four nodes on two machines take two rounds"


def test_the_heuristic_grows_while_compute_is_the_most_loaded_and_nodes_are_left() -> None:
    clock = Clock()
    trained = train(costly(clock, 0.01), sample_of(64, 3, 1), nodes=10, model="pipeline", clock=clock)
    assert [m.plan.strategy for m in trained.measured] == ["Central", "WD2", "WD4", "WD8", "WD2x2"]
    assert trained.best.plan.strategy == "WD8"
    few = train(costly(clock, 0.01), sample_of(64, 3, 1), nodes=5, model="pipeline", clock=clock)
    assert few.best.plan.strategy == "WD2"


def test_the_heuristic_stops_when_another_phase_is_the_most_loaded() -> None:
    clock = Clock()

    def split(windows: WindowBatch, n: int, k: int) -> dict[str, Any]:
        clock.now += 0.004 * len(windows)
        return fft3_part(windows, n, k)

    trained = train(
        "fft3", sample_of(64, 3, 1), nodes=40, split=split, combine=fft3_combine, model="pipeline", clock=clock
    )
    assert [m.plan.strategy for m in trained.measured if m.plan.strategy.startswith("WS")] == ["WS2", "WS2x2"]


def test_central_is_best_for_one_node() -> None:
    clock = Clock()
    trained = train(costly(clock, 0.01), sample_of(64, 3, 1), nodes=1, clock=clock)
    assert trained.best.plan.strategy == "Central"


@pytest.mark.parametrize(
    ("seen", "chosen"),
    [
        pytest.param(loads(1, 12, 1), "WD4", id="the function became slower, so more nodes are worth their cost"),
        pytest.param(loads(1, 2, 1), None, id="nothing changed"),
        pytest.param(loads(5, 2, 5), None, id="what grew is what another plan does not save"),
    ],
)
def test_the_monitor_switches_for_a_gain_of_a_fifth(seen: Phases, chosen: str | None) -> None:
    monitor = Monitor({"WD2": loads(1, 2, 1), "WD4": loads(1.5, 1, 1.5, 4)}, nodes=4, model="stages", every=3)
    for _ in range(3):
        monitor.observe("WD2", seen)
    assert monitor.better("WD2") == chosen


def test_the_monitor_says_nothing_before_it_has_seen_anything() -> None:
    monitor = Monitor({"Central": loads(1, 2, 1)}, nodes=2)
    monitor.observe("Central", Phases((Load("compute", 1, 0.0, 0.0, 0.0),)))
    assert monitor.better("Central") is None


def test_plans_that_nobody_trained_are_run_in_turn_and_the_best_stays() -> None:
    monitor = Monitor({}, nodes=4, every=1, to_try=("Central", "WD2", "WD4"))
    seen = {"Central": loads(1, 12, 1), "WD2": loads(1, 6, 1, 2), "WD4": loads(1, 3, 1, 4)}
    current, ran = "Central", []
    for _ in range(6):
        ran.append(current)
        monitor.observe(current, seen[current])
        current = monitor.better(current) or current
    assert ran == ["Central", "WD2", "WD4", "WD4", "WD4", "WD4"]
    monitor.observe("WS2", seen["WD2"])
    assert monitor.better("WS2") is None


@pytest.mark.parametrize(
    ("options", "strategy", "others"),
    [
        ({"degrees": [2, 4]}, "WD2x4", []),
        ({"degrees": [2, 4], "split": F, "combine": F}, "WS2x4", []),
        ({"degrees": [2, 4], "split": F, "combine": F, "strategies": ["distribute", "split"]}, "WD2-WS4", []),
        ({"degrees": [2], "also": ["Central", "WD2x2"]}, "WD2", ["Central", "WD2x2"]),
        ({"split": F, "combine": F, "also": ["WS4", "WD2-WS2"]}, "Central", ["WS4", "WD2-WS2"]),
    ],
)
def test_a_job_file_says_what_each_level_does_and_which_plans_may_take_over(
    options: dict[str, Any], strategy: str, others: list[str]
) -> None:
    made = read_tables({"functions": {"f": {"stream": "s", "function": "fft3", **options}}}, "job.toml")[1]["f"]
    assert FunctionPlan.of(made.template()).strategy == strategy
    assert [FunctionPlan.of(one).strategy for one in made.others()] == others
    monitor = made.monitor(4)
    assert (monitor.to_try if monitor is not None else ()) == ((strategy, *others) if others else ())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"degrees": [2, 2], "strategies": ["split"]}, "one for each degree"),
        ({"degrees": [2], "strategies": ["split"]}, "split and combine"),
        ({"degrees": [2], "strategies": ["merge"]}, "a list of distribute, split"),
        ({"also": ["WX2"]}, "a short name"),
        ({"also": ["WS2"]}, "split and combine"),
    ],
)
def test_wrong_levels_and_plans_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(JobError) as refused:
        read_tables({"functions": {"f": {"stream": "s", "function": "fft3", **options}}}, "job.toml")
    assert expected in refused.value.expected


def test_wrong_training_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'stages'"):
        train("fft3", sample_of(64, 2, 1), nodes=2, model="stage")
    with pytest.raises(InputError, match="both functions"):
        train("fft3", sample_of(64, 2, 1), nodes=2, split=fft3_part)
    assert Trained((Measured(window(), loads(1, 1, 1), 1),), 1, "stages").best.plan.strategy == "WD2"


def window() -> Any:
    from braidstream.functions.templates import FunctionPlan

    return FunctionPlan.of(window_distribute("fft3", 2))


JOB = """
[streams.radio]
format = "parquet"
path = "radio"
time = "ts"

[functions.spectra]
stream = "radio"
function = "fft3"
size = 64
step = 32
split = "braidstream.functions.fft:fft3_part"
combine = "braidstream.functions.fft:fft3_combine"
"""


def test_braid_tune_prints_the_plans_and_the_best(tmp_path: Path) -> None:
    n, rng = 4000, np.random.default_rng(1)
    pairs = {f"{c}_{part}": rng.normal(size=n) for c in "xyz" for part in ("re", "im")}
    times = pa.array(np.arange(n)).cast(pa.timestamp("us", "UTC"))
    append_files(tmp_path / "radio", [pa.table({"ts": times, **pairs})])
    (tmp_path / "job.toml").write_text(JOB)
    ran = CliRunner().invoke(app, ["tune", str(tmp_path / "job.toml"), "--nodes", "4", "--windows", "60", "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert {"Central", "WD2", "WS2"} <= {plan["plan"] for plan in found["plans"]}
    assert found["best"] in {plan["plan"] for plan in found["plans"] if plan["fits"]}
    shown = CliRunner().invoke(app, ["tune", str(tmp_path / "job.toml"), "--windows", "60", "--nodes", "4"])
    assert "best for 4 nodes" in shown.stdout
    wrong = CliRunner().invoke(app, ["tune", str(tmp_path / "job.toml"), "--function", "spectrum"])
    assert isinstance(wrong.exception, InputError)
    after = '[functions.after]\nstream = "spectra"\nfunction = "fft3"\n'
    (tmp_path / "job.toml").write_text(JOB + after)
    later = CliRunner().invoke(app, ["tune", str(tmp_path / "job.toml"), "--function", "after", "--windows", "60"])
    assert "'after' takes the results of function 'spectra'" in str(later.exception)


def test_every_figure_of_the_paper_is_registered() -> None:
    figures = [found.figure for found in experiments("gsdm") if not found.figure.endswith("-spark")]
    assert figures == ["fig11", "fig12", "fig13", "fig14", "fig15", "table1"]


@pytest.mark.acceptance
def test_window_split_beats_window_distribute_at_six_nodes() -> None:
    outcome = find("gsdm", "fig15").function(Run(quick=True))
    speed = {series.label: dict(zip(series.x, series.y, strict=True)) for series in outcome.series}
    assert speed["WS"][6] > speed["WD"][6] > 3
