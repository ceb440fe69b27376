"""The rows of results as other systems are told of them: Arrow's types, and tables that have other columns.

Cost: a look at two schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from braidstream.errors import SinkError
from braidstream.spark.utc_schemas import utc_schema

__all__ = ["names_of", "refuse_other_columns", "result_schema"]


def result_schema(schema: StructType, system: str) -> pa.Schema:
    """The Arrow types of results, every column with or without values, times in UTC."""
    try:
        found = utc_schema(schema)
    except PySparkException as error:
        raise SinkError(
            f"{system} has no form for these results: {error.getMessage()}",
            "types that Arrow has",
            "cast the column in the query",
        ) from None
    return pa.schema([pa.field(field.name, field.type, nullable=True) for field in found])


def refuse_other_columns(what: str, theirs: Mapping[str, str], mine: Mapping[str, str]) -> None:
    """Refuse a table whose columns are others than those of the results."""
    other = [name for name, kind in mine.items() if theirs.get(name, kind) != kind]
    wrong = [f"{name} is {theirs[name]} there, and {mine[name]} here" for name in other]
    wrong += [f"{name} ({kind}) is not there" for name, kind in mine.items() if name not in theirs]
    wrong += [f"{name} ({kind}) is only there" for name, kind in theirs.items() if name not in mine]
    if wrong:
        raise SinkError(
            f"{what} has another schema: {'; '.join(wrong)}",
            f"the columns {', '.join(f'{name} {kind}' for name, kind in mine.items())}",
            "change the outputs of the query, or choose another table",
        )


def names_of(text: str) -> list[str]:
    """The columns of a key: a list in JSON, or names between commas."""
    if text.startswith("["):
        return [str(name) for name in json.loads(text)]
    return [name.strip() for name in text.split(",") if name.strip()]
