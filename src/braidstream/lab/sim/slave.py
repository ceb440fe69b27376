"""A virtual slave: a buffer of batches, a processor that joins them in order, and blocking communication.

While a slave communicates it does not join (WSJ III: a receiver is blocked until its partner is there); `pause` and
`resume` nest. What it joins costs what the machine charges, divided by the slave's speed and by what its background
load leaves. A batch is the tuples of some groups in a span of ticks; a group that moves takes its part of the
buffered batches with it (WSJ IV-C), and a batch under way is finished first.

Invariant: a tuple is in one batch of one slave, or joined, or at the master; `Cluster` checks the sum.
Cost: a few events for each batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from braidstream.lab.sim.clock import Clock
from braidstream.lab.sim.costs import Machine
from braidstream.lab.sim.demand import Demand, Floats, Ints
from braidstream.model.numbers import SlotId

__all__ = ["Background", "Batch", "Joined", "Slave", "no_background"]

Background = Callable[[float], float]
"""The share of a slave's processor that others take, at a time in seconds."""


def no_background(_time_s: float) -> float:
    """A dedicated machine."""
    return 0.0


@dataclass(frozen=True)
class Batch:
    """The tuples of some groups (rows of the demand's tables) that arrived in ticks [first, last)."""

    rows: Ints
    first: int
    last: int
    counts: Floats
    """Tuples, comparisons and matches of each group."""

    @property
    def n_tuples(self) -> float:
        """How many tuples there are in all."""
        return float(self.counts[0].sum())

    def only(self, rows: Ints, keep: bool = True) -> Batch:
        """The part of the batch with those groups, or without."""
        chosen = np.isin(self.rows, rows) == keep
        return Batch(self.rows[chosen], self.first, self.last, self.counts[:, chosen])


@dataclass(frozen=True)
class Joined:
    """A batch that was joined, from `start_s` to `end_s`."""

    batch: Batch
    slot: SlotId
    start_s: float
    end_s: float
    seconds: Floats
    """The processor time of each group."""


@dataclass
class Slave:
    """One slave. `told` hears of every joined batch."""

    slot: SlotId
    clock: Clock
    machine: Machine
    demand: Demand
    told: Callable[[Joined], None]
    speed: float = 1.0
    background: Background = no_background
    queue: deque[Batch] = field(default_factory=deque)
    in_flight: deque[Sequence[Batch]] = field(default_factory=deque)
    n_taken: float = 0.0
    """The tuples received and kept, joined or not."""
    busy_s: float = 0.0
    blocked_s: float = 0.0
    _current: Batch | None = None
    _left_s: float = 0.0
    _whole_s: float = 0.0
    _start_s: float = 0.0
    _since_s: float | None = None
    _n_pauses: int = 0
    _paused_s: float = 0.0
    _version: int = 0
    _waiting: list[tuple[Ints, Callable[[], None]]] = field(default_factory=list)

    def take(self, batch: Batch) -> None:
        """Put a batch at the end of the buffer."""
        if len(batch.rows):
            self.n_taken += batch.n_tuples
            self.queue.append(batch)
            self._go_on()

    def expect(self, batches: Sequence[Batch]) -> None:
        """The master began to send: block until it is the slave's turn and the tuples are there."""
        self.in_flight.append(batches)
        self.pause()

    def receive(self) -> None:
        """What was expected first is there."""
        batches = self.in_flight.popleft()
        self.resume()
        for batch in batches:
            self.take(batch)
        self._tell_waiting()

    def pause(self) -> None:
        """Stop joining, to communicate."""
        if self._n_pauses == 0:
            self._stop()
            self._paused_s = self.clock.now
        self._n_pauses += 1

    def resume(self) -> None:
        """Communication is over."""
        self._n_pauses -= 1
        if self._n_pauses == 0:
            self.blocked_s += self.clock.now - self._paused_s
            self._go_on()

    def seconds_of(self, batch: Batch) -> Floats:
        """What joining a batch would take here now, by group."""
        prices = np.array([self.machine.tuple_s, self.machine.compare_s, self.machine.match_s])
        return np.asarray(prices @ batch.counts) / (self.speed * (1.0 - self.background(self.clock.now)))

    @property
    def backlog(self) -> float:
        """The tuples received and not joined."""
        self._settle()
        left = self._left_s / self._whole_s if self._current is not None and self._whole_s > 0 else 0.0
        current = self._current.n_tuples * left if self._current is not None else 0.0
        return current + sum(batch.n_tuples for batch in self.queue)

    @property
    def held_tuples(self) -> float:
        """The tuples of batches that were sent here and have not been joined to their end."""
        current = self._current.n_tuples if self._current is not None else 0.0
        coming = sum(batch.n_tuples for batches in self.in_flight for batch in batches)
        return current + coming + sum(batch.n_tuples for batch in self.queue)

    def when_drained(self, rows: Ints, then: Callable[[], None]) -> None:
        """Call `then` as soon as no message and no batch under way can have tuples of these groups."""
        self._waiting.append((rows, then))
        self._tell_waiting()

    def extract(self, rows: Ints) -> list[Batch]:
        """Take the groups' part out of the buffer."""
        parts = [batch.only(rows) for batch in self.queue]
        rest = [batch.only(rows, keep=False) for batch in self.queue]
        self.queue = deque(batch for batch in rest if len(batch.rows))
        self.n_taken -= sum(batch.n_tuples for batch in parts)
        return [batch for batch in parts if len(batch.rows)]

    def settle(self) -> None:
        """Bring `busy_s` and `blocked_s` up to now."""
        self._settle()
        if self._n_pauses:
            self.blocked_s += self.clock.now - self._paused_s
            self._paused_s = self.clock.now

    def _settle(self) -> None:
        if self._since_s is not None:
            elapsed = self.clock.now - self._since_s
            self.busy_s += elapsed
            self._left_s = max(0.0, self._left_s - elapsed)
            self._since_s = self.clock.now

    def _stop(self) -> None:
        self._settle()
        self._since_s = None
        self._version += 1

    def _go_on(self) -> None:
        if self._n_pauses or self._since_s is not None:
            return
        if self._current is None:
            if not self.queue:
                return
            self._current = self.queue.popleft()
            self._left_s = self._whole_s = float(self.seconds_of(self._current).sum())
            self._start_s = self.clock.now
        self._since_s = self.clock.now
        self._version += 1
        version = self._version
        self.clock.after(self._left_s, lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._version or self._current is None:
            return
        self._stop()
        batch, self._current = self._current, None
        seconds = self.seconds_of(batch)
        share = self._whole_s / seconds.sum() if seconds.sum() > 0 else 0.0
        self.told(Joined(batch, self.slot, self._start_s, self.clock.now, seconds * share))
        self._tell_waiting()
        self._go_on()

    def _tell_waiting(self) -> None:
        under_way = self._current.rows if self._current is not None else np.empty(0, dtype=np.int64)
        waiting, self._waiting = self._waiting, []
        for rows, then in waiting:
            if self.in_flight or np.isin(under_way, rows).any():
                self._waiting.append((rows, then))
            else:
                then()
