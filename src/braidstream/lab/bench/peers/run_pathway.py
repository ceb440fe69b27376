"""The join on Pathway: `python run_pathway.py REQUEST`.

The rows come from memory, an epoch's files at one of Pathway's times, and rows that no later one can meet are
forgotten; what is measured is `pw.run`. Reading the files and making tables of them is not in it, since Pathway has no
connector of Parquet files.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import pandas as pd
import pathway as pw
import pyarrow.parquet as pq
from asked import Asked, asked, check_of, say


def main() -> None:
    """Run it."""
    request = asked()
    joined = _joined(request)
    counted = {"results": 0, "checksum": 0}
    names = [f"{name.lower()}v" for name in request["streams"]]

    def count(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        sign = 1 if is_addition else -1
        counted["results"] += sign
        counted["checksum"] += sign * check_of(*(-1 if row[name] is None else row[name] for name in names))

    if request["is_check"]:
        pw.io.subscribe(joined, on_change=count)
    else:
        pw.io.null.write(joined)
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    took = time.perf_counter() - began
    made = {"version": version("pathway"), "seconds": took}
    say({**made, **counted} if request["is_check"] else made)


def _joined(request: Asked) -> Any:
    window, (first, *others) = request["window_us"], request["streams"]
    join = pw.temporal.interval_join_left if request["how"] == "left" else pw.temporal.interval_join_inner
    behavior = pw.temporal.common_behavior(cutoff=2 * window, keep_results=True)
    made = _table(request, first)
    before: list[str] = []
    for name in others:
        own = _table(request, name)
        within = pw.temporal.interval(-window, window)
        met = join(made, own, made[f"{first}_ts"], own[f"{name}_ts"], within, made.k == own.k, behavior=behavior)
        columns = [column for column in made.column_names() if column not in ("k", f"{first}_ts")]
        made = met.select(
            k=made.k,
            **{column: made[column] for column in [*columns, f"{first}_ts"]},
            **{column: own[column] for column in (f"{name.lower()}v", f"{name}_ts")},
        )
        for one in before:
            apart = made[f"{one}_ts"] - made[f"{name}_ts"]
            made = made.filter((apart <= window) & (apart >= -window))
        before.append(name)
    return made.select(**{f"{name.lower()}v": made[f"{name.lower()}v"] for name in request["streams"]})


def _table(request: Asked, name: str) -> Any:
    frames = []
    for number, file in enumerate(request["streams"][name]["files"]):
        read = pq.read_table(file)
        times = read["ts"].cast("int64").to_numpy()
        values = {"k": read["k"].to_numpy(), f"{name.lower()}v": read["v"].to_numpy(), f"{name}_ts": times}
        frames.append(pd.DataFrame({**values, "__time__": 2 * (number // request["files_per_epoch"] + 1)}))
    return pw.debug.table_from_pandas(pd.concat(frames, ignore_index=True), _new_universe=True)


main()
