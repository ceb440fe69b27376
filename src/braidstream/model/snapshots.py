"""What slots and driver tell each other of the sections of a snapshot (`state.section`): files, and what is in them.

Invariant: a file is named by who wrote it and a number of its own, so two attempts never write the same one. Size of
the figures: one row a group, store and generation, as columns; nothing grows with the rows that are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from braidstream.model.values import Value

__all__ = ["ACCOUNT", "FOLDER", "SHARED", "UNSEALED", "Figures", "Key", "Placed", "Ref", "Written"]

FOLDER = "sections"
UNSEALED = -1
"""In the place of a checksum: the file was written by a version that had none."""

Key = tuple[int, int]
"""A stage and a slot."""
SHARED: Key = (-1, -1)
"""The section of slices that were written under retired grids."""

ACCOUNT = np.dtype(
    [
        ("store", "<i4"),
        ("group", "<i8"),
        ("generation", "<i4"),
        ("rows", "<i8"),
        ("bytes", "<f8"),
        ("deadline", "<i8"),
    ]
)
"""What a group holds of a store in a generation; the latest deadline of its segments."""


class Ref(Value, frozen=True):
    """A section's file: who wrote it when, and what it must be."""

    stage: int
    slot: int
    epoch: int
    uid: int
    checksum: int
    size: int

    @property
    def name(self) -> str:
        """The file."""
        return f"{FOLDER}/{self.epoch + 1:010d}-{self.stage}-{self.slot}-{self.uid:016x}.section"


class Placed(Value, frozen=True):
    """A file of results as it was put into its folder."""

    name: str
    bytes: int
    modified_ns: int
    checksum: int = UNSEALED


class Figures(Value, frozen=True):
    """What the driver knows of a section without reading it."""

    segments: int = 0
    rows: int = 0
    active_bytes: float = 0.0
    inactive_bytes: float = 0.0
    cell_rows: int = 0
    cell_bytes: float = 0.0
    earliest: int | None = None
    """The first deadline of its segments."""
    stores: tuple[str, ...] = ()
    """Their names, as `account` counts them."""
    account: bytes = b""
    """Rows of `ACCOUNT`."""

    @property
    def rows_by_group(self) -> npt.NDArray[Any]:
        """`account` as an array."""
        return np.frombuffer(self.account, ACCOUNT)


class Written(Value, frozen=True):
    """A section that a slot wrote: which segments are in it that were not in the one before, and which are no more."""

    ref: Ref
    figures: Figures
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
