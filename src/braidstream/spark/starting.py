"""What every start on a checkpoint has in common, of joins and of functions: who it is, and the first that it writes.

A start is prepared (all that may refuse it; nothing is changed), begun here, and then commits its manifest and runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from braidstream.epoch.ending import has_begun_to_end
from braidstream.epoch.recorder import Recorder
from braidstream.plan.catalogue import all_folders
from braidstream.spark.names import resolved
from braidstream.spark.session import warm_up
from braidstream.spark.sink import Delivery, Reached
from braidstream.spark.sinks import OWNER, FileSink, Sink
from braidstream.spark.sources import Stream
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.history import Words
from braidstream.state.manifest import Manifest

__all__ = [
    "as_from_here",
    "begin",
    "forget_begun",
    "identity_of",
    "is_begun",
    "own_seconds",
    "record_start",
    "refuse_later",
]

T = TypeVar("T")


def as_from_here(spark: SparkSession, start: Callable[[], T]) -> Callable[[], T]:
    """A start that another thread may do later: with the scheduler's pool and the like of the one that is here."""
    return cast("Callable[[], T]", inheritable_thread_target(spark)(start))


def identity_of(
    flow: str, streams: Mapping[str, Stream], fingerprints: Mapping[str, str], known: Identity | None
) -> Identity:
    """What a checkpoint of these streams and queries says of itself; with the id of one that is there."""
    declared = {name: {"schema": s.schema.simpleString(), "time": s.time} for name, s in streams.items()}
    made = Identity.new(flow, declared, fingerprints)
    return made if known is None else replace(made, flow=known.flow)


def begin(
    spark: SparkSession, store: Checkpoint, identity: Identity, first: Manifest | None, sinks: Collection[Sink],
    *, warm: bool,
) -> None:  # fmt: skip
    """Make the checkpoint, where `first` is its manifest; claim the sinks; drop what a lost attempt left behind.

    Sinks are claimed once the checkpoint says which flow this is: a start that dies here can be repeated.
    """
    if first is not None:
        store.create(identity, first)
    for sink in sinks:
        sink.claim(identity.flow, store.owner)
    for sink in sinks:
        sink.sweep()
    store.sweep()
    if warm:
        warm_up(spark)


def forget_begun(
    store: Checkpoint, last: Manifest, flow: str, kept: Collection[FileSink], rows: Callable[[], DataFrame]
) -> None:
    """Delete what was delivered of an epoch that was begun and not committed, in folders that nobody delivers to now.

    `kept` are the folders to which the epoch is delivered again, which replaces it there.
    """
    if not is_begun(store, last):
        return
    for folder in all_folders(last) - {resolved(sink.path) for sink in kept}:
        sink = FileSink("parquet", folder, {})
        if sink.files.exists(OWNER):
            sink.claim(flow, store.owner)
            sink.deliver(Delivery("", last.epoch + 1, (), rows, finished=True))
            sink.sweep()


def refuse_later(flow: str, store: Checkpoint, last: Manifest, sinks: Iterable[tuple[str, Sink]]) -> None:
    """Refuse tables that say they have more than the checkpoint knows of: of the outlets, by their names, of a flow.

    After a rollback they would leave epochs out for those that they have, whose results may be others.
    """
    reached = Reached(last.epoch + is_begun(store, last), last.notes.steps + 1)
    for outlet, sink in sinks:
        sink.refuse_later(flow, outlet, reached)


def is_begun(store: Checkpoint, last: Manifest) -> bool:
    """Whether the epoch after the last one was begun, and may have been delivered; the end is none of Spark's log."""
    return has_begun_to_end(last) or store.log.last_begun(last.epoch) > last.epoch


def record_start(recorder: Recorder, store: Checkpoint, manifest: Manifest, queries: Mapping[str, str]) -> None:
    """Note in the history which queries run from now on, and what a lost process had begun."""
    begun = store.log.last_begun(manifest.epoch)
    identity, lease = store.identity(), store.lease
    told = Words(
        name="" if identity is None else identity.name,
        replays=begun if begun > manifest.epoch else None,
        took_over=lease is not None and lease.took_over,
    )
    recorder.runs(manifest.epoch, queries, told)


def own_seconds(query: StreamingQuery) -> float | None:
    """What Spark needed of late for a micro-batch beside the epoch in it: offsets, listing, planning, its own logs."""
    progress = query.lastProgress
    if progress is None:
        return None
    took = progress["durationMs"]
    return float(max(took.get("triggerExecution", 0) - took.get("addBatch", 0), 0)) / 1000
