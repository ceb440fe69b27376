"""Spark's sources and sinks by the name of their format: one check for job files, `braid check` and the Python API.

Spark looks a format up when it is first used, which for a sink is after the first epoch: too late for a misspelt word.
What can be said from the name and the options alone is said by `check_sink` and `check_source`, without Spark: a name
that is almost a known one, a source that is no sink, options that a format cannot do without. Whether a session has a
format that comes in a package (Kafka, Avro, Delta) or is the user's own, `find_sink` and `open_stream` ask Spark.

Cost: one call of Spark for each name that is not built in.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from braidstream.errors import InputError, SinkError, StreamError, nearest
from braidstream.spark.causes import one_line
from braidstream.spark.extras import install_command

__all__ = [
    "BUILT_IN",
    "SINKS",
    "SOURCES",
    "check_sink",
    "check_source",
    "find_sink",
    "is_known",
    "open_stream",
    "package_of",
]

BUILT_IN = ("parquet", "json", "csv", "orc", "text", "xml")
"""Formats of files that every session has, to read and to write."""
_ONLY_SOURCES = ("rate", "rate-micro-batch", "socket", "binaryfile", "image")
_ONLY_SINKS = ("jdbc", "postgresql", "memory", "noop", "console")
_SCALA = "2.13"


def _published(last: str) -> str:
    """The version of a package of Spark's that is there: this Spark's, or the last one, which serves later ones too."""
    number = [int(part) for part in re.findall(r"\d+", pyspark.__version__)[:3]]
    return pyspark.__version__ if number < [int(part) for part in last.split(".")] else last


_PACKAGES = {
    "avro": f"org.apache.spark:spark-avro_{_SCALA}:{_published('4.1.1')}",
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{_published('4.2.0')}",
    "delta": f"io.delta:delta-spark_4.1_{_SCALA}:4.2.0",
    "iceberg": f"org.apache.iceberg:iceberg-spark-runtime-4.1_{_SCALA}:1.11.0",
    "hudi": f"org.apache.hudi:hudi-spark4.0-bundle_{_SCALA}:VERSION",
}
_OF_4_1 = ("delta", "iceberg")
"""The last ones that were published are for Spark 4.1."""
SOURCES = (*BUILT_IN, *_ONLY_SOURCES, *_PACKAGES)
SINKS = (*BUILT_IN, *_ONLY_SINKS, *_PACKAGES)
_SERVERS = (("kafka.bootstrap.servers",), '"kafka.bootstrap.servers" = "host:9092"')
_SOURCE_NEEDS: Mapping[str, Sequence[tuple[tuple[str, ...], str]]] = {
    "kafka": (_SERVERS, (("subscribe", "subscribePattern", "assign"), 'subscribe = "topic"')),
    "socket": ((("host",), 'host = "localhost"'), (("port",), "port = 9999")),
}
_SINK_NEEDS: Mapping[str, Sequence[tuple[tuple[str, ...], str]]] = {
    "kafka": ((("kafka.bootstrap.servers", "servers"), 'servers = "host:9092" and topic = "results"'),),
    "jdbc": ((("url",), 'url = "jdbc:postgresql://host/database"'), (("dbtable",), 'dbtable = "results"')),
    "delta": ((("path",), 'path = "out"'),),
    "iceberg": ((("path", "table"), 'path = "lake" and options = { table = "results.pairs" }'),),
    "hudi": ((("path",), 'path = "out"'),),
}
"""For each format, options of which one is needed, and how it is written."""
_WITHOUT = {"delta": "", "iceberg": ', with options = { table = "results.pairs" }'}
"""Sinks that need no package of Spark's, and how they are declared."""
_ALMOST = 0.7


def check_sink(format_: str, options: Mapping[str, str]) -> None:
    """Refuse what cannot be a sink, as far as its name and options tell. A path counts as an option."""
    name = format_.lower()
    if name in _ONLY_SOURCES:
        raise SinkError(f"{format_!r} is a source, no sink", "a batch format of Spark", f"one of {', '.join(SINKS)}")
    if almost := _misspelt(name, SINKS):
        raise SinkError(f"Spark knows no format {format_!r}", "a batch format of Spark", f"did you mean {almost!r}?")
    _require(SinkError, f"the {name} sink", options, _SINK_NEEDS.get(name, ()))


def check_source(name: str, format_: str, options: Mapping[str, str]) -> None:
    """Refuse what cannot be the source of a stream, as far as its name and options tell."""
    own = format_.lower()
    if own in _ONLY_SINKS:
        wrong = f"stream {name!r}: {format_!r} is a sink, and no source of a stream"
        raise StreamError(wrong, "a streaming source of Spark", f"one of {', '.join(SOURCES)}")
    if almost := _misspelt(own, SOURCES):
        wrong = f"stream {name!r}: Spark knows no format {format_!r}"
        raise StreamError(wrong, "a streaming source of Spark", f"did you mean {almost!r}?")
    _require(StreamError, f"the {own} stream {name!r}", options, _SOURCE_NEEDS.get(own, ()))


def package_of(format_: str) -> str:
    """The package that brings a format."""
    return _PACKAGES[format_]


def find_sink(spark: SparkSession, format_: str) -> None:
    """Refuse a sink whose format this session does not have."""
    if format_.lower() in (*BUILT_IN, "memory", "noop", "jdbc", "postgresql", "console"):
        return
    try:
        spark.read.format(format_).load()
    except (PySparkException, Py4JError) as error:
        if _is_unknown(error):
            raise SinkError(_missing(format_), "a batch format of Spark", _hint(format_, SINKS)) from None
        # It complains that it was given nothing to read: so it is there.


def open_stream(
    spark: SparkSession, name: str, format_: str, path: str | None, schema: str | None, options: Mapping[str, str]
) -> DataFrame:
    """The streaming DataFrame of a source; StreamError, with Spark's reason, when it cannot be opened."""
    check_source(name, format_, options)
    try:
        reader = spark.readStream.format(format_).options(**options)
        reader = reader if schema is None else reader.schema(schema)
        return reader.load() if path is None else reader.load(path)
    except (PySparkException, Py4JError) as error:
        if _is_unknown(error):
            wrong = f"stream {name!r}: {_missing(format_)}"
            raise StreamError(wrong, "a streaming source of Spark", _hint(format_, SOURCES)) from None
        raise StreamError(f"stream {name!r} cannot be opened: {one_line(error)}", f"what {format_} needs") from None


def is_known(format_: str, known: Sequence[str] = SINKS) -> bool:
    """Whether every session has the format, so that there is nothing left to ask Spark."""
    return format_.lower() in known and format_.lower() not in _PACKAGES


def _misspelt(name: str, known: Sequence[str]) -> str | None:
    """The known name that is meant, where one is almost the same; a name with a dot is a class."""
    if name in known or "." in name:
        return None
    swapped = [one for one in known if sorted(one) == sorted(name)]
    close = swapped or difflib.get_close_matches(name, known, n=1, cutoff=_ALMOST)
    return close[0] if close else None


def _require(
    kind: type[InputError], what: str, options: Mapping[str, str], needs: Sequence[tuple[tuple[str, ...], str]]
) -> None:
    given = {option.lower() for option, value in options.items() if value}
    for names, example in needs:
        if not given & {name.lower() for name in names}:
            raise kind(f"{what} has no option {' or '.join(names)}", "what it cannot do without", f"add {example}")


def _is_unknown(error: Exception) -> bool:
    return "DATA_SOURCE_NOT_FOUND" in str(error) or "DATA_SOURCE_NOT_ENABLED" in str(error)


def _missing(format_: str) -> str:
    has_package = format_.lower() in _PACKAGES
    return f"this session has no package of {format_}" if has_package else f"Spark knows no format {format_!r}"


def _hint(format_: str, known: tuple[str, ...]) -> str:
    if package := _PACKAGES.get(format_.lower()):
        name, is_later = format_.lower(), not pyspark.__version__.startswith("4.1.")
        without = f"{install_command(name)}{_WITHOUT[name]}; or " if name in _WITHOUT and known is SINKS else ""
        in_a_job = f'in a job file: [spark] packages = ["{package}"]'
        but = f" (the last one, for Spark 4.1: {pyspark.__version__} may not read with it)" if is_later else ""
        return f"{without}start Spark with spark.jars.packages={package}; {in_a_job}{but if name in _OF_4_1 else ''}"
    return nearest(format_, known)
