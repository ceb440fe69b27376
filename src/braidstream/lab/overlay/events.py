"""Discrete events: a heap of things to do, in the order of their times.

Invariant: events at the same time happen in the order in which they were asked for, so a run is the same every time,
and messages over one link keep their order. Cost: O(log pending) an event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

__all__ = ["Clock"]


class Clock:
    """Virtual time in microseconds, and what is still to happen."""

    def __init__(self) -> None:
        self.now = 0
        self._pending: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, time_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Let `action` happen at a time that is not in the past."""
        self._asked += 1
        heappush(self._pending, (time_us, self._asked, action, arguments))

    def run(self) -> None:
        """Let everything happen, until nothing is left."""
        while self._pending:
            self.now, _, action, arguments = heappop(self._pending)
            action(*arguments)
