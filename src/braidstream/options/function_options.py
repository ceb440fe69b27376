"""The options of functions on windows: a table of a job file, apart from `options.tables` for its length alone.

What is said there holds here: one field an option, and calls, job files and the reference have the same. Invariant:
whatever 0.1.0 accepted is accepted. Cost: see `options.option`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from braidstream.options.kinds import Choice, Count, Counts, Duration, Inner, Text, Texts
from braidstream.options.option import Checked, option
from braidstream.options.tables import SINK, JobSink

__all__ = ["FunctionOptions"]

LEVELS = ("distribute", "split")
ALIGNED = ("time", "count")


@dataclass(frozen=True)
class FunctionOptions(Checked):
    """`[functions.NAME]`: a function on windows of a stream (docs/functions.md)."""

    stream: str = option(Text(), MISSING, "radio", "The stream, or another function: then its results are the stream")
    function: str = option(Text(), MISSING, "fft3", "A registered name, or `module:function`")
    time: str | None = option(
        Text(), None, "ts", "Of the results of a query that it takes: the column with their time",
        unset="none: needed there, and nowhere else",
    )  # fmt: skip
    delay: str | None = option(
        Duration(), None, "20 seconds", "Of the results of a query that it takes: how late one may come",
        unset="none: needed there, and nowhere else",
    )  # fmt: skip
    beside: tuple[str, ...] = option(
        Texts(), (), ("radio2",), "Other streams whose rows are aligned with those of the stream: a field is `radio2_x`"
    )
    align: str = option(Choice(ALIGNED), "time", "count", "With beside: rows of equal times, or the k-th rows of each")
    type: str | None = option(Text(), None, "SAMPLES", "A declared type", unset="read from the stream's columns")
    size: int | None = option(Count(), None, 1024, "Rows in a window", unset="every row is a window")
    step: int | None = option(Count(), None, 512, "Rows from one window to the next", unset="its size")
    degrees: tuple[int, ...] = option(Counts(), (), (2, 2), "How many parallel parts, the outermost first")
    distribute: str = option(
        Text(), "round_robin", "hash", '"round_robin", "hash" or `module:function`: which part takes a window'
    )
    timeout: str = option(Duration(), "0 seconds", "100 milliseconds", "How long merging waits for a part")
    patience: str | None = option(
        Duration(), None, "2 seconds",
        "How much longer than the fastest a part may take, in wall time, before its windows are given up",
        unset="as long as it takes",
    )  # fmt: skip
    split: str | None = option(Text(), None, "cut:halves", "With combine: a function that splits each window")
    combine: str | None = option(Text(), None, "cut:whole", "With split: what makes one result of the parts'")
    strategies: tuple[str, ...] = option(
        Texts(LEVELS), (), ("distribute", "split"), "What each of the degrees does with windows, the outermost first",
        unset="all split where split and combine are there, else all distribute",
    )  # fmt: skip
    also: tuple[str, ...] = option(
        Texts(), (), ("Central", "WD4"), "Other plans, by their short names, that the running flow may switch to"
    )
    switch_every: int = option(
        Count(), 5, 10, "With also: after so many epochs another plan may take over; each is tried once, then the best"
    )
    sink: JobSink | None = option(Inner(JobSink), None, SINK, "Where results go, unless only to another function")
