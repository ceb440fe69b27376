"""The public surface: what it is, that it is there, and that looking at it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import braidstream
from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from tests.cli.workshop import Workshop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUBLIC = {
    "BraidstreamError",
    "CheckpointInUse",
    "CheckpointMismatch",
    "DamagedState",
    "EpochProgress",
    "Flow",
    "Handle",
    "InputError",
    "Job",
    "JobError",
    "LeaseLost",
    "QueryError",
    "RunError",
    "SinkError",
    "SinkFailed",
    "StreamError",
    "__version__",
    "join",
    "local_session",
    "result_files",
    "similar",
}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_the_public_names_are_these_and_no_others() -> None:
    assert set(braidstream.__all__) == PUBLIC


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    for name in PUBLIC - {"__version__"}:
        assert getattr(braidstream, name).__doc__, name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'flow'"):
        braidstream.flow  # noqa: B018


def test_dir_shows_names_that_were_not_imported_yet() -> None:
    assert "True" in run("import braidstream; print({'Flow', 'join'} <= set(dir(braidstream)))")


def test_importing_the_package_brings_neither_spark_nor_arrow() -> None:
    program = (
        "import sys, braidstream; print([m for m in ('pyspark', 'pyarrow', 'numpy', 'typer') if m in sys.modules])"
    )
    assert run(program).strip() == "[]"


def test_the_help_of_the_command_brings_no_spark() -> None:
    program = (
        "import sys; sys.argv = ['braid', '--help']\n"
        "from braidstream.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print('pyspark' in sys.modules)"
    )
    shown = run(program)
    assert shown.splitlines()[-1] == "False"
    for command in ("run", "check", "explain", "state", "demo", "bench", "paper"):
        assert f" {command} " in shown


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert braidstream.__version__ == version("braidstream")


@pytest.fixture
def sides(tmp_path: Path, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Two streaming DataFrames: (k, v, ts) and (id, w, ts)."""
    workshop = Workshop.make(tmp_path, files=1, rows_per_file=300)
    left, right = (
        spark.readStream.schema("k long, v long, ts timestamp").parquet(str(workshop.folder / name)) for name in "RS"
    )
    return left, right.withColumnsRenamed({"k": "id", "v": "w"})


@pytest.mark.spark
def test_join_in_one_line(sides: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    joined = braidstream.join(*sides, on=[("k", "id")], within=("1 second", "500 ms")).to("memory")
    assert joined.start(tmp_path / "ck").await_termination(120)
    table = joined.table()
    assert table is not None
    assert table.column_names == ["k", "v", "left_ts", "id", "w", "right_ts"]
    expected = batch_join(
        [BatchStream("R", tmp_path / "R", 1_000_000), BatchStream("S", tmp_path / "S", 500_000)],
        [("R.k", "S.k")],
        {"k": "R.k", "v": "R.v", "left_ts": "R.ts", "id": "S.k", "w": "S.v", "right_ts": "S.ts"},
    )
    assert expected.num_rows > 100
    assert same_rows(table, expected)


@pytest.mark.spark
def test_join_writes_the_query_that_it_means(sides: tuple[DataFrame, DataFrame]) -> None:
    left, right = sides
    renamed = right.withColumnRenamed("id", "k")
    joined = braidstream.join(left, renamed, on="k", within=None, delay=("1 s", "2 s"))
    assert (
        joined.cql.splitlines()[0]
        == "SELECT left.k AS k, left.v AS v, left.ts AS left_ts, right.w AS w, right.ts AS right_ts"
    )
    assert "[RANGE UNBOUNDED]" in joined.cql
    assert "stream right: time ts, delay 2 seconds" in joined.explain()
    chosen = braidstream.join(left, renamed, on="k", within="1 s", select=["left.k AS k", "left.v + right.w AS total"])
    assert "left.v + right.w AS total" in chosen.cql
    with pytest.raises(braidstream.InputError, match="not in memory"):
        chosen.table()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"on": "kk", "within": "1 s"}, "the left side has no column 'kk'"),
        ({"on": "k", "within": "1 s"}, "the right side has no column 'k'"),
        ({"on": [], "within": "1 s"}, r"on=\[\]"),
        ({"on": [("k", "id")], "within": "1"}, "1 has no unit"),
        ({"on": [("k", "id")], "within": "-1 s"}, "is negative"),
        ({"on": [("k", "id")], "within": ("1 s", "1 s", "1 s")}, "has 3 parts"),
        ({"on": [("k", "id")], "within": "1 s", "time": "tz"}, "has no column 'tz' for its time"),
        ({"on": [("k", "id")], "within": "1 s", "delay": "-1 s"}, "is negative"),
        ({"on": [("k", "id")], "within": "1 s", "select": "left.q"}, "has no column 'q'"),
    ],
)
def test_join_refuses_wrong_arguments(sides: tuple[DataFrame, DataFrame], arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(braidstream.InputError, match=told):
        braidstream.join(*sides, **arguments)


@pytest.mark.spark
def test_join_needs_streams_with_one_timestamp_or_its_name(
    sides: tuple[DataFrame, DataFrame], spark: SparkSession
) -> None:
    left, right = sides
    with pytest.raises(braidstream.StreamError, match="the right side has 0 timestamp columns"):
        braidstream.join(left, right.drop("ts"), on=[("k", "id")], within="1 s")
    with pytest.raises(braidstream.StreamError, match="not a streaming DataFrame"):
        braidstream.join(left, spark.range(3), on=[("k", "id")], within="1 s", time="ts")
    with pytest.raises(braidstream.StreamError, match="the right side is list"):
        braidstream.join(left, [], on="k", within="1 s")


def test_packages_of_0_1_0_are_found_under_their_old_names() -> None:
    program = (
        "import warnings; warnings.simplefilter('error', DeprecationWarning)\n"
        "try:\n    import braidstream.workloads\nexcept DeprecationWarning as told:\n    print(told)\n"
        "warnings.simplefilter('ignore')\n"
        "from braidstream.workloads import UniformKeys\nfrom braidstream.overlay import Scenario\n"
        "import braidstream.lab.workloads as now\nprint(UniformKeys is now.UniformKeys)"
    )
    assert run(program) == "braidstream.workloads is braidstream.lab.workloads now\nTrue\n"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("workloads", ("UniformKeys", "write_stream", "append_files")),
        ("workloads.digits", ("DIMENSIONS",)),
        ("overlay", ("Scenario", "simulate")),
        ("control.directory", ("Directory",)),
        ("control.instructions", ("apply",)),
        ("control.reports", ("GroupReport", "SlotReport")),
        ("functions.batch", ("WindowBatch",)),
        ("functions.picture", ("draw", "to_dot")),
        ("functions.windows", ("WindowSpec",)),
        ("testing.faults", ("armed",)),
        ("testing.harness", ("Harness",)),
    ],
)
def test_what_0_1_0_documented_is_found_where_it_was_with_a_warning(module: str, names: tuple[str, ...]) -> None:
    imports = f"from braidstream.{module} import {', '.join(names)}"
    ran = subprocess.run([sys.executable, "-W", "default", "-c", imports], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"DeprecationWarning: braidstream.{module} is braidstream." in ran.stderr
