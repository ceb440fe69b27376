"""What a job file makes run beside SQL: settings by which Spark loads code, and functions that call methods of Java.

A job file of somebody else runs code only where it names it, and `braid check` and `braid run` say so before anything
is started: `[functions.x]` (`functions/jobfile.py`), a setting such as `spark.jars`, a query that calls `java_method`.

Invariant: nothing is loaded to find out. Cost: a look at names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from braidstream.query import Query
from braidstream.spark.resolve import called_functions

__all__ = ["named_code"]

_LOADS = re.compile(
    r"spark\.(jars|files|archives|plugins|submit|pyspark|python|extraListeners|serializer|closure\.serializer"
    r"|kryo\.|sql\.(extensions|catalog\.|queryExecutionListeners|streaming\.streamingQueryListeners|hive\.metastore\.jars)"
    r"|(driver|executor)\.(extra|default)|driver\.userClassPath|executor\.userClassPath|hadoop\.fs\..*\.impl)",
    re.IGNORECASE,
)
_SETS_NO_CODE = re.compile(r"spark\.python\.worker\.(reuse|memory|idle)|spark\.kryo\w*\.buffer", re.IGNORECASE)
_CALLS = frozenset({"java_method", "reflect", "try_reflect"})


def named_code(settings: Mapping[str, str], queries: Mapping[str, Query]) -> Iterator[str]:
    """A line for each place of a job file that runs code."""
    for name, value in settings.items():
        if _LOADS.match(name) and not _SETS_NO_CODE.match(name):
            yield f"[spark] {name} may bring code that the job names: {value}"
    for name, query in queries.items():
        if calls := sorted(_CALLS & {called.lower() for called in called_functions(query)}):
            yield f"[queries.{name}] runs code that the job names, by {', '.join(calls)}"
