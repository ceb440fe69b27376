"""A scripted source: epochs of rows, with pauses and crashes between them, so that a recovery test reads as a story.

    script = Script(folder, {"R": schema, "S": schema}, [
        Rows(R=[{"k": 1, "v": 10, "ts": 0}], S=[]),
        Abort("before-manifest"),
        Rows(S=[{"k": 1, "v": 20, "ts": 5}]),
    ])
    for act in script.acts():
        run_the_flow_on(script.path("R"), script.path("S"), env=act.environment)

Behind it is a folder of Parquet files for each stream. A Spark file stream with maxFilesPerTrigger=1 reads one file an
epoch, so the i-th `Rows` (from 0) is epoch i: every stream gets a file for every epoch, an empty one where it is
silent. `acts()` writes the files of an act just before it is played. A run that is given its `environment` dies where
the script says (`braidstream.model.faults`), and the run of the next act begins with the epoch that was lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from braidstream.errors import InputError, nearest
from braidstream.lab.testing.oracle import Epoch, Row
from braidstream.lab.workloads.stream_files import append_files
from braidstream.model.faults import VARIABLE, Fault

__all__ = ["Abort", "Act", "Pause", "Rows", "Script"]


class Rows:
    """One epoch: the rows of each stream by its name. A time may be a whole number of microseconds."""

    def __init__(self, **streams: Sequence[Row]) -> None:
        self.streams: Epoch = streams

    def __repr__(self) -> str:
        return f"Rows({', '.join(f'{name}={list(rows)}' for name, rows in self.streams.items())})"


@dataclass(frozen=True)
class Pause:
    """The run ends here in good order, and a new one goes on."""


@dataclass(frozen=True)
class Abort:
    """The run dies at a fault point of the epoch before, and a new one goes on."""

    point: str = "before-manifest"
    action: str = "kill"


@dataclass(frozen=True)
class Act:
    """What one run is given: the epochs [first_epoch, end_epoch) are new, and it is to die at `fault`, if any."""

    first_epoch: int
    end_epoch: int
    fault: Fault | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What to add to the environment of the run's process."""
        return {VARIABLE: str(self.fault)} if self.fault else {}


Step = Rows | Pause | Abort


class Script:
    """The steps of some streams, written below `folder` as they are played."""

    def __init__(self, folder: str | os.PathLike[str], schemas: Mapping[str, pa.Schema], steps: Sequence[Step]) -> None:
        self.folder = Path(folder)
        self.schemas = dict(schemas)
        self.steps = tuple(steps)
        for name in sorted({name for epoch in self.epochs for name in epoch} - set(self.schemas)):
            raise InputError(f"the script has rows of {name!r}", "a stream with a schema", nearest(name, self.schemas))
        if self.steps and isinstance(self.steps[0], Abort):
            raise InputError("the script begins with Abort", "an epoch to die in", "put Rows() before it")

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The rows of every epoch, in order."""
        return tuple(step.streams for step in self.steps if isinstance(step, Rows))

    def rows(self, stream: str) -> list[Row]:
        """All rows of a stream, for the oracle."""
        return [row for epoch in self.epochs for row in epoch.get(stream, ())]

    def path(self, stream: str) -> Path:
        """The folder of a stream's files."""
        return self.folder / stream

    def acts(self) -> Iterator[Act]:
        """Write the files up to each pause or abort, and then up to the end; the last act always ends in good order."""
        first = end = 0
        for name in self.schemas:
            append_files(self.path(name), [])
        for step in self.steps:
            if isinstance(step, Rows):
                self._write(step.streams)
                end += 1
                continue
            fault = Fault.parse(f"{step.point}:{end - 1}:{step.action}") if isinstance(step, Abort) else None
            yield Act(first, end, fault)
            first = end
        yield Act(first, end)

    def _write(self, epoch: Epoch) -> None:
        for name, schema in self.schemas.items():
            append_files(self.path(name), [pa.Table.from_pylist(list(epoch.get(name, ())), schema)])
