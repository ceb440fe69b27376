"""A virtual cluster running WSJ's join: one master, slaves, a network, and our controller.

The master keeps the tuples of each group in a mini-buffer. Its time is cut into ticks, n_g to a distribution epoch; at
the end of each tick it serves one of the n_g sub-groups of slaves (WSJ V-B), one slave after the other, each blocked
until its turn is over. At the end of each epoch the slaves report; every `every` epochs the controller decides, and its
instructions are carried out: moves by the relocation protocol, one adaptation at a time.

The join itself is a cost model (`demand`, `costs`), because 20 virtual minutes must take seconds; the controller, the
directory, the reports and the instructions are the engine's own. D-CAPE's experiments will put real joins, memory and
disk behind the same `Clock`, `Slave` and `Relocation`.

Invariant, checked at the end of a run: every tuple that arrived was joined, waits at one slave, or waits at the master.
Cost: about ten events a slave and epoch; 20 minutes with 4 slaves take a few tenths of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.lab.sim.clock import Clock
from braidstream.lab.sim.costs import PAPER_MACHINE, PAPER_NETWORK, Machine, Network
from braidstream.lab.sim.demand import TUPLE_BYTES, Demand, Floats, Ints
from braidstream.lab.sim.metrics import Meter, Metrics
from braidstream.lab.sim.relocation import Message, Relocation
from braidstream.lab.sim.slave import Background, Batch, Slave, no_background
from braidstream.model.directory import Directory
from braidstream.model.figures import GroupFigures, SlotFigures
from braidstream.model.group_measures import GroupMeasures
from braidstream.model.instructions import AddSlot, Decision, Instruction, Merge, Move, RemoveSlot, Split
from braidstream.model.numbers import EpochNumber, GroupId, SlotId, slot_ids

__all__ = ["Cluster", "ClusterSettings", "simulate"]


@dataclass(frozen=True)
class ClusterSettings:
    """The shape of a run. Defaults are WSJ's table 1 and section VI-A."""

    n_slaves: int = 4
    n_groups: int = 60
    epoch_s: float = 2.0
    n_subgroups: int = 1
    duration_s: float = 1200.0
    warm_up_s: float = 600.0
    machine: Machine = PAPER_MACHINE
    network: Network = PAPER_NETWORK
    speeds: tuple[float, ...] = ()
    """The slaves' speeds, in turn; empty: all 1."""
    backgrounds: tuple[Background, ...] = ()
    """The slaves' background loads, in turn; empty: none."""
    control: Settings | None = field(
        default_factory=lambda: Settings(epoch_s=2.0, splitting=False, certainty=0.0, least_s=0.0)
    )
    """The controller's settings; None: no controller."""
    max_slaves: int = 0
    """Slaves that may become active (declustering); 0: as many as `n_slaves`."""
    seed: int = 1


def simulate(settings: ClusterSettings, demand: Demand) -> Metrics:
    """Run a cluster from beginning to end."""
    return Cluster(settings, demand).run()


def _controller(control: Settings, demand: Demand) -> Controller:
    """The controller, which must not split groups beyond what the simulation tells apart."""
    return Controller(replace(control, max_depth=min(control.max_depth, demand.shares.bits)))


class Cluster:
    """The state of one run."""

    def __init__(self, settings: ClusterSettings, demand: Demand) -> None:
        self.settings, self.demand = settings, demand
        self.clock = Clock()
        self.meter = Meter(settings.warm_up_s, settings.duration_s, demand.tick_s)
        self.controller = _controller(settings.control, demand) if settings.control is not None else None
        self.memory = Memory()
        self.measures = GroupMeasures()
        self.directory = Directory.of(settings.n_groups, settings.n_slaves)
        n_possible = max(settings.n_slaves, settings.max_slaves)
        self.slaves = [self._slave(slot) for slot in slot_ids(n_possible)]
        self.n_slots = settings.n_slaves
        self.reports: list[SlotFigures] = []
        self.decisions: list[Decision] = []
        self.messages: list[Message] = []
        self.n_reported: dict[int, int] = {}
        self.held: set[GroupId] = set()
        self.relocating = 0
        self.leaving = False
        self.master_free_s = 0.0
        self.leftover: dict[int, list[Batch]] = {}
        self.sent: dict[GroupId, int] = {group.id: 0 for group in self.directory.groups}
        self._placement_of: Directory | None = None
        self._placement: dict[SlotId, tuple[list[GroupId], Ints]] = {}
        self.aliases: dict[GroupId, set[int]] = {group.id: {self._row(group.id)} for group in self.directory.groups}

    def run(self) -> Metrics:
        """Let the whole time pass."""
        n_ticks = round(self.settings.duration_s / self.demand.tick_s)
        for slot in range(self.n_slots):
            self.meter.active(slot, 0.0)
        for tick in range(1, n_ticks + 1):
            self.clock.at(tick * self.demand.tick_s, partial(self._tick, tick))
        self.clock.at(self.settings.warm_up_s, self._start_measuring)
        self.clock.run(self.settings.duration_s)
        for slave in self.slaves:
            slave.settle()
        self._check_nothing_lost(n_ticks)
        return self.meter.metrics(self.slaves, self.decisions, self.messages)

    def _slave(self, slot: SlotId) -> Slave:
        speeds, backgrounds = self.settings.speeds or (1.0,), self.settings.backgrounds or (no_background,)
        return Slave(
            slot,
            self.clock,
            self.settings.machine,
            self.demand,
            self.meter.joined,
            speeds[slot % len(speeds)],
            backgrounds[slot % len(backgrounds)],
        )

    def _row(self, group: GroupId) -> int:
        shape = self.directory.by_id[group]
        return self.demand.row_of(shape.prefix, shape.depth)

    def _rows(self, groups: Sequence[GroupId]) -> Ints:
        return np.array([self._row(group) for group in groups], dtype=np.int64)

    def _placed(self, slot: SlotId) -> tuple[list[GroupId], Ints]:
        """The groups of a slot and their rows, found once for each directory."""
        if self._placement_of is not self.directory:
            groups: dict[SlotId, list[GroupId]] = {slave.slot: [] for slave in self.slaves}
            for group in self.directory.groups:
                groups[group.slot].append(group.id)
            self._placement_of = self.directory
            self._placement = {one: (some, self._rows(some)) for one, some in groups.items()}
        return self._placement[slot]

    def _start_measuring(self) -> None:
        for slave in self.slaves:
            slave.settle()
        self.meter.start(self.slaves)

    def _tick(self, tick: int) -> None:
        n_subgroups = self.settings.n_subgroups
        self.meter.buffered(self._pending(tick), is_epoch_end=tick % n_subgroups == 0)
        if tick % n_subgroups == 0:
            self._report(tick)
            epoch = EpochNumber(tick // n_subgroups - 1)
            if self.controller is not None and self.controller.is_due(epoch):
                self._reorganize()
        self._distribute(tick, (tick - 1) % n_subgroups)

    def _pending(self, tick: int) -> float:
        """The tuples in the master's mini-buffers."""
        waiting = sum(batch.n_tuples for batches in self.leftover.values() for batch in batches)
        for slot in slot_ids(len(self.slaves)):
            groups, rows = self._placed(slot)
            firsts = np.array([self.sent[group] for group in groups], dtype=np.int64)
            waiting += float(self.demand.tuples_since(rows, firsts, tick).sum())
        return waiting

    def _distribute(self, tick: int, subgroup: int) -> None:
        """Serve the slaves of one sub-group in turn; all of them wait from now on."""
        free_s = max(self.clock.now, self.master_free_s)
        for slave in self.slaves[: self.n_slots]:
            if slave.slot % self.settings.n_subgroups == subgroup:
                batches = self._drained(slave.slot, tick)
                n_bytes = TUPLE_BYTES * sum(batch.n_tuples for batch in batches)
                free_s += self.settings.network.transfer_s(n_bytes)
                slave.expect(batches)
                self.clock.at(free_s, slave.receive)
        self.master_free_s = free_s

    def _drained(self, slot: SlotId, tick: int) -> list[Batch]:
        """Empty the mini-buffers of the slot's groups, the oldest tuples first; those being moved are held."""
        batches = self.leftover.pop(slot, [])
        rows_since: dict[int, list[int]] = {}
        for group, row in zip(*self._placed(slot), strict=True):
            if group not in self.held and self.sent[group] < tick:
                rows_since.setdefault(self.sent[group], []).append(row)
                self.sent[group] = tick
        return batches + [self._batch(np.array(rows), first, tick) for first, rows in sorted(rows_since.items())]

    def _batch(self, rows: Ints, first: int, last: int) -> Batch:
        return Batch(rows, first, last, self.demand.between(rows, first, last))

    def _report(self, tick: int) -> None:
        epoch = EpochNumber(tick // self.settings.n_subgroups - 1)
        for slave in self.slaves[: self.n_slots]:
            slave.settle()
            groups, rows = self._placed(slave.slot)
            stored = self.demand.stored(rows, tick)
            self.meter.stored(float(stored.sum()) * TUPLE_BYTES)
            self.reports.append(self._slot_report(slave, epoch, groups, stored))
        brought = (part for report in self.reports[-self.n_slots :] for part in report.groups)
        self.measures = self.measures.counted(brought, self.directory, epoch)

    def _slot_report(self, slave: Slave, epoch: EpochNumber, groups: Sequence[GroupId], stored: Floats) -> SlotFigures:
        done = self.meter.taken(slave)
        parts = []
        for group, size in zip(groups, stored.astype(int).tolist(), strict=True):
            tuples, matches, seconds = done.of_rows(self.aliases[group])
            parts.append(GroupFigures(group, int(tuples), int(matches), size, size * TUPLE_BYTES, seconds))
        backlog = int(slave.backlog)
        n_joined = int(slave.n_taken) - backlog  # a batch under way counts for what was done of it
        rows, self.n_reported[slave.slot] = n_joined - self.n_reported.get(slave.slot, 0), n_joined
        return SlotFigures(
            slave.slot,
            epoch,
            max(0, rows),
            int(done.matches),
            int(stored.sum()) * TUPLE_BYTES,
            done.busy_s,
            tuple(parts),
            f"slave {slave.slot}",
            backlog,
            backlog * TUPLE_BYTES,
        )

    def _reorganize(self) -> None:
        """Ask the controller, unless an adaptation is still under way."""
        reports, self.reports = self.reports, []
        if self.relocating or self.leaving or self.controller is None:
            return
        decisions, self.memory = self.controller.decide(
            reports, self.directory, self.n_slots, self.memory, self.clock.now, self.settings.seed, self.measures
        )
        self.decisions += decisions
        self._carry_out([one for decision in decisions for one in decision.instructions])

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        moves, before = list[Move](), self.directory
        for one in instructions:
            if isinstance(one, AddSlot):
                self.n_slots += 1
                self.meter.active(self.n_slots - 1, self.clock.now)
            elif isinstance(one, RemoveSlot):
                self.leaving = True
            elif isinstance(one, Split):
                moves += self._split(one)
            elif isinstance(one, Merge):
                self._merge(one)
            elif isinstance(one, Move):
                moves.append(one)  # WSJ's slaves have no disk: nothing else is asked of them
        if self.directory is not before:
            self.measures = self.measures.carried(before, self.directory)
        self._relocate(moves)
        self._leave()

    def _relocate(self, moves: Sequence[Move]) -> None:
        """One run of the protocol for each pair of slaves."""
        pairs: dict[tuple[SlotId, SlotId], list[GroupId]] = {}
        for move in moves:
            pairs.setdefault((self.directory.by_id[move.group].slot, move.slot), []).append(move.group)
        for (sender, receiver), groups in pairs.items():
            rows = np.array(sorted(set().union(*(self.aliases[group] for group in groups))), dtype=np.int64)
            self.relocating += 1
            self.meter.n_moves += len(groups)
            Relocation(
                self.clock,
                self.settings.network,
                rows,
                self.slaves[sender],
                self.slaves[receiver],
                partial(self._state_bytes, groups),
                partial(self.held.update, groups),
                partial(self._release, groups, receiver),
                self.messages,
            ).start()

    def _state_bytes(self, groups: Sequence[GroupId]) -> float:
        tick = int(self.clock.now / self.demand.tick_s)
        return TUPLE_BYTES * float(self.demand.stored(self._rows(groups), tick).sum())

    def _release(self, groups: Sequence[GroupId], receiver: SlotId) -> None:
        for group in groups:
            self.directory = self.directory.move(group, receiver)
        self.held.difference_update(groups)
        self.relocating -= 1
        self._leave()

    def _leave(self) -> None:
        """The last slave goes once its groups have gone."""
        last = self.slaves[self.n_slots - 1]
        if self.leaving and not self.relocating and not self.directory.of_slot(last.slot):
            self.leaving = False
            self.n_slots -= 1
            self.meter.inactive(last.slot, self.clock.now)

    def _split(self, one: Split) -> list[Move]:
        """Halve a group where it is; the upper half's move, if it is to go elsewhere."""
        whole, slot, upper = self._row(one.group), self.directory.by_id[one.group].slot, self.directory.next_id
        self.directory = self.directory.split(one.group)
        self.sent[upper] = self.sent[one.group]
        halves = [self._row(one.group), self._row(upper)]
        self.aliases[one.group], self.aliases[upper] = {whole, halves[0]}, {whole, halves[1]}
        slave = self.slaves[slot]
        for batch in slave.extract(np.array([whole])):
            slave.take(self._batch(np.array(halves), batch.first, batch.last))
        return [Move(upper, one.slot)] if one.slot != slot else []

    def _merge(self, one: Merge) -> None:
        """Make buddies of one slave one group; buddies on two slaves wait until a move has brought them together."""
        buddy = self.directory.buddy(one.group)
        own = self.directory.by_id[one.group]
        if buddy is None or buddy.slot != own.slot:
            return
        parts = [one.group, buddy.id]
        last = max(self.sent[part] for part in parts)
        late = [part for part in parts if self.sent[part] < last]
        self.leftover.setdefault(own.slot, []).extend(
            self._batch(self._rows([part]), self.sent[part], last) for part in late
        )
        aliases = set().union(*(self.aliases.pop(part) for part in parts))
        for part in parts:
            del self.sent[part]
        self.directory = self.directory.merge(one.group)
        kept = min(parts) if min(parts) in self.directory.by_id else max(parts)
        self.sent[kept], self.aliases[kept] = last, aliases
        self.aliases[kept].add(self._row(kept))

    def _check_nothing_lost(self, n_ticks: int) -> None:
        arrived = float(self.demand.between(self._rows([g.id for g in self.directory.groups]), 0, n_ticks)[0].sum())
        at_slaves = sum(slave.held_tuples for slave in self.slaves)
        found = self.meter.n_joined + at_slaves + self._pending(n_ticks)
        if abs(found - arrived) > 0.5:
            raise AssertionError(f"{arrived:.0f} tuples arrived and {found:.0f} are accounted for")
