"""What a slot says of one epoch: the controller's only sight of the cluster.

Reports are values that cross processes and are kept with a manifest, so each has a plain JSON form and nothing else.
`rows` counts the tuples joined in the epoch, `busy_s` the seconds spent on them, `bytes` the active state held at its
end: what is probed. `inactive_bytes` are a group's generations on disk that are not cleaned up yet.

A slot that buffers tuples of its own (WSJ's slaves, in the simulator) also says how much it left unjoined. On Spark a
slot leaves nothing behind, its backlog shows as busy time (see `load`), and `backlog_rows` stays None.

Cost: O(groups of the slot).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["GroupReport", "SlotReport", "reports_from_json", "reports_to_json"]


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
