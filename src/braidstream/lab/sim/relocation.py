"""Moving groups between two slaves: D-CAPE's protocol (5.1) as messages.

The eight steps, with the distribution manager and the split operator both at the master:

    1  manager  -> sender    ComputePartitionsToMove
    2  sender   -> manager   PartitionsToMove
    3  manager  -> splitter  DeactivatePartitions: the inputs of the groups are held
       manager  -> sender    DeactivatePartitions; splitter -> sender  EndOfMovedPartitions
    4  splitter -> manager   Deactivated
    5  manager  -> sender    SendPartitions
    6  sender   -> receiver  ReceivePartitions, with the state, once the end marker is there and nothing is in flight
    7  receiver -> manager   Received
    8  manager  -> splitter  ReactivatePartitions: inputs resume, held tuples first

Our controller chooses the groups itself, from the reports, so step 1 carries them and step 2 confirms them. Tuples that
wait in the sender's buffer travel with the state (WSJ IV-C) instead of being joined first: an overloaded sender would
otherwise have to catch up before it may be relieved.

Invariant: from step 3 to step 8 no tuple of the groups is sent to anybody. Cost: eight messages and the state's bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braidstream.lab.sim.clock import Clock
from braidstream.lab.sim.costs import Network
from braidstream.lab.sim.demand import Ints
from braidstream.lab.sim.slave import Slave

__all__ = ["Message", "Relocation"]


@dataclass(frozen=True)
class Message:
    """One message of the protocol, at the time it was sent."""

    time_s: float
    step: int
    name: str
    sender: str
    receiver: str


@dataclass
class Relocation:
    """One run of the protocol for some groups (rows of the demand's tables) of one sender."""

    clock: Clock
    network: Network
    rows: Ints
    sender: Slave
    receiver: Slave
    state_bytes: Callable[[], float]
    hold: Callable[[], None]
    release: Callable[[], None]
    log: list[Message]

    def start(self) -> None:
        """Step 1."""
        self._send(1, "ComputePartitionsToMove", "manager", self._from, self._confirm)

    @property
    def _from(self) -> str:
        return f"slave {self.sender.slot}"

    @property
    def _to(self) -> str:
        return f"slave {self.receiver.slot}"

    def _send(self, step: int, name: str, sender: str, receiver: str, then: Callable[[], None]) -> None:
        """A message takes a rendezvous; one between manager and splitter stays at the master and takes no time."""
        self.log.append(Message(self.clock.now, step, name, sender, receiver))
        is_local = {sender, receiver} == {"manager", "splitter"}
        self.clock.after(0.0 if is_local else self.network.rendezvous_s, then)

    def _confirm(self) -> None:
        self._send(2, "PartitionsToMove", self._from, "manager", self._deactivate)

    def _deactivate(self) -> None:
        self._send(3, "DeactivatePartitions", "manager", self._from, lambda: None)
        self._send(3, "DeactivatePartitions", "manager", "splitter", self._held)

    def _held(self) -> None:
        self.hold()
        # The end marker travels behind the tuples sent before it; step 5 follows it on the same connection.
        self._send(3, "EndOfMovedPartitions", "splitter", self._from, lambda: None)
        self._send(4, "Deactivated", "splitter", "manager", self._ask)

    def _ask(self) -> None:
        self._send(5, "SendPartitions", "manager", self._from, self._drain)

    def _drain(self) -> None:
        self.sender.when_drained(self.rows, self._hand_over)

    def _hand_over(self) -> None:
        self.log.append(Message(self.clock.now, 6, "ReceivePartitions", self._from, self._to))
        for slave in (self.sender, self.receiver):
            slave.pause()
        for batch in self.sender.extract(self.rows):
            self.receiver.take(batch)  # it is paused until the state is there too
        self.clock.after(self.network.transfer_s(self.state_bytes()), self._received)

    def _received(self) -> None:
        for slave in (self.sender, self.receiver):
            slave.resume()
        self._send(7, "Received", self._to, "manager", self._reactivate)

    def _reactivate(self) -> None:
        self._send(8, "ReactivatePartitions", "manager", "splitter", self.release)
