"""D-CAPE's figures 14 to 17, 20 and 21 on Spark: relocation, and relocation with disk (sections 5.2 and 6.1).

Slots stand for machines. Relocations and pushes are those of the engine's controller and budget, between epochs; what
slots hold is read from the progress. Figures 14 to 16: an epoch stands for 15 s of the paper's hour, and slots sleep
for each tuple, so that the time is that of two machines. Figures 17 to 21: the memory is a share of all the state,
which a first run without a bound measures. Cost: half a minute to a minute for a figure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from braidstream.control.controller import Controller
from braidstream.control.settings import Disk, Settings
from braidstream.lab.papers.dcape_lines import least_productive
from braidstream.lab.papers.dcape_spark import complete, result_lines
from braidstream.lab.papers.on_spark import ON_SPARK, Bench, Epochs, Ran, bench, keys_by_part, keys_table
from braidstream.lab.papers.registry import Check, Outcome, Run, Series, experiment, judged, near
from braidstream.model.instructions import Move, Spill

__all__: list[str] = []

GROUPS = 64
_STREAMS = ("A", "B", "C")
_QUERY = (
    "SELECT A.v AS av, B.v AS bv, C.v AS cv FROM A [RANGE UNBOUNDED], B [RANGE UNBOUNDED], C [RANGE UNBOUNDED]"
    " WHERE A.k = B.k AND B.k = C.k"
)
EPOCH_S = 15.0
"""The time of the paper's that an epoch stands for."""
WORK_US = (300.0, 0.0)
"""What a tuple costs at a slot in figures 14 to 16."""
ALTERNATING_ROWS, ALTERNATING_KEYS = 150, 1_500
_Settings = dict[str, Any]


def _controlled(theta_d: float, every: int, memory: int, disk: Disk = "none", above: float = 0.0) -> _Settings:
    """A controller that looks at memory only: in the time that an epoch stands for no slot is ever busy enough."""
    settings = Settings(
        every=every,
        epoch_s=EPOCH_S,
        splitting=False,
        least_s=1e6,
        memory_bytes=memory,
        memory_above=above,
        memory_ratio=theta_d,
        disk=disk,
    )
    return {"controller": Controller(settings), "memory": memory}


def _alternating(quick: bool, seed: int) -> Epochs:
    """One half of the groups gets ten times more tuples than the other: 5 minutes, then 10 minutes each in turn.

    A quick run has a fifth of the paper's hour, in which the load changes after two fifths of the paper's time.
    """
    first, then, n_epochs = (8, 16, 48) if quick else (20, 40, 240)
    rng, halves = np.random.default_rng([seed, 14]), keys_by_part(2, ALTERNATING_KEYS)
    epochs = []
    for epoch in range(n_epochs):
        favoured = int(epoch >= first and (epoch - first) // then % 2 == 0)
        weights = [10 if half == favoured else 1 for half in (0, 1)]
        sizes = [ALTERNATING_ROWS * weight // sum(weights) for weight in weights]
        epochs.append({name: keys_table(_drawn(halves, sizes, rng), epoch) for name in _STREAMS})
    return epochs


def _drawn(pools: Sequence[Any], sizes: Sequence[int], rng: np.random.Generator) -> Any:
    return rng.permutation(np.concatenate([rng.choice(pool, size) for pool, size in zip(pools, sizes, strict=True)]))


_ENOUGH = 1 << 30
_MOVES: dict[str, Any] = {
    "how": "spark",
    "obtained": ON_SPARK + " Slots sleep 300 us for a tuple; epochs are timed as a whole, with what is decided.",
    "differs": (
        "An epoch stands for 15 s, so that a time-span of 45 s is every third epoch; quick runs have a fifth of the"
        " paper's hour, in which the load changes after two fifths of its time. Two slots of one machine; the boundary"
        " between epochs takes the place of the eight steps."
    ),
}
_MOVES_PARAMETERS = {
    "streams": 3,
    "slots": 2,
    "groups": GROUPS,
    "tuples_a_stream_and_epoch": ALTERNATING_ROWS,
    "keys": ALTERNATING_KEYS,
    "load": "10 times more tuples for one slot's groups, in turn",
    "memory": "enough",
}


_NONE = (0.0, 0)
"""No adaptation: theta_d and the epochs between two adaptations otherwise."""


@cache
def _line(quick: bool, seed: int, theta_d: float, every: int) -> Ran:
    """A run with a threshold theta_d and a number of epochs between two adaptations; figures 14 to 16 share them."""
    options = _controlled(theta_d, every, _ENOUGH) if every else {"controller": False, "memory": _ENOUGH}
    with bench(2, WORK_US) as place:
        streams = place.streams("streams", _alternating(quick, seed))
        return place.run(streams, _QUERY, slots=2, groups=GROUPS, router="hash", **options)


def _relocated(run: Run, settings: Mapping[str, tuple[float, int]]) -> dict[str, Ran]:
    """A line without adaptation and those asked for."""
    found: dict[str, Ran] = {}
    for label, (theta_d, every) in {"no adaptation": _NONE, **settings}.items():
        run.progress(len(found) / (len(settings) + 1), label)
        found[label] = _line(run.quick, run.seed, theta_d, every)
    return found


def _cheap(found: Mapping[str, Ran]) -> Check:
    """What adapting costs: what epochs take beside the work of slots, where groups move and where none does."""
    shares = {label: _adapting_share(one) for label, one in found.items() if one.n_moves}
    return Check(
        "adapting costs next to nothing",
        bool(shares) and max(shares.values()) < 0.1,
        ", ".join(f"{label} {share:.1%} of the time" for label, share in shares.items()) or "nothing was moved",
        "throughputs are almost the same",
        "10% of a run: medians of wall time, decisions and commits included, on a machine that does other things",
    )


def _adapting_share(one: Ran) -> float:
    """How much longer epochs take that end with a move, beside the busiest slot's work; a share of the whole run."""
    moving = {made.epoch for made in one.decisions if any(isinstance(step, Move) for step in made.instructions)}
    beside = {entry.epoch: entry.seconds["total"] - max(entry.busy_s, default=0.0) for entry in one.epochs[1:]}
    with_it, without = (
        [some for epoch, some in beside.items() if (epoch in moving) == is_so] for is_so in (True, False)
    )
    return (median(with_it) - median(without)) * len(with_it) / one.elapsed_s


def _moved(found: Mapping[str, Ran]) -> dict[str, int]:
    return {label: one.n_moves for label, one in found.items() if label != "no adaptation"}


def _told(moves: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {n}" for label, n in moves.items())


@experiment(
    "dcape",
    "fig14-spark",
    title="when to start moving state (M_l / M_m), on Spark",
    claim="Relocation costs next to nothing at any threshold, and 90% adapts far more often than 50%.",
    x_label="epochs",
    y_label="results so far",
    check="As claimed: 10% of the time; over 4 times as many adaptations at 90% as at 50%; no result is lost.",
    parameters={**_MOVES_PARAMETERS, "span": "every 3 epochs"},
    **_MOVES,
)
def fig14(run: Run) -> Outcome:
    """Thresholds from 90% to 50%, three epochs apart at least."""
    percents = (90, 50) if run.quick else (90, 80, 70, 60, 50)
    found = _relocated(run, {f"{percent}%": (percent / 100, 3) for percent in percents})
    moves = _moved(found)
    counts = list(moves.values())
    often = Check(
        "90% adapts far more often than 50%",
        all(a >= b for a, b in itertools.pairwise(counts)) and counts[0] > 4 * max(counts[-1], 1),
        _told(moves),
        "24 to 2 adaptations in an hour",
        "over 4 times, and never more at a laxer one (as in the simulated form)",
    )
    return judged(result_lines(found), [_cheap(found), often, complete(found)])


@experiment(
    "dcape",
    "fig15-spark",
    title="how often to move state, on Spark",
    claim="A shorter time-span means more adaptations, and costs next to nothing.",
    x_label="epochs",
    y_label="results so far",
    check="As claimed: 10% of the time; adaptations fall with the time-span, and as in the paper within a quarter.",
    parameters={**_MOVES_PARAMETERS, "theta_d": 0.9},
    **_MOVES,
)
def fig15(run: Run) -> Outcome:
    """The 90% threshold, from every epoch to every third."""
    found = _relocated(run, {f"every {15 * every} s": (0.9, every) for every in (1, 2, 3)})
    moves = _moved(found)
    counts = list(moves.values())
    checks = [
        _cheap(found),
        Check(
            "fewer adaptations, the longer the time-span",
            all(a >= b for a, b in itertools.pairwise(counts)) and counts[0] > counts[-1] > 0,
            _told(moves),
            "31, 27 and 24 in an hour",
            "never more, and fewer in all",
        ),
        near("adaptations every 15 s over every 45 s", counts[0] / max(counts[-1], 1), 31 / 24, 0.25, "other streams"),
        complete(found),
    ]
    return judged(result_lines(found), checks)


@experiment(
    "dcape",
    "fig16-spark",
    title="memory of two machines, on Spark",
    claim="Relocation balances the memory that the input makes uneven.",
    x_label="epochs",
    y_label="state of a slot (kB)",
    check="The slots are less than half as far apart on average; M_l / M_m is above theta_d on average, without below.",
    parameters={**_MOVES_PARAMETERS, "theta_d": 0.9, "span": "every epoch"},
    **_MOVES,
)
def fig16(run: Run) -> Outcome:
    """What the two slots hold after each epoch."""
    found = _relocated(run, {"every 15 s": (0.9, 1)})
    held = {label: np.array([entry.slot_bytes for entry in one.epochs]) / 1000 for label, one in found.items()}
    from_epoch = 16 if run.quick else 40  # 10 minutes
    even = {label: float((some.min(axis=1) / some.max(axis=1))[from_epoch:].mean()) for label, some in held.items()}
    apart = {label: float(np.abs(some[:, 0] - some[:, 1]).mean()) for label, some in held.items()}
    checks = [
        Check(
            "the memory stays balanced",
            even["no adaptation"] < 0.9 <= even["every 15 s"],
            ", ".join(f"{label} M_l / M_m {one:.2f} on average" for label, one in even.items()),
            "balanced by the adaptation",
            "theta_d on average, after the first change of load; without adaptation below that",
        ),
        Check(
            "machines are less far apart",
            apart["every 15 s"] < 0.5 * apart["no adaptation"],
            ", ".join(f"{label} {one:.0f} kB" for label, one in apart.items()),
            "so",
            "half, on average",
        ),
        complete(found),
    ]
    series = [
        Series(f"{label}, slot {slot}", list(range(1, len(some) + 1)), [float(size) for size in some[:, slot]])
        for label, some in held.items()
        for slot in (0, 1)
    ]
    return judged(series, checks, [f"adaptations: {_told(_moved(found))}"])


DISK_EPOCHS, DISK_ROWS = 16, 1_000
_DISK: dict[str, Any] = {
    "how": "spark",
    "x_label": "epochs",
    "y_label": "results so far",
    "obtained": ON_SPARK + " Results of the normal run are counted; the memory is a share of what the state comes to.",
    "differs": (
        f"{DISK_ROWS} tuples a stream in each of {DISK_EPOCHS} epochs, which stand for an hour; three slots of one"
        " machine; relocation and pushes are decided between epochs."
    ),
}
_DISK_PARAMETERS = {"streams": 3, "slots": 3, "groups": GROUPS, "epochs": DISK_EPOCHS, "theta_d": 0.8}


def _steady(seed: int, ratios: Sequence[float], n_epochs: int) -> Epochs:
    """As many tuples for each third of the groups; the higher its join ratio, the fewer keys they share."""
    rng = np.random.default_rng([seed, 17])
    pools = [keys[: round(2_000 / ratio)] for keys, ratio in zip(keys_by_part(3), ratios, strict=True)]
    sizes = [DISK_ROWS * DISK_EPOCHS // n_epochs // 3] * 3
    return [{name: keys_table(_drawn(pools, sizes, rng), epoch) for name in _STREAMS} for epoch in range(n_epochs)]


class _Cluster:
    """Three slots with groups dealt by shares, over the same streams with and without enough memory."""

    def __init__(
        self, run: Run, place: Bench, ratios: Sequence[float], shares: Sequence[int], n_epochs: int = DISK_EPOCHS
    ) -> None:
        self._run, self._place = run, place
        self._shares = {"placement": tuple(shares)} if shares else {}
        self._streams = place.streams("streams", _steady(run.seed, ratios, n_epochs))
        self.found: dict[str, Ran] = {}
        self.all_bytes = 0
        enough = self.line("all in memory", {"controller": False, "memory": _ENOUGH})
        self.all_bytes = max(sum(entry.slot_bytes) for entry in enough.epochs)

    def line(self, label: str, options: _Settings) -> Ran:
        """Run one line of the figure."""
        self._run.progress(len(self.found) / 5, label)
        options = {"slots": 3, "groups": GROUPS, "router": "hash", **self._shares, **options}
        self.found[label] = self._place.run(self._streams, _QUERY, **options)
        return self.found[label]

    def memory(self, share: float) -> int:
        """A slot's memory as a share of all state."""
        return round(share * self.all_bytes)


def _pushers(one: Ran) -> set[int]:
    """The slots that a push was decided for, as its reason names them."""
    pushed = (made.reason for made in one.decisions if any(isinstance(step, Spill) for step in made.instructions))
    told = (re.match(r"slot (\d+) holds more than it may", reason) for reason in pushed)
    return {int(found[1]) for found in told if found}


_RIVALS = {"random": "random", "high output": "productive"}


def _rivals(cluster: _Cluster, label: str, memory: int) -> None:
    """The line that pushes without relocation, with random groups and with the most productive ones instead."""
    for choice, by in _RIVALS.items():
        cluster.line(f"{label}, {choice}", {"controller": False, "memory": memory, "push_by": by})


def _low_output(label: str, found: Mapping[str, Ran]) -> Check:
    """What is pushed are the least productive groups (4.3)."""
    names = {"least productive": label, "random": f"{label}, random", "most productive": f"{label}, high output"}
    return least_productive({choice: found[name].normal[-1] for choice, name in names.items()}, margin=0.02)


@experiment(
    "dcape",
    "fig17-spark",
    title="relocation against disk, three machines, on Spark",
    claim="Where the memory of all machines suffices, moving state keeps the output up that pushing it loses.",
    check=(
        "Relocation pushes nothing and gives 10% more than pushing; pushed are the least productive groups; none is"
        " lost."
    ),
    parameters={**_DISK_PARAMETERS, "memory": "40% of all state a slot", "placement": "3, 1, 1"},
    **_DISK,
)
def fig17(run: Run) -> Outcome:
    """The first slot has 60% of the groups, and is full after two thirds of the run."""
    with bench() as place:
        cluster = _Cluster(run, place, (4.0, 3.0, 2.0), (3, 1, 1))
        memory = cluster.memory(0.4)
        disk = cluster.line("disk only", {"controller": False, "memory": memory})
        moved = cluster.line("relocation", _controlled(0.8, 1, memory, "lazy"))
        _rivals(cluster, "disk only", memory)
    checks = [
        Check(
            "relocation needs no disk",
            moved.n_pushes == 0 and disk.n_pushes > 0 and moved.n_moves > 0,
            f"{moved.n_moves} relocations, {moved.n_pushes} pushes; disk only {disk.n_pushes} pushes",
            "all states are kept in main memory",
            "none",
        ),
        Check(
            "it gives more results",
            moved.normal[-1] > 1.1 * disk.normal[-1],
            f"{moved.normal[-1]:,} to {disk.normal[-1]:,}",
            "a much higher performance",
            "10% (ours: the figure has no number)",
        ),
        _low_output("disk only", cluster.found),
        complete(cluster.found),
    ]
    return judged(result_lines(cluster.found), checks)


@experiment(
    "dcape",
    "fig20-spark",
    title="lazy-disk against disk only, on Spark",
    claim="Lazy-disk uses the memory of all machines before it pushes, and so gives far more results.",
    check=(
        "20% more results; without relocation only the first slot pushes, with lazy-disk all do; pushed are the least"
        " productive groups; none is lost."
    ),
    parameters={**_DISK_PARAMETERS, "memory": "24% of all state a slot", "placement": "4, 1, 1"},
    **_DISK,
)
def fig20(run: Run) -> Outcome:
    """Two thirds of the groups at the first slot, and too little memory at all three."""
    with bench() as place:
        cluster = _Cluster(run, place, (4.0, 3.0, 2.0), (4, 1, 1))
        memory = cluster.memory(0.24)
        without = cluster.line("no relocation", {"controller": False, "memory": memory})
        lazy = cluster.line("lazy-disk", _controlled(0.8, 1, memory, "lazy"))
        _rivals(cluster, "no relocation", memory)
    checks = [
        Check(
            "lazy-disk gives far more results",
            lazy.normal[-1] > 1.2 * without.normal[-1],
            f"{lazy.normal[-1]:,} to {without.normal[-1]:,}",
            "a much higher throughput",
            "20% (ours: the figure has no number)",
        ),
        Check(
            "it uses the memory of all machines",
            _pushers(without) == {0} and _pushers(lazy) == {0, 1, 2},
            f"slots that push {sorted(_pushers(lazy))}; without relocation {sorted(_pushers(without))}",
            "all three machines eventually push; without, only one",
            "exactly",
        ),
        _low_output("no relocation", cluster.found),
        complete(cluster.found),
    ]
    return judged(result_lines(cluster.found), checks, [f"relocations {lazy.n_moves}"])


@experiment(
    "dcape",
    "fig21-spark",
    title="lazy-disk against active-disk, on Spark",
    claim="Active-disk falls behind at first, when it pushes early, and overtakes lazy-disk in the long run.",
    check="Active-disk forces pushes, is behind at some time, and ends with 5% more; no result is lost.",
    parameters={
        **_DISK_PARAMETERS,
        "join_ratio": "4 at slot 0, 1 at the others",
        "memory": "20% of all state a slot",
    },
    **_DISK,
)
def fig21(run: Run) -> Outcome:
    """Forced pushes of poor groups make room for productive ones."""
    with bench() as place:
        cluster = _Cluster(run, place, (4.0, 1.0, 1.0), ())
        memory = cluster.memory(0.2)
        lazy = cluster.line("lazy-disk", _controlled(0.8, 1, memory, "lazy", 0.5))
        active = cluster.line("active-disk", _controlled(0.8, 1, memory, "active", 0.5))
    behind = [i + 1 for i, (a, b) in enumerate(zip(active.normal, lazy.normal, strict=True)) if a < b]
    ahead = active.normal[-1] / lazy.normal[-1]
    checks = [
        Check(
            "poor groups are forced to disk",
            active.n_forced > 0,
            f"{active.n_forced} forced pushes",
            "so",
            "one or more",
        ),
        Check(
            "active-disk is behind at first",
            bool(behind),
            f"from epoch {behind[0]} to {behind[-1]}" if behind else "never",
            "a drop after it starts pushing",
            "at some time",
        ),
        Check(
            "and ahead in the end",
            ahead > 1.05,
            f"{ahead:.2f} times the results",
            "outperforms in the long run",
            "5% (ours: the figure has no number)",
        ),
        complete(cluster.found),
    ]
    notes = [f"{label}: {one.n_pushes} pushes, {one.n_moves} relocations" for label, one in cluster.found.items()]
    differs = ["A push is a large part of this short run, and forced ones come late in it: active-disk ends level."]
    return judged(result_lines(cluster.found), checks, notes, differs=differs)
