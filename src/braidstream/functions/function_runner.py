"""The runner of a function's epochs: one at a time, in order, as `epoch.runner` runs those of joins.

    stages -> results to the sink -> manifest (the commit) -> Spark commits its offsets

`functions.function_epoch` says what an epoch does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic

from braidstream.epoch.recorder import Recorder
from braidstream.epoch.runner import RECENT, Epochs, Running
from braidstream.functions.function_epoch import FunctionRun, run_function_epoch
from braidstream.functions.function_progress import FunctionProgress
from braidstream.functions.node_cluster import RowsT
from braidstream.state.checkpoint import Checkpoint
from braidstream.state.manifest import Manifest

__all__ = ["FunctionRunner"]


@dataclass
class FunctionRunner(Epochs[RowsT, FunctionProgress], Generic[RowsT]):
    """Runs epochs one after the other, and remembers only the last manifest and recent progress."""

    run: FunctionRun[RowsT]
    manifest: Manifest
    progress: deque[FunctionProgress] = field(default_factory=lambda: deque(maxlen=RECENT))
    running: Running = field(default_factory=Running)

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the state is."""
        return self.run.checkpoint

    @property
    def recorder(self) -> Recorder:
        """Who records the epochs."""
        return self.run.recorder

    def epoch(self, envelopes: RowsT, before: Manifest, number: int) -> tuple[Manifest, FunctionProgress]:
        """All steps of an epoch."""
        return run_function_epoch(self.run, envelopes, before, number)
