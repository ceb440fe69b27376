"""Follows a running flow to its end: shows each epoch, and stops it when the user says so.

The first Ctrl-C lets the running epoch end and stops then; the second stops at once; a third ends the process. SIGTERM
counts like Ctrl-C. However it ends, the checkpoint restarts: the difference is only whether the running epoch is lost
and computed again.

Invariant: the signal's handler only counts. It may run while this thread waits for an answer of the JVM, and a call to
the JVM from there would mix up the two; so a thread of its own stops the flow.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from braidstream.cli.readings import reading
from braidstream.epoch.lateness import Lateness, warning

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress
    from braidstream.jobs.piped import PipedHandle
    from braidstream.model.instructions import Decision
    from braidstream.spark.handle import Handle

__all__ = ["INTERRUPTED", "Interrupts", "Run", "View", "Views", "follow"]

INTERRUPTED = 130
_POLL_S = 0.2
_PATIENCE_S = 20.0
logging.getLogger("braidstream").addHandler(logging.NullHandler())  # what is logged there, views show as notes
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Run:
    """What a run did so far."""

    began: float = field(default_factory=time.monotonic)
    epochs: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    untimed: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    """Rows, and joined rows, on which an expression of a query with `bad` failed."""
    late_by: dict[str, int] = field(default_factory=dict)
    """The delay that late rows would have needed, by stream."""
    much_late: dict[str, int] = field(default_factory=dict)
    """Streams of which too many rows were late in some epoch, each with the delay that the user was told of last."""
    delays: dict[str, str] = field(default_factory=dict)
    """Delays that were measured when the flow started, by stream."""
    decisions: Counter[str] = field(default_factory=Counter)
    """How often the controller changed something, by its rule."""
    last: EpochProgress | None = None
    shown: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The last epoch and step that was shown, by part of the job; of a job without parts, of the name ""."""
    seconds: float = 0.0
    interrupted: bool = False
    failed: bool = False
    seen: list[EpochProgress] | None = None
    """All epochs, for those who want them all."""

    def add(self, entry: EpochProgress) -> None:
        """Count an epoch."""
        if self.seen is not None:
            self.seen.append(entry)
        self.epochs += entry.step == 0
        self.rows.update(entry.rows)
        self.late.update(entry.late)
        self.untimed.update(entry.untimed)
        self.bad.update(entry.bad)
        for stream, needed_us in entry.late_by.items():
            self.late_by[stream] = max(self.late_by.get(stream, 0), needed_us)
        self.results.update(reading(entry).results)
        self.last = entry

    def news(self, entry: EpochProgress) -> list[str]:
        """Warnings of an epoch that say something new: a stream's first, or one that asks for twice the delay."""
        told = []
        for text in entry.warnings:
            stream = text.removeprefix("stream ").partition(":")[0]
            needed = self.late_by.get(stream, 0)
            if stream not in self.much_late or needed > 2 * self.much_late[stream]:
                self.much_late[stream] = needed
                told.append(text)
        return told

    def warnings(self) -> list[str]:
        """What the run as a whole warns of."""
        found = {
            stream: Lateness(self.rows[stream], late, self.untimed[stream], self.late_by.get(stream, 0))
            for stream, late in self.late.items()
        }
        return [warning(s, one, "this run") for s, one in found.items() if one.is_much or s in self.much_late]

    @property
    def rows_per_s(self) -> float:
        """Rows of all streams by the clock on the wall, the time between epochs included."""
        return sum(self.rows.values()) / max(self.seconds, 1e-9)


class View(Protocol):
    """Shows a run."""

    def phase(self, text: str) -> None:
        """What is being done before the flow runs."""

    def begin(self, run: Run) -> None:
        """The flow was started."""

    def epoch(self, entry: EpochProgress) -> None:
        """An epoch was committed."""

    def decision(self, decision: Decision) -> None:
        """The controller changed something after the epoch just shown."""

    def note(self, text: str) -> None:
        """Something the user should know now."""

    def end(self, run: Run) -> None:
        """The flow has ended, well or not."""

    def close(self) -> None:
        """Leave the terminal as it was; called however it all ends."""


class Views:
    """Several views of one run."""

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views

    def phase(self, text: str) -> None:
        """To all."""
        for one in self._views:
            one.phase(text)

    def begin(self, run: Run) -> None:
        """To all."""
        for one in self._views:
            one.begin(run)

    def epoch(self, entry: EpochProgress) -> None:
        """To all."""
        for one in self._views:
            one.epoch(entry)

    def decision(self, decision: Decision) -> None:
        """To all."""
        for one in self._views:
            one.decision(decision)

    def note(self, text: str) -> None:
        """To all."""
        for one in self._views:
            one.note(text)

    def end(self, run: Run) -> None:
        """To all."""
        for one in self._views:
            one.end(run)

    def close(self) -> None:
        """To all."""
        for one in self._views:
            one.close()


class Interrupts:
    """Counts the signals that ask to stop, from `count_them` on; before it they interrupt like any Ctrl-C."""

    def __init__(self) -> None:
        self.count = 0
        self._counting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        logging.getLogger().addFilter(self._is_news)
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeFilter(self._is_news)
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @staticmethod
    def _is_news(record: logging.LogRecord) -> bool:
        """Not that the user interrupted a call to the JVM, which Py4J logs with its stack."""
        return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)

    def count_them(self) -> None:
        """From now on there is a flow to stop in good order."""
        self._counting = True

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._counting:
            raise KeyboardInterrupt
        self.count += 1
        if self.count >= 2:
            signal.signal(number, signal.SIG_DFL)


def follow(start: Callable[[], Handle[Any] | PipedHandle], view: View, seen: list[EpochProgress] | None = None) -> Run:
    """Start a flow and follow it to its end; epochs are added to `seen`. Raises what made it fail."""
    with Interrupts() as interrupts:
        handle = start()
        interrupts.count_them()
        run = Run(seen=seen, delays=handle.delays)
        view.begin(run)
        for text in (*handle.changes, *handle.warnings):
            view.note(text)
        try:
            _watch(handle, view, run, _Stopper(handle, view, interrupts))
        except Exception as error:
            run.failed = not (interrupts.count and _has_gone(error))
            if run.failed:
                raise
            view.note("Spark has ended before the epoch; it is computed again at the next start")
        except BaseException:
            run.failed = True
            raise
        finally:
            _show_new(handle, view, run)
            run.seconds = time.monotonic() - run.began
            run.interrupted = interrupts.count > 0
            view.end(run)
    return run


def _has_gone(error: BaseException) -> bool:
    """Whether Spark's process has ended: a signal to a whole group of processes ends it beside this one."""
    from braidstream.spark.causes import has_gone  # noqa: PLC0415  (slow to import)

    return has_gone(error)


class _Stopper:
    """Does what the interrupts ask for, once each."""

    def __init__(self, handle: Handle[Any] | PipedHandle, view: View, interrupts: Interrupts) -> None:
        self._handle, self._view, self._interrupts = handle, view, interrupts
        self._done = 0
        self._killed_at = 0.0
        self._threads: list[threading.Thread] = []

    def act(self) -> None:
        """Start what was asked for since the last time."""
        if self._done == 0 and self._interrupts.count >= 1:
            self._view.note("stopping after the running epoch (Ctrl-C again stops at once)")
            self._begin(self._handle.stop)
        if self._done == 1 and self._interrupts.count >= 2:
            self._view.note("stopping at once; the running epoch is computed again at the next start")
            self._killed_at = time.monotonic()
            self._begin(self._handle.kill)

    @property
    def is_out_of_patience(self) -> bool:
        """Whether stopping at once takes too long to wait for."""
        return self._done == 2 and time.monotonic() - self._killed_at > _PATIENCE_S

    def wait(self) -> None:
        """Let what was begun end, so that nobody calls a JVM that is gone."""
        for thread in self._threads:
            thread.join(_PATIENCE_S)

    def _begin(self, action: Callable[[], None]) -> None:
        def run() -> None:
            with suppress(Exception):  # the flow may have ended by itself; what made it fail is raised elsewhere
                action()

        self._done += 1
        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()


def _watch(handle: Handle[Any] | PipedHandle, view: View, run: Run, stopper: _Stopper) -> None:
    while not handle.await_termination(_POLL_S):
        _show_new(handle, view, run)
        run.seconds = time.monotonic() - run.began
        stopper.act()
        if stopper.is_out_of_patience:
            return
    stopper.wait()


def _show_new(handle: Handle[Any] | PipedHandle, view: View, run: Run) -> None:
    for name, part in handle.parts.items():
        if name and name not in run.shown:
            view.phase(f"running {name}")
        _show_part(name, part, view, run)


def _show_part(name: str, handle: Handle[Any], view: View, run: Run) -> None:
    last = run.shown.setdefault(name, (-1, 0))
    for entry in handle.progress:
        if (entry.epoch, entry.step) > last:
            run.shown[name] = (entry.epoch, entry.step)
            run.add(entry)
            view.epoch(entry)
            for text in run.news(entry):
                view.note(f"warning: {text}")
            for decision in handle.decisions:
                if decision.epoch == entry.epoch and decision.instructions:
                    run.decisions[decision.rule] += 1
                    view.decision(decision)
