"""Two streams joined in one line. Run it twice: the second run goes on where the first ended, and finds nothing new.

.venv/bin/python examples/one_line.py
"""

from __future__ import annotations

from pathlib import Path

import braidstream
from braidstream.lab.workloads import UniformKeys, write_stream

BUILD = Path(__file__).parents[1] / "build" / "examples"


def main() -> None:
    for seed, name in enumerate(("R", "S")):
        if not (BUILD / name).exists():
            write_stream(
                BUILD / name, rate=1000, keys=UniformKeys(5000), rows_per_file=20_000, n_rows=100_000, seed=seed
            )

    spark = braidstream.local_session()
    r, s = (spark.readStream.schema("k long, v long, ts timestamp").parquet(str(BUILD / name)) for name in ("R", "S"))

    joined = braidstream.join(r, s, on="k", within="10 seconds").to("parquet", path=str(BUILD / "pairs"))
    print(joined.cql)
    joined.start(checkpoint=BUILD / "checkpoint").await_termination()

    pairs = spark.read.parquet(str(BUILD / "pairs"))
    print(f"{pairs.count()} matches, such as")
    pairs.orderBy("k", "left_ts", "right_ts").show(3, truncate=False)
    spark.stop()


if __name__ == "__main__":
    main()
