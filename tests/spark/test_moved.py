"""A checkpoint whose stream reads from another folder now: it is refused, by `check` and at the start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braidstream import CheckpointMismatch, Flow, jobs
from braidstream.model.directory import Directory
from braidstream.model.stores import shown_store
from braidstream.spark.moved import moved_streams
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest
from tests.cli.workshop import Braid, Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CQL = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
SCHEMA = "k long, v long, ts timestamp"


def logged(folder: Path, place: int, entries: dict[str, list[str]]) -> None:
    """A log of files as Spark writes it."""
    (folder / f"offsets/sources/{place}").mkdir(parents=True)
    for name, paths in entries.items():
        lines = [json.dumps({"path": path, "timestamp": 1, "batchId": 0}) for path in paths]
        (folder / f"offsets/sources/{place}/{name}").write_text("\n".join(["v1", *lines]))


def test_the_folder_that_was_read_is_found_in_the_log_of_spark(tmp_path: Path) -> None:
    logged(tmp_path, 0, {"0": ["file:///data/R%20a/x.parquet"], "1": []})
    logged(tmp_path, 1, {"0": ["file:///old/S/x.parquet"], "9.compact": ["file:/data/S/part=1/x.parquet"]})
    logged(tmp_path, 2, {"0": ["s3a://bucket/T/x.parquet"]})
    logged(tmp_path, 3, {})
    (tmp_path / "offsets/sources/3/0").write_text("v1\nno JSON at all")
    files = Checkpoint(str(tmp_path))
    right = {"R": "/data/R a", "S": "/data/S/", "T": "s3a://bucket/T", "U": "/data/U", "V": "/data/V", "W": None}
    assert moved_streams(files, right) == []
    assert moved_streams(files, {**right, "R": "/data/R", "S": "/data/[Q]", "T": "/data/T"}) == [
        ("R", "/data/R", "/data/R a")
    ]
    assert moved_streams(files, {**right, "T": "s3a://bucket/Q"}) == [("T", "s3a://bucket/Q", "s3a://bucket/T")]


PARTS_OF_JOB = {
    "R": '[streams.R]\nformat = "parquet"\npath = "R"\nschema = "k long, v double, ts timestamp"\ntime = "ts"\n',
    "S": '[streams.S]\nformat = "parquet"\npath = "S"\nschema = "k long, v double, ts timestamp"\ntime = "ts"\n',
    "function": '[functions.f]\nstream = "S"\nfunction = "fft3"\nsink = { format = "noop" }\n',
    "aligned": '[functions.f]\nstream = "S"\nbeside = ["R"]\nfunction = "fft3"\nsink = { format = "noop" }\n',
    "query": f'[queries.q]\ncql = "{CQL}"\nsink = {{ format = "noop" }}\n',
}


@pytest.mark.parametrize(
    ("parts", "declared", "read"),
    [
        ("R S query", "R S", "R S"),
        ("S R query", "R S", "R S"),
        ("R S function", "S", "S"),
        ("R S aligned", "S_R", "S R"),
    ],
    ids=["as they were", "in another order in the file", "one is read", "two are read, one beside the other"],
)
def test_sources_are_told_by_what_is_read_and_not_by_the_order_of_the_file(
    tmp_path: Path, parts: str, declared: str, read: str
) -> None:
    for name in "RS":
        (tmp_path / name).mkdir()
    store = Checkpoint(str(tmp_path / "ck"))
    streams = {name: {"schema": "", "time": "ts"} for name in declared.split()}
    store.create(Identity.new("job", streams, {}), Manifest(-1, Directory.of(1), 1))
    for place, name in enumerate(read.split()):
        logged(tmp_path / "ck", place, {"0": [(tmp_path / name / "x.parquet").as_uri()]})
    text = '[flow]\ncheckpoint = "ck"\n' + "".join(PARTS_OF_JOB[part] for part in parts.split())
    (tmp_path / "job.toml").write_text(text)
    jobs.check(jobs.read(tmp_path / "job.toml"))
    moved = text.replace('path = "S"', 'path = "T"')
    (tmp_path / "T").mkdir()
    (tmp_path / "job.toml").write_text(moved)
    with pytest.raises(CheckpointMismatch, match=r"stream 'S' reads .*T, and the checkpoint .*ck has read .*S\n"):
        jobs.check(jobs.read(tmp_path / "job.toml"))


@pytest.mark.spark
def test_streams_in_another_order_are_the_streams_that_they_were(tmp_path: Path, spark: SparkSession) -> None:
    workshop = Workshop.make(tmp_path, files=2, rows_per_file=50)
    kept = sorted((tmp_path / "R").iterdir())[1].rename(tmp_path / "later")
    for names in ("RS", "SR"):
        flow = Flow(spark, "pairs", slots=2, groups=8)
        for name in names:
            flow.files(name, tmp_path / name, schema=SCHEMA, time="ts", delay="1 minute")
        flow.query(CQL, "pairs").to("parquet", path=str(tmp_path / "out" / "pairs"))
        assert flow.start(tmp_path / "ck", warm=False).await_termination(120)
        if kept.exists():
            kept.rename(tmp_path / "R" / "later.parquet")
    assert workshop.verify()


@pytest.mark.spark
def test_a_changed_path_on_an_old_checkpoint_is_refused_by_check_and_start(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=50)
    shutil.copytree(tmp_path / "S", tmp_path / "T")

    def run(path: str) -> None:
        flow = Flow(spark, "pairs", slots=2, groups=8)
        for name, folder in (("R", "R"), ("S", path)):
            flow.files(name, tmp_path / folder, schema=SCHEMA, time="ts")
        flow.query(CQL, "pairs").to("noop")
        assert flow.start(tmp_path / "ck", warm=False).await_termination(120)

    run("S")
    run("S")
    changed = workshop.job(('path = "S"', 'path = "T"'), ('"parquet", path = "out/pairs"', '"noop"'))
    outcome = Braid(capsys, monkeypatch)("check", changed)
    assert outcome.code == 2, outcome
    assert "stream 'S' reads" in outcome.err
    with pytest.raises(CheckpointMismatch, match=r"'S' reads .*T, and the checkpoint .*ck has read .*S\n"):
        run("T")
    shutil.rmtree(tmp_path / "S")
    (tmp_path / "S").symlink_to(tmp_path / "T")
    run("S")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("query1:2612827c02c1:-1:totals", "the totals of query1"),
        ("q:2612827c02c1:14:leases", "the extremes of q"),
        ("q:2612827c02c1:14:R", "the summaries of R of q"),
        ("q:2612827c02c1:-1:composites@1000", "the composites of q@1000"),
        ("R(k)", "R(k)"),
        ("q:(R,S)", "q:(R,S)"),
    ],
)
def test_what_aggregates_keep_is_shown_by_the_name_of_the_query(name: str, shown: str) -> None:
    assert shown_store(name) == shown
