"""A virtual machine of D-CAPE's cluster, and the prices of what it does.

A machine works one thing at a time, in the order in which it came: the tuples of a tick, a push to disk, the hand-over
of groups. So what is busy with an adaptation joins later, and its results come later; and a push or a hand-over begins
only when the tuples before it are joined (steps 3 to 6 of the relocation protocol, D-CAPE 5.1).

The paper's machines (3.3): two 2.4 GHz Xeons, 2 GB, a private gigabit Ethernet, a Java engine. It gives no prices, so
these are assumptions, the last one fitted:

- joining: 50 µs a tuple and 10 µs a result. The paper says that its processors keep up with the input; with these
  they do, in every figure: no machine is busy for more than a tenth of a run.
- disk: 20 MB/s, written or read, with the objects turned into bytes and back. Network: 20 MB/s for the same reason (the
  wire itself would carry 100), and 1 ms for a message.
- clean-up: reading the generations, entering their tuples, and the terms of equation 1 as they are written, generation
  by generation (`terms`). A tuple that probes and a partial result cost there what a tuple and a result cost in the
  join. A result costs 284 µs, those of a generation with itself (V_k) included, which are removed again.

That last price is fitted. The paper has three clean-ups: 194,308 results in 26,879 ms and 992,893 in 359,396 ms (figure
11), 2,023,781 in 1,600 s or more (6.1). Scaled to as many results as the same runs recover here, 284 is the price with
the least squares of what is missing, in seconds (285, 284 and 283 for three seeds; tests/lab/sim/test_dcape_prices.py).
One price does not fit them all: alone they ask for 10, 345 and 137 µs (`PACES`).

Clean-up takes more than in proportion to its results, in the paper as here, because the merged group takes part in each
merge. After six hours a group has a dozen generations on one overloaded machine, and a third of that where three share
the load; so these need a quarter of the time, where even shares of the results alone would be a third.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braidstream.lab.sim.costs import Network
from braidstream.model.numbers import SlotId

__all__ = ["PACES", "PAPER_PRICES", "CleanUpWork", "Prices", "VirtualMachine"]


@dataclass(frozen=True)
class CleanUpWork:
    """What a machine does in clean-up: bytes read, tuples entered, then by the terms of equation 1 tuples that probe,
    partial results, and results formed, those removed again included."""

    read_bytes: float = 0
    n_tuples: float = 0
    n_probing: float = 0
    n_partial: float = 0
    n_formed: float = 0


@dataclass(frozen=True)
class Prices:
    """What things cost, in virtual seconds and bytes."""

    tuple_s: float = 50e-6
    result_s: float = 10e-6
    recovered_s: float = 284e-6
    disk_bytes_per_s: float = 20e6
    network: Network = field(default_factory=lambda: Network(0.001, 20e6))

    def join_s(self, n_tuples: float, n_results: float) -> float:
        """Joining the tuples of a tick."""
        return n_tuples * self.tuple_s + n_results * self.result_s

    def disk_s(self, n_bytes: float) -> float:
        """Writing or reading state."""
        return n_bytes / self.disk_bytes_per_s

    def relocation_s(self, n_bytes: float) -> float:
        """How long sender and receiver are at it: the messages of steps 1 to 8 around the state's bytes."""
        return 7 * self.network.rendezvous_s + self.network.transfer_s(n_bytes)

    def clean_up_s(self, work: CleanUpWork) -> float:
        """Reading the generations, entering their tuples, and the terms of equation 1."""
        merging_s = self.join_s(work.n_tuples + work.n_probing, work.n_partial)
        return self.disk_s(work.read_bytes) + merging_s + work.n_formed * self.recovered_s


PAPER_PRICES = Prices()
PACES = {"low output": 10e-6, "high output": 345e-6, "six hours": 137e-6}
"""The price of a recovered result with which one of the paper's three clean-ups takes its time."""


@dataclass
class VirtualMachine:
    """When it is free again, and what it did."""

    slot: SlotId
    free_s: float = 0.0
    busy_s: float = 0.0

    def work(self, now_s: float, seconds: float) -> float:
        """Do something that takes `seconds`, after all before it; when that is done."""
        self.free_s = max(self.free_s, now_s) + seconds
        self.busy_s += seconds
        return self.free_s
