"""Executors that follow the slots: those without one are given up, and asked for again when slots come (WSJ V-A).

Each slot is pinned by a cached row (`spark.cluster`). An executor that has no cached block, and no task, so holds no
slot; neither does it hold anything of another flow. Spark tells of blocks with a delay, so an executor goes when it was
seen without one at two epochs in a row, while at least as many blocks as slots were seen elsewhere.

Invariant: no more executors are asked for than were given up. State is in files, so that an executor that is ended by
mistake costs a task's retry and no result. There is no public way to end one from Python: calls of Spark's Scala API
are used, as in `spark.session`. Cost: one call into the JVM and one for each executor, an epoch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from braidstream.errors import InputError
from braidstream.spark.session import is_single_executor

__all__ = ["Executors", "check_release"]

_log = logging.getLogger("braidstream.executors")
_DYNAMIC = "spark.dynamicAllocation.enabled"


def check_release(spark: SparkSession) -> None:
    """Refuse to give executors up where Spark does so itself."""
    if spark.sparkContext.getConf().get(_DYNAMIC, "false") == "true":
        raise InputError(
            f"[control] release = true, and {_DYNAMIC} is true",
            "one of them: Spark ends no executor for us while it allocates them itself",
            f"leave release out, or set {_DYNAMIC} to false",
        )


@dataclass(frozen=True)
class _Executor:
    id: str
    n_blocks: int
    n_tasks: int


class Executors:
    """The executors of a session, as slots come and go."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._has_some = spark, not is_single_executor(spark)
        self._n_slots = 0
        self._n_given_up = 0
        self._idle: frozenset[str] = frozenset()

    def follow(self, n_slots: int) -> None:
        """Once an epoch, before its tasks: give up executors that hold no slot, or ask for those that were given up."""
        before, self._n_slots = self._n_slots or n_slots, n_slots
        if not self._has_some:
            return
        if n_slots > before:
            self._ask(min(n_slots - before, self._n_given_up))
        else:
            self._give_up(n_slots)

    def _give_up(self, n_slots: int) -> None:
        known = self._known()
        idle = frozenset(one.id for one in known if not one.n_blocks and not one.n_tasks)
        spare, self._idle = sorted(idle & self._idle), idle
        if not spare or sum(one.n_blocks for one in known) < n_slots:
            return
        context = self._spark.sparkContext
        if context._jsc.sc().killExecutors(context._jvm.PythonUtils.toSeq(spare)):
            self._n_given_up += len(spare)
            _log.info("executors %s hold none of %d slots, and are given up", ", ".join(spare), n_slots)

    def _ask(self, n: int) -> None:
        self._idle = frozenset()
        if n and self._spark.sparkContext._jsc.sc().requestExecutors(n):
            self._n_given_up -= n

    def _known(self) -> list[_Executor]:
        found: Any = self._spark.sparkContext._jsc.sc().statusStore().executorList(True)
        every = (found.apply(i) for i in range(found.size()))
        return [_Executor(one.id(), one.rddBlocks(), one.activeTasks()) for one in every if one.id() != "driver"]
