"""Impressions and clicks: which click belongs to which impression, which were never clicked, and clicks by the minute.

.venv/bin/python examples/attribution.py
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.lab.workloads import append_files

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
SCHEMA = pa.schema([("id", pa.int64()), ("campaign", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])

# Each inner list is one file; a row is (id of the impression, campaign, seconds after noon).
IMPRESSIONS = [[(1, "tea", 0), (2, "tea", 10), (3, "rice", 50)], [(4, "rice", 70), (5, "tea", 95)]]
CLICKS = [[(1, "tea", 20), (2, "tea", 11)], [(3, "rice", 75), (4, "rice", 150), (5, "tea", 119)]]

BETWEEN = "c.ts BETWEEN i.ts + INTERVAL 5 SECONDS AND i.ts + INTERVAL 1 MINUTE"
QUERIES = {
    "attributed": f"SELECT i.id, i.campaign FROM impressions i JOIN clicks c ON i.id = c.id AND {BETWEEN}",
    "never clicked": f"SELECT i.id, i.campaign FROM impressions i LEFT ANTI JOIN clicks c ON i.id = c.id AND {BETWEEN}",
    "by the minute": f"""
        SELECT i.campaign, window.start AS minute, COUNT(*) AS clicks
        FROM impressions i JOIN clicks c ON i.id = c.id AND {BETWEEN}
        GROUP BY i.campaign, window(c.ts, '1 minute')""",
}


def write(folder: Path, files: list[list[tuple[int, str, int]]]) -> None:
    tables = []
    for rows in files:
        made = [{"id": i, "campaign": name, "ts": NOON + timedelta(seconds=seconds)} for i, name, seconds in rows]
        tables.append(pa.Table.from_pylist(made, SCHEMA))
    append_files(folder, tables)


def main() -> None:
    spark = local_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flow = Flow(spark, "attribution", slots=2)
        for stream, files in (("impressions", IMPRESSIONS), ("clicks", CLICKS)):
            write(folder / stream, files)
            flow.files(stream, folder / stream, time="ts", options={"maxFilesPerTrigger": "1"})
        queries = {q: flow.query(text, q.replace(" ", "_")).to("memory") for q, text in QUERIES.items()}
        # The input ends with what is there: what waits for the watermark is put out too.
        flow.start(checkpoint=folder / "checkpoint", final=True).await_termination()
        for shown, query in queries.items():
            table = query.table()
            rows = [] if table is None else table.to_pylist()
            for row in sorted(rows, key=str):
                values = [v.strftime("%H:%M") if isinstance(v, datetime) else v for v in row.values()]
                print(f"{shown}: {' '.join(str(value) for value in values[: 3 if 'clicks' in row else 2])}")
    spark.stop()


if __name__ == "__main__":
    main()
