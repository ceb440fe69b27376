"""What a peer's script is asked and says: one JSON object as its argument, one as the last line that it prints.

The scripts `run_*.py` run in environments of their own, which have neither Braidstream nor what it stands on; so this
module and they import the standard library only, and their peer. A script is given the streams as files, in the order
of their event times, and the join in the form that its peer takes: text, or what is joined and how.

Invariant: a script reads the files, joins and throws the results away, and says how long that took, with reading and
without starting its interpreter. Asked to check, it says instead how many results there are and the sum of
`check_of(...)` over them.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypedDict, cast

__all__ = ["MODULUS", "WEIGHTS", "Asked", "Said", "Streamed", "asked", "check_of", "say"]

MODULUS = 2_147_483_647
WEIGHTS = (1_000_003, 7_919, 104_729)
"""Each result's numbers are weighed and summed, which tells pairs apart that sums of columns would not."""


class Streamed(TypedDict):
    """One stream."""

    files: list[str]
    merged: str
    """All files as one, for who takes several in no order."""
    columns: dict[str, str]
    """The SQL type of each column; `ts` is the event time, in microseconds in the files."""


class Asked(TypedDict):
    """One measurement."""

    streams: dict[str, Streamed]
    window_us: int
    how: str
    sql: str
    """The query, in the peer's own dialect."""
    check: str
    """The check of one result, in the peer's own dialect."""
    is_check: bool
    files_per_epoch: int
    checkpoint: str | None
    """Where state is saved while the query runs; None: nowhere."""
    jars: list[str]
    cores: int


class Said(TypedDict, total=False):
    """What came out."""

    version: str
    seconds: float
    rows: int
    results: int
    checksum: int
    epoch_ms: list[float]


def asked() -> Asked:
    """What this process was started with."""
    return cast(Asked, json.loads(sys.argv[1]))


def say(said: Said) -> None:
    """The last line."""
    print(json.dumps({"epoch_ms": [], **said}), flush=True)


def check_of(*numbers: Any) -> Any:
    """Of one result, or of columns of results: its rows' numbers, -1 for one that is missing."""
    total: Any = 0
    for weight, number in zip(WEIGHTS, numbers, strict=False):
        total = total + weight * (number + 2)
    return total % MODULUS
