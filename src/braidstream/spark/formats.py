"""Spark's sources and sinks by the name of their format, refused with a hint where Spark does not know the name.

Spark looks a format up when it is first used, which for a sink is after the first epoch: too late for a misspelt word.
A format that comes in a package of its own (Kafka, Avro, Delta) is refused too when the package is not there.
Cost: one call of Spark for each name.
"""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import SinkError, StreamError, nearest

__all__ = ["check_sink_format", "open_stream"]

_ALWAYS = ("parquet", "json", "csv", "orc", "text", "xml")
_SOURCES = (*_ALWAYS, "avro", "rate", "rate-micro-batch", "socket", "kafka", "delta")
_SINKS = (*_ALWAYS, "avro", "delta", "jdbc", "kafka", "memory", "noop")
_PACKAGED = ("avro", "kafka", "delta", "iceberg", "hudi")


def open_stream(
    spark: SparkSession, name: str, format_: str, path: str | None, schema: str | None, options: Mapping[str, str]
) -> DataFrame:
    """The streaming DataFrame of a source; StreamError, with Spark's reason, when it cannot be opened."""
    try:
        reader = spark.readStream.format(format_).options(**options)
        reader = reader if schema is None else reader.schema(schema)
        return reader.load() if path is None else reader.load(path)
    except (PySparkException, Py4JError) as error:
        if _is_unknown(error):
            wrong = f"stream {name!r}: Spark knows no format {format_!r}"
            raise StreamError(wrong, "a streaming source of Spark", _hint(format_, _SOURCES)) from None
        raise StreamError(f"stream {name!r} cannot be opened: {_reason(error)}", f"what {format_} needs") from None


def check_sink_format(spark: SparkSession, format_: str) -> None:
    """Refuse a sink whose format Spark does not know."""
    if format_.lower() in (*_ALWAYS, "memory", "noop"):
        return
    try:
        spark.read.format(format_).load()
    except (PySparkException, Py4JError) as error:
        if _is_unknown(error):
            wrong = f"Spark knows no format {format_!r}"
            raise SinkError(wrong, "a batch format of Spark", _hint(format_, _SINKS)) from None
        # It complains that it was given nothing to read: so it is there.


def _is_unknown(error: Exception) -> bool:
    return "DATA_SOURCE_NOT_FOUND" in str(error) or "DATA_SOURCE_NOT_ENABLED" in str(error)


def _hint(format_: str, known: tuple[str, ...]) -> str:
    if format_.lower() in _PACKAGED:
        return f"add the package of {format_}: --conf spark.jars.packages=..."
    return nearest(format_, known)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    caused = [line.split(": ", 1)[1] for line in lines if ": " in line and line.startswith(("java.", "org.", "scala."))]
    return (caused or lines or [type(error).__name__])[0]
