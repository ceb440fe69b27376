"""Outer, semi, anti and as-of joins on Spark: against Spark's own stream-stream join, and the nested loop."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import braidstream
from braidstream.errors import InputError
from braidstream.lab.testing import oracle
from braidstream.model.join_kinds import JoinKind
from braidstream.spark.flow import Flow
from tests.spark.stage import DDL, SECOND, declare, some_epochs, write

pytestmark = pytest.mark.spark

FIRST, LAST = 20, 5
"""The windows, in seconds."""
CLOSING = {
    "R": [{"k": 8, "v": 900, "name": "x", "ts": 900 * SECOND}],
    "S": [{"k": 9, "v": 901, "name": "y", "ts": 900 * SECOND}],
}
"""An epoch that closes all that came before."""
KINDS = [kind for kind in JoinKind if kind is not JoinKind.INNER]


def text_of(kind: JoinKind, on: str = "") -> str:
    columns = ["R.v AS rv", "R.name AS rn", *(["S.v AS sv", "S.k AS sk"] if len(kind.shown) == 2 else [])]
    windows = f"R [RANGE {FIRST} SECONDS] {kind.words} S [RANGE {LAST} SECONDS]"
    return f"SELECT {', '.join(columns)} FROM {windows} ON R.k = S.k{on}"


def expected(epochs: Any, kind: JoinKind, *checks: Any) -> Counter[Any]:
    rows = {name: [row for epoch in epochs for row in epoch[name]] for name in "RS"}
    streams = oracle.Stream("R", rows["R"], FIRST * SECOND), oracle.Stream("S", rows["S"], LAST * SECOND)
    watermark = min(max(row["ts"] for row in own) for own in rows.values())
    found = oracle.join_of_kind(kind.value, streams, [("R.k", "S.k")], checks, watermark_us=watermark)
    columns = ["R.v", "R.name", *(["S.v", "S.k"] if len(kind.shown) == 2 else [])]
    return Counter(oracle.project(found, columns))


def found(query: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in query.sink.table().to_pylist())


@pytest.mark.parametrize("directly", [True, False], ids=["files read directly", "rows from Spark"])
def test_every_kind_gives_what_the_nested_loop_says(spark: SparkSession, tmp_path: Path, directly: bool) -> None:
    epochs = [*some_epochs(3), CLOSING]
    flow = declare(Flow(spark, slots=3, groups=5), write(tmp_path, epochs), directly=directly)
    plain = {kind: flow.query(text_of(kind), name=kind.value).to("memory") for kind in KINDS}
    more = {}
    if not directly:  # these are filters or expressions, which Spark computes
        on = " AND R.v + 3 > S.v AND R.name != 'a' AND S.name <> R.name"
        more = {kind: flow.query(text_of(kind, on), name=f"{kind.value}_more").to("memory") for kind in KINDS}
    handle = flow.start(tmp_path / "ck", warm=False)
    handle.await_termination()
    for kind, query in plain.items():
        assert found(query) == expected(epochs, kind), kind
    checks = [
        lambda c: c["R"]["v"] + 3 > c["S"]["v"],
        lambda c: c["R"]["name"] != "a",
        lambda c: c["S"]["name"] != c["R"]["name"],
    ]
    for kind, query in more.items():
        assert found(query) == expected(epochs, kind, *checks), kind
    assert (flow.explain().count("read in the routing task") == 2) == directly


@pytest.mark.slow
def test_left_right_full_and_semi_are_those_of_sparks_own_join(spark: SparkSession, tmp_path: Path) -> None:
    """The same files, the same condition on times, and no delay: the same multiset."""
    epochs = [*some_epochs(5), CLOSING]
    for row in (row for epoch in epochs[:-1] for rows in epoch.values() for row in rows):
        row["ts"] += 100 * SECOND  # to Spark what is of the time 0 is late from the beginning
    paths = write(tmp_path / "with NULLs", epochs)
    flow = declare(Flow(spark, slots=2, groups=4), paths)
    for row in (row for epoch in epochs for rows in epoch.values() for row in rows):
        row["k"] = 4 if row["k"] is None else row["k"]  # Spark's full join takes NULL for equal to NULL
    whole_paths = write(tmp_path / "without", epochs)
    whole = declare(Flow(spark, slots=2, groups=4), whole_paths)
    kinds = {
        "leftOuter": JoinKind.LEFT,
        "rightOuter": JoinKind.RIGHT,
        "fullOuter": JoinKind.FULL,
        "leftSemi": JoinKind.SEMI,
    }
    places = {how: (whole, whole_paths) if how == "fullOuter" else (flow, paths) for how in kinds}
    queries = {how: places[how][0].query(text_of(kind), name=kind.value).to("memory") for how, kind in kinds.items()}
    for number, one in enumerate((flow, whole)):
        one.start(tmp_path / f"ck{number}", warm=False).await_termination()
    for how, query in queries.items():
        theirs = spark_join(spark, places[how][1], how, tmp_path / how)
        assert found(query) == theirs, how
        assert len(theirs) > 10, how


def spark_join(spark: SparkSession, paths: dict[str, Path], how: str, folder: Path) -> Counter[Any]:
    def stream(name: str) -> Any:
        frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(paths[name]))
        renamed = [f"{column} AS {name.lower()}_{column}" for column in ("k", "v", "name", "ts")]
        return frame.selectExpr(*renamed).withWatermark(f"{name.lower()}_ts", "0 seconds")

    near = f"r_k = s_k AND s_ts <= r_ts + INTERVAL {FIRST} SECONDS AND s_ts >= r_ts - INTERVAL {LAST} SECONDS"
    joined = stream("R").join(stream("S"), F.expr(near), how)
    columns = ["r_v", "r_name", *(["s_v", "s_k"] if how != "leftSemi" else [])]
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        writer = joined.select(*columns).writeStream.format("parquet").option("path", str(folder / "out"))
        query = writer.option("checkpointLocation", str(folder / "ck")).trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    return Counter(tuple(row.values()) for row in pq.read_table(folder / "out").to_pylist())


@pytest.mark.parametrize("how", ["left_outer", "outer", "left_anti", "asof_left"])
def test_the_one_line_join_takes_pysparks_names(spark: SparkSession, tmp_path: Path, how: str) -> None:
    epochs = [*some_epochs(4, 2), CLOSING]
    paths = write(tmp_path, epochs)
    left, right = (
        spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(paths[name])) for name in "RS"
    )
    joined = braidstream.join(left, right, on="k", within=f"{LAST} seconds", how=how, slots=2, groups=4)
    joined.to("memory").start(tmp_path / "ck").await_termination()
    kind = {"left_outer": "left", "outer": "full", "left_anti": "anti"}.get(how, how)
    rows = {name: [row for epoch in epochs for row in epoch[name]] for name in "RS"}
    streams = tuple(oracle.Stream(name, own, LAST * SECOND) for name, own in rows.items())
    all_of = oracle.join_of_kind(kind, (streams[0], streams[1]), [("R.k", "S.k")], watermark_us=900 * SECOND)
    keys = [one["R"].get("k") if one["R"] else one["S"]["k"] for one in all_of]
    columns = ["left_v", "right_v"] if kind != "anti" else ["v"]
    shown = oracle.project(all_of, ["R.v", "S.v"] if kind != "anti" else ["R.v"])
    table = joined.table()
    assert table is not None
    mine = Counter(tuple(row[name] for name in ("k", *columns)) for row in table.to_pylist())
    assert mine == Counter((key, *row) for key, row in zip(keys, shown, strict=True))


def test_explain_says_what_a_left_join_does(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, some_epochs(1, 1))
    flow = declare(Flow(spark, slots=2, groups=4, memory="10 MB"), paths)
    flow.query(text_of(JoinKind.LEFT, " AND R.v < S.v"), name="q").to("memory")
    told = flow.explain()
    assert "query q: LEFT JOIN on one key" in told
    assert "a match satisfies `v` < `v`" in told
    assert "a row of R without a match is put out when the watermark has passed its time and 20 seconds" in told
    assert "R[CAST(`k` AS bigint)] stays hash-routed: outer, semi, anti and as-of joins need all rows" in told
    assert told.count("is never pushed") == 1
    assert "R[CAST(`k` AS bigint)] without key is never pushed: an outer, semi, anti or as-of join needs it" in told
    shedding = declare(Flow(spark, slots=2, memory="10 MB", on_overflow="shed"), paths)
    shedding.query(text_of(JoinKind.LEFT, ""), name="q").to("memory")
    assert "S[CAST(`k` AS bigint)] is never shed: an outer, semi, anti or as-of join needs it" in shedding.explain()
    assert "R[CAST(`k` AS bigint)] is never shed" not in shedding.explain()


def test_explain_says_when_a_row_of_each_kind_is_decided(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, some_epochs(1, 1))
    after = "a row of {} {} when the watermark has passed its time"
    put_out = after.format("{}", "without a match is put out")
    expected_lines = {
        JoinKind.SEMI: [],
        JoinKind.ANTI: [put_out.format("R") + " and 20 seconds"],
        JoinKind.FULL: [put_out.format("R") + " and 20 seconds", put_out.format("S") + " and 5 seconds"],
        JoinKind.ASOF: [after.format("R", "is decided")],
    }
    for kind, lines in expected_lines.items():
        flow = declare(Flow(spark, slots=2), paths)
        flow.query(text_of(kind), name="q").to("memory")
        told = [line.strip() for line in flow.explain().splitlines()]
        assert f"query q: {kind.words} on one key, partitioned over the slots" in told
        assert [line for line in told if "watermark has passed" in line] == lines


def test_a_biclique_refuses_a_left_join(spark: SparkSession, tmp_path: Path) -> None:
    flow = declare(Flow(spark, slots=2, router="biclique"), write(tmp_path, some_epochs(1, 1)))
    flow.query(text_of(JoinKind.LEFT), name="q").to("memory")
    with pytest.raises(InputError, match="inner joins of two streams on a key"):
        flow.start(tmp_path / "ck")


def test_an_interval_with_a_sign_is_no_window_of_an_as_of_join(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, some_epochs(1, 1))
    left, right = (spark.readStream.schema(DDL).parquet(str(paths[name])) for name in "RS")
    with pytest.raises(InputError) as caught:
        braidstream.join(left, right, on="k", within=("-5 s", "10 s"), how="asof")
    assert caught.value.fix == 'write within="10 seconds"'


@pytest.mark.slow
def test_the_life_of_a_flow_with_outer_joins(spark: SparkSession, tmp_path: Path) -> None:
    """Restarts with other slots, pushed state, a query that comes and goes, late rows, and the end of the input."""
    epochs = some_epochs(31, 6, rows=60)
    late = [{"k": 1, "v": 7000 + at, "name": "late", "ts": at * SECOND} for at in range(3)]
    files = [dict(epoch) for epoch in epochs]
    files[3] = {**files[3], "R": [*files[3]["R"], *late]}
    kinds = {"left": JoinKind.LEFT, "semi": JoinKind.SEMI}
    paths = {name: tmp_path / name for name in "RS"}
    peaks: list[int] = []

    def flow(slots: int) -> Flow:
        made = declare(Flow(spark, slots=slots, groups=8, memory="6 KB"), paths)
        for name, kind in kinds.items():
            query = made.query(text_of(kind), name=name).to("parquet", tmp_path / "out" / name)
            if name == "left":
                query.late("parquet", tmp_path / "late")
        return made

    def read(handle: Any, n_epochs: int) -> None:
        while handle.totals.get("S.rows", 0) < sum(len(epoch["S"]) for epoch in epochs[:n_epochs]):
            assert not handle.await_termination(0.05)

    write(tmp_path, files[:2])
    handle = flow(2).start(tmp_path / "ck", warm=False)
    handle.await_termination()
    peaks += [entry.spilled_groups for entry in handle.progress]
    running = flow(3)
    handle = running.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)
    running.submit(text_of(JoinKind.SEMI), name="more", to="parquet", path=str(tmp_path / "out" / "more"))
    write(tmp_path, files[2:4])
    read(handle, 4)
    handle.withdraw("more")
    handle.stop()
    write(tmp_path, files[4:])
    handle = flow(1).start(tmp_path / "ck", warm=False, final=True)
    handle.await_termination()
    peaks += [entry.spilled_groups for entry in handle.progress]
    assert max(peaks) > 0, "nothing was pushed"
    put_aside = spark.read.parquet(str(tmp_path / "late")).where("stream = 'R'")
    assert sorted(row.v for row in put_aside.collect()) == [7000, 7001, 7002]
    for name, kind in kinds.items():
        assert rows_at(spark, tmp_path / "out" / name) == in_the_end(epochs, kind), name
    assert rows_at(spark, tmp_path / "out" / "more") == in_the_end(epochs[2:4], JoinKind.SEMI)


def rows_at(spark: SparkSession, folder: Path) -> Counter[Any]:
    """Without what results of a flow under a budget say of themselves."""
    table = spark.read.parquet(str(folder))
    kept = [name for name in table.columns if name in ("rv", "rn", "sv", "sk")]
    return Counter(tuple(row) for row in table.select(*kept).collect())


def in_the_end(epochs: Any, kind: JoinKind) -> Counter[Any]:
    rows = {name: [row for epoch in epochs for row in epoch[name]] for name in "RS"}
    streams = oracle.Stream("R", rows["R"], FIRST * SECOND), oracle.Stream("S", rows["S"], LAST * SECOND)
    columns = ["R.v", "R.name", *(["S.v", "S.k"] if len(kind.shown) == 2 else [])]
    return Counter(oracle.project(oracle.join_of_kind(kind.value, streams, [("R.k", "S.k")]), columns))


def test_left_joins_on_top_of_an_inner_one(spark: SparkSession, tmp_path: Path) -> None:
    """On two keys, with a comparison, over two streams that are there twice; the last on what may be NULL."""
    epochs = [*some_epochs(6, rows=12), CLOSING]
    flow = declare(Flow(spark, slots=2, groups=4), write(tmp_path, epochs))
    text = (
        "SELECT A.v AS a, B.v AS b, C.v AS c, D.v AS d "
        "FROM R [RANGE 9 SECONDS] AS A JOIN S [RANGE 9 SECONDS] AS B ON A.k = B.k "
        "LEFT JOIN S [RANGE 4 SECONDS] AS C ON A.name = C.name AND B.v < C.v "
        "LEFT JOIN R [RANGE 9 SECONDS] AS D ON C.name = D.name AND C.v < D.v"
    )
    query = flow.query(text).to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    rows = {name: [row for epoch in epochs for row in epoch[name]] for name in "RS"}
    streams = [
        oracle.Stream("A", rows["R"], 9 * SECOND),
        oracle.Stream("B", rows["S"], 9 * SECOND),
        oracle.Stream("C", rows["S"], 4 * SECOND),
        oracle.Stream("D", rows["R"], 9 * SECOND),
    ]
    equalities = [("A.k", "B.k"), ("A.name", "C.name"), ("C.name", "D.name")]
    on = [[lambda c: c["B"]["v"] < c["C"]["v"]], [lambda c: c["C"] and c["C"]["v"] < c["D"]["v"]]]
    expected = oracle.left_joins_on_top(streams, equalities, on=on, watermark_us=900 * SECOND)
    assert found(query) == Counter(oracle.project(expected, ["A.v", "B.v", "C.v", "D.v"]))
    assert len({(one["C"] == {}, one["D"] == {}) for one in expected}) == 3
    assert "a match of A, B without one of C is put out" in flow.explain()
    assert "a match of A, B, C without one of D is put out" in flow.explain()
