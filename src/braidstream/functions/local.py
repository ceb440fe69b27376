"""A plan in one process, epoch by epoch: the nodes of `nodes.py` one after the other.

It is how tests run hundreds of plans, how training mode measures phases, and the shortest description of what the plan
does on Spark. State passes through its packed form between epochs, as it does in a checkpoint.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from braidstream.functions.batch import WindowBatch, pack, unpack
from braidstream.functions.nodes import Message, NodeReport, NodeState, Setup, run_node

__all__ = ["LocalRun"]


class LocalRun:
    """Runs a plan. `state` is all that a restart needs; `packed` sends messages as bytes, as the exchange does."""

    def __init__(
        self, setup: Setup, state: dict[tuple[int, int], pa.Table] | None = None, packed: bool = False
    ) -> None:
        self.setup, self.packed = setup, packed
        self.state = dict(state or {})
        self.reports: list[NodeReport] = []

    def epoch(self, rows: Sequence[WindowBatch]) -> list[WindowBatch]:
        """Run one epoch over new samples (or rows) in the order of arrival; gives its results."""
        results: list[WindowBatch] = []
        inboxes: dict[tuple[int, int], list[Message]] = defaultdict(list)
        after: dict[tuple[int, int], pa.Table] = {}
        self.reports = []
        for index, stage in enumerate(self.setup.plan.stages):
            for node in range(stage.n_nodes):
                known = self.state.get((index, node))
                before = NodeState() if known is None else NodeState.unpack(known)
                step = run_node(
                    self.setup, index, node, inboxes.pop((index, node), []), before, rows if index == 0 else ()
                )
                for message in step.messages:
                    inboxes[message.stage, message.node].append(self._sent(message, step.report))
                results += step.results
                after[index, node] = step.state.pack()
                self.reports.append(step.report)
        self.state = after
        return results

    def _sent(self, message: Message, sender: NodeReport) -> Message:
        if not self.packed or message.kind != "windows":
            return message
        started = time.perf_counter()
        blob = pack(message.batch)
        sender.exchange_s += time.perf_counter() - started
        sender.bytes_out += blob.size
        return Message(message.stage, message.node, message.kind, message.child, unpack(blob), message.now)

    def total(self, name: str) -> int:
        """A counter of the last epoch over all nodes."""
        return sum(getattr(report, name) for report in self.reports)
