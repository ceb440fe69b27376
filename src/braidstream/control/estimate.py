"""How complete an answer is when tuples were shed, from a sample of keys that is exempt from shedding.

Results of sampled keys are all found, and each is known to be one that the filter would have left, or not. Keys are
sampled by their hash, so the share of those left, lambda = kept / all, holds for the other keys too, whatever their
distribution: what these have in full is found / lambda, and

    completeness = (exact + all + n_found) / (exact + all + found / lambda)

`exact` are results in groups where nothing is dead. `kept` and `found` are weighted by one over the completeness that
the filter lets expect of their group (`shedding.expected_share`; any guess would do). Lambda is then about 1
everywhere, a group with many results and a low completeness does not tip the scale, and lambda may be taken over groups
and epochs together. Weights change the spread of the estimate, not what it converges to.

Over epochs the sample may shrink. What a sampled key has in an epoch then stands for more keys than before, and its
counts, `all` and `kept`, are multiplied by one over the share of the keys that were sampled in that epoch, relative to
the first (Horvitz and Thompson; `Counts.weighted`). So lambda is the ratio of two estimates for all keys, and each
epoch has the weight of its results, whatever its sample. `sure` results are counted as they are.

The interval: keys are the independent units, gathered in buckets by hash. By how much the ratio of a bucket deviates is
taken from all buckets, the heavy ones counting by the root of their size only: so one heavy key is not the only witness
of its own deviation, and since small buckets deviate more, the error is on the safe side. With that relative variance v
the variance of lambda is v / n_sampled, and that of the unsampled keys' own ratio v / n_found, where n are effective
numbers of buckets, (sum x)^2 / sum x^2: few keys with most of the results, in the sample or outside of it, make the
interval wide. The quantile is Student's, with the effective number of witnesses (of all and of kept results, whichever
is less). A spread of single results is the
least that is assumed, so that three results that were all kept prove little. It is taken on the logarithm of lambda,
and cut where no fewer results would exist than were found.

Known limitations: it takes it that shedding does not look at keys one by one. Where the sample has shrunk to a few
keys, some of them heavy, and nothing was expected of the groups, intervals of a run hold for about 92% of runs, not for
95%. Cost: O(buckets).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from braidstream.model.dead_rows import FIRST_BITS
from braidstream.model.reports import SampleCounts

__all__ = ["Counts", "Interval", "completeness_interval"]

F64 = npt.NDArray[np.float64]
_BUCKETS = 64
_QUANTILES = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (8, 2.306), (10, 2.228), (15, 2.131),
    (20, 2.086), (30, 2.042), (60, 2.000), (1e9, 1.960),
)  # fmt: skip
"""Student's t for 95%, two-sided, by degrees of freedom."""
_UNSEEN = 3.0
"""Where none was found, up to three might have been expected (95% of a Poisson distribution)."""
_MOST_WEIGHT = 50.0


@dataclass(frozen=True)
class Interval:
    """A completeness with its interval of 95% confidence."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.1%} ({self.low:.1%} to {self.high:.1%})"


def _zeros() -> F64:
    return np.zeros(_BUCKETS)


@dataclass
class Counts:
    """Results of one query, of an epoch or of many."""

    exact: int = 0
    """Where nothing is dead."""
    n_found: int = 0
    """Of unsampled keys."""
    all: F64 = field(default_factory=_zeros)
    """Of sampled keys, by bucket."""
    kept: F64 = field(default_factory=_zeros)
    """Those of them that the filter leaves, weighted."""
    found: F64 = field(default_factory=_zeros)
    """Of unsampled keys, weighted, by bucket."""
    n_kept: float = 0
    """Those of the sample that the filter leaves, weighted by the sample alone."""
    at_risk: int = 0
    """New tuples that came where something is dead: without any, nothing can be missing."""
    n_all: float = 0
    """Of sampled keys, not weighted."""
    squares: float = 0
    """The sum of the squared weights of the sampled keys' results."""

    def weighted(self, weight: float) -> Counts:
        """Each sampled key stands for so many times the keys that it stood for at first."""
        n_all = float(self.all.sum())
        kept, n_kept = self.kept * weight, self.n_kept * weight
        return replace(self, all=self.all * weight, kept=kept, n_kept=n_kept, n_all=n_all, squares=n_all * weight**2)

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        return Counts(
            self.exact + other.exact,
            self.n_found + other.n_found,
            self.all + other.all,
            self.kept + other.kept,
            self.found + other.found,
            self.n_kept + other.n_kept,
            self.at_risk + other.at_risk,
            self.n_all + other.n_all,
            self.squares + other.squares,
        )

    def as_sent(self) -> SampleCounts:
        """The form in which they are sent and kept."""
        return SampleCounts(
            self.exact,
            self.n_found,
            tuple(int(x) for x in self.all.tolist()),
            tuple(round(x, 3) for x in self.kept.tolist()),
            tuple(round(x, 3) for x in self.found.tolist()),
            self.n_kept,
            self.at_risk,
            *((self.n_all, self.squares) if self.squares else ()),
        )

    @classmethod
    def of(cls, sent: SampleCounts) -> Counts:
        """From that form."""
        whole, kept, found = (np.array(one, dtype=np.float64) for one in (sent.all, sent.kept, sent.found))
        return cls(sent.exact, sent.n_found, whole, kept, found, sent.n_kept, sent.at_risk, sent.n_all, sent.squares)

    @classmethod
    def of_run(cls, kept: SampleCounts, most: float) -> Counts:
        """The counts of a run so far. Those of 0.1.0 are not weighted, though its sample may have shrunk.

        They get the weight, up to `most`, at which the sample stands for as many results as the run is said to have.
        """
        known = cls.of(kept)
        if known.squares or not known.all.any():
            return known
        passed, others = float(known.kept.sum()), 2.0**FIRST_BITS - 1
        likely = float(known.found.sum()) / others / passed if passed else 1.0
        return known.weighted(min(max(likely, 1.0), most))


def completeness_interval(counts: Counts) -> Interval:
    """The completeness of what was counted."""
    counts = counts if counts.squares else counts.weighted(1.0)
    total, found = float(counts.all.sum()), float(counts.found.sum())
    if not counts.at_risk and not total and not found:
        return Interval(1.0, 1.0, 1.0)
    sure = counts.exact + counts.n_all
    if not total:
        known = sure + found
        return Interval((sure + counts.n_found) / known if known else 0.5, 0.0, 1.0)
    most = found / counts.n_found if counts.n_found else math.inf
    half = 0.5 * counts.squares / total
    ratio = (float(counts.kept.sum()) + half) / (total + half)
    spread = _spread(counts, ratio, total, found)

    def complete(at: float, unseen: float = 0.0) -> float:
        return min((sure + counts.n_found) / (sure + max((found + unseen) / max(at, 1e-12), counts.n_found)), 1.0)

    return Interval(
        complete(min(ratio, most)),
        complete(ratio * math.exp(-spread), _UNSEEN * _weight(counts)),
        complete(min(ratio * math.exp(spread), most)),
    )


def _weight(counts: Counts) -> float:
    """What a result that was found stands for."""
    if counts.n_found:
        return float(counts.found.sum()) / counts.n_found
    return float(counts.kept.sum()) / counts.n_kept if counts.n_kept else _MOST_WEIGHT


def _spread(counts: Counts, ratio: float, total: float, found: float) -> float:
    """Half the width of the interval of log(lambda)."""
    full = counts.all > 0
    sizes = counts.all[full]
    deviations = counts.kept[full] / sizes / ratio - 1
    weights = np.sqrt(sizes)
    by_keys = float((weights * deviations**2).sum() / weights.sum())
    n_sampled = total**2 / float((sizes**2).sum())
    has_shrunk = counts.squares > counts.n_all
    if has_shrunk:  # few buckets then stand for many keys
        by_keys = max(by_keys, float((sizes * deviations**2).sum() / total))
    n_found = found**2 / float((counts.found**2).sum()) if found else _BUCKETS
    n_results = total**2 / counts.squares
    share = (counts.n_kept / total * n_results + 1) / (n_results + 2)
    by_results = (1 - share) / (share * n_results)
    freedom = min(_witnesses(weights), _witnesses(np.sqrt(counts.kept)), n_sampled if has_shrunk else math.inf) - 1
    variance = max(by_keys * (1 / n_sampled + 1 / n_found), by_results)
    return min(_quantile(max(freedom, 0.5)) * math.sqrt(variance), 50.0)


def _witnesses(weights: F64) -> float:
    """The effective number of buckets that say something."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if weights.any() else 0.0


def _quantile(freedom: float) -> float:
    """Student's t, interpolated in 1 / degrees of freedom; wider than any table below one."""
    points: Sequence[tuple[float, float]] = _QUANTILES
    if freedom < 1:
        return points[0][1] / freedom**2
    inverse = [1 / n for n, _ in reversed(points)]
    return float(np.interp(1 / freedom, inverse, [t for _, t in reversed(points)]))
