"""The controller of a job file: on unless it says otherwise, and nothing in `[control]` without effect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import braidstream
from braidstream import jobs
from braidstream.control.settings import Settings
from braidstream.errors import JobError
from braidstream.spark.flow import Flow
from tests.cli.workshop import JOB, Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(folder: Path, control: str, epoch: str = "available") -> jobs.Job:
    path = folder / "job.toml"
    path.write_text(JOB.replace('epoch = "available"', f'epoch = "{epoch}"') + control, encoding="utf-8")
    return jobs.read(path)


def test_the_controller_is_on_unless_the_job_says_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path, "").control == Settings()
    assert read(tmp_path, "[control]\nevery = 3\n").control == Settings(every=3)
    assert read(tmp_path, "[control]\nenabled = true\n").control == Settings()
    assert read(tmp_path, "[control]\nenabled = false\nevery = 3\n").control is None
    off = JOB.replace("slots = 2", "slots = 2\ncontroller = false")
    for table in ("", "[control]\nenabled = false\n"):
        (tmp_path / "off.toml").write_text(off + table, encoding="utf-8")
        assert jobs.read(tmp_path / "off.toml").control is None
    (tmp_path / "off.toml").write_text(off + "[control]\nevery = 3\n", encoding="utf-8")
    with pytest.raises(JobError, match=r"controller = false, and a table \[control\]"):
        jobs.read(tmp_path / "off.toml")


def test_settings_have_the_names_of_the_controllers(tmp_path: Path) -> None:
    table = (
        '[control]\nenabled = true\nevery = 3\nmargin = 0.1\nmin_span_s = 5\nchoice = "random"\ndeclustering = true\n'
    )
    expected = Settings(every=3, margin=0.1, min_span_s=5, choice="random", declustering=True)
    assert read(tmp_path, table, "2 seconds").control == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("evry = 3\nenabled = true", r"unknown option \[control\] evry\n.*\n.*'every'"),
        ("enabled = 1", r"\[control\] enabled is 1\n  expected: true or false"),
        ('enabled = true\nevery = "3"', r"\[control\] every is '3'\n  expected: a whole number"),
        ("enabled = true\nevery = true", r"\[control\] every is true\n  expected: a whole number"),
        ("enabled = true\nevery = 0", r"\[control\] every is 0\n  expected: a whole number of at least 1"),
        ("enabled = false\nbeta = 2.0", r"\[control\] beta is 2.0\n  expected: a number above 0, below 1"),
        ("enabled = true\ndeclustering = true", r"declustering has no epoch length to go by"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(JobError, match=message) as refused:
        read(tmp_path, f"[control]\n{table}\n")
    assert "job.toml" in str(refused.value)


def test_control_must_be_a_table(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f"control = true\n{JOB}", encoding="utf-8")
    with pytest.raises(JobError, match=r"\[control\] is True\n  expected: a table"):
        jobs.read(path)


@pytest.mark.spark
def test_a_job_with_a_controller_runs_under_it(spark: SparkSession, tmp_path: Path) -> None:
    shop = Workshop.make(tmp_path, files=4)
    job = read(shop.folder, "[control]\nenabled = true\nevery = 2\nsplit_above = 0.02\nmerge_below = 0.0\n")
    handle = jobs.start(job, spark)
    handle.await_termination()
    reorganizer = handle._runner.flow.decider.reorganizer
    assert reorganizer is not None
    assert reorganizer.controller.settings.every == 2
    assert handle.manifest.notes.controller.base_groups is not None
    assert {decision.epoch for decision in handle.decisions} <= {1, 3}


@pytest.mark.spark
def test_flows_and_one_line_joins_are_controlled_unless_told_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    views = spark.readStream.schema("k long, ts timestamp").parquet(str(tmp_path))
    clicks = views.withColumnRenamed("k", "k2")

    def one_line(**more: bool) -> Flow:
        return braidstream.join(views, clicks, on=[("k", "k2")], within="1 minute", **more).flow

    assert all(flow.controller is not None for flow in (Flow(spark), one_line()))
    assert all(flow.controller is None for flow in (Flow(spark, controller=False), one_line(controller=False)))
    assert [Flow(spark).groups_over(slots) for slots in (2, 8, 9, 48)] == [64, 64, 128, 512]
    assert Flow(spark, groups=5).groups_over(48) == 5
