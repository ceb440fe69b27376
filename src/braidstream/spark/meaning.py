"""Spark's analyzer as the query language's judge: what an expression means, of which type it is, how keys compare.

Expressions are resolved on an empty DataFrame that has one struct column for each input, under the session's own
settings (ANSI mode, time zone, functions), as `finishing.finish` computes them later. What an equality is compared in
is read from the analyzed plan: no public function tells it, so this uses the plan behind the DataFrame.

Invariant: nothing is computed; a text that Spark refuses raises `Uncomputable`. Cost: some milliseconds of analysis for
each question, none for plain columns of one type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_json_string,
)

from braidstream.errors import StreamError, nearest
from braidstream.query.meaning import Typed, Uncomputable
from braidstream.query.model import Enriched
from braidstream.query.types import quote_name
from braidstream.spark.joined_tables import AllStreams
from braidstream.spark.json_errors import without_json
from braidstream.spark.sources import Stream
from braidstream.spark.utc_schemas import utc_schema

__all__ = ["SparkMeaning", "refuse_mixed_times", "type_text"]


class SparkMeaning:
    """What Spark says of expressions over declared streams, of which there may come more. Answers are remembered."""

    def __init__(self, spark: SparkSession, streams: AllStreams) -> None:
        self._spark, self._streams = spark, streams
        self._frame_of = lru_cache(maxsize=None)(self._frame)
        self._same: dict[tuple[object, ...], bool] = {}

    def enrich(self, made: Enriched) -> None:
        """Know a stream with tables."""
        self._streams.add(made)

    def same(self, inputs: Mapping[str, str], written: str, canonical: str, groups: Sequence[str] | None) -> bool:
        """Whether both are the same expression to the analyzer, or become so when constants are computed."""
        question = (tuple(inputs.items()), written, canonical, tuple(groups) if groups is not None else None)
        if question not in self._same:
            self._same[question] = self._is_same(self._frame_of(question[0]), written, canonical, groups)
        return self._same[question]

    def _is_same(self, frame: DataFrame, written: str, canonical: str, groups: Sequence[str] | None) -> bool:
        mine = self._selected(frame, written, groups)
        try:
            theirs = self._selected(frame, canonical, groups)
        except Uncomputable:
            return False
        if mine.schema.fields[0].dataType != theirs.schema.fields[0].dataType:
            return False
        if mine.sameSemantics(theirs):
            return True
        try:
            with _asked():
                plans = [one._jdf.queryExecution().optimizedPlan() for one in (mine, theirs)]
                return bool(plans[0].sameResult(plans[1]))
        except Uncomputable:  # a constant that cannot be computed: the run will say so, of the user's own text
            return False

    def compared(self, inputs: Mapping[str, str], left: str, right: str) -> tuple[str, str, str]:
        """The types of both sides, and the type in which Spark compares them."""
        frame = self._frame_of(tuple(inputs.items()))
        own = [type_text(self._selected(frame, side, None).schema.fields[0].dataType) for side in (left, right)]
        selected = self._selected(frame, f"({left}) = ({right})", None)
        equality = selected._jdf.queryExecution().analyzed().expressions().head().child()
        if equality.nodeName() != "EqualTo":
            raise Uncomputable(f"it is compared by {equality.nodeName()}, not as an equality")
        common = _parse_datatype_json_string(equality.left().dataType().json())
        return own[0], own[1], type_text(common)

    def type_of(self, inputs: Mapping[str, str], sql: str, *, aggregated: bool = False) -> Typed:
        """The type that the analyzer finds, and Arrow's form of it."""
        frame = self._frame_of(tuple(inputs.items()))
        schema = self._selected(frame, sql, () if aggregated else None).schema
        with _asked():
            return Typed(type_text(schema.fields[0].dataType), utc_schema(schema).field(0).type)

    def has_even_days(self) -> bool:
        """Whether the session's zone is a fixed distance from UTC."""
        zone = self._spark.conf.get("spark.sql.session.timeZone", "UTC")
        return _is_utc(zone) or bool(re.fullmatch(r"(UTC|GMT|UT)?[+-]\d{1,2}(:?\d{2}){0,2}", zone or ""))

    def is_ansi(self) -> bool:
        """Whether the session is in ANSI mode."""
        return (self._spark.conf.get("spark.sql.ansi.enabled", "true") or "true").lower() == "true"

    def check(self, inputs: Mapping[str, str], expressions: Sequence[str], conditions: Sequence[str]) -> None:
        """Resolve all of them at once."""
        if not expressions and not conditions:
            return
        frame = self._frame_of(tuple(inputs.items()))
        with _asked():
            for condition in conditions:
                frame = frame.where(condition)
            if expressions:
                frame.select(*(F.expr(sql).alias(f"c{i}") for i, sql in enumerate(expressions)))

    def _frame(self, inputs: tuple[tuple[str, str], ...]) -> DataFrame:
        fields = [StructField(alias, self._streams[stream].schema, nullable=False) for alias, stream in inputs]
        return self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), StructType(fields), verifySchema=False)

    def _selected(self, frame: DataFrame, sql: str, groups: Sequence[str] | None) -> DataFrame:
        with _asked():
            column = F.expr(sql).alias("c")
            if groups is None:
                return frame.select(column)
            return frame.groupBy(*(F.expr(group) for group in groups)).agg(column).select("c")


@contextmanager
def _asked() -> Iterator[None]:
    """What Spark refuses is our answer, not an event."""
    try:
        with without_json():
            yield
    except PySparkException as error:
        raise Uncomputable(reason(error)) from None


def reason(error: PySparkException) -> str:
    """Spark's message in one line, without the place in a text that the user never saw."""
    if (error.getCondition() or "").startswith("UNRESOLVED_ROUTINE"):
        said = str((error.getMessageParameters() or {}).get("routineName", ""))
        name = said.replace("`", "").rpartition(".")[2].lower()
        hint = nearest(name, [known for known in dir(F) if not known.startswith("_")])
        return f"there is no function {name!r}" + (f"; {hint}" if hint else "")
    return re.split(r" SQLSTATE|; line \d+", str(error).strip().splitlines()[0])[0].rstrip(".")


def type_text(kind: DataType) -> str:
    """The type as Spark SQL reads it back: its simpleString, with names in quotes where they need them."""
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{_field(f.name)}:{type_text(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())


def _field(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else quote_name(name)


def refuse_mixed_times(spark: SparkSession, streams: Mapping[str, Stream]) -> None:
    """Refuse times with and without a zone in one flow, unless the session's zone makes no difference between them.

    Spark would take those without a zone for times in the session's; here both are compared as they are stored.
    """
    zone = spark.conf.get("spark.sql.session.timeZone", "UTC")
    kinds = {name: stream.schema[stream.time].dataType for name, stream in streams.items()}
    local = [name for name, kind in kinds.items() if isinstance(kind, TimestampNTZType)]
    instants = [name for name, kind in kinds.items() if isinstance(kind, TimestampType)]
    if not local or not instants or _is_utc(zone):
        return
    time = streams[local[0]].time
    raise StreamError(
        f"the time of stream {local[0]!r} is timestamp_ntz, that of {instants[0]!r} timestamp, in the zone {zone}",
        "times of one type",
        f"cast it: F.col({time!r}).cast('timestamp') is the instant in {zone}",
    )


def _is_utc(zone: str | None) -> bool:
    return (zone or "UTC").upper() in ("UTC", "GMT", "Z", "+00:00", "ETC/UTC", "ETC/GMT", "ZULU", "UCT", "ETC/UCT")
