"""The handle of a running flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from braidstream.control.instructions import Decision
from braidstream.errors import BraidstreamError, RunError
from braidstream.query.duration import parse_duration
from braidstream.spark.causes import logged, one_line
from braidstream.spark.epoch import EpochRunner, Stopped
from braidstream.spark.heavy_keys import explain_heavy_keys
from braidstream.spark.launch import Launch
from braidstream.spark.progress import EpochProgress
from braidstream.state.files import unwritable
from braidstream.state.manifest import Manifest

__all__ = ["Handle"]


class Handle:
    """A running flow: look at it, wait for it, stop it."""

    def __init__(
        self, query: StreamingQuery, runner: EpochRunner, explain: Callable[[], str], launch: Launch | None = None
    ) -> None:
        self._query, self._runner, self._explain, self._launch = query, runner, explain, launch
        self._changing = threading.Lock()
        self._finisher: threading.Thread | None = None
        if launch is not None and launch.is_finite:
            self._finisher = threading.Thread(target=self._finish, name="braidstream-finish", daemon=True)
            self._finisher.start()

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

    def relaunch(self, change: Callable[[Manifest], Manifest]) -> None:
        """Between two epochs: change the manifest, and go on with the flow's queries as they are now."""
        assert self._launch is not None
        with self._changing:
            old = self._runner
            old.stopping = True
            with old.running:
                self._query.stop()
                changed = change(old.manifest)
                changed.write(self._launch.checkpoint.files)
                self._query, self._runner = self._launch.start(changed)

    def explain(self) -> str:
        """The plan in words, and the keys that are heavy now."""
        return "\n".join([self._explain(), *explain_heavy_keys(self._runner.manifest)])

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the flow ends; True when it has. Raises what made it fail."""
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

    def kill(self) -> None:
        """Stop at once; the running epoch is lost and replayed at the next start."""
        self._runner.stopping = True
        self._query.stop()

    def _raise(self, runner: EpochRunner, error: BaseException) -> None:
        failure: Any = runner.failure
        if isinstance(failure, Stopped) or runner.stopping:
            return
        if isinstance(failure, BraidstreamError):
            raise (logged(failure, failure, runner.checkpoint.root) if failure.__cause__ else failure) from None
        failed = RunError(
            f"the flow failed: {one_line(failure or error)}",
            "",
            "start again with the same checkpoint once the cause is gone",
        )
        raise logged(failed, failure or error, runner.checkpoint.root) from None
