"""What the formulas say of a scenario with limited memory, to stand beside what its simulation measures (DHTJoin 5).

Two predictions, both for type 1 queries whose peers have one memory for all their windows:

- *equation 11* as the paper has it: every peer gets the same, exactly at the average rate, and a result needs all its m
  tuples kept. The kept share is min(1, n * memory / entries of all windows).
- *expected*: the peers of this ring with the values they own, how often each value occurs, and what the chosen shedding
  does. Seen from a result there are K other entries at its peer, K Poisson; the result's own tuples come on top. With N
  entries and room for L any c of them are all kept with the chance L (L - 1) ... / N (N - 1) ...: c is m where arriving
  tuples are turned away (`sample`), and m - 1 where the newest is always joined and stored ones go (`oldest` and
  `random`). `planned` is equation 11 and a margin, or one of these if that is more, or less. `refuse` is Erlang's
  formula to the power of m. For `least-productive` there is none.

Windows fill while a query is young and queries come one after the other, so both are means over the run, weighted with
the results that each query has at each time: its (entries in a window) ^ (m - 1).

Known limits: entries of queries of different age fare alike here, while `oldest` spares the young ones; a tuple that
several queries store is one tuple for each.
Invariant: of what is drawn it knows the ring and the queries' starts only, no tuple. Cost: 60 times * 257 counts * the
peers that own a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from braidstream.control.completeness import PLAN_MARGIN
from braidstream.lab.overlay.shared import SECOND_US
from braidstream.lab.overlay.workload import zipf_shares

if TYPE_CHECKING:
    from braidstream.lab.overlay.simulate import Scenario

__all__ = ["Predicted", "predicted"]

Floats = npt.NDArray[np.float64]
_N_TIMES = 60
_N_COUNTS = 256


@dataclass(frozen=True)
class Predicted:
    """The completeness of all queries' answers together; `expected` is None for a shedding without a formula."""

    equation_11: float
    expected: float | None


def predicted(scenario: Scenario) -> Predicted | None:
    """What to expect of a scenario, or None where the formulas do not apply."""
    shape, memory = scenario.workload, scenario.settings.memory.per_peer
    if memory is None or not _applies(scenario):
        return None
    network, _, submissions = scenario.build()
    starts_us = [submission.time_us + network.longest_us for submission in submissions]
    ways, fills_s = shape.joins + 1, _fills_s(starts_us, shape.duration_s, shape.window_s)
    entries = ways * shape.rate / shape.streams * fills_s.sum(axis=1)  # at each time, over the whole ring
    weights = (fills_s ** (ways - 1)).sum(axis=1)
    if not weights.sum():
        return None
    even = np.minimum(1.0, scenario.nodes * memory / np.maximum(entries, 1e-9)) ** ways
    complete = found_share(scenario.settings.shedding, memory, ways)
    expected = None
    if complete is not None:
        shares, of_results = _peers(scenario, ways)
        expected = float(np.average([of_results @ complete(shares * count) for count in entries], weights=weights))
    return Predicted(float(np.average(even, weights=weights)), expected)


def _applies(scenario: Scenario) -> bool:
    settings, shape = scenario.settings, scenario.workload
    has_faults = bool(settings.failures or settings.outages or settings.partners)
    return scenario.method == "dhtjoin" and not has_faults and (shape.type == 1 or shape.joins == 1)


def _fills_s(starts_us: Sequence[int], duration_s: float, window_s: float) -> Floats:
    """By time and query, how many seconds of tuples a window holds."""
    begin_s = min(starts_us, default=0) / SECOND_US
    times_s = np.linspace(begin_s, max(duration_s, begin_s), _N_TIMES + 1)[1:]
    ages_s = times_s[:, None] - np.array(starts_us, dtype=np.float64)[None, :] / SECOND_US
    return np.asarray(np.clip(ages_s, 0.0, window_s))


def _peers(scenario: Scenario, ways: int) -> tuple[Floats, Floats]:
    """Of each peer that owns a value: its share of the tuples, and its share of the results."""
    shape, ring = scenario.workload, scenario.ring()
    of_value = zipf_shares(shape.zipf, shape.domain)
    owners = ring.owner(ring.keys_of_values(np.arange(1, shape.domain + 1)))
    tuples: Floats = np.bincount(owners, of_value, len(ring)).astype(np.float64)
    results: Floats = np.bincount(owners, of_value**ways, len(ring)).astype(np.float64)
    return tuples[tuples > 0], results[tuples > 0] / results.sum()


def found_share(shedding: str, memory: int, ways: int) -> Callable[[Floats], Floats] | None:
    """From the mean number of entries at peers to the share of their results that is found."""

    def refusing(means: Floats) -> Floats:
        return np.asarray((1 - _blocked(memory, means)) ** ways)

    def sampling(means: Floats) -> Floats:
        return _over_poisson(means, lambda others: _all_kept(others + ways, memory, ways))

    def joining(means: Floats) -> Floats:
        return _over_poisson(means, lambda others: _all_kept(others + ways - 1, memory, ways - 1))

    def planning(means: Floats) -> Floats:
        equation_11 = np.minimum(1.0, memory / np.maximum(means, 1e-9)) ** ways
        return np.asarray(np.clip(equation_11 + PLAN_MARGIN, sampling(means), joining(means)))

    shares = {"refuse": refusing, "sample": sampling, "planned": planning, "oldest": joining, "random": joining}
    return shares.get(shedding)


def _all_kept(count: Floats, memory: int, chosen: int) -> Floats:
    """The chance that `chosen` of `count` entries are all among the `memory` that are kept."""
    chance = np.ones_like(count)
    for place in range(chosen):
        chance *= np.clip((memory - place) / np.maximum(count - place, 1), 0.0, 1.0)
    return np.where(count <= memory, 1.0, chance)


def _over_poisson(means: Floats, value: Callable[[Floats], Floats]) -> Floats:
    """The mean of a function of a Poisson number, for each mean; a grid of counts around it, all of them if few."""
    reach = 6 * np.sqrt(means) + 12
    first = np.maximum(0.0, np.floor(means - reach))
    stride = np.maximum(1.0, np.ceil((means + reach - first) / _N_COUNTS))
    counts = first[:, None] + stride[:, None] * np.arange(_N_COUNTS + 1)
    log_factorials = np.append(0.0, np.cumsum(np.log(np.arange(1.0, counts.max() + 1))))
    logs = counts * np.log(np.maximum(means, 1e-300))[:, None] - log_factorials[counts.astype(np.int64)]
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray((chances * value(counts)).sum(axis=1) / chances.sum(axis=1))


def _blocked(lines: int, offered: Floats) -> Floats:
    """Erlang's loss formula, for each offered load: 1 / B is a sum over the products of (lines - i) / offered.

    Its terms fall, or rise first and fall from `offered` on; what is many deviations below that counts as nothing.
    """
    steps = np.arange(min(lines, 30 * math.isqrt(lines) + 100))
    logs = np.cumsum(np.log((lines - steps) / np.maximum(offered, 1e-9)[:, None]), axis=1)
    return np.asarray(1 / (1 + np.exp(np.minimum(logs, 600.0)).sum(axis=1)))
