"""A function and a query in one job: which worn tool rings in a machine's vibration.

    .venv/bin/python examples/machines.py

Two minutes of vibration, a thousand samples a second. A function says for each half second in which band it is the
loudest; a query joins that to the tools that were taken up in the five seconds before and ring in this band. One job
file, `machines.toml`, one `braid run`, one checkpoint. The answer is compared with a loop over all data.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braidstream import jobs, local_session
from braidstream.functions import stream_function
from braidstream.lab.workloads import append_files, cut

BUILD = Path(__file__).parents[1] / "build" / "examples"
SECONDS, RATE_HZ, SIZE = 120, 1000, 500
BANDS = 8
TOOLS = ("drill", "mill", "saw")
OUTPUTS = ("vibration", "tools", "worn", "machines-checkpoint")


@stream_function(gives={"band": "int", "power": "float"})
def loudest_band(windows):
    """The loudest of eight bands of each window, and how loud it is."""
    power = np.abs(np.fft.rfft(windows["level"])[:, 1:-1]) ** 2
    bands = np.stack([part.sum(axis=1) for part in np.array_split(power, BANDS, axis=1)], axis=1)
    return {"band": bands.argmax(axis=1), "power": np.round(bands.max(axis=1))}


def times(us: np.ndarray) -> pa.Array:
    return pa.array(us.astype(np.int64)).cast(pa.timestamp("us", "UTC"))


def made() -> tuple[pa.Table, pa.Table]:
    """The vibration, which rings in another band every few seconds, and the tools."""
    rng = np.random.default_rng(3)
    n = SECONDS * RATE_HZ
    hertz = np.repeat(rng.integers(10, RATE_HZ // 2 - 10, SECONDS // 3), 3 * RATE_HZ)
    level = np.sin(2 * np.pi * np.cumsum(hertz) / RATE_HZ) + rng.normal(0, 0.3, n)
    vibration = pa.table({"ts": times(np.arange(n) * 1000), "level": level})
    at = np.sort(rng.choice(SECONDS * 10, 60, replace=False)) * 100_000
    names = [TOOLS[i] for i in rng.integers(0, len(TOOLS), len(at))]
    return vibration, pa.table({"ts": times(at), "band": rng.integers(0, BANDS, len(at)), "tool": names})


def rows(table: pa.Table, *names: str) -> list[tuple]:
    """Some columns of a table, times in microseconds."""
    columns = (table[name].cast("int64") if pa.types.is_timestamp(table[name].type) else table[name] for name in names)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def by_hand(vibration: pa.Table, tools: pa.Table) -> list[tuple[int, float, str]]:
    """Every half second with every tool."""
    sound = loudest_band({"level": vibration["level"].to_numpy().reshape(-1, SIZE)})
    begins = np.arange(len(sound["band"])) * SIZE * 1000
    taken = rows(tools, "band", "tool", "ts")
    return sorted(
        (int(at), float(power), tool)
        for own, tool, since in taken
        for at, band, power in zip(begins, sound["band"], sound["power"], strict=True)
        if own == band and 0 <= at - since <= 5_000_000
    )


def main() -> None:
    for name in OUTPUTS:
        shutil.rmtree(BUILD / name, ignore_errors=True)
    vibration, tools = made()
    append_files(BUILD / "vibration", cut(vibration, 20_000))
    append_files(BUILD / "tools", cut(tools, 20))
    spark = local_session("local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    job = jobs.read(Path(__file__).with_name("machines.toml"))
    jobs.check(job)
    handle = jobs.start(job, spark)
    print(handle.explain())
    handle.await_termination()
    for name, part in handle.parts.items():
        print(f"{name}: {len(part.progress)} epochs")
    spark.stop()
    table = pq.read_table(BUILD / "worn", ignore_prefixes=["_"])
    found = sorted(rows(table, "at", "power", "tool"))
    assert found == by_hand(vibration, tools)
    print(f"verified: {len(found)} half seconds ring as a tool of the five seconds before")


if __name__ == "__main__":
    main()
