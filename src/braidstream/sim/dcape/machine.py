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
- clean-up: reading the generations, entering their tuples, and 266 µs for each result that equation 1 forms. It forms
  V_k too, the results of a generation with itself, which are removed again (4.2): 2 to 3% of all in figure 11. The
  price of a result is fitted. The paper has three clean-ups: 194,308 results in 26,879 ms, 992,893 in 359,396 ms,
  2,023,781 in 1,600 s or more. At their paces a result costs 68, 349 and 790 µs here (`PACES`), beside disk and tuples;
  266 is the geometric mean.

What the text names for clean-up (bring the generations back, order them by group, merge them one after the other by
equation 1, remove V_k) grows with tuples and results, no faster. The paper's times do grow faster: 5.1 times the
results take 13.4 times as long, which no linear price gives. And after six hours three machines need less than a
quarter of the time of one, where even shares of the same work are a third. The paper names no cause, so none is
modelled. Figure 11 says what its ratio of clean-up times is at each pace.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braidstream.sim.costs import Network

__all__ = ["PACES", "PAPER_PRICES", "CleanUpWork", "Prices", "VirtualMachine"]


@dataclass(frozen=True)
class CleanUpWork:
    """What a machine does in clean-up: bytes read, tuples entered, and results formed, those removed again included."""

    read_bytes: float
    n_tuples: float
    n_formed: float


@dataclass(frozen=True)
class Prices:
    """What things cost, in virtual seconds and bytes."""

    tuple_s: float = 50e-6
    result_s: float = 10e-6
    recovered_s: float = 266e-6
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
        """Reading the generations, entering their tuples, and forming the results of equation 1."""
        return self.disk_s(work.read_bytes) + work.n_tuples * self.tuple_s + work.n_formed * self.recovered_s


PAPER_PRICES = Prices()
PACES = {"low output": 68e-6, "high output": 349e-6, "six hours": 790e-6}
"""The price of a recovered result with which one of the paper's three clean-ups has its pace."""


@dataclass
class VirtualMachine:
    """When it is free again, and what it did."""

    slot: int
    free_s: float = 0.0
    busy_s: float = 0.0

    def work(self, now_s: float, seconds: float) -> float:
        """Do something that takes `seconds`, after all before it; when that is done."""
        self.free_s = max(self.free_s, now_s) + seconds
        self.busy_s += seconds
        return self.free_s
