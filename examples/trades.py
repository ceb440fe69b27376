"""Trades and quotes: each trade with the quote that held when it was made, in one line.

.venv/bin/python examples/trades.py

An as-of join takes, for each trade, the newest quote of its symbol that is not newer than the trade, at most 10 minutes
old. It is put out when the watermark has passed the trade, so that it is final. `asof_left` keeps trades without one.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

import braidstream
from braidstream.lab.workloads import append_files

NINE = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
SCHEMA = pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])
DDL = "symbol string, price double, at timestamp"

# A row is (symbol, price, seconds after nine).
QUOTES = [("OAK", 10.0, 0), ("ELM", 7.0, 5), ("OAK", 10.2, 30), ("OAK", 10.4, 61), ("ELM", 7.1, 900)]
TRADES = [
    ("ELM", 7.0, 1),
    ("OAK", 10.1, 29),
    ("OAK", 10.2, 30),
    ("OAK", 10.4, 60),
    ("ELM", 7.2, 800),
    ("OAK", 9.9, 901),
]


def write(folder: Path, rows: list[tuple[str, float, int]]) -> None:
    made = [{"symbol": s, "price": price, "at": NINE + timedelta(seconds=seconds)} for s, price, seconds in rows]
    append_files(folder, [pa.Table.from_pylist(made, SCHEMA)])


def main() -> None:
    spark = braidstream.local_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "trades", TRADES)
        write(folder / "quotes", QUOTES)
        trades, quotes = (spark.readStream.schema(DDL).parquet(str(folder / name)) for name in ("trades", "quotes"))
        joined = braidstream.join(trades, quotes, on="symbol", within="10 minutes", how="asof_left").to("memory")
        print(joined.cql)
        joined.start(folder / "ck", final=True).await_termination()
        table = joined.table()
        rows = [] if table is None else sorted(table.to_pylist(), key=lambda row: row["left_at"])
        for row in rows:
            quote = "no quote" if row["right_price"] is None else f"a quote of {row['right_price']}"
            print(f"{row['left_at']:%H:%M:%S} {row['symbol']} traded at {row['left_price']}: {quote}")
    spark.stop()


if __name__ == "__main__":
    main()
