"""The reference of the job file: a file with every table, from the declared options and their examples.

Invariant: every option that a job file may have is in it, with its own example, default and meaning. Cost: none.
"""

from __future__ import annotations

from collections.abc import Iterator

from braidstream import options
from braidstream.options import Option, options_of

__all__ = ["job_file_page"]

_HEAD = """# The job file

Every table and every line that a job file may have, each with an example of its value, what it means and what it is if
it is left out. A job has queries, or functions that feed one another. Paths are relative to the file. The
[guide](../guide.md#job-files) explains, [Options](../options.md) has the ranges.
"""
_TABLES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("[flow]", (options.StartOptions, options.FlowOptions)),
    ("[streams.NAME]", (options.JobStream,)),
    ("[tables.NAME]", (options.JobTableOptions,)),
    ("[queries.NAME]", (options.JobQuery,)),
    ("[functions.NAME]", (options.FunctionOptions,)),
    ("[control]", (options.JobControl,)),
)
_REST = """
## [types.NAME]

The fields of a stream type, a line each: `ts = "timestamp"`, `v = "vector of float"`
([functions](../functions.md#types)).

## [spark]

Settings of Spark, `spark.sql.session.timeZone = "UTC"`; `master = "local[4]"` is short for `spark.master`, and
`packages = [...]` lists `spark.jars.packages`.
"""


def job_file_page() -> str:
    """The page."""
    lines = [_HEAD]
    for table, forms in _TABLES:
        lines += [f"## {table}\n", "```toml", table, *_lines(forms), "```", ""]
    return "\n".join([*lines, _REST])


def _lines(forms: tuple[type, ...]) -> Iterator[str]:
    for one in (one for form in forms for one in options_of(form).values() if one.job):
        yield f"{one.written:<44} # {one.doc}; {_default(one)}"


def _default(one: Option) -> str:
    if one.is_required:
        return "must be given"
    return f"if left out: {one.unset or ('none' if one.default is None else options.shown(one.default))}"
