"""Ad attribution: which click belongs to which impression, which ads were never clicked, and clicks by the minute.

    .venv/bin/python examples/attribution.py

An hour of made impressions and clicks, one flow with three queries over the same stored rows. The answers are compared
row by row with DuckDB's, and drawn.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa

from braidstream import Flow, local_session
from braidstream.lab.starters.made_streams import START_US, advertising
from braidstream.lab.testing.batch import same_rows
from braidstream.lab.workloads import append_files, cut
from braidstream.pictures import drawing, legend, save

PICTURE = Path(__file__).parents[1] / "build" / "examples" / "attribution.png"
NEAR = "i.impression = c.impression AND c.ts BETWEEN i.ts + INTERVAL 1 SECOND AND i.ts + INTERVAL 10 MINUTES"
QUERIES = {
    "attributed": f"SELECT i.impression, i.campaign, c.ts FROM impressions i JOIN clicks c ON {NEAR}",
    "never_clicked": f"SELECT i.impression, i.campaign FROM impressions i LEFT ANTI JOIN clicks c ON {NEAR}",
    "by_minute": f"""
        SELECT i.campaign, window.start AS minute, COUNT(*) AS clicks
        FROM impressions i JOIN clicks c ON {NEAR} GROUP BY i.campaign, window(c.ts, '1 minute')""",
}
ANSWERS = {
    "attributed": QUERIES["attributed"],
    "never_clicked": f"SELECT impression, campaign FROM impressions i ANTI JOIN clicks c ON {NEAR}",
    "by_minute": f"""
        SELECT i.campaign, time_bucket(INTERVAL 1 MINUTE, c.ts) AS minute, COUNT(*) AS clicks
        FROM impressions i JOIN clicks c ON {NEAR} GROUP BY ALL""",
}


def main() -> None:
    streams = advertising(seed=1)
    spark = local_session()
    with tempfile.TemporaryDirectory() as name:
        flow = Flow(spark, "attribution", slots=2)
        for stream, table in streams.items():
            append_files(Path(name) / stream, cut(table, 5000))
            flow.files(stream, Path(name) / stream, time="ts", options={"maxFilesPerTrigger": "2"})
        queries = {q: flow.query(text, q).to("memory") for q, text in QUERIES.items()}
        # The input ends with what is there: what waits for the watermark is put out too.
        flow.start(checkpoint=Path(name) / "checkpoint", final=True).await_termination()
    found = {q: query.table() for q, query in queries.items()}
    spark.stop()
    verify(found, streams)
    draw(found)


def verify(found: dict[str, pa.Table], streams: dict[str, pa.Table]) -> None:
    """Compare with what DuckDB says."""
    batch = duckdb.connect()
    batch.execute("SET TimeZone = 'UTC'")
    for name, table in streams.items():
        batch.register(name, table)
    for name, text in ANSWERS.items():
        expected = batch.sql(text).to_arrow_table()
        difference = same_rows(found[name].select(expected.column_names), expected)  # counts also say their epoch
        assert difference.identical, f"{name}: {difference}"
        print(f"verified: {name}, {difference.left_rows} rows, identical to the batch answer")


def draw(found: dict[str, pa.Table]) -> None:
    """Clicks by the minute, of the four largest campaigns. A minute without a click has no row, and is 0."""
    clicks: Counter[tuple[str, int]] = Counter()
    totals: Counter[str] = Counter()
    for row in found["by_minute"].to_pylist():
        minute = round((row["minute"].timestamp() - START_US / 1e6) / 60)
        clicks[row["campaign"], minute] += row["clicks"]
        totals[row["campaign"]] += row["clicks"]
    minutes = range(min(at for _, at in clicks), max(at for _, at in clicks) + 1)
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
        shown = {}
        for campaign, _ in totals.most_common(4):
            (shown[campaign],) = axes.plot(minutes, [clicks[campaign, at] for at in minutes])
        axes.set(xlabel="event time (minutes)", ylabel="clicks a minute", ylim=(0, None))
        legend(figure, shown, "Clicks that belong to an ad, by campaign", 4)
        save(plt, figure, PICTURE)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
