"""The figures of a slot and an epoch that policies see: the controller's only sight of the cluster.

The driver makes them of slots' reports (`model.reports`) and of what the manifest says of groups.
`rows` counts the tuples joined in the epoch, `busy_s` the seconds spent on them, `bytes` the active state held at its
end: what is probed. `inactive_bytes` are a group's generations on disk that are not cleaned up yet.

A slot that buffers tuples of its own (WSJ's slaves, in the simulator) also says how much it left unjoined. On Spark a
slot leaves nothing behind, its backlog shows as busy time (see `load`), and `backlog_rows` stays None.

Between two reorganizations the reports wait in the manifest, so that a restart forgets none of them. `folded` keeps
what waits small: of the groups only sums remain, whatever the number of epochs.

Cost: O(groups of the slot).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from braidstream.model.numbers import EpochNumber, GroupId, SlotId
from braidstream.model.values import Json

__all__ = [
    "GroupFigures",
    "SlotFigures",
    "figures_from_rows",
    "figures_to_rows",
    "folded",
]


@dataclass(frozen=True)
class GroupFigures:
    """One group's share of an epoch. A slot that cannot tell its groups' times apart leaves every `busy_s` 0."""

    group: GroupId
    rows: int
    matches: int
    stored_rows: int
    stored_bytes: int
    busy_s: float
    inactive_bytes: int = 0


@dataclass(frozen=True)
class SlotFigures:
    """One slot's epoch."""

    slot: SlotId
    epoch: EpochNumber
    rows: int
    matches: int
    bytes: int
    busy_s: float
    groups: tuple[GroupFigures, ...]
    executor: str = ""
    backlog_rows: int | None = None
    backlog_bytes: int | None = None
    work_s: float | None = None
    """Where a flow has several stages: the seconds that slots take on average for such work as this slot's. A row or a
    match of one stage costs what it costs, so the paces of slots with other shares of the stages compare by this."""


def folded(reports: Sequence[SlotFigures]) -> list[SlotFigures]:
    """The same reports, with the groups' figures of each slot added up in its last one.

    `control.load.observe` sees no difference: of groups it uses sums over the epochs and the state at their end.
    """
    sums: dict[SlotId, dict[GroupId, GroupFigures]] = {}
    for report in reports:
        of_slot = sums.setdefault(report.slot, {})
        for part in report.groups:
            of_slot[part.group] = _added(of_slot[part.group], part) if part.group in of_slot else part
    last = {report.slot: place for place, report in enumerate(reports)}
    return [
        replace(report, groups=tuple(sums[report.slot].values()) if last[report.slot] == place else ())
        for place, report in enumerate(reports)
    ]


def _added(before: GroupFigures, now: GroupFigures) -> GroupFigures:
    return replace(
        now,
        rows=before.rows + now.rows,
        matches=before.matches + now.matches,
        busy_s=before.busy_s + now.busy_s,
    )


def figures_to_rows(reports: Sequence[SlotFigures]) -> list[list[object]]:
    """A plain form without names, for what every manifest carries: fields in the order of the dataclasses."""
    return [[*astuple(replace(one, groups=())), [list(astuple(part)) for part in one.groups]] for one in reports]


def figures_from_rows(rows: Json) -> list[SlotFigures]:
    """The figures of that form; TypeError where there are too few or too many."""
    return [replace(SlotFigures(*row[:-1]), groups=tuple(GroupFigures(*part) for part in row[-1])) for row in rows]
