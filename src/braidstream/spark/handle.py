"""A running streaming query: look at it, wait for it, stop it. What the handles of flows and of functions share.

The handle and the stream's thread agree on `Running`: an epoch never begins after a stop, and a stop waits for the
epoch that runs. The checkpoint is given back once nothing is at it any more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from braidstream.epoch.ending import is_ended
from braidstream.epoch.recorder import Recorder
from braidstream.epoch.runner import Running, Stopped
from braidstream.errors import BraidstreamError, InputError, RunError
from braidstream.model.instructions import Decision
from braidstream.query.duration import parse_duration
from braidstream.spark.bad_rows import skipping
from braidstream.spark.causes import logged, one_line
from braidstream.spark.ended import Ended
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

if TYPE_CHECKING:
    from braidstream.spark.notebook import Dashboard

__all__ = ["PATIENCE_S", "Handle", "Runner", "running_handles"]

PATIENCE_S = 5.0
"""How long a change waits for a good moment, beside the epoch that runs; and a stop for the last clean-up."""

ProgressT = TypeVar("ProgressT")
ProgressT_co = TypeVar("ProgressT_co", covariant=True)


class Runner(Protocol[ProgressT_co]):
    """What runs the epochs of a streaming query, as its handle sees it."""

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the state is."""
        ...

    @property
    def manifest(self) -> Manifest:
        """That of the last epoch."""
        ...

    @property
    def progress(self) -> Sequence[ProgressT_co]:
        """The recent epochs, the newest last."""
        ...

    @property
    def running(self) -> Running:
        """Whether an epoch runs, may begin, or has failed."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Who records the epochs."""
        ...


_HANDLES: WeakSet[Handle[Any]] = WeakSet()


def running_handles() -> list[Handle[Any]]:
    """Those of this process that somebody still has."""
    return list(_HANDLES)


class Handle(Generic[ProgressT]):
    """A running streaming query.

    `warnings` is what was noticed at its start, `changes` what it does otherwise than its checkpoint was left.
    """

    def __init__(
        self,
        query: StreamingQuery | Ended,
        runner: Runner[ProgressT],
        explain: Callable[[], str],
        warnings: tuple[str, ...] = (),
        changes: tuple[str, ...] = (),
    ) -> None:
        self._query, self._explain = query, explain
        self.warnings, self.changes = warnings, changes
        self._current = runner
        self._changing = threading.Lock()
        self._failure: RunError | None = None
        self._has_ended = False
        self._finisher: threading.Thread | None = None
        _HANDLES.add(self)
        runner.checkpoint.watch(self._is_over, self._lost)

    @property
    def parts(self) -> Mapping[str, Handle[ProgressT]]:
        """What runs, by name: of a job with functions and queries several, else this alone, without a name."""
        return {"": self}

    @property
    def progress(self) -> list[ProgressT]:
        """The recent epochs of this run, the newest last."""
        return list(self._current.progress)

    @property
    def is_active(self) -> bool:
        """Whether it is still running."""
        return bool(self._query.isActive) or (self._finisher is not None and self._finisher.is_alive())

    @cached_property
    def name(self) -> str:
        """The name of the flow."""
        identity = self._current.checkpoint.identity()
        return "flow" if identity is None else identity.name

    @property
    def is_running(self) -> bool:
        """Whether epochs may still come, as far as this process knows without asking Spark."""
        running = self._current.running
        return not (running.stopping or running.failure or self._failure or self._has_ended)

    @property
    def manifest(self) -> Manifest:
        """The manifest of the last epoch."""
        return self._current.manifest

    @property
    def watermark(self) -> int | None:
        """The watermark after the last epoch, in microseconds."""
        return self.manifest.watermark

    @property
    def totals(self) -> dict[str, int]:
        """Counters since the first epoch of the checkpoint."""
        return dict(self.manifest.totals)

    @property
    def decisions(self) -> list[Decision]:
        """What was decided recently, and on which figures."""
        return []

    @property
    def delays(self) -> dict[str, str]:
        """The delays that were measured from files at the start, in words, by stream."""
        return {}

    @property
    def locality(self) -> float:
        """The share of tasks, over the recent epochs, that ran where their state is."""
        return 1.0

    def explain(self) -> str:
        """The plan in words."""
        return self._explain()

    def withdraw(self, name: str) -> None:
        """Remove a query from a running flow, effective at the next epoch."""
        raise InputError(f"{name!r} cannot be withdrawn", "a query of a flow of queries", "stop the flow instead")

    def show(self, height: int = 900, port: int = 0) -> Dashboard:
        """The dashboard of this flow, as a value that a notebook shows (extra `dashboard`)."""
        from braidstream.spark.notebook import Dashboard  # noqa: PLC0415

        return Dashboard(self._current.checkpoint.root, height, port)

    def _repr_html_(self) -> str:
        from braidstream.spark.notebook import handle_html  # noqa: PLC0415

        return handle_html(self)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it ends; True when it has. Raises what made it fail."""
        has_ended = True
        try:
            has_ended = self._awaited(timeout)
            if has_ended and not self._current.running.stopping:
                self._current.checkpoint.confirm()
        finally:
            if has_ended:
                self._release()
        return has_ended

    def run_for(self, duration: str | timedelta) -> None:
        """Run for a limited time, then stop after the running epoch; earlier when the input ends."""
        if not self.await_termination(parse_duration(duration) / 1e6):
            self.stop()

    def stop(self) -> None:
        """Stop after the running epoch. The checkpoint restarts."""
        with self._changing:
            self._current.running.stopping = True
            with self._current.running.lock:
                self._query.stop()
        self._release()

    def kill(self) -> None:
        """Stop at once; the running epoch is lost and replayed at the next start."""
        self._current.running.stopping = True
        self._query.stop()
        self._release()

    def _is_over(self) -> bool:
        """Whether it has ended, and is not about to go on with other queries."""
        if not self._changing.acquire(blocking=False):
            return False
        try:
            if self.is_active:
                return False
            self._record_end()
            return True
        finally:
            self._changing.release()

    def _lost(self) -> None:
        """Another process has taken the checkpoint over: stop, whatever is running."""
        with suppress(Exception):
            self._query.stop()

    def _awaited(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            query, runner = self._query, self._current
            left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
            try:
                has_ended = query.awaitTermination(max(left, 0.001))
            except StreamingQueryException as error:
                has_ended = True
                with self._changing:  # a query that was stopped to be started again has not failed
                    if query is self._query:
                        self._raise(runner, error)
            if has_ended:
                with self._changing:
                    is_last = query is self._query
                if is_last:
                    return self._await_finish(deadline)
            elif deadline is not None and time.monotonic() >= deadline:
                return False

    def _await_finish(self, deadline: float | None) -> bool:
        if self._failure is not None:
            raise self._failure
        if self._finisher is None:
            return True
        self._finisher.join(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        if self._finisher.is_alive():
            return False
        failure = self._current.running.failure
        if failure is not None and not isinstance(failure, Stopped):
            self._raise(self._current, failure)
        return True

    def _release(self) -> None:
        """Give the checkpoint back once nothing is at it any more; later, by the lease's thread, if that takes long."""
        if self._finisher is not None:
            self._finisher.join(PATIENCE_S)
        if not self.is_active:
            self._record_end()
            self._current.checkpoint.release()

    def _record_end(self) -> None:
        """Note in the history why it ended; what was killed says nothing."""
        self._has_ended = True
        running, failure = self._current.running, self._failure or self._current.running.failure
        if failure is None and not running.stopping:
            failure = self._query.exception()
        if failure is not None and not isinstance(failure, Stopped):
            self._current.recorder.end(self.manifest.epoch, "failed", one_line(failure))
        else:
            how = "stopped" if running.stopping else "closed" if is_ended(self.manifest) else "ended"
            self._current.recorder.end(self.manifest.epoch, how)

    def _raise(self, runner: Runner[ProgressT], error: BaseException) -> None:
        failure, root = runner.running.failure, runner.checkpoint.root
        if isinstance(failure, Stopped) or runner.running.stopping:
            return
        runner.checkpoint.confirm()
        if isinstance(failure, BraidstreamError):
            raise (logged(failure, failure, root) if failure.__cause__ else failure) from None
        failed = RunError(
            f"the flow failed: {one_line(failure or error)}",
            "",
            skipping(failure or error) or "start again with the same checkpoint once the cause is gone",
        )
        raise logged(failed, failure or error, root) from None
