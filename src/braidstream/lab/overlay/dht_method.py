"""DHTJoin: queries are disseminated, tuples are indexed only where some query joins them (DHTJoin 3).

Idea: every node has a query table (`query_tables`): the queries whose dissemination has reached it. The source of a
stream looks into its own table and indexes a tuple by put(h(value), tuple), once for each attribute that some query's
plan wants that stream indexed on. Tuples of different streams with equal values meet at one peer, which runs MJoin;
results of the root go to the user, those of other operators are re-indexed on the key that the plan names next.
`alerts`, `partners`, `failures` and `members` hook in where entries arrive and leave.

Invariant: with enough memory, no failed peer, and no source down unless alerts are off or "exact", every query's answer
is exactly the join of the tuples from its start on.
Cost: about log2(n) / 2 messages for each indexed tuple and each intermediate result, n - 1 for each query.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from braidstream.lab.overlay.alerts import Alerts
from braidstream.lab.overlay.members import Members
from braidstream.lab.overlay.network import Network
from braidstream.lab.overlay.operators import Field, Operator, OperatorTree, Target, plan
from braidstream.lab.overlay.partners import Partners
from braidstream.lab.overlay.peer import Entry, Peer
from braidstream.lab.overlay.peer_failures import Failures
from braidstream.lab.overlay.query_tables import NEVER, QueryTables
from braidstream.lab.overlay.shared import SECOND_US, OverlayRun, Settings, Started
from braidstream.lab.overlay.victims import least_productive, shedding_named
from braidstream.lab.overlay.workload import Feed, Submission

__all__ = ["DHTJoin"]


class DHTJoin(OverlayRun):
    """The simulation of DHTJoin."""

    method = "dhtjoin"

    def __init__(
        self,
        network: Network,
        feed: Feed,
        submissions: Sequence[Submission],
        settings: Settings,
        seed: int,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(network, feed, submissions, settings, seed, progress)
        self.plans = [plan(s.query, feed.columns) for s in submissions]
        self.peers: dict[int, Peer] = {}
        self.slack_us = self._slack_us()
        self._rng = random.Random(seed)
        self.tables = QueryTables(self.plans)
        self._key_of: dict[int, int] = {}
        self._from_order = [_order(p) for p in self.plans]
        self.lost_peers: list[Peer] = []
        self.members = Members(self)
        self.failures = Failures(self, seed)
        self.alerts = Alerts(self)
        self.partners = Partners(self, settings.partners) if settings.partners else None

    def submit(self, query: Started) -> None:
        """Disseminate the query; where no node has failed, all have it in their tables before the query starts."""
        tree = self.members.tree(query.submission.node)
        arrival = self.clock.now + tree.edges_of(self.network.delays_us)
        assert int(arrival.max()) <= query.start_us, "the query starts when every node that the tree reaches knows it"
        self.traffic.add_many("disseminate", arrival[tree.parent[tree.parent >= 0]])
        arrival[~tree.reached] = NEVER
        self.tables.bring(query.number, arrival)

    def knows(self, node: int, query: int) -> bool:
        """Whether a query is in a node's table by now."""
        return self.tables.knows(node, query, self.clock.now)

    def insert(self, row: int) -> None:
        """Index a tuple on each attribute that a query in its source's table joins it on."""
        stream, time = self.feed.streams[row], self.feed.times_us[row]
        source = self.source_node[stream]
        for attribute, targets in self.tables.needs(source, self.clock.now).get(stream, {}).items():
            value = self.feed.values[row][self.feed.columns[stream].index(attribute)]
            wanting = [t for t in targets if time >= self.queries[t.query].start_us]
            active = self.alerts.active(wanting, row) if wanting else wanting
            if active and value is not None:
                self.index(source, row, value, active)

    def index(self, source: int, row: int, value: int, targets: Sequence[Target]) -> None:
        """put(h(value), tuple): one message, whatever the number of queries that share it."""
        route = self.network.route(source, self.key(value))
        self.indexed += 1
        self.traffic.add("index", self.clock.now, route.hops)
        self.clock.at(self.clock.now + route.delay_us, self._tuple_arrives, route.owner, row, value, targets)

    def deliver(self, node: int, target: Target, entry: Entry) -> None:
        """An entry reaches the node that joins it: its key's owner, or a partner of that."""
        if self.failures.takes(node) or not self.alerts.lets_through(node, target, entry):
            return
        peer, operator = self.peer(node), self.plans[target.query].operators[target.operator]
        is_root = operator.consumer is None
        wants_entries = not is_root or self.settings.keeps_answers or bool(operator.residual)
        address = (target.query, target.operator)
        found = peer.arrive(self.clock.now, address, len(operator.ports), target.port, entry, wants_entries)
        combined = [_combined(parts) for parts in found.entries]
        if operator.residual:
            combined = [c for c in combined if self._satisfies(operator, c.members)]
        if is_root:
            count = len(combined) if wants_entries else found.count
            self.answer(target.query, node, count, self._in_from_order(target.query, combined))
        else:
            self._forward(node, target, operator, combined)
        if self.partners:
            self.partners.after_arrival(node)

    def peer(self, node: int) -> Peer:
        """The windows of a node."""
        if node not in self.peers:
            shed, memory = shedding_named(self.settings.shedding), self.settings.memory
            counts = shed is least_productive or bool(self.settings.outages)
            self.peers[node] = Peer(memory, shed, self.slack_us, self._rng, counts)
        return self.peers[node]

    def entry(self, row: int, target: Target, value: int) -> Entry:
        """A tuple as an entry of one query's window."""
        time, port = self.feed.times_us[row], self.plans[target.query].operators[target.operator].ports[target.port]
        return Entry(time, time + self.plans[target.query].windows_us[port.alias], (row,), value)

    def n_shed(self) -> int:
        """How many entries all peers together gave up or refused."""
        return sum(peer.n_shed for peer in (*self.peers.values(), *self.lost_peers))

    def counters(self) -> dict[str, int]:
        """What alerts and partners counted, as far as there are any."""
        counted = dict(self.partners.counters) if self.partners else {}
        if self.settings.outages:
            useful = sum(peer.n_useful for peer in (*self.peers.values(), *self.lost_peers))
            counted |= {**self.alerts.counters, "useless": self.intermediate - useful}
        if self.settings.failures:
            counted |= self.failures.counters
        return counted | dict(self.members.counters)

    def route_entry(self, owner: int, target: Target, entry: Entry) -> None:
        """An entry has reached the node that its key was looked up at."""
        self.arrive(owner, entry.value, [(target, entry)])

    def arrive(self, node: int, value: int, pairs: Sequence[tuple[Target, Entry]]) -> None:
        """Entries have come to their key's owner: join them there, or pass them on to whoever is in charge."""
        if self.members.keeps_waiting(node, value, pairs):
            return
        if self.partners:
            self.partners.route(node, pairs)
            return
        for target, entry in pairs:
            self.deliver(node, target, entry)

    def _tuple_arrives(self, node: int, row: int, value: int, targets: Sequence[Target]) -> None:
        self.arrive(node, value, [(target, self.entry(row, target, value)) for target in targets])

    def _forward(self, node: int, target: Target, operator: Operator, combined: Sequence[Entry]) -> None:
        """Re-index intermediate results on the key of the consumer's port (DHTJoin 3.3.2)."""
        assert operator.consumer is not None
        to = Target(target.query, *operator.consumer)
        key = self.plans[target.query].operators[to.operator].ports[to.port].key
        for entry in combined:
            value = self._value(entry.members, key)
            if value is None:
                continue
            route = self.network.route(node, self.key(value))
            self.intermediate += 1
            self.traffic.add("reindex", self.clock.now, route.hops)
            self.alerts.note_sender(to, route.owner, node)
            moved = Entry(entry.newest, entry.deadline, entry.members, value)
            self.clock.at(self.clock.now + route.delay_us, self.route_entry, route.owner, to, moved)

    def owner(self, value: int) -> int:
        """The node that tuples with this value are indexed at."""
        return self.network.owner(self.key(value))

    def key(self, value: int) -> int:
        """The place of a value on the ring."""
        key = self._key_of.get(value)
        if key is None:
            key = self._key_of[value] = int(self.network.ring.keys_of_values([value])[0])
        return key

    def _value(self, members: tuple[int, ...], place: Field) -> int | None:
        return self.feed.values[members[place.member]][place.column]

    def _satisfies(self, operator: Operator, members: tuple[int, ...]) -> bool:
        pairs = ((self._value(members, a), self._value(members, b)) for a, b in operator.residual)
        return all(a is not None and a == b for a, b in pairs)

    def _in_from_order(self, query: int, combined: Sequence[Entry]) -> list[tuple[int, ...]]:
        order = self._from_order[query]
        return [tuple(entry.members[place] for place in order) for entry in combined]

    def _slack_us(self) -> int:
        """The longest time between an entry's newest tuple and its arrival, with every detour it may take."""
        depth = max((p.depth for p in self.plans), default=1)
        slack = (depth + 1) * self.network.longest_us
        if self.settings.alerts == "exact":
            slack += round(self.settings.detect_s * SECOND_US) * depth + 2 * (depth + 1) * self.network.longest_link_us
        changes = len(self.settings.joins) + len(self.settings.leaves)
        slack += 3 * changes * (depth + 1) * self.network.longest_link_us  # sent on, and waiting for a handover
        if self.settings.partners:
            slack += 6 * depth * self.network.longest_link_us  # two of them for what was held back by alerts
        return slack


def _combined(parts: Sequence[Entry]) -> Entry:
    newest, deadline = max(e.newest for e in parts), min(e.deadline for e in parts)
    return Entry(newest, deadline, tuple(row for e in parts for row in e.members), parts[0].value)


def _order(chosen: OperatorTree) -> list[int]:
    """For each input in the order of FROM, its place among the root's members."""
    return [chosen.root.members.index(alias) for alias in chosen.query.aliases]
