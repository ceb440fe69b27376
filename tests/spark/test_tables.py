"""Tables joined to streams: against nested loops, with snapshots that change, and epochs that are done again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from braidstream import jobs
from braidstream.errors import CheckpointMismatch, QueryError, RunError, TableError
from braidstream.model.directory import Directory
from braidstream.model.faults import armed
from braidstream.spark.flow import Flow
from braidstream.spark.joined_tables import Table, Tables, explain_tables
from braidstream.spark.table_formats import TableSource
from braidstream.state.manifest import Manifest
from tests.spark.stage import DDL, SECOND, declare, pairs, some_epochs, write

pytestmark = pytest.mark.spark

FROM = "FROM R [RANGE 20 SECONDS] JOIN S [RANGE 5 SECONDS] ON R.k = S.k"
SCHEMA = pa.schema([("id", pa.string()), ("w", pa.int64()), ("next", pa.int64())])
Row = dict[str, Any]


def some_table(seed: int, names: str = "abbcc") -> list[Row]:
    """Rows of which some have the same id, and some ids have none."""
    random = Random(seed)
    rows = [{"id": random.choice(names), "w": w, "next": random.choice([1, 2, 3, None])} for w in range(6)]
    return [*rows, {"id": None, "w": 100, "next": 1}]


def matches(row: Row, table: list[Row], condition: Callable[[Row, Row], Any]) -> list[Row]:
    return [one for one in table if condition(row, one)]


def by_name(row: Row, one: Row) -> bool:
    return row["name"] is not None and row["name"] == one["id"]


def found(query: Any) -> Counter[Any]:
    table = query.table()
    return Counter() if table is None else Counter(tuple(row.values()) for row in table.to_pylist())


def inner(epochs: Any, table: list[Row]) -> Iterator[tuple[Any, ...]]:
    for r, s in pairs(epochs, (20, 5)):
        for t in matches(r, table, by_name):
            yield r["v"], s["v"], t["w"]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("directly", [True, pytest.param(False, marks=SLOW)], ids=["of files", "of rows from Spark"])
def test_streams_read_in_several_ways_at_once(spark: SparkSession, tmp_path: Path, directly: bool) -> None:
    """One stream as it is, with a table joined by INNER and LEFT JOIN, with two, and each as if it were alone."""
    epochs, table, other = some_epochs(11), some_table(1), some_table(2, "aab")
    flow = declare(Flow(spark, slots=3, groups=5), write(tmp_path, epochs), directly=directly)
    flow.table("T", spark.createDataFrame(pa.Table.from_pylist(table, SCHEMA)))
    flow.table("U", lambda: spark.createDataFrame(pa.Table.from_pylist(other, SCHEMA)))
    queries = {
        "plain": f"SELECT R.v AS rv, S.v AS sv {FROM}",
        "inner": f"SELECT R.v AS rv, S.v AS sv, t.w {FROM} JOIN T t ON R.name = t.id",
        "left": f"SELECT R.v AS rv, S.v AS sv, t.w {FROM} LEFT JOIN T t ON t.id = R.name AND t.w > 2 WHERE R.v > 4",
        "comma": "SELECT R.v AS rv, S.v AS sv, w FROM R [RANGE 20 SECONDS], T, S [RANGE 5 SECONDS] "
        "WHERE R.k = S.k AND T.id = R.name AND T.next = S.k",
        "both": f"SELECT R.v AS rv, t.w AS tw, u.w AS uw, u.w + S.v AS more {FROM} "
        "LEFT JOIN T t ON R.name = t.id JOIN U u ON S.name = u.id",
        "chain": f"SELECT R.v AS rv, t.next, u.w {FROM} JOIN T t ON R.name = t.id JOIN U u ON u.next = t.next",
        "grouped": f"SELECT t.id, COUNT(*) AS n, window.start AS began {FROM} JOIN T t ON R.name = t.id "
        "GROUP BY t.id, window(R.ts, '30 seconds')",
    }
    made = {name: flow.query(text, name=name).to("memory") for name, text in queries.items()}
    handle = flow.start(tmp_path / "ck", warm=False, final=True)
    handle.await_termination()
    joined = list(pairs(epochs, (20, 5)))

    def left(row: Row, rows: list[Row], condition: Callable[[Row, Row], Any] = by_name) -> list[Row]:
        return matches(row, rows, condition) or [dict.fromkeys(SCHEMA.names)]

    assert found(made["plain"]) == Counter((r["v"], s["v"]) for r, s in joined)
    assert found(made["inner"]) == Counter(inner(epochs, table))
    assert found(made["left"]) == Counter(
        (r["v"], s["v"], t["w"])
        for r, s in joined
        for t in left(r, table, lambda row, one: by_name(row, one) and one["w"] > 2)
        if r["v"] > 4
    )
    assert found(made["comma"]) == Counter(
        (r["v"], s["v"], t["w"]) for r, s in joined for t in matches(r, table, by_name) if t["next"] == s["k"]
    )
    assert found(made["both"]) == Counter(
        (r["v"], t["w"], u["w"], u["w"] + s["v"])
        for r, s in joined
        for t in left(r, table)
        for u in matches(s, other, by_name)
    )
    assert found(made["chain"]) == Counter(
        (r["v"], t["next"], u["w"])
        for r, s in joined
        for t in matches(r, table, by_name)
        for u in other
        if t["next"] is not None and t["next"] == u["next"]
    )
    groups = Counter((t["id"], r["ts"] // (30 * SECOND)) for r, _ in joined for t in matches(r, table, by_name))
    assert sum(found(made["grouped"]).values()) == len(groups)
    assert Counter(row["n"] for row in made["grouped"].table().to_pylist()) == Counter(groups.values())
    assert "read in the routing task" not in flow.explain()
    assert "has no versions" in flow.explain()


@SLOW
def test_outer_joins_keep_rows_of_streams_with_tables(spark: SparkSession, tmp_path: Path) -> None:
    epochs, table = some_epochs(13), some_table(3)
    flow = declare(Flow(spark, slots=2, groups=4), write(tmp_path, epochs))
    flow.table("T", spark.createDataFrame(pa.Table.from_pylist(table, SCHEMA)))
    windows = "FROM R [RANGE 20 SECONDS] LEFT JOIN S [RANGE 5 SECONDS] ON R.k = S.k"
    kept = flow.query(f"SELECT R.v AS rv, S.v AS sv, t.w {windows} JOIN T t ON R.name = t.id").to("memory")
    other = flow.query(f"SELECT R.v AS rv, S.v AS sv, t.w {windows} LEFT JOIN T t ON S.name = t.id").to("memory")
    flow.start(tmp_path / "ck", warm=False, final=True).await_termination()
    partners: dict[int, list[Row]] = {}
    for r, s in pairs(epochs, (20, 5)):
        partners.setdefault(r["v"], []).append(s)
    rows, nothing = [row for epoch in epochs for row in epoch["R"]], dict.fromkeys(("v", "name", "w"))
    assert found(kept) == Counter(
        (r["v"], s["v"], t["w"])
        for r in rows
        for t in matches(r, table, by_name)
        for s in partners.get(r["v"], [nothing])
    )
    assert found(other) == Counter(
        (r["v"], s["v"], t["w"])
        for r in rows
        for s in partners.get(r["v"], [nothing])
        for t in matches(s, table, by_name) or [nothing]
    )


def test_a_running_flow_sees_what_a_table_is_after_a_refresh(spark: SparkSession, tmp_path: Path) -> None:
    """Each epoch sees one snapshot: rows of R get the table's rows of the time at which they were read."""
    epochs = some_epochs(17, 2)
    tables = [some_table(4), some_table(5)]
    folder = tmp_path / "T"
    folder.mkdir()
    paths = write(tmp_path, epochs[:1])
    pq.write_table(pa.Table.from_pylist(tables[0], SCHEMA), folder / "a.parquet")
    flow = declare(Flow(spark, slots=2, groups=4), paths).table("T", path=folder, refresh="1 hour")
    query = flow.query(f"SELECT R.v AS rv, S.v AS sv, t.w {FROM} JOIN T t ON R.name = t.id").to("memory")
    handle = flow.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)

    def until(n_rows: int) -> None:
        while handle.totals.get("S.rows", 0) < n_rows:
            assert not handle.await_termination(0.05)

    n_first, n_all = (sum(len(epoch["S"]) for epoch in some) for some in (epochs[:1], epochs))
    until(n_first)
    before = handle.manifest.notes.tables["T"]
    flow.refresh()  # nothing has changed, and nothing happens
    assert handle.manifest.notes.tables["T"] == before
    pq.write_table(pa.Table.from_pylist(tables[1], SCHEMA), folder / "b.parquet")
    (folder / "a.parquet").unlink()
    flow.refresh("T")
    after = handle.manifest.notes.tables["T"]
    assert after.version != before.version
    write(tmp_path, epochs[1:])
    until(n_all)
    assert f"files {after.version}, looked for anew every 1 hour" in flow.explain()
    handle.stop()
    wanted: Counter[Any] = Counter()
    for r, s in pairs(epochs, (20, 5)):
        snapshot = tables[0] if r in epochs[0]["R"] else tables[1]
        wanted.update((r["v"], s["v"], t["w"]) for t in matches(r, snapshot, by_name))
    assert found(query) == wanted


@SLOW
def test_a_refresh_comes_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    tables = iter([some_table(6)] * 2)
    made: list[Any] = []

    def frame() -> Any:
        made.append(1)
        return spark.createDataFrame(pa.Table.from_pylist(next(tables, some_table(7)), SCHEMA))

    epochs = some_epochs(18, 1)
    flow = declare(Flow(spark, slots=2, groups=4), write(tmp_path, epochs)).table(
        "T", frame, refresh="100 milliseconds"
    )
    flow.query(f"SELECT t.w {FROM} JOIN T t ON R.name = t.id").to("memory")
    handle = flow.start(tmp_path / "ck", epoch="20 milliseconds", warm=False)
    first = handle.manifest.notes.tables["T"]
    while handle.manifest.notes.tables["T"] == first:
        assert not handle.await_termination(0.05)
    handle.stop()


@SLOW
def test_queries_with_tables_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    """Sources stay as many as they were: a stream read directly, then in two ways, then as it was, over a restart."""
    epochs, table = some_epochs(23, 4), some_table(10)

    def flow() -> Any:
        made = declare(Flow(spark, slots=2, groups=4), {name: tmp_path / name for name in "RS"})
        made.table("T", spark.createDataFrame(pa.Table.from_pylist(table, SCHEMA)))
        made.query(f"SELECT R.v AS rv, S.v AS sv {FROM}", name="plain").to("parquet", tmp_path / "plain")
        return made

    def read(handle: Any, n_epochs: int) -> None:
        while handle.totals.get("S.rows", 0) < sum(len(epoch["S"]) for epoch in epochs[:n_epochs]):
            assert not handle.await_termination(0.05)

    write(tmp_path, epochs[:1])
    first = flow()
    handle = first.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)
    read(handle, 1)
    text = f"SELECT R.v AS rv, S.v AS sv, t.w {FROM} JOIN T t ON R.name = t.id"
    first.submit(text, name="more", to="parquet", path=str(tmp_path / "more"))
    assert "read in the routing task" not in next(one for one in first.explain().splitlines() if "stream R:" in one)
    write(tmp_path, epochs[1:2])
    read(handle, 2)
    handle.stop()
    second = flow()  # what was submitted is remembered
    handle = second.start(tmp_path / "ck", epoch="50 milliseconds", warm=False)
    write(tmp_path, epochs[2:3])
    read(handle, 3)
    handle.withdraw("more")
    write(tmp_path, epochs[3:])
    read(handle, 4)
    handle.stop()
    plain, more = (
        Counter(tuple(r) for r in spark.read.parquet(str(tmp_path / n)).collect()) for n in ("plain", "more")
    )
    assert plain == Counter((r["v"], s["v"]) for r, s in pairs(epochs, (20, 5)))
    assert more == Counter(inner(epochs[1:3], table))


def delta(folder: Path, rows: list[Row]) -> None:
    import deltalake

    deltalake.write_deltalake(str(folder), pa.Table.from_pylist(rows, SCHEMA), mode="overwrite")


class Iceberg:
    """A table of a catalog in a folder."""

    def __init__(self, folder: Path) -> None:
        from braidstream.spark.iceberg_sink import open_catalog

        self.catalog = open_catalog(str(folder), {"table": "shop.T"})
        self.catalog.create_namespace("shop")
        self.table = self.catalog.create_table("shop.T", SCHEMA)

    def write(self, rows: list[Row]) -> None:
        self.table.overwrite(pa.Table.from_pylist(rows, SCHEMA))


@SLOW
def test_an_epoch_that_is_done_again_sees_parquet_files_as_they_are_then_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    epoch_that_is_done_again(spark, tmp_path, "parquet")


def epoch_that_is_done_again(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The epoch dies after its results, the table changes, and the same epoch comes again; Parquet says it cannot.

    With tables that keep versions tests/world runs it.
    """
    epochs, tables, folder = some_epochs(19, 1), [some_table(8), some_table(9, "abc")], tmp_path / "T"
    paths = write(tmp_path, epochs)
    options: dict[str, Any] = {"options": {"table": "shop.T"}} if kind == "iceberg" else {}
    put = Iceberg(folder).write if kind == "iceberg" else lambda rows: _written(folder, rows, kind)
    put(tables[0])

    def flow() -> Any:
        made = declare(Flow(spark, slots=2, groups=4), paths).table("T", path=folder, format=kind, **options)
        made.query(f"SELECT R.v AS rv, S.v AS sv, t.w {FROM} JOIN T t ON R.name = t.id").to("parquet", tmp_path / "out")
        return made

    with armed("after-results:0:raise"), pytest.raises(RunError):
        flow().start(tmp_path / "ck", warm=False).await_termination()
    put(tables[1])
    handle = flow().start(tmp_path / "ck", warm=False)
    handle.await_termination()
    results = [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    seen = tables[1 if kind == "parquet" else 0]
    assert Counter(results) == Counter(inner(epochs, seen))
    assert any("has changed since epoch 0 was begun" in one for one in handle.warnings) == (kind == "parquet")
    again = flow().start(tmp_path / "ck", warm=False)  # nothing is done again: the newest snapshot
    again.await_termination()
    assert again.manifest.notes.tables["T"].version == flow().tables.declared["T"].source.newest()


def _written(folder: Path, rows: list[Row], kind: str) -> None:
    if kind == "delta":
        delta(folder, rows)
        return
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "a.parquet")


JOB = """
[flow]
checkpoint = "ck"
slots = 2
[streams.R]
format = "parquet"
path = "R"
schema = "{ddl}"
time = "ts"
delay = "0 seconds"
[streams.S]
format = "parquet"
path = "S"
schema = "{ddl}"
time = "ts"
delay = "0 seconds"
[tables.T]
format = "parquet"
path = "T"
refresh = "10 minutes"
[queries.named]
cql = "SELECT R.v AS rv, S.v AS sv, t.w {from_} LEFT JOIN T t ON R.name = t.id"
sink = {{ format = "parquet", path = "out" }}
"""


@SLOW
def test_a_job_with_a_table_runs(spark: SparkSession, tmp_path: Path) -> None:
    epochs, table = some_epochs(24, 2), some_table(3)
    write(tmp_path, epochs)
    _written(tmp_path / "T", table, "parquet")
    (tmp_path / "job.toml").write_text(JOB.format(ddl=DDL, from_=FROM), encoding="utf-8")
    job = jobs.read(tmp_path / "job.toml")
    assert jobs.check(job).open == ("the columns of table T are known when Spark runs",)
    assert jobs.start(job, spark).await_termination(120)
    results = [tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    wanted = [
        (r["v"], s["v"], t["w"])
        for r, s in pairs(epochs, (20, 5))
        for t in matches(r, table, by_name) or [dict.fromkeys(SCHEMA.names)]
    ]
    assert Counter(results) == Counter(wanted)


class Versioned(TableSource):
    """A table of which every version is kept, or none is."""

    version_words = "version"
    location = "shelf T"
    promise = "an epoch that is done again sees its own version"

    def __init__(self, spark: SparkSession, *, keeps_versions: bool = True) -> None:
        self.spark, self.versions = spark, [some_table(1)]
        self.keeps_versions = keeps_versions  # type: ignore[misc]

    def newest(self) -> str | None:
        return str(len(self.versions) - 1)

    def frame(self, version: str | None) -> Any:
        rows = self.versions[-1 if version is None else int(version)]
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))


@pytest.mark.parametrize("keeps_versions", [True, False])
def test_a_start_takes_the_newest_version_and_an_epoch_that_was_begun_its_own(
    spark: SparkSession, keeps_versions: bool
) -> None:
    source, tables = Versioned(spark, keeps_versions=keeps_versions), Tables()
    tables.declared["T"] = Table("T", source, source.frame(None).schema)
    first, told = tables.noted(Manifest(-1, Directory.of(4, 2), 2), is_replay=False)
    assert (first.notes.tables["T"].version, told) == ("0", ())
    source.versions.append(some_table(2, "abc"))
    again, told = tables.noted(first, is_replay=True)
    assert again.notes.tables["T"].version == ("0" if keeps_versions else "1")
    assert ["has changed since epoch 0 was begun" in one for one in told] == [] if keeps_versions else [True]
    rows = tables.frames(again.notes.tables, ["T"])["T"].toArrow().to_pylist()
    assert rows == source.versions[0 if keeps_versions else 1]
    shown = list(explain_tables(tables, [], again.notes.tables))
    assert shown[0] == f"  table T: shelf T, version {int(not keeps_versions)}, looked for anew at each start"
    assert shown[1] == "    an epoch that is done again sees its own version"
    after, told = tables.noted(again, is_replay=False)
    assert (after.notes.tables["T"].version, told) == ("1", ())
    tables.release()


def test_what_is_no_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, some_epochs(20, 1))
    flow = declare(Flow(spark), paths)
    frame = spark.createDataFrame(pa.Table.from_pylist(some_table(1), SCHEMA))
    streaming = spark.readStream.schema("k long").parquet(str(paths["R"]))
    refused: list[tuple[str, dict[str, Any]]] = [
        ("is a streaming DataFrame", {"frame": streaming}),
        ("is a stream: kafka has no end", {"path": "x", "format": "kafka"}),
        ("is a streaming DataFrame", {"frame": lambda: streaming}),
        ("neither a frame nor a path", {}),
        ("both a frame and a path", {"frame": frame, "path": "x"}),
        ("which is a DataFrame and stays what it is", {"frame": frame, "refresh": "1 hour"}),
        ("does not begin with a number", {"path": str(paths["R"]), "refresh": "soon"}),
        ("cannot be read", {"path": str(tmp_path / "nowhere")}),
    ]
    for message, options in refused:
        with pytest.raises(TableError, match=message):
            flow.table("T", **options)
    with pytest.raises(TableError, match="already a stream or table"):
        flow.table("R", frame)
    flow.table("T", frame)
    with pytest.raises(Exception, match="already a table named 'T'"):
        flow.stream("T", streaming, time="k")
    with pytest.raises(QueryError, match="Spark cannot compute"):
        flow.query(f"SELECT nosuchfunction(t.w) AS x {FROM} JOIN T t ON R.name = t.id")


@SLOW
def test_a_table_whose_columns_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "T"
    paths = write(tmp_path, some_epochs(21, 1))

    def flow(columns: list[str]) -> Any:
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(some_table(1), SCHEMA).select(columns), folder / "a.parquet")
        made = declare(Flow(spark, slots=2, groups=4), paths).table("T", path=folder)
        made.query(f"SELECT t.w {FROM} JOIN T t ON R.name = t.id").to("noop")
        return made

    flow(["id", "w"]).start(tmp_path / "ck", warm=False).await_termination()
    flow(["id", "w", "next"]).start(tmp_path / "ck", warm=False).await_termination()
    with pytest.raises((TableError, CheckpointMismatch), match="has other columns now"):
        flow(["id", "w"]).start(tmp_path / "ck", warm=False)
    gone = declare(Flow(spark, slots=2, groups=4), paths)
    gone.query(f"SELECT R.v AS w {FROM}", name="query1").to("noop")
    assert "what it read until now is not declared any more" in "".join(gone.check(tmp_path / "ck"))
