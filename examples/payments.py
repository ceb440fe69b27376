"""Payments against orders: what was paid how, what nobody paid in time, what was paid twice.

    .venv/bin/python examples/payments.py

Two hours of made orders and payments. The answers are compared row by row with DuckDB's, and drawn.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.lab.starters.made_streams import START_US, shop
from braidstream.lab.testing.batch import same_rows
from braidstream.lab.workloads import append_files, cut
from braidstream.pictures import drawing, legend, save

PICTURE = Path(__file__).parents[1] / "build" / "examples" / "payments.png"
NEAR = "o.order_id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 30 MINUTES"
QUERIES = {
    "paid": f"""
        SELECT o.order_id, o.amount, p.method, o.ts AS ordered, p.ts AS at FROM orders o JOIN payments p ON {NEAR}""",
    "unpaid": f"SELECT o.order_id, o.amount, o.ts AS ordered FROM orders o LEFT ANTI JOIN payments p ON {NEAR}",
}
ANSWERS = {
    "paid": QUERIES["paid"],
    "unpaid": f"SELECT order_id, amount, ts AS ordered FROM orders o ANTI JOIN payments p ON {NEAR}",
}


def main() -> None:
    streams = shop(seed=1)
    spark = local_session()
    with tempfile.TemporaryDirectory() as name:
        flow = Flow(spark, "payments", slots=2)
        for stream, table in streams.items():
            append_files(Path(name) / stream, cut(table, 5000))
            flow.files(stream, Path(name) / stream, time="ts", options={"maxFilesPerTrigger": "2"})
        queries = {q: flow.query(text, q).to("memory") for q, text in QUERIES.items()}
        flow.start(checkpoint=Path(name) / "checkpoint", final=True).await_termination()
    found = {q: query.table() for q, query in queries.items()}
    spark.stop()
    verify(found, streams)
    times = Counter(found["paid"]["order_id"].to_pylist())
    print(f"paid twice: {sum(n > 1 for n in times.values())} orders")
    draw(found)


def verify(found: dict[str, pa.Table], streams: dict[str, pa.Table]) -> None:
    """Compare with what DuckDB says."""
    batch = duckdb.connect()
    batch.execute("SET TimeZone = 'UTC'")
    for name, table in streams.items():
        batch.register(name, table)
    for name, text in ANSWERS.items():
        difference = same_rows(found[name], batch.sql(text).to_arrow_table())
        assert difference.identical, f"{name}: {difference}"
        print(f"verified: {name}, {difference.left_rows} rows, identical to the batch answer")


def draw(found: dict[str, pa.Table]) -> None:
    """How long payments take, and orders without one by the time of the order."""
    paid, unpaid = found["paid"], found["unpaid"]
    ordered, at = (paid[name].cast(pa.int64()).to_numpy() for name in ("ordered", "at"))
    with drawing() as plt:
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0), layout="constrained")
        bars = left.hist((at - ordered) / 60e6, bins=30)[2]
        left.set(xlabel="minutes from order to payment", ylabel="payments")
        missed = (unpaid["ordered"].cast(pa.int64()).to_numpy() - START_US) / 60e6
        others = right.hist(missed, bins=np.arange(0, 121, 10), color="#c4512d")[2]
        right.set(xlabel="time of the order (minutes)", ylabel="orders")
        legend(figure, {"paid within 30 minutes": bars, "not paid": others}, "Orders and their payments", 2)
        save(plt, figure, PICTURE)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
