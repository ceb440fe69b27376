"""What the overlay's tests share: small feeds, and the oracle's answer to a query over one."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from braidstream.lab.overlay.network import Link, Network
from braidstream.lab.overlay.ring import Ring
from braidstream.lab.overlay.shared import Outcome, Settings
from braidstream.lab.overlay.workload import Feed, Submission
from braidstream.lab.testing.oracle import Stream, join

SECOND = 1_000_000


def expected(feed: Feed, submission: Submission, start_us: int, settings: Settings) -> Counter[tuple[int, ...]]:
    """The rows of each result, by the readable nested loop."""
    query = submission.query
    streams = []
    for entry in query.inputs:
        rows = [
            {"row": i, "ts": feed.times_us[i], **dict(zip(feed.columns[entry.stream], feed.values[i], strict=True))}
            for i, stream in enumerate(feed.streams)
            if stream == entry.stream
            and feed.times_us[i] >= start_us
            and not any(o.stream == stream and o.covers(feed.times_us[i]) for o in settings.outages)
        ]
        streams.append(Stream(entry.alias, rows, entry.window_us))
    classes = query.key_classes or query.join_edges
    equalities = [
        (f"{a}.{x.strip('`')}", f"{b}.{y.strip('`')}") for c in classes for (a, x), (b, y) in pairwise(c.members)
    ]
    return Counter(tuple(composite[a]["row"] for a in query.aliases) for composite in join(streams, equalities))


def assert_exact(outcome: Outcome, feed: Feed, submissions: list[Submission], network: Network, s: Settings) -> None:
    """Every query's answer is the oracle's, each result once."""
    assert outcome.answers is not None
    for number, submission in enumerate(submissions):
        wanted = expected(feed, submission, submission.time_us + network.longest_us, s)
        assert Counter(outcome.answers[number]) == wanted
        assert outcome.results[number] == wanted.total()


def network(n_nodes: int, seed: int = 1, *, even: bool = False, link: Link | None = None) -> Network:
    """A small network."""
    ring = Ring.even(n_nodes) if even else Ring.random(n_nodes, seed)
    return Network(ring, link or Link(), seed)
