"""Stream functions from a job file: checked, explained and run by the same commands as queries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.lab.workloads import append_files
from tests.cli.workshop import Braid

SIZE, STEP, N = 64, 32, 1000
MODULE = """
import numpy as np
from braidstream.functions import stream_function

@stream_function(gives={"energy": "float"}, takes={"ts": "timestamp", "x": "vector of float"})
def energy_of_job(batch):
    return {"energy": np.square(batch["x"]).sum(axis=1)}
"""
JOB = """
[flow]
name = "energy"
checkpoint = "ck"

[streams.radio]
format = "parquet"
path = "radio"
schema = "ts timestamp, x double"
time = "ts"
options = { maxFilesPerTrigger = "1" }

[types.SAMPLE]
ts = "timestamp"
x = "float"

[functions.energy]
stream = "radio"
type = "SAMPLE"
function = "beside_the_job:energy_of_job"
size = 64
step = 32
degrees = [2]
sink = { format = "parquet", path = "out" }
"""


def a_job(folder: Path, *changes: tuple[str, str]) -> str:
    text = JOB
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "beside_the_job.py").write_text(MODULE)
    (folder / "job.toml").write_text(text)
    return str(folder / "job.toml")


def samples(folder: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Samples a millisecond apart, in three files; gives their values."""
    values = np.random.default_rng(7).normal(size=N)
    table = pa.table({"ts": pa.array(np.arange(N) * 1000, pa.timestamp("us", "UTC")), "x": values})
    append_files(folder / "radio", [table.slice(begin, 400) for begin in range(0, N, 400)])
    return values


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_function_with_a_module_beside_the_job_gives_every_window_in_order(braid: Braid, tmp_path: Path) -> None:
    values = samples(tmp_path)
    checked = braid("check", a_job(tmp_path))
    assert checked.code == 0, checked
    assert "functions: energy" in checked.out
    assert "queries" not in checked.out
    explained = braid("explain", a_job(tmp_path))
    assert "function energy: energy_of_job gives" in explained.out
    outcome = braid("run", a_job(tmp_path))
    assert outcome.code == 0, outcome
    windows = np.lib.stride_tricks.sliding_window_view(values, SIZE)[::STEP]
    assert f"results     {len(windows)} (" in outcome.out
    found = pa.concat_tables([pq.read_table(file) for file in sorted((tmp_path / "out").glob("*.parquet"))])
    assert found.sort_by("seq").column("energy").to_numpy() == pytest.approx(np.square(windows).sum(axis=1))
    again = braid("run", a_job(tmp_path), "--json")
    assert json.loads(again.out.splitlines()[-1])["epochs"] == 0


LATER = """
[functions.mean]
stream = "energy"
function = "beside_the_job:mean_of_job"
size = 3
degrees = [2]
sink = { format = "parquet", path = "means" }
"""
MEAN = """
@stream_function(gives={"mean": "float"}, takes={"energy": "vector of float"})
def mean_of_job(batch):
    return {"mean": batch["energy"].mean(axis=1)}
"""


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_function_of_a_job_takes_the_results_of_another(braid: Braid, tmp_path: Path) -> None:
    """Declared in any order; the first needs no sink."""
    values = samples(tmp_path)
    (tmp_path / "chain_of_job.py").write_text(MODULE + MEAN)
    job = a_job(
        tmp_path,
        ("[functions.energy]", LATER + "\n[functions.energy]"),
        ('sink = { format = "parquet", path = "out" }', ""),
        ("beside_the_job:", "chain_of_job:"),
    )
    assert "functions: energy, mean" in braid("check", job).out
    assert "results of energy" in braid("explain", job).out
    outcome = braid("run", job)
    assert outcome.code == 0, outcome
    energies = np.square(np.lib.stride_tricks.sliding_window_view(values, SIZE)[::STEP]).sum(axis=1)
    means = energies[: len(energies) // 3 * 3].reshape(-1, 3).mean(axis=1)
    found = pa.concat_tables([pq.read_table(file) for file in sorted((tmp_path / "means").glob("*.parquet"))])
    assert found.column("mean").to_numpy() == pytest.approx(means)
    assert not (tmp_path / "out").exists()
    Path(job).write_text(Path(job).read_text().replace('stream = "energy"', 'stream = "energies"'))
    refused = braid("check", job)
    assert refused.code == 2
    assert "[functions.mean] stream is 'energies'" in refused.err
    assert "did you mean 'energy'" in refused.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('stream = "radio"', 'stream = "radia"'), ("[functions.energy] stream is 'radia'", "radio")),
        (('sink = { format = "parquet", path = "out" }', ""), ("[functions.energy] sink is missing",)),
        (('sink = { format = "parquet", ', 'sink = { form = "parquet", '), ("unknown option [functions.energy.sink]",)),
        (("energy_of_job", "energie_of_job"), ("beside_the_job has no 'energie_of_job'", "energy_of_job")),
        (('path = "out"', 'path = "radio"'), ("is also [streams.radio] path",)),
        (
            ("[types.SAMPLE]", '[queries.q]\ncql = "SELECT"\n[types.SAMPLE]'),
            ("[queries.q] sink is missing",),
        ),
        (('x = "float"', 'x = "flaot"'), ("[types.SAMPLE]", "flaot")),
    ],
)
def test_wrong_function_jobs_are_refused_with_their_place(
    braid: Braid, tmp_path: Path, change: tuple[str, str], words: tuple[str, ...]
) -> None:
    samples(tmp_path)
    outcome = braid("check", a_job(tmp_path, change))
    assert outcome.code == 2, outcome
    for word in words:
        assert word in outcome.err
    assert not (tmp_path / "ck").exists()
