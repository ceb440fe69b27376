"""Killed while Spark writes its log: whatever is on the disk then, the next start goes on, and no result is lost.

A trace of the system calls (strace) of a run shows how both of Spark's file managers write each entry: they open
`.NAME.UUID.tmp` and `..NAME.UUID.tmp.crc`, write and close them, rename the first and then the second. An epoch writes
the entries of its sources, of its offsets and of its commit, the first epoch the metadata before. A kill leaves the
entries up to one, and that one in one of these steps; here these folders are made from those of a real run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.testing.script import Script
from braidstream.lab.workloads import STREAM_SCHEMA
from braidstream.spark.flow import Flow
from tests.spark.child import DDL, QUERY, WINDOW_SECONDS
from tests.spark.test_crash import rows

pytestmark = pytest.mark.spark

STEPS = ("begun", "with its sum", "half written", "closed", "renamed", "done", "empty after a power failure")


def start(spark: SparkSession, folder: Path, *, direct: bool) -> None:
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        if direct:
            flow.files(name, folder / name, schema=DDL, time="ts")
        else:
            flow.stream(name, spark.readStream.schema(DDL).parquet(str(folder / name)), time="ts")
    flow.query(QUERY, name="q").to("parquet", path=str(folder / "out"))
    flow.start(folder / "ck", warm=False).await_termination(120)


def torn(log: Path, name: str, whole: bytes, step: str) -> None:
    """The entry in one of the steps of writing it."""
    path = log / name
    path.parent.mkdir(parents=True, exist_ok=True)
    on_its_way = path.with_name(f".{path.name}.5a5a.tmp")
    its_sum = path.with_name(f"..{path.name}.5a5a.tmp.crc")
    if step not in ("begun", "done"):
        its_sum.write_bytes(b"" if "written" in step or "with" in step else b"crc\0")
    if step in ("renamed", "done"):
        path.write_bytes(whole)
    elif step.startswith("empty"):
        path.write_bytes(b"")
    else:
        size = {"closed": len(whole), "half written": len(whole) // 2}.get(step, 0)
        on_its_way.write_bytes(whole[:size])


def states(before: Path, after: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Each entry that the epoch wrote, each step, and the entries before it."""
    names = ["metadata", "sources/0/{}", "sources/1/{}", "offsets/{}", "commits/{}"]
    epoch = len(list((before / "offsets" / "offsets").glob("[0-9]*")))
    wrote = [name.format(epoch) for name in names]
    wrote = [name for name in wrote if not (before / "offsets" / name).exists()]
    assert all((after / "offsets" / name).exists() for name in wrote)
    for i, name in enumerate(wrote):
        for step in STEPS:
            yield name, step, wrote[:i]


def shoot(folder: Path, name: str) -> None:
    for source in (folder / "ck", folder / "out"):
        shutil.copytree(source, folder / "shots" / name / source.name)


def run_twice(spark: SparkSession, folder: Path, n_before: int, *, direct: bool) -> None:
    """Copies of checkpoint and results, before the last epoch and after it."""
    script = Script(folder, dict.fromkeys("RS", STREAM_SCHEMA), [rows(epoch) for epoch in range(n_before + 1)])
    for _ in script.acts():
        pass
    last = [folder / name / f"{n_before:05d}.parquet" for name in "RS"]
    for path in last:
        path.rename(folder / f"{path.parent.name}-{path.name}")
    if n_before:
        start(spark, folder, direct=direct)
    else:
        (folder / "ck").mkdir()
        (folder / "out").mkdir()
    shoot(folder, "before")
    for path in last:
        (folder / f"{path.parent.name}-{path.name}").rename(path)
    start(spark, folder, direct=direct)
    shoot(folder, "after")


def place(folder: Path, name: str, step: str, whole: list[str], *, is_first: bool) -> None:
    """What is on the disk when an entry is in one of its steps, and others are there already."""
    ck, out, shots = folder / "ck", folder / "out", folder / "shots"
    is_done = name.startswith("commits")
    for target in (ck, out):
        shutil.rmtree(target)
        shutil.copytree(shots / ("after" if is_done else "before") / target.name, target)
    if is_first and not is_done:  # before the first epoch the checkpoint was made, and the sink claimed
        shutil.copytree(shots / "after" / "ck", ck, dirs_exist_ok=True, ignore=shutil.ignore_patterns("offsets*"))
        (ck / "manifests" / "0000000001.root").unlink()
        shutil.copy(shots / "after" / "out" / "_braidstream.json", out)
    if is_done:
        (ck / "offsets" / name).unlink()
    for entry in [*whole, name]:
        content = (shots / "after" / "ck" / "offsets" / entry).read_bytes()
        torn(ck / "offsets", entry, content, step if entry == name else "done")


def check_states(spark: SparkSession, folder: Path, n_before: int, *, direct: bool, most: int | None = None) -> None:
    run_twice(spark, folder, n_before, direct=direct)
    found = list(states(folder / "shots" / "before" / "ck", folder / "shots" / "after" / "ck"))
    if most is not None:
        always = [entry for entry in found if entry[:2] == (f"offsets/{n_before}", "half written")]
        found = [*always, *Random(7).sample(found, most)]
    for name, step, whole in found:
        place(folder, name, step, whole, is_first=n_before == 0)
        start(spark, folder, direct=direct)
        check_output(folder, f"{name} {step}")


def check_output(folder: Path, state: str) -> None:
    streams = [BatchStream(name, folder / name, WINDOW_SECONDS * 1_000_000) for name in "RS"]
    expected = batch_join(streams, [("R.k", "S.k")], {"k": "R.k", "rv": "R.v", "sv": "S.v"})
    difference = same_rows(folder / "out", expected)
    assert difference, f"{state}: {difference}"


def test_a_kill_while_spark_writes_its_first_entries(spark: SparkSession, tmp_path: Path) -> None:
    check_states(spark, tmp_path, 0, direct=True, most=2)


@pytest.mark.slow
@pytest.mark.parametrize("direct", [True, False], ids=["FileSystem manager", "FileContext manager"])
@pytest.mark.parametrize("n_before", [0, 1])
def test_a_kill_at_each_step_of_spark_s_file_managers(
    spark: SparkSession, tmp_path: Path, n_before: int, direct: bool
) -> None:
    check_states(spark, tmp_path, n_before, direct=direct)
