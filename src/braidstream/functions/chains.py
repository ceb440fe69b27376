"""Functions of one flow, one after the other: the results of each are the stream of the next (GSDM 3.1, 3.2).

    form, partition | compute | combine, form, partition | compute | combine

The node that puts the results of a function in order also forms the windows of the next one: it is given results where
the first node of the flow is given rows, and so it runs the same code, keeps the same state and needs no exchange. What
a flow of one function does is the chain of length one.

Results leave a function in the order of its stream and never come late, so a later function needs no delay.

Invariant: over any cut into epochs the windows of a function are those of the stream of all results of the function
before. Cost: beside its own stages a function adds none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from braidstream.functions.nodes import Setup
from braidstream.functions.window_batch import Array, WindowBatch

__all__ = ["Chain", "JobStage", "Place", "elements", "joined_names", "names_in", "node_name"]

_THEN = " then "


class Place(NamedTuple):
    """A stage of one of the functions."""

    function: int
    stage: int


@dataclass(frozen=True)
class JobStage:
    """What the tasks of one stage of the job run: one stage of a function, or more that follow on the same node."""

    places: tuple[Place, ...]
    n_nodes: int


@dataclass(frozen=True)
class Chain:
    """The functions of a flow, from the one that is given the rows."""

    setups: tuple[Setup, ...]

    @cached_property
    def stages(self) -> tuple[JobStage, ...]:
        """The stages of the job: the first of a function runs where the last of the one before did, on one node."""
        found: list[JobStage] = []
        for function, setup in enumerate(self.setups):
            own = [JobStage((Place(function, i),), stage.n_nodes) for i, stage in enumerate(setup.plan.stages)]
            if found:
                before = found.pop()
                own[0] = JobStage((*before.places, *own[0].places), own[0].n_nodes)
            found += own
        return tuple(found)

    @property
    def strategy(self) -> str:
        """The plans by their short names: WD2 then Central."""
        return joined_names(setup.plan.strategy for setup in self.setups)


def elements(rows: Iterable[WindowBatch], names: Sequence[str] | None) -> list[WindowBatch]:
    """Rows, or results of a function, as the elements of a stream: some of their fields, which nobody may change."""
    return [
        batch.with_fields({name: _read_only(batch[name]) for name in (batch.fields if names is None else names)})
        for batch in rows
        if len(batch)
    ]


def joined_names(strategies: Iterable[str]) -> str:
    """The short names of the plans of several functions as one."""
    return _THEN.join(strategies)


def names_in(strategy: str) -> tuple[str, ...]:
    """The short names again."""
    return tuple(strategy.split(_THEN))


def node_name(place: Place, node: int) -> str:
    """What a manifest calls a node; those of the first function are called as in a flow that has no other."""
    own = f"{place.stage}-{node}"
    return own if place.function == 0 else f"{place.function}:{own}"


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view
