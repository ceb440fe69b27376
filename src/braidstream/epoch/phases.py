"""The steps of an epoch in their order, in phases that are timed: what epochs of joins and of functions share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from braidstream.model.faults import reach
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["Steps", "commit", "retire", "run_phases"]


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


class Ending(Protocol):
    """An epoch whose manifest is ready."""

    @property
    def number(self) -> int:
        """Which it is."""
        ...

    after: Manifest
    """The manifest to commit, then the one that was."""


class Kept(Protocol):
    """One start of a flow or of a function."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Where its state is."""
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


def commit(run: Kept, epoch: Ending) -> None:
    """Write the manifest: from now on the epoch has happened."""
    reach("before-manifest", epoch=epoch.number)
    epoch.after = run.checkpoint.commit(epoch.after)
    reach("after-manifest", epoch=epoch.number)


def retire(run: Kept, epoch: Ending) -> None:
    """Delete old manifests and what only they refer to."""
    run.checkpoint.retire(epoch.number)
