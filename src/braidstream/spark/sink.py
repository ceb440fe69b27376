"""What a sink is: it takes the results of an epoch so that taking them again changes nothing.

An epoch is delivered again when the process died after its results were handed over and before its manifest was
written; maybe over another number of slots, so in other files. The results are the same, for the manifest before an
epoch and its offsets define them. So a sink has one of two ways to take each once:

- it *recognizes*: the results and their mark (flow, outlet, number) become visible in one transaction of the sink's
  own; who finds the mark does nothing;
- it *replaces*: what a lost attempt left under the same number is removed first.

Bulk data goes by reference (files are renamed and named in the transaction) or through a task of Spark, never through
the driver. A number below 0 is no epoch but a step of a last clean-up: -1, -2, ... over the life of the flow. Numbers
of epochs grow, and so do those of steps, so a mark is one number for each: the last that was taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from braidstream.errors import SinkError
from braidstream.model.declarations import Target
from braidstream.model.faults import reach
from braidstream.model.secrets import kept_value
from braidstream.model.snapshots import Placed
from braidstream.state.files import Files
from braidstream.state.staging import Staging
from braidstream.state.whole_epochs import shown_number

__all__ = ["Delivery", "Mark", "Reached", "Sink"]


@dataclass(frozen=True)
class Mark:
    """What a transaction of a sink is known by."""

    flow: str
    outlet: str
    number: int

    @property
    def kind(self) -> str:
        """Epochs and steps are counted apart."""
        return "epoch" if self.number >= 0 else "step"

    @property
    def version(self) -> int:
        """The number, which grows from one delivery of its kind to the next."""
        return abs(self.number)

    @property
    def writer(self) -> str:
        """Who writes, for tables that know a writer and a version: a text without blanks."""
        return "/".join([self.flow, self.outlet.replace(" ", "-"), *(["clean-up"] if self.number < 0 else [])])

    @property
    def file_name(self) -> str:
        """What the names of its files begin with."""
        return f"part-{self.flow[:12]}-{shown_number(self.number)}-"


@dataclass(frozen=True)
class Reached:
    """How far a flow may have delivered, by its checkpoint: the last epoch and the last step."""

    epoch: int
    step: int

    def refuse_later(self, what: str, mark: Mark, taken: int | None, fix: str) -> None:
        """Refuse a table that has results of a later number: it would take what comes for what it has."""
        limit = self.epoch if mark.kind == "epoch" else self.step
        if taken is not None and taken > limit:
            raise SinkError(
                f"{what} has results of {mark.outlet!r} up to {mark.kind} {taken}, the checkpoint is at "
                f"{mark.kind} {limit}: it was rolled back, or restored from a copy",
                f"a table with results, and a mark, of no later {mark.kind}",
                f"{fix} (docs/runbook.md)",
            )


@dataclass(frozen=True)
class Delivery:
    """The results of an outlet in an epoch, or in a step if the number is below 0."""

    outlet: str
    number: int
    staged: Sequence[str]
    """Names of files, below the root of the sink's staging."""
    frame: Callable[[], DataFrame]
    """The results as a DataFrame, for sinks that go through Spark."""
    finished: bool
    """Whether the staged files have the results themselves; if not, only the frame has."""
    checksums: Mapping[str, int] = field(default_factory=dict)
    """Of the staged files."""
    durable: bool = False
    """Whether files are to be on the disk when it is done."""
    part: str = ""
    """Of the outlet, where several sinks are each given some of its rows; then two may be one topic."""

    def reach(self, point: str) -> None:
        """A fault point of this delivery."""
        reach(point, epoch=self.number)


class Sink(ABC):
    """Where results go."""

    description: str
    """What it is; of tables and topics with its guarantee."""
    promise = ""
    """The guarantee, where the description has none."""
    idempotent = True
    """Whether an epoch that is delivered again is there once."""
    given: Mapping[str, str] = {}
    """Its options as they were given, without secrets."""
    placed: Mapping[str, tuple[Placed, ...]] = {}
    """Of a sink that puts files into folders: those of the last delivery."""
    is_shared = False
    """Whether another output, given other rows of the same outlet, goes to the same table or topic."""
    recognizes = False
    """Whether it is so because the sink knows what it took, from whatever query of that name: not by replacing it."""

    @property
    def explained(self) -> str:
        """What it is and what it guarantees, for `explain`."""
        return f"{self.description} ({self.promise})" if self.promise else self.description

    @property
    def parts(self) -> Sequence[Sink]:
        """The sinks that it is: one, but for `late.SeveralSinks`."""
        return [self]

    @property
    def target(self) -> Target:
        """Where it is."""
        return Target(None)

    @property
    def noted(self) -> Target:
        """The same in a form that can be written down: what came from the environment by its name, and no secrets."""
        found = self.target
        options = {name: self.given.get(name, kept_value(name, value)) for name, value in found.options.items()}
        return Target(found.to, found.path, options)

    @property
    def folder(self) -> str | None:
        """The folder that it writes to, if it is one."""
        return None

    def find(self, spark: SparkSession) -> None:
        """Refuse, before anything starts, a sink whose format this session does not have."""
        del spark

    def check(self, flow: str) -> None:
        """Refuse, before anything starts, a sink that belongs to another flow, or is not there, or cannot be one."""
        del flow

    def check_rows(self, schema: StructType) -> None:
        """Refuse, before anything starts, rows that the sink cannot take."""
        del schema

    def refuse_later(self, flow: str, outlet: str, reached: Reached) -> None:
        """Refuse, before anything starts, a sink that says it has more of an outlet than the flow has delivered."""
        del flow, outlet, reached

    def claim(self, flow: str, owner: str = "") -> None:
        """Mark the sink as this flow's; refuse it like `check`. `owner` holds the lease of the flow's checkpoint."""
        del flow, owner

    def sweep(self) -> None:
        """At a start: drop what a lost attempt left behind."""
        return

    def staging(self, checkpoint: str, finished: bool) -> Staging:
        """Where slots stage results. `finished` says whether what they stage is the result itself."""
        del finished
        return Staging(checkpoint, "staged")

    @abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Take the results of an epoch; those of one that it took before change nothing."""

    def end(self, staged: Files, names: Sequence[str]) -> None:
        """After delivery: drop what is left of the staged files."""
        for name in names:
            staged.delete(name)
