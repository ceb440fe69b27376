"""What a slot says of one epoch: the controller's only sight of the cluster.

Reports are values that cross processes and are kept with a manifest, so each has a plain JSON form and nothing else.
`rows` counts the tuples joined in the epoch, `busy_s` the seconds spent on them, `bytes` the active state held at its
end: what is probed. `inactive_bytes` are a group's generations on disk that are not cleaned up yet.

A slot that buffers tuples of its own (WSJ's slaves, in the simulator) also says how much it left unjoined. On Spark a
slot leaves nothing behind, its backlog shows as busy time (see `load`), and `backlog_rows` stays None.

Between two reorganizations the reports wait in the manifest, so that a restart forgets none of them. `folded` keeps
what waits small: of the groups only sums remain, whatever the number of epochs.

Cost: O(groups of the slot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

__all__ = [
    "GroupReport",
    "SlotReport",
    "folded",
    "reports_from_json",
    "reports_from_rows",
    "reports_to_json",
    "reports_to_rows",
]


@dataclass(frozen=True)
class GroupReport:
    """One group's share of an epoch. A slot that cannot tell its groups' times apart leaves every `busy_s` 0."""

    group: int
    rows: int
    matches: int
    stored_rows: int
    stored_bytes: int
    busy_s: float
    inactive_bytes: int = 0


@dataclass(frozen=True)
class SlotReport:
    """One slot's epoch."""

    slot: int
    epoch: int
    rows: int
    matches: int
    bytes: int
    busy_s: float
    groups: tuple[GroupReport, ...]
    executor: str = ""
    backlog_rows: int | None = None
    backlog_bytes: int | None = None
    work_s: float | None = None
    """Where a flow has several stages: the seconds that slots take on average for such work as this slot's. A row or a
    match of one stage costs what it costs, so the paces of slots with other shares of the stages compare by this."""

    def as_json(self) -> dict[str, Any]:
        """A plain form."""
        return {**asdict(self), "groups": [asdict(group) for group in self.groups]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> SlotReport:
        """The report of a plain form."""
        return cls(**{**plain, "groups": tuple(GroupReport(**group) for group in plain["groups"])})


def reports_to_json(reports: Sequence[SlotReport]) -> list[dict[str, Any]]:
    """The plain form of many reports."""
    return [report.as_json() for report in reports]


def reports_from_json(plain: Sequence[Mapping[str, Any]]) -> list[SlotReport]:
    """The reports of a plain form."""
    return [SlotReport.from_json(one) for one in plain]


def folded(reports: Sequence[SlotReport]) -> list[SlotReport]:
    """The same reports, with the groups' figures of each slot added up in its last one.

    `control.load.observe` sees no difference: of groups it uses sums over the epochs and the state at their end.
    """
    sums: dict[int, dict[int, GroupReport]] = {}
    for report in reports:
        of_slot = sums.setdefault(report.slot, {})
        for part in report.groups:
            of_slot[part.group] = _added(of_slot[part.group], part) if part.group in of_slot else part
    last = {report.slot: place for place, report in enumerate(reports)}
    return [
        replace(report, groups=tuple(sums[report.slot].values()) if last[report.slot] == place else ())
        for place, report in enumerate(reports)
    ]


def _added(before: GroupReport, now: GroupReport) -> GroupReport:
    return replace(
        now,
        rows=before.rows + now.rows,
        matches=before.matches + now.matches,
        busy_s=before.busy_s + now.busy_s,
    )


def reports_to_rows(reports: Sequence[SlotReport]) -> list[list[Any]]:
    """A plain form without names, for what every manifest carries: fields in the order of the dataclasses."""
    return [[*astuple(replace(one, groups=())), [list(astuple(part)) for part in one.groups]] for one in reports]


def reports_from_rows(rows: Sequence[Sequence[Any]]) -> list[SlotReport]:
    """The reports of that form."""
    return [replace(SlotReport(*row[:-1]), groups=tuple(GroupReport(*part) for part in row[-1])) for row in rows]
