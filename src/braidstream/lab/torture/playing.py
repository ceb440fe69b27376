"""A story played by the engine in this process, and compared with what DuckDB says.

    outcome = play(story, folder)
    outcome.wrong     what is wrong, "" when nothing is
    outcome.met       what was really met: kinds of queries with results, faults that struck, instructions, ...

Whatever fails while a fault is armed and has struck is what a process would die of; the next one starts from what is on
disk. What fails otherwise is wrong. At the end results are compared as multisets, and files that no manifest knows of
must be gone.

Cost: some tenths of a second.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from braidstream.control.controller import Controller
from braidstream.control.overflow import Overflow
from braidstream.control.settings import Settings
from braidstream.epoch.ending import is_ended
from braidstream.epoch.idleness import Patience
from braidstream.epoch.regridder import GridRouter
from braidstream.errors import LeaseLost
from braidstream.kernels.hashing import hash_columns
from braidstream.lab.testing.hardships import (
    Died,
    FileFault,
    Pieced,
    ShakyCluster,
    crowded,
    dying,
    leftovers,
    often_compacted,
    reorganized,
)
from braidstream.lab.testing.harness import LocalCluster, LocalRunner
from braidstream.lab.testing.queries import QueryHarness
from braidstream.lab.testing.restless import Restless
from braidstream.lab.testing.restless_grids import RestlessGrids
from braidstream.lab.torture.asking import cql
from braidstream.lab.torture.comparing import compare
from braidstream.lab.torture.story import Budget, Event, Story
from braidstream.model.faults import InjectedFault, armed

__all__ = ["Outcome", "play"]

_FILE_FAULTS = {"kill": ("kill", "kill-after"), "error": ("error", "error"), "full": ("full", "full")}
_FAULTS = ("crash", *_FILE_FAULTS)


@dataclass
class Outcome:
    """How a play ended."""

    wrong: str = ""
    met: Counter[str] = field(default_factory=Counter)


class Wrong(Exception):
    """What is wrong."""


def play(story: Story, folder: Path) -> Outcome:
    """Play a story in a folder of its own."""
    outcome = Outcome()
    try:
        with often_compacted(story.options.fan) if story.options.fan else nullcontext():
            _Play(story, folder, outcome.met).through()
    except Wrong as wrong:
        outcome.wrong = str(wrong)
    except Exception:
        outcome.wrong = "it failed, and nothing had been done to it:\n" + traceback.format_exc(limit=-8)
    return outcome


class _Play:
    """One play."""

    def __init__(self, story: Story, folder: Path, met: Counter[str]) -> None:
        self.story, self.met, self.random = story, met, Random(story.seed)
        self.budget = story.options.budget
        self.harness = _TornHarness(story, folder, met, self.random)
        self.there = {ask.name for ask in story.asks if ask.is_permanent}
        self.zombie: LocalRunner | None = None

    def through(self) -> None:
        """All epochs, the end, and the comparison."""
        for number in range(len(self.story.epochs)):
            self._epoch(number)
        self._finish()
        self._count()
        compare(self.story, self.harness, self.met, Wrong)
        if is_ended(self.harness.manifest):
            return
        self.harness.restart()  # which may lay out anew, so that what it drops waits for the next start's sweep
        if left := leftovers(self.harness):
            raise Wrong(f"files are left that no manifest knows of: {left}")

    def _epoch(self, number: int) -> None:
        events = list(self.story.during(number))
        for event in events:
            self._before(event)
        faults: list[Event | None] = [event for event in events if event.what in _FAULTS]
        for fault in [*faults, None]:
            self._attempt(fault, number, lambda: self._changes_and_epoch(number))
        if self.harness.manifest.epoch != number:
            raise Wrong(f"after epoch {number} the manifest is of epoch {self.harness.manifest.epoch}")
        self._zombie_tries(number)

    def _before(self, event: Event) -> None:
        """A new process."""
        n_slots = event.slots or self.harness.manifest.n_slots
        if event.what == "move":
            directory = reorganized(self.harness.manifest.directory, self.harness.manifest.n_slots, self.random)
            self._restart(directory=directory)
        elif event.what in ("restart", "zombie", "budget"):
            if event.what == "zombie":
                self.zombie = self.harness.runner
            if event.what == "budget":
                memory = 1 << (30 if event.seed % 3 == 0 else event.n % 14)
                self.harness.take_budget(Budget(memory, piece=1000))
            self._restart(slots=n_slots)
        else:
            return
        self.met[f"event: {event.what}"] += 1

    def _attempt(self, event: Event | None, number: int, run: Callable[[], None]) -> None:
        """Do something while an event befalls it; if it dies of it, a new process starts."""
        try:
            with _armed(event, number) as has_struck:
                try:
                    run()
                    is_through = True
                except (Exception, Died) as error:
                    if not has_struck() and not isinstance(error, InjectedFault):
                        raise
                    is_through = False
        except Died:
            is_through = False
        if event is not None and (not is_through or has_struck()):
            self.met[f"fault: {event.what}{f' at {event.point}' if event.point else ''}"] += 1
        if not is_through or (event is not None and has_struck()):
            self._restart(slots=event.slots if event else None)

    def _restart(self, **how: Any) -> None:
        self.harness.restart(**how)
        self.there = {name for name in self.there if name in self.harness.queries}

    def _changes_and_epoch(self, number: int) -> None:
        for ask in self.story.asks:
            if ask.is_permanent:
                continue
            if ask.begin == number and self.harness.manifest.epoch < number and ask.name not in self.harness.queries:
                self.harness.submit(ask.name, cql(ask))
                self.met["event: submit"] += 1
            if ask.end == number and ask.name in self.harness.queries:
                self.harness.withdraw(ask.name)
                self.met["event: withdraw"] += 1
        if self.harness.manifest.epoch < number:
            self.harness.epoch(self.story.tables(number), self.story.options.n_tasks)

    def _zombie_tries(self, number: int) -> None:
        """Who has lost the checkpoint and does not know it runs the epoch too, and must fail."""
        zombie, self.zombie = self.zombie, None
        if zombie is None:
            return
        try:
            zombie(self.harness.envelopes(self.story.tables(number), number), number)
        except LeaseLost:
            self.met["fault: a zombie was kept out"] += 1
            return
        except Exception as error:  # its segments may be gone
            self.met[f"fault: a zombie failed ({type(error).__name__})"] += 1
            return
        raise Wrong(f"a process that had lost its checkpoint ran epoch {number}")

    def _finish(self) -> None:
        number = len(self.story.epochs)
        faults: list[Event | None] = [event for event in self.story.during(number) if event.what in _FAULTS]
        for event in self.story.during(number):
            self._before(event)
        for ask in self.story.asks:
            if ask.end == number and ask.name in self.harness.queries:
                self.harness.withdraw(ask.name)
        final = self.story.options.final
        for fault in [*faults, None]:
            if not is_ended(self.harness.manifest):
                is_in_end = final and not (fault is not None and fault.point.startswith("clean-up"))
                self._attempt(fault, number if is_in_end else number - 1, lambda: self.harness.finish(final=final))
        if final and not is_ended(self.harness.manifest):
            raise Wrong("the flow did not end")

    def _count(self) -> None:
        for name in ("spilled", "gridded", "suspended", "idled"):
            if getattr(self.harness, name):
                self.met[f"mechanism: {name}"] += 1


@contextmanager
def _armed(event: Event | None, number: int) -> Iterator[Callable[[], bool]]:
    """A fault, and whether it has struck."""
    if event is None:
        yield lambda: False
    elif event.what == "crash":
        with armed(f"{event.point}:{number}:raise"):
            yield lambda: False
    else:
        with dying(FileFault(_FILE_FAULTS[event.what][event.seed % 2], event.n)) as struck:
            yield lambda: struck.is_struck


class _Patience(Patience):
    """By the number of epochs, and as if the flow had never been away: who is idle does not depend on restarts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "since_us", 0)


class _TornHarness(QueryHarness):
    """The engine as a story wants it."""

    def __init__(self, story: Story, folder: Path, met: Counter[str], random: Random) -> None:
        self._story, self._met, self._random = story, met, random
        self.spilled = self.gridded = self.suspended = self.idled = False
        self._epochs = 0
        options = story.options
        texts = {ask.name: cql(ask) for ask in story.asks if ask.is_permanent}
        super().__init__(
            folder,
            dict.fromkeys(story.streams, story.schema),
            texts,
            silence_us=options.silence_us,
            delays_us=story.delays_us,
            slots=options.slots,
            groups=options.groups,
            hash_keys=crowded(options.n_hashes) if options.n_hashes else hash_columns,
            keep=options.keep,
            late=options.takes_late,
            controller=_controller(story),
            regridder=_regridder(story),
            biclique=options.biclique,
            overflow=_overflow(options.budget or Budget(1 << 30)),
            interval_s=1e6 if options.budget and options.budget.has_time else None,
            restless_spills=options.budget.restless if options.budget else None,
            leased=True,
            patience=_Patience(options.idle, lambda: self._epochs),
        )

    @property
    def queries(self) -> set[str]:
        """The queries that run."""
        return set(self._sinks)

    def take_budget(self, budget: Budget) -> None:
        """From the next start on."""
        self._overflow = _overflow(budget)

    def epoch(self, tables: Any, n_tasks: int = 2) -> None:
        """Run the next epoch, and look at what it has done."""
        self._epochs = self.manifest.epoch + 2
        super().epoch(tables, n_tasks)
        for decision in self.runner.flow.decider.decisions:
            if decision.epoch == self.manifest.epoch:
                self._met.update(f"instruction: {type(one).__name__}" for one in decision.instructions)
        self.gridded |= bool(self.manifest.grids)
        self.suspended |= bool(self.manifest.notes.suspended)
        self.idled |= bool(self.manifest.notes.silence.idle)
        self.spilled |= any(part.generation for segment in self.manifest.segments for part in segment.parts)

    def _cluster(self) -> LocalCluster:
        shaken = self._story.options.shaken
        return ShakyCluster(self._root, self._random, self._met) if shaken else super()._cluster()


def _controller(story: Story) -> Controller | None:
    how = story.options.controller
    if not how:
        return None
    return (
        Controller(Settings(every=2))
        if how == "default"
        else Controller(Settings(every=1), policies=(Restless(story.seed),))
    )


def _regridder(story: Story) -> Any:
    how = story.options.grids
    if how != "restless":
        return GridRouter() if how == "default" else None
    keys = {row[0] for epoch in story.epochs for rows in epoch.values() for row in rows} - {None}
    hash_keys = crowded(story.options.n_hashes) if story.options.n_hashes else hash_columns
    hashes = hash_keys([pa.array(sorted(keys, key=str), story.schema.field("k").type)])[0]
    return RestlessGrids(sorted(set(hashes.tolist())), story.seed)


def _overflow(budget: Budget) -> Overflow:
    return Pieced(budget.memory, spill_share=budget.share, idle_after=budget.idle_after, piece=budget.piece)
