"""Every line of "Bad input": the message names the value, what was expected and the likely fix; nothing was started."""

from __future__ import annotations

import json

import pytest

from braidstream.jobs.code import named_code
from tests.cli.workshop import Braid, Workshop

CQL = "SELECT R.k AS k, R.v AS rv, S.v AS sv FROM R [RANGE 10 SECONDS], S [RANGE 5 SECONDS] WHERE R.k = S.k"
R_TIME = 'time = "ts"\noptions'
R_SCHEMA = 'path = "R"\nschema = "k long, v long, ts timestamp"'

CASES: dict[str, tuple[tuple[str, str], list[str]]] = {
    "an unknown time column": (
        (R_TIME, 'time = "tz"\noptions'),
        ["[streams.R]", "no column 'tz'", "expected: a timestamp column", "did you mean 'ts'?"],
    ),
    "a time column that is no timestamp": (
        (R_TIME, 'time = "v"\noptions'),
        ["[streams.R]", "time column 'v'", "type bigint", "expected: timestamp or timestamp_ntz", "use 'ts'"],
    ),
    "a stream without any timestamp": (
        (R_SCHEMA, 'path = "R"\nschema = "k long, v long, ts string"'),
        ["time column 'ts'", "type string", "expected: timestamp", "declare it as ts timestamp"],
    ),
    "an unknown column in the query": (
        (CQL, CQL.replace("R.v AS rv", "R.vv AS rv")),
        ["[queries.pairs] cql", "stream 'R' has no column 'vv'", "line 1, column 20", "did you mean 'v'?"],
    ),
    "an unknown stream in the query": (
        (CQL, CQL.replace("FROM R [", "FROM Rr [")),
        ["unknown stream 'Rr'", "expected: one of R, S", "did you mean 'R'?"],
    ),
    "key types that do not compare": (
        (R_SCHEMA, 'path = "R"\nschema = "k string, v long, ts timestamp"'),
        ["R.k (string)", "S.k (bigint)", "do not compare", "expected:", "CAST("],
    ),
    "no join predicate": (
        (CQL, CQL.replace("R.k = S.k", "R.k > S.k")),
        ["no join predicate", "expected: equalities between streams", "add R.k = S.k"],
    ),
    "CQL that cannot be parsed": (
        (CQL, CQL.replace("R.v AS rv,", "R.v AS rv")),
        ["[queries.pairs] cql", "line 1, column", "^", "expected: SELECT", "hint:"],
    ),
    "a negative window": (
        (CQL, CQL.replace("[RANGE 10 SECONDS]", "[RANGE -10 SECONDS]")),
        ["length of time -10 is negative", "expected: [RANGE n unit]", "write 10"],
    ),
    "a window without a unit": (
        (CQL, CQL.replace("[RANGE 10 SECONDS]", "[RANGE 10]")),
        ["10 has no unit", "expected: [RANGE n unit]", "write 10 seconds"],
    ),
    "a window in an unknown unit": (
        (CQL, CQL.replace("[RANGE 10 SECONDS]", "[RANGE 10 SEKONDS]")),
        ["unknown unit 'SEKONDS'", "did you mean 'seconds'?"],
    ),
    "a stream without a window": (
        (CQL, CQL.replace("R [RANGE 10 SECONDS]", "R")),
        ["stream R has no window", "expected: a window after each stream", "[RANGE 10 SECONDS]"],
    ),
    "an output column twice": (
        (CQL, CQL.replace("S.v AS sv", "S.v AS rv")),
        ["two output columns are named 'rv'", "expected: names that differ", "another name"],
    ),
    "an unknown option of a stream": (
        (R_TIME, 'tmie = "ts"\noptions'),
        ["unknown option [streams.R] tmie", "expected: one of format, time, path", "did you mean 'time'?"],
    ),
    "an unknown option of the flow": (
        ("slots = 2", "slot = 2"),
        ["unknown option [flow] slot", "expected: one of checkpoint", "did you mean 'slots'?"],
    ),
    "an unknown option of a sink": (
        ('path = "out/pairs" }', 'paht = "out/pairs" }'),
        ["unknown option [queries.pairs.sink] paht", "did you mean 'path'?"],
    ),
    "an unknown table": (
        ("[flow]", "[sparc]\n[flow]"),
        ["unknown table [sparc]", "expected: one of flow, streams, queries, spark", "did you mean 'spark'?"],
    ),
    "an option that is missing": (
        (R_TIME, "options"),
        ["[streams.R] time is missing", "expected: a text", 'add time = "ts"'],
    ),
    "an option of the wrong type": (
        ("slots = 2", 'slots = "two"'),
        ["[flow] slots is 'two'", "expected: a whole number", "write slots = 4"],
    ),
    "a number out of range": (
        ("slots = 2", "slots = 0"),
        ["[flow] slots is 0", "expected: a whole number from 1 to", "write slots = 4"],
    ),
    "an epoch that is no length of time": (
        ('epoch = "available"', 'epoch = "2"'),
        ["[flow] epoch", "'2'", 'a length of time, or "available"', "write 2 seconds"],
    ),
    "a negative delay": (
        ('delay = "0 seconds"', 'delay = "-3 seconds"'),
        ["[streams.S]", "'-3 seconds'", "expected: a length of 0 or more", "write 3"],
    ),
    "a stream whose path is missing": (
        ('path = "R"', ""),
        ["[streams.R]", "a parquet stream without a path", "expected: the folder", "add path"],
    ),
    "a stream whose folder does not exist": (
        ('path = "R"', 'path = "Q"'),
        ["[streams.R]", "/Q does not exist", "expected: a folder of files", "correct the path"],
    ),
    "a sink whose path is missing": (
        ('"parquet", path = "out/pairs"', '"parquet"'),
        ["[queries.pairs] sink", "the parquet sink has no path", "expected:", "add a path"],
    ),
    "a sink in the folder of a stream": (
        ('path = "out/pairs"', 'path = "R"'),
        ["[queries.pairs] sink", "/R is also [streams.R] path", "expected: a folder of its own", "another path"],
    ),
    "a schema with an unknown type": (
        (R_SCHEMA, 'path = "R"\nschema = "k lnog, v long, ts timestamp"'),
        ["[streams.R]", "lnog", "did you mean 'long'?"],
    ),
    "a file that is not TOML": (("[flow]", "[flow"), ["is not TOML", "line 2", "expected:", "hint:"]),
}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Spark would be a mistake here."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("braidstream.cli.run.spark_session", start)


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(("change", "told"), CASES.values(), ids=CASES)
def test_refused_before_anything_starts(
    braid: Braid, workshop: Workshop, command: str, change: tuple[str, str], told: list[str]
) -> None:
    job = workshop.job(change)
    before = workshop.tree()
    outcome = braid(command, job)
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("error: ")
    assert str(job) in outcome.err
    for part in told:
        assert part in outcome.err, f"{part!r} is not in:\n{outcome.err}"
    assert workshop.tree() == before


def test_a_job_file_that_does_not_exist(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("run", workshop.folder / "jbo.toml")
    assert outcome.code == 2
    assert "there is no job file" in outcome.err
    assert "jbo.toml" in outcome.err


def test_a_setting_that_is_none_of_spark(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("run", workshop.job(), "--conf", "executor.memory=2g")
    assert outcome.code == 2
    assert "--conf 'executor.memory=2g'" in outcome.err


def test_a_sink_path_that_another_flow_owns(braid: Braid, workshop: Workshop) -> None:
    (workshop.folder / "out/pairs").mkdir(parents=True)
    (workshop.folder / "out/pairs/_braidstream.json").write_text(json.dumps({"flow": "somebody"}))
    job = workshop.job()
    before = workshop.tree()
    outcome = braid("run", job)
    assert outcome.code == 2
    assert "out/pairs' belongs to another flow" in outcome.err
    assert "expected: a path that no other flow writes to" in outcome.err
    assert "hint: choose another path" in outcome.err
    assert workshop.tree() == before


def test_a_checkpoint_folder_with_other_files(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("check", workshop.job(('checkpoint = "ck"', 'checkpoint = "S"')))
    assert outcome.code == 2
    assert "/S is no checkpoint" in outcome.err


def test_state_of_a_folder_that_is_no_checkpoint(braid: Braid, workshop: Workshop) -> None:
    outcome = braid("state", workshop.folder / "R")
    assert outcome.code == 2
    assert "is no checkpoint" in outcome.err
    assert "does not exist" in braid("state", workshop.folder / "nowhere").err


def test_a_checkpoint_that_is_a_file_or_nowhere(braid: Braid, workshop: Workshop) -> None:
    (workshop.folder / "file").write_text("")
    for command, argument in (
        ("state", workshop.folder / "file"),
        ("state", "nosuch://x"),
        ("check", workshop.job(('checkpoint = "ck"', 'checkpoint = "file"'))),
        ("check", workshop.job(('checkpoint = "ck"', 'checkpoint = "nosuch://x"'), name="other.toml")),
        ("check", workshop.job(('path = "out/pairs"', 'path = "nosuch://x"'), name="sink.toml")),
    ):
        outcome = braid(command, argument)
        assert outcome.code == 2, outcome
        assert outcome.err.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["plan", "--rate", "1", "--window", "1 s", "--slots", "2", "--streams", "-3"], "-3 streams"),
        (["demo", "--folder", "FILE", "--minutes", "0.1"], "is a file"),
        (["demo", "--picture", "x.xyz"], "no picture can be written to x.xyz"),
        (["tune", "FOLDER"], "cannot be read"),
        (["tune", "FILE", "--nodes", "-1"], "--nodes -1"),
        (["overlay", "simulate", "--plot", "FILE/x.png"], "no picture can be written"),
        (["paper", "wsj", "fig5", "--plot", "FOLDER"], "no picture can be written"),
        (["bench", "--output", "FOLDER"], "the measurements cannot be written"),
        (["bench", "peers", "-w", "zopf"], "unknown name 'zopf'"),
    ],
)
def test_wrong_input_of_any_command_has_no_traceback(
    braid: Braid, workshop: Workshop, arguments: list[str], told: str
) -> None:
    (workshop.folder / "file").write_text("")
    places = {"FILE": str(workshop.folder / "file"), "FOLDER": str(workshop.folder)}
    named = [argument.replace("FILE", places["FILE"]).replace("FOLDER", places["FOLDER"]) for argument in arguments]
    outcome = braid(*named)
    assert outcome.code == 2, outcome
    assert told in outcome.err
    assert "Traceback" not in outcome.err


def test_an_error_of_spark_is_one_line(braid: Braid, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkValueError

    def start(*_: object, **__: object) -> None:
        raise PySparkValueError("[SOMETHING] is wrong\n\nJVM stacktrace:\n\tat org.apache.spark.X.y(X.scala:1)")

    monkeypatch.setattr("braidstream.cli.run.spark_session", start)
    outcome = braid("explain", workshop.job())
    assert outcome.code == 3
    assert outcome.err.startswith("error: Spark failed: [SOMETHING] is wrong")
    assert len(outcome.err.splitlines()) == 1


def test_code_that_a_job_names_is_told_before_anything_is_started(braid: Braid, workshop: Workshop) -> None:
    """Settings by which Spark loads code, and functions by which SQL calls Java; other settings are no code."""
    plain = braid("check", workshop.job())
    assert plain.code == 0, plain
    assert "code" not in plain.err
    settings = {"spark.jars": "their.jar", "spark.driver.extraJavaOptions": "-javaagent:x.jar", "spark.app.id": "7"}
    settings |= {"spark.sql.extensions": "a.B", "spark.python.worker.reuse": "true", "spark.pyspark.python": "./python"}
    table = "\n".join(f'"{name}" = "{value}"' for name, value in settings.items())
    called = CQL.replace("R.v AS rv", "REFLECT('java.lang.System', 'getProperty', 'user.name') AS rv")
    job = workshop.job((CQL, called), ("[flow]", f"[spark]\n{table}\n\n[flow]"))
    told = braid("check", job)
    assert "[queries.pairs] runs code that the job names, by reflect" in told.err, told
    for name in ("spark.jars", "spark.driver.extraJavaOptions", "spark.sql.extensions", "spark.pyspark.python"):
        assert f"[spark] {name} may bring code that the job names: {settings[name]}" in told.err, told
    assert "spark.app.id" not in told.err
    assert "reuse" not in told.err
    assert not (workshop.folder / "ck").exists()


def test_options_by_which_a_client_loads_code_are_told_too() -> None:
    """librdkafka loads libraries and starts a program, pyiceberg imports modules, the JVM makes classes by name."""
    ends = {
        "[queries.q] sink": (
            "kafka",
            {"servers": "a.b:9092", "topic": "x.y", "plugin.library.paths": "./x", "sasl.kerberos.kinit.cmd": "x"},
        ),
        "[queries.q] bad": ("iceberg", {"table": "a.b", "py-io-impl": "theirs.IO", "py-catalog-impl": "theirs.C"}),
        "[streams.R]": (
            "kafka",
            {
                "kafka.sasl.jaas.config": 'x.Login required password="pw123456";',
                "kafka.interceptor.classes": "a.B",
                "kafka.bootstrap.servers": "a.b:9092",
                "subscribe": "a.b",
            },
        ),
        "[streams.S]": ("their.Source", {"maxFilesPerTrigger": "1"}),
        "[tables.T]": ("jdbc", {"driver": "a.Driver", "url": "jdbc:x"}),
        "[streams.P]": ("parquet", {"compression.codec": "zstd", "path": "a.b"}),
    }
    settings = {
        "spark.executor.resource.gpu.discoveryScript": "./x",
        "spark.executorEnv.PYTHONPATH": "theirs",
        "spark.shuffle.manager": "a.Manager",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.X",
        "spark.io.compression.codec": "lz4",
        "spark.sql.shuffle.partitions": "4",
    }
    told = list(named_code(settings, {}, ends))
    named = {line.partition(" may bring code")[0] for line in told}
    assert named == {
        "[queries.q] sink plugin.library.paths",
        "[queries.q] sink sasl.kerberos.kinit.cmd",
        "[queries.q] bad py-io-impl",
        "[queries.q] bad py-catalog-impl",
        "[streams.R] kafka.sasl.jaas.config",
        "[streams.R] kafka.interceptor.classes",
        "[streams.S]",
        "[tables.T] driver",
        "[spark] spark.executor.resource.gpu.discoveryScript",
        "[spark] spark.executorEnv.PYTHONPATH",
        "[spark] spark.shuffle.manager",
    }
    assert "pw123456" not in " ".join(told)


def test_options_that_bring_code_are_told_by_check(braid: Braid, workshop: Workshop) -> None:
    sink = 'sink = { format = "parquet", path = "out/pairs"'
    told = braid("check", workshop.job((sink, f'{sink}, options = {{ "output.committer.class" = "a.B" }}')))
    assert "[queries.pairs] sink output.committer.class may bring code that the job names: a.B" in told.err, told


def test_an_order_of_files_for_a_flow_that_runs_on_is_refused_by_check(braid: Braid, workshop: Workshop) -> None:
    job = workshop.job(('epoch = "available"', 'epoch = "2 seconds"'), (R_TIME, 'order = "name"\n' + R_TIME))
    outcome = braid("check", job)
    assert outcome.code == 2, outcome
    assert "the order of stream 'R' is 'name', and the flow runs on" in outcome.err
    assert braid("check", workshop.job((R_TIME, 'order = "name"\n' + R_TIME))).code == 0
