"""Suspend and resume: producers are told when nothing can come of what they produce (DHTJoin 4.2).

Idea: when the source of a stream is down, a consumer of that stream alerts its *other* producers (procedure 1). A
producer that is told to suspend stops producing for that query and, being a consumer itself, tells its own producers
(procedure 2), down to the sources. A source keeps indexing whatever another query still needs. When the stream comes
back, resume takes the same way. A consumer further up notices in turn that its producer has dried up.

Two ways to act on an alert:
- "paper": suspend as soon as the failure is detected, and drop what is not produced meanwhile. Results that old tuples
  of the silent stream, or new ones after its return, would have had with what was dropped are lost.
- "exact": suspend only when the last tuples of the silent stream have expired, and hold back instead of dropping; on
  resume, what is still within its window is sent after all. Nothing is lost; only what could join nothing is saved.

Detection is the DHT's own business (it keeps track of its neighbours), takes `detect_s` and is not counted as messages.
Limitation: an operator is spread over many peers by value, so the failure of one of them starves no other operator as a
whole; alerts are raised for sources, and what a failed peer held back is lost with it. Cost: one message for each pair
of a consumer and a producer that it heard from.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from braidstream.lab.overlay.operators import Target
from braidstream.lab.overlay.shared import SECOND_US, Outage

if TYPE_CHECKING:
    from braidstream.lab.overlay.dht_method import DHTJoin
    from braidstream.lab.overlay.peer import Entry

__all__ = ["Alerts"]


class Alerts:
    """Who is suspended, and what is held back."""

    def __init__(self, run: DHTJoin) -> None:
        self._run = run
        self._drops = run.settings.alerts == "paper"
        self._senders: dict[tuple[Target, int], set[int]] = {}
        self._suspended_sources: set[Target] = set()
        self._suspended_peers: set[tuple[int, int, int]] = set()
        self._held_rows: dict[Target, list[int]] = {}
        self._held_entries: dict[tuple[int, int, int], list[tuple[Target, Entry]]] = {}
        self.counters = {"suspended": 0, "resumed": 0, "held": 0, "dropped": 0}
        if run.settings.alerts != "off":
            for outage in run.settings.outages:
                self._watch(outage)

    def active(self, targets: Sequence[Target], row: int) -> Sequence[Target]:
        """The targets that a source still produces for; the row is held back for the others."""
        if not self._suspended_sources:
            return targets
        for target in targets:
            if target in self._suspended_sources:
                self.counters["dropped" if self._drops else "held"] += 1
                if not self._drops:
                    self._held_rows.setdefault(target, []).append(row)
        return [target for target in targets if target not in self._suspended_sources]

    def lets_through(self, node: int, target: Target, entry: Entry) -> bool:
        """Whether a peer may produce with an arriving entry now."""
        key = (node, target.query, target.operator)
        if key not in self._suspended_peers:
            return True
        self.counters["dropped" if self._drops else "held"] += 1
        if not self._drops:
            self._held_entries.setdefault(key, []).append((target, entry))
        return False

    def note_sender(self, target: Target, node: int, sender: int) -> None:
        """A consumer knows whom its intermediate results come from."""
        if self._run.settings.outages:
            self._senders.setdefault((target, node), set()).add(sender)

    def _watch(self, outage: Outage) -> None:
        """Let the consumers of the silent stream, and those above them, notice its failure and its return."""
        detect = round(self._run.settings.detect_s * SECOND_US)
        down, back = round(outage.from_s * SECOND_US), round(outage.to_s * SECOND_US)
        for query, chosen in enumerate(self._run.plans):
            for stream, _, operator, port in chosen.leaves():
                if stream != outage.stream:
                    continue
                window = chosen.windows_us[chosen.operators[operator].ports[port].alias]
                wait = 0 if self._drops else window + self._run.slack_us
                at: tuple[int, int] | None = (operator, port)
                for level in itertools.count(1):
                    if at is None or down + wait + level * detect >= back:
                        break
                    self._run.clock.at(down + wait + level * detect, self._raise, query, *at, True)
                    self._run.clock.at(back + level * detect, self._raise, query, *at, False)
                    at = chosen.operators[at[0]].consumer

    def _raise(self, query: int, operator: int, dry_port: int, suspends: bool) -> None:
        """Procedure 1: each peer that runs the operator alerts the producers of its other ports."""
        ports = [p for p in range(len(self._run.plans[query].operators[operator].ports)) if p != dry_port]
        for node, peer in list(self._run.peers.items()):
            if (query, operator) in peer.tables:
                self._alert(node, query, operator, ports, suspends)

    def _alert(self, node: int, query: int, operator: int, ports: Sequence[int], suspends: bool) -> None:
        for number in ports:
            port, target = self._run.plans[query].operators[operator].ports[number], Target(query, operator, number)
            if port.operator is None:
                source = self._run.source_node[self._run.plans[query].stream_of[port.alias]]
                self._send(node, source, self._source_told, target, suspends)
                continue
            for sender in sorted(self._senders.get((target, node), ())):
                self._send(node, sender, self._peer_told, (sender, query, port.operator), suspends)

    def _send(self, node: int, to: int, action: Callable[..., None], *arguments: object) -> None:
        route = self._run.network.direct(node, to)
        self._run.traffic.add("alert", self._run.clock.now, route.hops)
        self._run.clock.at(self._run.clock.now + route.delay_us, action, *arguments)

    def _source_told(self, target: Target, suspends: bool) -> None:
        """A source suspends or resumes one query's use of its stream; other queries go on."""
        if suspends == (target in self._suspended_sources):
            return
        self.counters["suspended" if suspends else "resumed"] += 1
        if suspends:
            self._suspended_sources.add(target)
            return
        self._suspended_sources.remove(target)
        held, self._held_rows[target] = self._held_rows.get(target, []), []
        for row in held:
            self._send_after_all(target, row)

    def _peer_told(self, key: tuple[int, int, int], suspends: bool) -> None:
        """Procedure 2: a producer passes the alert on to its own producers, then suspends or resumes itself."""
        if suspends == (key in self._suspended_peers):
            return
        node, query, operator = key
        self.counters["suspended" if suspends else "resumed"] += 1
        self._alert(node, query, operator, range(len(self._run.plans[query].operators[operator].ports)), suspends)
        if suspends:
            self._suspended_peers.add(key)
            return
        self._suspended_peers.remove(key)
        held, self._held_entries[key] = self._held_entries.get(key, []), []
        for target, entry in held:
            self._deliver_after_all(node, target, entry)

    def _deliver_after_all(self, node: int, target: Target, entry: Entry) -> None:
        """Join an entry that was held back; where there are partners its owner says who is in charge of it by now."""
        run = self._run
        if run.partners is None:
            run.deliver(node, target, entry)
            return
        route = run.network.direct(node, run.owner(entry.value))
        run.traffic.add("partner", run.clock.now, route.hops)
        run.clock.at(run.clock.now + route.delay_us, run.route_entry, route.owner, target, entry)

    def _send_after_all(self, target: Target, row: int) -> None:
        """Index a row that was held back, if it can still be part of a result."""
        run = self._run
        operator = run.plans[target.query].operators[target.operator]
        stream = run.feed.streams[row]
        value = run.feed.values[row][run.feed.columns[stream].index(operator.ports[target.port].attribute)]
        if value is not None and run.entry(row, target, value).deadline + run.slack_us >= run.clock.now:
            run.index(run.source_node[stream], row, value, [target])
