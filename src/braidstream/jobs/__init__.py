"""Job files: a flow in TOML, read, checked and built; one with functions and queries is several flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braidstream.jobs import form
from braidstream.jobs.form import Job, JobFlow, JobQuery, JobSink, JobStream, read, with_place

if TYPE_CHECKING:
    from braidstream.jobs.checking import Checked
    from braidstream.jobs.piped import Piped, PipedHandle
    from braidstream.spark.flow import Flow
    from braidstream.spark.handle import Handle

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


def build(job: Job, spark: Any) -> Flow | Piped:
    """The job's flow over a Spark session, or those of its parts; nothing is started."""
    if job.functions and job.queries:
        from braidstream.jobs.piped import Piped  # noqa: PLC0415  (brings Spark along)

        return Piped.of(job, spark)
    return form.build(job, spark)


def start(job: Job, spark: Any, wait: str = "0 seconds") -> Handle[Any] | PipedHandle:
    """Build the job and start it, or go on where its checkpoint ends; `wait` for another run's end.

    It runs to its end whether somebody waits or not: of several parts each starts when it is its turn.
    """
    from braidstream.jobs.piped import Piped, refuse_other_parts  # noqa: PLC0415  (brings Spark along)

    refuse_other_parts(job)
    return Piped.start(job, spark, wait) if job.functions and job.queries else form.start(job, spark, wait)


def refuse_running(job: Job) -> None:
    """Refuse, before Spark is started, a job that surely runs already."""
    from braidstream.jobs.taking_apart import parts_of  # noqa: PLC0415  (reading a job needs none of it)

    for part in parts_of(job):
        form.refuse_running(part)
