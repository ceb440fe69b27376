"""Results of one flow as a stream of another of the same job: the feed between them.

A flow delivers the results of an epoch to a folder of Parquet files, then commits the epoch, and only then names the
files in the log of the feed. The log is that of Spark's own file sink: a file source that finds one in its folder reads
what the log names and nothing else, all files of an epoch at once. So whoever reads a feed never sees a file of an
attempt that was lost, nor a part of an epoch; and what it has seen stays, for a committed epoch is not delivered again.

    FEED/_spark_metadata/12       the files of an epoch; every tenth entry (19.compact) has those of all before it, too

Invariant: the log has the files of every committed epoch, each once. A process that dies between commit and log leaves
out one epoch, the last, whose manifest names its files; the next start makes up for it before anything runs. Who has
lost the checkpoint to another can no longer name anything: the log is written through the gate of its owner.

Cost: one small file for an epoch that has results. Every tenth has a line for each file so far, as Spark's have; Spark
reads them anyway to find what is new. Files stay until somebody deletes them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from braidstream.errors import DamagedState, InputError, LeaseLost
from braidstream.functions.arrays import result_schema
from braidstream.model.faults import reach
from braidstream.model.snapshots import Placed
from braidstream.spark.arrow_types import arrow_schema
from braidstream.spark.file_order import SPARK_LOG, logged_line
from braidstream.spark.finishing import finish
from braidstream.spark.names import resolved
from braidstream.spark.sinks import spark_schema, staged_frame
from braidstream.state import syncing
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import Files
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.flow import Flow

__all__ = [
    "FeedLog",
    "FeedingCheckpoint",
    "make_feed",
    "refuse_missing_feed",
    "refuse_other_logs",
    "result_columns",
]

INTERVAL = 10
"""Spark's own; what it finds in a log of one or two compact entries tells it no other."""
_VERSION = "v1"
_SETTINGS = {
    "spark.sql.streaming.fileStreamSink.ignoreMetadata": "false",
    "spark.sql.streaming.fileSink.log.compactInterval": str(INTERVAL),
}


def make_feed(folder: str) -> None:
    """An empty feed, unless it is there: without its log, Spark would read the folder itself."""
    files = Files(folder)
    files.make(SPARK_LOG)
    syncing.sync_folders(files.path(name) for name in (SPARK_LOG, "", "..", "../.."))


def refuse_missing_feed(folder: str) -> None:
    """Refuse to go on without what was handed on before."""
    if not Files(folder).exists(SPARK_LOG):
        raise DamagedState(f"{folder}/{SPARK_LOG}", "this feed is missing")


def refuse_other_logs(spark: SparkSession) -> None:
    """Refuse settings with which Spark would not believe the log, or read it as another one."""
    for name, usual in _SETTINGS.items():
        found = str(spark.conf.get(name, usual))
        if found.lower() != usual:
            wrong = f"{name} is {found}, and the job has functions and queries"
            raise InputError(wrong, f"{usual}, as Spark has it: such a log is between them", "leave it out")


def result_columns(flow: Flow, name: str) -> StructType:
    """The columns of the results of one of a flow's queries or functions, as files have them."""
    for one in flow.functions:
        if one.name == name:
            stream = one.source.stream
            kind = arrow_schema(stream.schema).field(stream.time).type
            return spark_schema(result_schema(one.plan.gives, stream.time, kind))
    query, plan = flow.declared(name)
    raw = staged_frame(flow.spark, "", (), plan.schema_of(name))
    return raw.schema if plan.finished[name] else finish(query, raw).schema


class _Line(NamedTuple):
    """A file in the log."""

    text: str
    name: str
    modified_ms: int

    @classmethod
    def of(cls, text: str) -> _Line:
        plain = json.loads(text)
        return cls(text, Path(plain["path"]).name, int(plain["modificationTime"]))


class FeedLog:
    """The log of one feed, which one flow writes."""

    def __init__(self, folder: str, source: str) -> None:
        """`source` is where the files of results are."""
        self._files, self._source = Files(folder), Path(resolved(source))
        self._last = -1
        self._modified_ms = 0
        self._known: frozenset[str] | None = None
        """The names in the last entry; after a start, those in all of them."""

    @property
    def source(self) -> str:
        """The folder of results."""
        return str(self._source)

    def add(self, placed: Sequence[Placed], epoch: int, *, durable: bool = False) -> None:
        """Name the files of a committed epoch, unless they are named already."""
        is_first = self._known is None
        known = self._read() if self._known is None else self._known
        new = [one for one in placed if one.name not in known]
        if new:
            reach("before-feed", epoch=epoch)
            self._write(new)
        if durable and (new or is_first):  # later epochs may outlive a loss of power, and only the last is made up for
            syncing.sync_folders([self._files.path(SPARK_LOG)])
        if new:
            reach("after-feed", epoch=epoch)
        if placed:
            self._known = frozenset(one.name for one in placed)

    def guard(self, gate: str | None) -> None:
        """Have every change pass through an owner's gate, and forget what another may have changed since."""
        own = None if gate is None else os.path.relpath(os.path.realpath(gate), os.path.realpath(self._files.path("")))
        self._files.gate, self._known = own, None

    def _read(self) -> frozenset[str]:
        lines = self._lines()
        self._modified_ms = max((line.modified_ms for line in lines), default=0)
        self._known = frozenset(line.name for line in lines)
        return self._known

    def _lines(self) -> list[_Line]:
        """All entries, from the last compact one on."""
        numbers = {int(name.partition(".")[0]): name for name in self._files.names(SPARK_LOG) if name[:1].isdigit()}
        self._last = max(numbers, default=-1)
        compact = max((n for n, name in numbers.items() if name.endswith(".compact")), default=0)
        return [line for n in sorted(numbers) if n >= compact for line in self._entry(f"{SPARK_LOG}/{numbers[n]}")]

    def _entry(self, name: str) -> list[_Line]:
        try:
            version, *lines = self._files.read(name).decode().splitlines()
            if version != _VERSION:
                raise ValueError(f"its version is {version!r}")
            return [_Line.of(line) for line in lines]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            wrong = f"this entry of a feed is damaged ({error})"
            raise DamagedState(self._files.path(name), wrong) from None

    def _write(self, new: Sequence[Placed]) -> None:
        now, number = time.time_ns() // 1_000_000, self._last + 1
        self._modified_ms = max(now, self._modified_ms + 1)  # so that files are in the order of epochs by their times
        lines = [logged_line((self._source / one.name).as_uri(), one.bytes, self._modified_ms) for one in new]
        is_compact = (number + 1) % INTERVAL == 0
        if is_compact:
            lines = [*(line.text for line in self._lines()), *lines]
        content = "\n".join([_VERSION, *lines]).encode()
        self._files.replace(f"{SPARK_LOG}/{number}{'.compact' if is_compact else ''}", content)
        self._last = number
        if is_compact:
            self._drop(number - 2 * INTERVAL)  # who reads the log meanwhile goes on with what it has listed

    def _drop(self, last: int) -> None:
        for name in self._files.names(SPARK_LOG):
            if name[:1].isdigit() and int(name.partition(".")[0]) <= last:
                self._files.delete(f"{SPARK_LOG}/{name}")


class FeedingCheckpoint(Checkpoint):
    """A checkpoint whose epochs, once they are committed, are handed on."""

    def __init__(
        self, root: str, keep: int = 10, *, feeds: Mapping[str, FeedLog], history: int = 0, durable: bool = False
    ) -> None:
        """`feeds` are by the folder of results that they are of."""
        super().__init__(root, keep, history=history, durable=durable)
        self._feeds = feeds

    @contextmanager
    def starting(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Also hand on what a process that died has committed."""
        with super().starting(wait_s=wait_s):
            if Manifest.epochs(self.files):
                self._hand_on(self.latest())
            yield

    def take(self, *, wait_s: float = 0.0, ttl_s: float | None = None) -> None:
        """Take the lease; what feeds name is the owner's to change, too."""
        super().take(wait_s=wait_s, ttl_s=ttl_s)
        gate = self.files.gate
        for feed in self._feeds.values():
            feed.guard(None if gate is None else self.files.path(gate))

    def commit(self, manifest: Manifest) -> Manifest:
        """Commit, then hand on."""
        made = super().commit(manifest)
        self._hand_on(made)
        return made

    def _hand_on(self, manifest: Manifest) -> None:
        try:
            for folder, placed in manifest.delivered.items():
                if folder in self._feeds:
                    self._feeds[folder].add(placed, manifest.epoch, durable=self.durable)
        except LeaseLost:
            self.fence()
            raise
