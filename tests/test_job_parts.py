"""A job with functions and queries: the parts that it is taken to, and what is refused of it; without Spark."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from braidstream import jobs
from braidstream.errors import CheckpointMismatch, DamagedState, InputError, QueryError, RunError, SinkError
from braidstream.functions import WindowBatch, stream_function
from braidstream.jobs.piped import Piped, PipedHandle, _Part
from braidstream.jobs.taking_apart import parts_of
from braidstream.lab.testing.power import PowerDisk
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


TONE, R = 'format = "parquet"\npath = "tone"', 'format = "parquet"\npath = "R"'


def bad_of(stream: str) -> str:
    """The stream as JSON, with an output for rows that cannot be read."""
    return stream.replace("parquet", "json") + '\nbad = { format = "json", path = "unread" }'


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
        ((TONE, bad_of(TONE)), ("[functions.levels] stream names tone, which has bad", "once more without it")),
        ((R, bad_of(R)), ("[streams.R] bad: 0-queries and 1-queries read R, each a flow", "once more, under another")),
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


def test_late_rows_of_two_parts_do_not_go_to_one_folder(job: Callable[..., Path]) -> None:
    """Each part is a flow: the second would be refused when the first has run."""
    late = 'late = { format = "json", path = "late" }'
    changes = [(f"[queries.{name}]", f"[queries.{name}]\n{late}") for name in ("near", "alone")]
    with pytest.raises(SinkError, match=r"late/stream=R is also \[queries.alone\] late R, in another part.*0-queries"):
        jobs.check(jobs.read(job(*changes)))
    jobs.check(jobs.read(job(*changes[:1])))


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


class KilledError(BaseException):
    """Nobody catches it on its way out."""


def test_a_process_that_dies_while_it_makes_the_checkpoint_is_in_nobody_s_way(
    job: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it waits for the disk: what it has begun to write may lie there under a name of its own."""
    made, died = jobs.read(job()), 0
    for nth in count():
        left = [nth]

        def dies(descriptor: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KilledError(descriptor)

        with monkeypatch.context() as patched, suppress(KilledError):
            patched.setattr("os.fsync", dies)
            Piped._make(made)
        jobs.check(made)
        if left[0] >= 0:
            break
        died += 1
        Piped._make(made)
        jobs.check(made)
        shutil.rmtree(tmp_path / "ck")
    assert died > 12


def test_after_a_power_failure_the_checkpoint_is_made_or_can_be(job: Callable[..., Path], tmp_path: Path) -> None:
    """At whichever step it fails; where that of a part comes next, what says which parts there are is there."""

    def fails(step: int) -> None:
        if step == fatal:
            raise KilledError(step)

    made, folder, fatal, has_failed = jobs.read(job()), tmp_path / "home", 0, True
    made = replace(made, flow=replace(made.flow, checkpoint=str(folder / "ck")))
    while has_failed:
        fatal += 1
        folder.mkdir()
        disk, has_failed = PowerDisk(folder, fails), False
        try:
            with disk.watched():
                Piped._make(made)
                Files(parts_of(made)[0].flow.checkpoint).make("lease")
        except KilledError:
            has_failed = True
        for seed in range(3 if has_failed else 20):
            disk.lose_power(random.Random(seed), tmp_path / "left")
            folder.rename(tmp_path / "before")
            (tmp_path / "left").rename(folder)
            jobs.check(made)
            shutil.rmtree(folder)
            (tmp_path / "before").rename(folder)
        for one in (folder, disk._held):
            shutil.rmtree(one)
    assert fatal > 12


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"parts": 1}', b'{"parts": ["a"], "feeds": 3}', b"\xff"])
def test_parts_that_cannot_be_read_are_damage_with_a_name(
    job: Callable[..., Path], tmp_path: Path, braid: Braid, content: bytes
) -> None:
    Piped._make(jobs.read(job()))
    (tmp_path / "ck" / "parts.json").write_bytes(content)
    with pytest.raises(DamagedState, match=r"ck/parts\.json: "):
        jobs.check(jobs.read(job()))
    for command in (["state"], ["verify"], ["rollback", "--to", "1"]):
        told = braid(command[0], str(tmp_path / "ck"), *command[1:])
        assert (told.code, f"{tmp_path}/ck/parts.json" in told.err) == (3, True), told


def test_a_checkpoint_that_is_a_file_is_refused(job: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "ck").write_text("")
    with pytest.raises(InputError, match="ck is a file"):
        jobs.check(jobs.read(job()))


def test_a_part_is_a_part_by_whatever_address(job: Callable[..., Path], tmp_path: Path, braid: Braid) -> None:
    Piped._make(jobs.read(job()))
    part = tmp_path / "ck" / "0-functions-levels"
    part.mkdir()
    (tmp_path / "link").symlink_to(part)
    for address in (part.as_uri(), f"{part}/", str(tmp_path / "link")):
        assert "cannot be rolled back" in braid("rollback", address, "--to", "1").err
    whole = (tmp_path / "ck").as_uri()
    assert "has the checkpoints of a job's parts: 0-functions-levels" in braid("repair", whole).err
    assert f"{whole}/0-functions-levels is no checkpoint" in braid("state", whole).err


def test_names_of_functions_are_found_as_those_of_streams(job: Callable[..., Path]) -> None:
    """Whatever case they are written in."""
    changes = ("FROM peaks AS p", "FROM Peaks AS p"), ("AS s [RANGE 1 DAY], peaks", "AS s [RANGE 1 DAY], PEAKS")
    parts = parts_of(jobs.read(job(*changes)))
    assert [list(part.feeds) for part in parts] == [[], [], ["peaks"], ["near"], ["peaks", "smooth"]]


def test_a_stream_comes_before_a_function_of_its_name(job: Callable[..., Path]) -> None:
    changes = [("[functions.levels]", "[functions.tone]"), ('stream = "levels"', 'stream = "tone"')]
    changes += [("level_of_peaks", "level_of_parts"), ("size = 4", 'size = 4\nsink = { format = "noop" }')]
    parts = parts_of(jobs.read(job(*changes)))
    assert [[*part.functions, *part.queries] for part in parts][:2] == [["peaks"], ["tone"]]
    assert [list(part.streams) for part in parts][:2] == [["tone"], ["tone"]]


PATIENCE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Part:
    """A part on its way, that a test ends."""

    def __init__(self) -> None:
        self.is_active = True
        self.was_stopped = False
        self.failure: Exception | None = None

    def await_termination(self, timeout: float | None = None) -> bool:
        del timeout
        time.sleep(0.001)
        if self.failure is not None:
            raise self.failure
        return not self.is_active

    def stop(self) -> None:
        self.is_active, self.was_stopped = False, True


@pytest.mark.parametrize("is_finite", [True, False])
def test_a_part_that_is_being_started_hears_of_a_stop(*, is_finite: bool) -> None:
    """Asked for by another thread, while the start takes its time."""
    first, last = Part(), Part()
    first.is_active = not is_finite

    def slowly() -> Any:
        if is_finite:
            handle.stop()
        return last

    handle = PipedHandle([_Part("0", lambda: cast(Any, first)), _Part("1", slowly)], is_finite=is_finite)
    if not is_finite:
        handle.stop()
    assert handle.await_termination(1)
    assert (last.was_stopped, handle.is_active) == (True, False)


def test_parts_that_have_all_ended_are_not_active_though_nobody_waited() -> None:
    parts = Part(), Part()
    handle = PipedHandle([_Part(str(i), lambda one=one: one) for i, one in enumerate(parts)], is_finite=False)
    assert handle.is_active
    parts[0].is_active = False
    assert handle.is_active
    parts[1].is_active = False
    assert not handle.is_active


def test_the_next_part_of_a_finite_job_starts_though_nobody_waits() -> None:
    """As the first did: who asks only whether it is active would else ask for ever."""
    first, last, is_started = Part(), Part(), threading.Event()

    def start() -> Any:
        is_started.set()
        return last

    handle = PipedHandle([_Part("0", lambda: cast(Any, first)), _Part("1", start)], is_finite=True)
    assert list(handle.parts) == ["0"]
    first.is_active = False
    assert is_started.wait(PATIENCE_S)
    last.is_active = False
    until(lambda: not handle.is_active)
    assert handle.await_termination(PATIENCE_S)


@pytest.mark.parametrize("is_finite", [True, False])
def test_a_part_that_fails_stops_the_others_though_nobody_waits(*, is_finite: bool) -> None:
    """Who waits later is told why; who asks again, too. Of a finite job the parts after it are not started."""
    first, last = Part(), Part()
    parts = [_Part(str(i), lambda one=one: cast(Any, one)) for i, one in enumerate((first, last))]
    handle = PipedHandle(parts, is_finite=is_finite)
    first.failure = RunError("it failed", "", "")
    until(lambda: not handle.is_active)
    for _ in range(2):
        with pytest.raises(RunError, match="it failed"):
            handle.await_termination(PATIENCE_S)
    assert list(handle.parts) == (["0"] if is_finite else ["0", "1"])
    assert last.was_stopped is not is_finite


def test_a_part_that_cannot_be_started_is_told_to_who_waits() -> None:
    first = Part()

    def fails() -> Any:
        raise InputError("the folder is gone", "", "")

    handle = PipedHandle([_Part("0", lambda: cast(Any, first)), _Part("1", fails)], is_finite=True)
    first.is_active = False
    with pytest.raises(InputError, match="the folder is gone"):
        handle.await_termination(PATIENCE_S)
    assert not handle.is_active


def test_a_stop_returns_when_the_part_that_is_being_started_has_stopped() -> None:
    """Then the checkpoint may be started again."""
    first, last, begun, may_go_on = Part(), Part(), threading.Event(), threading.Event()

    def slowly() -> Any:
        begun.set()
        assert may_go_on.wait(PATIENCE_S)
        return last

    handle = PipedHandle([_Part("0", lambda: cast(Any, first)), _Part("1", slowly)], is_finite=True)
    first.is_active = False
    assert begun.wait(PATIENCE_S)
    threading.Timer(0.2, may_go_on.set).start()
    handle.stop()
    assert last.was_stopped


def test_a_part_that_cannot_be_started_at_once_stops_those_that_were() -> None:
    first = Part()

    def fails() -> Any:
        raise InputError("the folder is gone", "", "")

    with pytest.raises(InputError, match="the folder is gone"):
        PipedHandle([_Part("0", lambda: cast(Any, first)), _Part("1", fails)], is_finite=False)
    assert first.was_stopped
