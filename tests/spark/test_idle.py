"""`idle` of a stream: how it is said, shown and refused; what it does is in tests/kernels/test_idle.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.errors import InputError, StreamError
from braidstream.spark.flow import Flow
from tests.spark import stage
from tests.spark.test_intervals import JOB

pytestmark = pytest.mark.spark


def test_an_idle_stream_is_shown_and_a_wrong_length_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    paths = stage.write(tmp_path / "in", stage.some_epochs(seed=1, n_epochs=2))
    flow = Flow(spark, slots=2)
    flow.files("R", paths["R"], schema=stage.DDL, time="ts", idle="10 minutes")
    frame = spark.readStream.schema(stage.DDL).parquet(str(paths["S"]))
    flow.stream("S", frame, time="ts", delay="90 seconds", idle="0 seconds")
    query = flow.query("SELECT R.v AS v FROM R [RANGE 9 SECONDS], S [RANGE 9 SECONDS] WHERE R.k = S.k").to("memory")
    assert "the watermark goes on without it after 10 minutes of silence" in flow.explain()
    handle = flow.start(tmp_path / "ck")
    handle.await_termination()
    assert handle.progress[-1].idle in ((), ("S",))
    assert query.table() is not None
    with pytest.raises(StreamError, match="idle"):
        Flow(spark).files("R", paths["R"], schema=stage.DDL, time="ts", idle="soon")


def test_a_job_file_says_idle(tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    text = JOB.format(text="SELECT 1").replace(
        'time = "ts"\n[streams.S]', 'time = "ts"\nidle = "10 minutes"\n[streams.S]'
    )
    job.write_text(text)
    assert jobs.read(job).streams["R"].idle == "10 minutes"
    job.write_text(text.replace("10 minutes", "a while"))
    with pytest.raises(InputError, match="idle"):
        jobs.read(job)
