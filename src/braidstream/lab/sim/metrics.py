"""What a run of the virtual cluster is measured by (WSJ VI-A).

Production delay: from the arrival of the newer tuple of a result to the result, averaged over results. Processor,
communication (blocked) and idle time of the active slaves. The window's size in a node. The master's buffer. All but
the number of moves are measured after the warm-up only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from braidstream.lab.sim.relocation import Message
from braidstream.lab.sim.slave import Joined, Slave
from braidstream.model.instructions import Decision

__all__ = ["Meter", "Metrics", "Share"]


@dataclass(frozen=True)
class Metrics:
    """The figures of one run, over the time after the warm-up. Lists have one entry for each slave that was active."""

    delay_s: float
    n_matches: float
    cpu_s: list[float]
    communication_s: list[float]
    idle_s: list[float]
    window_bytes: float
    """The largest window in a node."""
    buffer_tuples: float
    """The most tuples of one stream at the master in an epoch, averaged over epochs."""
    n_moves: int
    slots: list[tuple[float, int]]
    """When the number of active slaves became what."""
    decisions: list[Decision]
    messages: list[Message]


@dataclass
class Share:
    """What a slave did since its last report, by row of the demand's tables."""

    matches: float = 0.0
    busy_s: float = 0.0
    rows: dict[int, tuple[float, float, float]] = field(default_factory=dict)

    def of_rows(self, rows: Iterable[int]) -> tuple[float, float, float]:
        """Tuples, matches and seconds of some rows together."""
        known = [self.rows[row] for row in rows if row in self.rows]
        return sum(k[0] for k in known), sum(k[1] for k in known), sum(k[2] for k in known)

    def add(self, joined: Joined) -> None:
        """Count a joined batch."""
        counts = joined.batch.counts
        self.matches += float(counts[2].sum())
        figures = zip(
            joined.batch.rows.tolist(), counts[0].tolist(), counts[2].tolist(), joined.seconds.tolist(), strict=True
        )
        for row, *more in figures:
            known = self.rows.get(row, (0.0, 0.0, 0.0))
            self.rows[row] = (known[0] + more[0], known[1] + more[1], known[2] + more[2])


class Meter:
    """Collects while the run goes on."""

    def __init__(self, warm_up_s: float, duration_s: float, tick_s: float) -> None:
        self.warm_up_s, self.duration_s, self.tick_s = warm_up_s, duration_s, tick_s
        self.n_joined = 0.0
        self.n_moves = 0
        self.slots: list[tuple[float, int]] = []
        self._delays = self._matches = self._window_bytes = 0.0
        self._shares: dict[int, Share] = {}
        self._seen_busy: dict[int, float] = {}
        self._at_start: dict[int, tuple[float, float]] = {}
        self._active_since: dict[int, float] = {}
        self._active_s: dict[int, float] = {}
        self._peak = 0.0
        self._peaks: list[float] = []
        self._is_measuring = False

    def joined(self, done: Joined) -> None:
        """A batch was joined."""
        batch = done.batch
        self.n_joined += batch.n_tuples
        self._shares.setdefault(done.slot, Share()).add(done)
        if done.end_s > self.warm_up_s:
            arrived_s = (batch.first + batch.last) / 2 * self.tick_s
            n_matches = float(batch.counts[2].sum())
            self._delays += n_matches * ((done.start_s + done.end_s) / 2 - arrived_s)
            self._matches += n_matches

    def taken(self, slave: Slave) -> Share:
        """What the slave did since this was last asked."""
        share = self._shares.pop(slave.slot, Share())
        share.busy_s = slave.busy_s - self._seen_busy.get(slave.slot, 0.0)
        self._seen_busy[slave.slot] = slave.busy_s
        return share

    def buffered(self, n_tuples: float, is_epoch_end: bool) -> None:
        """The master's buffer before it serves a sub-group, both streams together."""
        self._peak = max(self._peak, n_tuples / 2)
        if is_epoch_end:
            if self._is_measuring:
                self._peaks.append(self._peak)
            self._peak = 0.0

    def stored(self, n_bytes: float) -> None:
        """A node's windows."""
        if self._is_measuring:
            self._window_bytes = max(self._window_bytes, n_bytes)

    def start(self, slaves: Sequence[Slave]) -> None:
        """The warm-up is over."""
        self._is_measuring = True
        self._at_start = {slave.slot: (slave.busy_s, slave.blocked_s) for slave in slaves}

    def active(self, slot: int, now_s: float) -> None:
        """A slave became active."""
        self._active_since[slot] = now_s
        self.slots.append((now_s, len(self._active_since)))

    def inactive(self, slot: int, now_s: float) -> None:
        """A slave is no longer active."""
        self._close(slot, now_s)
        self.slots.append((now_s, len(self._active_since)))

    def metrics(self, slaves: Sequence[Slave], decisions: list[Decision], messages: list[Message]) -> Metrics:
        """The figures of the run."""
        for slot in list(self._active_since):
            self._close(slot, self.duration_s)
        known = [slave for slave in slaves if self._active_s.get(slave.slot, 0.0) > 0]
        cpu = [slave.busy_s - self._at_start[slave.slot][0] for slave in known]
        blocked = [slave.blocked_s - self._at_start[slave.slot][1] for slave in known]
        active = [self._active_s[slave.slot] for slave in known]
        idle = [max(0.0, a - c - b) for a, c, b in zip(active, cpu, blocked, strict=True)]
        return Metrics(
            self._delays / self._matches if self._matches else float("nan"),
            self._matches,
            cpu,
            blocked,
            idle,
            self._window_bytes,
            float(np.mean(self._peaks)) if self._peaks else 0.0,
            self.n_moves,
            self.slots,
            decisions,
            messages,
        )

    def _close(self, slot: int, now_s: float) -> None:
        since = max(self._active_since.pop(slot), self.warm_up_s)
        self._active_s[slot] = self._active_s.get(slot, 0.0) + max(0.0, now_s - since)
