"""A column: an array of numbers that is sent or kept. In msgpack it is raw bytes, in JSON the same as base64.

Whole numbers are written in the narrowest type that holds all of them, little-endian on every machine, so that equal
numbers are equal bytes. Reading one copies nothing. Cost: O(numbers), in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from braidstream.model.values import Value

__all__ = ["Column", "Numbers", "concatenated"]

Kind: TypeAlias = Literal["|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f8"]
Numbers: TypeAlias = "npt.NDArray[np.number] | Sequence[int] | Sequence[float]"

_UNSIGNED: tuple[tuple[int, Kind], ...] = ((1 << 8, "|u1"), (1 << 16, "<u2"), (1 << 32, "<u4"))
_SIGNED: tuple[tuple[int, Kind], ...] = ((1 << 7, "|i1"), (1 << 15, "<i2"), (1 << 31, "<i4"))


class Column(Value, frozen=True, array_like=True):
    """An array: the type of its numbers as NumPy writes it, and their bytes."""

    kind: Kind = "|u1"
    data: bytes = b""

    @classmethod
    def of(cls, numbers: Numbers) -> Column:
        """The column of some numbers; whole ones of 64 bits at most, others as doubles."""
        array = np.asarray(numbers)
        kind: Kind = "|u1" if not len(array) else "<f8" if array.dtype.kind == "f" else _narrowest(array)
        return cls(kind, array.astype(kind).tobytes())

    @property
    def array(self) -> npt.NDArray[np.number]:
        """The numbers, in the type that they are kept in. Nobody can write to them."""
        return np.frombuffer(self.data, dtype=self.kind)

    @property
    def whole(self) -> npt.NDArray[np.int64]:
        """The numbers as integers of 64 bits."""
        return self.array.astype(np.int64)

    @property
    def real(self) -> npt.NDArray[np.float64]:
        """The numbers as doubles."""
        return self.array.astype(np.float64)

    @property
    def unsigned(self) -> npt.NDArray[np.uint64]:
        """The numbers as unsigned integers of 64 bits: hashes."""
        return self.array.astype(np.uint64)

    def __len__(self) -> int:
        return len(self.data) // int(self.kind[2])


def concatenated(columns: Iterable[Column]) -> npt.NDArray[np.int64]:
    """The whole numbers of several columns, one after the other."""
    arrays = [column.array for column in columns]
    return np.concatenate(arrays, dtype=np.int64, casting="unsafe") if arrays else np.zeros(0, dtype=np.int64)


def _narrowest(array: npt.NDArray[np.number]) -> Kind:
    low, high = int(array.min()), int(array.max())
    if low >= 0:
        return next((kind for limit, kind in _UNSIGNED if high < limit), "<u8")
    return next((kind for limit, kind in _SIGNED if -limit <= low and high < limit), "<i8")
