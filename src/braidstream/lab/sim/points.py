"""WSJ's settings on the virtual cluster: one point of a figure is one simulation with table 1's parameters.

The machine's speed is calibrated on one point (figure 8 at 4,000 tuples/s without tuning; see `lab.sim.costs`). The
paper's text gives 20 s as the reorganization epoch in table 1 and 4 s in section VI-A; we take table 1's.

Cost: a few tenths of a second for a point; drawing the streams of a rate is shared between numbers of slaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from braidstream.control.settings import Settings
from braidstream.lab.sim.costs import PAPER_MACHINE, Machine
from braidstream.lab.sim.demand import TUPLE_BYTES, Demand, shares_of
from braidstream.lab.sim.metrics import Metrics
from braidstream.lab.sim.slave import no_background
from braidstream.lab.sim.virtual_cluster import ClusterSettings, simulate

__all__ = ["MEASURED_S", "PARAMETERS", "Bench", "Point", "run_point"]

DURATION_S, WARM_UP_S, WINDOW_S = 1200.0, 600.0, 600.0
MEASURED_S = DURATION_S - WARM_UP_S
THETA_ROWS = int(1.5 * 2**20) // TUPLE_BYTES
REORGANIZATION_S = 20.0
N_GROUPS = 60
PARAMETERS = {
    "window_s": WINDOW_S,
    "b": 0.7,
    "Th_con": 0.01,
    "Th_sup": 0.5,
    "theta_MB": 1.5,
    "t_d_s": 2.0,
    "t_r_s": REORGANIZATION_S,
    "groups": N_GROUPS,
    "minutes": 20,
}


@dataclass(frozen=True)
class Point:
    """One simulated setting."""

    rate: float
    n_slaves: int
    tuned: bool = True
    epoch_s: float = 2.0
    n_subgroups: int = 1
    adaptive: bool = False
    is_disturbed: bool = False
    """Whether others take most of the first slave's processor for five of the measured minutes."""
    has_controller: bool = True


@dataclass
class Bench:
    """Runs points; the streams of a rate are drawn once, for all numbers of slaves."""

    n_points: int
    seed: int = 1
    progress: Callable[[float, str], None] = lambda _share, _word: None
    machine: Machine = PAPER_MACHINE
    _streams: dict[tuple[float, bool, float, int], Demand] = field(default_factory=dict)
    _n_done: int = 0

    def point(self, point: Point) -> Metrics:
        """Simulate one setting and tell the progress."""
        metrics = simulate(_cluster(point, self.machine, self.seed), self._demand(point))
        self._n_done += 1
        self.progress(self._n_done / self.n_points, f"{point.rate:g} tuples/s, {point.n_slaves} slaves")
        return metrics

    def _demand(self, point: Point) -> Demand:
        key = (point.rate, point.tuned, point.epoch_s, point.n_subgroups)
        if key not in self._streams:
            self._streams = {known: d for known, d in self._streams.items() if known[0] == point.rate}
            self._streams[key] = _drawn(point, self.seed)
        return self._streams[key]


def run_point(point: Point, seed: int = 1, machine: Machine = PAPER_MACHINE) -> Metrics:
    """Simulate one setting."""
    return simulate(_cluster(point, machine, seed), _drawn(point, seed))


def _cluster(point: Point, machine: Machine, seed: int) -> ClusterSettings:
    control = Settings(
        epoch_s=point.epoch_s,
        every=max(1, round(REORGANIZATION_S / point.epoch_s)),
        splitting=False,
        certainty=0.0,  # a supplier as WSJ has it
        least_s=0.0,
        declustering=point.adaptive,
        max_slots=point.n_slaves,
    )
    return ClusterSettings(
        n_slaves=point.n_slaves,
        n_groups=N_GROUPS,
        epoch_s=point.epoch_s,
        n_subgroups=point.n_subgroups,
        duration_s=DURATION_S,
        warm_up_s=WARM_UP_S,
        machine=machine,
        backgrounds=(_disturbance, *[no_background] * (point.n_slaves - 1)) if point.is_disturbed else (),
        control=control if point.has_controller else None,
        seed=seed,
    )


def _disturbance(time_s: float) -> float:
    """The share of a processor that others take, as on the nondedicated machines of WSJ III."""
    return 0.6 if WARM_UP_S + 100 <= time_s < WARM_UP_S + 400 else 0.0


def _drawn(point: Point, seed: int) -> Demand:
    tick_s = point.epoch_s / point.n_subgroups
    rows_in_group = 2 * point.rate * WINDOW_S / N_GROUPS
    n_levels = max(1, int(rows_in_group / THETA_ROWS).bit_length())  # a level finer than mini-groups can get
    return Demand(
        shares_of(bits=7 + n_levels),
        lambda _time_s: point.rate,
        n_ticks=round(DURATION_S / tick_s),
        tick_s=tick_s,
        window_s=WINDOW_S,
        theta_rows=THETA_ROWS if point.tuned else None,
        seed=seed,
    )
