"""What every start on a checkpoint has in common, of joins and of functions: who it is, and the first that it writes.

A start is prepared (all that may refuse it; nothing is changed), begun here, and then commits its manifest and runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from braidstream.spark.session import warm_up
from braidstream.spark.sinks import Sink
from braidstream.spark.sources import Stream
from braidstream.state.checkpoint import Checkpoint, Identity
from braidstream.state.manifest import Manifest

__all__ = ["begin", "identity_of"]


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
