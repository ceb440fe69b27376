"""Running a job with functions and queries: its parts as flows of one process, one feeding the other.

With `epoch = "available"` each part runs to its end before the next begins, so that the next has all there is; with
epochs in time all run side by side. A thread looks after them: it starts the next, and stops all where one fails,
whether somebody waits or not. Each has a checkpoint of its own and is exact by itself; between them is a feed, which
has what was committed and nothing else (`spark.feeds`).

Invariant: every part is checked before any is started, and a checkpoint is only ever used with the parts and the feeds
that it was made with: a feed that began later, or was left out for a while, would have holes. Cost: that of its flows,
and a thread.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from braidstream.errors import CheckpointMismatch, InputError
from braidstream.jobs.form import Job, build
from braidstream.jobs.parts_file import others_in, read_parts, write_parts
from braidstream.jobs.taking_apart import is_mixed, parts_of
from braidstream.model.instructions import Decision
from braidstream.query.duration import parse_duration
from braidstream.spark.feeds import FeedLog, make_feed, refuse_missing_feed, refuse_other_logs, result_columns
from braidstream.spark.flow import Flow
from braidstream.spark.handle import PATIENCE_S, Handle
from braidstream.spark.names import resolved
from braidstream.spark.starting import as_from_here
from braidstream.state.checkpoint import IDENTITY
from braidstream.state.files import Files

__all__ = ["Piped", "PipedHandle", "refuse_other_parts"]

_POLL_S = 0.1


def refuse_other_parts(job: Job) -> None:
    """Refuse a checkpoint that was made with other parts, or of a job that has none."""
    root = Files(job.flow.checkpoint)
    known = read_parts(root)
    if not is_mixed(job):
        if known is not None:
            wrong = f"the checkpoint {job.flow.checkpoint} is of a job with functions and queries"
            raise CheckpointMismatch(wrong, "a checkpoint of this job", "use a new checkpoint folder")
        return
    wanted = _described(job)
    if known is None:
        _refuse_other_folder(root, job.flow.checkpoint)
        return
    if known != wanted:
        wrong = (
            f"the checkpoint {job.flow.checkpoint} was made with {_shown(known)}; "
            f"what feeds what is another thing in this job: {_shown(wanted)}"
        )
        what = "the same functions and queries taking each other's results"
        raise CheckpointMismatch(wrong, what, "put them back, or start with a new checkpoint folder")
    for folder in (folder for part in parts_of(job) for folder in part.given.values()):
        refuse_missing_feed(folder)


def _refuse_other_folder(root: Files, shown: str) -> None:
    """Refuse to make a checkpoint where there is something else."""
    if root.size("") is not None:
        raise InputError(f"the checkpoint {shown} is a file", "a folder", "choose another path")
    if root.exists(IDENTITY):
        wrong = f"the checkpoint {shown} is of a job that had functions alone, or queries alone"
        raise CheckpointMismatch(wrong, "a checkpoint of this job", "use a new checkpoint folder")
    if others_in(root):
        wrong = f"the checkpoint {shown} is no checkpoint, and is not empty"
        raise CheckpointMismatch(wrong, "a checkpoint of this job, or a new folder", "choose another folder")


def _described(job: Job) -> dict[str, Any]:
    parts = parts_of(job)
    names = [Path(part.flow.checkpoint).name for part in parts]
    both = zip(names, parts, strict=True)
    feeds = {one: f"{name} in {_sink_path(part, one)}" for name, part in both for one in part.given}
    return {"parts": names, "feeds": feeds}


def _shown(described: dict[str, Any]) -> str:
    feeds = ", ".join(f"{name} ({part})" for name, part in described["feeds"].items())
    return f"the parts {', '.join(described['parts'])} and results of {feeds or 'none'} between them"


@dataclass(frozen=True)
class Piped:
    """The flows of a job's parts, in the order in which they need one another."""

    job: Job
    parts: tuple[tuple[Job, Flow], ...]

    @classmethod
    def of(cls, job: Job, spark: Any) -> Piped:
        """Declare them; what a part reads of another has the columns that Spark finds there."""
        refuse_other_logs(spark)
        columns: dict[str, Any] = {}
        made = []
        for part in parts_of(job):
            flow = build(_readable(part), spark, columns)
            for name, folder in part.given.items():
                columns[name] = result_columns(flow, name)
                log = FeedLog(folder, _sink_path(part, name))
                flow.feeds[resolved(log.source)] = log
            made.append((part, flow))
        return cls(job, tuple(made))

    def explain(self) -> str:
        """The plans of all, one after the other."""
        return "\n\n".join(flow.explain() for _, flow in self.parts)

    def check(self, checkpoint: str | Path) -> tuple[str, ...]:
        """Refuse what a start would refuse, and say what it would change. Nothing is started or written."""
        del checkpoint  # each part has its own
        refuse_other_parts(self.job)
        return tuple(line for part, flow in self.parts for line in flow.check(part.flow.checkpoint))

    @classmethod
    def start(cls, job: Job, spark: Any, wait: str) -> PipedHandle:
        """Check all parts, then start the first, or with epochs in time all."""
        made = cls.of(job, spark)
        made.check(job.flow.checkpoint)
        if read_parts(Files(job.flow.checkpoint)) is None:
            cls._make(job)
            made = cls.of(job, spark)  # over feeds that are there now
        names = [Path(part.flow.checkpoint).name for part, _ in made.parts]
        starters = [as_from_here(spark, _starter(part, flow, wait)) for part, flow in made.parts]
        parts = [_Part(name, starter) for name, starter in zip(names, starters, strict=True)]
        return PipedHandle(parts, is_finite=job.flow.epoch == "available")

    @classmethod
    def _make(cls, job: Job) -> None:
        """The folder of the checkpoint: feeds first, then what says that they are all there."""
        for part in parts_of(job):
            for folder in part.given.values():
                make_feed(folder)
        write_parts(Files(job.flow.checkpoint), _described(job))


def _sink_path(part: Job, name: str) -> str:
    sink = part.functions[name].sink if name in part.functions else part.queries[name].sink
    assert sink is not None
    assert sink.path is not None
    return sink.path


def _readable(part: Job) -> Job:
    """The part with an empty feed in the place of one that no start has made yet."""
    return replace(part, feeds={name: replace(one, folder=_there(one.folder)) for name, one in part.feeds.items()})


def _there(folder: str) -> str:
    if Path(folder).is_dir():
        return folder
    _SCRATCH.append(tempfile.TemporaryDirectory(prefix="braidstream-feed-"))
    make_feed(_SCRATCH[-1].name)
    return _SCRATCH[-1].name


_SCRATCH: list[tempfile.TemporaryDirectory[str]] = []


def _starter(part: Job, flow: Flow, wait: str) -> Callable[[], Handle[Any]]:
    own = part.flow
    return lambda: flow.start(
        own.checkpoint,
        epoch=own.epoch,
        keep=own.keep,
        history=own.history,
        durability=own.durability,
        wait=wait,
    )


@dataclass
class _Part:
    """A part on its way."""

    name: str
    start: Callable[[], Handle[Any]]
    handle: Handle[Any] | None = None
    has_ended: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has run, also if nobody has waited for it."""
        return self.has_ended or (self.handle is not None and not self.handle.is_active)


class PipedHandle:
    """The running parts of a job: wait for them, stop them, look at each (`parts`)."""

    def __init__(self, parts: Sequence[_Part], *, is_finite: bool) -> None:
        self._parts, self._is_stopping = list(parts), False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="braidstream-parts", daemon=True)
        for part in self._parts[: 1 if is_finite else None]:
            self._start(part)
        self._thread.start()

    @property
    def parts(self) -> dict[str, Handle[Any]]:
        """The handles of the parts that were started, by their names."""
        return {part.name: part.handle for part in self._parts if part.handle is not None}

    @property
    def progress(self) -> list[Any]:
        """The recent epochs of all parts, one part after the other."""
        return [entry for handle in self.parts.values() for entry in handle.progress]

    @property
    def decisions(self) -> list[Decision]:
        """What was decided recently in all parts."""
        return [one for handle in self.parts.values() for one in handle.decisions]

    @property
    def totals(self) -> dict[str, int]:
        """Counters of all parts: names of streams, queries and functions are theirs alone; `epochs` is a sum."""
        found: dict[str, int] = {}
        for handle in self.parts.values():
            found |= {**handle.totals, "epochs": found.get("epochs", 0) + handle.totals.get("epochs", 0)}
        return found

    @property
    def delays(self) -> dict[str, str]:
        """The delays that were measured at starts."""
        return {name: delay for handle in self.parts.values() for name, delay in handle.delays.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was noticed at starts."""
        return tuple(text for handle in self.parts.values() for text in handle.warnings)

    @property
    def changes(self) -> tuple[str, ...]:
        """What is done otherwise than checkpoints were left."""
        return tuple(text for handle in self.parts.values() for text in handle.changes)

    @property
    def is_active(self) -> bool:
        """Whether a part runs, or is still to be run."""
        return not self._is_stopping and any(not part.is_over for part in self._parts)

    def explain(self) -> str:
        """The plans of the parts that were started."""
        return "\n\n".join(handle.explain() for handle in self.parts.values())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until all parts have ended; True when they have. Raises what made one fail, and stops the others."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def run_for(self, duration: str) -> None:
        """Run for a limited time, then stop after the running epochs."""
        if not self.await_termination(parse_duration(duration) / 1e6):
            self.stop()

    def stop(self) -> None:
        """Stop every part after its running epoch, from the first on. The checkpoint restarts."""
        self._is_stopping = True
        for handle in self.parts.values():
            handle.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE_S)  # it may be starting a part, which it stops then

    def kill(self) -> None:
        """Stop at once; running epochs are lost and replayed at the next start."""
        self._is_stopping = True
        for handle in self.parts.values():
            handle.kill()

    def _run(self) -> None:
        """Look after the parts until all have ended."""
        try:
            while not all(part.has_ended or (self._is_stopping and part.handle is None) for part in self._parts):
                for part in self._parts:
                    self._look_at(part)
        except BaseException as error:
            self._failure = error

    def _look_at(self, part: _Part) -> None:
        """Wait a moment for a part that runs; start one whose turn it is."""
        if part.has_ended or (part.handle is None and self._is_stopping):
            return
        if part.handle is None:
            if all(other.has_ended for other in self._parts[: self._parts.index(part)]):
                self._start(part)
            return
        try:
            part.has_ended = part.handle.await_termination(_POLL_S)
        except BaseException:
            part.has_ended = True
            self.stop()
            raise

    def _start(self, part: _Part) -> None:
        try:
            part.handle = part.start()
        except BaseException:
            self.stop()
            raise
        if self._is_stopping:  # it was asked for meanwhile
            part.handle.stop()
