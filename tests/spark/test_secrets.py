"""A password in a sink's options is in no file of the checkpoint and in nothing that is said; `env:NAME` is kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.errors import BraidstreamError, InputError
from braidstream.lab.workloads import UniformKeys, write_stream
from braidstream.spark.flow import Flow

pytestmark = pytest.mark.spark
SECRET = "correct-horse-battery"
QUERY = "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 5 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"


def flow_of(spark: SparkSession, folder: Path, **options: str) -> Flow:
    flow = Flow(spark, slots=2, groups=4)
    for seed, name in enumerate("RS"):
        if not (folder / name).exists():
            write_stream(folder / name, rate=100, keys=UniformKeys(10), rows_per_file=100, seed=seed, n_rows=100)
        flow.files(name, folder / name, schema="k long, v long, ts timestamp", time="ts")
    flow.query(QUERY, name="q").to("noop", **options)
    flow.query(QUERY, name="files").to("csv", path=str(folder / "out"), **options)
    return flow


@pytest.mark.parametrize("how", ["plainly", "by its name"])
def test_no_file_and_no_text_has_the_secret(
    spark: SparkSession, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "braidstream")
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    value = SECRET if how == "plainly" else "env:TEST_TOKEN"
    for _ in range(2):
        flow = flow_of(spark, tmp_path, token=value)
        handle = flow.start(tmp_path / "ck", warm=False)
        handle.await_termination()
        assert not handle.changes  # a secret that is not kept is no change of the declaration
    said = [flow.explain(), handle.explain(), str(handle.progress), caplog.text]
    assert not [text for text in said if SECRET in text]
    files = [path for path in (tmp_path / "ck").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    kept = [path for path in (tmp_path / "ck" / "manifests").glob("*.root") if b"env:TEST_TOKEN" in path.read_bytes()]
    assert bool(kept) == (how == "by its name")


def test_a_failure_does_not_tell_it_and_a_variable_that_is_missing_is_wrong_input(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = flow_of(spark, tmp_path)
    flow.query(QUERY, name="bad").to(
        "jdbc", url=f"jdbc:nowhere://me:{SECRET}@db/x", dbtable="t", driver="no.such.Driver"
    )
    with pytest.raises(BraidstreamError) as caught:
        flow.start(tmp_path / "ck2", warm=False).await_termination()
    assert SECRET not in str(caught.value)
    assert not [p for p in (tmp_path / "ck2").rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    with pytest.raises(InputError, match="the environment has no NO_SUCH_VARIABLE"):
        flow_of(spark, tmp_path, token="env:NO_SUCH_VARIABLE")
