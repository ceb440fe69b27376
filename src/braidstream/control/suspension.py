"""Suspend and resume (DHTJoin 4.2): intermediate results that nobody can use for now are not produced.

When a stream has been silent for longer than a limit, the intermediate results that wait to be joined with it are
useless work. Their joins are suspended, and so are the joins that feed only those. When it speaks again they resume:
unlike the paper's, ours lose nothing, because what was not produced since the suspension is produced first. That needs
its tuples. While the watermark waits for the silent stream they are kept; where it goes on without it (`idle`), a join
is suspended only once no stored tuple of the stream can be joined with what is still to come (`joinable`).

Pure: what was seen in, which joins are suspended and which resume out. Memory: for each suspended join the last epoch
whose tuples it has joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

__all__ = ["Suspension", "suspend"]


@dataclass(frozen=True)
class Suspension:
    """The joins suspended from now on, and those to be resumed, each with the last epoch that it has joined."""

    suspended: Mapping[str, int]
    resumed: Mapping[str, int]


def suspend(
    siblings: Mapping[str, Set[str]],
    parents: Mapping[str, str],
    newest: Mapping[str, int],
    spoke: Set[str],
    limit_us: int | None,
    memory: Mapping[str, int],
    epoch: int,
    joinable: Set[str] = frozenset(),
) -> Suspension:
    """Decide at the end of an epoch. `siblings[join]` are the streams its result waits for, `parents` whom it feeds.

    Nothing that waits for a `joinable` stream is suspended, however long it has been silent.
    """
    now = max(newest.values(), default=0)

    def is_silent(stream: str) -> bool:
        if limit_us is None or stream in spoke or stream in joinable:
            return False
        return stream not in newest or now - newest[stream] > limit_us

    idle = {join for join, streams in siblings.items() if newest and any(is_silent(stream) for stream in streams)}
    while more := {join for join, parent in parents.items() if parent in idle} - idle:
        idle |= more
    suspended = {join: memory.get(join, epoch) for join in sorted(idle)}
    resumed = {join: since for join, since in memory.items() if join not in idle}
    return Suspension(suspended, resumed)
