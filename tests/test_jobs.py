"""Job files: what is read, what is refused at which place, and how a job becomes a flow."""

from __future__ import annotations

import os
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braidstream import jobs
from braidstream.errors import InputError, JobError, QueryError, SinkError
from braidstream.jobs.checking import Checked
from tests.cli.workshop import JOB, Workshop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_form_of_a_job_is_read_as_it_is_written(tmp_path: Path) -> None:
    """The job of the documentation, with every option."""
    text = JOB.replace("groups = 8", "groups = 8\nkeep = 5").replace(
        'path = "out/pairs" }', 'path = "out/pairs" }\nlate = { format = "json", path = "out/late" }'
    )
    job = jobs.read(write(tmp_path, text + '\n[spark]\nmaster = "local[3]"\nspark.sql.shuffle.partitions = 7\n'))
    assert (job.flow.name, job.flow.epoch, job.flow.slots, job.flow.groups, job.flow.keep) == (
        "pairs",
        "available",
        2,
        8,
        5,
    )
    assert list(job.streams) == ["R", "S"]
    assert job.streams["R"].options == {"maxFilesPerTrigger": "1"}
    assert job.streams["R"].delay is None  # measured from its files
    assert job.queries["pairs"].cql.startswith("SELECT R.k AS k")
    assert job.queries["pairs"].late is not None
    assert job.spark == {"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"}


def test_relative_paths_are_relative_to_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, JOB)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    job = jobs.read("../job.toml")
    assert os.path.normpath(job.flow.checkpoint) == str(tmp_path / "ck")
    assert os.path.normpath(job.streams["R"].path or "") == str(tmp_path / "R")
    assert os.path.normpath(job.queries["pairs"].sink.path or "") == str(tmp_path / "out/pairs")


def test_absolute_paths_and_addresses_are_left_alone(tmp_path: Path) -> None:
    text = JOB.replace('"ck"', '"s3://bucket/ck"').replace('"out/pairs"', f'"{tmp_path}/elsewhere"')
    job = jobs.read(write(tmp_path, text))
    assert job.flow.checkpoint == "s3://bucket/ck"
    assert job.queries["pairs"].sink.path == f"{tmp_path}/elsewhere"


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    text = JOB.replace('name = "pairs"\n', "").replace('epoch = "available"\nslots = 2\ngroups = 8\n', "")
    job = jobs.read(write(tmp_path, text))
    assert (job.flow.name, job.flow.epoch, job.flow.slots, job.flow.groups) == ("job", "available", None, None)
    assert job.spark == {}


def test_options_may_be_numbers_and_truth_values(tmp_path: Path) -> None:
    text = JOB.replace('{ maxFilesPerTrigger = "1" }', "{ maxFilesPerTrigger = 1, latestFirst = true }")
    assert jobs.read(write(tmp_path, text)).streams["R"].options == {"maxFilesPerTrigger": "1", "latestFirst": "true"}


def test_a_job_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(FrozenInstanceError):
        jobs.read(write(tmp_path, JOB)).flow.slots = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[flow]", "[flwo]", "unknown table [flwo]"),
        ('checkpoint = "ck"\n', "", "[flow] checkpoint is missing"),
        ('checkpoint = "ck"', "checkpoint = 3", "[flow] checkpoint is 3"),
        ("slots = 2", "slots = true", "[flow] slots is true"),
        ("slots = 2", "slots = 2.5", "[flow] slots is 2.5"),
        ("groups = 8", "groups = 100000", "[flow] groups is 100000"),
        ("groups = 8", "keep = 1", "[flow] keep is 1"),
        ("groups = 8", "memory = 512", "[flow] memory is 512"),
        ("groups = 8", 'spill_share = "much"', "[flow] spill_share is 'much'"),
        ("groups = 8", "idle_after = -1", "[flow] idle_after is -1"),
        ("[queries.pairs]", "[queries.pairs]\nrecovered = 1", "[queries.pairs] recovered is 1"),
        ("[streams.R]", '[streams."R 1"]', "[streams.R 1]: not a name"),
        ('{ maxFilesPerTrigger = "1" }', '{ path = "x" }', "[streams.R.options] path is among the options"),
        (
            '{ maxFilesPerTrigger = "1" }',
            "{ maxFilesPerTrigger = [1] }",
            "[streams.R.options] maxFilesPerTrigger is [1]",
        ),
        ('{ maxFilesPerTrigger = "1" }', '"fast"', "[streams.R] options is 'fast'"),
        ('sink = { format = "parquet", path = "out/pairs" }', "", "[queries.pairs] sink is missing"),
        ('sink = { format = "parquet", path = "out/pairs" }', 'sink = "out"', "[queries.pairs] sink is 'out'"),
        ('sink = { format = "parquet", path', "sink = { path", "[queries.pairs.sink] format is missing"),
        ("[queries.pairs]", "[spark]\nexecutor.memory = 1\n[queries.pairs]", "[spark] executor.memory is no setting"),
    ],
)
def test_what_is_not_in_the_form_is_refused_at_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in JOB
    path = write(tmp_path, JOB.replace(old, new, 1))
    with pytest.raises(JobError) as refused:
        jobs.read(path)
    assert f"{path}: {told}" in str(refused.value)
    assert refused.value.expected


@pytest.mark.parametrize("table", ["flow", "streams", "queries"])
def test_a_table_that_is_missing(tmp_path: Path, table: str) -> None:
    kept = [part for part in JOB.split("\n\n") if f"[{table}" not in part]
    with pytest.raises(JobError, match=rf"the table \[{table}\] is missing"):
        jobs.read(write(tmp_path, "\n\n".join(kept)))


def test_a_check_tells_where_the_job_starts_and_writes_nothing(tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    job = jobs.read(workshop.job())
    before = workshop.tree()
    checked = jobs.check(job)
    assert checked.epoch is None
    assert list(checked.queries) == ["pairs"]
    assert checked.open == ()
    assert workshop.tree() == before


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ('memory = "much"', "[flow] memory: the size is 'much'"),
        ('on_overflow = "burn"', "[flow] on_overflow is 'burn'"),
        ("spill_share = 2", "[flow] spill_share is 2"),
    ],
)
def test_a_budget_that_is_none(tmp_path: Path, option: str, told: str) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    with pytest.raises(InputError) as refused:
        jobs.check(jobs.read(workshop.job(("[flow]", f"[flow]\n{option}"))))
    assert f"job.toml: {told}" in str(refused.value)


def test_a_budget_and_what_results_tell(tmp_path: Path) -> None:
    text = JOB.replace("[flow]", '[flow]\nmemory = "512 MB"\nspill_share = 0.2\nidle_after = 7')
    job = jobs.read(write(tmp_path, text.replace("[queries.pairs]", "[queries.pairs]\nrecovered = true")))
    assert (job.flow.memory, job.flow.spill_share, job.flow.idle_after) == ("512 MB", 0.2, 7)
    assert job.queries["pairs"].recovered


def test_an_error_of_the_query_keeps_its_kind_and_its_place(tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    with pytest.raises(QueryError) as refused:
        jobs.check(jobs.read(workshop.job(("R.v AS rv", "R.nope AS rv"))))
    assert (refused.value.line, refused.value.column) == (1, 20)
    assert "job.toml: [queries.pairs] cql: stream 'R' has no column 'nope'" in str(refused.value)


def test_a_source_with_a_schema_of_its_own_needs_none(tmp_path: Path) -> None:
    """Spark's rate source has the columns timestamp and value; a source that nobody knows is left for the run."""
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    declared = 'format = "parquet"\npath = "S"\nschema = "k long, v long, ts timestamp"\ntime = "ts"'
    cql = ("R.v AS rv, S.v AS sv", "R.v AS rv, S.value AS sv"), ("R.k = S.k", "R.k = S.value")
    rate = workshop.job((declared, 'format = "rate"\ntime = "timestamp"'), *cql)
    assert jobs.check(jobs.read(rate)).open == ()
    strange = workshop.job((declared, 'format = "delta"\npath = "S"\ntime = "timestamp"'), *cql)
    checked = jobs.check(jobs.read(strange))
    assert checked.open == (
        "the columns of stream S are known when Spark runs",
        "whether Spark has the format delta of [streams.S] is known when it runs",
    )
    assert checked.queries == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ('router = "gird"', "router is 'gird'"),
        ('router = "grid"\nrule = "papr"', "rule is 'papr'"),
        ('rule = "paper"', "the rule 'paper' with router 'auto'"),
        ("subgroups = 2", "2 subgroups with router 'auto'"),
    ],
)
def test_a_router_that_does_not_exist(tmp_path: Path, options: str, told: str) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    with pytest.raises(InputError) as refused:
        jobs.check(jobs.read(workshop.job(("groups = 8", f"groups = 8\n{options}"))))
    assert f"[flow] {told}" in str(refused.value)


def test_the_router_of_a_job(tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    options = 'groups = 8\nrouter = "biclique"\nsubgroups = 2'
    job = jobs.read(workshop.job(("groups = 8", options)))
    jobs.check(job)
    assert (job.flow.router, job.flow.rule, job.flow.subgroups) == ("biclique", "even", 2)


def test_two_sinks_in_one_folder(tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    job = workshop.job()
    again = job.read_text().partition("[queries.pairs]")[2]
    job.write_text(job.read_text() + "\n[queries.again]" + again)
    with pytest.raises(
        SinkError, match=r"\[queries.again\] sink: the path .*/out/pairs is also \[queries.pairs\] sink"
    ):
        jobs.check(jobs.read(job))


@pytest.mark.spark
def test_a_job_is_built_over_an_existing_session(tmp_path: Path, spark: SparkSession) -> None:
    workshop = Workshop.make(tmp_path, files=2, rows_per_file=50)
    job = jobs.read(workshop.job())
    flow = jobs.build(job, spark)
    assert "Parquet files read in the routing task" in flow.explain()
    handle = jobs.start(job, spark)
    assert handle.await_termination(120)
    assert workshop.verify()
    assert spark.range(2).count() == 2


@pytest.mark.spark
def test_what_only_spark_knows_is_refused_when_the_flow_is_built(tmp_path: Path, spark: SparkSession) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    job = jobs.read(workshop.job())
    broken = jobs.Job(job.file, job.flow, {**job.streams, "S": jobs.JobStream("orc", "ts")}, job.queries)
    with pytest.raises(InputError, match=r"\[streams.S\]: stream 'S' cannot be opened"):
        jobs.build(broken, spark)


def test_a_misspelt_function_is_found_without_spark(tmp_path: Path) -> None:
    for name in "RS":
        (tmp_path / name).mkdir()

    def check(select: str) -> Checked:
        return jobs.check(jobs.read(write(tmp_path, JOB.replace("R.k AS k", f"{select} AS k"))))

    with pytest.raises(QueryError, match="there is no function 'roundd'") as refused:
        check("roundd(R.k, 1)")
    assert "did you mean 'round'?" in str(refused.value)
    assert "their_very_own" in check("their_very_own(R.k)").open[0]
    assert check("bigint(round(R.k, 1))").open == ()


TABLE = """
[tables.names]
format = "csv"
path = "names"
schema = "k long, name string"
refresh = "10 minutes"
options = { header = "true" }
"""
WITH_NAMES = 'cql = "SELECT R.v AS rv, n.name FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS], names n '
WITH_NAMES += 'WHERE R.k = S.k AND R.k = n.k"'


def with_table(folder: Path, table: str = TABLE, cql: str = WITH_NAMES) -> Path:
    for name in ("R", "S", "names"):
        (folder / name).mkdir(exist_ok=True)
    own = next(line for line in JOB.splitlines() if line.startswith("cql"))
    return write(folder, JOB.replace(own, cql) + table)


def test_a_job_may_have_tables(tmp_path: Path) -> None:
    job = jobs.read(with_table(tmp_path))
    assert job.tables["names"].path == str(tmp_path / "names")
    assert (job.tables["names"].refresh, job.tables["names"].options) == ("10 minutes", {"header": "true"})
    checked = jobs.check(job)
    assert [made.lookups[0].table for made in checked.queries["pairs"].enriched] == ["names"]
    unknown = jobs.check(jobs.read(with_table(tmp_path, TABLE.replace('schema = "k long, name string"\n', ""))))
    assert unknown.open == ("the columns of table names are known when Spark runs",)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[tables.names]", "[tables.R]", "R is a stream and a table"),
        ('"csv"', '"kafka"', r"\[tables.names\]: table 'names' is a stream"),
        ('"10 minutes"', '"soon"', r"\[tables.names\] refresh"),
        ('"names"', '"nowhere"', r"\[tables.names\]: table 'names' cannot be read"),
        ("refresh", "often", r"unknown option \[tables.names\] often"),
        ('path = "names"\n', "", r"\[tables.names\]: table 'names' has no path"),
    ],
)
def test_what_is_no_table_is_refused_at_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        jobs.check(jobs.read(with_table(tmp_path, TABLE.replace(old, new))))


def test_results_into_a_table_that_is_read_are_refused(tmp_path: Path) -> None:
    job = with_table(tmp_path)
    job.write_text(job.read_text(encoding="utf-8").replace('"out/pairs"', '"names/out"'), encoding="utf-8")
    with pytest.raises(SinkError, match=r"is inside \[tables.names\] path"):
        jobs.check(jobs.read(job))
