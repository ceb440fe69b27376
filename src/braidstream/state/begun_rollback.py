"""The mark of a rollback that was begun: there while it is on its way, and until it is done nobody may start.

What it says is where it goes to and which epoch was the last before it; one that cannot be read says neither.
"""

from __future__ import annotations

import json

from braidstream.errors import DamagedState, RunError
from braidstream.state.files import Files

__all__ = ["INTENT", "begun_rollback", "intended", "refuse_begun"]

INTENT = "rollback.json"


def refuse_begun(files: Files) -> None:
    """Refuse a checkpoint whose rollback was begun and not finished."""
    if (begun := begun_rollback(files)) is not None:
        to = intended(files, "epoch")
        raise RunError(
            f"{files.path(INTENT)}: {begun}",
            "a checkpoint that is all of one epoch",
            f"finish it: braid rollback {files.root} --to {'EPOCH' if to is None else to}",
        )


def begun_rollback(files: Files) -> str | None:
    """What to say of a rollback that was begun and not finished; None where there is none."""
    if not files.exists(INTENT):
        return None
    to = intended(files, "epoch")
    return f"a rollback to epoch {'EPOCH' if to is None else to} was begun and not finished"


def intended(files: Files, what: str) -> int | None:
    """A number of the rollback that was begun, if there is one and it can be read."""
    try:
        return int(json.loads(files.read(INTENT))[what])
    except (FileNotFoundError, DamagedState, ValueError, KeyError, TypeError):
        return None
