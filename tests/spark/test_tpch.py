"""A three-way query on two attributes over TPC-H-like streams gives DuckDB's answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidstream.lab.testing.batch import BatchStream, batch_join, same_rows
from braidstream.lab.workloads.tpch import make_tpch, write_tpch
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
