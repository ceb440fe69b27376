"""Partners: an overloaded peer gives parts of its domain to peers with room (DHTJoin 6).

Idea: the owner of a key range keeps an index of sub-domains: the engine's `Directory` over hashes of (attribute,
value), with the peer in charge as the slot. Above `delta` of its memory a peer asks the nodes of the owner's finger
table for their free capacity; a sub-domain (split by its next bit until both halves hold something) goes to the nearest
node that has room for it. A partner that overflows tells the owner, which divides that partner's part again. Every
tuple still comes to the owner first, which passes it on: one more message.

Invariant: at any time one peer is in charge of a sub-domain, and an entry is joined exactly once, there. A new partner
lets tuples wait until the entries it takes over have arrived; what was on its way to the old one arrives there before
the order to hand over, because a link keeps the order of its messages.
Cost: one message a tuple of a given-away sub-domain; two for each finger and a few for each division.
Limitation: a sub-domain is at least one value. A single value that outgrows a peer's memory is shed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from braidstream.lab.overlay.operators import Target
from braidstream.lab.overlay.peer import Address, Entry, Peer
from braidstream.lab.overlay.ring import mix64
from braidstream.lab.overlay.shared import SECOND_US, PartnerRule
from braidstream.model.directory import Directory, Group, address_of
from braidstream.model.numbers import GroupId, SlotId

if TYPE_CHECKING:
    from braidstream.lab.overlay.dht_method import DHTJoin

__all__ = ["Partners"]

RELIEF = 0.8  # of the threshold: how far a division goes below it, so that the next one is not due at once

Pair = tuple[Target, Entry]
Moved = tuple[Address, int, Entry]


class Partners:
    """The indexes of all owners that have given something away."""

    def __init__(self, run: DHTJoin, rule: PartnerRule) -> None:
        self._run, self._rule = run, rule
        self._capacity = run.settings.memory.per_peer or 0
        self._directories: dict[int, Directory] = {}
        self._waiting: dict[tuple[int, int, int], list[Pair]] = {}
        self._reserved: Counter[int] = Counter()
        self._not_before: dict[int, int] = {}
        self._patience: dict[int, int] = {}
        self._hashes: dict[tuple[str, int], int] = {}
        self.counters = {"divisions": 0, "migrated": 0, "no_partner": 0, "most_extra": 0}

    def route(self, owner: int, pairs: Sequence[Pair]) -> None:
        """An index message has reached the owner of its key: join it here, or pass it on to whom the index names."""
        directory = self._directories.get(owner)
        if directory is None:
            self._deliver(owner, pairs)
            return
        parts: dict[tuple[int, int], list[Pair]] = {}
        for target, entry in pairs:
            group = _group_at(directory, self._hash(target, entry.value))
            parts.setdefault((group.slot, group.id), []).append((target, entry))
        run, extra = self._run, 0
        for (holder, group_id), part in parts.items():
            if holder == owner:
                self._deliver(owner, part)
                continue
            extra += 1
            route = run.network.direct(owner, holder)
            run.traffic.add("partner", run.clock.now, route.hops)
            run.clock.at(run.clock.now + route.delay_us, self._arrive, holder, owner, group_id, part)
        self.counters["most_extra"] = max(self.counters["most_extra"], extra)

    def after_arrival(self, node: int) -> None:
        """Look for a partner when the peer is overloaded and has not just tried."""
        now = self._run.clock.now
        if self._run.peer(node).used <= self._rule.delta * self._capacity or now < self._not_before.get(node, 0):
            return
        patience = self._patience.get(node, round(self._rule.retry_s * SECOND_US))
        self._not_before[node] = now + patience
        loads = self._loads(node)
        by_owner = Counter({owner: sum(of.values()) for owner, of in loads.items()})
        owner = next((o for o, _ in by_owner.most_common() if o != node or len(loads[o]) > 1), None)
        if owner is None:
            self._patience[node] = 2 * patience  # a single value: nothing to divide
            return
        self._ask(owner, node)

    def _ask(self, owner: int, overloaded: int) -> None:
        """The owner, told by the overloaded peer if that is a partner, asks along its finger table."""
        run, told = self._run, self._run.network.direct(overloaded, owner)
        fingers = run.network.ring.fingers(owner)
        run.traffic.add("capacity", run.clock.now, told.hops + 2 * len(fingers))
        slowest = max((run.network.delay_us(owner, finger) for finger in fingers), default=0)
        run.clock.at(run.clock.now + told.delay_us + 2 * slowest, self._divide, owner, overloaded, fingers)

    def _divide(self, owner: int, overloaded: int, fingers: Sequence[int]) -> None:
        """Give away sub-domains of the overloaded peer, to one partner or several, until it has some room again."""
        load = self._loads(overloaded).get(owner, Counter())
        excess = self._run.peer(overloaded).used - RELIEF * self._rule.delta * self._capacity
        has_given = False
        while excess > 0 and (given := self._give_away_one(owner, overloaded, fingers, load)):
            excess, has_given = excess - given, True
        if not has_given:
            self.counters["no_partner"] += 1
            self._patience[overloaded] = 2 * self._patience.get(overloaded, round(self._rule.retry_s * SECOND_US))

    def _give_away_one(self, owner: int, overloaded: int, fingers: Sequence[int], load: Counter[int]) -> int:
        """Hand the largest sub-domain that some finger has room for over to it; returns its size, or 0."""
        directory = self._directories.get(owner) or Directory.of(1).move(GroupId(0), SlotId(owner))
        while True:
            sizes = self._sizes(directory, owner, overloaded, load)
            divisible = [g for g, _ in sizes.most_common() if _values_in(directory, g, load) > 1]
            can_move = len(sizes) > 1 or (owner != overloaded and not divisible)
            for group_id, size in sizes.most_common() if can_move else ():
                partner = self._nearest_with_room(owner, overloaded, fingers, size)
                if partner is not None:
                    self._directories[owner] = directory.move(group_id, SlotId(partner))
                    self._hand_over(owner, overloaded, partner, group_id, size)
                    return size
            if not divisible:
                return 0
            directory = _split_until_apart(directory, divisible[0], load)

    def _sizes(self, directory: Directory, owner: int, holder: int, load: Counter[int]) -> Counter[GroupId]:
        """The live entries in each sub-domain that the holder is in charge of and has already taken over."""
        sizes: Counter[GroupId] = Counter()
        for hashed, count in load.items():
            group = _group_at(directory, hashed)
            if group.slot == holder and (holder, owner, group.id) not in self._waiting:
                sizes[group.id] += count
        return sizes

    def _nearest_with_room(self, owner: int, overloaded: int, fingers: Sequence[int], size: int) -> int | None:
        def room(node: int) -> float:
            used = self._run.peers[node].used if node in self._run.peers else 0
            return self._rule.delta * self._capacity - used - self._reserved[node]

        fitting = [f for f in fingers if f not in (owner, overloaded) and room(f) >= size]
        return min(fitting, key=lambda node: self._run.network.delay_us(owner, node), default=None)

    def _hand_over(self, owner: int, giver: int, partner: int, group_id: int, size: int) -> None:
        """Order the giver to send the sub-domain's entries; tuples wait at the partner until they are there."""
        run = self._run
        self.counters["divisions"] += 1
        self._reserved[partner] += size
        self._waiting[partner, owner, group_id] = []
        order = run.network.direct(owner, giver)
        run.traffic.add("migrate", run.clock.now, order.hops)
        run.clock.at(run.clock.now + order.delay_us, self._give, owner, giver, partner, group_id, size)

    def _give(self, owner: int, giver: int, partner: int, group_id: int, size: int) -> None:
        run, peer = self._run, self._run.peer(giver)
        moved: list[Moved] = []
        for address, port, number, entry in list(peer.entries()):
            target = Target(*address, port)
            if self._owner(entry.value) == owner and self._is_in(owner, group_id, self._hash(target, entry.value)):
                moved.append((address, port, peer.buffer(address, port).take(number)))
        self.counters["migrated"] += len(moved)
        route = run.network.direct(giver, partner)
        run.traffic.add("migrate", run.clock.now, route.hops)
        run.clock.at(run.clock.now + route.delay_us, self._take_over, owner, partner, group_id, size, moved)

    def _take_over(self, owner: int, partner: int, group_id: int, size: int, moved: Sequence[Moved]) -> None:
        peer, now = self._run.peer(partner), self._run.clock.now
        self._reserved[partner] -= size
        for address, port, entry in moved:
            n_ports = len(self._run.plans[address[0]].operators[address[1]].ports)
            peer.put(address, n_ports, port, entry, now)
        self._deliver(partner, self._waiting.pop((partner, owner, group_id)))

    def _arrive(self, holder: int, owner: int, group_id: int, pairs: Sequence[Pair]) -> None:
        waiting = self._waiting.get((holder, owner, group_id))
        if waiting is None:
            self._deliver(holder, pairs)
        else:
            waiting += pairs

    def _deliver(self, node: int, pairs: Sequence[Pair]) -> None:
        for target, entry in pairs:
            self._run.deliver(node, target, entry)

    def _is_in(self, owner: int, group_id: int, hashed: int) -> bool:
        return _group_at(self._directories[owner], hashed).id == group_id

    def _loads(self, node: int) -> dict[int, Counter[int]]:
        """By owner, how many live entries the peer keeps under each (attribute, value)."""
        peer: Peer = self._run.peer(node)
        loads: dict[int, Counter[int]] = {}
        for address, port, _, entry in peer.entries():
            if entry.deadline >= self._run.clock.now:
                hashed = self._hash(Target(*address, port), entry.value)
                loads.setdefault(self._owner(entry.value), Counter())[hashed] += 1
        return loads

    def _owner(self, value: int) -> int:
        return self._run.owner(value)

    def _hash(self, target: Target, value: int) -> int:
        """The place of a value in the domain of its join attribute: the same for both sides of a join."""
        ports = self._run.plans[target.query].operators[target.operator].ports
        name = min(port.attribute for port in ports)
        known = self._hashes.get((name, value))
        if known is None:
            mixed = mix64(np.array([int.from_bytes(name.encode()[:7], "big")], dtype=np.uint64))
            known = int(mix64(mixed ^ np.uint64(value & 0xFFFF_FFFF_FFFF_FFFF))[0])
            self._hashes[name, value] = known
        return known


def _group_at(directory: Directory, hashed: int) -> Group:
    return directory.at(address_of(0, hashed))


def _values_in(directory: Directory, group_id: GroupId, load: Counter[int]) -> int:
    return sum(_group_at(directory, hashed).id == group_id for hashed in load)


def _split_until_apart(directory: Directory, group_id: GroupId, load: Counter[int]) -> Directory:
    """Split a group with several values, bit by bit, until both halves hold some of them."""
    while True:
        upper = directory.next_id
        directory = directory.split(group_id)
        in_lower, in_upper = (_values_in(directory, half, load) for half in (group_id, upper))
        if in_lower and in_upper:
            return directory
        group_id = group_id if in_lower else upper
