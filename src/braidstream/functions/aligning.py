"""Several streams as one: rows that belong together, side by side, before windows are formed of them (GSDM 3.1).

By *time*: rows with equal time stamps; the k-th of one stream goes with the k-th of the others. A row that has no
partner by the time that all streams' watermarks have passed it is left out and counted; rows of a stream's newest time
wait for a later one. By *count*: the k-th row of each stream, in the order of its event time; the time stamp is the
first stream's. Functions then see windows whose samples are aligned: field `v` of stream `left` is `left_v`.

Each stream has a delay and a watermark of its own, and a former of its own that puts its rows in order (`windowing`).

Invariant: over any cut into epochs the aligned rows are the same, and in order. State: rows that wait for a partner.
Cost: a sort of the times that are new in an epoch; nothing per row in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from braidstream.errors import InputError
from braidstream.functions.window_batch import I64, Array, WindowBatch
from braidstream.functions.windowing import FormerState, WindowSpec, advance

__all__ = ["ALIGNED_BY", "STREAM_TAG", "Aligned", "Alignment", "aligned"]

ALIGNED_BY = ("time", "count")
STREAM_TAG = "__stream"
"""The column that says of which stream a row is."""
_BEGIN = -(1 << 62)


@dataclass(frozen=True)
class Alignment:
    """How rows are aligned, and of each stream its name, its fields among the aligned ones, and its delay."""

    by: str
    names: tuple[str, ...]
    fields: tuple[tuple[str, ...], ...]
    delays_us: tuple[int, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.names)}, aligned by {self.by}"


@dataclass(frozen=True)
class Aligned:
    """An epoch: the rows that are aligned now, what each stream keeps, and how many rows were late or left out."""

    rows: list[WindowBatch]
    formers: tuple[FormerState, ...]
    late: int
    left_out: int


def aligned(alignment: Alignment, before: Sequence[FormerState], new: Sequence[WindowBatch]) -> Aligned:
    """Take in what arrived, of any of the streams. What waits for a partner is the tail of its stream's former."""
    formers, queues, late = [], [], 0
    for former, fields, delay_us in zip(before, alignment.fields, alignment.delays_us, strict=True):
        own = [batch for batch in new if set(batch.fields) == set(fields)]
        released, after, n_late = advance(replace(former, tail=()), own, WindowSpec(), delay_us)
        queues.append(_one([*former.tail, *released]))
        formers.append(after)
        late += n_late
    limit = min(_BEGIN if one.watermark is None else one.watermark for one in formers)
    chosen, left_out = _by_time(queues, limit) if alignment.by == "time" else _by_count(queues)
    rest = [
        None if queue is None else queue.take(slice(n_past, None))
        for queue, (_, n_past) in zip(queues, chosen, strict=True)
    ]
    kept = tuple(
        replace(one, tail=() if own is None or not len(own) else (_copied(own),))
        for one, own in zip(formers, rest, strict=True)
    )
    taken = [queue.take(index) for queue, (index, _) in zip(queues, chosen, strict=True) if queue is not None]
    rows = [_side_by_side(taken)] if len(taken) == len(queues) and len(taken[0]) else []
    return Aligned(rows, kept, late, left_out)


Chosen = list[tuple[I64, int]]
"""Of each stream: which of its rows are aligned now, and how many of its first rows are done with."""


def _by_count(queues: Sequence[WindowBatch | None]) -> tuple[Chosen, int]:
    n = min(0 if queue is None else len(queue) for queue in queues)
    return [(np.arange(n), n) for _ in queues], 0


def _by_time(queues: Sequence[WindowBatch | None], limit: int) -> tuple[Chosen, int]:
    times = [np.zeros(0, dtype=np.int64) if queue is None else queue.ts for queue in queues]
    past = [int(np.searchsorted(own, limit)) for own in times]  # of the watermark itself more may come
    keys = [_ranked(own[:n]) for own, n in zip(times, past, strict=True)]
    common = keys[0]
    for own in keys[1:]:
        common = common[np.isin(common, own)]
    chosen = [(np.flatnonzero(np.isin(own, common)), n) for own, n in zip(keys, past, strict=True)]
    return chosen, sum(n - len(index) for index, n in chosen)


def _ranked(times: I64) -> Array:
    """Each time with its rank among equal ones, as one value. Times are ascending."""
    ranks = np.arange(len(times)) - np.searchsorted(times, times)
    pairs = np.ascontiguousarray(np.stack([times, ranks], axis=1))
    found: Array = pairs.view([("t", np.int64), ("k", np.int64)]).reshape(-1)
    return found


def _side_by_side(parts: Sequence[WindowBatch]) -> WindowBatch:
    fields = {name: array for part in parts for name, array in part.fields.items()}
    return WindowBatch(parts[0].seq, parts[0].ts, fields)


def _one(batches: Sequence[WindowBatch]) -> WindowBatch | None:
    own = [batch for batch in batches if len(batch)]
    if not own:
        return None
    if len({batch.shape for batch in own}) > 1:
        wrong = "the vectors of a stream differ in length, and so cannot be aligned with another"
        raise InputError(wrong, "vectors of one length", "align streams of vectors of one length")
    fields = {name: np.concatenate([batch.fields[name] for batch in own]) for name in own[0].fields}
    seq, ts = (np.concatenate([getattr(batch, name) for batch in own]) for name in ("seq", "ts"))
    return WindowBatch(seq, ts, fields)


def _copied(batch: WindowBatch) -> WindowBatch:
    return WindowBatch(batch.seq.copy(), batch.ts.copy(), {name: array.copy() for name, array in batch.fields.items()})
