"""The cause of a failure in one line: over texts that Spark 4.3 gave, and in flows that fail."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException
from pyspark.logger import PySparkLogger

from braidstream import Flow, RunError, SinkFailed
from braidstream.errors import BraidstreamError
from braidstream.query import Schema, parse
from braidstream.spark.causes import has_gone, in_expression, logged, one_line
from braidstream.spark.json_errors import without_json
from braidstream.spark.resolve import refused
from tests.cli.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACEBACK = "Traceback (most recent call last)"
SCHEMA = "k long, v long, ts timestamp"
CQL = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
MALFORMED = (
    '[CAST_INVALID_INPUT] The value \'x100\' of the type "STRING" cannot be cast to "BIGINT" because it is '
    "malformed. Correct the value as per the syntax, or change its target type. Use `try_cast` to tolerate malformed "
    "input and return NULL instead. (in cast('x' || v as long))"
)
NOT_PARQUET = (
    "RuntimeException: file:/data/notparquet/a.parquet is not a Parquet file. "
    "Expected magic number at tail, but found [113, 117, 101, 116]"
)
OTHER_TYPE = (
    "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file "
    "file:///data/other/b.parquet. Data type mismatches when reading Parquet column [k]. Expected Spark type bigint, "
    "actual Parquet type BINARY."
)
TOLD = {
    "udf in stream (in the driver)": "ValueError: no price for 101 (/app/prices.py, line 41, in bad)",
    "udf in stream": "ValueError: no price for 101 (/app/prices.py, line 41, in bad)",
    "mapInPandas in stream (in the driver)": "RuntimeError: broken map; second line (/app/prices.py, line 48, "
    "in badmap)",
    "pandas udf in stream (in the driver)": "KeyError: 'price' (/app/prices.py, line 45, in badp)",
    "ansi cast in stream (in the driver)": MALFORMED,
    "ansi cast in stream": MALFORMED,
    "corrupt file stream (in the driver)": NOT_PARQUET,
    "corrupt file stream": NOT_PARQUET,
    "corrupt file files (in the driver)": "/data/notparquet/a.parquet: cannot be read as Parquet (Parquet magic bytes "
    "not found in footer. Either the file is corrupted or this is not a parquet file.)",
    "other type stream (in the driver)": OTHER_TYPE,
    "other type stream": OTHER_TYPE,
    "other type files (in the driver)": "ArrowInvalid: Failed to parse string: 'b' as a scalar of type int64",
    "json bad (in the driver)": "/data/json/a.json: JsonParseException: Unrecognized token 'oops': was expecting "
    "(JSON String, Number (or 'NaN'/'+INF'/'-INF'), Array, Object or token 'null', 'true' or 'false')",
    "raise_error (in the driver)": "[USER_RAISED_EXCEPTION] v too large",
    "raise_error": "[USER_RAISED_EXCEPTION] v too large",
    "worker dies (in the driver)": "Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled' configuration "
    "to 'true' for the better Python traceback.",
    "unknown fmt (in the driver)": "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: parqet. Make sure the "
    "provider name is correct and the package is properly registered and compatible with your Spark version.",
    "sink udf write (in the driver)": "ValueError: no price for 164 (/app/prices.py, line 41, in bad)",
}


def recorded() -> dict[str, str]:
    text = Path(__file__).with_name("recorded_errors.txt").read_text(encoding="utf-8")
    entries = [entry.partition("\n") for entry in text.split("##### ")[1:]]
    return {name: body for name, _, body in entries}


@pytest.mark.parametrize("name", TOLD)
def test_the_last_cause_of_a_recorded_error_in_one_line(name: str) -> None:
    assert one_line(RuntimeError(recorded()[name])) == TOLD[name]


def test_every_recorded_error_has_an_expected_line() -> None:
    assert set(recorded()) == set(TOLD)


def test_an_error_of_the_drivers_own_code_names_its_line() -> None:
    try:
        json.loads("{oops")
    except json.JSONDecodeError as error:
        told = one_line(error)
    assert told.startswith("JSONDecodeError: Expecting property name enclosed in double quotes")
    assert told.endswith("in test_an_error_of_the_drivers_own_code_names_its_line)")
    assert "test_causes.py, line " in told


@pytest.mark.parametrize("text", ["", " ", "\n\n", ": ", f"{TRACEBACK}:", "Caused by: x", "\tat a("])
def test_whatever_the_text_there_is_one_line(text: str) -> None:
    told = one_line(ValueError(text))
    assert told
    assert "\n" not in told


def test_a_very_long_message_is_cut() -> None:
    assert len(one_line(ValueError("x" * 5000))) < 700


def test_an_executor_that_is_lost_is_named_without_the_stage() -> None:
    text = (
        "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Task 3 in stage 8.0 failed 4 times, most recent failure: Lost task 3.3 in stage 8.0 (TID 44) "
        "(10.0.0.7 executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: "
        "Container killed by YARN for exceeding memory limits.\nDriver stacktrace:\n"
        "\tat org.apache.spark.X.y(X.scala:1)"
    )
    assert one_line(RuntimeError(text)).startswith("ExecutorLostFailure (executor 2 exited")


def test_the_expression_that_failed_is_found() -> None:
    assert in_expression(RuntimeError(recorded()["ansi cast in stream"])) == "cast('x' || v as long)"
    assert in_expression(ValueError("no")) is None


def test_the_stack_is_in_the_log_and_the_error_names_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise OSError("the table is locked")
    except OSError as error:
        origin = error
    with caplog.at_level(logging.ERROR, logger="braidstream"):
        failed = logged(BraidstreamError("the flow failed: x", "", "try again"), origin, str(tmp_path))
    assert failed.log == str(tmp_path / "failure.log")
    assert str(failed).splitlines()[-1] == f"  stack: {tmp_path / 'failure.log'}"
    written = (tmp_path / "failure.log").read_text()
    assert "Traceback" in written
    assert "OSError: the table is locked" in written
    assert "OSError: the table is locked" in caplog.text


def test_a_log_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = logged(BraidstreamError("the flow failed"), ValueError("x"), str(tmp_path / "file" / "ck"))
    assert str(failed) == "the flow failed"


@pytest.fixture
def flows(tmp_path: Path, spark: SparkSession) -> Any:
    """Makes a flow of R and S, R as it is given; and runs it to its failure."""
    Workshop.make(tmp_path, files=1, rows_per_file=60)

    def failing(r: DataFrame | Path, to: Any = "noop", cql: str = CQL) -> str:
        flow = Flow(spark, slots=2, groups=4)
        if isinstance(r, Path):
            flow.files("R", r, schema=SCHEMA, time="ts")
        else:
            flow.stream("R", r, time="ts")
        flow.files("S", tmp_path / "S", schema=SCHEMA, time="ts").query(cql, "q").to(to)
        with pytest.raises(RunError) as failed:
            flow.start(tmp_path / "ck", warm=False).await_termination(120)
        assert "stack: " in str(failed.value), failed.value
        assert len(str(failed.value).splitlines()) == 3, failed.value
        assert "Traceback" in Path(failed.value.log).read_text() or isinstance(failed.value, SinkFailed)
        return str(failed.value)

    return failing


@pytest.mark.spark
def test_a_function_of_the_user_in_a_stream_says_what_it_raised(
    tmp_path: Path, spark: SparkSession, flows: Any
) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    @F.udf("long")
    def priced(x: int) -> int:
        raise ValueError(f"no price for {x}")

    r = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "R"))
    told = flows(r.withColumn("v", priced("v")))
    assert "the flow failed: ValueError: no price for " in told
    assert "test_causes.py, line " in told
    assert ", in priced)" in told


@pytest.mark.spark
@pytest.mark.parametrize("way", ["stream", "files"])
def test_a_file_that_is_no_parquet_is_named(tmp_path: Path, spark: SparkSession, flows: Any, way: str) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.parquet").write_text("no Parquet at all, no Parquet at all")
    given = tmp_path / "bad" if way == "files" else spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "bad"))
    assert "bad/a.parquet" in flows(given)


@pytest.mark.spark
def test_a_file_of_another_type_is_named(tmp_path: Path, spark: SparkSession, flows: Any) -> None:
    (tmp_path / "bad").mkdir()
    other = pa.table({"k": ["a", "b"], "v": [1, 2], "ts": pa.array([1, 2], pa.timestamp("us", "UTC"))})
    pq.write_table(other, tmp_path / "bad/b.parquet")
    told = flows(spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "bad")))
    assert "bad/b.parquet" in told
    assert "Parquet column [k]" in told


@pytest.mark.spark
def test_a_sink_whose_function_fails_in_a_worker_says_why(tmp_path: Path, spark: SparkSession, flows: Any) -> None:
    def send(frame: DataFrame, epoch: int) -> None:
        def each(row: Any) -> None:
            raise ConnectionError(f"no route to the table at epoch {epoch}")

        frame.foreach(each)

    told = flows(spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "R")), send)
    assert "the sink of query 'q' failed at epoch 0: ConnectionError: no route to the table at epoch 0 (" in told


def as_json(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """What PySpark writes to standard error from now on, beside what it raises."""
    written: list[logging.LogRecord] = []
    keeps = logging.Handler()
    monkeypatch.setattr(keeps, "emit", written.append)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        monkeypatch.setattr(PySparkLogger.getLogger(name), "handlers", [keeps])
    return written


@pytest.mark.spark
def test_a_thread_that_tells_its_errors_itself_writes_none_as_json_and_others_do(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = as_json(monkeypatch)

    def fail() -> None:
        with pytest.raises(ArithmeticException):
            spark.sql("SELECT 1 / 0").collect()

    with without_json():
        fail()
        assert written == []
        other = threading.Thread(target=fail)
        other.start()
        other.join()
        assert len(written) == 1
    fail()
    assert len(written) == 2


@pytest.mark.spark
def test_an_expression_that_fails_on_results_is_not_blamed_on_the_sink(
    tmp_path: Path, spark: SparkSession, flows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a new process, where another query was resolved before Spark's Python side wrote to its log of errors.
    monkeypatch.delitem(logging.root.manager.loggerDict, "SQLQueryContextLogger", raising=False)
    refused(spark, parse(CQL, dict.fromkeys("RS", Schema.from_ddl(SCHEMA))), lambda: None)
    written = as_json(monkeypatch)
    r = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "R"))
    told = flows(r, cql=CQL.replace("R.v AS rv", "R.v / (R.v - R.v) AS rv"))
    assert written == [], "a page of JSON on standard error says the same"
    assert "an expression over the results of query 'q' failed at epoch 0: [DIVIDE_BY_ZERO]" in told
    assert "(in R.v / (R.v - R.v))" in told


def test_results_that_fail_are_told_with_both_ways_on_and_by_their_epoch_or_clean_up() -> None:
    failed = SinkFailed("q", -3, "[DIVIDE_BY_ZERO]", "1 / R.v")
    assert failed.wrong == "an expression over the results of query 'q' failed at clean-up 3: [DIVIDE_BY_ZERO]"
    for way in ("try_cast", "CASE WHEN", 'bad = { format = "json", path = "bad" }', "the clean-up is delivered again"):
        assert way in failed.fix
    assert "bad" not in SinkFailed("q", 3, "no room").fix


@pytest.mark.parametrize(
    ("error", "has_ended"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (RunError("the flow failed: Job 3 cancelled because SparkContext was shut down", ""), True),
        (RuntimeError("org.apache.spark.sql.classic.SparkSession does not exist in the JVM"), True),
        (RunError("the flow failed: division by zero", ""), False),
    ],
    ids=["the JVM is gone", "its context was shut down", "it was going", "something else"],
)
def test_an_end_of_spark_is_told_from_a_failure(error: Exception, has_ended: bool) -> None:
    assert has_gone(error) is has_ended
    wrapped = ValueError("around it")
    wrapped.__context__ = error
    assert has_gone(wrapped) is has_ended
