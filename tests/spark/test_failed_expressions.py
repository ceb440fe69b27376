"""Rows of which an expression of a query fails go to its output, each once; the answer is the join over the others."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream import Flow, QueryError, RunError, SinkError
from braidstream.jobs.checking import check_job
from braidstream.jobs.form import build, read, start
from braidstream.model.faults import armed
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest
from tests.spark.stage import declare, pairs, some_epochs
from tests.spark.stage import write as write_epochs

pytestmark = pytest.mark.spark

Rows = Sequence[tuple[str | None, int | None, int]]
"""Of a stream: s, v and the minute."""
JOB = """
[flow]
checkpoint = "ck"
final = {final}
slots = 2
groups = 4
[streams.R]
format = "json"
path = "R"
schema = "id int, s string, v int, ts timestamp"
time = "ts"
options = {{ maxFilesPerTrigger = 1 }}
[streams.S]
format = "json"
path = "S"
schema = "id int, s string, v int, ts timestamp"
time = "ts"
options = {{ maxFilesPerTrigger = 1 }}
"""
QUERY = """
[queries.{name}]
cql = "{cql}"
sink = {{ format = "parquet", path = "{name}" }}
"""
FROM = "FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR]"


def write(folder: Path, stream: str, number: int, rows: Rows) -> None:
    (folder / stream).mkdir(exist_ok=True)
    times = (f"2026-01-01T00:{minute:02d}:00Z" for _, _, minute in rows)
    texts = ({"id": 100 * number + i, "s": s, "v": v} for i, (s, v, _) in enumerate(rows))
    lines = (json.dumps({**one, "ts": time}) for one, time in zip(texts, times, strict=True))
    file = folder / stream / f"{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in this order


def job(folder: Path, queries: Mapping[str, str], bad: Sequence[str] = (), *, final: bool = False) -> Path:
    text = JOB.format(final=str(final).lower())
    for name, cql in queries.items():
        text += QUERY.format(name=name, cql=cql)
        text += f'bad = {{ format = "json", path = "bad-{name}" }}\n' if name in bad else ""
    file = folder / "job.toml"
    file.write_text(text)
    return file


def run(spark: SparkSession, file: Path) -> Any:
    handle = start(read(file), spark)
    handle.await_termination()
    return handle


def results(spark: SparkSession, folder: Path, name: str) -> list[tuple[Any, ...]]:
    found = [tuple(row) for row in spark.read.parquet(str(folder / name)).collect()]
    return sorted(found, key=str)


def bad(folder: Path, name: str) -> list[tuple[str, str, Any]]:
    """Of each bad row the part of the output that it is in, the reason, and the row."""
    found = []
    for part in (folder / f"bad-{name}").glob("stream=*/part-*"):
        for line in part.read_text().splitlines():
            one = json.loads(line)
            assert one["query"] == name.rstrip("2")
            found.append((part.parent.name.removeprefix("stream="), one["reason"], json.loads(one["row"])))
    return sorted(found, key=str)


@pytest.mark.slow
def test_keys_conditions_and_outputs_that_fail_of_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "R", 0, [("1", 1, 0), ("x", 2, 0), (None, 3, 0), ("2", 0, 1), ("7", 6, 1)])
    write(tmp_path, "R", 1, [("y", 4, 2), ("3", 5, 2)])
    write(tmp_path, "S", 0, [("1", 1, 0), ("1", 0, 1), ("2", 7, 1)])
    write(tmp_path, "S", 1, [("3", 5, 2), ("z", 5, 2)])
    queries = {
        "key": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE CAST(R.s AS int) = CAST(S.s AS int)",
        "left": "SELECT R.v AS rv, S.v AS sv FROM R [RANGE 1 HOUR] LEFT JOIN S [RANGE 1 HOUR]"
        " ON CAST(R.s AS int) = S.v WHERE R.v > 0 AND 10 / R.v < 9",
        "parts": f"SELECT R.v AS rv, 10 / S.v AS part, CAST(R.s AS int) + 1 AS n, CAST(R.s AS int) AS m {FROM}"
        " WHERE R.s = S.s AND 8 div (R.v + S.v - 7) >= -9",
        "plain": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE R.s = S.s",
    }
    file = job(tmp_path, queries, ["key", "left", "parts"], final=True)
    check_job(read(file))
    handle = run(spark, file)
    assert results(spark, tmp_path, "key") == [(0, 7), (1, 0), (1, 1), (5, 5)]
    assert [(where, why, row["s"]) for where, why, row in bad(tmp_path, "key")] == [
        ("R", "CAST(s AS INT) cannot be computed", "x"),
        ("R", "CAST(s AS INT) cannot be computed", "y"),
        ("S", "CAST(s AS INT) cannot be computed", "z"),
    ]
    assert results(spark, tmp_path, "left") == [(3, None), (5, None), (6, 7)]
    assert [(where, row["v"]) for where, _, row in bad(tmp_path, "left")] == [("R", 2), ("R", 4)]
    assert results(spark, tmp_path, "parts") == [(1, 10.0, 2, 1), (5, 2.0, 4, 3)]
    assert bad(tmp_path, "parts") == [
        ("R+S", "10 / S.v cannot be computed", {"R": {"s": "1", "v": 1}, "S": {"v": 0}}),
        ("R+S", "8 DIV (R.v + S.v - 7) >= -9 cannot be computed", {"R": {"s": "2", "v": 0}, "S": {"v": 7}}),
    ]
    assert results(spark, tmp_path, "plain") == [(0, 7), (1, 0), (1, 1), (5, 5)]
    assert sum((Counter(one.bad) for one in handle.progress), Counter()) == {"R": 2, "S": 1, "R+S": 2}
    assert "rows of R+S on which an expression failed: 2 of epoch 0" in handle.progress[0].warnings
    assert "rows on which an expression fails: json files in" in handle.explain()


@pytest.mark.slow
def test_what_spark_would_compute_once_before_the_expression_is_tried_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "R", 0, [("1", 1, 0), ("x", 2, 0), ("7", 2, 0), ("4", 3, 0)])
    write(tmp_path, "S", 0, [("1", 1, 0), ("y", 4, 0), ("2", 2, 0)])
    queries = {
        "between": f"SELECT R.s AS r, S.s AS s {FROM} WHERE R.v = S.v AND CAST(R.s AS int) BETWEEN 1 AND 5",
        "nullif": f"SELECT R.s AS r, S.s AS s {FROM} WHERE nullif(CAST(R.s AS int), 1) = S.v",
        "both": f"SELECT R.s AS r, S.s AS s, nullif(CAST(S.s AS int), 1) AS n {FROM}"
        " WHERE R.v = S.v AND 10 div (R.v + S.v - 4) BETWEEN -9 AND 9",
        "sums": f"SELECT R.v AS v, SUM(nullif(CAST(R.s AS int), 7)) AS t {FROM} WHERE R.v = S.v GROUP BY R.v",
    }
    run(spark, job(tmp_path, queries, list(queries)))
    delivered = Manifest.read(Files(str(tmp_path / "ck")), 0).delivered  # what a start tells deleted files by
    assert {str(path.relative_to(tmp_path).parent) for path in tmp_path.rglob("part-*")} <= {
        str(Path(folder).relative_to(tmp_path)) for folder in delivered
    }
    assert results(spark, tmp_path, "between") == [("1", "1")]
    assert [(where, row["s"]) for where, _, row in bad(tmp_path, "between")] == [("R", "x")]
    assert results(spark, tmp_path, "nullif") == [("4", "y")]
    assert [(where, row["s"]) for where, _, row in bad(tmp_path, "nullif")] == [("R", "x")]
    assert results(spark, tmp_path, "both") == [("1", "1", None)]
    assert [(where, row["R"]["v"]) for where, _, row in bad(tmp_path, "both")] == [("R+S", 2), ("R+S", 2)]
    assert {row[:2] for row in results(spark, tmp_path, "sums")} == {(1, 1), (2, None)}
    assert [(where, row["s"]) for where, _, row in bad(tmp_path, "sums")] == [("R", "x")]


QUERIES = {
    "inner": f"SELECT R.id AS r, S.id AS s, 5 div (R.v - S.v) AS d {FROM}"
    " WHERE CAST(R.s AS int) = CAST(S.s AS int) AND 6 div R.v > 1",
    "left": "SELECT R.id AS r, S.id AS s, CAST(S.s AS int) AS c, CAST(S.s AS int) + 1 AS d FROM R [RANGE 1 HOUR]"
    " LEFT JOIN S [RANGE 1 HOUR] ON CAST(R.s AS int) = S.v WHERE 6 div R.v < 100",
    "sums": f"SELECT R.v AS g, COUNT(*) AS n, SUM(CAST(S.s AS int)) AS t {FROM} WHERE R.v = S.v GROUP BY R.v",
    "pairs": f"SELECT R.v AS g, COUNT(*) AS n, SUM(10 div (R.v - S.v)) AS t, MAX(R.id) AS r, MAX(S.id) AS s {FROM}"
    " WHERE R.s = S.s AND 9 div S.v != 4 GROUP BY R.v",
    "hours": f"SELECT R.v AS g, COUNT(*) AS n, SUM(CAST(S.s AS int)) AS t, MAX(R.id) AS r, MAX(S.id) AS s {FROM}"
    " WHERE R.v = S.v GROUP BY R.v, window(R.ts, '1 hour')",
    "chain": "SELECT R.id AS r, S.id AS s, Q.id AS q FROM R [RANGE 1 HOUR], S [RANGE 1 HOUR], R AS Q [RANGE 1 HOUR]"
    " WHERE R.v = S.v AND CAST(S.s AS int) = Q.id % 100",
    "plain": f"SELECT R.id AS r, S.id AS s {FROM} WHERE R.s = S.s",
}
DEFINED = """
CREATE VIEW R_ AS SELECT *, TRY_CAST(s AS INT) AS n, s IS NOT NULL AND TRY_CAST(s AS INT) IS NULL AS is_bad FROM R;
CREATE VIEW S_ AS SELECT *, TRY_CAST(s AS INT) AS n, s IS NOT NULL AND TRY_CAST(s AS INT) IS NULL AS is_bad FROM S;
CREATE VIEW inner_ AS SELECT R_.id AS r, S_.id AS s, R_.v - S_.v AS d FROM R_ JOIN S_ ON R_.n = S_.n
    WHERE R_.v IN (1, 2, 3);
CREATE VIEW pairs_ AS SELECT R_.id AS r, S_.id AS s, R_.v AS g, R_.v - S_.v AS d
    FROM R_ JOIN S_ ON R_.s = S_.s WHERE S_.v NOT IN (0, 2);
CREATE VIEW left_ AS SELECT R_.id AS r, S_.id AS s, S_.n AS n, S_.is_bad AS is_bad
    FROM R_ LEFT JOIN S_ ON R_.n = S_.v WHERE R_.v != 0 AND NOT R_.is_bad;
"""
WANTED = {
    "inner": "SELECT r, s, CASE WHEN d > 0 THEN 5 // d ELSE -(5 // -d) END FROM inner_ WHERE d IS DISTINCT FROM 0",
    "left": "SELECT r, s, n, n + 1 FROM left_ WHERE is_bad IS NOT TRUE",
    "sums": "SELECT R_.v, COUNT(*), SUM(S_.n) FROM R_ JOIN S_ ON R_.v = S_.v WHERE NOT S_.is_bad GROUP BY 1",
    "pairs": "SELECT g, COUNT(*), SUM(CASE WHEN d > 0 THEN 10 // d ELSE -(10 // -d) END), MAX(r), MAX(s) FROM pairs_"
    " WHERE d IS DISTINCT FROM 0 GROUP BY 1",
    "hours": "SELECT R_.v, COUNT(*), SUM(S_.n), MAX(R_.id), MAX(S_.id) FROM R_ JOIN S_ ON R_.v = S_.v"
    " WHERE NOT S_.is_bad GROUP BY 1",
    "chain": "SELECT R_.id, S_.id, Q.id FROM R_ JOIN S_ ON R_.v = S_.v JOIN R_ Q ON S_.n = Q.id % 100",
    "plain": "SELECT R.id, S.id FROM R JOIN S ON R.s = S.s",
}
FAILING = {
    "inner": "SELECT 'R', id, NULL FROM R_ WHERE v = 0 OR is_bad AND v IN (1, 2, 3)"
    " UNION ALL SELECT 'S', id, NULL FROM S_ WHERE is_bad UNION ALL SELECT 'R+S', r, s FROM inner_ WHERE d = 0",
    "left": "SELECT 'R', id, NULL FROM R_ WHERE v = 0 OR is_bad AND v IS NOT NULL"
    " UNION ALL SELECT 'R+S', r, s FROM left_ WHERE is_bad",
    "sums": "SELECT 'S', id, NULL FROM S_ WHERE is_bad",
    "pairs": "SELECT 'S', id, NULL FROM S_ WHERE v = 0 UNION ALL SELECT 'R+S', r, s FROM pairs_ WHERE d = 0",
    "hours": "SELECT 'R+S', R_.id, S_.id FROM R_ JOIN S_ ON R_.v = S_.v WHERE S_.is_bad",
    "chain": "SELECT 'S', id, NULL FROM S_ WHERE is_bad",
}


def asked(streams: Mapping[str, Sequence[Rows]]) -> Any:
    """DuckDB with the rows, and with what fails spelled out."""
    database = duckdb.connect()
    for name, files in streams.items():
        database.execute(f"CREATE TABLE {name} (id INT, s VARCHAR, v INT)")
        rows = [(100 * number + i, s, v) for number, own in enumerate(files) for i, (s, v, _) in enumerate(own)]
        database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    database.execute(DEFINED)
    return database


def failed_of(folder: Path, name: str) -> list[tuple[str, int, int | None]]:
    """The part, and the ids, of each bad row."""
    found: list[tuple[str, int, int | None]] = []
    for where, _, row in bad(folder, name):
        found.append((where, row["R"]["id"], row["S"]["id"]) if where == "R+S" else (where, row["id"], None))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after-results", "delivery-put", "delivery-done"])
def test_the_answer_is_the_join_over_rows_that_do_not_fail_also_after_a_crash(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    """The last two strike between the first bad rows of an epoch and the results beside them."""
    chance = random.Random(2)
    texts, numbers = ["1", "2", "3", "x", "", None], [-2, 0, 1, 2, 3, None]
    streams = {
        name: [[(chance.choice(texts), chance.choice(numbers), 5 * number) for _ in range(9)] for number in range(3)]
        for name in "RS"
    }
    for name, files in streams.items():
        for number, rows in enumerate(files):
            write(tmp_path, name, number, rows)
    file = job(tmp_path, QUERIES, list(FAILING), final=True)
    with pytest.raises(Exception, match="injected fault"), armed(f"{point}:1:raise"):
        run(spark, file)
    if point != "after-results":
        inner = {path.parent.name for path in tmp_path.glob("bad-inner/*/part-*-0000000001-*")}
        assert inner == {"stream=R+S"}
        assert not list(tmp_path.glob("inner/part-*-0000000001-*"))
    file.write_text(file.read_text().replace("slots = 2", "slots = 3"))
    run(spark, file)
    database = asked(streams)
    for name, wanted in WANTED.items():
        found = results(spark, tmp_path, name)
        if name in ("sums", "pairs", "hours"):  # the last of each group, without its epoch and watermark
            found = list({row[0]: row[:-2] for row in sorted(found, key=lambda row: row[-2])}.values())
        assert Counter(found) == Counter(database.execute(wanted).fetchall()), name
    for name, wanted in FAILING.items():
        failing = Counter(database.execute(wanted).fetchall())
        assert failing, name
        assert Counter(failed_of(tmp_path, name)) == failing, name


def lines_of(folder: Path) -> list[Any]:
    parts = (path for path in folder.rglob("part-*") if not set("_.") & {name[0] for name in path.parts[1:]})
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


@pytest.mark.slow
def test_outputs_for_bad_rows_that_are_others_after_a_crash_have_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the lost attempt put into the old ones goes: the epoch is done again into the new ones."""
    for number in range(3):
        for name in "RS":
            write(tmp_path, name, number, [("1", 1, number), (f"x{number}", 2, number)])
        with (tmp_path / "R" / f"{number}.json").open("a") as file:
            file.write(f"no JSON {number}\n")
        os.utime(tmp_path / "R" / f"{number}.json", (1_700_000_000 + number,) * 2)
    text = job(tmp_path, {"q": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE CAST(R.s AS int) = S.v"}, ["q"])
    own = 'time = "ts"\nbad = { format = "json", path = "unread" }'
    text.write_text(text.read_text().replace('time = "ts"', own, 1))
    with pytest.raises(Exception, match="injected fault"), armed("after-results:1:raise"):
        run(spark, text)
    assert sorted(one["message"] for one in lines_of(tmp_path / "unread")) == ["no JSON 0", "no JSON 1"]
    text.write_text(text.read_text().replace('"unread"', '"unread2"').replace('"bad-q"', '"bad-q2"'))
    changes = check_job(read(text)).changes
    handle = run(spark, text)
    assert tuple(handle.changes) == tuple(changes)
    assert [line.split(" after epoch 0")[0].partition(" files in ")[0] for line in changes] == [
        "rows of stream 'R' that cannot be read go to json", "query 'q' delivers",
    ]  # fmt: skip
    messages = {name: sorted(one["message"] for one in lines_of(tmp_path / name)) for name in ("unread", "unread2")}
    assert messages == {"unread": ["no JSON 0"], "unread2": ["no JSON 1", "no JSON 2"]}
    failed = {name: sorted(row["s"] for _, _, row in bad(tmp_path, name)) for name in ("q", "q2")}
    assert failed == {"q": ["x0"], "q2": ["x1", "x2"]}
    assert Counter(results(spark, tmp_path, "q")) == Counter({(1, 1): 9})


@pytest.mark.slow
def test_a_flow_that_stopped_at_a_row_goes_on_when_its_query_has_an_output_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "R", 0, [("1", 1, 0), ("2", 2, 0)])
    write(tmp_path, "R", 1, [("1", 3, 1), ("x", 4, 1)])
    write(tmp_path, "R", 2, [("2", 5, 2)])
    for number, v in enumerate((1, 2, 1)):
        write(tmp_path, "S", number, [("a", v, number)])
    left = f"SELECT R.v AS rv, S.v AS sv {FROM.replace(',', ' LEFT JOIN')} ON R.v = S.v"
    queries = {
        "q": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE CAST(R.s AS int) = S.v",
        "same": f"SELECT R.id AS r {FROM} WHERE CAST(R.s AS int) = S.v",
        "f": f"{left} WHERE CAST(R.s AS int) < 9",
    }
    with pytest.raises(RunError) as failed:
        run(spark, job(tmp_path, queries))
    assert "CAST_INVALID_INPUT" in failed.value.wrong
    assert "'x'" in failed.value.wrong
    assert 'or add bad = { format = "json", path = "bad" } to the query' in failed.value.fix
    with pytest.raises(RunError, match="CAST_INVALID_INPUT"):  # a query without one stops at what it uses
        run(spark, job(tmp_path, queries, ["q", "f"]))
    run(spark, job(tmp_path, queries, ["q", "same", "f"], final=True))
    assert results(spark, tmp_path, "q") == [(1, 1), (1, 1), (2, 2), (3, 1), (3, 1), (5, 2)]
    assert results(spark, tmp_path, "same") == [(0,), (0,), (1,), (100,), (100,), (200,)]
    assert results(spark, tmp_path, "f") == [(1, 1), (1, 1), (2, 2), (3, None), (5, None)]
    for name in queries:
        assert [(where, row["s"]) for where, _, row in bad(tmp_path, name)] == [("R", "x")]


@pytest.mark.slow
def test_in_python_rows_that_fail_and_late_tuples_part(spark: SparkSession, tmp_path: Path) -> None:
    for name in "RS":
        write(tmp_path, name, 0, [("1", 1, 50), ("x", 2, 50)])
        write(tmp_path, name, 1, [("1", 3, 0), ("y", 4, 0), ("1", 0, 51)])
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        ddl = "id int, s string, v int, ts timestamp"
        source = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).json(str(tmp_path / name))
        flow.stream(name, source, time="ts")
    seen: list[tuple[int, list[Any]]] = []
    query = flow.query(f"SELECT R.id AS r, 10 div S.v AS d {FROM} WHERE CAST(R.s AS int) = S.v", name="q")
    query.to("memory").late("json", path=str(tmp_path / "late"))
    query.bad(lambda frame, epoch: seen.append((epoch, frame.collect())))
    flow.query(f"SELECT R.id AS r, S.id AS s {FROM} WHERE R.s = S.s", name="other").to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    table = query.table()
    assert table is not None
    assert sorted(table.to_pylist(), key=str) == [{"r": 0, "d": 10}, {"r": 102, "d": 10}]
    assert [(one["query"], json.loads(one["row"])["s"]) for _, rows in seen for one in rows] == [("q", "x")]
    late = [json.loads(line) for file in (tmp_path / "late").rglob("part-*") for line in file.read_text().splitlines()]
    assert sorted(one["s"] for one in late) == ["1", "1", "y", "y"]


@pytest.mark.parametrize(
    ("cql", "wrong"),
    [
        (f"SELECT R.v AS v {FROM.replace(',', ' LEFT JOIN')} ON R.v = S.v AND 1 / R.v > 2", "1 / v > 2 may fail"),
        (f"SELECT R.v AS v {FROM.replace(',', ' LEFT JOIN')} ON R.s = S.s AND R.v < 9 div S.v", "9 DIV v may fail"),
    ],
    ids=["a condition of ON on rows that are kept", "what ON compares"],
)
def test_what_cannot_be_told_apart_is_refused(spark: SparkSession, tmp_path: Path, cql: str, wrong: str) -> None:
    for name in "RS":
        write(tmp_path, name, 0, [])
    file = job(tmp_path, {"q": cql}, ["q"])
    with pytest.raises(QueryError, match=re.escape(wrong)) as refused:
        build(read(file), spark)
    assert "[queries.q] bad" in refused.value.wrong
    assert refused.value.fix
    with pytest.raises(QueryError, match=re.escape(wrong)):
        check_job(read(file))
    build(read(job(tmp_path, {"q": cql})), spark)


def test_outputs_of_two_queries_are_not_one_folder(spark: SparkSession, tmp_path: Path) -> None:
    for name in "RS":
        write(tmp_path, name, 0, [])
    cql = f"SELECT R.v AS v {FROM} WHERE CAST(R.s AS int) = S.v"
    file = job(tmp_path, {"a": cql, "b": cql}, ["a", "b"])
    file.write_text(file.read_text().replace("bad-b", "bad-a"))
    with pytest.raises(SinkError, match="bad-a"):
        check_job(read(file))
    with pytest.raises(SinkError, match="bad-a"):
        build(read(file), spark).check(tmp_path / "ck")


@pytest.mark.slow
def test_files_tables_totals_and_a_join_without_an_equality(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    kinds = pa.schema([("id", pa.int32()), ("s", pa.string()), ("v", pa.int32()), ("ts", pa.timestamp("us", "UTC"))])
    for name, texts in (("R", ["1", "2", "x", "3"]), ("S", ["2", "y", "3", "9"])):
        (tmp_path / name).mkdir()
        rows = [{"id": i, "s": s, "v": i % 2, "ts": start} for i, s in enumerate(texts)]
        pq.write_table(pa.Table.from_pylist(rows, kinds), tmp_path / name / "0.parquet")
    flow = Flow(spark, slots=2, groups=4)
    for name in "RS":
        flow.files(name, tmp_path / name, schema="id int, s string, v int, ts timestamp", time="ts")
    flow.table("names", spark.createDataFrame([("1", "5"), ("2", "no"), ("3", "7")], "s string, n string"))
    texts = {
        "tabled": f"SELECT R.id AS r, CAST(names.n AS int) AS n {FROM} JOIN names ON names.s = R.s"
        " WHERE R.v = S.v AND CAST(names.n AS int) > 5",
        "totals": f"SELECT R.v AS v, COUNT(*) AS n, 12 div (COUNT(*) - 4) AS d {FROM} WHERE R.v = S.v GROUP BY R.v",
        "band": f"SELECT R.id AS r, S.id AS s {FROM} WHERE CAST(R.s AS int) < CAST(S.s AS int)",
    }
    for name, cql in texts.items():
        query = flow.query(cql, name, allow="no-equality").to("parquet", path=str(tmp_path / name))
        query.bad("json", path=str(tmp_path / f"bad-{name}"))
    flow.query(f"SELECT R.id AS r, S.id AS s {FROM} WHERE R.v = S.v", "plain").to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    assert results(spark, tmp_path, "tabled") == [(3, 7), (3, 7)]
    assert [(where[:7], row["s"], row["names.n"]) for where, _, row in bad(tmp_path, "tabled")] == [
        ("R+names", "2", "no")
    ]
    assert bad(tmp_path, "totals")[0][1] == "12 DIV (n - 4) cannot be computed"
    assert sorted(row["v"] for _, _, row in bad(tmp_path, "totals")) == [0, 1]
    assert results(spark, tmp_path, "band") == [(0, 0), (0, 2), (0, 3), (1, 2), (1, 3), (3, 3)]
    assert [(where, row["s"]) for where, _, row in bad(tmp_path, "band")] == [("R", "x"), ("S", "y")]


@pytest.mark.slow
def test_what_a_query_filtered_by_until_now_does_not_stop_the_flow(spark: SparkSession, tmp_path: Path) -> None:
    for name in "RS":
        write(tmp_path, name, 0, [("1", 1, 0)])
        write(tmp_path, name, 1, [("1", 0, 1), ("x", 2, 1)])
    joined = f"{FROM} WHERE R.s = S.s"
    queries = {
        "all": f"SELECT R.v AS rv, S.v AS sv {joined}",
        "some": f"SELECT R.v AS rv, S.v AS sv {joined} AND 10 div R.v > 1",
        "sums": f"SELECT R.s AS g, SUM(CAST(R.s AS int)) AS t {joined} GROUP BY R.s",
    }
    with pytest.raises(RunError, match="DIVIDE_BY_ZERO"):
        run(spark, job(tmp_path, queries, ["sums"]))
    del queries["sums"]
    queries["some"] = queries["some"].replace("10 div R.v", "try_divide(10, R.v)")
    run(spark, job(tmp_path, queries))
    assert results(spark, tmp_path, "all") == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    assert results(spark, tmp_path, "some") == [(1, 1), (2, 2)]  # as another query, it begins after the first epoch


@pytest.mark.slow
def test_what_a_last_clean_up_joins_parts_as_well(spark: SparkSession, tmp_path: Path) -> None:
    epochs = some_epochs(1, n_epochs=4)
    flow = declare(Flow(spark, slots=2, groups=8, memory="6 KB"), write_epochs(tmp_path, epochs))
    text = "SELECT R.v AS rv, S.v AS sv, 7 div (R.v % 5) AS d FROM R [RANGE UNBOUNDED], S [RANGE 60 SECONDS]"
    query = flow.query(f"{text} WHERE R.k = S.k", "q", recovered=True).to("parquet", path=str(tmp_path / "out"))
    query.bad("json", path=str(tmp_path / "bad-q"))
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    joined = [(r["v"], s["v"]) for r, s in pairs(epochs, (None, 60))]
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {row.recovered for row in found} == {True, False}
    assert Counter((row.rv, row.sv) for row in found) == Counter(pair for pair in joined if pair[0] % 5)
    failing = Counter((row["R"]["v"], row["S"]["v"]) for _, _, row in bad(tmp_path, "q"))
    assert failing == Counter(pair for pair in joined if not pair[0] % 5)
    assert handle.totals["R+S.bad"] == failing.total()
    assert any(one.bad for one in handle.progress if one.step)


@pytest.mark.slow
def test_what_a_stream_cannot_read_and_what_a_query_cannot_compute_part(spark: SparkSession, tmp_path: Path) -> None:
    for name in "RS":
        write(tmp_path, name, 0, [("1", 1, 0), ("x", 2, 0)])
    (tmp_path / "R" / "1.json").write_text("no JSON\n")
    file = job(tmp_path, {"q": f"SELECT R.v AS rv, S.v AS sv {FROM} WHERE CAST(R.s AS int) = S.v"}, ["q"])
    own = 'time = "ts"\nbad = { format = "json", path = "unread" }'
    file.write_text(file.read_text().replace('time = "ts"', own, 1))
    check_job(read(file))
    run(spark, file)
    assert results(spark, tmp_path, "q") == [(1, 1)]
    unread = [line for part in (tmp_path / "unread").glob("part-*") for line in part.read_text().splitlines()]
    assert [json.loads(line)["message"] for line in unread] == ["no JSON"]
    assert [(where, row) for where, _, row in bad(tmp_path, "q")] == [
        ("R", {"id": 1, "s": "x", "v": 2, "ts": "2026-01-01T00:00:00.000Z"})
    ]
