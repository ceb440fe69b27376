"""Expressions mean what Spark says: types of keys, collations, zones, literals and functions, both ways of reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from braidstream import Flow
from braidstream.errors import InputError, QueryError, StreamError
from braidstream.lab.workloads import append_files
from tests.spark.meanings import rows_of

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
KINDS = {
    "l": ("bigint", pa.int64()),
    "d": ("date", pa.date32()),
    "e": ("date", pa.date32()),
    "t": ("timestamp", pa.timestamp("us", "UTC")),
    "n": ("timestamp_ntz", pa.timestamp("us")),
    "s": ("string", pa.string()),
    "lc": ("string collate UTF8_LCASE", pa.string()),
    "rt": ("string collate UTF8_BINARY_RTRIM", pa.string()),
    "x": ("double", pa.float64()),
    "js": ("string", pa.string()),
    "ts": ("timestamp", pa.timestamp("us", "UTC")),
}
DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
FROM = "FROM R [RANGE UNBOUNDED], S [RANGE UNBOUNDED]"


def random_row(random: Random) -> dict[str, Any]:
    days = [START.date() + timedelta(days=n) for n in range(4)]
    moment = datetime(2024, 1, 1, random.randint(0, 23), 0, random.randint(0, 9), random.choice([0, 500_000]))  # noqa: DTZ001
    return {
        "l": 2**53 + random.randint(-12, 12) if random.random() < 0.7 else random.randint(2**62, 2**62 + 9),
        "d": random.choice(days),
        "e": random.choice(days),
        "t": moment.replace(tzinfo=timezone.utc),
        "n": moment,
        "s": random.choice(["a", "A", "a ", "it's", "its", None]),
        "lc": random.choice(["a", "A", "b", "B", None]),
        "rt": random.choice(["a", "a ", "a  ", "b", None]),
        "x": random.choice([1000.0, 3.0, 7.0, 1e-5]),
        "js": random.choice(['{"a": 1}', '{"a": 2}', "{}"]),
        "ts": START,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Random rows of R and S."""
    random = Random(15)
    schema = pa.schema([(name, kind) for name, (_, kind) in KINDS.items()])
    for name in "RS":
        append_files(tmp_path / name, [pa.Table.from_pylist([random_row(random) for _ in range(60)], schema)])
    return tmp_path


def flow_of(spark: SparkSession, folder: Path, way: str) -> Flow:
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        if way == "direct":
            flow.files(name, folder / name, schema=DDL, time="ts")
        else:
            flow.stream(name, spark.readStream.schema(DDL).parquet(str(folder / name)), time="ts")
    return flow


def answers(flow: Flow, folder: Path, way: str, queries: Mapping[str, str]) -> dict[str, Counter[Any]]:
    for name, text in queries.items():
        flow.query(text, name).to("parquet", str(folder / way / name))
    flow.start(folder / f"checkpoint-{way}", warm=False).await_termination()
    read = {name: flow.spark.read.parquet(str(folder / way / name)) for name in queries}
    return {name: rows_of(frame.toArrow()) for name, frame in read.items()}


CASES = {
    "bigints_plus_half": ("R.l", "R.l + 0.5 = S.l + 0.5"),
    "rounded_bigints": ("R.l", "round(R.l, 0) = round(S.l, 0)"),
    "seconds_with_a_fraction": ("R.t", "extract(SECOND FROM R.t) = extract(SECOND FROM S.t)"),
    "spans_of_days": ("R.d, S.d AS d2", "R.d - R.e = S.d - S.e"),
    "local_and_instant": ("R.n, S.t", "R.n = S.t"),
    "a_predicate_with_a_collation": ("R.lc, S.rt", "R.l = S.l AND (R.lc = S.lc OR S.rt = 'a')"),
    "a_filter_with_a_collation": ("R.lc", "R.l = S.l AND R.lc = 'A' AND S.rt = 'a'"),
    "a_quote_in_a_text": ("R.s", "R.l = S.l AND R.s = 'it''s'"),
    "other_texts": ("r'\\n' AS raw, 'a' 'b' AS two, \"q\" AS q, '\\u0041' AS u", "R.l = S.l AND S.s <> 'it\\'s'"),
    "functions": (
        "unix_date(R.d) AS u, log10(S.x) AS g, variant_get(parse_json(R.js), '$.a', 'int') AS v, nvl(R.s, '') AS z",
        "R.l = S.l",
    ),
    "a_function_of_json_as_key": ("R.js", "variant_get(parse_json(R.js), '$.a', 'int') = S.l - 9007199254740992"),
    "days_as_numbers": ("R.d", "unix_date(R.d) = unix_date(S.e)"),
}


@pytest.mark.parametrize("way", ["direct", pytest.param("general", marks=pytest.mark.slow)])
def test_expressions_mean_what_spark_says(spark: SparkSession, folder: Path, way: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for name in "RS":
            spark.read.schema(DDL).parquet(str(folder / name)).createOrReplaceTempView(name)
        queries = {name: f"SELECT {items} {FROM} WHERE {where}" for name, (items, where) in CASES.items()}
        found = answers(flow_of(spark, folder, way), folder, way, queries)
        for name, text in queries.items():
            batch = spark.sql(text.replace("[RANGE UNBOUNDED]", ""))
            written = spark.read.parquet(str(folder / way / name))
            assert found[name] == rows_of(batch.toArrow()), name
            assert [f.dataType for f in written.schema] == [f.dataType for f in batch.schema], name
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


REFUSED = [
    ("R.l", "R.lc = S.lc", "UTF8_LCASE"),
    ("R.l", "R.rt = S.rt", "RTRIM"),
    ("R.l", "lower(R.lc) = S.lc", "UTF8_LCASE"),
    ("R.l", "R.s COLLATE UNICODE_CI = S.s", "UNICODE_CI"),
    ("R.lc, count(*) AS c", "R.l = S.l GROUP BY R.lc", "UTF8_LCASE"),
    ("min(R.rt) AS m", "R.l = S.l", "RTRIM"),
    ("R.l", "R.s = S.l", "do not compare"),
    ("R.l", "roundd(R.l) = S.l", "roundd|ROUNDD"),
    ("roundd(R.l, 1)", "R.l = S.l", "roundd|ROUNDD"),
    ("R.l", "R.l = S.l AND R.l", "BOOLEAN"),
    ("R.l", "R.l = S.l AND R.s > INTERVAL '1' DAY", "R.s|INTERVAL|interval"),
    ("sum(log10(R.x)) AS c", "R.l = S.l", "not supported in a query with aggregates"),
]


@pytest.mark.parametrize(("items", "where", "why"), REFUSED)
def test_what_cannot_be_as_spark_has_it_is_refused(
    spark: SparkSession, folder: Path, items: str, where: str, why: str
) -> None:
    with pytest.raises(QueryError, match=why) as refused:
        flow_of(spark, folder, "general").query(f"SELECT {items} {FROM} WHERE {where}")
    assert refused.value.expected or refused.value.fix


def test_times_with_and_without_a_zone_are_refused_where_the_zone_matters(spark: SparkSession, folder: Path) -> None:
    def start(zone: str) -> None:
        spark.conf.set("spark.sql.session.timeZone", zone)
        flow = Flow(spark, slots=2, groups=4).files("R", folder / "R", schema=DDL, time="t")
        flow.files("S", folder / "S", schema=DDL, time="n")
        flow.query("SELECT R.l FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR] WHERE R.l = S.l").to("noop")
        flow.start(folder / f"ck-{zone.replace('/', '-')}", warm=False).await_termination()

    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        with pytest.raises(StreamError, match="Asia/Kolkata"):
            start("Asia/Kolkata")
        start("UTC")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_type_that_arrow_does_not_have_is_refused(spark: SparkSession, folder: Path) -> None:
    frame = spark.readStream.schema(f"{DDL}, ym interval year to month").parquet(str(folder / "R"))
    flow = Flow(spark).stream("R", frame, time="ts").files("S", folder / "S", schema=DDL, time="ts")
    flow.query(f"SELECT R.l {FROM} WHERE R.l = S.l").to("noop")
    with pytest.raises(InputError, match="ym"):
        flow.start(folder / "ck")
