"""Calls with wrong arguments get a message of ours with the likely fix; what is right passes as it was."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import braidstream
from braidstream import Flow, InputError, StreamError
from braidstream.arguments import checked_arguments
from braidstream.control.overflow import parse_size
from braidstream.errors import Note
from tests.cli.workshop import Braid, Workshop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k long, v long, ts timestamp"
CQL = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"


@checked_arguments("add", {"b": "add(1, 2)"}, {"plus": "b"})
def add(a: int, b: int, *, times: int = 1) -> int:
    return (a + b) * times


def test_right_calls_pass_and_the_signature_is_kept() -> None:
    assert add(1, 2, times=3) == 9
    assert list(inspect.signature(add).parameters) == ["a", "b", "times"]


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((1,), {}, "add without 'b'(.|\n)*hint: add\\(1, 2\\)"),
        ((1, 2), {"time": 3}, "add has no argument 'time'(.|\n)*did you mean 'times'"),
        ((1,), {"plus": 2}, "add has no argument 'plus'(.|\n)*hint: b"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1, 2), {"a": 3}, "multiple values for argument 'a'"),
    ],
)
def test_wrong_calls_are_refused(args: Any, kwargs: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        add(*args, **kwargs)


def test_an_error_inside_is_not_taken_for_a_wrong_call() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        add(1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["512", " 512 ", "0", "1048575", "3.5"])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r'has no unit(.|\n)*write "\S+ MB"'):
        parse_size(text)


@pytest.mark.parametrize("text", ["1048576", "536870912"])
def test_a_size_without_a_unit_that_can_only_be_bytes_is_noted(text: str) -> None:
    with pytest.warns(Note, match=f'write "{text} B"'):
        assert parse_size(text) == int(text)


def test_sizes_with_units_and_whole_numbers_stay_valid() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sizes = [parse_size(size) for size in ("512 MB", "2g", "64 KiB", "100 b", 512, 1 << 29)]
    assert sizes == [512 << 20, 2 << 30, 64 << 10, 100, 512, 1 << 29]


@pytest.fixture
def braid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Braid:
    return Braid(capsys, monkeypatch)


@pytest.mark.parametrize(("memory", "code", "told"), [("512", 2, 'write "512 MB"'), ("536870912", 0, "note: the size")])
def test_commands_refuse_a_size_without_a_unit_or_note_it(
    braid: Braid, tmp_path: Path, memory: str, code: int, told: str
) -> None:
    planned = braid("plan", "--rate", "10", "--window", "1 minute", "--slots", "2", "--memory", memory)
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    checked = braid("check", workshop.job(("slots = 2", f'slots = 2\nmemory = "{memory}"')))
    for outcome in (planned, checked):
        assert outcome.code == code, outcome
        assert told in outcome.err
    assert "[flow]" in checked.err or not code


def test_a_number_as_memory_in_a_job_file_is_refused_with_the_remedy(braid: Braid, tmp_path: Path) -> None:
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=5)
    outcome = braid("check", workshop.job(("slots = 2", "slots = 2\nmemory = 512")))
    assert outcome.code == 2
    assert "[flow] memory is 512" in outcome.err
    assert 'write memory = "512 MB"' in outcome.err


def test_a_session_of_spark_connect_is_refused_by_name() -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(InputError, match=r"Spark Connect, which is not supported(.|\n)*local_session"):
        Flow(remote)


def test_a_flow_without_or_over_something_else_than_a_session() -> None:
    with pytest.raises(InputError, match="Flow without 'spark'"):
        Flow()  # type: ignore[call-arg]
    with pytest.raises(InputError, match="needs a SparkSession, not str"):
        Flow("local[2]")  # type: ignore[arg-type]


@pytest.fixture
def sides(tmp_path: Path, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    Workshop.make(tmp_path, files=1, rows_per_file=100)
    left, right = (spark.readStream.schema(SCHEMA).parquet(str(tmp_path / name)) for name in "RS")
    return left, right


@pytest.mark.spark
def test_every_public_call_refuses_wrong_arguments(
    tmp_path: Path, spark: SparkSession, sides: tuple[DataFrame, DataFrame]
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    left, right = sides
    flow = Flow(spark, slots=2).files("R", tmp_path / "R", schema=SCHEMA, time="ts")
    join, similar, within = braidstream.join, braidstream.similar, {"within": "1 s"}
    near = {"vector": "v", "radius": 1.0, "dimensions": 2, "within": None}
    cases: list[tuple[Any, str]] = [
        (lambda: Flow(spark, slot=2), "Flow has no argument 'slot'(.|\n)*did you mean 'slots'"),
        (lambda: Flow(spark, name=5), "name is 5"),
        (lambda: Flow(spark, memory="512"), 'has no unit(.|\n)*write "512 MB"'),
        (lambda: Flow(spark, memory=0.5), "the size is 0.5"),
        (lambda: Flow(spark, slots="2"), "slots is '2'"),
        (lambda: Flow(spark, silence=5), "5 is not a length of time"),
        (lambda: flow.stream("S", right), "flow.stream without 'time'(.|\n)*time=\"ts\""),
        (lambda: flow.stream(5, right, time="ts"), "a stream cannot be named 5"),
        (lambda: flow.stream("S", right, time=5), "the time of stream 'S' is 5"),
        (lambda: flow.stream("S", right, time="ts", delay=5), "5 is not a length of time"),
        (lambda: flow.stream("S", spark.range(3), time="id"), "not a streaming DataFrame"),
        (lambda: flow.files("S", 5, schema=SCHEMA, time="ts"), "the path of stream 'S' is 5"),
        (lambda: flow.files("S", tmp_path / "S", schema=5, time="ts"), "the schema of stream 'S' is 5"),
        (lambda: flow.files("S", tmp_path / "S", schema="k lnog", time="ts"), "stream 'S' cannot be opened"),
        (lambda: flow.query(5), "a query is 5"),
        (lambda: flow.query("SELECT", 5), "cannot be named 5"),
        (flow.start, "start without 'checkpoint'(.|\n)*start\\(checkpoint=\"ck\"\\)"),
        (lambda: flow.start(None), "checkpoint is None"),
        (lambda: flow.withdraw("q"), "not running"),
        (lambda: flow.submit(CQL), "not running"),
        (lambda: join(left, right, on=F.col("k"), **within), "on=Column(.|\n)*names of columns(.|\n)*on=\"a\""),
        (lambda: join(left, right, on=[F.col("k")], **within), "names of columns"),
        (lambda: join(left, right, on=left.k == right.k, **within), "names of columns"),
        (lambda: join(left, right, on=5, **within), "on=5"),
        (lambda: join(left, right, on="k", how="letf", **within), "how='letf'(.|\n)*did you mean 'left'"),
        (lambda: join(left, right, on="k"), "join without 'within'"),
        (lambda: join(left, right, **within), "join without 'on'"),
        (lambda: join(left, on="k", **within), "join without 'right'"),
        (lambda: join(left, right, on="k", within=5), "5 is not a length of time"),
        (lambda: join(left, right, on="k", **within).start(), "start without 'checkpoint'"),
        (lambda: join(left, right, on="k", **within).to(5), "a sink is 5"),
        (lambda: similar([], None, id="k", **near), "the left side is list"),
        (lambda: similar(left, None, id="k", **near), "column 'v' of the left side is bigint"),
        (lambda: similar(left, None, id="k", **{**near, "dimensions": "2"}), "dimension"),
        (lambda: similar(left, None, id="k", **{**near, "radius": "a"}), "radius"),
        (lambda: similar(left, None, vector="v"), "similar without 'radius'"),
    ]  # fmt: skip
    for call, told in cases:
        with pytest.raises(InputError, match=told):
            call()


@pytest.mark.spark
def test_the_schema_of_files_is_read_from_them(tmp_path: Path, spark: SparkSession) -> None:
    Workshop.make(tmp_path, files=1, rows_per_file=60)
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(name, tmp_path / name, time="ts")
    assert [(c.name, c.type) for c in flow.schemas["R"]] == [("k", "bigint"), ("v", "bigint"), ("ts", "timestamp")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(StreamError, match=r"'T' has no schema, and .*empty has no Parquet file yet(.|\n)*schema="):
        flow.files("T", tmp_path / "empty", time="ts")


@pytest.mark.spark
def test_results_in_memory_and_run_for_are_there_for_queries_of_a_flow_and_joins(
    tmp_path: Path, spark: SparkSession, sides: tuple[DataFrame, DataFrame]
) -> None:
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(name, tmp_path / name, time="ts")
    query = flow.query(CQL, "q")
    with pytest.raises(InputError, match="not in memory"):
        query.table()
    query.to("memory")
    assert query.table() is None
    flow.start(tmp_path / "ck", warm=False).run_for("2 minutes")
    joined = braidstream.join(*sides, on="k", within=("10 seconds", "5 seconds")).to("memory")
    joined.start(tmp_path / "ck2").run_for("2 minutes")
    one, other = query.table(), joined.table()
    assert one is not None
    assert other is not None
    assert one.num_rows == other.num_rows > 0
