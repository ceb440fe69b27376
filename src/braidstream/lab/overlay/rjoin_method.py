"""RJoin, the baseline: all tuples are indexed everywhere, and queries travel from tuple to tuple (DHTJoin 7).

Idea: every tuple is indexed twice for each of its attributes, under the attribute's name and under its name and value,
whether a query wants it or not. A query is indexed under one of its attributes' names. Each tuple that arrives there
rewrites it: the tuple's values take the place of its stream, and the rest of the query is indexed under the name and
value that the next stream must have. There it meets the tuples already stored, and waits for those still to come; each
match rewrites it again, until no stream is left and the result goes to the user.

Invariant: a rewritten query and a tuple meet at the node of their common name and value, once, by whichever arrives
last; so each result is found once, and with enough memory the answer is exactly the join from the query's start on.
Cost: 2 * attributes * log2(n) / 2 messages a tuple, log2(n) / 2 for each rewriting. Messages to places that no query
can ever look at are counted, but not followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from braidstream.lab.overlay.network import Network
from braidstream.lab.overlay.operators import UNBOUNDED_US, plan
from braidstream.lab.overlay.peer import Entry
from braidstream.lab.overlay.ring import place
from braidstream.lab.overlay.shared import OverlayRun, Settings, Started
from braidstream.lab.overlay.workload import Feed, Submission
from braidstream.query.model import Query

__all__ = ["RJoin"]

Name = tuple[str, int]
"""A stream and the place of an attribute in it."""


@dataclass(frozen=True)
class _Step:
    """Bind the next input: where its tuples are found, and what must be equal between it and those bound before."""

    stream: str
    column: int
    window_us: int
    same: tuple[tuple[int, int, int], ...]
    """(own column, bound member, its column); the first one is what the rewritten query is indexed under."""


@dataclass
class _Place:
    """What a node keeps under one name and value: tuples, and rewritten queries that wait for more of them."""

    rows: deque[int] = field(default_factory=deque)
    waiting: deque[tuple[int, Entry]] = field(default_factory=deque)


class RJoin(OverlayRun):
    """The simulation of RJoin."""

    method = "rjoin"

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
        self._steps = [_steps(s, feed) for s in submissions]
        bound = [_binding_order(s.query) for s in submissions]
        self._orders = [[o.index(a) for a in s.query.aliases] for s, o in zip(submissions, bound, strict=True)]
        self._slack_us = (max((len(s) for s in self._steps), default=1) + 1) * network.longest_us
        self._waiting_at: dict[Name, list[Started]] = {}
        self._looked_at: dict[Name, int] = {}
        self._keep_us = {
            stream: max((t.window_us for s in self._steps for t in s if t.stream == stream), default=0)
            for stream in feed.columns
        }
        self._places: dict[tuple[Name, int], _Place] = {}
        self._keys: dict[tuple[Name, int | None], int] = {}

    def submit(self, query: Started) -> None:
        """Index the query under the name of its first attribute."""
        steps = self._steps[query.number]
        first = (steps[0].stream, steps[0].column)
        route = self.network.route(query.submission.node, self._key(first, None))
        self.traffic.add("submit", self.clock.now, route.hops)
        self._waiting_at.setdefault(first, []).append(query)
        for step in steps[1:]:
            self._looked_at.setdefault((step.stream, step.same[0][0]), query.start_us)

    def insert(self, row: int) -> None:
        """Index a tuple twice for each attribute: by its name, and by its name and value."""
        stream, time = self.feed.streams[row], self.feed.times_us[row]
        source, hops = self.source_node[stream], 0
        for column, value in enumerate(self.feed.values[row]):
            name = (stream, column)
            by_name = self.network.route(source, self._key(name, None))
            hops += by_name.hops
            self.indexed += 1
            if any(time >= query.start_us for query in self._waiting_at.get(name, ())):
                self.clock.at(time + by_name.delay_us, self._at_name, by_name.owner, name, row)
            if value is None:
                continue
            by_value = self.network.route(source, self._key(name, value))
            hops += by_value.hops
            self.indexed += 1
            if time >= self._looked_at.get(name, UNBOUNDED_US):
                self.clock.at(time + by_value.delay_us, self._at_value, by_value.owner, name, value, row)
        self.traffic.add("index", self.clock.now, hops)

    def _at_name(self, node: int, name: Name, row: int) -> None:
        """A tuple meets the queries that wait under an attribute's name: each is rewritten with it."""
        time = self.feed.times_us[row]
        for query in self._waiting_at[name]:
            if time >= query.start_us:
                window = self._steps[query.number][0].window_us
                self._rewrite(node, query.number, [Entry(time, time + window, (row,), 0)])

    def _at_value(self, node: int, name: Name, value: int, row: int) -> None:
        """A tuple meets the rewritten queries that wait for its value, and is stored."""
        here, now = self._places.setdefault((name, value), _Place()), self.clock.now
        while here.waiting and here.waiting[0][1].deadline + self._slack_us < now:
            here.waiting.popleft()
        rewritten: dict[int, list[Entry]] = {}
        for query, bound in here.waiting:
            if (found := self._matched(query, bound, row)) is not None:
                rewritten.setdefault(query, []).append(found)
        here.rows.append(row)
        for query, entries in rewritten.items():
            self._rewrite(node, query, entries)

    def _rewritten_arrives(self, node: int, name: Name, value: int, query: int, bound: Entry) -> None:
        """A rewritten query meets the tuples stored under its value, and waits for others."""
        here, now = self._places.setdefault((name, value), _Place()), self.clock.now
        keep = self._keep_us[name[0]] + self._slack_us
        while here.rows and self.feed.times_us[here.rows[0]] + keep < now:
            here.rows.popleft()
        found = [entry for row in here.rows if (entry := self._matched(query, bound, row)) is not None]
        here.waiting.append((query, bound))
        self._rewrite(node, query, found)

    def _matched(self, query: int, bound: Entry, row: int) -> Entry | None:
        """The query rewritten with one more tuple, if the tuple fits."""
        step, time = self._steps[query][len(bound.members)], self.feed.times_us[row]
        newest, deadline = max(bound.newest, time), min(bound.deadline, time + step.window_us)
        if time < self.queries[query].start_us or newest > deadline:
            return None
        values = self.feed.values
        for own, member, column in step.same:
            if values[row][own] is None or values[row][own] != values[bound.members[member]][column]:
                return None
        return Entry(newest, deadline, (*bound.members, row), 0)

    def _rewrite(self, node: int, query: int, entries: Sequence[Entry]) -> None:
        """Index rewritten queries where their next tuples are; complete ones are results."""
        if not entries:
            return
        steps = self._steps[query]
        n_bound = len(entries[0].members)
        if n_bound == len(steps):
            order = self._orders[query]
            self.answer(query, node, len(entries), [tuple(e.members[i] for i in order) for e in entries])
            return
        own, member, column = steps[n_bound].same[0]
        name = (steps[n_bound].stream, own)
        for entry in entries:
            value = self.feed.values[entry.members[member]][column]
            if value is None:
                continue
            route = self.network.route(node, self._key(name, value))
            self.intermediate += 1
            self.traffic.add("rewrite", self.clock.now, route.hops)
            arrival = self.clock.now + route.delay_us
            self.clock.at(arrival, self._rewritten_arrives, route.owner, name, value, query, entry)

    def _key(self, name: Name, value: int | None) -> int:
        key = self._keys.get((name, value))
        if key is None:
            key = self._keys[name, value] = place(f"{name[0]}.{name[1]}={value}", self.network.ring.bits)
        return key


def _binding_order(query: Query) -> list[str]:
    """The inputs in an order in which each one shares an attribute class with those before it."""
    classes = query.key_classes or query.join_edges
    order = [query.aliases[0]]
    while len(order) < len(query.aliases):
        linked = {alias for c in classes if set(c.aliases) & set(order) for alias in c.aliases}
        order.append(next(alias for alias in query.aliases if alias in linked and alias not in order))
    return order


def _steps(submission: Submission, feed: Feed) -> list[_Step]:
    chosen = plan(submission.query, feed.columns)  # also refuses what the overlay does not evaluate
    classes = submission.query.key_classes or submission.query.join_edges
    order = _binding_order(submission.query)

    def column(alias: str, expression: str) -> int:
        return list(feed.columns[chosen.stream_of[alias]]).index(expression.strip("`"))

    steps = []
    for position, alias in enumerate(order):
        same = []
        for key in (c for c in classes if alias in c.aliases):
            bound = next((b for b in order[:position] if b in key.aliases), None)
            if bound is not None:
                own = column(alias, key.expression(alias))
                same.append((own, order.index(bound), column(bound, key.expression(bound))))
        first = next(c for c in classes if alias in c.aliases)
        steps.append(
            _Step(
                chosen.stream_of[alias],
                column(alias, first.expression(alias)),
                chosen.windows_us[alias],
                tuple(same),
            )
        )
    return steps
