"""The `[control]` table of a job file: `enabled`, and the controller's settings by their names.

Without the table, or with `enabled = false`, groups stay where they are. A table that sets anything must say `enabled`,
so that no setting is without effect by accident. The epoch's length is the trigger's interval unless `epoch_s` says
another; with neither, load is relative and declustering, which then could never act, is refused.

Invariant: nothing is ignored; what is wrong is refused with its place. Cost: none to speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from braidstream.errors import JobError
from braidstream.options import JobControl, Settings
from braidstream.options.job_table import JobTable
from braidstream.query.duration import parse_duration

__all__ = ["read_control"]


def read_control(top: JobTable, epoch: str | timedelta) -> Settings | None:
    """The controller's settings; None where it is off. `epoch` is the flow's trigger."""
    plain = top.values.get("control", {})
    if not isinstance(plain, Mapping):
        raise JobError(f"{top.file}: [control] is {plain!r}", "a table", "write [control] and enabled = true")
    if "control" not in top.values:
        return None
    read = top.table("control").read(JobControl)
    if read.declustering and read.epoch_s is None and not (epoch != "available" and parse_duration(epoch) > 0):
        raise JobError(
            f"{top.file}: [control] declustering has no epoch length to go by",
            f"[flow] epoch with a length, not {epoch!r}, or [control] epoch_s",
            'write epoch = "2 seconds" in [flow]',
        )
    return read.settings if read.enabled else None
