"""From samples to windows: exact across epochs, however the stream is cut.

A stream of samples is in the order of event time, equal times in the order of arrival. Window k holds the samples
[k step, k step + size) of that order (GSDM 3.1's slidingWindow); its time stamp is that of its first sample. Without a
size, every row is a window (currentWindow).

Samples may arrive out of order within the stream's allowed delay. After each epoch the watermark is the largest event
time seen less the delay; samples up to the watermark are *released*: sorted and formed into windows. Later ones are
pending. A sample older than the watermark before its epoch is late: dropped and counted.

Invariant: over any cut into epochs, the windows are a stride view over the stable sort by time of all samples that were
not late. The state is what is not yet a full window, and what is pending: O(size + samples within the delay). Cost: one
copy of the new samples, a sort only where they are out of order; the windows themselves are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from braidstream.errors import InputError
from braidstream.functions.window_batch import I64, Array, WindowBatch, ordered

__all__ = ["FormerState", "WindowSpec", "advance"]

_BEGIN = -(1 << 62)


@dataclass(frozen=True)
class WindowSpec:
    """How windows are formed: `size` samples every `step` samples; without a size, every row is a window."""

    size: int | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("size", self.size), ("step", self.step)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InputError(
                    f"the {what} of windows is {value!r}", "a whole number of samples from 1", f"{what}=1024"
                )
        if self.size is None and self.step is not None:
            raise InputError(f"windows have a step ({self.step}) but no size", "a size", f"size={self.step}")

    @property
    def stride(self) -> int:
        """The step; without one, windows do not overlap."""
        return self.step or self.size or 1

    def __str__(self) -> str:
        return "every row is a window" if self.size is None else f"windows of {self.size} samples, step {self.stride}"


@dataclass(frozen=True)
class FormerState:
    """What window formation remembers between epochs."""

    next_seq: int = 0
    arrived: int = 0
    """Samples so far: the number of the next one in the order of arrival."""
    skip: int = 0
    """Samples to leave out before the next window begins, where the step is longer than the size."""
    newest: int | None = None
    watermark: int | None = None
    tail: tuple[WindowBatch, ...] = ()
    """Released samples from the first one of the next window on. Their `seq` is the order of arrival."""
    pending: tuple[WindowBatch, ...] = ()
    """Samples after the watermark."""


def advance(
    state: FormerState, new: Sequence[WindowBatch], spec: WindowSpec, delay_us: int = 0
) -> tuple[list[WindowBatch], FormerState, int]:
    """One epoch: the windows that are complete now, what is kept, and how many samples were late.

    `new` has the samples (or rows) in the order of arrival.
    """
    state, on_time, late = _arrive(state, new, delay_us)
    waiting = [*state.pending, *on_time]
    limit = _BEGIN if state.watermark is None else state.watermark
    released, pending = [], []
    for batch in waiting:
        ready = batch.ts <= limit
        if ready.all():
            released.append(batch)
        else:
            released.append(batch.take(ready))
            pending.append(batch.take(~ready))
    state = replace(state, pending=tuple(batch for batch in pending if len(batch)))
    in_order = _by_time([batch for batch in released if len(batch)])
    if spec.size is None:
        return _rows(state, in_order, late)
    windows, state = _slide(state, in_order, spec.size, spec.stride)
    return windows, state, late


def _arrive(
    state: FormerState, new: Sequence[WindowBatch], delay_us: int
) -> tuple[FormerState, list[WindowBatch], int]:
    """Number the new samples, drop those that are late, and move the watermark."""
    before = _BEGIN if state.watermark is None else state.watermark
    on_time, late, arrived, newest = [], 0, state.arrived, state.newest
    for batch in new:
        if not len(batch):
            continue
        largest = int(batch.ts.max())
        newest = largest if newest is None else max(newest, largest)
        numbered = WindowBatch(np.arange(arrived, arrived + len(batch), dtype=np.int64), batch.ts, batch.fields)
        arrived += len(batch)
        fresh = batch.ts >= before
        if not fresh.all():
            late += int(len(fresh) - fresh.sum())
            numbered = numbered.take(fresh)
        on_time.append(numbered)
    watermark = state.watermark if newest is None else max(before, newest - delay_us)
    return replace(state, arrived=arrived, newest=newest, watermark=watermark), on_time, late


def _by_time(batches: list[WindowBatch]) -> list[WindowBatch]:
    """In the order of (time, arrival). The batches are in the order of arrival."""
    if not batches:
        return []
    times = np.concatenate([batch.ts for batch in batches])
    arrival = np.concatenate([batch.seq for batch in batches])
    if _is_rising(times) and _is_rising(arrival):
        return batches if len({batch.shape for batch in batches}) > 1 else _joined(batches)
    place = np.empty(len(times), dtype=np.int64)
    place[np.lexsort((arrival, times))] = np.arange(len(times))
    ends = np.cumsum([len(batch) for batch in batches])[:-1]
    placed = [replace(batch, seq=at) for batch, at in zip(batches, np.split(place, ends), strict=True)]
    return ordered(placed)


def _is_rising(values: I64) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _joined(batches: list[WindowBatch]) -> list[WindowBatch]:
    if len(batches) == 1:
        return batches
    fields = {name: np.concatenate([batch.fields[name] for batch in batches]) for name in batches[0].fields}
    seq, ts = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("seq", "ts"))
    return [WindowBatch(seq, ts, fields)]


def _rows(state: FormerState, rows: list[WindowBatch], late: int) -> tuple[list[WindowBatch], FormerState, int]:
    numbered, seq = [], state.next_seq
    for batch in rows:
        numbered.append(WindowBatch(np.arange(seq, seq + len(batch), dtype=np.int64), batch.ts, batch.fields))
        seq += len(batch)
    return numbered, replace(state, next_seq=seq), late


def _slide(
    state: FormerState, released: list[WindowBatch], size: int, step: int
) -> tuple[list[WindowBatch], FormerState]:
    if len({batch.shape for batch in (*state.tail, *released)}) > 1:
        raise InputError(
            "the vectors of the stream differ in length, and so cannot form windows of several rows",
            "vectors of one length",
            "leave the size out: every row is then a window",
        )
    joined = _joined([*state.tail, *released]) if state.tail or released else []
    if not joined:
        return [], state
    stream = joined[0]
    if state.skip:
        left_out = min(state.skip, len(stream))
        stream, state = stream.take(slice(left_out, None)), replace(state, skip=state.skip - left_out)
    n_windows = max((len(stream) - size) // step + 1, 0)
    begins = slice(0, (n_windows - 1) * step + 1 if n_windows else 0, step)
    windows = []
    if n_windows:
        fields = {name: _views(array, size, begins) for name, array in stream.fields.items()}
        seq = np.arange(state.next_seq, state.next_seq + n_windows, dtype=np.int64)
        windows.append(WindowBatch(seq, stream.ts[begins], fields))
    used = n_windows * step
    skip = state.skip + max(used - len(stream), 0)
    tail = _copied(stream.take(slice(used, None)))
    kept = (tail,) if len(tail) else ()
    return windows, replace(state, next_seq=state.next_seq + n_windows, skip=skip, tail=kept)


def _views(array: Array, size: int, begins: slice) -> Array:
    """Windows as views: (window, sample, ...)."""
    return np.moveaxis(sliding_window_view(array, size, axis=0)[begins], -1, 1)


def _copied(batch: WindowBatch) -> WindowBatch:
    """A small copy, so that the tail does not keep the whole epoch in memory."""
    return WindowBatch(batch.seq.copy(), batch.ts.copy(), {name: array.copy() for name, array in batch.fields.items()})
