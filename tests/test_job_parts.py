"""A job with functions and queries: the parts that it is taken to, and what is refused of it; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from braidstream import jobs
from braidstream.errors import CheckpointMismatch, DamagedState, InputError, QueryError
from braidstream.functions import WindowBatch, stream_function
from braidstream.jobs.taking_apart import parts_of
from braidstream.state.files import Files

if TYPE_CHECKING:
    from tests.cli.workshop import Braid


@stream_function(gives={"level": "float"})
def level_of_parts(windows: WindowBatch) -> dict[str, object]:
    """The mean."""
    return {"level": windows["v"].mean(axis=-1)}


JOB = """
[flow]
name = "both"
checkpoint = "ck"

[streams.tone]
format = "parquet"
path = "tone"
schema = "ts timestamp, v double"
time = "ts"

[streams.R]
format = "parquet"
path = "R"
schema = "ts timestamp, k double, v double"
time = "ts"

[functions.peaks]
stream = "levels"
function = "level_of_peaks"

[functions.levels]
stream = "tone"
function = "level_of_parts"
size = 4

[queries.near]
cql = "SELECT p.seq AS seq, R.v AS v, R.ts AS ts FROM peaks AS p [RANGE 1 HOUR], R [RANGE 1 HOUR] WHERE p.peak = R.k"
sink = { format = "noop" }

[functions.smooth]
stream = "near"
function = "level_of_parts"
size = 8
time = "ts"
delay = "3 minutes"
sink = { format = "parquet", path = "smooth" }

[queries.alone]
cql = "SELECT R.k AS k FROM R [RANGE 1 MINUTE], tone [RANGE 1 MINUTE] WHERE R.k = tone.v"
sink = { format = "parquet", path = "alone" }

[queries.last]
cql = "SELECT s.level AS l, p.peak AS p FROM smooth AS s [RANGE 1 DAY], peaks AS p [RANGE 1 DAY] WHERE s.seq = p.seq"
sink = { format = "parquet", path = "last" }
"""


@stream_function(gives={"peak": "float"})
def level_of_peaks(windows: WindowBatch) -> dict[str, object]:
    """Of each level."""
    return {"peak": windows["level"]}


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Callable[..., Path]:
    for name in ("tone", "R"):
        (tmp_path / name).mkdir()

    def write(*changes: tuple[str, str]) -> Path:
        text = JOB
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        (tmp_path / "job.toml").write_text(text)
        return tmp_path / "job.toml"

    return write


def test_each_part_has_one_kind_and_needs_only_parts_before_it(job: Callable[..., Path], tmp_path: Path) -> None:
    """Functions that feed one another stay together, whatever order they are written in."""
    parts = parts_of(jobs.read(job()))
    assert [Path(part.flow.checkpoint).name for part in parts] == [
        "0-functions-levels", "0-queries", "1-queries", "2-functions-smooth", "3-queries",
    ]  # fmt: skip
    assert [[*part.functions, *part.queries] for part in parts] == [
        ["levels", "peaks"], ["alone"], ["near"], ["smooth"], ["last"],
    ]  # fmt: skip
    assert [list(part.streams) for part in parts] == [["tone"], ["tone", "R"], ["R"], [], []]
    assert [list(part.feeds) for part in parts] == [[], [], ["peaks"], ["near"], ["peaks", "smooth"]]
    assert [list(part.given) for part in parts] == [["peaks"], [], ["near"], ["smooth"], []]
    assert (parts[2].feeds["peaks"].time, parts[2].feeds["peaks"].delay) == ("ts", "0 seconds")
    assert (parts[3].feeds["near"].time, parts[3].feeds["near"].delay) == ("ts", "3 minutes")
    sinks = [one.functions[name].sink for one, name in ((parts[0], "peaks"), (parts[3], "smooth"))]
    assert [one.path for one in sinks if one] == [str(tmp_path / "ck/feeds/peaks/files"), str(tmp_path / "smooth")]
    assert parts[0].functions["levels"].sink is None
    assert parts[2].queries["near"].sink.path == str(tmp_path / "ck/feeds/near/files")


def test_a_check_reads_queries_over_what_functions_give(job: Callable[..., Path]) -> None:
    checked = jobs.check(jobs.read(job()))
    assert set(checked.queries) == {"near", "alone"}  # the columns of what `near` gives are Spark's to say
    assert "the columns of stream near are known when Spark runs" in checked.open
    assert checked.parts == dict.fromkeys(
        ["0-functions-levels", "0-queries", "1-queries", "2-functions-smooth", "3-queries"]
    )
    with pytest.raises(QueryError, match=r"\[queries.near\] cql.*'pek'"):
        jobs.check(jobs.read(job(("p.peak = R.k", "p.pek = R.k"))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('time = "ts"\ndelay = "3 minutes"', 'delay = "3 minutes"'), ("[functions.smooth] time is missing", "ts")),
        (('delay = "3 minutes"\n', ""), ("[functions.smooth] delay is missing: 'near' is a query", "20 seconds")),
        (("size = 4\n", 'size = 4\ndelay = "1 second"\n'), ("[functions.levels] delay is said", "leave it out")),
        (('stream = "near"', 'stream = "naer"'), ("[functions.smooth] stream is 'naer'", "'near'")),
        (('stream = "tone"\nfunction', 'stream = "last"\ntime = "ts"\ndelay = "1 s"\nfunction'), ("takes", "stream")),
        (("[queries.alone]", "[queries.levels]"), ("levels is a query and a function", "rename")),
        (("[queries.alone]", "[queries.tone]"), ("tone is a query and a stream", "rename")),
        (('sink = { format = "noop" }', 'sink = { format = "memory" }'), ("[queries.near] sink is memory", "noop")),
        (('format = "parquet", path = "smooth"', 'format = "json", path = "smooth"'), ("sink is json", "noop")),
        (('checkpoint = "ck"', 'checkpoint = "s3://bucket/ck"'), ("[flow] checkpoint is 's3://bucket/ck'", "folder")),
        (('checkpoint = "ck"', 'checkpoint = "ck"\nfinal = true'), ("[flow] final with functions and queries", "")),
        (('path = "alone"', 'path = "last"'), ("is also [queries.", "another path")),
        (('path = "alone"', 'path = "ck/alone"'), ("is inside [flow] checkpoint", "another path")),
        (("[functions.peaks]", "[functions.peaks]\nsize = 2\nstep = 0"), ("step", "")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) and value[0][0] != "[" else "",
)
def test_what_cannot_be_is_refused_with_its_place(
    job: Callable[..., Path], change: tuple[str, str], words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as told:
        jobs.check(jobs.read(job(change)))
    for word in words:
        assert word in str(told.value)
    assert not (job().parent / "ck").exists()


def test_a_checkpoint_of_other_parts_is_refused(job: Callable[..., Path], tmp_path: Path, braid: Braid) -> None:
    known = Files(str(tmp_path / "ck"))
    known.make("")
    known.replace("flow.json", b"{}")
    with pytest.raises(CheckpointMismatch, match="of a job that had functions alone, or queries alone"):
        jobs.check(jobs.read(job()))
    known.delete("flow.json")
    known.replace("notes.txt", b"")
    with pytest.raises(CheckpointMismatch, match="is no checkpoint, and is not empty"):
        jobs.check(jobs.read(job()))
    known.delete("notes.txt")
    known.replace("parts.json", b'{"parts": ["0-functions-levels"')
    with pytest.raises(DamagedState, match="is damaged"):
        jobs.check(jobs.read(job()))
    known.replace("parts.json", b'{"parts": ["0-functions-levels"], "feeds": {"levels": "0-functions-levels"}}')
    with pytest.raises(CheckpointMismatch, match=r"results of levels \(0-functions-levels\) between them"):
        jobs.check(jobs.read(job()))
    assert "has the checkpoints of a job's parts: 0-functions-levels" in braid("repair", str(tmp_path / "ck")).err
    part = tmp_path / "ck" / "0-functions-levels"
    assert "cannot be rolled back" in braid("rollback", str(part), "--to", "1").err
    assert f"{part} does not exist" in braid("state", str(tmp_path / "ck")).err
    alone = JOB[: JOB.index("[functions.peaks]")] + JOB[JOB.index("[queries.alone]") : JOB.index("[queries.last]")]
    (tmp_path / "job.toml").write_text(alone)
    with pytest.raises(CheckpointMismatch, match="is of a job with functions and queries"):
        jobs.check(jobs.read(tmp_path / "job.toml"))
