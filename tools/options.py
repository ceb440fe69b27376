"""Writes docs/options.md, the reference of every option, from their declarations in `braidstream.options`.

`python -m tools.options` writes the page; a rule of the repository (`tools/rules/options.py`) finds one that is behind.
Cost: none to speak of; nothing of Spark is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from braidstream import options
from braidstream.options import Option, options_of, shown

__all__ = ["PAGE", "SECTIONS", "page"]

PAGE = "docs/options.md"
SECTIONS: tuple[tuple[type, str, str, str], ...] = (
    (options.StartOptions, "Start", "`[flow]`, and `Flow.start(...)`", ""),
    (
        options.FlowOptions,
        "Flow",
        "`[flow]`, and `Flow(spark, ...)`",
        "[skew.md](skew.md) has the routers, [memory.md](memory.md) what happens beyond the memory.",
    ),
    (
        options.JobStream,
        "Streams",
        "`[streams.NAME]`, and `flow.files(...)` or `flow.stream(...)`",
        "In Python a format is opened with `spark.readStream`.",
    ),
    (
        options.JobTableOptions,
        "Tables",
        "`[tables.NAME]`, and `flow.table(name, ...)`",
        "In Python a table may also be a DataFrame, or a function that gives one. [guide.md](guide.md) has an example.",
    ),
    (
        options.JobQuery,
        "Queries",
        "`[queries.NAME]`, and `flow.query(...)`",
        "In Python the sinks are `.to(...)`, `.late(...)` and `.bad(...)`.",
    ),
    (options.JobSink, "Sinks", "`sink`, `late` and `bad` of a query, and `.to(format, path, **options)`", ""),
    (
        options.FunctionOptions,
        "Functions",
        "`[functions.NAME]`, and `flow.windows(...).apply(...)`",
        "[functions.md](functions.md) has the templates.",
    ),
    (
        options.JobControl,
        "Controller",
        "`[control]`, and `Controller(Settings(...))`, which needs no `enabled`",
        "[controller.md](controller.md) has the rules that they belong to. Times are in seconds.",
    ),
)
_HEAD = """# Options

Every option, with what it may be. This page is made from `src/braidstream/options/tables.py` by
`python -m tools.options`; a wrong value is refused with the same words in Python and in a job file, before anything
starts. Options of Spark go into `[spark]` of a job file, or `--conf`.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([_HEAD, *(line for section in SECTIONS for line in _section(*section))])


def _section(form: type, title: str, where: str, note: str) -> Iterator[str]:
    yield f"## {title}\n\n{where}.{f' {note}' if note else ''}\n"
    yield "| option | what | value | default | example |\n| --- | --- | --- | --- | --- |"
    yield from (_row(one) for one in options_of(form).values())
    yield ""


def _row(one: Option) -> str:
    default = "none" if one.default is None else "must be given" if one.is_required else shown(one.default)
    only = "" if one.job else " (not in a job file)"
    cells = (f"`{one.name}`", one.doc + only, one.kind.expected, one.unset or default, f"`{one.written}`")
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Write the page."""
    (Path(__file__).parents[1] / PAGE).write_text(page(), encoding="utf-8")
    print(f"options: {PAGE} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
