"""A virtual machine of D-CAPE's cluster, and the prices of what it does.

A machine works one thing at a time, in the order in which it came: the tuples of a tick, a push to disk, the hand-over
of groups. So what is busy with an adaptation joins later, and its results come later; and a push or a hand-over begins
only when the tuples before it are joined (steps 3 to 6 of the relocation protocol, D-CAPE 5.1).

The paper's machines (3.3): two 2.4 GHz Xeons, 2 GB, a private gigabit Ethernet, a Java engine. It gives no prices, so
these are assumptions, all but one:

- joining: 50 µs a tuple and 10 µs a result. The paper says that its processors keep up with the input; with these
  they do, in every figure: no machine is busy for more than a tenth of a run.
- disk: 20 MB/s, written or read, with the objects turned into bytes and back. Network: 20 MB/s for the same reason (the
  wire itself would carry 100), and 1 ms for a message.
- clean-up: 90 µs a recovered result, beside reading the generations and entering their tuples. This one is fitted:
  with it, clean-up after pushing low output (figure 11) takes 138 µs a result in all, the pace of the paper's 26,879 ms
  for 194,308. Its other two numbers are slower (362 µs for 992,893, 790 µs for 2,023,781), so its long clean-ups cost
  more than in proportion, and ours do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braidstream.sim.costs import Network

__all__ = ["PAPER_PRICES", "Prices", "VirtualMachine"]


@dataclass(frozen=True)
class Prices:
    """What things cost, in virtual seconds and bytes."""

    tuple_s: float = 50e-6
    result_s: float = 10e-6
    recovered_s: float = 90e-6
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

    def clean_up_s(self, read_bytes: float, n_tuples: float, n_results: float) -> float:
        """Reading the generations, entering their tuples, and producing the missing results."""
        return self.disk_s(read_bytes) + n_tuples * self.tuple_s + n_results * self.recovered_s


PAPER_PRICES = Prices()


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
