"""A query on DuckDB, in batch: `python run_duckdb.py REQUEST`. It is counted and summed, which needs every result."""

from __future__ import annotations

import time

import duckdb
from asked import asked, say


def main() -> None:
    """Run it."""
    request = asked()
    connection = duckdb.connect(config={"threads": request["cores"]})
    for name, stream in request["streams"].items():
        files = ", ".join(f"'{file}'" for file in stream["files"])
        connection.execute(f"CREATE VIEW {name} AS SELECT * REPLACE (epoch_us(ts) AS ts) FROM read_parquet([{files}])")
    began = time.perf_counter()
    (found,) = connection.execute(f"SELECT COUNT(*), SUM({request['check']}) FROM ({request['sql']})").fetchall()
    took = time.perf_counter() - began
    say({"version": duckdb.__version__, "seconds": took, "results": found[0], "checksum": int(found[1] or 0)})


main()
