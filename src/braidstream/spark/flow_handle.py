"""The handle of a running flow: queries that come and go while it runs, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from braidstream.epoch.heavy_keys import explain_heavy_keys
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.runner import EpochRunner
from braidstream.errors import InputError, RunError
from braidstream.model.faults import reach
from braidstream.model.instructions import Decision
from braidstream.spark.causes import one_line
from braidstream.spark.declared import ContinuousQuery
from braidstream.spark.ended import Ended
from braidstream.spark.handle import PATIENCE_S, Handle
from braidstream.spark.launch import Launch, Prepared
from braidstream.spark.refreshing import Refresher
from braidstream.spark.session import forget_handed_over
from braidstream.state.files import unwritable
from braidstream.state.manifest import Manifest

__all__ = ["Change", "FlowHandle"]


@dataclass(frozen=True)
class Change:
    """Other queries for a running flow, checked."""

    prepared: Prepared
    added: tuple[ContinuousQuery, ...]
    noted: Callable[[Manifest], Manifest]
    """The manifest with a note of the change, at the epoch at which it comes into effect."""
    committed: Callable[[], None]
    """Called when it is done, whatever comes after."""


class FlowHandle(Handle[EpochProgress]):
    """A running flow: look at it, change its queries, wait for it, stop it."""

    def __init__(
        self,
        query: StreamingQuery | Ended,
        runner: EpochRunner[DataFrame],
        explain: Callable[[], str],
        launch: Launch,
        warnings: tuple[str, ...] = (),
        changes: tuple[str, ...] = (),
    ) -> None:
        self._runner, self._launch = runner, launch
        super().__init__(query, runner, explain, warnings, changes)
        tables = {} if launch.is_finite else launch.flow.tables.declared
        self._refresher = Refresher(tables, launch.flow.refresh, lambda: self.is_active)
        if launch.is_finite:
            self._finisher = threading.Thread(target=self._finish, name="braidstream-finish", daemon=True)
            self._finisher.start()

    @property
    def delays(self) -> dict[str, str]:
        """The delays that were measured from files when the flow started, in words, by stream."""
        return {name: stream.shown_delay for name, stream in self._launch.streams.declared.items() if stream.told}

    @property
    def locality(self) -> float:
        """The share of slot tasks, over the recent epochs, that ran where their state is."""
        ran = sum(entry.ran for entry in self._runner.progress)
        return sum(entry.at_home for entry in self._runner.progress) / ran if ran else 1.0

    @property
    def decisions(self) -> list[Decision]:
        """What was decided recently, and on which figures, refused decisions too."""
        return list(self._runner.flow.decider.decisions)

    def withdraw(self, name: str) -> None:
        """Remove a query from the running flow, effective at the next epoch."""
        self._launch.flow.withdraw(name)

    def change(self, what: str, prepare: Callable[[Launch, Manifest], Change]) -> None:
        """Between two epochs: other queries. What `prepare` refuses changes nothing, and the flow goes on.

        `what` says what is done, for messages.
        """
        if threading.get_ident() == self._runner.running.thread:
            raise InputError(
                f"{what} was asked for by the flow's own sink", "another thread", "call it from outside of the sink"
            )
        with self._changing:
            self._refuse_ended()
            change = prepare(self._launch, self._runner.manifest)  # while epochs go on
            self._launch.claim(change.added)
            reach("change-prepared")
            self._await_rest()
            self._runner.running.stopping = True
            with self._runner.running.lock:
                self._query.stop()
                self._apply(what, change)

    def _await_rest(self) -> None:
        """Wait for the end of an epoch, or until Spark has none to run.

        Stopped anywhere else, it says so with the stack of whatever it did, on standard error.
        """
        query, runner, began = self._query, self._runner, self._runner.manifest.epoch
        deadline = time.monotonic() + PATIENCE_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            if runner.manifest.epoch > began:
                return
            time.sleep(0.005)

    def _apply(self, what: str, change: Change) -> None:
        """With no epoch running: deliver what is owed to whom it leaves, commit, run. What fails here is kept."""
        launch, old, done = self._launch, self._runner, False
        try:
            if old.owes({join.query for join in change.prepared.plan.joins}):
                old.settle()
            reach("change-settled")
            noted = change.noted(old.manifest)
            prepared = launch.planned(change.prepared.queries, noted)
            committed = launch.commit(prepared, noted)
            done = True
            change.committed()
            reach("change-committed")
            self._query, self._runner = launch.run(prepared, committed)
            self._current = self._runner
        except Exception as error:
            told = f"{what} was {'done' if done else 'not done'}, and the flow has stopped: {one_line(error)}"
            fix = "start again with the same checkpoint once the cause is gone; nothing is lost"
            self._failure = RunError(told, "", fix)
            raise self._failure from error

    def _refuse_ended(self) -> None:
        """Nothing can be changed in a flow that has ended, failed, or is about to stop."""
        if self._failure is not None or self._runner.running.failure is not None:
            raise InputError("the flow has failed", "a running flow", "start again with the same checkpoint")
        if self._runner.running.stopping or not self.is_active:
            raise InputError("the flow is not running", "a started flow", "use flow.query(...) before start")

    def explain(self) -> str:
        """The plan in words, and the keys that are heavy now."""
        return "\n".join([self._explain(), *explain_heavy_keys(self.manifest)])

    def _release(self) -> None:
        """With the checkpoint, what is cached of tables is given up."""
        super()._release()
        if not self.is_active:
            self._refresher.stop()
            self._launch.flow.tables.release()
            forget_handed_over(self._launch.flow.spark, self._launch.checkpoint.root)

    def _finish(self) -> None:
        """In a thread of its own: when a finite flow has read all that was there, its last clean-up."""
        while True:
            query, runner = self._query, self._runner
            try:
                query.awaitTermination()
                if not runner.running.stopping:
                    runner.finish()
            except StreamingQueryException:
                pass  # whoever waits for the flow is told
            except OSError as error:
                runner.running.failure = unwritable(error, runner.flow.checkpoint.root) or error
            except BaseException as error:
                runner.running.failure = error
            with self._changing:  # a query that was stopped to be started again has not ended
                if query is self._query:
                    return
