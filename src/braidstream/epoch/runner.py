"""The runner of a flow's epochs: one at a time, in order, and between them what is owed.

    exchange -> slots join, store, report -> results to the sinks -> manifest (the commit) -> Spark commits its offsets

`epoch.steps` says what an epoch does. Nothing here grows with the stream.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from braidstream.epoch.cluster import EnvelopesT
from braidstream.epoch.ending import ending, has_begun_to_end, is_ended, run_end
from braidstream.epoch.flow_run import FlowRun
from braidstream.epoch.owed import intended, is_in_step, owes, run_step
from braidstream.epoch.progress import EpochProgress
from braidstream.epoch.recorder import Recorder
from braidstream.epoch.steps import run_epoch
from braidstream.model.numbers import EpochNumber
from braidstream.state.acting import activated
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.files import unwritable
from braidstream.state.manifest import Manifest

__all__ = ["RECENT", "EpochRunner", "Epochs", "Running", "Stopped"]

ProgressT = TypeVar("ProgressT")

RECENT = 200
"""How many epochs `progress` looks back."""


class Stopped(Exception):
    """Raised in the stream's thread when an epoch would begin after the flow was told to stop."""


@dataclass
class Running:
    """Whether an epoch runs, may begin, or has failed: what a handle and the stream's thread agree on."""

    failure: BaseException | None = None
    stopping: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while an epoch runs, and by whoever sees to it that none begins."""
    thread: int | None = None
    """The thread in which an epoch runs now."""

    @contextmanager
    def epoch(self, root: str) -> Iterator[None]:
        """Around an epoch: it begins when no other runs, and what it fails with is kept."""
        while not self.lock.acquire(timeout=0.05):
            if self.stopping:
                raise Stopped
        try:
            if self.stopping:
                raise Stopped
            self.thread = threading.get_ident()
            yield
        except OSError as error:
            self.failure = unwritable(error, root) or error
            raise self.failure from error
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.thread = None
            self.lock.release()


class Epochs(ABC, Generic[EnvelopesT, ProgressT]):
    """Epochs one after the other, each once: what the runners of joins and of functions share.

    When an epoch's manifest is already there, the process died between our commit and Spark's: there is nothing to do.
    """

    manifest: Manifest
    """The last one."""
    progress: deque[ProgressT]
    running: Running

    @property
    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """Where the state is."""

    @property
    @abstractmethod
    def recorder(self) -> Recorder:
        """Who records the epochs."""

    @abstractmethod
    def epoch(self, envelopes: EnvelopesT, before: Manifest, number: int) -> tuple[Manifest, ProgressT]:
        """All steps of an epoch: the manifest that was committed, and what there is to say of it."""

    def __call__(self, envelopes: EnvelopesT, epoch: int) -> None:
        """Run one epoch."""
        with self.running.epoch(self.checkpoint.root):
            self.checkpoint.fence()
            if epoch <= self.manifest.epoch:
                return
            if self.manifest.epoch != epoch - 1:
                self.manifest = Manifest.read(self.checkpoint.files, epoch - 1)
            self.manifest, entry = self.epoch(envelopes, self.manifest, epoch)
            self.progress.append(entry)


@dataclass
class EpochRunner(Epochs[EnvelopesT, EpochProgress], Generic[EnvelopesT]):
    """Runs epochs one after the other, and remembers only the last manifest and recent progress."""

    flow: FlowRun[EnvelopesT]
    manifest: Manifest
    progress: deque[EpochProgress] = field(default_factory=lambda: deque(maxlen=RECENT))
    running: Running = field(default_factory=Running)

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the state is."""
        return self.flow.checkpoint

    @property
    def recorder(self) -> Recorder:
        """Who records the epochs."""
        return self.flow.recorder

    def epoch(self, envelopes: EnvelopesT, before: Manifest, number: int) -> tuple[Manifest, EpochProgress]:
        """All steps of an epoch."""
        return run_epoch(self.flow, envelopes, before, EpochNumber(number))

    def finish(self) -> None:
        """At the end of a finite flow, after Spark's last batch: deliver what is owed, until nothing is; then, if the
        input ends there, what waits for the watermark.

        A step that was begun is ended first at the next start (`prepare`), before anything else happens to its groups.
        """
        while True:
            with self.running.lock:
                if self.running.stopping or is_ended(self.manifest):
                    return
                if not self._made_up():
                    if self.flow.is_final:
                        self._end()
                    return

    def settle(self) -> None:
        """The same between two epochs, by who sees to it that none begins: before anything is changed that is owed."""
        while self._made_up():
            pass

    def prepare(self) -> None:
        """Before the first epoch of a start: end what was begun, and leave nothing pushed that may not be pushed now.

        Other queries, or another choice of what to do beyond the budget, may have made it so.
        """
        spiller = self.flow.decider.spiller
        if has_begun_to_end(self.manifest):
            with self.running.lock:
                self._end()
            return
        if is_in_step(self.manifest):
            with self.running.lock:
                self._step()
        if spiller is not None and spiller.is_at_odds(self.manifest):
            self.settle()
            active = activated(self.manifest, spiller.stores)
            if active != self.manifest:
                self.manifest = self.checkpoint.commit(active)

    def owes(self, others: Collection[str]) -> bool:
        """Whether joins that are not among `others` miss results."""
        return owes(self.flow, self.manifest, others)

    def _made_up(self) -> bool:
        """Deliver one step of what is owed; False when nothing is."""
        if not is_in_step(self.manifest):
            next_ = intended(self.flow, self.manifest)
            if next_ is None:
                return False
            self.manifest = self.checkpoint.commit(next_)
        self._step()
        return True

    def _end(self) -> None:
        """Close the checkpoint, once that is committed to be the next and last thing."""
        if not has_begun_to_end(self.manifest):
            self.manifest = self.checkpoint.commit(ending(self.manifest))
        self.manifest, entry = run_end(self.flow, self.manifest)
        self.progress.append(entry)

    def _step(self) -> None:
        self.manifest, entry = run_step(self.flow, self.manifest)
        self.progress.append(entry)
