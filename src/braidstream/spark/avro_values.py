"""Avro in the values of Kafka's messages: read and written by Spark's own functions, which a package brings.

The fields are declared as for JSON, in Spark's types. The schema that writers have used is the one that Spark makes of
these types, which is what `to_avro` and our own sink write; or it is given, as JSON, in the option `avro.schema`, and
then fields are taken from it by name and cast. `avro.skip` bytes in front are left out: 5 for Confluent's registry.

Cost: Spark's decoder, row by row in the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StructType

from braidstream.errors import InputError
from braidstream.spark.causes import one_line
from braidstream.spark.formats import package_of

__all__ = ["AVRO_OPTIONS", "avro_row", "avro_schema", "avro_value", "refuse_no_avro"]

AVRO_OPTIONS = ("avro.schema", "avro.skip")


def avro_schema(spark: SparkSession, struct: StructType) -> str:
    """The Avro schema that Spark writes rows of such columns with."""
    jvm = spark._jvm
    declared = jvm.org.apache.spark.sql.types.DataType.fromJson(struct.json())
    converters = jvm.org.apache.spark.sql.avro.SchemaConverters
    return str(converters.toAvroType(declared, False, "row", "").toString())


def avro_row(spark: SparkSession, struct: StructType, options: Mapping[str, str], *, keeps_bad: bool) -> Column:
    """The row in a message's value; NULL for one that cannot be read, if those are kept."""
    given = options.get("avro.schema") or avro_schema(spark, struct)
    skip = int(options.get("avro.skip", "0"))
    value = F.expr(f"substring(value, {skip + 1})") if skip else F.col("value")
    read = from_avro(value, given, {"mode": "PERMISSIVE" if keeps_bad else "FAILFAST"})
    fields = [read[field.name].cast(field.dataType).alias(field.name) for field in struct.fields]
    row = F.struct(*fields)
    return F.when(read.isNotNull(), row) if keeps_bad else row


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
            f'packages = ["{package_of("avro")}"] in [spark], of this version of Spark or the last one before it',
        ) from None
