"""JSON and CSV files as streams of job files: a row that is not what the schema says is never taken for NULLs.

    [streams.orders]
    format = "json"               # or "csv"
    path = "data/orders"
    schema = "customer long, amount double, at timestamp"
    time = "at"
    bad = { format = "json", path = "out/bad" }

Spark by itself makes NULLs of what it cannot read (its mode PERMISSIVE). Here such a row stops the flow, and is named
with its file; or it goes to the stream's output for bad rows (`spark.bad_rows`). A field that JSON lacks is NULL.
Who gives `mode`, or a column for such rows, has what Spark makes of it. Only columns that queries use are read; outputs
for whole rows, late ones and those on which an expression fails, use all.

Cost: Spark parses, as it does without this; but a CSV line is split into all of its columns, whatever is read of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from braidstream.options.tables import OWN_WAYS
from braidstream.spark.bad_rows import BAD
from braidstream.spark.formats import open_stream
from braidstream.spark.names import column_of

__all__ = ["TEXT_FILES", "text_frame"]

TEXT_FILES = ("json", "csv")
_CORRUPT = "__corrupt"
_DEFAULT_CORRUPT = "_corrupt_record"


def text_frame(
    spark: SparkSession,
    name: str,
    format_: str,
    path: str | None,
    schema: str,
    options: Mapping[str, str],
    *,
    keeps_bad: bool,
) -> DataFrame:
    """The rows of files. With `keeps_bad`, one that is not what the schema says is NULLs, but for its column `_bad`."""
    theirs = [option for option in options if option.lower() in OWN_WAYS]
    # Spark leaves columns of a CSV line out that nobody asks for, and then does not see that the line has too few
    whole = {"columnPruning": "false", **options} if format_.lower() == "csv" else dict(options)
    if not keeps_bad:
        is_theirs = bool(theirs) or _DEFAULT_CORRUPT in schema
        return open_stream(spark, name, format_, path, schema, options if is_theirs else {**whole, "mode": "FAILFAST"})
    own = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    frame = open_stream(spark, name, format_, path, f"{schema}, {_CORRUPT} string", {**whole, **own})
    is_bad = F.col(_CORRUPT).isNotNull()
    good = [F.when(~is_bad, column_of(one)).alias(one) for one in frame.columns if one != _CORRUPT]
    reason = F.lit(f"no {format_.upper()} of {schema}")
    known = {"reason": reason, "message": F.col(_CORRUPT), "file": F.input_file_name()}
    may_be_null = [F.when(is_bad, one).alias(field) for field, one in known.items()]  # as Arrow wants it
    return frame.select(*good, F.when(is_bad, F.struct(*may_be_null)).alias(BAD))
