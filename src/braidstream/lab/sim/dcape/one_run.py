"""One run of D-CAPE's cluster: real joins tick by tick, the real controller, virtual machines with a memory.

A tick: the splitter sends its tuples to one machine after the other, each joins them, and its results count when it
is done. Then the machines report, and the controller decides: moves (both machines are at it while the state travels)
and pushes (the machine writes). Its decisions hold from the next tick on; the join obeys them exactly. After the last
tick, clean-up: all machines work at the same time, each on its groups.

Where no state is pushed, results do not depend on the placement: such runs over the same streams may share one join
(`Results`).

Memory is the active state: tuples times a size. Queues are not counted. Cost: some milliseconds a tick, and O(results).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.remembered import Memory
from braidstream.kernels.rows import I64
from braidstream.lab.sim.dcape.machine import PAPER_PRICES, CleanUpWork, Prices, VirtualMachine
from braidstream.lab.sim.dcape.pushed_state import GenerationJoin, Recovered
from braidstream.lab.sim.dcape.streams import Streams
from braidstream.model.directory import Directory
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import Instruction, Move, Spill, apply
from braidstream.model.numbers import EpochNumber, GroupId, SlotId, slot_ids

__all__ = ["CleanUpTime", "Cluster", "Measured", "Results", "simulate"]


@dataclass(frozen=True)
class Cluster:
    """The machines: who holds which group at first, how much memory each has, and who decides."""

    placement: Sequence[int]
    """The machine of each group."""
    tuple_bytes: int
    memory_bytes: int | None = None
    """The memory of each machine; None: enough."""
    controller: Controller | None = None
    stops_when_full: bool = False
    """Without any adaptation a full machine ends the run."""
    prices: Prices = PAPER_PRICES
    seed: int = 1

    @property
    def n_machines(self) -> int:
        """How many machines there are."""
        return max(self.placement) + 1


@dataclass(frozen=True)
class CleanUpTime:
    """The clean-up stage."""

    n_results: int
    works: tuple[CleanUpWork, ...]
    """What each machine has to do."""
    prices: Prices = PAPER_PRICES

    @property
    def machine_s(self) -> tuple[float, ...]:
        """How long each machine takes."""
        return tuple(self.prices.clean_up_s(work) for work in self.works)

    @property
    def seconds(self) -> float:
        """Until the last machine is done."""
        return max(self.machine_s)


@dataclass(frozen=True)
class Measured:
    """What a run gave. The lists have an entry for each tick."""

    times_s: list[float]
    results: list[int]
    """The results that were out by then."""
    total: int
    """All results of the normal run, those too that came after the last tick."""
    memory: list[tuple[int, ...]]
    """The bytes that each machine held, after what was decided."""
    before: list[tuple[int, ...]]
    """The same, when it was decided: with all that the tick brought."""
    n_moves: int
    """Relocations (of one or more groups)."""
    moved_bytes: int
    pushes: tuple[int, ...]
    """Pushes by each machine (of one or more groups)."""
    n_forced: int
    """Of those, forced ones."""
    clean_up: CleanUpTime
    stopped_s: float | None
    """When a full machine ended the run."""
    busiest: float
    """The largest share of the run that a machine was busy."""
    adapting: float
    """The largest share of the run that a machine was busy moving or pushing state."""
    delay_s: float
    """From the end of a tick to the results of its tuples, on average over results."""

    def at(self, time_s: float) -> int:
        """The results that were out at a time."""
        return self.results[min(max(int(np.searchsorted(self.times_s, time_s + 1e-9)) - 1, 0), len(self.results) - 1)]


@dataclass
class Results:
    """The results of each group in each tick when nothing is ever pushed: one real join for many placements."""

    streams: Streams
    _join: GenerationJoin | None = None
    _found: list[I64] = field(default_factory=list)

    def of_tick(self, tick: int) -> I64:
        """The results of a tick, by group. Ticks are asked for in order at first."""
        if self._join is None:
            self._join = GenerationJoin(self.streams.lows, self.streams.n_streams)
        while len(self._found) <= tick:
            self._found.append(self._join.push(self.streams.of_tick(len(self._found))))
        return self._found[tick]


def simulate(cluster: Cluster, streams: Streams, shared: Results | None = None) -> Measured:
    """Run the cluster over the streams. With `shared` results nothing may be pushed."""
    run = _Run(cluster, streams, shared)
    for tick in range(streams.n_ticks):
        if not run.tick(tick):
            break
    return run.measured()


class _Run:
    """A run under way."""

    def __init__(self, cluster: Cluster, streams: Streams, shared: Results | None) -> None:
        self.cluster, self.streams, self.shared = cluster, streams, shared
        self.join = GenerationJoin(streams.lows, streams.n_streams)
        self.machines = [VirtualMachine(slot) for slot in slot_ids(cluster.n_machines)]
        self.directory = _placed(cluster.placement)
        self.active, self.inactive = (np.zeros(streams.n_groups, dtype=np.int64) for _ in range(2))
        self.memory = Memory()
        self.measures = GroupMeasures()
        self.done: list[tuple[float, int]] = []
        self.held: list[tuple[int, ...]] = []
        self.before: list[tuple[int, ...]] = []
        self.n_moves = self.n_forced = self.moved_bytes = 0
        self.pushes = [0] * cluster.n_machines
        self.adapting_s = [0.0] * cluster.n_machines
        self.waited_s = 0.0
        self.stopped_s: float | None = None

    def tick(self, tick: int) -> bool:
        """One tick; whether the run goes on."""
        now_s = (tick + 1) * self.streams.tick_s
        new = self.streams.of_tick(tick)
        arrived = np.sum([np.diff(rows.cuts(self.streams.lows)) for rows in new], axis=0)
        found = self.join.push(new) if self.shared is None else self.shared.of_tick(tick)
        self.active += arrived
        slots = np.array([group.slot for group in self.directory.groups])
        busy = self._work(now_s, slots, arrived, found)
        self.before.append(tuple(int(b) for b in self._bytes(slots)))
        if self._is_full(slots):
            self.stopped_s = now_s
        elif self.cluster.controller is not None:
            self._decide(tick, now_s, self._reports(tick, arrived, found, busy))
        slots = np.array([group.slot for group in self.directory.groups])
        self.held.append(tuple(int(b) for b in self._bytes(slots)))
        return self.stopped_s is None

    def measured(self) -> Measured:
        """What the run gave."""
        times_s = [(tick + 1) * self.streams.tick_s for tick in range(len(self.held))]
        done = sorted(self.done)
        counts = np.append(0, np.cumsum([count for _, count in done])).astype(np.int64)
        places = np.searchsorted([time for time, _ in done], times_s, side="right")
        return Measured(
            times_s,
            counts[places].tolist(),
            int(counts[-1]),
            self.held,
            self.before,
            self.n_moves,
            self.moved_bytes,
            tuple(self.pushes),
            self.n_forced,
            self._clean_up(),
            self.stopped_s,
            max(machine.busy_s for machine in self.machines) / times_s[-1],
            max(self.adapting_s) / times_s[-1],
            self.waited_s / max(int(counts[-1]), 1),
        )

    def _work(self, now_s: float, slots: I64, arrived: I64, found: I64) -> list[float]:
        """Let every machine join its tuples; the seconds it takes each."""
        n_tuples = np.bincount(slots, weights=arrived, minlength=len(self.machines))
        n_results = np.bincount(slots, weights=found, minlength=len(self.machines))
        network, sent_s, seconds = self.cluster.prices.network, now_s, []
        for machine, arriving, count in zip(self.machines, n_tuples.tolist(), n_results.tolist(), strict=True):
            sent_s += network.transfer_s(arriving * self.cluster.tuple_bytes)
            seconds.append(self.cluster.prices.join_s(arriving, count))
            done_s = machine.work(sent_s, seconds[-1])
            self.done.append((done_s, int(count)))
            self.waited_s += count * (done_s - now_s)
        return seconds

    def _bytes(self, slots: I64) -> I64:
        held = np.bincount(slots, weights=self.active, minlength=len(self.machines))
        return (held * self.cluster.tuple_bytes).astype(np.int64)

    def _is_full(self, slots: I64) -> bool:
        limit = self.cluster.memory_bytes
        return self.cluster.stops_when_full and limit is not None and bool(self._bytes(slots).max() > limit)

    def _reports(self, tick: int, arrived: I64, found: I64, busy: Sequence[float]) -> list[SlotFigures]:
        size = self.cluster.tuple_bytes
        figures = zip(arrived.tolist(), found.tolist(), self.active.tolist(), self.inactive.tolist(), strict=True)
        parts: list[list[GroupFigures]] = [[] for _ in self.machines]
        for group, (rows, matches, active, inactive) in zip(self.directory.groups, figures, strict=True):
            parts[group.slot].append(GroupFigures(group.id, rows, matches, active, active * size, 0.0, inactive * size))
        return [_report(machine.slot, tick, parts[machine.slot], busy[machine.slot]) for machine in self.machines]

    def _decide(self, tick: int, now_s: float, reports: list[SlotFigures]) -> None:
        controller = self.cluster.controller
        assert controller is not None
        brought = (part for report in reports for part in report.groups)
        self.measures = self.measures.counted(brought, self.directory, EpochNumber(tick))
        decisions, self.memory = controller.decide(
            reports, self.directory, len(self.machines), self.memory, now_s, self.cluster.seed, self.measures
        )
        for decision in decisions:
            self._act(tick, now_s, decision.instructions)

    def _act(self, tick: int, now_s: float, instructions: Sequence[Instruction]) -> None:
        moves = [one for one in instructions if isinstance(one, Move)]
        spills = [one for one in instructions if isinstance(one, Spill)]
        if moves:
            self._relocate(now_s, moves)
        if spills:
            self._spill(tick, now_s, spills)
        self.directory, _ = apply(self.directory, len(self.machines), instructions)

    def _relocate(self, now_s: float, moves: Sequence[Move]) -> None:
        """Both machines are at it from when both are free until the state has arrived."""
        state_bytes = int(self.active[[one.group for one in moves]].sum()) * self.cluster.tuple_bytes
        pair = [self.machines[self.directory.by_id[moves[0].group].slot], self.machines[moves[0].slot]]
        begin_s = max(now_s, *(machine.free_s for machine in pair))
        for machine in pair:
            self._adapt(machine, begin_s, self.cluster.prices.relocation_s(state_bytes))
        self.n_moves += 1
        self.moved_bytes += state_bytes

    def _spill(self, tick: int, now_s: float, spills: Sequence[Spill]) -> None:
        if self.shared is not None:
            raise ValueError("state is pushed, so results depend on the placement: this run needs a join of its own")
        groups = np.array([one.group for one in spills])
        for slot in {self.directory.by_id[one.group].slot for one in spills}:
            own = [group for group in groups.tolist() if self.directory.by_id[group].slot == slot]
            pushed_bytes = int(self.active[own].sum()) * self.cluster.tuple_bytes
            self._adapt(self.machines[slot], now_s, self.cluster.prices.disk_s(pushed_bytes))
            self.pushes[slot] += 1
        self.n_forced += any(one.forced for one in spills)
        self.join.spill(groups.tolist(), tick)
        self.inactive[groups] += self.active[groups]
        self.active[groups] = 0
        self.measures = self.measures.begun_anew(groups.tolist())

    def _adapt(self, machine: VirtualMachine, begin_s: float, seconds: float) -> None:
        machine.work(begin_s, seconds)
        self.adapting_s[machine.slot] += seconds

    def _clean_up(self) -> CleanUpTime:
        if not any(self.pushes):
            return CleanUpTime(0, (CleanUpWork(),) * len(self.machines), self.cluster.prices)
        found = self.join.clean_up()
        slots = [[group.id for group in self.directory.of_slot(slot)] for slot in slot_ids(len(self.machines))]
        works = tuple(self._clean_up_work(found, own) for own in slots)
        return CleanUpTime(int(found.results.sum()), works, self.cluster.prices)

    def _clean_up_work(self, found: Recovered, groups: list[GroupId]) -> CleanUpWork:
        def total(*counts: I64) -> int:
            return sum(int(some[groups].sum()) for some in counts)

        return CleanUpWork(
            total(found.from_disk) * self.cluster.tuple_bytes,
            total(found.from_disk, found.in_memory),
            total(found.probing),
            total(found.partial),
            total(found.results, found.removed),
        )


def _placed(placement: Sequence[int]) -> Directory:
    directory = Directory.of(len(placement))
    for group, slot in enumerate(placement):
        directory = directory.move(GroupId(group), SlotId(slot))
    return directory


def _report(slot: SlotId, tick: int, parts: Sequence[GroupFigures], busy_s: float) -> SlotFigures:
    rows, matches = sum(part.rows for part in parts), sum(part.matches for part in parts)
    held = sum(part.stored_bytes for part in parts)
    return SlotFigures(slot, EpochNumber(tick), rows, matches, held, busy_s, tuple(parts))
