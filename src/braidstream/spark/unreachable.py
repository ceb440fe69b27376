"""What a start would wait for in vain: asked within seconds, where Spark by itself would try for minutes.

Cost: a question to each stream's brokers, where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from braidstream.spark.kafka_source import refuse_silent_sources
from braidstream.spark.s3_client import refuse_no_s3_client
from braidstream.spark.sources import Stream

__all__ = ["refuse_unreachable"]


def refuse_unreachable(spark: SparkSession, root: str, streams: Iterable[Stream]) -> None:
    """Refuse a checkpoint that Spark has no client for, and brokers of Kafka that do not answer."""
    refuse_no_s3_client(spark, "the checkpoint", root)
    for stream in streams:
        if stream.files is None:
            refuse_silent_sources(spark, stream.name, stream.frame)
