"""Data-flow templates: how the work on a stream's windows is spread over nodes (GSDM 3.2 and 4).

    Central("fft3")
    PCC(2, Distribute("round_robin"), "fft3", MergeWindows(timeout="100 milliseconds"))   window distribute
    PCC(2, Split(fft3_part), "fft3", Join(fft3_combine))                                  window split
    PCC(2, Split(fft3_part), PCC(2, Split(fft3_part), "fft3", Join(fft3_combine)), Join(fft3_combine))        a tree

A template is a value; templates nest where a function may stand. `FunctionPlan` is a template made flat: the levels of
its tree from the outside in and the function at the leaves, and for each phase its stage and number of nodes. Users
know `MergeWindows` and `FunctionPlan` as `braidstream.functions.Merge` and `Plan`.

Invariant: the order of the results is the order of the stream. MergeWindows and Join keep it, so does Central.

A node that combines waits for a missing window while the stream's newest one is at most `timeout` of event time later;
then it goes on without, and counts it. Event time makes that the same on every replay. A `patience` is in wall time:
`functions.slow_nodes` tells how it stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeAlias

from braidstream.errors import InputError, nearest
from braidstream.functions.finding import find_function
from braidstream.functions.function import StreamFunction, name_of
from braidstream.functions.stream_types import StreamType
from braidstream.query.duration import describe_duration, parse_duration

__all__ = [
    "PCC",
    "Central",
    "Child",
    "Distribute",
    "FunctionPlan",
    "Join",
    "Level",
    "MergeWindows",
    "Split",
    "Stage",
    "Template",
    "as_template",
]

METHODS = ("round_robin", "hash")
MOST_NODES = 4096
Duration: TypeAlias = str | timedelta
Child: TypeAlias = tuple[int, int]
"""A child of a level of the tree: the level, and its number among all children of that level."""


@dataclass(frozen=True)
class Distribute:
    """Whole windows to partitions: in turn, by hash, or by a function `(windows, n) -> partition of each window`."""

    by: str | Callable[..., Any] = "round_robin"
    field: str | None = None
    """For "hash": the scalar field that is hashed; without it, the time stamp."""

    def __post_init__(self) -> None:
        if not callable(self.by) and self.by not in METHODS:
            wrong = f"windows cannot be distributed by {self.by!r}"
            raise InputError(wrong, f"{', '.join(METHODS)}, or a function", nearest(str(self.by), METHODS))
        if self.field is not None and self.by != "hash":
            raise InputError(f"Distribute({self.by!r}) takes no field", 'Distribute("hash", field=...)')

    def __str__(self) -> str:
        by = self.by if isinstance(self.by, str) else name_of(self.by)
        return f"Distribute({by}{f' of {self.field}' if self.field else ''})"


@dataclass(frozen=True)
class Split:
    """Every window into n sub-windows, by a function `(windows, n, k) -> fields of sub-window k`."""

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        _refuse_non_callable("Split", self.function)

    def __str__(self) -> str:
        return f"Split({name_of(self.function)})"


@dataclass(frozen=True)
class MergeWindows:
    """Windows from the partitions back into the order of the stream."""

    timeout: Duration = "0 seconds"
    patience: Duration | None = None
    """How much longer than the fastest a partition may take, in wall time, before its windows are given up; None: as
    long as it takes."""

    def __post_init__(self) -> None:
        _refuse_long(self.timeout)
        if self.patience is not None and parse_duration(self.patience) <= 0:
            raise InputError(f"the patience is {self.patience!r}", "a length of time above 0", 'patience="2 seconds"')

    @property
    def timeout_us(self) -> int:
        """The time-out in microseconds of event time."""
        return parse_duration(self.timeout)

    @property
    def patience_us(self) -> int | None:
        """The patience in microseconds of wall time."""
        return None if self.patience is None else parse_duration(self.patience)

    def __str__(self) -> str:
        waits = "" if self.patience_us is None else f", patience {describe_duration(self.patience_us)}"
        return f"Merge(timeout {describe_duration(self.timeout_us)}{waits})"


@dataclass(frozen=True)
class Join:
    """The results of one window's sub-windows into one, by a function `(parts) -> fields`, parts in order."""

    function: Callable[..., Any]
    timeout: Duration = "0 seconds"

    def __post_init__(self) -> None:
        _refuse_non_callable("Join", self.function)
        _refuse_long(self.timeout)

    @property
    def timeout_us(self) -> int:
        """The time-out in microseconds of event time."""
        return parse_duration(self.timeout)

    def __str__(self) -> str:
        return f"Join({name_of(self.function)})"


@dataclass(frozen=True)
class Central:
    """The function on one node."""

    function: str | StreamFunction
    timeout: Duration = "0 seconds"


@dataclass(frozen=True)
class PCC:
    """Partition, compute, combine: the computation on n partitions, each a function or another template."""

    n: int
    partition: Distribute | Split
    compute: str | StreamFunction | Central | PCC
    combine: MergeWindows | Join

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or not 1 <= self.n <= MOST_NODES:
            raise InputError(f"the degree of a PCC is {self.n!r}", f"a whole number from 1 to {MOST_NODES}")
        if not isinstance(self.partition, (Distribute, Split)):
            raise InputError(f"a PCC cannot partition by {self.partition!r}", "Distribute(...) or Split(...)")
        fits = MergeWindows if isinstance(self.partition, Distribute) else Join
        if not isinstance(self.combine, fits):
            wrong = f"a PCC with {self.partition} combines with {self.combine}"
            why = "windows that were distributed are merged, windows that were split are joined"
            raise InputError(wrong, "Merge(...)" if fits is MergeWindows else "Join(...)", why)


Template: TypeAlias = Central | PCC


@dataclass(frozen=True)
class Level:
    """One PCC of the tree, from the outside in."""

    n: int
    partition: Distribute | Split
    combine: MergeWindows | Join


@dataclass(frozen=True)
class Stage:
    """One phase of the plan: what it does, at which level, on how many nodes."""

    kind: str
    """"partition", "compute" or "combine"; Central is one "central" stage."""
    level: int
    n_nodes: int


@dataclass(frozen=True)
class FunctionPlan:
    """A template made flat."""

    levels: tuple[Level, ...]
    function: StreamFunction
    timeout_us: int = 0

    @classmethod
    def of(cls, template: str | StreamFunction | Template) -> FunctionPlan:
        """The plan of a template; a function alone is Central."""
        found = as_template(template)
        levels = []
        while isinstance(found, PCC):
            levels.append(Level(found.n, found.partition, found.combine))
            found = as_template(found.compute)
        plan = cls(tuple(levels), find_function(found.function), parse_duration(found.timeout))
        if plan.degree > MOST_NODES:
            raise InputError(f"the plan has {plan.degree} compute nodes", f"at most {MOST_NODES}")
        return plan

    @property
    def degree(self) -> int:
        """The number of nodes that compute."""
        return self.width(len(self.levels))

    def width(self, level: int) -> int:
        """The number of nodes at a level of the tree."""
        n = 1
        for entry in self.levels[:level]:
            n *= entry.n
        return n

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The phases in the order of the data flow."""
        if not self.levels:
            return (Stage("central", 0, 1),)
        depth = len(self.levels)
        inward = [Stage("partition", level, self.width(level)) for level in range(depth)]
        outward = [Stage("combine", stage.level, stage.n_nodes) for stage in reversed(inward)]
        return (*inward, Stage("compute", depth, self.degree), *outward)

    @property
    def n_nodes(self) -> int:
        """The nodes of all stages together."""
        return sum(stage.n_nodes for stage in self.stages)

    @property
    def gives(self) -> StreamType:
        """The type of the results: what the outermost function declares."""
        for level in self.levels:
            if isinstance(level.combine, Join) and isinstance(level.combine.function, StreamFunction):
                return level.combine.function.gives
            if isinstance(level.combine, Join):
                break
        return self.function.gives

    @property
    def strategy(self) -> str:
        """A short name: Central, WD4, WS2x2, WD2-WS2, ..."""
        if not self.levels:
            return "Central"
        words = ["WD" if isinstance(level.partition, Distribute) else "WS" for level in self.levels]
        if len(set(words)) == 1:
            return words[0] + "x".join(str(level.n) for level in self.levels)
        return "-".join(f"{word}{level.n}" for word, level in zip(words, self.levels, strict=True))

    def check(self, windows: StreamType, giver: str) -> None:
        """Refuse a function that does not take what windows hold, those of `giver`."""
        split = any(isinstance(level.partition, Split) for level in self.levels)
        if self.function.takes is not None and not split:
            self.function.takes.refuse_misfit(windows, f"function {self.function.name!r}", giver)
        elif self.function.takes is not None:
            _without_sizes(self.function.takes).refuse_misfit(
                _without_sizes(windows), f"function {self.function.name!r}", giver
            )
        for level in self.levels:
            if isinstance(level.partition, Distribute) and level.partition.field is not None:
                kind = windows.kind(level.partition.field)
                if kind is None or kind.is_vector:
                    known = [field.name for field in windows.values if not field.kind.is_vector]
                    wrong = f"{giver} has no scalar field {level.partition.field!r} to distribute by"
                    raise InputError(
                        wrong, f"one of {', '.join(known) or 'none'}", "leave the field out: the time is hashed"
                    )

    def describe(self) -> str:
        """The plan in words, a line a stage."""
        compute = "1 compute node" if self.degree == 1 else f"{self.degree} compute nodes"
        lines = [f"{self.strategy}: function {self.function.name}, {compute} of {self.n_nodes}"]
        for stage in self.stages:
            if stage.kind in ("partition", "combine"):
                level = self.levels[stage.level]
                what = str(level.partition if stage.kind == "partition" else level.combine)
                each = f" x {level.n}"
            else:
                what, each = self.function.name, ""
            nodes = "1 node" if stage.n_nodes == 1 else f"{stage.n_nodes} nodes"
            lines.append(f"  {stage.kind:<9} {what}{each} on {nodes}")
        return "\n".join(lines)


def as_template(given: Any) -> Template:
    """A template; a function, or the name of one, stands for Central."""
    if isinstance(given, (Central, PCC)):
        return given
    if isinstance(given, (str, StreamFunction)) or callable(given):
        return Central(find_function(given))
    raise InputError(f"{given!r} is no template", "Central(f), PCC(n, partition, compute, combine), or a function")


def _without_sizes(declared: StreamType) -> StreamType:
    """A split changes the lengths of vectors, so only their kinds are compared."""
    fields = tuple(replace(field, kind=replace(field.kind, size=None)) for field in declared.fields)
    return StreamType(declared.name, fields)


def _refuse_non_callable(what: str, function: Any) -> None:
    if not callable(function):
        raise InputError(f"{what} takes a function, not {function!r}", f"{what}(function)")


def _refuse_long(timeout: Duration) -> None:
    if parse_duration(timeout) < 0:
        raise InputError(f"the time-out is {timeout!r}", "a length of time from 0", 'timeout="100 milliseconds"')
