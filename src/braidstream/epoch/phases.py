"""The steps of an epoch in their order, in phases that are timed: what epochs of joins and of functions share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

__all__ = ["Steps", "run_phases"]


class Timed(Protocol):
    """An epoch on its way."""

    @property
    def started(self) -> float:
        """When it began, on the clock of `time.perf_counter`."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """The time of each phase so far."""
        ...


RunT = TypeVar("RunT")
EpochT = TypeVar("EpochT", bound=Timed)

Steps: TypeAlias = Mapping[str, tuple[Callable[[RunT, EpochT], None], ...]]


def run_phases(phases: Steps[RunT, EpochT], run: RunT, epoch: EpochT) -> None:
    """Run all steps, and note how long each phase and all of them took; the first counts from the epoch's start."""
    begun = epoch.started
    for phase, steps in phases.items():
        for step in steps:
            step(run, epoch)
        now = time.perf_counter()
        epoch.seconds[phase], begun = now - begun, now
    epoch.seconds["total"] = begun - epoch.started
