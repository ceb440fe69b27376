"""How a stream is read changes nothing: files read directly give what Spark's own reader gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream.lab.workloads import append_files
from braidstream.model.columns import HASH
from braidstream.plan.plans import Plan
from braidstream.spark.flow import Flow
from braidstream.spark.session import QUERY_SETTINGS, unweighed, warm_rows
from braidstream.spark.sources import fixed_width, general_columns
from tests.spark.stage import DDL, SCHEMA, declare, in_order, pairs, rows_of, some_epochs, write

pytestmark = pytest.mark.spark

EPOCHS = some_epochs(3, n_epochs=2)
QUERY = "SELECT R.k, R.v AS rv, S.v AS sv, S.name FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"


def run(flow: Flow, folder: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    made = [flow.query(text, name=f"q{i}").to("memory") for i, text in enumerate(queries)]
    flow.start(folder, warm=False).await_termination()
    return [rows_of(query.sink.table()) for query in made]  # type: ignore[union-attr]


@pytest.mark.parametrize("directly", [True, False], ids=["files read directly", "rows from Spark"])
def test_files_of_other_shapes_are_read_by_name(spark: SparkSession, tmp_path: Path, directly: bool) -> None:
    """Columns in another order, in another case, narrower, missing or superfluous; odd folder names; other files."""
    paths = write(tmp_path / "odd name, 100% + #1 ü", EPOCHS[:1])
    second = {name: pa.Table.from_pylist(rows, SCHEMA) for name, rows in EPOCHS[1].items()}
    reordered = second["R"].select(["ts", "v", "k"]).rename_columns(["TS", "V", "K"])
    append_files(paths["R"], [reordered.set_column(2, "K", reordered["K"].cast(pa.int32()))])
    append_files(paths["S"], [second["S"].append_column("more", second["S"]["v"])])
    for name in ("_SUCCESS", ".hidden.parquet", "_partial.parquet"):
        (paths["R"] / name).write_bytes(b"not Parquet")
    flow = declare(Flow(spark, slots=2, groups=3), paths, directly=directly)
    assert ("read in the routing task" in flow_with(flow).explain()) is directly
    found, names = run(flow, tmp_path / "ck", QUERY, QUERY.replace("S.name", "R.name"))
    expected = list(pairs(EPOCHS, (10, 10)))
    assert found == in_order((r["k"], r["v"], s["v"], s["name"]) for r, s in expected)
    early = {row["v"] for row in EPOCHS[0]["R"]}
    assert names == in_order((r["k"], r["v"], s["v"], r["name"] if r["v"] in early else None) for r, s in expected)


def flow_with(flow: Flow) -> Flow:
    """A flow of the same streams, to be explained."""
    other = Flow(flow.spark)
    other._streams.update(flow._streams)
    other.query(QUERY).to("noop")
    return other


def test_a_folder_with_partitions_is_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    for name, rows in EPOCHS[0].items():
        for day in (1, 2):
            own = [row for row in rows if row["v"] % 2 == day - 1]
            append_files(tmp_path / name / f"day={day}", [pa.Table.from_pylist(own, SCHEMA)])
    flow = Flow(spark, slots=2, groups=3)
    for name in "RS":
        flow.files(name, tmp_path / name, schema=f"{DDL}, day int", time="ts")
    (found,) = run(flow, tmp_path / "ck", QUERY.replace("S.name", "S.day"))
    assert found == in_order((r["k"], r["v"], s["v"], s["v"] % 2 + 1) for r, s in pairs(EPOCHS[:1], (10, 10)))


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    named = {f"spark.sql.{name.replace('_', '.')}": value for name, value in values.items()}
    before = {name: spark.conf.get(name) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


MOMENTS = [datetime(2024, 3, 10, 6, 59, 59, 5, timezone.utc) + timedelta(hours=h) for h in (0, 1, 2)]
TIMED = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("n", pa.int32()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)


@pytest.mark.parametrize(
    "directly",
    [
        pytest.param((True, True), marks=pytest.mark.slow),
        (True, False),
        pytest.param((False, False), marks=pytest.mark.slow),
    ],
    ids=["both", "one", "none"],
)
def test_the_session_decides_what_expressions_mean(
    spark: SparkSession, tmp_path: Path, directly: tuple[bool, bool]
) -> None:
    """Its time zone, whether errors become NULLs, and its own functions; whoever reads the files."""
    rows = [{"at": MOMENTS[v % 3], "n": v % 2, "v": v, "ts": v} for v in range(12)]
    spark.udf.register("thrice", lambda x: x * 3, "long")
    flow = Flow(spark, slots=2, groups=3)
    with settings(spark, session_timeZone="America/New_York", ansi_enabled="false"):
        for name, direct in zip("RS", directly, strict=True):
            append_files(tmp_path / name, [pa.Table.from_pylist(rows[i::2], TIMED) for i in (0, 1)])
            declare(
                flow,
                {name: tmp_path / name},
                directly=direct,
                ddl="at timestamp, n int, v long, ts timestamp",
                delay="1 second",
            )
        (found,) = run(
            flow,
            tmp_path / "ck",
            "SELECT R.v AS rv, S.v AS sv, hour(R.at) AS hour, R.v / (R.v - R.v) AS nothing, thrice(S.v) AS thrice, "
            "R.at AS at FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED] WHERE R.at = S.at AND R.n = S.n",
        )
    hours = {MOMENTS[0]: 1, MOMENTS[1]: 3, MOMENTS[2]: 4}  # 2 o'clock is not in New York on that day
    expected = [
        (r["v"], s["v"], hours[r["at"]], None, 3 * s["v"], r["at"])
        for r in rows
        for s in rows
        if (r["at"], r["n"]) == (s["at"], s["n"])
    ]
    assert [row[:5] for row in found] == [row[:5] for row in in_order(expected)]
    assert [row[5].astimezone(timezone.utc) for row in found] == [row[5] for row in in_order(expected)]


FIXED = {
    "b": ("boolean", pa.bool_(), [True, False, None]),
    "i8": ("tinyint", pa.int8(), [-128, 127, None]),
    "i16": ("smallint", pa.int16(), [-128, 127, 300]),
    "i32": ("int", pa.int32(), [-128, 127, None]),
    "f": ("float", pa.float32(), [0.0, -0.0, float("nan")]),
    "d": ("date", pa.date32(), [MOMENTS[0].date(), date(1, 1, 1), None]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [MOMENTS[0], MOMENTS[2], None]),
    "wall": ("timestamp_ntz", pa.timestamp("us"), [MOMENTS[0].replace(tzinfo=None), None]),
}
EQUAL = [
    *((name, name) for name in FIXED),
    ("i8", "i32"),
    ("i32", "i16"),
]


@pytest.mark.parametrize("directly", [(True, False), (False, True), (False, False)], ids="{0[0]}, {0[1]}".format)
def test_keys_of_a_fixed_width_are_hashed_alike_wherever_rows_come_from(
    spark: SparkSession, tmp_path: Path, directly: tuple[bool, bool]
) -> None:
    """Spark sends the columns, or the routing task reads them; one key or two, taken by the query or not."""
    random, flow = Random(5), Flow(spark, slots=2, groups=3)
    rows = [{name: random.choice(kind[2]) for name, kind in FIXED.items()} | {"v": v, "ts": v} for v in range(40)]
    schema = pa.schema(
        [*((n, kind[1]) for n, kind in FIXED.items()), ("v", pa.int64()), ("ts", TIMED.field("ts").type)]
    )
    ddl = ", ".join(f"{name} {kind[0]}" for name, kind in FIXED.items()) + ", v long, ts timestamp"
    for i, (name, direct) in enumerate(zip("RS", directly, strict=True)):
        append_files(tmp_path / name, [pa.Table.from_pylist(rows[i::2], schema)])
        declare(flow, {name: tmp_path / name}, directly=direct, ddl=ddl, delay="1 second")
    windows = "FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED] WHERE"
    queries = [f"SELECT R.v AS rv, S.v AS sv {windows} R.{one} = S.{other}" for one, other in EQUAL]
    queries.append(f"SELECT R.v AS rv, S.v AS sv, R.d AS d {windows} R.d = S.d AND R.i16 = S.i32")
    plan = planned(flow, queries)
    sent = [n for b in plan.branches if b.stream in plan.plain for n in general_columns("ts", b, plan.plain[b.stream])]
    assert sent
    assert not [name for name in sent if name.startswith(HASH)], "no hash comes from Spark"
    *single, double = run(flow, tmp_path / "ck", *queries)
    for (one, other), found in zip(EQUAL, single, strict=True):
        wanted = [(r["v"], s["v"]) for r in rows[::2] for s in rows[1::2] if same_key(r[one], s[other])]
        assert found == in_order(wanted), (one, other)
    both = [(r, s) for r in rows[::2] for s in rows[1::2] if same_key(r["d"], s["d"]) and same_key(r["i16"], s["i32"])]
    assert double == in_order((r["v"], s["v"], r["d"]) for r, s in both)


def same_key(one: Any, other: Any) -> bool:
    """As SQL says it: NaN is NaN, NULL is nothing."""
    return one is not None and (one == other or str(one) == str(other) == "nan")


def planned(flow: Flow, queries: Sequence[str]) -> Plan:
    """What would run."""
    other = Flow(flow.spark)
    other._streams.update(flow._streams)
    return other._plan({f"q{i}": other.query(text, name=f"q{i}").to("noop") for i, text in enumerate(queries)})


@pytest.mark.parametrize(("output", "limits"), [("R.v", unweighed(8 * 4)), ("S.name", {})])
def test_only_rows_of_a_fixed_width_are_not_weighed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, limits: dict[str, str]
) -> None:
    """And only while the job runs that routes them; of others, so few at once as Spark has, which goes through NULL
    arrays that are in a batch again for each row."""
    assert QUERY_SETTINGS["spark.sql.execution.arrow.maxRecordsPerBatch"] == "10000"
    names, frames = list(unweighed(1)), type(spark.range(1))
    collect, seen = frames.collect, list[dict[str, str]]()

    def limits_of(frame: Any) -> dict[str, str]:
        return {name: frame.sparkSession.conf.get(name) for name in names}

    def looked_at(frame: Any) -> Any:
        seen.append(limits_of(frame))
        return collect(frame)

    monkeypatch.setattr(frames, "collect", looked_at)
    flow = declare(Flow(spark, slots=2, groups=3), write(tmp_path, EPOCHS[:1]), directly=False)
    put_out = list[dict[str, str]]()
    query = flow.query(f"SELECT R.k, {output} AS o FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k")
    query.to(lambda frame, _: put_out.append(limits_of(frame)))
    flow.start(tmp_path / "ck", warm=False).await_termination()
    usual = {name: QUERY_SETTINGS[name] for name in names}
    assert seen == [usual | limits]
    assert put_out
    assert all(one == usual for one in put_out)


def test_rows_of_any_types_pass_from_the_jvm_to_python_once_before_the_first_epoch(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = type(spark.range(1))
    collect, seen = frames.collect, list[str]()

    def counted(frame: Any) -> Any:
        seen.append(frame.schema.simpleString())
        return collect(frame)

    monkeypatch.setattr(frames, "collect", counted)
    kinds = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(1,1)", "decimal(38,38)", "boolean")
    kinds += ("string", "string collate UNICODE_CI", "binary", "date", "timestamp", "timestamp_ntz", "interval day")
    kinds += ("array<int>", "map<string,int>", "struct<a:int,b:array<date>>")
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(kinds))
    schema = spark.createDataFrame([], columns).schema  # type: ignore[type-var]
    warm_rows(spark, None, [schema, schema])
    n_jobs = len(seen)
    assert n_jobs > 0
    warm_rows(spark, None, [schema])
    assert len(seen) == n_jobs


def test_wide_rows_are_so_many_at_once_that_a_batch_stays_as_large(spark: SparkSession, tmp_path: Path) -> None:
    assert unweighed(1) == unweighed(256)
    rows, of_a_byte = (int(next(v for n, v in unweighed(w).items() if "Records" in n)) for w in (4096, 1))
    assert rows * 4096 == 256 << 20
    assert of_a_byte == 1_000_000
    (tmp_path / "R").mkdir()
    names = [f"c{i}" for i in range(20)]
    stream = spark.readStream.schema("k long, ts timestamp, " + ", ".join(f"{n} decimal(38, 2)" for n in names))
    flow = Flow(spark, slots=2).stream("R", stream.parquet(str(tmp_path / "R")), time="ts")
    flow.stream("S", stream.parquet(str(tmp_path / "R")), time="ts")
    for kept, width in ((["c0"], 8 * 2 + 16), (names, 8 * 2 + 20 * 16)):
        taken = ", ".join(f"R.{name} AS {name}" for name in kept)
        query = f"SELECT {taken} FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE R.k = S.k"
        plan = flow._plan({"q": flow.query(query, name=f"q{width}").to("noop")})
        assert fixed_width(flow._all["R"], plan.branches[0], plan.plain["R"]) == width


@pytest.mark.parametrize("at", ["column", "frame", "filter"])
def test_where_python_functions_run_on_the_way_batches_are_weighed(
    spark: SparkSession, tmp_path: Path, at: str
) -> None:
    """What they are handed, a text here, is no wider than 256 MB either."""
    (tmp_path / "R").mkdir()
    stream = spark.readStream.schema("k long, name string, ts timestamp").parquet(str(tmp_path / "R"))
    length = spark.udf.register("length_of", len, "int")
    frame = stream
    if at == "column":
        frame = stream.withColumn("k", length("name").cast("long"))
    elif at == "frame":
        frame = stream.mapInArrow(lambda batches: batches, stream.schema)
    flow = Flow(spark, slots=2).stream("R", frame, time="ts").stream("S", stream, time="ts")
    where = "R.k = S.k"
    if at == "filter":
        where += " AND length_of(R.name) > 3"
    query = f"SELECT R.k AS k FROM R [RANGE 10 SECONDS], S [RANGE 10 SECONDS] WHERE {where}"
    plan = flow._plan({"q": flow.query(query, name="q").to("noop")})
    widths = {b.stream: fixed_width(flow._all[b.stream], b, plan.plain[b.stream]) for b in plan.branches}
    assert widths == {"R": None, "S": 16}
