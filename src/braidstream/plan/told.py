"""What results say of themselves, where a query asks for it: whether clean-up recovered them, and in which epoch.

Two columns at the end of each result: `recovered`, a boolean, and `epoch`, the one the result came in (for the last
clean-up of a finite flow, the last epoch). Slots add them as constants of a batch (`slot/sharing.py`); they cost
nothing to speak of.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from braidstream.errors import InputError
from braidstream.model.stores import Join
from braidstream.query import Query
from braidstream.state.staging import SPARK_FIELD

if TYPE_CHECKING:
    from braidstream.plan.planner import Plan

__all__ = ["TOLD", "check_told", "told"]

TOLD = ("recovered", "epoch")
_FIELDS = tuple(
    pa.field(
        name, kind, metadata={SPARK_FIELD: f'{{"name":"{name}","type":"{spark}","nullable":true,"metadata":{{}}}}'}
    )
    for name, kind, spark in (("recovered", pa.bool_(), "boolean"), ("epoch", pa.int64(), "long"))
)


def told(plan: Plan, queries: Collection[str]) -> Plan:
    """The plan with the columns added to the results of some queries."""
    if not queries:
        return plan
    return replace(plan, joins=tuple(_tell(join) if join.query in queries else join for join in plan.joins))


def _tell(join: Join) -> Join:
    return replace(join, told=True, schema=pa.schema([*join.schema, *_FIELDS]))


def check_told(query: Query) -> None:
    """Refuse a query whose results have no room for the columns."""
    if query.is_aggregate:
        raise InputError(
            f"query {query.name!r} is an aggregate, and its results are never recovered",
            "recovered for queries without aggregates",
            "leave recovered out",
        )
    taken = [output.name for output in query.outputs if output.name.lower() in TOLD]
    if taken:
        raise InputError(
            f"query {query.name!r} has an output {taken[0]!r} of its own",
            f"no output named {' or '.join(TOLD)} where recovered is asked for",
            f"rename it: {taken[0]} AS its_{taken[0]}",
        )
