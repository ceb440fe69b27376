"""Streams of Parquet files as they are declared: opened by Spark, their schema read from files where none is given."""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from braidstream.errors import StreamError
from braidstream.spark.causes import one_line
from braidstream.spark.names import pattern_of

__all__ = ["declared_files", "read_schema"]

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
