"""The controller's parameters, with the papers' defaults where the papers give one.

Flat, so that a `[control]` table of a job file maps to it name by name; checked when made, before anything starts.
docs/controller.md has the table of parameters with their origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from braidstream.errors import InputError, nearest

__all__ = ["Choice", "Disk", "Settings"]

Choice = Literal["even", "random"]
Disk = Literal["none", "lazy", "active"]


@dataclass(frozen=True)
class Settings:
    """How the controller reads load and when its rules fire. Times in seconds, shares between 0 and 1."""

    every: int = 10
    """Epochs in a reorganization epoch (WSJ: t_r = 20 s of t_d = 2 s)."""
    epoch_s: float | None = None
    """How long an epoch may take (the trigger's interval); None: as long as an even spread of its work would take."""
    buffer_epochs: float = 0.5
    """How much excess busy time counts as a full buffer, in epochs (for slots without a buffer of their own)."""
    buffer_bytes: int = 1 << 20
    """The buffer of a slot that has one (WSJ VI-A: 1 MB)."""
    supplier_above: float = 0.5
    """Th_sup of WSJ IV-C, on occupancy."""
    consumer_below: float = 0.01
    """Th_con of WSJ IV-C, on occupancy."""
    choice: Choice = "even"
    """Which group a supplier yields: the one that best evens the pair, or a random one as in WSJ."""
    groups_at_once: int = 1
    """How many groups a supplier may yield in one reorganization (WSJ: one)."""
    margin: float = 0.05
    """Hysteresis: a move must leave the supplier's load above the consumer's by this share of it."""
    min_span_s: float = 0.0
    """The least time between two adaptations (D-CAPE 5.2 tries 15 to 45 s); 0: every reorganization epoch."""
    splitting: bool = True
    split_above: float = 0.5
    """A group with more than this share of an epoch is too large to be placed well."""
    merge_below: float = 0.1
    """Buddies that together need less than this share of an epoch are merged again."""
    max_depth: int = 24
    """No group is split beyond this many leading bits."""
    declustering: bool = False
    beta: float = 0.5
    """Granularity of declustering (WSJ V-A): grow when N_sup > beta N_con."""
    min_slots: int = 1
    max_slots: int = 1024
    shrink_below: float = 0.7
    """Give a slot up only if the others would then be busy for at most this share of an epoch (ours; WSJ: always)."""
    patience: int = 2
    """Reorganization epochs in a row that must agree before the number of slots changes."""
    memory_bytes: int | None = None
    """The state a slot may hold; None: memory is not balanced."""
    memory_above: float = 0.5
    """Memory is balanced once the fullest slot holds more than this share of `memory_bytes`."""
    memory_ratio: float = 0.8
    """theta_d of D-CAPE 5.1: balance when M_l / M_m is below it."""
    disk: Disk = "none"
    """What the controller pushes to disk (D-CAPE 6): nothing, what does not fit, or poor groups early too."""
    spill_above: float = 1.0
    """theta_m of D-CAPE 6: a slot that holds more than this share of `memory_bytes` pushes groups to disk."""
    spill_share: float = 0.3
    """The share of its state that a slot then pushes (D-CAPE 4.4: 30%)."""
    idle_after: int = 1000
    """theta_t of D-CAPE 4.3, in epochs: a group without a new tuple for longer goes first."""
    rate_ratio: float = 2.0
    """theta_f of D-CAPE 6: push the poor groups of slots whose groups give that many times fewer results on average."""
    query_bytes: int | None = None
    """M_q of D-CAPE 6: all state of the queries; None: what there is so far, in memory and on disk."""
    move_spilled: bool = False
    """Whether a group with inactive generations may be moved: where the state moves with the manifest, it may."""

    def __post_init__(self) -> None:
        _require("every", self.every, self.every >= 1, "at least 1")
        _require("epoch_s", self.epoch_s, self.epoch_s is None or self.epoch_s > 0, "a time above 0, or None")
        _require("buffer_epochs", self.buffer_epochs, self.buffer_epochs > 0, "above 0")
        _require("buffer_bytes", self.buffer_bytes, self.buffer_bytes > 0, "above 0")
        ordered = 0 <= self.consumer_below < self.supplier_above < 1
        _require("consumer_below", self.consumer_below, ordered, "0 <= consumer_below < supplier_above < 1")
        _require("choice", self.choice, self.choice in ("even", "random"), "'even' or 'random'")
        _require("groups_at_once", self.groups_at_once, self.groups_at_once >= 1, "at least 1")
        _require("margin", self.margin, 0 <= self.margin < 1, "from 0 to below 1")
        _require("min_span_s", self.min_span_s, self.min_span_s >= 0, "0 or above")
        gap = 0 <= self.merge_below <= self.split_above / 2
        _require("merge_below", self.merge_below, gap, "at most half of split_above, or groups would split and merge")
        _require("max_depth", self.max_depth, 0 <= self.max_depth <= 64, "from 0 to 64")
        _require("beta", self.beta, 0 < self.beta < 1, "between 0 and 1")
        _require("min_slots", self.min_slots, 1 <= self.min_slots <= self.max_slots, "from 1 to max_slots")
        _require("shrink_below", self.shrink_below, self.shrink_below > 0, "above 0")
        _require("patience", self.patience, self.patience >= 1, "at least 1")
        _require("memory_bytes", self.memory_bytes, self.memory_bytes is None or self.memory_bytes > 0, "above 0")
        _require("memory_above", self.memory_above, 0 <= self.memory_above <= 1, "from 0 to 1")
        _require("memory_ratio", self.memory_ratio, 0 < self.memory_ratio < 1, "between 0 and 1")
        _require("disk", self.disk, self.disk in ("none", "lazy", "active"), "'none', 'lazy' or 'active'")
        _require("spill_above", self.spill_above, 0 < self.spill_above <= 1, "above 0, at most 1")
        _require("spill_share", self.spill_share, 0 < self.spill_share <= 1, "above 0, at most 1")
        _require("idle_after", self.idle_after, self.idle_after >= 0, "0 or above")
        _require("rate_ratio", self.rate_ratio, self.rate_ratio > 1, "above 1")
        _require("query_bytes", self.query_bytes, self.query_bytes is None or self.query_bytes > 0, "above 0, or None")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Settings:
        """The settings of a job file's table; an unknown name is refused with the nearest known one."""
        known = [field.name for field in fields(cls)]
        for name in plain:
            if name not in known:
                raise InputError(
                    f"unknown controller setting {name!r}", "a setting of docs/controller.md", nearest(name, known)
                )
        return cls(**plain)


def _require(name: str, value: object, is_right: bool, expected: str) -> None:
    if not is_right:
        raise InputError(
            f"controller setting {name} = {value!r}", expected, f"change {name}; docs/controller.md lists all"
        )
