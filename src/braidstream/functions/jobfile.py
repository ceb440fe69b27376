"""Types and functions in a job file: the tables `[types.NAME]` and `[functions.NAME]`.

    [types.SAMPLES]
    ts = "timestamp"
    x = "complex"

    [functions.spectra]
    stream = "radio"                        # or another function, or a query, whose results it takes
    time = "ts"                             # of a query's results: the column with their time
    delay = "20 seconds"                    # and how late one may come
    type = "SAMPLES"                        # optional: read from the stream's columns
    function = "fft3"                       # a registered name, or module:function
    size = 1024                             # without a size, every row is a window
    step = 512
    degrees = [2, 2]                        # optional: without it Central; several make a tree, the outermost first
    distribute = "round_robin"              # or "hash", or module:function
    strategies = ["distribute", "split"]    # optional: what each degree does
    also = ["Central", "WD4"]               # optional: plans that a running flow may switch to
    timeout = "100 milliseconds"
    patience = "2 seconds"                  # optional: how long a slow node is waited for, in wall time
    split = "module:function"               # with combine: window split instead of window distribute
    combine = "module:function"
    sink = { format = "parquet", path = "out" }

`read_tables` makes values of the tables and refuses what is not in the form, with its place; `in_order` puts functions
that feed one another one after the other; `template` makes the template that a function's table describes. Nothing here
reads a file or starts anything.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from braidstream.errors import InputError, JobError, Note
from braidstream.functions.finding import find_callable, find_function
from braidstream.functions.function import StreamFunction
from braidstream.functions.stream_types import StreamType, declare_type
from braidstream.functions.templates import PCC, Central, Distribute, FunctionPlan, Join, MergeWindows, Split, Template
from braidstream.functions.training import Monitor
from braidstream.functions.windowing import WindowSpec
from braidstream.options import FunctionOptions
from braidstream.options.job_table import JobTable

__all__ = ["JobFunction", "in_order", "read_tables"]


@dataclass(frozen=True)
class JobFunction(FunctionOptions):
    """`[functions.NAME]`."""

    @property
    def spec(self) -> WindowSpec:
        """The windows."""
        return WindowSpec(self.size, self.step)

    @property
    def target(self) -> StreamFunction:
        """The function that is applied."""
        return find_function(self.function)

    def halves(self) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
        """The functions that split and combine, if the table has them."""
        if (self.split is None) != (self.combine is None):
            raise InputError("window split needs both functions", "split and combine, or neither")
        return (
            None if self.split is None else find_callable(self.split),
            None if self.combine is None else find_callable(self.combine),
        )

    @property
    def named_code(self) -> list[str]:
        """What the table has imported and run: nothing else in a job file can."""
        return [one for one in (self.function, self.split, self.combine, self.distribute) if one and ":" in one]

    def template(self) -> Template:
        """The template that the table describes."""
        usual = "distribute" if self.split is None else "split"
        if self.strategies and len(self.strategies) != len(self.degrees):
            wrong = f"{len(self.strategies)} strategies for {len(self.degrees)} degrees"
            raise InputError(wrong, "one for each degree", 'degrees = [2, 2] and strategies = ["distribute", "split"]')
        levels = list(zip(self.strategies or [usual] * len(self.degrees), self.degrees, strict=True))
        every = [*levels, *(level for name in self.also for level in _levels(name))]
        if self.patience is not None and not any(strategy == "distribute" for strategy, _ in every):
            wrong = f"patience is {self.patience!r}, and no plan distributes windows"
            raise InputError(wrong, "patience with window distribute", "leave it out, or add degrees = [2]")
        return self._of_levels(levels)

    def others(self) -> list[Template]:
        """The templates of `also`."""
        return [self._of_levels(_levels(name)) for name in self.also]

    def monitor(self, nodes: int) -> Monitor | None:
        """What switches among the plans while the flow runs: it tries each of them, and stays with the best."""
        if not self.also:
            return None
        names = [FunctionPlan.of(one).strategy for one in (self.template(), *self.others())]
        return Monitor({}, nodes, every=self.switch_every, to_try=tuple(names))

    def _of_levels(self, levels: list[tuple[str, int]]) -> Template:
        split, combine = self.halves()
        made: Any = self.target
        for strategy, n in reversed(levels):
            if strategy == "distribute":
                by: Any = find_callable(self.distribute) if ":" in self.distribute else self.distribute
                made = PCC(n, Distribute(by), made, MergeWindows(self.timeout, self.patience))
            elif split is not None and combine is not None:
                made = PCC(n, Split(split), made, Join(combine, self.timeout))
            else:
                raise InputError("a plan splits windows without functions for it", "split and combine", "add both")
        return made if isinstance(made, PCC) else Central(made, self.timeout)


def _levels(name: str) -> list[tuple[str, int]]:
    """The levels of a plan's short name: Central, WD4, WS2x2, WD2-WS2."""
    if name == "Central":
        return []
    found: list[tuple[str, int]] = []
    for part in name.split("-"):
        known = re.fullmatch(r"(WD|WS)(\d+(?:x\d+)*)", part)
        if known is None:
            fix = 'also = ["Central", "WD4"]'
            raise InputError(f"there is no plan {name!r}", "a short name: Central, WD4, WS2x2, WD2-WS2", fix)
        word = "distribute" if known.group(1) == "WD" else "split"
        found += [(word, int(n)) for n in known.group(2).split("x")]
    return found


def read_tables(tables: Mapping[str, object], file: str) -> tuple[dict[str, StreamType], dict[str, JobFunction]]:
    """The declared types and the functions of a job file that was parsed; other tables are somebody else's."""
    top = JobTable(file, "", tables)
    types = {
        name: _with_place(top.file, f"[types.{name}]", declare_type, name, table.values)
        for name, table in _named(top, "types")
    }
    functions = {name: table.read(JobFunction) for name, table in _named(top, "functions")}
    for name, entry in functions.items():
        place = f"[functions.{name}]"
        if code := entry.named_code:
            warnings.warn(Note(f"{top.file}: {place} runs code that the job names: {', '.join(code)}"), stacklevel=2)
        _with_place(top.file, place, lambda entry=entry: (entry.spec, entry.template(), entry.others()))
    return types, functions


def in_order(functions: Mapping[str, JobFunction], streams: Collection[str]) -> dict[str, JobFunction]:
    """Functions that feed one another, from the one that takes a stream; refused where they are no single chain."""
    after: dict[str | None, str] = {}
    for name, entry in functions.items():
        before = None if entry.stream in streams else entry.stream
        if before is not None and entry.beside:
            wrong = f"{name!r} aligns the results of function {before!r} with streams beside them"
            raise InputError(wrong, "results of a function alone", "leave beside out")
        if before in after:
            what = "take a stream" if before is None else f"take the results of {before!r}"
            wrong = f"functions {after[before]!r} and {name!r} both {what}"
            fix = f'stream = "{after[before]}" in [functions.{name}], or write a job file for each'
            raise InputError(wrong, "functions each of which takes the results of the one before", fix)
        after[before] = name
    found: dict[str, JobFunction] = {}
    last: str | None = None
    while (following := after.get(last)) is not None:
        found[following] = functions[following]
        last = following
    if left := [name for name in functions if name not in found]:
        wrong = f"no stream reaches {' and '.join(map(repr, left))}: {left[0]!r} takes {functions[left[0]].stream!r}"
        raise InputError(wrong, "a first function that takes a stream", "name a stream of the job in one of them")
    return found


def _named(top: JobTable, name: str) -> list[tuple[str, JobTable]]:
    outer, found = top.values.get(name, {}), list[tuple[str, JobTable]]()
    for one, table in outer.items() if isinstance(outer, Mapping) else [(name, outer)]:
        if not isinstance(table, Mapping):
            raise JobError(f"{top.file}: [{name}] {one} is {table!r}", f"a table [{name}.NAME]")
        found.append((one, JobTable(top.file, f"{name}.{one}", table)))
    return found


def _with_place(file: str, place: str, action: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return action(*arguments)
    except InputError as error:
        raise JobError(f"{file}: {place}: {error.wrong}", error.expected, error.fix) from None
