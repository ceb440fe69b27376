"""The join on Bytewax: `python run_bytewax.py REQUEST`.

Bytewax has windows and a join of what lies in the same one, but no join of an interval; so the join is written here as
the state of a key, in Python, as its users would: the rows of each stream within the window, oldest first. Batches of
rows are read from the files, one of each stream at a time, in the order of their times, and keyed one by one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from importlib.metadata import version
from itertools import product
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from asked import Asked, asked, check_of, say
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

Row = tuple[int, int, int]
"""Stream, time, value."""


def main() -> None:
    """Run it."""
    request, sink = asked(), _Counted()
    flow = Dataflow("join")
    rows = op.input("rows", flow, _Source(request))
    op.output("out", op.stateful_flat_map("join", rows, _joiner(request)), sink)
    began = time.perf_counter()
    run_main(flow)
    took = time.perf_counter() - began
    said = {"results": sink.results, "checksum": sink.checksum}
    say({"version": version("bytewax"), "seconds": took, **said})


def _joiner(request: Asked) -> Any:
    window, n_streams = request["window_us"], len(request["streams"])

    def step(state: list[deque[tuple[int, int]]] | None, row: Row) -> tuple[Any, list[tuple[int, ...]]]:
        stream, at, value = row
        held = state if state is not None else [deque() for _ in range(n_streams)]
        for own in held:
            while own and own[0][0] < at - 2 * window:
                own.popleft()
        partners = [[(at, value)] if i == stream else held[i] for i in range(n_streams)]
        found = [tuple(one[1] for one in rows) for rows in product(*partners) if max(rows)[0] - min(rows)[0] <= window]
        held[stream].append((at, value))
        return held, found

    return step


class _Partition(StatefulSourcePartition[Any, None]):
    def __init__(self, request: Asked) -> None:
        self._files = list(zip(*(stream["files"] for stream in request["streams"].values()), strict=True))

    def next_batch(self) -> Iterable[tuple[str, Row]]:
        """Files of one number have the same stretch of time."""
        if not self._files:
            raise StopIteration
        read = [pq.read_table(file) for file in self._files.pop(0)]
        read = [one.append_column("stream", pa.repeat(i, len(one))) for i, one in enumerate(read)]
        rows = pa.concat_tables(read).sort_by("ts")
        columns = (rows["k"].cast("string"), rows["stream"], rows["ts"].cast("int64"), rows["v"])
        keys, streams, times, values = (column.to_pylist() for column in columns)
        return [(key, (stream, at, value)) for key, stream, at, value in zip(keys, streams, times, values, strict=True)]

    def snapshot(self) -> None:
        return None


class _Source(FixedPartitionedSource[Any, None]):
    def __init__(self, request: Asked) -> None:
        self._request = request

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Partition:
        return _Partition(self._request)


class _Counted(DynamicSink[Any], StatelessSinkPartition[Any]):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.results = self.checksum = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Counted:
        return self

    def write_batch(self, items: list[tuple[str, tuple[int, ...]]]) -> None:
        self.results += len(items)
        self.checksum += sum(check_of(*values) for _, values in items)


main()
