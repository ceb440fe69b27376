"""Streams in the manner of TPC-H: customer, orders and lineitem, for joins on two different attributes.

Columns, keys and ratios follow the benchmark's tables as far as stream joins need them: 150,000 customers, 1,500,000
orders and one to seven lines an order at scale 1; a third of the customers never orders; keys are unique where the
benchmark's are. Text columns are left out. The numbers are our own, drawn from a seed: this is no TPC-H data. With
`skew` above 0 some customers order far more than others (Zipf with that exponent); the benchmark has none.

The streams run for `seconds` of event time, in order of `ts`. Customers sign up during the first tenth, in the order of
their keys; orders come all the time, as a Poisson process would place them; the lines of an order follow within
`line_lag_seconds`. So some orders come before their customer, as happens between two systems.

Cost: about four seconds for scale 1, all in memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.errors import InputError
from braidstream.lab.workloads.key_values import ZipfKeys
from braidstream.lab.workloads.stream_files import append_files, cut

__all__ = ["SEGMENTS", "TpchStreams", "make_tpch", "q5_tables", "write_tpch"]

Ints = npt.NDArray[np.int64]

SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
N_NATIONS = 25
CUSTOMERS = 150_000
SUPPLIERS = 10_000
ORDERS_A_CUSTOMER = 10
MICROSECONDS = 1_000_000
FIRST_DAY = np.datetime64("1992-01-01", "D")
DAYS = 2406  # order dates end 151 days before the benchmark's last date, so that every line is shipped within it
MONEY = pa.decimal128(15, 2)


@dataclass(frozen=True)
class TpchStreams:
    """The three streams, each in the order of its `ts`."""

    customer: pa.Table
    orders: pa.Table
    lineitem: pa.Table

    def named(self) -> dict[str, pa.Table]:
        """The streams by name."""
        return {"customer": self.customer, "orders": self.orders, "lineitem": self.lineitem}


@dataclass(frozen=True)
class _Orders:
    """The orders as arrays; what the lines need of them."""

    key: Ints
    customer: Ints
    day: Ints
    time_us: Ints


def make_tpch(
    scale: float = 0.01,
    *,
    seed: int = 1,
    seconds: float = 600.0,
    line_lag_seconds: float = 30.0,
    start_us: int = 0,
    skew: float = 0.0,
) -> TpchStreams:
    """Make the three streams at a scale factor."""
    if not (scale > 0 and seconds > 0 and line_lag_seconds >= 0 and skew >= 0):
        raise InputError(
            f"scale is {scale}, seconds is {seconds}, line_lag_seconds is {line_lag_seconds}, skew is {skew}",
            "scale and seconds above 0, line_lag_seconds and skew 0 or more",
            "scale 0.01 makes 15,000 orders",
        )
    rng = np.random.default_rng(seed)
    span_us, n_customers = round(seconds * MICROSECONDS), max(2, round(CUSTOMERS * scale))
    customer = _customers(n_customers, span_us, start_us, rng)
    orders = _orders(n_customers, span_us, start_us, rng, skew)
    lineitem, totals = _lines(orders, round(line_lag_seconds * MICROSECONDS), rng)
    return TpchStreams(customer, _orders_table(orders, totals, rng), lineitem)


def q5_tables(streams: TpchStreams, *, seed: int = 1, skew: float = 0.0) -> dict[str, pa.Table]:
    """The six streams of TPC-H's query 5, by name: those three, lines with a supplier, and suppliers, nations, regions.

    The last two are small, and come at once.
    """
    rng, n = np.random.default_rng([seed, 5]), max(2, len(streams.customer) * SUPPLIERS // CUSTOMERS)
    lines = len(streams.lineitem)
    supplied = rng.permutation(n)[ZipfKeys(n, skew).draw(lines, rng) if skew else rng.integers(n, size=lines)]
    begin, nations = streams.customer.column("ts")[0].value, np.arange(N_NATIONS, dtype=np.int32)
    return {
        **streams.named(),
        "lineitem": streams.lineitem.append_column("l_suppkey", pa.array(supplied.astype(np.int64) + 1)),
        "supplier": pa.table(
            {
                "s_suppkey": pa.array(np.arange(1, n + 1, dtype=np.int64)),
                "s_nationkey": pa.array(rng.integers(N_NATIONS, size=n, dtype=np.int32)),
                "ts": _timestamps(np.full(n, begin)),
            }
        ),
        "nation": pa.table(
            {
                "n_nationkey": pa.array(nations),
                "n_name": pa.array([f"NATION {i}" for i in nations.tolist()]),
                "n_regionkey": pa.array(nations % np.int32(len(REGIONS))),
                "ts": _timestamps(np.full(N_NATIONS, begin)),
            }
        ),
        "region": pa.table(
            {
                "r_regionkey": pa.array(np.arange(len(REGIONS), dtype=np.int32)),
                "r_name": pa.array(REGIONS),
                "ts": _timestamps(np.full(len(REGIONS), begin)),
            }
        ),
    }


def write_tpch(
    path: str | os.PathLike[str], streams: TpchStreams, rows_per_file: int = 100_000
) -> dict[str, tuple[Path, ...]]:
    """Write each stream as a folder of files below `path`, in the way of `write_stream`."""
    if rows_per_file < 1:
        raise InputError(f"rows_per_file is {rows_per_file}", "1 or more", "choose how many rows an epoch reads")
    for folder in (Path(path) / name for name in streams.named()):
        if folder.exists() and any(folder.iterdir()):
            raise InputError(
                f"{folder} is not empty", "a new or an empty folder", "remove it, or choose another folder"
            )
    return {name: append_files(Path(path) / name, cut(table, rows_per_file)) for name, table in streams.named().items()}


def _customers(n: int, span_us: int, start_us: int, rng: np.random.Generator) -> pa.Table:
    segments = pa.DictionaryArray.from_arrays(pa.array(rng.integers(len(SEGMENTS), size=n)), pa.array(SEGMENTS))
    return pa.table(
        {
            "c_custkey": pa.array(np.arange(1, n + 1, dtype=np.int64)),
            "c_nationkey": pa.array(rng.integers(25, size=n, dtype=np.int32)),
            "c_acctbal": _money(rng.integers(-99_999, 1_000_000, size=n)),
            "c_mktsegment": segments.cast(pa.string()),
            "ts": _timestamps(start_us + np.sort(rng.integers(max(span_us // 10, 1), size=n))),
        }
    )


def _orders(n_customers: int, span_us: int, start_us: int, rng: np.random.Generator, skew: float) -> _Orders:
    n, n_buyers = n_customers * ORDERS_A_CUSTOMER, n_customers - n_customers // 3
    # Every third customer has no orders: 1, 2, 4, 5, 7, 8, ...
    buyer = ZipfKeys(n_buyers, skew).draw(n, rng) if skew else rng.integers(n_buyers, size=n)
    time_us = np.sort(rng.integers(span_us, size=n))
    return _Orders(
        key=np.arange(1, n + 1, dtype=np.int64),
        customer=buyer + buyer // 2 + 1,
        day=time_us * DAYS // span_us,
        time_us=start_us + time_us,
    )


def _orders_table(orders: _Orders, totals: Ints, rng: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "o_orderkey": pa.array(orders.key),
            "o_custkey": pa.array(orders.customer),
            "o_totalprice": _money(totals),
            "o_orderdate": _dates(orders.day),
            "o_shippriority": pa.array(rng.integers(5, size=len(orders.key), dtype=np.int32)),
            "ts": _timestamps(orders.time_us),
        }
    )


def _lines(orders: _Orders, lag_us: int, rng: np.random.Generator) -> tuple[pa.Table, Ints]:
    """The lines, and the total price in cents of each order."""
    n_lines = rng.integers(1, 8, size=len(orders.key))
    order = np.repeat(np.arange(len(orders.key)), n_lines)
    number = np.arange(len(order)) - np.repeat(np.cumsum(n_lines) - n_lines, n_lines) + 1
    quantity = rng.integers(1, 51, size=len(order))
    price = quantity * rng.integers(90_000, 210_000, size=len(order))
    discount, tax = rng.integers(11, size=len(order)), rng.integers(9, size=len(order))
    time_us = orders.time_us[order] + rng.integers(lag_us + 1, size=len(order))
    charged = price * (100 - discount) * (100 + tax) // 10_000
    totals = np.bincount(order, weights=charged, minlength=len(orders.key)).astype(np.int64)
    table = pa.table(
        {
            "l_orderkey": pa.array(orders.key[order]),
            "l_linenumber": pa.array(number.astype(np.int32)),
            "l_quantity": pa.array(quantity.astype(np.int32)),
            "l_extendedprice": _money(price),
            "l_discount": _money(discount),
            "l_tax": _money(tax),
            "l_shipdate": _dates(orders.day[order] + rng.integers(1, 122, size=len(order))),
            "ts": _timestamps(time_us),
        }
    )
    return table.take(pa.array(np.argsort(time_us, kind="stable"))), totals


def _timestamps(us: Ints) -> pa.Array:
    return pa.array(us.astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))


def _dates(days: Ints) -> pa.Array:
    return pa.array(FIRST_DAY + days.astype("timedelta64[D]"))


def _money(cents: Ints) -> pa.Array:
    """Whole cents as decimals, without a Python object for each: a decimal is 128 bits, the low word first."""
    words = np.stack([cents, cents >> 63], axis=1).astype("<i8")
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(np.ascontiguousarray(words))])
