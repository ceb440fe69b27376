"""The tasks of the plans of a flow's functions: what a worker runs for a stage, over the envelopes of its nodes.

    rows or paths -> stage 0 (form windows, partition, or all of Central) -> exchange -> compute -> exchange -> combine

A stage of the job is a stage of one function; or the last of one and the first of the next, which run on the same node
one after the other (`chains`).

What nodes send each other are envelopes (slot, head, blob): the number of the node at the next stage, whom it is for
and what it is, and a packed batch of windows. An envelope for a later stage (windows to expect, a report) is passed on.
The last stage of a function that has a sink stages its results; the last of all gives the reports of all nodes to the
driver.

Everything a task does is a function of the manifest before and of the rows; it writes only files with names of their
own. So an engine may run it twice: what counts is the report that arrives. A failure of user code, damaged state and a
full disk are reported, not raised: trying again would not help. Cost: one pack and one unpack of every window for each
exchange.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidstream.epoch.cluster import SlotFunction
from braidstream.errors import BraidstreamError, DamagedState
from braidstream.functions.aligning import STREAM_TAG
from braidstream.functions.arrays import result_arrays, result_schema, to_batches
from braidstream.functions.chains import Chain, Place, elements, node_name
from braidstream.functions.node_cluster import NODE_ENVELOPE
from braidstream.functions.node_reports import Done, NodeFailure, Said, decoded, encoded
from braidstream.functions.nodes import Message, NodeReport, NodeState, Step, run_node
from braidstream.functions.stream_types import StreamType
from braidstream.functions.window_batch import WindowBatch, pack, pieces, unpack
from braidstream.model.faults import reach
from braidstream.model.reports import Result
from braidstream.model.values import Value
from braidstream.state import syncing
from braidstream.state.files import Files, unwritable
from braidstream.state.notes import NodeNote
from braidstream.state.seals import check_seal, sealing
from braidstream.state.segments import FOLDER
from braidstream.state.staging import Staging

__all__ = ["FileReader", "FunctionTask", "RowReader", "first_stage", "later_stage"]

SEND_BYTES = 16 << 20
"""The most that one envelope holds, so that a value stays small for the JVM."""


class FileReader(Protocol):
    """Reads the files of a stream."""

    def read(self, path: str, columns: Sequence[str]) -> pa.Table:
        """These columns of a file, in the types of the stream."""
        ...


@dataclass(frozen=True)
class RowReader:
    """How the rows of a stream become arrays: its type, its time column, and the columns that are read."""

    declared: StreamType
    time: str
    columns: tuple[str, ...]
    files: FileReader | None = None
    """Where the first node is given paths of files; else it is given rows."""
    parts: tuple[StreamType, ...] = ()
    """Of streams that are aligned: the fields of each, among those of `declared`."""

    def batches(self, received: Iterator[pa.RecordBatch]) -> tuple[list[WindowBatch], int]:
        """What an epoch brings, in the order of arrival (files by path), and how many rows were left out."""
        found: list[WindowBatch] = []
        n_left_out = 0
        for table in self._tables(received):
            for part, declared in self._of_streams(table):
                made, left_out = to_batches(part, declared, self.time)
                found += made
                n_left_out += left_out
        return found, n_left_out

    def _of_streams(self, table: pa.Table) -> Iterator[tuple[pa.Table, StreamType]]:
        if not self.parts:
            yield table, self.declared
        for number, declared in enumerate(self.parts):
            yield table.filter(pc.equal(table.column(STREAM_TAG), number)), declared

    def _tables(self, received: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        if self.files is None:
            return (pa.Table.from_batches([batch]) for batch in received)
        files, paths = self.files, (path for batch in received for path in batch.column(0).to_pylist())
        return (files.read(path, self.columns) for path in sorted(paths))


@dataclass(frozen=True)
class FunctionTask:
    """What every task of an epoch is given."""

    root: str
    epoch: int
    chain: Chain
    reader: RowReader
    states: Mapping[str, NodeNote]
    """For each node with state, by its name (`chains.node_name`): its numbers, and the name of its file."""
    stagings: tuple[Staging | None, ...]
    """Of each function: where its results are staged; None where they only go to the next one."""
    time_type: pa.DataType
    durable: bool = False

    def staging(self, place: Place) -> Staging | None:
        """Where what leaves this stage is staged."""
        is_last = place.stage == len(self.chain.setups[place.function].plan.stages) - 1
        return self.stagings[place.function] if is_last else None


def first_stage(task: FunctionTask) -> SlotFunction:
    """Stage 0: it gets the paths, or the rows, of the whole epoch."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        outbox = _Outbox(task, 0)
        with outbox.guard():
            rows, left_out = task.reader.batches(batches)
            read_s = time.perf_counter() - started
            yield from outbox.run(0, [], _Taken(rows, left_out, read_s))
        yield from outbox.end()

    return run


def later_stage(task: FunctionTask, stage: int) -> SlotFunction:
    """Any other stage of the job: it gets the envelopes of its nodes, all of them from nodes of the same function."""
    own = task.chain.stages[stage].places[0].stage

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inboxes: dict[int, list[Message]] = defaultdict(list)
        outbox = _Outbox(task, stage)
        for head, blob in _entries(batches):
            if not head:
                outbox.said.append(decoded(blob.to_pybytes()))
                continue
            address = _address(head)
            if address.stage != own:
                yield outbox.forward(address, blob)
            else:
                inboxes[address.node].append(outbox.receive(address, blob))
        for node, received in sorted(inboxes.items()):
            if outbox.has_failed:
                break
            with outbox.guard():
                yield from outbox.run(node, received)
        yield from outbox.end()

    return run


@dataclass(frozen=True)
class _Taken:
    """What a first node is given: rows, how many of them were left out, and how long it took to read them."""

    rows: Sequence[WindowBatch] = ()
    left_out: int = 0
    read_s: float = 0.0


class _Outbox:
    """What a task sends, and what it says of itself."""

    def __init__(self, task: FunctionTask, stage: int) -> None:
        stages = task.chain.stages
        self.task, self.places = task, stages[stage].places
        self.n_next = stages[min(stage + 1, len(stages) - 1)].n_nodes
        self.said: list[Said] = []
        self.unpack_s, self.bytes_in = 0.0, 0

    @property
    def has_failed(self) -> bool:
        return any(isinstance(one, NodeFailure) for one in self.said)

    def guard(self) -> _Guard:
        return _Guard(self.said, self.task.root)

    def receive(self, address: _Address, blob: pa.Buffer) -> Message:
        started = time.perf_counter()
        batch = unpack(blob)
        self.unpack_s += time.perf_counter() - started
        self.bytes_in += blob.size
        return Message(address.stage, address.node, address.kind, address.child, batch, address.now)

    def forward(self, address: _Address, blob: pa.Buffer) -> pa.RecordBatch:
        return _envelope(self._slot(address.node), _head(address), blob)

    def run(self, node: int, received: Sequence[Message], taken: _Taken | None = None) -> Iterator[pa.RecordBatch]:
        """All that a node does here; the results of a function are what the next one is given for rows."""
        taken = taken or _Taken()
        for place in self.places:
            setup = self.task.chain.setups[place.function]
            rows = elements(taken.rows, setup.fields)
            step = run_node(setup, place.stage, node, received, _state(self.task, place, node), rows)
            step.report.null_rows += taken.left_out
            step.report.exchange_s += taken.read_s
            yield from self._send(step, place, node)
            received, taken = [], _Taken(step.results)

    def _send(self, step: Step, place: Place, node: int) -> Iterator[pa.RecordBatch]:
        report = step.report
        report.function = place.function
        report.exchange_s, report.bytes_in = report.exchange_s + self.unpack_s, report.bytes_in + self.bytes_in
        self.unpack_s, self.bytes_in = 0.0, 0
        for message in step.messages:
            yield from self._packed(message, report)
        reach("task-before-segment", epoch=self.task.epoch)
        state = _keep(self.task, place, node, step.state)
        reach("task-after-segment", epoch=self.task.epoch)
        staging = self.task.staging(place)
        result = None if staging is None else _stage_results(self.task, place, staging, step.results, report)
        syncing.settle(durable=self.task.durable)
        self.said.append(Done(report, state, result))

    def end(self) -> Iterator[pa.RecordBatch]:
        for one in self.said:
            yield _envelope(0, "", pa.py_buffer(encoded(one)))

    def _packed(self, message: Message, report: NodeReport) -> Iterator[pa.RecordBatch]:
        head = _head(_Address(message.stage, message.node, message.kind, message.child, message.now))
        parts = pieces(message.batch, SEND_BYTES) if len(message.batch) else iter([message.batch])
        for part in parts:
            started = time.perf_counter()
            blob = pack(part)
            report.exchange_s += time.perf_counter() - started
            report.bytes_out += blob.size
            yield _envelope(self._slot(message.node), head, blob)

    def _slot(self, node: int) -> int:
        """The node's partition at the next stage; an envelope for a later one stops over anywhere."""
        return node % self.n_next


class _Address(Value, frozen=True):
    """Where a message goes, and what it is: the head of an envelope. That of a report is empty."""

    stage: int
    node: int
    kind: str
    child: int
    now: int | None = None


_ADDRESSES = msgspec.json.Decoder(_Address)


def _address(head: str) -> _Address:
    return _ADDRESSES.decode(head)  # a decoder cannot travel with the function that workers run, this can


def _head(address: _Address) -> str:
    return msgspec.json.encode(address).decode()


class _Guard:
    """Turns an error that is meant for the user into a report; one that may pass with the next attempt is raised."""

    def __init__(self, said: list[Said], root: str) -> None:
        self.said, self.root = said, root

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        told = unwritable(error, self.root) if isinstance(error, OSError) else error
        if not isinstance(told, BraidstreamError):
            return False
        self.said.append(NodeFailure.of(0, told))
        return True


def _envelope(slot: int, head: str, blob: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, blob.size], dtype=np.int32))
    binary = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, blob])
    columns = [pa.array([slot], pa.int32()), pa.array([head], pa.string()), binary]
    return pa.RecordBatch.from_arrays(columns, schema=NODE_ENVELOPE)


def _entries(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Buffer]]:
    for batch in batches:
        heads, blobs = (batch.column(name) for name in ("head", "blob"))
        for i in range(batch.num_rows):
            yield heads[i].as_py(), blobs[i].as_buffer()


def _state(task: FunctionTask, place: Place, node: int) -> NodeState:
    known = task.states.get(node_name(place, node))
    if known is None:
        return NodeState()
    if known.file is None:
        return NodeState(known.numbers)
    files = Files(task.root)
    check_seal(files, known.file, known.checksum, known.bytes, "file of windows")
    try:
        kept = NodeState.unpack(pa.ipc.open_file(files.map(known.file)).read_all())
    except FileNotFoundError:
        raise DamagedState(files.path(known.file), "this file of windows is missing") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise DamagedState(files.path(known.file), f"this file of windows is damaged ({error})") from None
    return NodeState(known.numbers, kept.batches)


def _keep(task: FunctionTask, place: Place, node: int, state: NodeState) -> NodeNote | None:
    """What the manifest says of a node's state: its numbers, and a file where it keeps samples or windows."""
    numbers, own = dict(state.numbers), node_name(place, node)
    if not any(state.batches.values()):
        return NodeNote(own, numbers) if numbers else None
    files = Files(task.root)
    name = f"{FOLDER}/{task.epoch:010d}-f{own.replace(':', '-')}-{uuid.uuid4().hex}.arrow"
    table = state.pack()
    with sealing(files, name) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return NodeNote(own, numbers, name, table.num_rows, sink.size, state.holds_windows, sink.checksum)


def _stage_results(
    task: FunctionTask, place: Place, staging: Staging, results: Sequence[WindowBatch], report: NodeReport
) -> Result:
    started = time.perf_counter()
    gives = task.chain.setups[place.function].plan.gives
    writer = staging.writer(result_schema(gives, task.reader.time, task.time_type), task.epoch, 0)
    for batch in results:
        for piece in pieces(batch, SEND_BYTES):
            writer.write(result_arrays(piece, gives, task.time_type))
    report.exchange_s += time.perf_counter() - started
    return Result(writer.rows, writer.close())
