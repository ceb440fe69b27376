"""What can go wrong with user code while a flow runs, named so that the user finds the place.

    RunError
    └── FunctionFailed     user code raised, or gave something else than it declared

A failure carries the function, the stream and the time stamp of the window. It crosses from a Spark task to the driver
as plain values (`node_reports`), never as a pickle, and stops the flow before the epoch is committed: the checkpoint
restarts with the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from braidstream.errors import RunError

__all__ = ["FunctionFailed", "guarded", "moment"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def moment(us: int) -> str:
    """An event time in UTC, to the microsecond."""
    try:
        return (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    except OverflowError:
        return f"{us} us"


class FunctionFailed(RunError):
    """User code failed on a window. `function`, `stream` and `ts` (microseconds) name the place."""

    def __init__(self, function: str, stream: str, ts: int, wrong: str, expected: str = "", fix: str = "") -> None:
        self.function, self.stream, self.ts, self.said = function, stream, ts, wrong
        super().__init__(
            f"function {function!r} failed on the window at {moment(ts)} of stream {stream!r}: {wrong}",
            expected,
            fix or "correct the function and start again with the same checkpoint; the epoch is run again",
        )


def guarded(name: str, stream: str, times: Sequence[int] | Any, call: Callable[[slice], Any]) -> Any:
    """Call user code on all windows of a batch; where it raises, find the first window that it raises on alone."""
    try:
        return call(slice(None))
    except FunctionFailed:
        raise
    except Exception as error:
        at, cause = 0, error
        for i in range(len(times)):
            alone = _raised(call, i)
            if alone is not None:
                at, cause = i, alone
                break
        raise FunctionFailed(name, stream, int(times[at]), f"{type(cause).__name__}: {cause}") from cause


def _raised(call: Callable[[slice], Any], i: int) -> Exception | None:
    try:
        call(slice(i, i + 1))
    except Exception as error:
        return error
    return None
