"""Streams that say nothing: which of them the watermark goes on without.

A stream with `idle = "10 minutes"` that has had no row for so long, by the clock of the driver and while the flow runs,
is *idle* from the next epoch on, until it speaks again. What it sends then and is older than the watermark is late.

Invariant: who is idle in an epoch stands in the manifest before it, so that a replay sees the same; the clock is read
once, at the end of an epoch, and is an argument. Cost: O(streams).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from braidstream.state.notes import Silence

__all__ = ["Patience", "idle_warnings", "silence"]


def _wall_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True)
class Patience:
    """How long each stream may be silent, in microseconds of wall time, and since when the flow runs."""

    idle_us: Mapping[str, int] = field(default_factory=dict)
    clock: Callable[[], int] = _wall_us
    since_us: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "since_us", self.clock())


def silence(known: Silence, patience: Patience, spoke: Collection[str], now_us: int) -> Silence:
    """What the manifest remembers after an epoch in which some streams spoke."""
    heard = {
        stream: now_us if stream in spoke else max(known.heard.get(stream, 0), patience.since_us)
        for stream in patience.idle_us
    }
    idle = [s for s, us in patience.idle_us.items() if s not in spoke and now_us - heard[s] >= us]
    return Silence(heard, tuple(sorted({*idle, *(set(known.idle) & set(heard) - set(spoke))})))


def idle_warnings(before: Silence, after: Silence) -> Iterator[str]:
    """Where the watermark goes on without a stream from now on."""
    for stream in after.idle:
        if stream not in before.idle:
            yield f"stream {stream} is silent: the watermark goes on without it, and what it sends later may be late"
