"""Expressions that fail on a row, evaluated so that the row is told apart and the others go on.

Catalyst's `TryEval` makes NULL of whatever its child raises. Around a struct of the expression, which is never NULL
itself, NULL means that it failed, and the value is what it was. No public function makes one, so this goes through the
JVM. Spark must not take common parts of expressions out of it and compute them first: sessions that run such a plan
have `SETTINGS`. Nor may its optimizer, which computes `x` of `x BETWEEN a AND b` and of `nullif(x, a)` once a row,
before the expression; in a branch of a CASE it does not, so each expression is in one. What a Python function raises is
raised outside, by its own operator, and stops the flow.

Invariant: an expression that does not fail has its value. Cost: an exception for each row that fails; elsewhere a
struct, and no sharing of common parts among the expressions of a flow that asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from braidstream.model.stores import Attempt, Passing
from braidstream.plan.attempts import shown_value
from braidstream.spark.names import column_of

__all__ = ["SETTINGS", "Failing", "Tries", "failed_column", "fails_in", "or_null", "reason_of", "tried"]

SETTINGS = {"spark.sql.subexpressionElimination.enabled": "false"}
_TRY = "__braidstream try"
_VALUE = "v"


def or_null(column: Column) -> Column:
    """The value of a column, NULL also where it cannot be computed."""
    return tried(column)[_VALUE]


def tried(column: Column) -> Column:
    """A struct that has the value of a column, or NULL where it cannot be computed."""
    context = SparkContext._active_spark_context
    assert context is not None
    jvm = context._jvm
    assert jvm is not None
    own = F.struct(column.alias(_VALUE))
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    made = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(own._jc))
    return F.when(F.lit(True), Column(utils.column(made)))


class Tries:
    """Expressions by their texts, some of which may fail: these are columns of a frame, computed once."""

    def __init__(self, texts: Sequence[str], *, after: bool = False) -> None:
        self._names = {text: f"{_TRY} {i}{' after' if after else ''}" for i, text in enumerate(texts)}

    def over(self, frame: DataFrame, where: Column | None = None) -> DataFrame:
        """The frame with these columns; only those rows are tried of which a condition is true."""
        made = (tried(F.expr(text)) for text in self._names)
        asked = (one if where is None else F.when(where, one) for one in made)
        named = (one.alias(name) for one, name in zip(asked, self._names.values(), strict=True))
        return frame.select("*", *named) if self._names else frame

    def are_in(self, texts: Sequence[str]) -> bool:
        """Whether some of these are tried."""
        return any(text in self._names for text in texts)

    def value(self, text: str) -> Column:
        """The value of an expression; NULL where it fails, if it is tried."""
        return column_of(self._names[text])[_VALUE] if text in self._names else F.expr(text)

    def fails(self, text: str) -> Column:
        """Whether an expression fails; one that is not tried does not."""
        return column_of(self._names[text]).isNull() if text in self._names else F.lit(False)

    def holds(self, texts: Sequence[str]) -> Column:
        """Whether all conditions are true."""
        return reduce(Column.__and__, (F.coalesce(self.value(text), F.lit(False)) for text in texts), F.lit(True))

    def rules_out(self, texts: Sequence[str]) -> Column:
        """Whether a condition that can be computed is not true."""
        each = (~self.fails(text) & ~F.coalesce(self.value(text), F.lit(False)) for text in texts)
        return reduce(Column.__or__, each, F.lit(False))

    def passes(self, test: Passing) -> Column:
        """Whether a row passes a filter, and its values can be computed."""
        return reduce(Column.__and__, (~self.fails(text) for text in test.values), self.holds(test.conditions))

    def failing(self, conditions: Sequence[str], values: Sequence[str], where: Column | None = None) -> list[Failing]:
        """What may fail of a row, an entry for each expression. Values are computed `where` the conditions hold."""
        is_out, is_in = self.rules_out(conditions), self.holds(conditions) if where is None else where
        found = [(self.fails(one) & ~is_out, one.replace("`", "")) for one in conditions if one in self._names]
        return found + [(self.fails(one) & is_in, shown_value(one)) for one in values if one in self._names]


Failing = tuple[Column, str]
"""Whether an expression fails, and what it is called."""


def failed_column(attempts: Sequence[Attempt], tries: Tries) -> Column:
    """What failed of a row, as JSON: an array with an entry for each query; NULL if nothing."""
    entries, all_failing = [], list[Failing]()
    for query, own in groupby(sorted(attempts, key=lambda one: one.query), key=lambda one: one.query):
        failing = [pair for one in own for pair in tries.failing(one.conditions, one.values)]
        told = F.struct(F.lit(query).alias("query"), reason_of(failing).alias("reason"))
        entries.append(F.when(fails_in(failing), told))
        all_failing += failing
    return F.when(fails_in(all_failing), F.to_json(F.array_compact(F.array(*entries))))


def fails_in(failing: Sequence[Failing]) -> Column:
    """Whether one of them fails."""
    return reduce(Column.__or__, (fails for fails, _ in failing), F.lit(False))


def reason_of(failing: Sequence[Failing]) -> Column:
    """What to say of all that fail."""
    told = F.array(F.lit(None).cast("string"), *(F.when(fails, F.lit(what)) for fails, what in failing))
    return F.concat(F.array_join(F.array_distinct(told), "; "), F.lit(" cannot be computed"))
