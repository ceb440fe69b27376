"""Streams as they are declared, checked; of Parquet files the schema is read where none is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from braidstream.errors import StreamError, nearest
from braidstream.query import Column, Schema
from braidstream.spark.causes import one_line
from braidstream.spark.declared import NAME
from braidstream.spark.names import pattern_of
from braidstream.spark.sources import Stream

__all__ = ["checked_stream", "declared_files", "read_schema", "schema_of"]

_EXAMPLE = 'schema="k long, v long, ts timestamp"'


def read_schema(spark: SparkSession, name: str, path: str, options: Mapping[str, str]) -> StructType:
    """The schema of the files that are there, as Spark reads it from a footer."""
    try:
        return spark.read.options(**options).parquet(pattern_of(path)).schema
    except (PySparkException, Py4JError) as error:
        if any(word in str(error) for word in ("UNABLE_TO_INFER_SCHEMA", "PATH_NOT_FOUND")):
            wrong = f"stream {name!r} has no schema, and {path} has no Parquet file yet to read it from"
            raise StreamError(wrong, "a schema, or a first file", f"name the columns: {_EXAMPLE}") from None
        wrong = f"stream {name!r} has no schema, and it cannot be read from the files of {path}: {one_line(error)}"
        raise StreamError(wrong, "a schema, or Parquet files", f"name the columns: {_EXAMPLE}") from None


def declared_files(
    spark: SparkSession, name: str, path: str, schema: str | StructType, options: Mapping[str, str]
) -> DataFrame:
    """The streaming DataFrame of the files."""
    if not isinstance(schema, (str, StructType)):
        raise StreamError(f"the schema of stream {name!r} is {schema!r}", "a text or a StructType", _EXAMPLE)
    try:
        return spark.readStream.schema(schema).options(**options).parquet(pattern_of(path))
    except (PySparkException, Py4JError) as error:
        wrong = f"stream {name!r} cannot be opened: {one_line(error)}"
        raise StreamError(wrong, "a folder of Parquet files and their schema", _EXAMPLE) from None


def checked_stream(stream: Stream, others: Collection[str]) -> Stream:
    """The stream with its time column as the schema spells it; refused where it is no stream with an event time."""
    if not isinstance(stream.name, str) or not NAME.match(stream.name):
        raise StreamError(f"a stream cannot be named {stream.name!r}", "letters, digits and underscores")
    if stream.name in others:
        raise StreamError(f"there is already a stream named {stream.name!r}", "a name of its own for each stream")
    if not isinstance(stream.time, str):
        wrong = f"the time of stream {stream.name!r} is {stream.time!r}"
        raise StreamError(wrong, "the name of a timestamp column", 'time="ts"')
    fields = {field.name: field for field in stream.schema.fields}
    known = {name.lower(): name for name in stream.schema.names}
    alike = [name for name in stream.schema.names if stream.schema.names.count(name) > 1 or known[name.lower()] != name]
    if alike:
        raise StreamError(
            f"stream {stream.name!r} has two columns named {alike[0]!r}, but for the case of letters",
            "names that differ in more than that",
            "rename one of them, or leave it out",
        )
    if stream.time.lower() not in known:
        raise StreamError(
            f"stream {stream.name!r} has no column {stream.time!r} for its time",
            "a timestamp column",
            nearest(stream.time, fields),
        )
    spelled = known[stream.time.lower()]
    kind = fields[spelled].dataType
    if not isinstance(kind, (TimestampType, TimestampNTZType)):
        times = [n for n, f in fields.items() if isinstance(f.dataType, (TimestampType, TimestampNTZType))]
        raise StreamError(
            f"the time column {stream.time!r} of stream {stream.name!r} is of type {kind.simpleString()}",
            "timestamp or timestamp_ntz",
            f"use {times[0]!r}" if times else f"cast it: F.col({stream.time!r}).cast('timestamp')",
        )
    return replace(stream, time=spelled)


def schema_of(stream: Stream) -> Schema:
    """A stream's columns as the query language knows them, and which of them is its time."""
    return Schema(tuple(Column(f.name, f.dataType.simpleString()) for f in stream.schema.fields), stream.time)
