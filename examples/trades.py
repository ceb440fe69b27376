"""Trades and quotes: each trade with the quote that held when it was made, in one line.

    .venv/bin/python examples/trades.py

An as-of join takes, for each trade, the newest quote of its symbol that is not newer than the trade, at most a minute
old. It is put out when the watermark has passed the trade, so that it is final. `asof_left` keeps trades without one.
The answer is compared row by row with DuckDB's as-of join, and drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import braidstream
from braidstream.lab.starters.made_streams import START_US, market
from braidstream.lab.testing.batch import same_rows
from braidstream.lab.workloads import append_files, cut
from braidstream.pictures import COLORS, GREY, drawing, legend, save

PICTURE = Path(__file__).parents[1] / "build" / "examples" / "trades.png"
SCHEMAS = {
    "trades": "trade long, symbol string, price double, size long, ts timestamp",
    "quotes": "symbol string, bid double, ask double, ts timestamp",
}
ANSWER = """
    SELECT t.trade, t.symbol, t.price, t.ts,
        CASE WHEN t.ts - q.ts <= INTERVAL 1 MINUTE THEN q.bid END AS bid,
        CASE WHEN t.ts - q.ts <= INTERVAL 1 MINUTE THEN q.ask END AS ask
    FROM trades t ASOF LEFT JOIN quotes q ON t.symbol = q.symbol AND q.ts <= t.ts"""


def main() -> None:
    streams = one_quote_at_a_time(market(seed=1))
    spark = braidstream.local_session()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream, table in streams.items():
            append_files(folder / stream, cut(table, 20_000))
        trades, quotes = (spark.readStream.schema(ddl).parquet(str(folder / s)) for s, ddl in SCHEMAS.items())
        joined = braidstream.join(
            trades,
            quotes,
            on="symbol",
            within="1 minute",
            how="asof_left",
            select="left.trade AS trade, left.symbol AS symbol, left.price AS price, left.ts AS ts, "
            "right.bid AS bid, right.ask AS ask",
        ).to("memory")
        print(joined.cql)
        joined.start(folder / "ck", final=True).await_termination()
        found = joined.table()
    spark.stop()
    batch = duckdb.connect()
    batch.execute("SET TimeZone = 'UTC'")
    for name, table in streams.items():
        batch.register(name, table)
    difference = same_rows(found, batch.sql(ANSWER).to_arrow_table())
    assert difference.identical, str(difference)
    print(f"verified: {difference.left_rows} trades, identical to the batch answer; {found['bid'].null_count} without")
    draw(found, streams["quotes"])


def one_quote_at_a_time(streams: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Without a second quote of one symbol and time: which of them a batch join takes is not said."""
    quotes = streams["quotes"].group_by(["symbol", "ts"]).aggregate([("bid", "max"), ("ask", "max")])
    quotes = quotes.rename_columns({"bid_max": "bid", "ask_max": "ask"}).select(["symbol", "bid", "ask", "ts"])
    return {"quotes": quotes.sort_by("ts"), "trades": streams["trades"]}


def draw(found: pa.Table, quotes: pa.Table) -> None:
    """Two minutes of one symbol: the quotes as steps, trades on them."""
    with drawing() as plt:
        figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")

        def cut_out(table: pa.Table) -> tuple[pa.Table, list[float]]:
            own = table.filter(pc.equal(table["symbol"], "OAK")).sort_by("ts")
            seconds = (own["ts"].cast(pa.int64()).to_numpy() - START_US) / 1e6
            near = (seconds >= 600) & (seconds < 720)
            return own.filter(pa.array(near)), (seconds[near] - 600).tolist()

        own, at = cut_out(quotes)
        band = axes.fill_between(at, own["bid"].to_numpy(), own["ask"].to_numpy(), step="post", color=GREY, alpha=0.35)
        own, at = cut_out(found)
        (dots,) = axes.plot(at, own["price"].to_numpy(), "o", color=COLORS[1])
        axes.set(xlabel="event time (seconds)", ylabel="price of OAK")
        legend(figure, {"bid to ask": band, "trades": dots}, "Each trade with the quote that held", 2)
        save(plt, figure, PICTURE)
    print(f"picture: {PICTURE}")


if __name__ == "__main__":
    main()
