"""The TPC-H-like streams have the benchmark's keys and ratios, in event-time order."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from braidstream.errors import InputError
from braidstream.lab.testing.batch import BatchStream, batch_join
from braidstream.lab.workloads.tpch import SEGMENTS, TpchStreams, make_tpch, write_tpch

SECOND = 1_000_000


@pytest.fixture(scope="module")
def streams() -> TpchStreams:
    return make_tpch(0.01, seed=1, seconds=600, line_lag_seconds=30)


def ask(streams: TpchStreams, query: str):
    with duckdb.connect() as connection:
        for name, table in streams.named().items():
            connection.register(name, table)
        return connection.execute(query).fetchall()


def test_the_sizes_follow_the_scale(streams: TpchStreams) -> None:
    assert streams.customer.num_rows == 1500
    assert streams.orders.num_rows == 15_000
    assert streams.lineitem.num_rows == pytest.approx(60_000, rel=0.02)


@pytest.mark.parametrize("name", ["customer", "orders", "lineitem"])
def test_a_stream_is_sound_and_in_event_time_order(streams: TpchStreams, name: str) -> None:
    table = streams.named()[name]
    table.validate(full=True)
    times = table["ts"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0


def test_keys_refer_to_each_other(streams: TpchStreams) -> None:
    assert ask(streams, "select count(*) from orders o anti join customer c on o.o_custkey = c.c_custkey") == [(0,)]
    assert ask(streams, "select count(*) from lineitem l anti join orders o on l.l_orderkey = o.o_orderkey") == [(0,)]
    assert ask(streams, "select count(*) from orders o anti join lineitem l on l.l_orderkey = o.o_orderkey") == [(0,)]
    assert ask(streams, "select count(distinct (l_orderkey, l_linenumber)) = count(*) from lineitem") == [(True,)]
    assert ask(streams, "select min(l_linenumber), max(l_linenumber) from lineitem") == [(1, 7)]


def test_every_third_customer_never_orders(streams: TpchStreams) -> None:
    assert ask(streams, "select count(*) from orders where o_custkey % 3 = 0") == [(0,)]
    assert ask(streams, "select count(distinct o_custkey) from orders")[0][0] == 1000


def test_segments_are_equally_frequent(streams: TpchStreams) -> None:
    counts = dict(ask(streams, "select c_mktsegment, count(*) from customer group by all"))
    assert set(counts) == set(SEGMENTS)
    assert all(abs(count - 300) < 5 * 240**0.5 for count in counts.values())


def test_money_is_exact_and_totals_add_up(streams: TpchStreams) -> None:
    assert streams.customer["c_acctbal"].type == pa.decimal128(15, 2)
    balances = streams.customer["c_acctbal"].to_pylist()
    assert min(balances) < 0 < max(balances)
    assert min(balances) >= Decimal("-999.99")
    assert max(balances) <= Decimal("9999.99")
    query = """
        select max(abs(o_totalprice - charged)) from orders join (
            select l_orderkey, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) charged from lineitem group by all
        ) on l_orderkey = o_orderkey
    """
    assert ask(streams, query)[0][0] < Decimal("0.08")  # each of up to seven lines is cut to whole cents


def test_lines_follow_their_order_within_the_lag(streams: TpchStreams) -> None:
    lags = ask(
        streams,
        "select min(epoch_us(l.ts) - epoch_us(o.ts)), max(epoch_us(l.ts) - epoch_us(o.ts)) "
        "from lineitem l join orders o on l_orderkey = o_orderkey",
    )
    assert 0 <= lags[0][0] < lags[0][1] <= 30 * SECOND
    assert lags[0][1] > 29 * SECOND


def test_a_join_on_two_attributes_finds_the_lines_of_every_customer_who_is_known_in_time(streams: TpchStreams) -> None:
    joined = batch_join(
        [
            BatchStream("c", streams.customer, None),
            BatchStream("o", streams.orders, 30 * SECOND),
            BatchStream("l", streams.lineitem, 30 * SECOND),
        ],
        [("c.c_custkey", "o.o_custkey"), ("o.o_orderkey", "l.l_orderkey")],
        {"key": "l.l_orderkey", "line": "l.l_linenumber", "customer": "c.c_custkey"},
    )
    # Lines are never more than 30 s after their order, so only a customer who signed up later than that is missing.
    in_time = ask(
        streams,
        "select count(*) from lineitem l, orders o, customer c where l_orderkey = o_orderkey "
        "and o_custkey = c_custkey and epoch_us(c.ts) - epoch_us(o.ts) <= 30000000",
    )
    assert [(joined.num_rows,)] == in_time
    assert 0 < joined.num_rows < streams.lineitem.num_rows


def test_the_same_seed_makes_the_same_streams(streams: TpchStreams) -> None:
    again, other = make_tpch(0.01, seed=1), make_tpch(0.01, seed=2)
    assert all(again.named()[name].equals(table) for name, table in streams.named().items())
    assert not any(other.named()[name].equals(table) for name, table in streams.named().items())


def test_written_streams_are_what_was_made(streams: TpchStreams, tmp_path: Path) -> None:
    files = write_tpch(tmp_path, streams, rows_per_file=10_000)
    assert [len(files[name]) for name in ("customer", "orders")] == [1, 2]
    for name, table in streams.named().items():
        assert pa.concat_tables(pq.read_table(file) for file in files[name]).equals(table)
    with pytest.raises(InputError, match="is not empty"):
        write_tpch(tmp_path, streams)


def test_a_scale_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="scale is 0"):
        make_tpch(0)
