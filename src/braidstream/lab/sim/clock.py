"""The virtual clock: events in the order of their time.

Events at the same time run in the order in which they were asked for, so a run is a function of its inputs alone.
Cost: O(log events) each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

__all__ = ["Clock"]


class Clock:
    """Virtual seconds since the start of the run."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        """Have `event` happen at `time_s`, or now if that is past."""
        heapq.heappush(self._events, (max(time_s, self.now), next(self._order), event))

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Have `event` happen `delay_s` from now."""
        self.at(self.now + delay_s, event)

    def run(self, until_s: float) -> None:
        """Let everything up to `until_s` happen."""
        while self._events and self._events[0][0] <= until_s:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until_s
