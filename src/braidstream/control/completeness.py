"""How complete a windowed join is when its nodes cannot keep the whole windows (DHTJoin section 5).

A node of n keeps at most `memory` tuples of a stream, while the stream's window holds rate * window / n tuples there.
The share of a window that is kept is

    kept(i) = min(1, n * memory_i / (rate_i * window_i))

DHTJoin counts a result as lost when any of its m tuples is not kept. Its equations 1 to 6 and 9 (inclusion and
exclusion over the streams with losses) then reduce to a product, because among all combinations of a window exactly the
share kept(1) * ... * kept(m) consists of kept tuples only; the selectivity cancels:

    C = kept(1) * kept(2) * ... * kept(m)                                                   equations 7 and 11
    n = (C * product of rate_i * window_i / product of memory_i)^(1/m)                      equations 8 and 12

The paper's equations have no minimum. That is right only while no stream fits its memory; a stream with room to spare
would otherwise make up for the losses of another one. With the minimum, equation 12 holds on the part of the streams
that do not fit (`nodes_exact`).

The equations suppose that a tuple that is not kept is not joined at all, and that the memory is always full. Real nodes
differ in two ways, each with its own formula:

- *refusing*: a tuple that finds the memory full is turned away. Memory then is like the lines of a telephone exchange
  on which a call lasts one window: a refused share B(memory, rate * window / n), Erlang's loss formula, and kept is
  1 - B. It is a little less than equation 11's, because now and then memory stands empty; the more tuples a node holds,
  the smaller the difference.
- *probing*: a node that sheds stored tuples still joins each arriving one with what it has, so the newest tuple of a
  result need not be kept. The newest is of stream i in a share of the results proportional to 1 / window_i, hence

    C = sum over i of (1 / window_i) * product of kept(j), j != i,  /  sum over i of 1 / window_i

  which is never less than equation 11. It does not matter *which* stored tuples a node sheds, as long as all keys fare
  alike: of the other tuples of a result, seen from its newest one, the ages are even over their windows and
  independent. Oldest first keeps those with an age below kept(j) * window_j; at random keeps any with the chance
  kept(j). Both are the share kept(j).
- *shedding*: as the engine sheds, by "oldest" or "random". All windows keep the same share, and a sample of the keys, a
  share s of them (1/16, or a quarter of that and so on while it would take more than a quarter of the memory), is
  exempt. With f = n * memory / windows, over all streams together, kept = (f - s) / (1 - s) for the other keys, and

    C = s + (1 - s) * probing(kept)

  Slots shed at the end of an epoch, and tuples of one epoch are joined with each other before: on average half an epoch
  comes on top of what is kept. For oldest that is epoch / 2 / window more of each window; for random as much of what
  is not kept.
  "unproductive" is meant to be better than this where groups differ; no formula is given for it.

The tests hold all four against joins, simulated or the engine's own. Invariant: all functions are pure, and monotone in
n and in memory, but for the sample of `shedding`, which may grow by a step with n.
Cost: O(m^2), O(memory) for Erlang's formula, and a binary search for n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from braidstream.control.shedding import FIRST_BITS, MOST_BITS, SAMPLE_SHARE
from braidstream.errors import InputError

__all__ = [
    "Load",
    "Model",
    "completeness",
    "completeness_by_losses",
    "completeness_probing",
    "completeness_refusing",
    "completeness_shedding",
    "loss",
    "memory_for",
    "nodes_exact",
    "nodes_for",
    "sample_share",
]


@dataclass(frozen=True)
class Load:
    """One stream of a join: its tuples a second, its window in seconds, and the tuples of it that one node can keep."""

    rate: float
    window_s: float
    memory: float

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.window_s > 0 and self.memory > 0):
            raise InputError(f"{self}", "a positive rate, window and memory")

    @property
    def tuples(self) -> float:
        """How many tuples the whole window holds."""
        return self.rate * self.window_s

    def kept(self, n: float) -> float:
        """The share of the window that n nodes keep."""
        return min(1.0, n * self.memory / self.tuples)


Model = Callable[[Sequence[Load], float], float]


def loss(load: Load, n: float) -> float:
    """Equation 2: how many tuples of the window a node cannot keep."""
    return max(0.0, load.tuples / n - load.memory)


def completeness(loads: Sequence[Load], n: float) -> float:
    """Equations 7 and 11, with the minimum: the share of the results whose tuples are all kept."""
    return math.prod(load.kept(n) for load in _checked(loads, n))


def completeness_probing(loads: Sequence[Load], n: float) -> float:
    """The share of the results when arriving tuples are always joined and only stored ones are shed."""
    _checked(loads, n)
    newest = [1.0 / load.window_s for load in loads]
    others = [math.prod(o.kept(n) for j, o in enumerate(loads) if j != i) for i in range(len(loads))]
    return sum(share * kept for share, kept in zip(newest, others, strict=True)) / sum(newest)


def completeness_shedding(loads: Sequence[Load], n: float, epoch_s: float = 0.0, by: str = "random") -> float:
    """The share of the results when a slot of the engine sheds by "oldest" or "random", after epochs of this length."""
    held = n * sum(load.memory for load in _checked(loads, n)) / sum(load.tuples for load in loads)
    if held >= 1:
        return 1.0
    sample = sample_share(held)
    kept = (held - sample) / (1 - sample)
    room = 1.0 if by == "oldest" else 1 - kept
    shares = [min(kept + room * epoch_s / 2 / load.window_s, 1.0) for load in loads]
    alike = [Load(load.rate, load.window_s, share * load.tuples / n) for load, share in zip(loads, shares, strict=True)]
    return sample + (1 - sample) * completeness_probing(alike, n)


def sample_share(held: float) -> float:
    """The share of the keys that is exempt from shedding where memory holds a share of the windows."""
    share = 2.0**-FIRST_BITS
    while share > SAMPLE_SHARE * held and share > 2.0**-MOST_BITS:
        share /= 4
    return share


def completeness_refusing(loads: Sequence[Load], n: float) -> float:
    """The share of the results when a tuple that finds the memory full is neither stored nor joined."""
    return math.prod(1 - _blocked(math.floor(load.memory), load.tuples / n) for load in _checked(loads, n))


def completeness_by_losses(loads: Sequence[Load], n: float) -> float:
    """Equations 9 and 10 as they stand: losses of each stream, minus what was counted more than once.

    Kept as the reference that `completeness` is tested against; it takes 2^m steps. A stream that fits counts with what
    it has, not with its whole memory: m(S) in equation 9 is the number of tuples kept.
    """
    _checked(loads, n)
    total = math.prod(load.tuples / n for load in loads)
    lost = [loss(load, n) for load in loads]
    kept = [min(load.memory, load.tuples / n) for load in loads]
    everyone = range(len(loads))
    each = sum(lost[i] * math.prod(loads[j].tuples / n for j in everyone if j != i) for i in everyone)
    twice = sum(
        (k - 1) * math.prod(lost[i] for i in some) * math.prod(kept[j] for j in everyone if j not in some)
        for k in range(2, len(loads) + 1)
        for some in combinations(everyone, k)
    )
    return (total - (each - twice)) / total


def nodes_exact(loads: Sequence[Load], wanted: float) -> float:
    """Equations 8 and 12 for any loads: the n, not rounded, at which `completeness` is `wanted`."""
    needs = sorted(load.tuples / load.memory for load in _checked(loads, wanted=wanted))
    for n_fitting in range(len(needs)):
        short = needs[n_fitting:]  # the streams that do not fit on n nodes; those before them do
        n = math.pow(wanted * math.prod(short), 1 / len(short))
        if n <= short[0]:
            return n
    return needs[-1]


def nodes_for(loads: Sequence[Load], wanted: float, model: Model = completeness) -> int:
    """The smallest number of nodes with which the join is at least as complete as `wanted`."""
    _checked(loads, wanted=wanted)
    low, high = 0, max(1, math.ceil(max(load.tuples / load.memory for load in loads)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if model(loads, middle) >= wanted - 1e-12 else (middle, high)
    return high


def memory_for(loads: Sequence[Load], n: int, wanted: float) -> float:
    """The tuples that each of n nodes must keep of every stream to reach `wanted`; the loads' own memory is ignored."""
    alike = [Load(load.rate, load.window_s, 1.0) for load in _checked(loads, n, wanted)]
    return nodes_exact(alike, wanted) / n


def _blocked(lines: int, offered: float) -> float:
    """Erlang's loss formula, by its recurrence over the number of lines."""
    blocked = 1.0
    for line in range(1, lines + 1):
        blocked = offered * blocked / (line + offered * blocked)
    return blocked


def _checked(loads: Sequence[Load], n: float = 1, wanted: float = 1.0) -> Sequence[Load]:
    if len(loads) < 2:
        raise InputError(f"a join of {len(loads)} streams", "two streams or more")
    if n <= 0:
        raise InputError(f"{n} nodes", "a positive number of nodes")
    if not 0 < wanted <= 1:
        raise InputError(f"a completeness of {wanted}", "more than 0, at most 1", "write 0.9 for 90%")
    return loads
