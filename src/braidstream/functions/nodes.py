"""What the nodes of a plan do in one epoch: pure, the same on Spark, in one process and in training.

    partition   form windows (the first node), send each to a child, or its parts to every child; tell the node that
                combines which windows to expect
    compute     call the function; keep windows answered with "later" for the next epoch
    combine     settle, join, send on; the last node gives the results

A node is a function of its state, its messages and the plan. Invariant: after the last stage every window of the epoch
is a result, given up, or waiting in somebody's state. State is arrays and numbers (`NodeState`), packed as Arrow.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from braidstream.functions.aligning import Alignment, aligned
from braidstream.functions.combine import Settled, join_parts, settle
from braidstream.functions.failures import FunctionFailed, guarded
from braidstream.functions.function import StreamFunction, name_of
from braidstream.functions.templates import Child, Distribute, FunctionPlan, Join, Level, Split, Stage
from braidstream.functions.window_batch import I64, WindowBatch, ordered, pack, pieces, unpack
from braidstream.functions.windowing import FormerState, WindowSpec, advance

__all__ = ["CALL_BYTES", "Message", "NodeReport", "NodeState", "Setup", "Step", "run_node"]

_NUMBERS = ("next_seq", "arrived", "skip", "newest", "watermark")
CALL_BYTES = 8 << 20
"""User code gets at most about this much at a time: large enough to hide the call, small enough for the cache."""


@dataclass(frozen=True)
class Setup:
    """What every node knows."""

    stream: str
    spec: WindowSpec
    delay_us: int
    plan: FunctionPlan
    alignment: Alignment | None = None
    """Of several streams: how their rows are put side by side."""
    fields: tuple[str, ...] | None = None
    """Of the results of another function: the fields that windows have; None: all."""
    slow: frozenset[Child] = frozenset()
    """Children that are sent no windows in this epoch (`functions.slow_nodes`)."""


@dataclass(frozen=True)
class Message:
    """What one node sends another: "windows"; a "tick" with the time; or ("expect") the windows to be combined."""

    stage: int
    node: int
    kind: str
    child: int
    batch: WindowBatch
    now: int | None = None
    """The time stamp of the stream's newest window; None before the first."""


@dataclass(frozen=True)
class NodeState:
    """What a node keeps between epochs."""

    numbers: Mapping[str, int | None] = field(default_factory=dict)
    batches: Mapping[str, tuple[WindowBatch, ...]] = field(default_factory=dict)

    @property
    def holds_windows(self) -> bool:
        """Whether windows wait here, beyond the samples that are not yet windows."""
        return any(batches for name, batches in self.batches.items() if not name.startswith(("tail", "pending")))

    def pack(self) -> pa.Table:
        """As a table for an Arrow file: a row a batch, and the numbers in the metadata."""
        names = [name for name, batches in self.batches.items() for _ in batches]
        blobs = [pack(batch) for batches in self.batches.values() for batch in batches]
        columns = [pa.array(names, pa.string()), pa.array([memoryview(b) for b in blobs], pa.large_binary())]
        schema = pa.schema(
            [("name", pa.string()), ("blob", pa.large_binary())], {"numbers": json.dumps(dict(self.numbers))}
        )
        return pa.Table.from_arrays(columns, schema=schema)

    @classmethod
    def unpack(cls, table: pa.Table) -> NodeState:
        """From its table."""
        found: dict[str, tuple[WindowBatch, ...]] = {}
        for name, blob in zip(table.column("name"), table.column("blob"), strict=True):
            found[name.as_py()] = (*found.get(name.as_py(), ()), unpack(blob.as_buffer()))
        return cls(json.loads(table.schema.metadata[b"numbers"]), found)


@dataclass
class NodeReport:
    """What a node says of its epoch."""

    stage: int
    kind: str
    node: int
    function: int = 0
    """Which of the flow's functions the stage belongs to."""
    windows: int = 0
    """Windows that came in (for the first node: that were formed)."""
    samples: int = 0
    late_samples: int = 0
    null_rows: int = 0
    results: int = 0
    lost: int = 0
    """Windows that the function answered with no result."""
    deferred: int = 0
    """Windows that the function answered with "later"."""
    given_up: int = 0
    late: int = 0
    """Results that came after their window was given up."""
    waiting: int = 0
    work_s: float = 0.0
    exchange_s: float = 0.0
    """Time to pack and unpack what is sent and received."""
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class Step:
    """What a node did: messages to later stages, results (of the last stage only), its state, its report."""

    messages: list[Message]
    results: list[WindowBatch]
    state: NodeState
    report: NodeReport


def run_node(
    setup: Setup,
    stage: int,
    node: int,
    received: Sequence[Message],
    state: NodeState,
    rows: Sequence[WindowBatch] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Step:
    """Run one node for one epoch. `rows` are the samples of the epoch, for the first node."""
    started = clock()
    entry = setup.plan.stages[stage]
    report = NodeReport(stage, entry.kind, node)
    made = _KINDS[entry.kind](_Node(setup, stage, entry, node, state, report), received, rows)
    report.work_s = clock() - started
    return made


@dataclass
class _Node:
    setup: Setup
    stage: int
    entry: Stage
    node: int
    state: NodeState
    report: NodeReport

    @property
    def level(self) -> Level:
        return self.setup.plan.levels[self.entry.level]

    def partition(self, received: Sequence[Message], rows: Sequence[WindowBatch]) -> Step:
        if self.stage == 0:
            windows, kept = self._form(rows)
            now = _latest(self.state.numbers.get("now"), windows)
        else:
            windows, kept = [m.batch for m in received if m.kind == "windows"], NodeState()
            now = next((m.now for m in received if m.kind == "tick"), None)
        count = int(self.state.numbers.get("count") or 0)
        self.report.windows = sum(len(batch) for batch in windows)
        messages, given_up = self._send_parts(windows, count)
        messages += [self._expectation(windows, now, given_up), *self._ticks(now)]
        numbers = {**kept.numbers, "count": count + self.report.windows, "now": now}
        return Step(messages, [], NodeState(numbers, kept.batches), self.report)

    def _form(self, rows: Sequence[WindowBatch]) -> tuple[list[WindowBatch], NodeState]:
        self.report.samples = sum(len(batch) for batch in rows)
        formers: dict[str, FormerState] = {}
        delay_us = self.setup.delay_us
        if (alignment := self.setup.alignment) is not None:
            names = [f":{i}" for i in range(len(alignment.names))]
            made = aligned(alignment, [self._former(name) for name in names], rows)
            formers, rows, delay_us = dict(zip(names, made.formers, strict=True)), made.rows, 0
            self.report.late_samples, self.report.null_rows = made.late, made.left_out
        windows, formers[""], late = advance(self._former(""), rows, self.setup.spec, delay_us)
        self.report.late_samples += late
        numbers = {f"{n}{of}": getattr(one, n) for of, one in formers.items() for n in _NUMBERS}
        batches = {f"{n}{of}": getattr(one, n) for of, one in formers.items() for n in ("tail", "pending")}
        return windows, NodeState(numbers, batches)

    def _former(self, of: str) -> FormerState:
        """What window formation has kept; `of` is empty, or says which of the aligned streams."""
        n, b = self.state.numbers, self.state.batches
        return FormerState(
            next_seq=int(n.get(f"next_seq{of}") or 0),
            arrived=int(n.get(f"arrived{of}") or 0),
            skip=int(n.get(f"skip{of}") or 0),
            newest=n.get(f"newest{of}"),
            watermark=n.get(f"watermark{of}"),
            tail=tuple(b.get(f"tail{of}", ())),
            pending=tuple(b.get(f"pending{of}", ())),
        )

    def _send_parts(self, windows: Sequence[WindowBatch], count: int) -> tuple[list[Message], list[I64]]:
        """To each child its part; and the numbers of the windows that are given up, those of slow children."""
        level, messages, given_up = self.level, [], []
        for batch in windows:
            for k, part in enumerate(_parts(level, batch, count, self.setup.stream)):
                child = self.node * level.n + k
                if (self.entry.level, child) in self.setup.slow:
                    given_up.append(part.seq)
                elif len(part):
                    messages.append(Message(self.stage + 1, child, "windows", k, part))
            count += len(batch)
        return messages, given_up

    def _expectation(self, windows: Sequence[WindowBatch], now: int | None, given_up: Sequence[I64]) -> Message:
        combining = len(self.setup.plan.stages) - 1 - self.stage
        expected = _concatenated([WindowBatch(batch.seq, batch.ts) for batch in windows])
        if given_up:
            left = expected.take(~np.isin(expected.seq, np.concatenate(given_up)))
            self.report.given_up, expected = len(expected) - len(left), left
        return Message(combining, self.node, "expect", 0, expected, now)

    def _ticks(self, now: int | None) -> list[Message]:
        """The time to every child, also to one that gets no windows: it may keep some, and nodes after it wait."""
        n = self.level.n
        return [Message(self.stage + 1, self.node * n + k, "tick", 0, _NONE, now) for k in range(n)]

    def compute(self, received: Sequence[Message], rows: Sequence[WindowBatch]) -> Step:
        del rows
        arrived = [m.batch for m in received if m.kind == "windows"]
        results, later = self._answer([*self.state.batches.get("later", ()), *arrived])
        level = self.setup.plan.levels[-1]
        parent, child = divmod(self.node, level.n)
        messages = [Message(self.stage + 1, parent, "windows", child, batch) for batch in results if len(batch)]
        return Step(messages, [], NodeState({}, {"later": tuple(later)}), self.report)

    def _answer(self, windows: Sequence[WindowBatch]) -> tuple[list[WindowBatch], list[WindowBatch]]:
        results, later = [], []
        self.report.windows += sum(len(batch) for batch in windows) if self.entry.kind == "compute" else 0
        for batch in windows:
            for piece in pieces(batch, CALL_BYTES):
                answered = self.setup.plan.function.call(piece, self.setup.stream)
                results.append(answered.results)
                self.report.lost += answered.n_lost
                if answered.later is not None:
                    later.append(answered.later)
                    self.report.deferred += len(answered.later)
        return results, later

    def combine(self, received: Sequence[Message], rows: Sequence[WindowBatch]) -> Step:
        del rows
        level = self.level
        arrived = [[*self.state.batches.get(f"held{k}", ())] for k in range(level.n)]
        for message in received:
            if message.kind == "windows":
                arrived[message.child].append(message.batch)
                self.report.windows += len(message.batch)
        told = [m for m in received if m.kind == "expect"]
        now = next((m.now for m in told), None)
        expected = _concatenated([*self.state.batches.get("expected", ()), *(m.batch for m in told)])
        is_join = isinstance(level.combine, Join)
        settled = settle(expected, arrived, level.n if is_join else 1, level.combine.timeout_us, now)
        results = self._joined(level, settled) if is_join else ordered([b for child in settled.children for b in child])
        return self._hand_on(results, settled)

    def _joined(self, level: Level, settled: Settled) -> list[WindowBatch]:
        assert isinstance(level.combine, Join)
        function = level.combine.function
        declared = function if isinstance(function, StreamFunction) else None
        typed = declared or StreamFunction(name_of(function), function, self.setup.plan.function.gives)
        return [self._join(typed, parts) for parts in join_parts(settled.children, CALL_BYTES)]

    def _join(self, typed: StreamFunction, parts: Sequence[WindowBatch]) -> WindowBatch:
        stream = self.setup.stream
        answer = guarded(typed.name, stream, parts[0].ts, lambda index: typed([part.take(index) for part in parts]))
        return typed.checked(answer, parts[0], stream).results

    def _hand_on(self, results: list[WindowBatch], settled: Settled) -> Step:
        self.report.given_up, self.report.late = settled.given_up, settled.late
        self.report.results = sum(len(batch) for batch in results)
        self.report.waiting = len(settled.waiting.expected)
        kept = {f"held{k}": batches for k, batches in enumerate(settled.waiting.held) if batches}
        if len(settled.waiting.expected):
            kept["expected"] = (settled.waiting.expected,)
        state = NodeState({}, kept)
        if self.stage == len(self.setup.plan.stages) - 1:
            return Step([], results, state, self.report)
        parent, child = divmod(self.node, self.setup.plan.levels[self.entry.level - 1].n)
        messages = [Message(self.stage + 1, parent, "windows", child, batch) for batch in results]
        return Step(messages, [], state, self.report)

    def central(self, received: Sequence[Message], rows: Sequence[WindowBatch]) -> Step:
        """All phases in one node: nothing is sent, and windows stay views until the function has seen them."""
        del received
        windows, kept = self._form(rows)
        self.report.windows = sum(len(batch) for batch in windows)
        results, later = self._answer([*self.state.batches.get("later", ()), *windows])
        bare = [WindowBatch(batch.seq, batch.ts) for batch in windows]
        expected = _concatenated([*self.state.batches.get("expected", ()), *bare])
        now = _latest(self.state.numbers.get("now"), windows)
        arrived = [[*self.state.batches.get("held0", ()), *(batch for batch in results if len(batch))]]
        settled = settle(expected, arrived, 1, self.setup.plan.timeout_us, now)
        step = self._hand_on(_in_order(settled.children[0]), settled)
        batches = {**kept.batches, **step.state.batches, "later": tuple(later)}
        return Step(step.messages, step.results, NodeState({**kept.numbers, "now": now}, batches), step.report)


_NONE = WindowBatch(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
_KINDS: dict[str, Callable[[_Node, Sequence[Message], Sequence[WindowBatch]], Step]] = {
    "partition": _Node.partition,
    "compute": _Node.compute,
    "combine": _Node.combine,
    "central": _Node.central,
}


def _latest(known: int | None, windows: Sequence[WindowBatch]) -> int | None:
    """The time stamp of the newest window so far."""
    times = [t for t in (known, *(int(batch.ts[-1]) for batch in windows if len(batch))) if t is not None]
    return max(times, default=None)


def _in_order(batches: list[WindowBatch]) -> list[WindowBatch]:
    """As they are when they are in order already, which spares a copy."""
    ends = [int(batch.seq[-1]) for batch in batches]
    begins = [int(batch.seq[0]) for batch in batches]
    rising = all((batch.seq[1:] > batch.seq[:-1]).all() for batch in batches)
    if rising and all(end < begin for end, begin in zip(ends, begins[1:], strict=False)):
        return batches
    return ordered(batches)


def _concatenated(batches: Sequence[WindowBatch]) -> WindowBatch:
    """Number and time stamp of windows, in the order of the stream."""
    if not batches:
        return _NONE
    seq, ts = (np.concatenate([getattr(batch, name) for batch in batches]) for name in ("seq", "ts"))
    order = np.argsort(seq, kind="stable")
    return WindowBatch(seq[order], ts[order])


def _parts(level: Level, batch: WindowBatch, count: int, stream: str) -> list[WindowBatch]:
    """What each child gets of a batch. `count` windows were here before it."""
    partition = level.partition
    if isinstance(partition, Split):
        return [_sub_windows(partition, batch, level.n, k, stream) for k in range(level.n)]
    if partition.by == "round_robin":
        return [batch.take(slice((k - count) % level.n, None, level.n)) for k in range(level.n)]
    target = _targets(partition, batch, level.n, stream)
    return [batch.take(target == k) for k in range(level.n)]


def _sub_windows(split: Split, batch: WindowBatch, n: int, k: int, stream: str) -> WindowBatch:
    name = name_of(split.function)
    fields = guarded(name, stream, batch.ts, lambda index: split.function(batch.take(index), n, k))
    if not isinstance(fields, Mapping):
        raise FunctionFailed(name, stream, int(batch.ts[0]), f"it gave {type(fields).__name__}", "a mapping of fields")
    found = {key: np.asarray(value) for key, value in fields.items()}
    for key, array in found.items():
        if array.ndim < 1 or array.shape[0] != len(batch):
            raise FunctionFailed(
                name,
                stream,
                int(batch.ts[0]),
                f"field {key!r} has shape {array.shape}",
                f"({len(batch)}, ...), a row a window",
            )
    return batch.with_fields(found)


def _targets(partition: Distribute, batch: WindowBatch, n: int, stream: str) -> I64:
    if partition.by == "hash":
        return _hashed(batch.ts if partition.field is None else batch[partition.field], n)
    name, function = name_of(partition.by), partition.by
    assert callable(function)
    given = np.asarray(guarded(name, stream, batch.ts, lambda index: function(batch.take(index), n)))
    if given.shape != (len(batch),) or given.dtype.kind not in "iu":
        wrong = f"it gave {given.dtype} of shape {given.shape}"
        raise FunctionFailed(name, stream, int(batch.ts[0]), wrong, f"whole numbers of shape ({len(batch)},)")
    outside = np.flatnonzero((given < 0) | (given >= n))
    if len(outside):
        at = int(outside[0])
        raise FunctionFailed(name, stream, int(batch.ts[at]), f"it gave partition {given[at]}", f"0 to {n - 1}")
    return given.astype(np.int64)


def _hashed(values: Any, n: int) -> I64:
    """The partition of each value: equal values to the same one (splitmix64)."""
    if values.dtype.kind in "UO":
        words, place = np.unique(values.astype(str), return_inverse=True)
        values = np.array([zlib.crc32(word.encode()) for word in words.tolist()], dtype=np.int64)[place]
    numbers = np.ascontiguousarray(values.real if values.dtype.kind == "c" else values)
    bits = numbers.astype(np.float64).view(np.uint64) if numbers.dtype.kind == "f" else numbers.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(n)).astype(np.int64)
