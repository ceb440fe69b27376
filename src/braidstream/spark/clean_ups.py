"""The driver's part of clean-up: a job within an epoch, after the last epoch of a finite flow, before queries change.

A mixin of `EpochRunner`, so that one file shows how an epoch goes and this one what comes on top of it.
`control.overflow` says what is cleaned up, `epoch.spiller` writes that into manifests, slots do `slot.cleaning`.

What is owed: results between generations, and what suspended joins have not produced yet. A finite flow ends, and a
query is withdrawn, when nothing is owed any more.

Invariant: the manifest with the intent is committed before any result of a step is delivered, and a step's number is
never used again. So what a lost attempt delivered is delivered again, the same, under the same number.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.spiller import CLEANING, RESUMED, STEPS, SUSPENDED, Spiller, intent, resumption, some_of
from braidstream.errors import DamagedState, RunError
from braidstream.model.faults import reach
from braidstream.plan.planner import Plan
from braidstream.slot.cleaning import CleanTask, clean_task
from braidstream.state import generations
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest
from braidstream.state.staging import Staging

__all__ = ["CleanUps", "SlotFunction", "raise_damage"]

SlotFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Reports = list[dict[str, Any]]


class CleanUps(ABC):
    """What an `EpochRunner` does about pushed state."""

    checkpoint: Checkpoint
    run: str
    plan: Plan
    manifest: Manifest
    progress: deque[EpochProgress]
    stopping: bool
    running: threading.Lock
    spiller: Spiller | None

    @abstractmethod
    def _woken(self, spark: SparkSession, run: SlotFunction) -> Reports: ...

    @abstractmethod
    def _staging(self, query: str) -> Staging: ...

    @abstractmethod
    def _deliver(
        self, spark: SparkSession, epoch: int, reports: Sequence[Mapping[str, Any]], *, is_step: bool = False
    ) -> None: ...

    @abstractmethod
    def _next(
        self, before: Manifest, epoch: int, reports: Sequence[Mapping[str, Any]], *, expires: bool = True
    ) -> tuple[Manifest, Mapping[str, int]]: ...

    @abstractmethod
    def _resumed(self, spark: SparkSession, reached: Manifest, joins: Mapping[str, int]) -> Reports: ...

    def finish(self, spark: SparkSession) -> None:
        """At the end of a finite flow, after Spark's last batch: deliver what is owed, until nothing is.

        Spark counts epochs, so this may not: each step replaces the manifest of the last epoch, and its results are
        delivered under a number of its own. The intent is committed first; a step that was begun is ended first at
        the next start (`complete`), before anything else happens to its groups.
        """
        while True:
            with self.running:
                if self.stopping or not self._made_up(spark):
                    return

    def settle(self, spark: SparkSession) -> None:
        """The same between two epochs, by who sees to it that none begins: before anything is changed that is owed."""
        while self._made_up(spark):
            pass

    def complete(self, spark: SparkSession) -> None:
        """End a step that was begun and not committed."""
        if self.is_in_step:
            with self.running:
                self._step(spark)

    def prepare_state(self, spark: SparkSession) -> None:
        """Before the first epoch of a start: end what was begun, and leave nothing pushed that may not be pushed now.

        Other queries, or another choice of what to do beyond the budget, may have made it so.
        """
        self.complete(spark)
        if self.spiller is not None and self.spiller.is_at_odds(self.manifest):
            self.settle(spark)
            active = generations.activated(self.manifest, self.spiller.stores)
            if active != self.manifest:
                self.checkpoint.commit(active)
                self.manifest = active

    def owes(self, others: Collection[str]) -> bool:
        """Whether joins that are not among `others` miss results: of pushed state, or because they are suspended."""
        left = [join for join in self.plan.joins if join.query not in others]
        if self.is_in_step or {join.query for join in left} & set(self.manifest.memory.get(SUSPENDED, {})):
            return True
        read = {self.plan.stores[entry.store].name for join in left for entry in join.inputs}
        return bool(read & generations.pushed_stores(self.manifest))

    def _made_up(self, spark: SparkSession) -> bool:
        """Deliver one step of what is owed; False when nothing is."""
        if not self.is_in_step:
            intended = self._intended(self.manifest.memory.get(STEPS, 0) + 1)
            if intended is None:
                return False
            self.checkpoint.commit(intended)
            self.manifest = intended
        self._step(spark)
        return True

    def _intended(self, step: int) -> Manifest | None:
        """The manifest with the next step: suspended joins first, for what they produce may be owed by pushed state."""
        if suspended := self.manifest.memory.get(SUSPENDED):
            return resumption(self.manifest, suspended, step)
        groups = [] if self.spiller is None else self.spiller.incomplete(self.manifest)
        return intent(self.manifest, groups, step) if groups else None

    @property
    def is_in_step(self) -> bool:
        """Whether a step was begun and not committed."""
        return bool(self.manifest.memory.get(CLEANING, {}).get("step"))

    def _step(self, spark: SparkSession) -> None:
        started, before = time.perf_counter(), self.manifest
        cleaning = before.memory[CLEANING]
        step, resumed = cleaning["step"], cleaning.get(RESUMED, {})
        reports = self._resumed(spark, before, resumed) if resumed else self._clean(spark, before, cleaning)
        joined = time.perf_counter()
        self._deliver(spark, -step, reports, is_step=True)
        reach("clean-up-results", epoch=before.epoch)
        delivered = time.perf_counter()
        after = self._after_clean_up(self._next(before, before.epoch, reports)[0], cleaning)
        still = {join: since for join, since in after.memory.get(SUSPENDED, {}).items() if join not in resumed}
        after = replace(after, memory={**after.memory, STEPS: step, SUSPENDED: still})
        self.checkpoint.commit(after)
        self.manifest = after
        reach("clean-up-end", epoch=before.epoch)
        ended = time.perf_counter()
        seconds = {"join": joined - started, "deliver": delivered - joined, "commit": ended - delivered}
        entry = EpochProgress.of(before, after, reports, {**seconds, "total": ended - started}, 0.0)
        self.progress.append(replace(entry, step=step))

    def _clean(self, spark: SparkSession, reached: Manifest, cleaning: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run an intended clean-up on groups as the manifest reached so far has them, as a job of its own."""
        assert self.spiller is not None
        reach("clean-up-start", epoch=reached.epoch)
        reached.write(self.checkpoint.files, pending=True)
        joins = self.plan.cleaned_joins
        task = CleanTask(
            self.checkpoint.root,
            f"{self.run}:{uuid.uuid4().hex}",
            reached.epoch,
            self.plan.stores,
            joins,
            {join.query: self._staging(join.query) for join in joins},
            frozenset(cleaning["groups"]),
            self.spiller.overflow.piece_bytes,
            some_of(cleaning),
        )
        reports = self._woken(spark, clean_task(task))
        raise_damage(reports)
        return reports

    def _after_clean_up(self, reached: Manifest, cleaning: Mapping[str, Any]) -> Manifest:
        if self.spiller is None:
            return intent(reached, (), 0)
        known = reached.directory.by_id
        some = {group: numbers for group, numbers in some_of(cleaning).items() if group in known}
        return self.spiller.cleaned(reached, [group for group in cleaning["groups"] if group in known], some)


def raise_damage(reports: Sequence[Mapping[str, Any]]) -> None:
    """What a slot could not do, raised for the user."""
    for report in reports:
        if "damaged" in report:
            raise DamagedState(report["damaged"]["path"], report["damaged"]["wrong"])
        if "failed" in report:
            raise RunError(**report["failed"])
