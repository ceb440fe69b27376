"""The handle of a running flow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from braidstream.errors import BraidstreamError, RunError
from braidstream.spark.epoch import EpochRunner, Stopped
from braidstream.spark.progress import EpochProgress

__all__ = ["Handle"]


class Handle:
    """A running flow: look at it, wait for it, stop it."""

    def __init__(self, query: StreamingQuery, runner: EpochRunner, explain: Callable[[], str]) -> None:
        self._query, self._runner, self._explain = query, runner, explain

    @property
    def progress(self) -> list[EpochProgress]:
        """The recent epochs of this run, the newest last."""
        return list(self._runner.progress)

    @property
    def is_active(self) -> bool:
        """Whether the flow is still running."""
        return bool(self._query.isActive)

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

    def explain(self) -> str:
        """The plan in words."""
        return self._explain()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the flow ends; True when it has. Raises what made it fail."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
                if self._query.awaitTermination(max(left, 0.001)):
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    return False
        except StreamingQueryException as error:
            self._raise(error)
        return True

    def stop(self) -> None:
        """Stop after the running epoch. The checkpoint restarts."""
        runner = self._runner
        runner.stopping = True
        with runner.running:
            self._query.stop()

    def kill(self) -> None:
        """Stop at once; the running epoch is lost and replayed at the next start."""
        self._runner.stopping = True
        self._query.stop()

    def _raise(self, error: StreamingQueryException) -> None:
        failure: Any = self._runner.failure
        if isinstance(failure, Stopped) or self._runner.stopping:
            return
        if isinstance(failure, BraidstreamError):
            raise failure from None
        raise RunError(
            f"the flow failed: {_reason(failure or error)}", "", "start again with the same checkpoint once the cause is gone"
        ) from error


def _reason(error: BaseException) -> str:
    """The lines of a Spark error that say what happened, without its stack."""
    text = str(error)
    raised = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "File "))]
    ours = [line for line in raised if line.startswith("braidstream.errors.")]
    if ours:
        return ours[-1].split(": ", 1)[-1]
    return raised[0] if raised else type(error).__name__
