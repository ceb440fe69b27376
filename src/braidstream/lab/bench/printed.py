"""What a measured process prints as its last line, and the one that started it reads: JSON of these fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

__all__ = ["Epochs", "Printed"]


class Epochs(TypedDict):
    """What every system says: how long its epochs took."""

    epoch_ms: list[float]


class Printed(Epochs, total=False):
    """What a system may say beside."""

    parts: list[dict[str, float]]
    """Of each epoch, the milliseconds of each part; what is Spark's own is in them."""
    stored_rows: int
    stored_bytes: int
    exchanged_bytes: int
    matches: int
    balance: Mapping[str, float]
    heavy: list[dict[str, object]]
    seconds: float
    """How long all rows took, of a system that has no epochs."""
    results: int
    checksum: int
    """The sum of a number of each result, for who was asked to check them."""
    version: str
