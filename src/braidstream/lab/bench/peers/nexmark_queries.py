"""Nexmark's queries that join: 3, 4, 8, 9 and 20, in CQL and in the SQL of Spark, Flink and DuckDB.

| query | what it asks | in CQL |
| --- | --- | --- |
| q3 | who offers things of category 10 in OR, ID or CA | an inner join, both windows unbounded, as the original |
| q4 | the average, by category, of the highest bid while its auction was open | one aggregate over the join: each \
auction's highest bid, final. Aggregates do not nest, so the average over them is no part of it |
| q8 | who registered and opened an auction in the same ten seconds | a semi join on the person and the begin of the \
ten seconds: a person has one row, so none is put out twice |
| q9 | the bid that wins each auction: the highest while it was open, of several the first | one aggregate over the \
join: MAX of one number made of price, time and bidder, taken apart again in the query's select list |
| q20 | bids with their auctions, of category 10 | an inner join, both windows unbounded, as the original |

An auction is one row, so `GROUP BY a.id, window(a.ts, ...)` is a group for each auction, put out once, when no further
bid can be in time. Of bids with the same auction, price and time the one with the largest bidder wins, here and in all
dialects; the original leaves it open. Spark's answers are final too, its text is CQL's; Flink's q4 and q9 correct
themselves bid by bid, as the original does. All are asked the same of q4; Flink could have averaged as well, while
Spark, after a join of streams, has no aggregate over all time either.

Rates count the rows that a query reads: people and auctions (4 of 50 events) in q3 and q8, auctions and bids (49 of 50)
in the others. `ts` is in microseconds in the texts of Flink and DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from braidstream.lab.bench.cases import BRAIDSTREAM, SPARK_MEMORY
from braidstream.lab.bench.peers.workloads import DUCKDB, FLINK, Workload, check_sql
from braidstream.lab.workloads.nexmark import AUCTION, BID, PERSON, Nexmark

__all__ = ["FILES_PER_EPOCH", "NEXMARK", "QUERIES", "STREAMS", "NexmarkQuery"]

STREAMS = Nexmark(seed=20, start_us=10_000_000_000)
"""Not from time 0: Spark takes rows at that for late."""
EVENTS_PER_EPOCH = 500_000
FILES_PER_EPOCH = 5
_WARM, _MEASURED = 3, 5
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    PERSON: {"id": "BIGINT", "name": "STRING", "city": "STRING", "state": "STRING", "ts": "BIGINT"},
    AUCTION: {"id": "BIGINT", "seller": "BIGINT", "category": "BIGINT", "ts": "BIGINT", "expires": "BIGINT",
              "item_name": "STRING", "initial_bid": "BIGINT", "reserve": "BIGINT"},
    BID: {"auction": "BIGINT", "bidder": "BIGINT", "price": "BIGINT", "ts": "BIGINT", "channel": "STRING",
          "url": "STRING"},
}  # fmt: skip
_ROWS = {PERSON: 1, AUCTION: 3, BID: 46}
_LIFE = f"{STREAMS.longest_life_us} MICROSECONDS"
_PRICE, _TIME = 10**28, 10**12
"""The number of a bid: price, then time from the newest to the oldest, then bidder, in 38 digits."""
_FAR = 10**16 - 1


@dataclass(frozen=True)
class NexmarkQuery:
    """One query in four languages; `check` are columns of whole numbers of its results."""

    streams: tuple[str, ...]
    cql: str
    spark: str
    """Over the same streams with watermarks, in append mode."""
    duckdb: str
    flink: str
    check: tuple[str, ...]
    is_bounded: bool = True
    """Whether rows ever expire: in q3 and q20 they do not, as in the original."""
    note: str = ""
    decided: str = ""
    """In DuckDB's SQL, where Spark puts out the last results later than a finite run lasts: those before."""


_OPEN_SPARK = f"b.ts >= a.ts AND b.ts <= a.expires AND b.ts <= a.ts + INTERVAL {STREAMS.longest_life_us} MICROSECONDS"
_BEST = (
    f"CAST(b.price AS DECIMAL(38, 0)) * {_PRICE} "
    f"+ CAST({_FAR} - unix_micros(b.ts) AS DECIMAL(38, 0)) * {_TIME} + b.bidder"
)
_DURING = "b.ts BETWEEN a.ts AND epoch_us(a.expires)"
_CLOSED = (
    f"(a.ts // 1000000 + 1) * 1000000 + {STREAMS.longest_life_us} "
    "<= LEAST((SELECT MAX(ts) FROM auction), (SELECT MAX(ts) FROM bid))"
)
"""Whether the group of an auction is closed: its second, and the longest life, are before the watermark."""
_Q4 = (
    "SELECT a.id AS auction, a.category AS category, MAX(b.price) AS price FROM auction AS a JOIN bid AS b "
    f"ON a.id = b.auction AND {_DURING}%s GROUP BY a.id, a.category"
)
_Q9 = (
    f"SELECT a.id AS auction, b.price, b.bidder FROM auction AS a JOIN bid AS b ON a.id = b.auction AND {_DURING}%s "
    "QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder DESC) = 1"
)
_Q3 = (
    "SELECT p.id AS person, p.name, p.city, p.state, a.id AS auction FROM auction AS a JOIN person AS p "
    "ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"
)
_Q20 = (
    "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts AS bid_ts, a.item_name, a.initial_bid, a.reserve, "
    "a.ts AS auction_ts, a.expires, a.seller, a.category"
)
_Q20_JOINED = f"{_Q20} FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10"

QUERIES: Mapping[str, NexmarkQuery] = {
    "q3": NexmarkQuery(
        (PERSON, AUCTION),
        "SELECT p.id AS person, p.name, p.city, p.state, a.id AS auction "
        "FROM auction [RANGE UNBOUNDED] AS a, person [RANGE UNBOUNDED] AS p "
        "WHERE a.seller = p.id AND a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        _Q3,
        _Q3,
        _Q3,
        ("person", "auction"),
        is_bounded=False,
    ),
    "q4": NexmarkQuery(
        (AUCTION, BID),
        "SELECT a.id AS auction, a.category AS category, MAX(b.price) AS price FROM auction AS a JOIN bid AS b "
        f"ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL {_LIFE} AND b.ts <= a.expires "
        "GROUP BY a.id, a.category, window(a.ts, '1 second')",
        "SELECT a.id AS auction, a.category AS category, MAX(b.price) AS price FROM auction AS a JOIN bid AS b "
        f"ON a.id = b.auction AND {_OPEN_SPARK} GROUP BY a.id, a.category, window(a.ts, '1 second')",
        _Q4 % "",
        "SELECT a.id AS auction, a.category AS category, MAX(b.price) AS price FROM auction AS a JOIN bid AS b "
        "ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category",
        ("auction", "category", "price"),
        note="the highest bid of each auction; the average over them would be an aggregate of an aggregate",
        decided=_Q4 % f" AND {_CLOSED}",
    ),
    "q8": NexmarkQuery(
        (PERSON, AUCTION),
        "SELECT p.id AS person, p.name FROM person [RANGE 10 SECONDS] AS p "
        "LEFT SEMI JOIN auction [RANGE 10 SECONDS] AS a "
        "ON p.id = a.seller "
        "AND unix_micros(p.ts) - unix_micros(p.ts) % 10000000 = unix_micros(a.ts) - unix_micros(a.ts) % 10000000",
        "SELECT p.id AS person, p.name FROM (SELECT id, name, window(ts, '10 seconds') AS ten FROM person) AS p "
        "LEFT SEMI JOIN (SELECT seller, window(ts, '10 seconds') AS ten FROM auction) AS a "
        "ON p.id = a.seller AND p.ten = a.ten",
        "SELECT p.id AS person, p.name FROM person AS p SEMI JOIN auction AS a "
        "ON p.id = a.seller AND p.ts // 10000000 = a.ts // 10000000",
        "SELECT p.id AS person, p.name FROM (SELECT id, name, window_start, window_end FROM "
        "TABLE(TUMBLE(TABLE person, DESCRIPTOR(t), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end"
        ") AS p JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(t), "
        "INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end) AS a "
        "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
        ("person",),
    ),
    "q9": NexmarkQuery(
        (AUCTION, BID),
        f"SELECT a.id AS auction, CAST((MAX({_BEST}) - MAX({_BEST}) % {_PRICE}) / {_PRICE} AS BIGINT) AS price, "
        f"CAST(MAX({_BEST}) % {_TIME} AS BIGINT) AS bidder FROM auction AS a JOIN bid AS b "
        f"ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL {_LIFE} AND b.ts <= a.expires "
        "GROUP BY a.id, window(a.ts, '1 second')",
        "SELECT a.id AS auction, MAX(struct(b.price, -unix_micros(b.ts), b.bidder)).price AS price, "
        "MAX(struct(b.price, -unix_micros(b.ts), b.bidder)).bidder AS bidder FROM auction AS a JOIN bid AS b "
        f"ON a.id = b.auction AND {_OPEN_SPARK} GROUP BY a.id, window(a.ts, '1 second')",
        _Q9 % "",
        "SELECT auction, price, bidder FROM (SELECT a.id AS auction, b.price, b.bidder, ROW_NUMBER() OVER "
        "(PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder DESC) AS place FROM auction AS a JOIN bid AS b "
        "ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires) WHERE place <= 1",
        ("auction", "price", "bidder"),
        decided=_Q9 % f" AND {_CLOSED}",
    ),
    "q20": NexmarkQuery(
        (AUCTION, BID),
        f"{_Q20} "
        "FROM bid [RANGE UNBOUNDED] AS b, auction [RANGE UNBOUNDED] AS a WHERE b.auction = a.id AND a.category = 10",
        _Q20_JOINED,
        _Q20_JOINED,
        _Q20_JOINED,
        ("auction", "bidder", "price"),
        is_bounded=False,
    ),
}


def _write(folder: Path) -> None:
    events = EVENTS_PER_EPOCH * (_WARM + _MEASURED)
    STREAMS.write(folder, events=events, events_per_file=EVENTS_PER_EPOCH // FILES_PER_EPOCH)


def _workload(name: str, query: NexmarkQuery) -> Workload:
    share = sum(_ROWS[stream] for stream in query.streams) / sum(_ROWS.values())
    return Workload(
        f"nexmark-{name}",
        {stream: _COLUMNS[stream] for stream in query.streams},
        _write,
        FILES_PER_EPOCH,
        round(EVENTS_PER_EPOCH * share),
        _WARM,
        _MEASURED,
        ("braidstream.lab.bench.peers.nexmark_child", name),
        query.duckdb,
        query.flink,
        check_sql(*query.check),
        (SPARK_MEMORY, FLINK, BRAIDSTREAM, DUCKDB),
        {SPARK_MEMORY: (2, 2), FLINK: (0, 4)},
        only_decided=(SPARK_MEMORY,) if query.decided else (),
        decided=query.decided,
        note=query.note,
        data="nexmark",
    )


NEXMARK = {workload.name: workload for workload in (_workload(name, query) for name, query in QUERIES.items())}
