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

The equations suppose three things: every node receives exactly rate / n tuples a second, its memory is always full, and
a tuple that is not kept is not joined at all. With tuples at even times a node that turns away what does not fit does
precisely that. At random times it cannot: the number N of a window's tuples at a node is then Poisson with the mean
a = rate * window / n, now above the memory M and now below. The *exact* models say what to expect from a node that

- *samples*: it takes the share min(1, M / N) of what arrives, and joins only that. An arriving tuple finds N - 1
  others, and because a * P(N = k - 1) = k * P(N = k), the share taken, the sum over k of P(N = k - 1) * min(1, M / k),
  equals the share stored:

      kept = E[min(N, M)] / a = P(N <= M - 1) + M / a * P(N > M)

  C is the product of these: equation 11 with the mean of the minimum in place of the minimum of the means. It is lower
  by about 0.4 m / sqrt(M) where the window just fits, and not visibly below 0.9 of it with M in the hundreds. So it
  follows equation 11 within 5 points at any memory from M = 64 m^2 on, about 1,000 tuples for m = 4. Where the windows
  share one memory of m M, their sum decides, and the loss is 0.4 sqrt(m / M): for m = 4 half of that.
- *refuses*: a tuple that finds the memory full is turned away. Memory is like the lines of a telephone exchange on
  which a call lasts one window: the refused share is B(M, a), Erlang's loss formula (it holds for calls of equal length
  too), and kept is 1 - B. That is less, because what was taken early stays, and memory stands partly empty afterwards.
- *sheds* stored tuples: it joins each arriving one with what it has, so the newest tuple of a result need not be kept.
  The newest is of stream i in a share of the results proportional to 1 / window_i, hence, with kept as for sampling,

      C = sum over i of (1 / window_i) * product of kept(j), j != i,  /  sum over i of 1 / window_i

  which is never less than the product. `completeness_probing` is the same with the paper's average rates. It does not
  matter *which* stored tuples go, as long as all keys fare alike: of the other tuples of a result, seen from its newest
  one, the ages are even over their windows and independent. Oldest first keeps those with an age below
  kept(j) * window_j, at random keeps any with the chance kept(j): both are the share kept(j).
- goes *by plan*: it takes a sample, and of the other tuples as many as it needs to be `PLAN_MARGIN` more complete than
  equation 11 (`lab.overlay.planned`). So it is at that, or where sampling is if that is more, or where shedding is if
  that is less.
- sheds *as the engine* does, by "oldest" or "random": all windows keep the same share, and a sample of the keys is
  exempt, a share s of them (1/16, or a quarter of that and so on while it would take more than a quarter of the
  memory). With f = n * memory / windows, over all streams together, kept = (f - s) / (1 - s) for the other keys, and
  C = s + (1 - s) * probing(kept).
  Slots shed at the end of an epoch, and tuples of one epoch are joined with each other before: on average half an epoch
  comes on top of what is kept. For oldest that is epoch / 2 / window more of each window; for random as much of what
  is not kept. For "unproductive" no formula is given.

So refusing <= sampling <= equation 11, and sampling <= by plan <= shedding. The planner (`nodes_for`) goes by the
lowest unless it is told what the nodes do (`MODELS`): the wanted completeness is then reached whatever they do.
`completeness` as its model is equation 12.

*Uneven nodes.* All of this supposes that every node gets the same. When nodes own known shares of the values,
`completeness_over` is the mean over them. When v values are hashed to n nodes at random, the value of a result has a
binomial number of the other v - 1 values for company, each with the chance 1 / n; `hashed` is the mean over that
number.

The tests hold every model against simulated joins. Invariant: all functions are pure, and monotone in n and in memory.
Cost: O(m^2); O(M) for Erlang's formula and O(sqrt(a)) for the Poisson sums; a binary search for n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from braidstream.control.shedding import MOST_BITS, PLAN_MARGIN, SAMPLE_SHARE
from braidstream.errors import InputError
from braidstream.model.dead_rows import FIRST_BITS

__all__ = [
    "MODELS",
    "PLAN_MARGIN",
    "Load",
    "Model",
    "completeness",
    "completeness_by_losses",
    "completeness_engine",
    "completeness_over",
    "completeness_planned",
    "completeness_probing",
    "completeness_refusing",
    "completeness_sampling",
    "completeness_shedding",
    "hashed",
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
        """The share of the window that n nodes keep, at average rates."""
        return min(1.0, n * self.memory / self.tuples)

    def kept_at_random(self, n: float) -> float:
        """The share that they keep on average when tuples arrive at random times."""
        mean, memory = self.tuples / n, math.floor(self.memory)
        below, at_most = _poisson_below(memory, mean)
        return min(1.0, below + memory / mean * (1 - at_most))


Model = Callable[[Sequence[Load], float], float]
_ROUNDING = 1e-12
_MOST_NODES = 1 << 48


def loss(load: Load, n: float) -> float:
    """Equation 2: how many tuples of the window a node cannot keep."""
    return max(0.0, load.tuples / n - load.memory)


def completeness(loads: Sequence[Load], n: float) -> float:
    """Equations 7 and 11, with the minimum: the share of the results whose tuples are all kept."""
    return math.prod(load.kept(n) for load in _checked(loads, n))


def completeness_probing(loads: Sequence[Load], n: float) -> float:
    """Arriving tuples are always joined and only stored ones are shed; at average rates."""
    return _newest_joined(_checked(loads, n), [load.kept(n) for load in loads])


def completeness_shedding(loads: Sequence[Load], n: float) -> float:
    """Exact: arriving tuples are always joined and only stored ones are shed."""
    return _newest_joined(_checked(loads, n), [load.kept_at_random(n) for load in loads])


def completeness_sampling(loads: Sequence[Load], n: float) -> float:
    """Exact: a node takes, and joins, the share of the arriving tuples that fits."""
    return math.prod(load.kept_at_random(n) for load in _checked(loads, n))


def completeness_planned(loads: Sequence[Load], n: float) -> float:
    """A node takes a sample, and of the other tuples as many as equation 11 and a margin ask for."""
    least, most = completeness_sampling(loads, n), completeness_shedding(loads, n)
    return min(most, max(least, completeness(loads, n) + PLAN_MARGIN))


def completeness_engine(loads: Sequence[Load], n: float, epoch_s: float = 0.0, by: str = "random") -> float:
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
    """Exact: a tuple that finds the memory full is neither stored nor joined."""
    return math.prod(1 - _blocked(math.floor(load.memory), load.tuples / n) for load in _checked(loads, n))


MODELS: Mapping[str, Model] = {
    "refuse": completeness_refusing,
    "sample": completeness_sampling,
    "planned": completeness_planned,
    "oldest": completeness_shedding,
    "random": completeness_shedding,
}
"""What to expect of each way to shed (`lab.overlay.victims` has them by the same names)."""


def completeness_over(shares: Sequence[float], loads: Sequence[Load], model: Model = completeness_refusing) -> float:
    """The completeness over nodes that own these shares of the values, each value as frequent as any other."""
    if not shares or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise InputError(f"shares of the values that add up to {sum(shares):g}", "1, none below 0")
    return sum(share * model(loads, 1 / share) for share in shares if share > 0)


def hashed(n_values: int, model: Model = completeness_refusing) -> Model:
    """A model for so many equally frequent values, each of them hashed to one of the nodes."""
    if n_values < 1:
        raise InputError(f"{n_values} values", "1 value or more")

    def over_places(loads: Sequence[Load], n: float) -> float:
        chances = _binomial(n_values - 1, min(1.0, 1 / n))
        return sum(chance * model(loads, n_values / (others + 1)) for others, chance in chances.items())

    return over_places


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


def nodes_for(loads: Sequence[Load], wanted: float, model: Model = completeness_refusing) -> int:
    """The smallest number of nodes with which the join is at least as complete as `wanted`."""
    _checked(loads, wanted=wanted)
    low, high = 0, max(1, math.ceil(max(load.tuples / load.memory for load in loads)))
    while model(loads, high) < wanted - _ROUNDING:
        if high > _MOST_NODES:
            raise InputError(f"a completeness of {wanted} with {loads}", "what some number of nodes can reach")
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if model(loads, middle) >= wanted - _ROUNDING else (middle, high)
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


def _newest_joined(loads: Sequence[Load], kept: Sequence[float]) -> float:
    """The share of the results when all their tuples but the newest must be kept."""
    newest = [1.0 / load.window_s for load in loads]
    others = [math.prod(share for j, share in enumerate(kept) if j != i) for i in range(len(loads))]
    return sum(share * rest for share, rest in zip(newest, others, strict=True)) / sum(newest)


def _poisson_below(count: int, mean: float) -> tuple[float, float]:
    """P(N < count) and P(N <= count) of a Poisson number; what is many deviations off the mean counts as 0 or 1."""
    reach = 12 * math.sqrt(mean) + 40
    first = max(0, math.floor(mean - reach))
    if count < first:
        return 0.0, 0.0
    if count > mean + reach:
        return 1.0, 1.0
    chance, below = math.exp(first * math.log(mean) - mean - math.lgamma(first + 1)), 0.0
    for number in range(first, count):
        below += chance
        chance *= mean / (number + 1)
    return below, below + chance


def _binomial(count: int, chance: float) -> dict[int, float]:
    """The chances of a binomial number, without those many deviations off the mean."""
    if chance >= 1 or count == 0:
        return {count: 1.0}
    mean = count * chance
    reach = 8 * math.sqrt(mean * (1 - chance)) + 8
    some = range(max(0, math.floor(mean - reach)), min(count, math.ceil(mean + reach)) + 1)
    whole = math.lgamma(count + 1)
    logs = {
        k: whole
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(chance)
        + (count - k) * math.log1p(-chance)
        for k in some
    }
    total = sum(math.exp(log) for log in logs.values())
    return {k: math.exp(log) / total for k, log in logs.items()}


def _checked(loads: Sequence[Load], n: float = 1, wanted: float = 1.0) -> Sequence[Load]:
    if len(loads) < 2:
        raise InputError(f"a join of {len(loads)} streams", "two streams or more")
    if n <= 0:
        raise InputError(f"{n} nodes", "a positive number of nodes")
    if not 0 < wanted <= 1:
        raise InputError(f"a completeness of {wanted}", "more than 0, at most 1", "write 0.9 for 90%")
    return loads
