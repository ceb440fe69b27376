"""The handle of a running flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from braidstream.epoch.heavy_keys import explain_heavy_keys
from braidstream.epoch.progress import EpochProgress
from braidstream.errors import BraidstreamError, InputError, RunError
from braidstream.model.faults import reach
from braidstream.model.instructions import Decision
from braidstream.query.duration import parse_duration
from braidstream.spark.causes import logged, one_line
from braidstream.spark.declared import ContinuousQuery
from braidstream.spark.epoch import EpochRunner, Stopped
from braidstream.spark.launch import Launch, Prepared
from braidstream.state.files import unwritable
from braidstream.state.manifest import Manifest

__all__ = ["Change", "Handle"]

_PATIENCE_S = 5.0
"""How long a change waits for a good moment, beside the epoch that runs."""


@dataclass(frozen=True)
class Change:
    """Other queries for a running flow, checked."""

    prepared: Prepared
    added: tuple[ContinuousQuery, ...]
    noted: Callable[[Manifest], Manifest]
    """The manifest with a note of the change, at the epoch at which it comes into effect."""
    committed: Callable[[], None]
    """Called when it is done, whatever comes after."""


class Handle:
    """A running flow: look at it, wait for it, stop it. `warnings` is what was noticed at its start."""

    def __init__(
        self,
        query: StreamingQuery,
        runner: EpochRunner,
        explain: Callable[[], str],
        launch: Launch | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._query, self._runner, self._explain, self._launch = query, runner, explain, launch
        self._changing = threading.Lock()
        self._failure: RunError | None = None
        self.warnings = warnings
        self._finisher: threading.Thread | None = None
        if launch is not None and launch.is_finite:
            self._finisher = threading.Thread(target=self._finish, name="braidstream-finish", daemon=True)
            self._finisher.start()
        runner.checkpoint.watch(self._is_over, self._lost)

    @property
    def progress(self) -> list[EpochProgress]:
        """The recent epochs of this run, the newest last."""
        return list(self._runner.progress)

    @property
    def is_active(self) -> bool:
        """Whether the flow is still running."""
        return bool(self._query.isActive) or (self._finisher is not None and self._finisher.is_alive())

    @property
    def manifest(self) -> Manifest:
        """The manifest of the last epoch."""
        return self._runner.manifest

    @property
    def watermark(self) -> int | None:
        """The watermark after the last epoch, in microseconds."""
        return self._runner.manifest.watermark

    @property
    def totals(self) -> dict[str, int]:
        """Counters since the first epoch of the checkpoint."""
        return dict(self._runner.manifest.totals)

    @property
    def delays(self) -> dict[str, str]:
        """The delays that were measured from files when the flow started, in words, by stream."""
        streams = {} if self._launch is None else self._launch.streams
        return {name: stream.shown_delay for name, stream in streams.items() if stream.told}

    @property
    def locality(self) -> float:
        """The share of slot tasks, over the recent epochs, that ran where their state is."""
        ran = sum(entry.ran for entry in self._runner.progress)
        return sum(entry.at_home for entry in self._runner.progress) / ran if ran else 1.0

    @property
    def decisions(self) -> list[Decision]:
        """What was decided recently, and on which figures: the controller's, refused ones too, and changes of grids."""
        deciders = (getattr(self._runner, name, None) for name in ("reorganizer", "regridder"))
        made = [decision for one in deciders for decision in getattr(one, "decisions", ())]
        return sorted(made, key=lambda decision: decision.epoch)

    def withdraw(self, name: str) -> None:
        """Remove a query from the running flow, effective at the next epoch."""
        assert self._launch is not None
        self._launch.flow.withdraw(name)

    def change(self, what: str, prepare: Callable[[Launch, Manifest], Change]) -> None:
        """Between two epochs: other queries. What `prepare` refuses changes nothing, and the flow goes on.

        `what` says what is done, for messages.
        """
        assert self._launch is not None
        if threading.get_ident() == self._runner.thread:
            raise InputError(
                f"{what} was asked for by the flow's own sink", "another thread", "call it from outside of the sink"
            )
        with self._changing:
            self._refuse_ended()
            change = prepare(self._launch, self._runner.manifest)  # while epochs go on
            self._launch.claim(change.added)
            reach("change-prepared")
            self._await_rest()
            self._runner.stopping = True
            with self._runner.running:
                self._query.stop()
                self._apply(what, change)

    def _await_rest(self) -> None:
        """Wait for the end of an epoch, or until Spark has none to run.

        Stopped anywhere else, it says so with the stack of whatever it did, on standard error.
        """
        query, runner, began = self._query, self._runner, self._runner.manifest.epoch
        deadline = time.monotonic() + _PATIENCE_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            if runner.manifest.epoch > began:
                return
            time.sleep(0.005)

    def _apply(self, what: str, change: Change) -> None:
        """With no epoch running: deliver what is owed to whom it leaves, commit, run. What fails here is kept."""
        launch, old, done = self._launch, self._runner, False
        assert launch is not None
        try:
            if old.owes({join.query for join in change.prepared.plan.joins}):
                old.settle(launch.session)
            reach("change-settled")
            noted = change.noted(old.manifest)
            prepared = launch.planned(change.prepared.queries, noted)
            committed = launch.commit(prepared, noted)
            done = True
            change.committed()
            reach("change-committed")
            self._query, self._runner = launch.run(prepared, committed)
        except Exception as error:
            told = f"{what} was {'done' if done else 'not done'}, and the flow has stopped: {one_line(error)}"
            fix = "start again with the same checkpoint once the cause is gone; nothing is lost"
            self._failure = RunError(told, "", fix)
            raise self._failure from error

    def _refuse_ended(self) -> None:
        """Nothing can be changed in a flow that has ended, failed, or is about to stop."""
        if self._failure is not None or self._runner.failure is not None:
            raise InputError("the flow has failed", "a running flow", "start again with the same checkpoint")
        if self._runner.stopping or not self.is_active:
            raise InputError("the flow is not running", "a started flow", "use flow.query(...) before start")

    def explain(self) -> str:
        """The plan in words, and the keys that are heavy now."""
        return "\n".join([self._explain(), *explain_heavy_keys(self._runner.manifest)])

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the flow ends; True when it has. Raises what made it fail."""
        has_ended = True
        try:
            has_ended = self._awaited(timeout)
            if has_ended and not self._runner.stopping:
                self._runner.checkpoint.confirm()
        finally:
            if has_ended:
                self._release()
        return has_ended

    def _is_over(self) -> bool:
        """Whether the flow has ended, and is not about to go on with other queries."""
        if not self._changing.acquire(blocking=False):
            return False
        try:
            return not self.is_active
        finally:
            self._changing.release()

    def _lost(self) -> None:
        """Another process has taken the checkpoint over: stop, whatever is running."""
        with suppress(Exception):
            self._query.stop()

    def _awaited(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            query, runner = self._query, self._runner
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

    def run_for(self, duration: str | timedelta) -> None:
        """Run for a limited time, then stop after the running epoch; earlier when the input ends."""
        if not self.await_termination(parse_duration(duration) / 1e6):
            self.stop()

    def _finish(self) -> None:
        """In a thread of its own: when a finite flow has read all that was there, its last clean-up."""
        assert self._launch is not None
        while True:
            query, runner = self._query, self._runner
            try:
                query.awaitTermination()
                if not runner.stopping:
                    runner.finish(self._launch.session)
            except StreamingQueryException:
                pass  # whoever waits for the flow is told
            except OSError as error:
                runner.failure = unwritable(error, runner.checkpoint.root) or error
            except BaseException as error:
                runner.failure = error
            with self._changing:  # a query that was stopped to be started again has not ended
                if query is self._query:
                    return

    def _await_finish(self, deadline: float | None) -> bool:
        if self._failure is not None:
            raise self._failure
        if self._finisher is None:
            return True
        self._finisher.join(None if deadline is None else max(deadline - time.monotonic(), 0.001))
        if self._finisher.is_alive():
            return False
        failure = self._runner.failure
        if failure is not None and not isinstance(failure, Stopped):
            self._raise(self._runner, failure)
        return True

    def stop(self) -> None:
        """Stop after the running epoch. The checkpoint restarts."""
        with self._changing:
            self._runner.stopping = True
            with self._runner.running:
                self._query.stop()
        self._release()

    def kill(self) -> None:
        """Stop at once; the running epoch is lost and replayed at the next start."""
        self._runner.stopping = True
        self._query.stop()
        self._release()

    def _release(self) -> None:
        """Give the checkpoint back once nothing is at it any more; later, by the lease's thread, if that takes long."""
        if self._finisher is not None:
            self._finisher.join(_PATIENCE_S)
        if not self.is_active:
            self._runner.checkpoint.release()

    def _raise(self, runner: EpochRunner, error: BaseException) -> None:
        failure: Any = runner.failure
        if isinstance(failure, Stopped) or runner.stopping:
            return
        runner.checkpoint.confirm()
        if isinstance(failure, BraidstreamError):
            raise (logged(failure, failure, runner.checkpoint.root) if failure.__cause__ else failure) from None
        failed = RunError(
            f"the flow failed: {one_line(failure or error)}",
            "",
            "start again with the same checkpoint once the cause is gone",
        )
        raise logged(failed, failure or error, runner.checkpoint.root) from None
