"""Job files: a flow in TOML, read, checked and built."""

from braidstream.jobs.form import (
    Job,
    JobFlow,
    JobQuery,
    JobSink,
    JobStream,
    build,
    check,
    read,
    refuse_running,
    start,
    with_place,
)

__all__ = [
    "Job",
    "JobFlow",
    "JobQuery",
    "JobSink",
    "JobStream",
    "build",
    "check",
    "read",
    "refuse_running",
    "start",
    "with_place",
]
