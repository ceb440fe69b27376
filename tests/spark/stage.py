"""Two small streams as files, one file an epoch, and what plain Python says a query over them gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from braidstream.lab.testing import oracle
from braidstream.lab.workloads import append_files
from braidstream.spark.flow import Flow

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
DDL = "k long, v long, name string, ts timestamp"
SECOND = 1_000_000

Epochs = Sequence[dict[str, list[dict[str, Any]]]]


def some_epochs(
    seed: int, n_epochs: int = 3, rows: int = 20, *, ends: int = 30
) -> list[dict[str, list[dict[str, Any]]]]:
    """Rows in the order of time, in epochs of about equal size."""
    random = Random(seed)
    epochs: list[dict[str, list[dict[str, Any]]]] = [{"R": [], "S": []} for _ in range(n_epochs)]
    for name in "RS":
        times = sorted(random.randint(0, ends * n_epochs - 1) for _ in range(rows * n_epochs))
        for v, time in enumerate(times):
            row = {"k": random.choice([1, 1, 2, 3, None]), "v": v, "name": random.choice("abc"), "ts": time * SECOND}
            epochs[time // ends][name].append(row)
    return epochs


def write(folder: Path, epochs: Epochs, schema: pa.Schema = SCHEMA) -> dict[str, Path]:
    """One more file for each stream and epoch."""
    for epoch in epochs:
        for name, rows in epoch.items():
            append_files(folder / name, [pa.Table.from_pylist(rows, schema)])
    return {name: folder / name for name in epochs[0]}


def declare(
    flow: Flow, paths: dict[str, Path], *, directly: bool = True, ddl: str = DDL, delay: str = "0 seconds"
) -> Flow:
    """Each folder as a stream, read one file at a time, as they were written."""
    options = {"maxFilesPerTrigger": "1"}
    for name, path in paths.items():
        if directly:
            flow.files(name, path, schema=ddl, time="ts", delay=delay, options=options, order="modified")
        else:
            frame = flow.spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(path))
            flow.stream(name, frame, time="ts", delay=delay)
    return flow


def pairs(
    epochs: Epochs, windows: tuple[int | None, int | None], condition: Callable[[Any, Any], Any] = lambda r, s: True
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The pairs with equal `k` within windows of seconds that satisfy a condition."""
    streams = [
        oracle.Stream(name, [row for epoch in epochs for row in epoch.get(name, [])], window and window * SECOND)
        for name, window in zip("RS", windows, strict=True)
    ]
    for found in oracle.join(streams, [("R.k", "S.k")]):
        if condition(found["R"], found["S"]):
            yield dict(found["R"]), dict(found["S"])


def rows_of(table: pa.Table | None) -> list[tuple[Any, ...]]:
    """All rows, sorted, to compare."""
    return [] if table is None else in_order(tuple(row.values()) for row in table.to_pylist())


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows sorted, also where they hold NULLs."""
    return sorted(rows, key=repr)
