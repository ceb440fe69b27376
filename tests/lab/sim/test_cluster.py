"""The virtual cluster: nothing is lost, the protocol keeps its order, and the controller helps."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

from braidstream.control.controller import Controller
from braidstream.control.load import View
from braidstream.control.policies import Suggestion
from braidstream.control.remembered import Memory
from braidstream.control.settings import Settings
from braidstream.lab.sim.clock import Clock
from braidstream.lab.sim.costs import Machine, Network
from braidstream.lab.sim.demand import Demand, Rate, shares_of
from braidstream.lab.sim.slave import Batch, no_background
from braidstream.lab.sim.virtual_cluster import Cluster, ClusterSettings, simulate
from braidstream.lab.workloads.key_values import UniformKeys
from braidstream.model.instructions import AddSlot, Merge, Move, RemoveSlot, Split

CONTROL = Settings(epoch_s=2.0, every=5, splitting=False, buffer_bytes=1 << 16)  # small streams, small buffers
SMALL = ClusterSettings(
    n_slaves=4, n_groups=16, duration_s=400.0, warm_up_s=200.0, machine=Machine.of_speed(500e-9), control=CONTROL
)


def streams(rate: Rate, *, n_subgroups: int = 1, duration_s: float = 400.0) -> Demand:
    tick_s = 2.0 / n_subgroups
    return Demand(
        shares_of(UniformKeys(100_000), bits=8),
        rate,
        n_ticks=round(duration_s / tick_s),
        tick_s=tick_s,
        window_s=60.0,
        theta_rows=2048,
    )


def busy_from_100_s(time_s: float) -> float:
    """Another program takes 70% of the processor from then on."""
    return 0.7 if time_s >= 100 else 0.0


@dataclass(frozen=True)
class AnythingLegal:
    """A policy that suggests a random legal instruction."""

    kinds: tuple[type, ...] = (Move, Split, Merge, AddSlot, RemoveSlot)
    most: int = 6

    def suggest(self, view: View, memory: Memory, rng: np.random.Generator) -> list[Suggestion]:
        kind = self.kinds[int(rng.integers(len(self.kinds)))]
        group = view.directory.groups[int(rng.integers(len(view.directory.groups)))]
        slot = int(rng.integers(view.n_slots))
        last = view.n_slots - 1
        if kind is RemoveSlot:
            chosen = (
                (*(Move(g.id, g.id % last) for g in view.directory.of_slot(last)), RemoveSlot(last)) if last else ()
            )
        elif kind is AddSlot:
            chosen = (AddSlot(),) if view.n_slots < self.most else ()
        elif kind is Merge:
            chosen = (Merge(group.id),) if view.directory.buddy(group.id) else ()
        else:
            chosen = (kind(group.id, slot),) if group.depth < 7 else ()
        return [Suggestion("anything", "load", chosen, {}, "why not")] if chosen else []


def test_events_happen_in_the_order_of_time_and_then_of_asking() -> None:
    clock, seen = Clock(), []
    for name, time_s in (("b", 2.0), ("a", 1.0), ("c", 2.0)):
        clock.at(time_s, lambda name=name: seen.append((name, clock.now)))
    clock.run(5.0)
    assert seen == [("a", 1.0), ("b", 2.0), ("c", 2.0)]
    assert clock.now == 5.0


@pytest.mark.parametrize("n_subgroups", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_random_instructions_lose_no_tuple(seed: int, n_subgroups: int) -> None:
    """`Cluster.run` adds up every tuple at its end; here also every group's ticks, joined once each."""
    settings = replace(SMALL, max_slaves=6, seed=seed, n_subgroups=n_subgroups)
    cluster = Cluster(settings, streams(lambda _time: 400.0, n_subgroups=n_subgroups))
    cluster.controller = Controller(replace(CONTROL, every=2), (AnythingLegal(),))
    metrics = cluster.run()
    kinds = {one.kind for decision in metrics.decisions for one in decision.instructions}
    assert len(kinds) >= 3
    assert metrics.n_matches > 0


def test_the_relocation_protocol_keeps_its_eight_steps() -> None:
    """Steps in order, the state sent after the inputs were held, and no tuple of the group sent in between."""
    sent: list[tuple[float, int, set[int]]] = []

    class Watched(Cluster):
        def _drained(self, slot: int, tick: int) -> list[Batch]:
            batches = super()._drained(slot, tick)
            sent.append((self.clock.now, slot, {int(row) for batch in batches for row in batch.rows}))
            return batches

    network = Network(rendezvous_s=0.05, bytes_per_s=1e5)  # slow enough for epochs to pass while the state travels
    cluster = Watched(replace(SMALL, network=network, control=None), streams(lambda _time: 400.0))
    cluster.clock.at(101.0, lambda: cluster._relocate([Move(group, 3) for group in range(4)]))
    cluster.run()
    row = cluster._row(0)
    steps = [message.step for message in cluster.messages]
    assert sorted(steps) == steps
    assert set(steps) == set(range(1, 9))
    held_s = next(m.time_s for m in cluster.messages if m.name == "EndOfMovedPartitions")
    resumed_s = next(m.time_s for m in cluster.messages if m.step == 8)
    assert resumed_s - held_s > 4.0
    assert not [time_s for time_s, _, rows in sent if row in rows and held_s <= time_s < resumed_s]
    assert {slot for time_s, slot, rows in sent if row in rows and time_s < held_s} == {0}
    assert {slot for time_s, slot, rows in sent if row in rows and time_s >= resumed_s} == {3}


def test_held_tuples_come_first() -> None:
    network = Network(rendezvous_s=0.05, bytes_per_s=1e5)
    cluster = Cluster(replace(SMALL, network=network, control=None), streams(lambda _time: 400.0))
    order: list[tuple[int, int]] = []
    told = cluster.slaves[3].told

    def watch(joined: object) -> None:
        batch: Batch = joined.batch  # type: ignore[attr-defined]
        if cluster._row(0) in batch.rows:
            order.append((batch.first, batch.last))
        told(joined)  # type: ignore[arg-type]

    cluster.slaves[3].told = watch
    cluster.clock.at(101.0, lambda: cluster._relocate([Move(group, 3) for group in range(4)]))
    cluster.run()
    assert order
    assert all(before[1] == after[0] for before, after in itertools.pairwise(order)), "no tick twice, none left out"


def test_a_slow_slave_is_relieved() -> None:
    rate = 900.0
    slow = replace(SMALL, backgrounds=(busy_from_100_s, *[no_background] * 3))
    without = simulate(replace(slow, control=None), streams(lambda _time: rate))
    with_it = simulate(slow, streams(lambda _time: rate))
    assert without.n_moves == 0
    assert with_it.n_moves > 0
    assert with_it.delay_s < without.delay_s / 4


def test_a_stable_load_moves_nothing() -> None:
    metrics = simulate(SMALL, streams(lambda _time: 500.0))
    assert metrics.n_moves == 0
    assert metrics.messages == []


def test_slots_follow_the_rate_up_and_down() -> None:
    control = replace(CONTROL, declustering=True, max_slots=4)
    settings = replace(SMALL, n_slaves=1, max_slaves=4, duration_s=900.0, control=control)

    def rate(time_s: float) -> float:
        return 1600.0 if 300 <= time_s < 600 else 300.0

    metrics = simulate(settings, streams(rate, duration_s=900.0))
    counts = {label: max((n for t, n in metrics.slots if a <= t < b), default=0) for label, a, b in _THIRDS}
    assert counts["high"] >= 3
    assert metrics.slots[-1][1] < counts["high"]


_THIRDS = (("low", 0.0, 300.0), ("high", 300.0, 650.0), ("low again", 650.0, 900.0))


def test_a_run_is_a_function_of_its_inputs() -> None:
    runs = [simulate(replace(SMALL, seed=3), streams(lambda _time: 900.0)) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("n_subgroups", [1, 2, 4])
def test_the_masters_buffer_follows_the_formula(n_subgroups: int) -> None:
    """M_buf = r t_d / 2 (1 + 1/n_g), WSJ V-B."""
    rate = 800.0
    metrics = simulate(
        replace(SMALL, n_subgroups=n_subgroups, machine=Machine.of_speed(1e-9)),
        streams(lambda _time: rate, n_subgroups=n_subgroups),
    )
    assert metrics.buffer_tuples == pytest.approx(rate * 2.0 / 2 * (1 + 1 / n_subgroups), rel=0.05)
