"""Job files: a flow in TOML, read, checked and built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidstream.jobs.form import (
    Job,
    JobFlow,
    JobQuery,
    JobSink,
    JobStream,
    build,
    read,
    refuse_running,
    start,
    with_place,
)

if TYPE_CHECKING:
    from braidstream.jobs.checking import Checked

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


def check(job: Job) -> Checked:
    """Validate a job without starting Spark: raises what `braid run` would refuse, as far as it shows so early."""
    from braidstream.jobs.checking import check_job  # noqa: PLC0415  (reading a job needs none of it)

    return check_job(job)
