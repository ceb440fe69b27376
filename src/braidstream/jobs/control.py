"""The `[control]` table of a job file: `enabled`, and the controller's settings by their names.

Without the table, or with `enabled = false`, groups stay where they are. A table that sets anything must say `enabled`,
so that no setting is without effect by accident. The epoch's length is the trigger's interval unless `epoch_s` says
another; with neither, load is relative and declustering, which then could never act, is refused.

Invariant: nothing is ignored; what is wrong is refused with its place. Cost: none to speak of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from braidstream.control.settings import Settings
from braidstream.errors import InputError, JobError, nearest
from braidstream.query.duration import parse_duration

__all__ = ["read_control"]

_KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "bool": ("true or false", (bool,)),
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "Choice": ("a text in quotes", (str,)),
    "Disk": ("a text in quotes", (str,)),
}


def read_control(file: str, plain: Any, epoch: str) -> Settings | None:
    """The controller's settings; None where it is off. `epoch` is the flow's trigger."""
    if not isinstance(plain, Mapping):
        raise JobError(f"{file}: [control] is {plain!r}", "a table", "write [control] and enabled = true")
    kinds = {"enabled": "bool", **{entry.name: str(entry.type) for entry in fields(Settings)}}
    for name, value in plain.items():
        _check(file, name, value, kinds)
    if "enabled" not in plain:
        raise JobError(f"{file}: [control] enabled is missing", "true or false", "add enabled = true")
    try:
        settings = Settings.from_plain({name: value for name, value in plain.items() if name != "enabled"})
    except InputError as error:
        raise JobError(f"{file}: [control] {error.wrong}", error.expected, error.fix) from None
    if settings.declustering and settings.epoch_s is None and not _has_length(epoch):
        raise JobError(
            f"{file}: [control] declustering has no epoch length to go by",
            f"[flow] epoch with a length, not {epoch!r}, or [control] epoch_s",
            'write epoch = "2 seconds" in [flow]',
        )
    return settings if plain["enabled"] else None


def _check(file: str, name: str, value: object, kinds: Mapping[str, str]) -> None:
    if name not in kinds:
        known = f"one of {', '.join(kinds)}"
        raise JobError(f"{file}: unknown option [control] {name}", known, nearest(name, list(kinds)))
    expected, types = _KINDS[kinds[name].removesuffix(" | None")]
    if not isinstance(value, types) or isinstance(value, bool) is not (types == (bool,)):
        shown = str(value).lower() if isinstance(value, bool) else repr(value)
        raise JobError(f"{file}: [control] {name} is {shown}", expected, "docs/controller.md lists the settings")


def _has_length(epoch: str) -> bool:
    """Whether the trigger has an interval; a text that is none is refused elsewhere."""
    try:
        return epoch != "available" and parse_duration(epoch) > 0
    except InputError:
        return True
