"""Avro in the values of Kafka's messages: read and written by Spark's own functions, which a package brings.

The fields are declared as for JSON, in Spark's types. The schema that writers have used is the one that Spark makes of
these types, which is what `to_avro` and our own sink write; or it is given, as JSON, in the option `avro.schema`, and
then fields are taken from it by name and cast. `avro.skip` bytes in front are left out: 5 for Confluent's registry.
Spark makes a row of NULLs of a value that it cannot read; so a field with a default is read along, which such a row
lacks. A field that cannot be cast to what is declared makes a value one that cannot be read.

Cost: Spark's decoder, row by row in the JVM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from braidstream.errors import InputError, StreamError
from braidstream.spark.causes import one_line
from braidstream.spark.formats import package_of
from braidstream.spark.trying import or_null

__all__ = ["AVRO_OPTIONS", "avro_row", "avro_schema", "avro_value", "refuse_no_avro"]

AVRO_OPTIONS = ("avro.schema", "avro.skip")
_READ = "__braidstream_read"


def avro_schema(spark: SparkSession, struct: StructType) -> str:
    """The Avro schema that Spark writes rows of such columns with."""
    jvm = spark._jvm
    declared = jvm.org.apache.spark.sql.types.DataType.fromJson(struct.json())
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    return str(converters.toAvroType(declared, False, "row", "").toString())


def avro_row(spark: SparkSession, struct: StructType, options: Mapping[str, str], *, keeps_bad: bool) -> Column:
    """The row in a message's value; NULL for one that cannot be read.

    Where bad ones are not kept the schema may be no record; Spark then stops at the first, and does not name it.
    """
    given = options.get("avro.schema") or avro_schema(spark, struct)
    skip = int(options.get("avro.skip", "0"))
    value = F.expr(f"substring(value, {skip + 1})") if skip else F.col("value")
    if not keeps_bad and not _is_record(given):
        return F.struct(*_fields(from_avro(value, given, {"mode": "FAILFAST"}), struct))
    read = from_avro(value, given, {"mode": "PERMISSIVE", "avroSchema": _with_proof(given)})
    return F.when(read[_READ], or_null(F.struct(*_fields(read, struct))))


def _fields(read: Column, struct: StructType) -> list[Column]:
    return [read[field.name].cast(field.dataType).alias(field.name) for field in struct.fields]


def _with_proof(schema: str) -> str:
    """A record's schema as readers are to have it: with a field that is true in every row that could be read."""
    if not _is_record(schema):
        wrong = f'"avro.schema" is no record: {schema[:200]}'
        raise StreamError(
            wrong, "the schema of a record, as JSON, where bad rows are kept", "leave out what is around it"
        )
    record = json.loads(schema)
    proof = {"name": _READ, "type": "boolean", "default": True}
    return json.dumps({**record, "fields": [*record["fields"], proof]})


def _is_record(schema: str) -> bool:
    try:
        found = json.loads(schema)
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("fields"), list)


def avro_value(frame: DataFrame) -> Column:
    """All columns of a frame as Avro."""
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in frame.columns]
    return to_avro(F.struct(*columns), avro_schema(frame.sparkSession, frame.schema))


def refuse_no_avro(spark: SparkSession, what: str, error: type[InputError]) -> None:
    """Refuse Avro where the session does not have Spark's package for it."""
    try:
        _ = spark.range(1).select(to_avro(F.col("id"))).schema
    except (PySparkException, TypeError) as cause:
        raise error(
            f"{what}: Spark cannot read or write Avro: {one_line(cause)}",
            "Spark's package for Avro",
            f'packages = ["{package_of("avro")}"] in [spark], or the last one before this version of Spark',
        ) from None
