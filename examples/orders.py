"""Orders and payments, enriched from a table of customers that changes while orders come.

.venv/bin/python examples/orders.py

The table is a folder of Parquet files. Spark joins it to the orders before they are routed; what an epoch sees is one
snapshot, which stands in the checkpoint. Here a second run reads the next orders and the table as it is by then. With
`format="delta"` or `"iceberg"` the snapshot is a version, and `refresh="10 minutes"` is for a flow that runs on.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import braidstream
from braidstream.lab.workloads import append_files

NINE = datetime(2026, 3, 2, 9, tzinfo=timezone.utc)
TIME = ("ts", pa.timestamp("us", tz="UTC"))
ORDERS = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64()), TIME])
PAYMENTS = pa.schema([("order_id", pa.int64()), ("by", pa.string()), TIME])
CUSTOMERS = pa.schema([("id", pa.string()), ("name", pa.string()), ("city", pa.string())])

PAID = """
SELECT o.id, c.name, c.city, o.amount, p.by
FROM orders o [RANGE 1 HOUR] JOIN payments p [RANGE 1 HOUR] ON o.id = p.order_id
LEFT JOIN customers c ON o.customer = c.id
"""


def write(folder: Path, minute: int, orders: list[Any], payments: list[Any]) -> None:
    at = {"ts": NINE + timedelta(minutes=minute)}
    named = [{"id": i, "customer": customer, "amount": amount, **at} for i, customer, amount in orders]
    append_files(folder / "orders", [pa.Table.from_pylist(named, ORDERS)])
    paid = [{"order_id": i, "by": by, **at} for i, by in payments]
    append_files(folder / "payments", [pa.Table.from_pylist(paid, PAYMENTS)])


def write_customers(folder: Path, *rows: tuple[str, str, str]) -> None:
    (folder / "customers").mkdir(exist_ok=True)
    made = [dict(zip(CUSTOMERS.names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(made, CUSTOMERS), folder / "customers" / "all.parquet")


def run(spark: Any, folder: Path) -> list[tuple[Any, ...]]:
    """Join what is there, and go on where the last run ended; (order, name, city) of what was paid."""
    flow = braidstream.Flow(spark, slots=2)
    for name in ("orders", "payments"):
        flow.files(name, folder / name, time="ts", delay="0 seconds")
    flow.table("customers", path=folder / "customers")
    paid = flow.query(PAID, name="paid").to("memory")
    flow.start(folder / "ck").await_termination()
    table = paid.table()
    rows = sorted([] if table is None else table.to_pylist(), key=lambda row: row["id"])
    for row in rows:
        who = "somebody" if row["name"] is None else f"{row['name']} of {row['city']}"
        print(f"order {row['id']} of {who}: {row['amount']} by {row['by']}")
    print(next(line.strip() for line in flow.explain().splitlines() if "table customers" in line))
    return [(row["id"], row["name"], row["city"]) for row in rows]


def main() -> None:
    spark = braidstream.local_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 0, [(1, "a", 20.0), (2, "b", 5.5), (3, "z", 9.0)], [(2, "card")])
        write_customers(folder, ("a", "Ada", "London"), ("b", "Blaise", "Paris"))
        first = run(spark, folder)
        assert first == [(2, "Blaise", "Paris")], first
        write(folder, 10, [(4, "a", 1.0), (5, "c", 2.0)], [(1, "cash"), (3, "card"), (4, "card"), (5, "cash")])
        write_customers(folder, ("a", "Ada", "Oxford"), ("b", "Blaise", "Paris"), ("c", "Carl", "Berlin"))
        then = run(spark, folder)
        # The first orders were read when Ada lived in London, and nobody knew z.
        expected = [(1, "Ada", "London"), (3, None, None), (4, "Ada", "Oxford"), (5, "Carl", "Berlin")]
        assert then == expected, then
    spark.stop()
    print("verified: each order has the customer as the table said when the order was read")


if __name__ == "__main__":
    main()
