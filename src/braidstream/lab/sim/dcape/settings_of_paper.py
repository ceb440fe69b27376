"""D-CAPE's settings on the virtual cluster: the streams, placements and controllers of its experiments.

From the paper: a three-way join over 300 groups, the gaps between tuples, tuple ranges, join ratios, durations,
thresholds and time-spans that sections 3.5, 4.4, 5.2 and 6.1 state. Not in the paper, so chosen, one by one:

- the size of a tuple. No one size fits all figures, so there are three. Figures 14 to 21: 1,456 bytes, with which
  figure 17's machine with 60% of the groups fills its 200 MB after 40 minutes, as there. Figures 9 to 12: 916 bytes,
  with which pushing low output leaves 194,800 results to recover, the mean of three seeds (paper: 194,308). Figure 7:
  666 bytes, with which two machines last 35 minutes, as there.
- how often machines report: every tick of 5 s (10 s in quick runs).
- idle groups (theta_t) count after half of the run, as the paper says; no group is ever idle for that long here.
- theta_f, the ratio of output rates that forces a push: 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.policies import Policy
from braidstream.control.policies.balance import MemoryBalance
from braidstream.control.policies.disk import Spilling, memory_policies
from braidstream.control.settings import Settings
from braidstream.lab.sim.dcape.one_run import Cluster, Measured, Results, simulate
from braidstream.lab.sim.dcape.streams import Floats, Streams, mixed

__all__ = [
    "FIG7_TUPLE_BYTES",
    "MB",
    "N_GROUPS",
    "PARAMETERS",
    "PUSH_TUPLE_BYTES",
    "TUPLE_BYTES",
    "Adaptation",
    "Point",
    "alternating",
    "dealt",
    "in_turn",
    "run_point",
    "thirds",
]

MB = 1 << 20
N_GROUPS = 300
TUPLE_BYTES = 1456
PUSH_TUPLE_BYTES = 916
FIG7_TUPLE_BYTES = 666
PARAMETERS = {
    "streams": 3,
    "groups": N_GROUPS,
    "real": "tuples, joins, generations, results missing and recovered, controller and policies",
    "virtual": "machines, clock, memory as tuples times a size, prices of joining, disk and network",
}

Adaptation = Literal["none", "push", "push random", "push high output", "move", "lazy", "active"]
_PUSH_BY = {"push random": "random", "push high output": "productive"}
"""The rivals of 4.4, by the engine's own setting; all else pushes what is least productive."""


@dataclass(frozen=True)
class Point:
    """One line of a figure: streams, machines and what adapts them."""

    streams: Streams
    placement: tuple[int, ...] = (0,) * N_GROUPS
    adaptation: Adaptation = "none"
    memory_mb: int | None = None
    tuple_bytes: int = TUPLE_BYTES
    share: float = 0.3
    theta_d: float = 0.8
    span_s: float = 45.0
    above: float = 0.0
    """Relocation and forced pushes wait until a machine holds this share of its memory."""
    stops_when_full: bool = False


def run_point(point: Point, shared: Results | None = None) -> Measured:
    """Simulate one line. Lines that push nothing may share the join of their streams."""
    budget = None if point.memory_mb is None else point.memory_mb * MB
    controller = None if point.adaptation == "none" else Controller(_settings(point), _policies(point))
    cluster = Cluster(point.placement, point.tuple_bytes, budget, controller, point.stops_when_full)
    return simulate(cluster, point.streams, shared)


def dealt(*shares: float) -> tuple[int, ...]:
    """Groups dealt to machines by their shares, spread evenly over the ids: every machine has groups of all kinds."""
    given = np.zeros(len(shares))
    placement = []
    for group in range(N_GROUPS):
        slot = int(np.argmax(np.array(shares) / sum(shares) * (group + 1) - given))
        given[slot] += 1
        placement.append(slot)
    return tuple(placement)


def in_turn(n_machines: int) -> tuple[int, ...]:
    """The same number of groups for every machine, in runs of ids."""
    return tuple(group * n_machines // N_GROUPS for group in range(N_GROUPS))


def thirds(*ratios: float) -> tuple[float, ...]:
    """Join ratios of equally many groups each."""
    return mixed([(N_GROUPS // len(ratios), ratio) for ratio in ratios])


def alternating(first_s: float = 300.0, then_s: float = 600.0) -> Callable[[float], Floats]:
    """5.2: one half of the groups gets 10 times more tuples than the other for 5 minutes, then 10 minutes each in turn.

    The halves are those of two machines.
    """
    halves = np.array(in_turn(2))

    def shares(time_s: float) -> Floats:
        is_second = time_s >= first_s and int((time_s - first_s) // then_s) % 2 == 0
        weights = np.where(halves == int(is_second), 10.0, 1.0)
        return np.asarray(weights / weights.sum())

    return shares


def _settings(point: Point) -> Settings:
    streams = point.streams
    disk: Any = point.adaptation if point.adaptation in ("lazy", "active") else "none"
    budget = (point.memory_mb or 1 << 20) * MB  # where memory is enough, more than any run needs
    return Settings(
        every=1,
        epoch_s=streams.tick_s,
        splitting=False,
        certainty=0.0,
        least_s=0.0,
        min_span_s=point.span_s,
        memory_bytes=budget,
        memory_above=point.above,
        memory_ratio=point.theta_d,
        disk=disk,
        spill_share=point.share,
        push_by=_PUSH_BY.get(point.adaptation),
        idle_after=streams.n_ticks // 2,
        rate_ratio=2.0,
        query_bytes=streams.n_tuples * point.tuple_bytes,
    )


def _policies(point: Point) -> tuple[Policy, ...]:
    settings = _settings(point)
    if point.adaptation == "move":
        return (MemoryBalance(settings),)
    if point.adaptation == "push" or point.adaptation in _PUSH_BY:
        return (Spilling(settings),)
    return memory_policies(settings)
