"""Rows out of order, a sink of one's own, and an output for rows that come too late.

.venv/bin/python examples/late_rows.py
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.lab.workloads import append_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
SCHEMA = pa.schema([("id", pa.int64()), ("what", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])

# Each inner list is one file, and so one epoch; a row is (id, what, seconds after noon).
ORDERS = [[(1, "tea", 0), (2, "rice", 4)], [(3, "salt", 20), (4, "milk", 17)], [(5, "bread", 2)]]
PAYMENTS = [[(1, "cash", 3)], [(2, "card", 10), (3, "card", 21), (4, "cash", 18)], [(5, "card", 22)]]


def write(folder: Path, files: list[list[tuple[int, str, int]]]) -> None:
    tables = []
    for rows in files:
        made = [{"id": i, "what": what, "at": NOON + timedelta(seconds=seconds)} for i, what, seconds in rows]
        tables.append(pa.Table.from_pylist(made, SCHEMA))
    append_files(folder, tables)


def show(results: DataFrame, epoch: int) -> None:
    """A sink: called once for each epoch, and again for the same epoch after a crash."""
    for row in results.orderBy("id").collect():
        print(f"epoch {epoch}: order {row.id} ({row.item}) was paid by {row.how}")


def main() -> None:
    spark = local_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "orders", ORDERS)
        write(folder / "payments", PAYMENTS)

        flow = Flow(spark, "late rows")
        one_file_an_epoch = {"maxFilesPerTrigger": "1"}
        for stream in ("orders", "payments"):
            flow.files(
                stream,
                folder / stream,
                schema="id long, what string, at timestamp",
                time="at",
                delay="5 seconds",  # order 4 comes 3 s after a newer one: fine. Order 5 comes 18 s after: late.
                options=one_file_an_epoch,
                order="modified",  # as they came; by event time, the default here, nothing would be late
            )
        query = flow.query("""
            SELECT o.id AS id, o.what AS item, p.what AS how
            FROM orders [RANGE 30 SECONDS] AS o, payments [RANGE 30 SECONDS] AS p
            WHERE o.id = p.id
        """)
        query.to(show).late("parquet", path=str(folder / "late"))
        handle = flow.start(checkpoint=folder / "checkpoint")
        handle.await_termination()

        late = spark.read.parquet(str(folder / "late" / "stream=orders")).collect()
        print(f"too late: {[(row.id, row.what) for row in late]}")
        print(f"counted:  {handle.totals}")
    spark.stop()


if __name__ == "__main__":
    main()
