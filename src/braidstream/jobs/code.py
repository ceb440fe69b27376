"""What a job file makes run beside SQL: settings by which Spark loads code, and functions that call methods of Java.

A job file of somebody else runs code only where it names it, and `braid check` and `braid run` say so before anything
is started: `[functions.x]` (`functions/jobfile.py`), a setting such as `spark.jars`, a query that calls `java_method`,
an option of a stream, a sink or a table by which a client loads code or starts a program (`plugin.library.paths` and
`sasl.kerberos.kinit.cmd` of Kafka's, `py-io-impl` of pyiceberg), a format that is the name of a class.

Settings and options that take the name of a class are told by how their names end, and by the dot in their value;
classes of Spark's and Hadoop's own are no code of the job's. Invariant: nothing is loaded to find out. Cost: a look at
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from braidstream.model.secrets import kept_value
from braidstream.query import Query
from braidstream.spark.resolve import called_functions

__all__ = ["named_code"]

End = tuple[str, Mapping[str, str]]
"""A format and options."""

_LOADS = re.compile(
    r"spark\.(jars|files|archives|plugins|submit|pyspark|python|extraListeners|serializer|closure\.serializer"
    r"|kryo\.|sql\.(extensions|catalog\.|queryExecutionListeners|streaming\.streamingQueryListeners|hive\.metastore\.jars)"
    r"|(driver|executor)\.(extra|default)|driver\.userClassPath|executor\.userClassPath|hadoop\.fs\..*\.impl)",
    re.IGNORECASE,
)
_SETS_NO_CODE = re.compile(r"spark\.python\.worker\.(reuse|memory|idle)|spark\.kryo\w*\.buffer", re.IGNORECASE)
_RUNS = re.compile(
    r"(library\.paths|kinit\.cmd|jaas\.config|discoveryScript|discoveryPlugin|py-[\w-]+-impl|podTemplateFile)$"
    r"|^spark\.(executorEnv|yarn\.appMasterEnv|kubernetes\.driverEnv)\.",
    re.IGNORECASE,
)
"""Whatever the value: libraries, commands, login modules, modules of Python, what a process is started with."""
_TAKES_CLASS = re.compile(
    r"(class(es|name)?|[._-]impl|factory|providers?|plugins?|manager|codec|serializer|reporters?|listeners?"
    r"|interceptors?|filters|handler|committer|[._-]driver)$|^driver$",
    re.IGNORECASE,
)
_CLASS = re.compile(r"\w+(\.\w+)+")
_OWN = ("org.apache.spark.", "org.apache.hadoop.")
_CALLS = frozenset({"java_method", "reflect", "try_reflect"})


def named_code(
    settings: Mapping[str, str], queries: Mapping[str, Query], ends: Mapping[str, End] | None = None
) -> Iterator[str]:
    """A line for each place of a job file that runs code; `ends` are streams, sinks and tables, by their places."""
    for name, value in settings.items():
        if (_LOADS.match(name) and not _SETS_NO_CODE.match(name)) or _brings_code(name, value):
            yield f"[spark] {name} may bring code that the job names: {kept_value(name, value)}"
    for place, (format_, options) in (ends or {}).items():
        if _is_class(format_):
            yield f"{place} may bring code that the job names: format {format_}"
        for name, value in options.items():
            if _brings_code(name, value):
                yield f"{place} {name} may bring code that the job names: {kept_value(name, value)}"
    for name, query in queries.items():
        if calls := sorted(_CALLS & {called.lower() for called in called_functions(query)}):
            yield f"[queries.{name}] runs code that the job names, by {', '.join(calls)}"


def _brings_code(name: str, value: str) -> bool:
    return bool(_RUNS.search(name)) or (bool(_TAKES_CLASS.search(name)) and _is_class(value))


def _is_class(value: str) -> bool:
    """Whether it may be the name of a class, or several of them, and not only of Spark's own."""
    names = [one.strip() for one in value.split(",")]
    return any(_CLASS.fullmatch(one) is not None and not one.startswith(_OWN) for one in names)
