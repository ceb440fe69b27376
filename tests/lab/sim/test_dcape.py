"""D-CAPE's claims on its simulator: small clusters here, the quick runs of the figures in `make test-all`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braidstream.control.controller import Controller
from braidstream.control.policies import Policy
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.disk import Spilling, memory_policies
from braidstream.control.settings import Disk, Settings
from braidstream.lab.papers.dcape_lines import spread
from braidstream.lab.papers.registry import Run, experiments, find
from braidstream.lab.sim.costs import Network
from braidstream.lab.sim.dcape.machine import Prices, VirtualMachine
from braidstream.lab.sim.dcape.one_run import Cluster, Measured, Results, simulate
from braidstream.lab.sim.dcape.settings_of_paper import alternating, dealt
from braidstream.lab.sim.dcape.streams import Streams, mixed
from tests.lab.papers.known import is_as_known

FIGURES = ["fig6", "fig7", "fig9", "fig10", "fig11", "fig12", "fig14", "fig15", "fig16", "fig17", "fig20", "fig21"]
TUPLE_BYTES = 100


@pytest.mark.slow
@pytest.mark.parametrize("figure", [*FIGURES, "cleanup"])
def test_the_claim_holds_as_far_as_is_known(figure: str) -> None:
    outcome = find("dcape", figure).function(Run(quick=True))
    assert is_as_known(f"dcape {figure}", outcome)
    assert all(len(series.x) == len(series.y) > 1 for series in outcome.series)


def test_every_figure_with_results_is_registered() -> None:
    found = {one.figure for one in experiments("dcape") if one.how != "spark"}
    assert found == {*FIGURES, "cleanup"}


def streams(*ratios: float, seed: int = 1) -> Streams:
    """Four minutes of 60 tuples/s a stream over 30 groups: 43,200 tuples, 4.3 MB."""
    ratio_of_group = mixed([(30 // len(ratios), ratio) for ratio in ratios])
    return Streams(ratio_of_group, 1 / 60, tuple_range=6_000, duration_s=240.0, tick_s=4.0, seed=seed)


def cluster(
    placement: list[int], memory_bytes: int | None, *, disk: Disk = "none", policy: str = "", **settings: float
) -> Cluster:
    """A cluster under one of the controllers."""
    if memory_bytes is None:
        return Cluster(placement, TUPLE_BYTES)
    control = Settings(
        every=1,
        epoch_s=4.0,
        splitting=False,
        memory_bytes=memory_bytes,
        memory_above=0.0,
        disk=disk,
        query_bytes=43_200 * TUPLE_BYTES,
        **settings,
    )
    policies: dict[str, tuple[Policy, ...]] = {
        "": memory_policies(control),
        "push": (Spilling(control),),
        "push high": (Spilling(replace(control, push_by="productive")),),
        "push random": (Spilling(replace(control, push_by="random")),),
        "move": (MemoryBalance(control),),
    }
    return Cluster(placement, TUPLE_BYTES, memory_bytes, Controller(control, policies[policy]))


def whole(one: Measured) -> int:
    """Results of the normal run and of clean-up."""
    return one.total + one.clean_up.n_results


def test_pushing_low_output_gives_more_and_leaves_less_to_clean_up() -> None:
    source = streams(4.0, 2.0, 1.0)
    every, low, high, some = (
        simulate(cluster([0] * 30, memory, policy=policy), source)
        for memory, policy in ((None, ""), (2_000_000, "push"), (2_000_000, "push high"), (2_000_000, "push random"))
    )
    assert every.pushes == (0,)
    assert whole(low) == whole(high) == whole(some) == every.total
    assert every.total > low.total > some.total > high.total
    assert 3 * low.clean_up.seconds < high.clean_up.seconds
    assert all(held[0] <= 2_000_000 for one in (low, high, some) for held in one.memory)


def test_a_larger_share_is_pushed_less_often() -> None:
    source = streams(3.0)
    found = [
        simulate(cluster([0] * 30, 2_000_000, policy="push random", spill_share=share), source) for share in (0.1, 0.5)
    ]
    assert found[0].pushes > found[1].pushes
    assert found[0].total > found[1].total


def test_moving_state_avoids_pushing_it_and_costs_no_result() -> None:
    source, placement = streams(3.0), [0] * 18 + [1] * 6 + [2] * 6
    disk = simulate(cluster(placement, 1_700_000, policy="push"), source)
    lazy = simulate(cluster(placement, 1_700_000, disk="lazy", min_span_s=8.0), source)
    assert disk.pushes[0] > 0
    assert disk.n_moves == 0
    assert lazy.pushes == (0, 0, 0)
    assert lazy.n_moves > 0
    assert lazy.total == whole(disk) > disk.total


def test_lazy_disk_shares_the_clean_up_out() -> None:
    """A slot that has just pushed looks empty; were it given more groups for that, it would clean up nearly alone."""
    source = Streams((1.0,) * 100, 1 / 60, tuple_range=60_000, duration_s=1200.0, tick_s=4.0, seed=3)
    placement = [0] * 80 + [1] * 10 + [2] * 10
    disk = simulate(cluster(placement, 1_000_000, policy="push"), source)
    lazy = simulate(cluster(placement, 1_000_000, disk="lazy", min_span_s=8.0, memory_ratio=0.9), source)
    assert whole(lazy) == whole(disk)
    assert max(lazy.pushes) <= min(lazy.pushes) + 2
    assert max(lazy.clean_up.machine_s) < 1.25 * min(lazy.clean_up.machine_s)
    assert lazy.clean_up.seconds < 0.3 * disk.clean_up.seconds


def test_active_disk_makes_room_for_productive_groups() -> None:
    source, placement = streams(4.0, 1.0, 1.0), [group // 10 for group in range(30)]
    lazy, active = (
        simulate(cluster(placement, 800_000, disk=disk, min_span_s=8.0), source) for disk in ("lazy", "active")
    )
    assert lazy.n_forced == 0 < active.n_forced
    assert active.total > lazy.total
    assert whole(active) == whole(lazy)


def test_lines_that_push_nothing_share_one_join() -> None:
    source = streams(2.0)
    shared = Results(source)
    placements = ([0] * 30, [group % 3 for group in range(30)])
    found = [simulate(cluster(placement, None), source, shared) for placement in placements]
    assert found[0].total == found[1].total == simulate(cluster(placements[0], None), source).total
    with pytest.raises(ValueError, match="a join of its own"):
        simulate(cluster(placements[0], 500_000, policy="push"), source, shared)


def test_a_full_machine_ends_a_run_without_adaptation() -> None:
    one = simulate(Cluster([0] * 30, TUPLE_BYTES, 2_000_000, stops_when_full=True), streams(1.0))
    assert one.stopped_s == pytest.approx(111, abs=6)  # 180 tuples/s of 100 bytes
    assert one.times_s[-1] == one.stopped_s


def test_a_machine_does_one_thing_after_the_other() -> None:
    machine = VirtualMachine(0)
    assert machine.work(10.0, 2.0) == 12.0
    assert machine.work(11.0, 1.0) == 13.0  # waits for what came before
    assert machine.work(20.0, 1.0) == 21.0
    assert machine.busy_s == 4.0


def test_results_come_later_from_a_machine_that_is_busy_with_its_disk() -> None:
    source = streams(3.0)
    slow = Prices(disk_bytes_per_s=50_000)  # a push of 600 KB takes 12 s, three ticks
    fast, late = (
        simulate(Cluster([0] * 30, TUPLE_BYTES, 2_000_000, _pushing(), prices=prices), source)
        for prices in (Prices(), slow)
    )
    first = next(i for i, held in enumerate(fast.memory) if i and held[0] < fast.memory[i - 1][0])
    assert fast.results[: first + 1] == late.results[: first + 1]
    assert late.results[first + 2] < fast.results[first + 2]
    assert late.total == fast.total


def test_what_moving_costs_shows_where_the_network_is_slow() -> None:
    """The figures find that relocation costs next to nothing; on a network of 40 kB/s the same runs find otherwise."""
    source, placement = streams(3.0), [0] * 24 + [1] * 6
    control = Settings(every=1, epoch_s=4.0, splitting=False, memory_bytes=2_600_000, min_span_s=8.0)
    mover = Controller(control, (MemoryBalance(control),))
    still, fast, slow = (
        simulate(Cluster(placement, TUPLE_BYTES, None, controller, prices=prices), source, Results(source))
        for controller, prices in (
            (None, Prices()),
            (mover, Prices()),
            (mover, Prices(network=Network(0.001, 40e3))),
        )
    )
    assert fast.n_moves > 0
    assert spread([fast], still, from_s=60.0) < 0.03 < spread([slow], still, from_s=60.0)
    assert fast.adapting < 0.01 < slow.adapting
    assert still.total == fast.total == slow.total


def _pushing() -> Controller:
    settings = Settings(every=1, epoch_s=4.0, splitting=False, memory_bytes=2_000_000)
    return Controller(settings, (Spilling(settings),))


def test_placements_and_loads_are_as_the_paper_has_them() -> None:
    counts = [dealt(4, 1, 1).count(machine) for machine in range(3)]
    assert counts == [200, 50, 50]
    shares = [alternating()(minute * 60.0)[:150].sum() for minute in (0, 4, 5, 14, 15, 24, 25)]
    assert shares == pytest.approx([10 / 11] * 2 + [1 / 11] * 2 + [10 / 11] * 2 + [1 / 11])
