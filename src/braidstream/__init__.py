"""Braidstream: adaptive, skew-proof, exactly-once stream joins on Spark.

The public names are imported when they are first used, so that `import braidstream` needs neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from braidstream._moved import find_moved
from braidstream.errors import (
    BraidstreamError,
    CheckpointInUse,
    CheckpointMismatch,
    DamagedState,
    InputError,
    JobError,
    LeaseLost,
    QueryError,
    RunError,
    SinkError,
    SinkFailed,
    StreamError,
)

if TYPE_CHECKING:
    from braidstream.epoch.progress import EpochProgress
    from braidstream.jobs import Job
    from braidstream.spark.flow import Flow
    from braidstream.spark.handle import Handle
    from braidstream.spark.oneliner import join
    from braidstream.spark.session import local_session
    from braidstream.spark.similarity import similar
    from braidstream.state.whole_epochs import result_files

__all__ = [
    "BraidstreamError",
    "CheckpointInUse",
    "CheckpointMismatch",
    "DamagedState",
    "EpochProgress",
    "Flow",
    "Handle",
    "InputError",
    "Job",
    "JobError",
    "LeaseLost",
    "QueryError",
    "RunError",
    "SinkError",
    "SinkFailed",
    "StreamError",
    "__version__",
    "join",
    "local_session",
    "result_files",
    "similar",
]

__version__ = "0.3.0"

_HOMES = {
    "EpochProgress": "braidstream.epoch.progress",
    "Flow": "braidstream.spark.flow",
    "Handle": "braidstream.spark.handle",
    "Job": "braidstream.jobs",
    "join": "braidstream.spark.oneliner",
    "local_session": "braidstream.spark.session",
    "result_files": "braidstream.state.whole_epochs",
    "similar": "braidstream.spark.similarity",
}

find_moved()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
