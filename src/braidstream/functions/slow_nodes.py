"""Nodes that S-Merge waits for no longer: its time-out in wall time (GSDM 4.1).

What a merge waits for is told at an epoch's end: a child of a window distribute that took longer than the fastest of
its siblings by more than `patience` is *slow*. From the next epoch on, and for `REST` epochs, it is sent no windows:
those that are its own are given up and counted, and what comes after them is not held. Then it is tried again.

Invariant: which children are slow in an epoch stands in the manifest before it, so a replay gives up the same windows;
the clock is read while an epoch runs, and asked once it is over. Of the children of a node one at least is never slow:
the fastest. A child that got no windows is compared with nobody. Cost: O(nodes).

Limits: the epoch in which a child turns out to be slow is waited for, since Spark's stages end with their last task. A
child is told when it has windows in company: a sibling with windows is what a merge could go on with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from braidstream.functions.chains import Chain, Place, node_name
from braidstream.functions.nodes import NodeReport, Setup
from braidstream.functions.templates import Child, FunctionPlan, MergeWindows
from braidstream.query.duration import describe_duration

__all__ = ["REST", "given_up_by", "slow_children", "slow_nodes", "slow_warnings"]

REST = 10
"""For how many epochs a slow child gets no windows."""


def slow_children(slow: Mapping[str, int], function: int, plan: FunctionPlan, epoch: int) -> frozenset[Child]:
    """The children of a function's plan that get no windows in an epoch, of those that a manifest calls slow."""
    return frozenset(
        (level, child) for level, child in _children(plan) if slow.get(_name(function, level, child), -1) >= epoch
    )


def slow_nodes(chain: Chain, slow: Mapping[str, int], nodes: Sequence[NodeReport], epoch: int) -> dict[str, int]:
    """What the manifest after an epoch calls slow: each child, by the name of its first node, with its last epoch."""
    found = {name: until for name, until in slow.items() if until > epoch}
    for function, setup in enumerate(chain.setups):
        own = [node for node in nodes if node.function == function]
        found |= {_name(function, *child): epoch + REST for child in _turned_slow(setup, own)}
    return found


def slow_warnings(chain: Chain, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    """Whose windows are given up from now on."""
    for function, setup in enumerate(chain.setups):
        for level, child in _children(setup.plan):
            until = after.get(_name(function, level, child))
            if until is not None and until != before.get(_name(function, level, child)):
                patience = describe_duration(_patience_us(setup.plan, level) or 0)
                yield (
                    f"function {setup.plan.function.name}: node {child} of level {level} took more than {patience} "
                    f"longer than the fastest: its windows are given up up to epoch {until}"
                )


def given_up_by(nodes: Collection[NodeReport]) -> int:
    """The windows that one function went on without: those not sent to a slow child of its first node, and those that
    the last one gave up, among which are all of nodes between them."""
    ends = {0, max(node.stage for node in nodes)}
    return sum(node.given_up for node in nodes if node.stage in ends)


def _children(plan: FunctionPlan) -> Iterator[Child]:
    """The children that may be slow: those of levels with a patience."""
    for level in range(len(plan.levels)):
        if _patience_us(plan, level) is not None:
            yield from ((level, child) for child in range(plan.width(level + 1)))


def _turned_slow(setup: Setup, nodes: Sequence[NodeReport]) -> Iterator[Child]:
    for level, entry in enumerate(setup.plan.levels):
        patience_us = _patience_us(setup.plan, level)
        if patience_us is None:
            continue
        for parent in range(setup.plan.width(level)):
            siblings = [(level, parent * entry.n + k) for k in range(entry.n)]
            took = {child: _took_s(setup.plan, child, nodes) for child in siblings if child not in setup.slow}
            there = {child: seconds for child, seconds in took.items() if seconds is not None}
            fastest = min(there.values(), default=0.0)
            yield from (child for child, seconds in there.items() if (seconds - fastest) * 1e6 > patience_us)


def _took_s(plan: FunctionPlan, child: Child, nodes: Sequence[NodeReport]) -> float | None:
    """How long a child's nodes took, stage after stage, the slowest of each; None for one without windows."""
    level, number = child
    first, last = level + 1, len(plan.stages) - 2 - level
    took: dict[int, float] = {}
    has_windows = False
    for node in nodes:
        if first <= node.stage <= last:
            across = plan.stages[node.stage].n_nodes // plan.width(level + 1)
            if node.node // across == number:
                took[node.stage] = max(took.get(node.stage, 0.0), node.work_s + node.exchange_s)
                has_windows = has_windows or (node.stage == first and node.windows > 0)
    return sum(took.values()) if has_windows else None


def _patience_us(plan: FunctionPlan, level: int) -> int | None:
    combine = plan.levels[level].combine
    return combine.patience_us if isinstance(combine, MergeWindows) else None


def _name(function: int, level: int, child: int) -> str:
    """A child is called as its first node: the one that takes its windows."""
    return node_name(Place(function, level + 1), child)
