"""A stream query peer: its windows, its memory, and MJoin over them (DHTJoin 3.3).

Idea: an entry is a tuple or an intermediate result with two times: `newest`, the largest time of its members, and
`deadline`, the smallest of (time + window) over its members. A combination of entries satisfies every window iff the
newest of all is at most the smallest deadline: one comparison whatever the number of streams.

Invariant: each arriving entry is joined with those already there and then stored, so that a combination is found once,
by whichever of its entries arrives last, in any order of arrival. An entry is forgotten only `slack` after its
deadline, when nothing that could join it can still be on its way. Only entries before their deadline count as used.
Cost: the candidates under the key, and the results. A probing sequence that cannot succeed stops at the first empty
table, tried from the smallest.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product

from braidstream.errors import InputError
from braidstream.lab.overlay.planned import Filling, Intake, Window
from braidstream.lab.overlay.victims import Sampler, Shed, oldest, planned, refuse, sample

__all__ = ["Address", "Buffer", "Entry", "Memory", "Peer", "Produced", "Table"]

Address = tuple[int, int]
"""A query and an operator of its plan."""


@dataclass(slots=True, eq=False)
class Entry:
    """A tuple or an intermediate result: the rows of its members, its times and the value it is indexed on."""

    newest: int
    deadline: int
    members: tuple[int, ...]
    value: int
    matches: float = 0.0


_SAMPLING = (sample, planned)
_OLDEST_FIRST = (oldest, sample, planned)
Table = dict[int, dict[int, Entry]]
"""Value to the entries stored under it, by number."""


@dataclass(frozen=True)
class Memory:
    """How many live entries fit: into each input of an operator at a peer, and into a peer; None is no limit."""

    per_input: int | None = None
    per_peer: int | None = None

    def __post_init__(self) -> None:
        for name in ("per_input", "per_peer"):
            if (limit := getattr(self, name)) is not None and limit < 1:
                raise InputError(f"memory {name} = {limit}", "at least 1 entry, or None for no limit")


@dataclass(frozen=True, slots=True)
class Produced:
    """What an arriving entry produced: how many combinations, and which ones if they were asked for."""

    count: int
    entries: Sequence[tuple[Entry, ...]]


class Buffer:
    """The entries that share one limit."""

    def __init__(self, limit: int | None, shed: Shed, slack_us: int, rng: random.Random) -> None:
        self.limit, self.n_shed = limit, 0
        self.live: dict[int, Entry] = {}
        self._shed, self._slack_us, self._rng = shed, slack_us, rng
        self._ends: list[tuple[int, int]] = []
        self._late: deque[tuple[int, int]] = deque()
        self._tables: dict[int, tuple[Table, Entry]] = {}
        self._sampler = Sampler(limit, rng) if limit is not None and shed in _SAMPLING else None
        self._window = Window()

    def advance(self, now: int) -> None:
        """Free the memory of what has passed its deadline, and forget what nothing on its way can join any more."""
        while self._ends and self._ends[0][0] < now:
            deadline, number = heappop(self._ends)
            if self.live.pop(number, None) is not None:
                self._late.append((deadline, number))
        while self._late and self._late[0][0] + self._slack_us < now:
            self._forget(self._late.popleft()[1])
        if self._sampler:
            self._sampler.advance(now)

    @property
    def is_full(self) -> bool:
        """Whether the next entry needs another one's place."""
        return self.limit is not None and len(self.live) >= self.limit

    def wants(self, entry: Entry, source: tuple[Address, int], now: int) -> bool:
        """Whether an entry that arrives at an input is one to join and store."""
        if self._sampler and entry.deadline >= now:
            if self._shed is planned:
                self._window.count(now, entry.deadline)
            return self._sampler.takes(len(self.live), source)
        return not (self.is_full and self._shed is refuse)

    def turn_away(self, entry: Entry, now: int) -> None:
        """An entry is neither joined nor stored."""
        self.n_shed += 1
        if self._sampler and entry.deadline >= now:
            self._sampler.miss(entry.deadline)

    def filling(self) -> Filling:
        """How full the windows are."""
        n_missing = self._sampler.n_missing if self._sampler else 0
        return self._window.filling(len(self.live), len(self.live) + n_missing, self.limit or sys.maxsize)

    def store(self, number: int, entry: Entry, table: Table, now: int) -> None:
        """Keep an entry; another one may have to go, or it itself."""
        if self.is_full and entry.deadline >= now and not self._make_room():
            return
        table.setdefault(entry.value, {})[number] = entry
        self._tables[number] = (table, entry)
        self.live[number] = entry
        heappush(self._ends, (entry.deadline, number))

    def take(self, number: int) -> Entry:
        """Remove an entry, to store it elsewhere."""
        self.live.pop(number, None)
        entry = self._tables[number][1]
        self._forget(number)
        return entry

    def _make_room(self) -> bool:
        self.n_shed += 1
        victim = self._first_ending() if self._shed in _OLDEST_FIRST else self._shed(self.live, self._rng)
        if victim is None:
            return False
        entry = self.live.pop(victim)
        if self._sampler:
            self._sampler.miss(entry.deadline)
        self._forget(victim)
        return True

    def _first_ending(self) -> int:
        while True:
            number = heappop(self._ends)[1]
            if number in self.live:
                return number

    def _forget(self, number: int) -> None:
        found = self._tables.pop(number, None)
        if found is None:
            return
        table, entry = found
        under = table[entry.value]
        del under[number]
        if not under:
            del table[entry.value]


@dataclass
class Peer:
    """The windows that one node keeps for the operators of all queries."""

    memory: Memory
    shed: Shed
    slack_us: int
    rng: random.Random
    counts_matches: bool = False
    n_useful: int = 0
    """If matches are counted: how many intermediate results became part of a larger one."""
    tables: dict[Address, list[Table]] = field(default_factory=dict)
    _buffers: dict[tuple[Address, int] | None, Buffer] = field(default_factory=dict)
    _plans: dict[Address, Intake] = field(default_factory=dict)
    _next_number: int = 0

    @property
    def used(self) -> int:
        """How many live entries the peer keeps."""
        return sum(len(buffer.live) for buffer in self._buffers.values())

    def live_at(self, now: int) -> int:
        """How many of its entries could still be part of a result."""
        return sum(entry.deadline >= now for _, _, _, entry in self.entries())

    @property
    def n_shed(self) -> int:
        """How many entries were given up or refused."""
        return sum(buffer.n_shed for buffer in self._buffers.values())

    def arrive(
        self, now: int, address: Address, n_ports: int, port: int, entry: Entry, wants_entries: bool
    ) -> Produced:
        """Join an entry with the other ports' windows, then store it."""
        tables = self.tables.setdefault(address, [{} for _ in range(n_ports)])
        buffer = self.buffer(address, port)
        for number in range(n_ports):
            self.buffer(address, number).advance(now)
        if not self._takes(buffer.wants(entry, (address, port), now), address, n_ports, port):
            buffer.turn_away(entry, now)
            return Produced(0, ())
        found = self._probe(entry, port, tables, wants_entries)
        self._next_number += 1
        buffer.store(self._next_number, entry, tables[port], now)
        return found

    def buffer(self, address: Address, port: int) -> Buffer:
        """The buffer of one input: its own, or the peer's when the limit is the peer's."""
        key = None if self.memory.per_peer is not None else (address, port)
        if key not in self._buffers:
            limit = self.memory.per_input if key else self.memory.per_peer
            self._buffers[key] = Buffer(limit, self.shed, self.slack_us, self.rng)
        return self._buffers[key]

    def entries(self) -> Iterator[tuple[Address, int, int, Entry]]:
        """Everything stored: (address, port, number, entry)."""
        for address, tables in self.tables.items():
            for port, table in enumerate(tables):
                for under in table.values():
                    for number, entry in under.items():
                        yield address, port, number, entry

    def put(self, address: Address, n_ports: int, port: int, entry: Entry, now: int) -> None:
        """Store an entry that was joined elsewhere already."""
        tables = self.tables.setdefault(address, [{} for _ in range(n_ports)])
        self._next_number += 1
        self.buffer(address, port).store(self._next_number, entry, tables[port], now)

    def _takes(self, is_wanted: bool, address: Address, n_ports: int, port: int) -> bool:
        if self.shed is not planned:
            return is_wanted
        fillings = [self.buffer(address, number).filling() for number in range(n_ports)]
        own = fillings.pop(port)
        return self._plans.setdefault(address, Intake()).takes(own, fillings, is_wanted)

    def _probe(self, entry: Entry, port: int, tables: list[Table], wants_entries: bool) -> Produced:
        others = [tables[i].get(entry.value) for i in range(len(tables)) if i != port]
        if not all(others):
            return Produced(0, ())
        newest, deadline = entry.newest, entry.deadline
        candidates = [
            [e for e in other.values() if e.newest <= deadline and newest <= e.deadline] for other in others if other
        ]
        if not all(candidates):
            return Produced(0, ())
        # When none is newer than the arriving entry each pair with it suffices, and with two ports it always does.
        is_product = len(candidates) == 1 or all(e.newest <= newest for some in candidates for e in some)
        if is_product and not wants_entries:
            return self._counted(entry, candidates)
        combined = _in_port_order(product(*candidates), entry, port)
        found = [c for c in combined if is_product or max(e.newest for e in c) <= min(e.deadline for e in c)]
        if self.counts_matches:
            for one in found:
                for member in one:
                    self._count(member, 1)
        return Produced(len(found), found)

    def _counted(self, entry: Entry, candidates: list[list[Entry]]) -> Produced:
        count = 1
        for some in candidates:
            count *= len(some)
        if self.counts_matches:
            self._count(entry, count)
            for some in candidates:
                for other in some:
                    self._count(other, count / len(some))
        return Produced(count, ())

    def _count(self, entry: Entry, matches: float) -> None:
        if not entry.matches and len(entry.members) > 1:
            self.n_useful += 1
        entry.matches += matches


def _in_port_order(combinations: Iterator[tuple[Entry, ...]], entry: Entry, port: int) -> Iterator[tuple[Entry, ...]]:
    return ((*some[:port], entry, *some[port:]) for some in combinations)
