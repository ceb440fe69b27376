"""The `[control]` table of a job file: the controller's settings by their names, and `enabled`.

The controller is on. `controller = false` in `[flow]` switches it off, and so does `enabled = false` in the table; the
first with a table that says `enabled = true`, or has settings, is refused, so that no setting is without effect by
accident. A function has no controller. The epoch's length is the trigger's interval unless `epoch_s` says another; with
neither, load is relative and declustering, which then could never act, is refused.

Invariant: nothing is ignored; what is wrong is refused with its place. Cost: none to speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from braidstream.errors import JobError
from braidstream.options import JobControl, JobFlow, Settings
from braidstream.options.job_table import JobTable
from braidstream.query.duration import parse_duration

__all__ = ["read_control"]


def read_control(top: JobTable, flow: JobFlow) -> Settings | None:
    """The controller's settings; None where it is off."""
    plain = top.values.get("control", {})
    if not isinstance(plain, Mapping):
        raise JobError(f"{top.file}: [control] is {plain!r}", "a table", "write [control] and its settings below it")
    if "control" not in top.values:
        return Settings() if flow.controller else None
    read = top.table("control").read(JobControl)
    if not flow.controller and plain.get("enabled") is not False:
        wrong = f"{top.file}: [flow] controller = false, and a table [control]"
        raise JobError(wrong, "one of them", "remove the table, or write enabled = false in it")
    if read.declustering and read.epoch_s is None and not _has_length(flow.epoch):
        raise JobError(
            f"{top.file}: [control] declustering has no epoch length to go by",
            f"[flow] epoch with a length, not {flow.epoch!r}, or [control] epoch_s",
            'write epoch = "2 seconds" in [flow]',
        )
    return read.settings if read.enabled else None


def _has_length(epoch: str | timedelta) -> bool:
    return epoch != "available" and parse_duration(epoch) > 0
