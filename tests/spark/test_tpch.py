"""A three-way query on two attributes over TPC-H-like streams gives DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads import append_files
from braidstream.lab.workloads.tpch import make_tpch, q5_tables, write_tpch
from braidstream.spark.flow import Flow

pytestmark = pytest.mark.spark

S = 1_000_000
SCHEMAS = {
    "customer": "c_custkey long, c_mktsegment string, ts timestamp",
    "orders": "o_orderkey long, o_custkey long, o_orderdate date, ts timestamp",
    "lineitem": "l_orderkey long, l_shipdate date, l_extendedprice decimal(15,2), ts timestamp",
}


def test_orders_with_their_customers_and_lines(spark: SparkSession, tmp_path: Path) -> None:
    streams = make_tpch(0.02, seed=3)
    write_tpch(tmp_path, streams, rows_per_file=12_000)
    flow = Flow(spark, slots=3)
    for name, schema in SCHEMAS.items():
        options = {"maxFilesPerTrigger": "2"}
        flow.files(name, tmp_path / name, schema=schema, time="ts", delay="10 minutes", options=options)
    query = flow.query(
        """SELECT C.c_custkey AS customer, O.o_orderkey AS number, L.l_extendedprice AS price, L.l_shipdate AS shipped
        FROM customer [RANGE UNBOUNDED] AS C, orders [RANGE 200 SECONDS] AS O, lineitem [RANGE 25 SECONDS] AS L
        WHERE C.c_custkey = O.o_custkey AND O.o_orderkey = L.l_orderkey
          AND C.c_mktsegment = 'BUILDING' AND O.o_orderdate < date_sub(L.l_shipdate, 10)"""
    ).to("memory")
    assert query.query.type == 2
    flow.start(tmp_path / "ck", warm=False).await_termination()
    windows = {"customer": None, "orders": 200 * S, "lineitem": 25 * S}
    short = {"customer": "C", "orders": "O", "lineitem": "L"}
    expected = batch_join(
        [BatchStream(short[name], table, windows[name]) for name, table in streams.named().items()],
        [("C.c_custkey", "O.o_custkey"), ("O.o_orderkey", "L.l_orderkey")],
        {"customer": "C.c_custkey", "number": "O.o_orderkey", "price": "L.l_extendedprice", "shipped": "L.l_shipdate"},
        ["C.c_mktsegment = 'BUILDING'", "O.o_orderdate < L.l_shipdate - 10"],
    )
    assert expected.num_rows > 5000
    difference = same_rows(query.sink.table(), expected)
    assert difference, str(difference)


Q5 = """FROM customer {w} AS C, orders {w} AS O, lineitem {w} AS L, supplier {w} AS S, nation {w} AS N, region {w} AS R
WHERE C.c_custkey = O.o_custkey AND L.l_orderkey = O.o_orderkey AND L.l_suppkey = S.s_suppkey
  AND C.c_nationkey = S.s_nationkey AND S.s_nationkey = N.n_nationkey AND N.n_regionkey = R.r_regionkey
  AND R.r_name = 'ASIA' AND O.o_orderdate >= DATE '1994-01-01' AND O.o_orderdate < DATE '1995-01-01'
GROUP BY N.n_name"""
REVENUE = "SELECT N.n_name AS nation, SUM(L.l_extendedprice * (1 - L.l_discount)) AS revenue"


@pytest.mark.slow
def test_query_5_is_one_flow_over_its_six_streams(spark: SparkSession, tmp_path: Path) -> None:
    """SHC 4.3.2: five joins along five keys, one of them of two attributes, and the revenue of each nation."""
    tables = q5_tables(make_tpch(0.01, seed=3, skew=0.5), seed=3, skew=0.5)
    flow = Flow(spark, slots=2, groups=4, controller=False)
    for name, table in tables.items():
        half = table.num_rows // 2 + 1
        append_files(tmp_path / name, [table.slice(0, half), table.slice(half)])
        ddl = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in from_arrow_schema(table.schema).fields)
        options = {"maxFilesPerTrigger": "1"}
        flow.files(name, tmp_path / name, schema=ddl, time="ts", delay="1 hour", options=options)
    query = flow.query(f"{REVENUE} {Q5.format(w='[RANGE UNBOUNDED]')}", name="q5").to("memory")
    flow.start(tmp_path / "ck", warm=False).await_termination()
    rows = sorted(query.sink.table().to_pylist(), key=lambda row: row["epoch"])
    found = {row["nation"]: row["revenue"] for row in rows}
    with duckdb.connect() as batch:
        for name, table in tables.items():
            batch.register(name, table)
        expected = dict(batch.sql(f"{REVENUE} {Q5.format(w='')}").fetchall())
    assert len(expected) == 5
    assert found == expected
