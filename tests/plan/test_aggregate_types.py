"""The types by which aggregates are planned: what Spark's analyzer says, and without Spark the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from braidstream.errors import QueryError
from braidstream.lab.testing.expressions import DuckTypes, spark_type
from braidstream.plan.aggregate_plan import draft
from braidstream.query import Column, Schema, parse
from braidstream.query.meaning import Uncomputable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidstream.spark.meaning import SparkMeaning

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
DDL = ", ".join(f"`{field.name}` {spark_type(field.type)}" for field in SCHEMA)
INPUTS = {"a": "S", "b": "S"}


@pytest.fixture(scope="module")
def meaning(spark: SparkSession) -> SparkMeaning:
    from pyspark.sql.types import StructType

    from braidstream.spark.meaning import SparkMeaning
    from braidstream.spark.sources import Stream

    frame = spark.createDataFrame([], StructType.fromDDL(DDL))
    return SparkMeaning(spark, {"S": Stream("S", frame, frame.schema, "ts", 0)})


@pytest.mark.parametrize("function", ["min", "max", "sum", "avg", "count"])
def test_without_spark_aggregates_have_the_types_that_spark_gives_them(meaning: SparkMeaning, function: str) -> None:
    guessed = DuckTypes({"S": SCHEMA})
    for field in SCHEMA:
        column = f"`b`.`{field.name}`"
        assert meaning.type_of(INPUTS, column).arrow == guessed.type_of(INPUTS, column).arrow == field.type
        asked = f"{function}({column})"
        try:
            said = meaning.type_of(INPUTS, asked, aggregated=True).arrow
        except Uncomputable:
            assert field.name in ("day", "ts", "text")
            continue
        assert guessed.type_of(INPUTS, asked, aggregated=True).arrow == said, asked


def test_the_text_of_a_type_is_what_spark_writes(meaning: SparkMeaning) -> None:
    for field in SCHEMA:
        assert meaning.type_of(INPUTS, f"`a`.`{field.name}`").text == spark_type(field.type)
    assert meaning.type_of(INPUTS, "struct(`a`.`text`, `b`.`price`)").text == "struct<text:string,price:decimal(12,2)>"
    assert "collate UTF8_LCASE" in meaning.type_of(INPUTS, "`a`.`text` COLLATE UTF8_LCASE").text


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("SUM(nosuch(a.int)) AS x", "nosuch"),
        ("MAX(make_ym_interval(a.int, 1)) AS x", "YearMonthInterval"),
        ("MIN(a.text COLLATE UTF8_LCASE) AS x", "UTF8_LCASE"),
        ("SUM(a.day) AS x", "day"),
    ],
    ids=["no such function", "a type that Arrow has no form for", "a collation", "a sum of days"],
)
def test_an_aggregate_without_a_type_is_refused_as_an_error_of_the_query(
    meaning: SparkMeaning, output: str, said: str
) -> None:
    schema = Schema(tuple(Column(field.name, spark_type(field.type)) for field in SCHEMA))
    text = f"SELECT {output} FROM S [RANGE 9 SECONDS] AS a, S [RANGE 9 SECONDS] AS b WHERE a.long = b.long"
    with pytest.raises(QueryError, match=said):
        draft(parse(text, {"S": schema}, "q"), meaning)
