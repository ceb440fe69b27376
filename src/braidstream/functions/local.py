"""A plan in one process, epoch by epoch: the nodes of `nodes.py` one after the other.

It is how tests run hundreds of plans, how training mode measures phases, and the shortest description of what the plan
does on Spark. State passes through its packed form between epochs, as it does in a checkpoint. With a `wire`, windows
are packed and carried over a local socket, from the source of the stream to the taker of the results, and each side's
time is in its report.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from braidstream.functions.nodes import Message, NodeReport, NodeState, Setup, run_node
from braidstream.functions.window_batch import WindowBatch, pack, unpack
from braidstream.functions.wire import Wire

__all__ = ["LocalRun"]

Place = tuple[int, int]


class LocalRun:
    """Runs a plan. `state` is all that a restart needs."""

    def __init__(
        self,
        setup: Setup,
        state: dict[Place, pa.Table] | None = None,
        wire: Wire | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.setup, self.wire, self.clock = setup, wire, clock
        self.state = dict(state or {})
        self.reports: list[NodeReport] = []
        self._received: dict[Place, tuple[float, int]] = {}

    def epoch(self, rows: Sequence[WindowBatch]) -> list[WindowBatch]:
        """Run one epoch over new samples (or rows) in the order of arrival; gives its results."""
        results: list[WindowBatch] = []
        inboxes: dict[Place, list[Message]] = defaultdict(list)
        after: dict[Place, pa.Table] = {}
        self.reports, self._received = [], {}
        source = NodeReport(-1, "source", 0)
        rows = [self._carried(batch, source, (0, 0)) for batch in rows]
        for index, stage in enumerate(self.setup.plan.stages):
            for node in range(stage.n_nodes):
                here = (index, node)
                before = NodeState.unpack(self.state[here]) if here in self.state else NodeState()
                taken = rows if index == 0 else ()
                step = run_node(self.setup, index, node, inboxes.pop(here, []), before, taken, self.clock)
                seconds, n_bytes = self._received.get(here, (0.0, 0))
                step.report.exchange_s, step.report.bytes_in = seconds, n_bytes
                for message in step.messages:
                    there = (message.stage, message.node)
                    is_data = message.kind == "windows"
                    batch = self._carried(message.batch, step.report, there) if is_data else message.batch
                    inboxes[there].append(replace(message, batch=batch))
                results += [self._carried(batch, step.report, (-1, -1)) for batch in step.results]
                after[here] = step.state.pack()
                self.reports.append(step.report)
        self.state = after
        return results

    def _carried(self, batch: WindowBatch, sender: NodeReport, receiver: Place) -> WindowBatch:
        if self.wire is None:
            return batch
        started = self.clock()
        blob = pack(batch)
        packed = self.clock()
        arrived, send_s, receive_s = self.wire.carry(blob)
        there = self.clock()
        found = unpack(arrived)
        sender.exchange_s += packed - started + send_s
        sender.bytes_out += blob.size
        seconds, n_bytes = self._received.get(receiver, (0.0, 0))
        self._received[receiver] = (seconds + receive_s + self.clock() - there, n_bytes + blob.size)
        return found

    def total(self, name: str) -> int:
        """A counter of the last epoch over all nodes."""
        return sum(getattr(report, name) for report in self.reports)
