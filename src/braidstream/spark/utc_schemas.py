"""Arrow's schema of a Spark schema with moments in UTC, whichever version of Spark makes it.

Spark 4.1 has moments in UTC unless told otherwise; later versions must be told. Cost: the signature is read once.
"""

from __future__ import annotations

import inspect

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["utc_schema"]

_TOLD = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def utc_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of the columns, time zones in UTC."""
    return to_arrow_schema(schema, **_TOLD)
