"""Past the paper: dissemination and lookups on networks of up to 2^20 nodes and more, computed at once.

For each size: the messages and the depth of a dissemination tree, the messages a node sends in it, the hops of lookups,
and how often a node is passed. `claims` says what must hold: n - 1 messages, depth log2(n) on an evenly filled ring and
close to it on a random one, and half of log2(n) hops within a tenth.
Cost: one binary search a message or hop; about a second for 2^20 nodes and as many lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from braidstream.errors import InputError
from braidstream.lab.overlay.dissemination import disseminate, dissemination_named
from braidstream.lab.overlay.ring import Ring

__all__ = ["Size", "check_powers", "measure", "measure_all"]

MOST_POWER = 22
SMALL_POWER = 8


@dataclass(frozen=True)
class Size:
    """What was measured for one number of nodes. Loads are messages a node: the mean, and the most of any node."""

    power: int
    nodes: int
    is_even: bool
    messages: int
    depth: int
    most_sent: int
    mean_hops: float
    most_hops: int
    mean_load: float
    most_load: int

    @property
    def claims(self) -> dict[str, bool]:
        """Which claims hold."""
        depth_holds = self.depth == self.power if self.is_even else self.depth <= self.power + 2
        return {
            "n - 1 messages": self.messages == self.nodes - 1,
            "depth log2 n": depth_holds,
            "half log2 n hops": self.power < 4 or abs(self.mean_hops - self.power / 2) <= 0.1 * self.power / 2,
        }

    def as_json(self) -> dict[str, Any]:
        """A plain form."""
        return {**asdict(self), "claims": self.claims}


def measure(power: int, seed: int, *, is_even: bool = False, way: str = "chord", n_lookups: int | None = None) -> Size:
    """Measure a network of 2^power nodes: one dissemination, and as many lookups as nodes (at least 20,000)."""
    check_powers(power, power)
    nodes, rng = 1 << power, np.random.default_rng([seed, power])
    # An even ring is fully populated, as in the paper's examples: every identifier is a node.
    ring = Ring.even(nodes, bits=power) if is_even else Ring.random(nodes, seed)
    tree = disseminate(dissemination_named(way, ring), nodes, int(rng.integers(nodes)))
    count = max(nodes, 20_000) if n_lookups is None else n_lookups
    found = ring.look_up(rng.integers(0, nodes, count), rng.integers(0, ring.size, count))
    return Size(
        power,
        nodes,
        is_even,
        tree.messages,
        tree.height,
        int(tree.fan_out.max()),
        found.mean_hops if is_even or power >= SMALL_POWER else _mean_over_rings(nodes, rng),
        int(found.hops.max()),
        float(found.load.mean()),
        int(found.load.max()),
    )


def _mean_over_rings(nodes: int, rng: np.random.Generator) -> float:
    """The mean hops over many random rings: a single small ring may lie unusually."""
    rings = (Ring.random(nodes, int(rng.integers(1 << 31))) for _ in range(40))
    found = (ring.look_up(rng.integers(0, nodes, 1000), rng.integers(0, ring.size, 1000)) for ring in rings)
    return float(np.mean([lookups.mean_hops for lookups in found]))


def check_powers(smallest: int, largest: int) -> range:
    """The powers from `smallest` to `largest`, if networks of that size can be computed here."""
    if not 1 <= smallest <= largest <= MOST_POWER:
        raise InputError(f"2^{smallest} to 2^{largest} nodes", f"2^1 to 2^{MOST_POWER}, the smaller first")
    return range(smallest, largest + 1)


def measure_all(
    powers: Sequence[int],
    seed: int,
    *,
    is_even: bool = False,
    way: str = "chord",
    progress: Callable[[float], None] | None = None,
) -> list[Size]:
    """Measure a network of each size; `progress` is told the share of the nodes done."""
    total, done = sum(1 << p for p in powers), 0
    sizes: list[Size] = []
    for power in powers:
        sizes.append(measure(power, seed, is_even=is_even, way=way))
        done += 1 << power
        if progress is not None:
            progress(done / total)
    return sizes
