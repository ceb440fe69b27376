"""Late outputs: each query that asks for one gets the late tuples of its streams, however many ask.

Slots stage the late tuples of a stream once. Where one output wants them, they are staged where it takes them from;
where several do, in the checkpoint, and each is given a copy. Outputs that are the same folder are one output. That for
rows of a stream that cannot be read is one, however many queries read the stream, with tables or without.

Invariant: what is delivered under an epoch's number replaces what a lost attempt delivered under it, for every output.
Cost: one copy of the late tuples for each output beyond the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from braidstream.model.columns import FAILED
from braidstream.model.declarations import Target
from braidstream.spark.bad_rows import BAD, BadRows, FailedRows, GoodRows, bare
from braidstream.spark.declared import ContinuousQuery
from braidstream.spark.sink import Delivery, Reached, Sink
from braidstream.spark.sinks import CallableSink
from braidstream.state.files import Files
from braidstream.state.staging import Staging

__all__ = ["SeveralSinks", "late_columns", "late_sinks"]

_THEMSELVES = (None, "memory", "noop")
"""Kinds of outputs that have no address: functions, and what a query keeps or drops by itself."""


class SeveralSinks(Sink):
    """Several outputs of the same rows."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = tuple(sinks)
        self.idempotent = all(sink.idempotent for sink in sinks)
        self.description = ", ".join(sink.explained for sink in sinks)
        self._root = ""

    @property
    def parts(self) -> Sequence[Sink]:
        """All of them."""
        return self.sinks

    def check(self, flow: str) -> None:
        """Refuse what one of them refuses."""
        for sink in self.sinks:
            sink.check(flow)

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        """Refuse what one of them refuses."""
        for sink in self.sinks:
            sink.refuse_later(flow, outlet, reached)

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark all of them."""
        for sink in self.sinks:
            sink.claim(flow, owner)

    def sweep(self) -> None:
        """Sweep all of them."""
        for sink in self.sinks:
            sink.sweep()

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """In the checkpoint, from where each gets its own."""
        self._root = checkpoint
        return super().staging(checkpoint, finished)

    def deliver(self, delivery: Delivery) -> None:
        """Give each a copy, of files where it takes files."""
        staged = delivery.staged
        for sink in self.sinks:
            own = sink.staging(self._root, delivery.finished)
            names = staged if own.root in (None, self._root) else _copied(self._root, staged, own)
            sink.deliver(replace(delivery, staged=names))
            self.placed = {**(self.placed if sink is not self.sinks[0] else {}), **sink.placed}
            if own.root not in (None, self._root):
                sink.end(Files(own.root), names)


def _copied(root: str, staged: Sequence[str], own: Staging) -> list[str]:
    """Staged files of the checkpoint, copied to where a sink takes them from."""
    source, target, made = Files(root), Files(own.root or root), []
    for name in staged:
        copy = f"{own.folder}/{name.rsplit('/', 1)[-1]}"
        with source.map(name) as content, target.create(copy) as sink:
            rows = pq.ParquetFile(content)
            with pq.ParquetWriter(sink, rows.schema_arrow, compression=own.compression) as writer:
                for i in range(rows.num_row_groups):
                    writer.write_table(rows.read_row_group(i))
        made.append(copy)
    return made


def late_sinks(queries: Iterable[ContinuousQuery]) -> dict[str, Sink]:
    """The output of late tuples by stream, over all queries that ask for one."""
    found: dict[str, dict[Any, Sink]] = {}
    for query in queries:
        for stream, sinks in query.late_sinks().items():
            for sink in sinks:
                found.setdefault(stream, {}).setdefault(_address(sink), sink)
    once = {stream: _without_others(stream, list(own.values()), found) for stream, own in found.items()}
    return {stream: _together(own) for stream, own in once.items() if own}


def late_columns(queries: Iterable[ContinuousQuery], columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Which columns of a stream its late output is given: all, unless it takes nothing but rows that are bad.

    What is known of those is in a column of its own, so that others, which no query uses, need not be read.
    """
    return {
        stream: [BAD] if all(isinstance(one, BadRows) for one in sink.parts) else columns[stream]
        for stream, sink in late_sinks(queries).items()
    }


def _without_others(stream: str, sinks: Sequence[Sink], found: Mapping[str, Mapping[Any, Sink]]) -> list[Sink]:
    """The outputs of a stream, without those for rows that are delivered as another one's.

    Every way in which a stream is read has its rows that cannot be read: they are taken from the stream as it is, or,
    where all queries join tables to it, from the first of these ways.
    """
    return [sink for sink in sinks if not isinstance(sink, BadRows) or stream == _taken_from(sink, found)]


def _taken_from(sink: BadRows, found: Mapping[str, Mapping[Any, Sink]]) -> str:
    ways = [name for name, own in found.items() if _address(sink) in own]
    return sink.stream if sink.stream in ways else ways[0]


def _together(sinks: Sequence[Sink]) -> Sink:
    """Several as one; where some are given failed rows, the others are given the rest."""
    parts = any(isinstance(one, FailedRows) for one in sinks)
    own = [GoodRows(one, (FAILED,)) if parts and one is bare(one) else one for one in sinks]
    tables = Counter(map(_table, own))
    for one in own:
        bare(one).is_shared = tables[_table(one)] > 1
    return own[0] if len(own) == 1 else SeveralSinks(own)


def _table(sink: Sink) -> Any:
    """The table or topic that rows go to, if it is one, however they are written."""
    target = sink.target
    named = ("topic",) if target.to == "kafka" else ("url", "table")  # brokers go by many addresses
    return target.to, *(target.options.get(name, id(sink)) for name in named)


def _address(sink: Sink) -> Any:
    """What tells two outputs apart: where they go, how that is written and which rows; a function is itself."""
    target, own = sink.target, bare(sink)
    if target.to in _THEMSELVES and not isinstance(sink, BadRows):
        return id(sink)
    if isinstance(sink, BadRows):  # declared once, for all queries
        return BadRows, sink.stream, *((id(own.function),) if isinstance(own, CallableSink) else _place(target))
    return type(sink), sink.query if isinstance(sink, FailedRows) else "", *_place(target)


def _place(target: Target) -> tuple[Any, ...]:
    return target.to, target.path, tuple(sorted(target.options.items()))
