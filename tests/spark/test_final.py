"""`final`: a flow that ends for good, on Spark, in a job file and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.epoch.ending import is_ended
from braidstream.errors import InputError
from braidstream.model.faults import armed
from braidstream.spark.flow import Flow
from tests.spark import stage

pytestmark = pytest.mark.spark

TEXT = "SELECT R.v AS r, S.v AS s FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS] WHERE R.k = S.k"

LEFT = "SELECT R.v AS r, S.v AS s FROM R [RANGE 9 SECONDS] LEFT JOIN S [RANGE 9 SECONDS] ON R.k = S.k"


def flow_of(spark: SparkSession, folder: Path, out: Path) -> Flow:
    flow = stage.declare(Flow(spark, slots=2), {name: folder / name for name in "RS"})
    flow.query(TEXT, "q").to("parquet", path=str(out))
    return flow


def test_a_final_flow_closes_its_checkpoint_and_a_crash_at_its_end_is_made_up_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    epochs = stage.some_epochs(seed=3, n_epochs=2)
    stage.write(tmp_path / "in", epochs)
    flow = flow_of(spark, tmp_path / "in", tmp_path / "out")
    with armed("before-manifest:2:raise"):
        handle = flow.start(tmp_path / "ck", final=True)
        with pytest.raises(Exception, match="injected fault"):
            handle.await_termination()
    stage.write(tmp_path / "in", stage.some_epochs(seed=4, n_epochs=1))  # after the end: not read any more
    again = flow_of(spark, tmp_path / "in", tmp_path / "out").start(tmp_path / "ck", final=True)
    assert again.await_termination(60)
    assert is_ended(again.manifest)
    expected = stage.in_order((r["v"], s["v"]) for r, s in stage.pairs(epochs, (9, 9)))
    found = spark.read.parquet(str(tmp_path / "out")).select("r", "s").collect()
    assert stage.in_order(tuple(row) for row in found) == expected
    with pytest.raises(InputError, match="is closed: the flow ended for good") as caught:
        flow_of(spark, tmp_path / "in", tmp_path / "out").start(tmp_path / "ck")
    assert "new checkpoint" in caught.value.fix


def test_an_end_that_was_delivered_and_not_committed_is_not_left_where_nothing_goes_any_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The end is no epoch of Spark's log, but begun like one: what is put out then goes to where results go now."""
    stage.write(tmp_path / "in", stage.some_epochs(seed=3, n_epochs=2))

    def flow_to(out: str) -> Flow:
        flow = stage.declare(Flow(spark, slots=2), {name: tmp_path / "in" / name for name in "RS"})
        flow.query(LEFT, "q").to("parquet", path=str(tmp_path / out))
        return flow

    def ends(out: str) -> int:
        return len(list((tmp_path / out).glob("part-*-0000000002-*")))

    with armed("before-manifest:2:raise"):
        handle = flow_to("out").start(tmp_path / "ck", final=True)
        with pytest.raises(Exception, match="injected fault"):
            handle.await_termination()
    assert ends("out")
    again = flow_to("other").start(tmp_path / "ck", final=True)
    assert again.await_termination(60)
    assert is_ended(again.manifest)
    assert ends("other")
    assert not ends("out")


def test_only_input_that_ends_can_be_final(spark: SparkSession, tmp_path: Path) -> None:
    stage.write(tmp_path / "in", stage.some_epochs(seed=3, n_epochs=1))
    with pytest.raises(InputError, match="final with epoch '2 seconds'"):
        flow_of(spark, tmp_path / "in", tmp_path / "out").start(tmp_path / "ck", epoch="2 seconds", final=True)


def test_a_job_file_says_final_and_is_refused_where_its_input_goes_on(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    text = '[flow]\ncheckpoint = "ck"\nfinal = true\n{0}[streams.R]\nformat = "rate"\ntime = "timestamp"\n[queries.q]\n'
    text += 'cql = "SELECT 1"\nsink = {{ format = "noop" }}\n'
    job.write_text(text.format(""))
    assert jobs.read(job).flow.final
    job.write_text(text.format('epoch = "2 seconds"\n'))
    with pytest.raises(InputError, match="final with epoch"):
        jobs.read(job)
