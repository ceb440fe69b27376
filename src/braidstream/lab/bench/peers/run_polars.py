"""The join on Polars, in batch: `python run_polars.py REQUEST`. It is counted and summed, which needs every result.

Rows are cut into stretches of time as long as the window, and each row of the other streams is taken three times, for
the stretch before and after its own too; so keys with many rows do not meet all of the other stream's.
"""

from __future__ import annotations

import os
import time

from asked import Asked, asked, check_of, say


def main() -> None:
    """Run it."""
    request = asked()
    os.environ["POLARS_MAX_THREADS"] = str(request["cores"])
    import polars as pl  # noqa: PLC0415  (reads how many threads it may have)

    began = time.perf_counter()
    joined = _joined(pl, request)
    names = [f"{name.lower()}v" for name in request["streams"]]
    checked = check_of(*(pl.col(name).fill_null(-1) for name in names))
    found = joined.select(pl.len().alias("n"), checked.sum().alias("sum")).collect(engine="streaming").row(0)
    took = time.perf_counter() - began
    say({"version": pl.__version__, "seconds": took, "results": found[0], "checksum": int(found[1] or 0)})


def _joined(pl, request: Asked):  # type: ignore[no-untyped-def]
    window, (first, *others) = request["window_us"], request["streams"]
    frames = {
        name: pl.scan_parquet(stream["files"]).select(
            "k", pl.col("v").alias(f"{name.lower()}v"), pl.col("ts").dt.epoch("us").alias(f"{name}_ts")
        )
        for name, stream in request["streams"].items()
    }
    joined = frames[first].with_columns((pl.col(f"{first}_ts") // window).alias("stretch"))
    met, before = joined, [first]
    for name in others:
        near = [
            frames[name].with_columns((pl.col(f"{name}_ts") // window + shift).alias("stretch")) for shift in (-1, 0, 1)
        ]
        met = met.join(pl.concat(near), on=["k", "stretch"], how="inner")
        for one in before:
            met = met.filter((pl.col(f"{one}_ts") - pl.col(f"{name}_ts")).abs() <= window)
        before.append(name)
    if request["how"] != "left":
        return met
    alone = joined.join(met.select(f"{first.lower()}v").unique(), on=f"{first.lower()}v", how="anti")
    (other,) = others
    return pl.concat([met, alone.with_columns(pl.lit(None, dtype=pl.Int64).alias(f"{other.lower()}v"))], how="diagonal")


main()
