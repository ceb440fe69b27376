"""Exact sums: vectors of numbers as digits in base 2^30, held in int64 columns.

Sums over a sliding window must not depend on the order of arrival, must not drift when what was added is taken away
again, and must not wrap. So integers, decimals and doubles are all split into digits: a value is the sum of
digits[p] * 2^(30p) over places p, which for doubles may be negative. Digits are added and subtracted column by column;
a digit may exceed its range until `carried` puts it right, so that sums of millions of rows need no care in between.

Invariant: no operation rounds. Only `to_float64` does, at the very end, by about one unit in the last place; a number
that is a double comes out as it went in. NaN and the infinities are not numbers here: count them apart.

Cost: a few NumPy operations for each place in use: one for integers of 32 bits, two for 64 bits, three or four for
doubles of similar magnitude; a column of doubles from 1e-300 to 1e300 needs seventy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braidstream.kernels.rows import I64

__all__ = ["Exact", "product", "to_decimals"]

BITS = 30
BASE = 1 << BITS
DIGIT = np.int64(BASE - 1)
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Exact:
    """`size` exact numbers. `digits[p]` are the digits of all of them at place p; a place that is missing is zero."""

    size: int
    digits: Mapping[int, I64]

    @classmethod
    def zeros(cls, size: int) -> Exact:
        """All zero."""
        return cls(size, {})

    @classmethod
    def of_ints(cls, values: I64) -> Exact:
        """Of 64-bit integers; one place is enough where all fit in 32 bits."""
        if not len(values) or (values.min() >= -(1 << 31) and values.max() < 1 << 31):
            return cls(len(values), {0: values})
        return _trimmed(len(values), {0: values & DIGIT, 1: values >> BITS})

    @classmethod
    def of_floats(cls, values: F64) -> Exact:
        """Of finite doubles."""
        fraction, exponent = np.frexp(values)
        mantissa = np.abs(fraction * float(1 << 53)).astype(np.int64)
        place, shift = np.divmod(exponent.astype(np.int64) - 53, BITS)
        low = (mantissa & DIGIT) << shift
        rest = (low >> BITS) + ((mantissa >> BITS) << shift)
        sign = np.where(fraction < 0, -1, 1)
        parts = ((low & DIGIT) * sign, (rest & DIGIT) * sign, (rest >> BITS) * sign)
        digits: dict[int, I64] = {}
        for first in np.unique(place[mantissa != 0]).tolist():
            here = (place == first) & (mantissa != 0)
            for offset, part in enumerate(parts):
                column = digits.setdefault(first + offset, np.zeros(len(values), dtype=np.int64))
                column[here] += part[here]
        return _trimmed(len(values), digits)

    @classmethod
    def of_decimals(cls, values: pa.Array) -> Exact:
        """Of the unscaled values of 128-bit decimals; NULLs count as zero."""
        words = np.frombuffer(values.buffers()[1], dtype=np.int64)[
            2 * values.offset : 2 * (values.offset + len(values))
        ]
        low, high = words[0::2].copy(), words[1::2].copy()
        if values.null_count:
            null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
            low[null] = high[null] = 0
        top_of_low = (low.view(np.uint64) >> np.uint64(2 * BITS)).astype(np.int64)
        digits = {
            0: low & DIGIT,
            1: (low >> BITS) & DIGIT,
            2: top_of_low | ((high & ((1 << 26) - 1)) << 4),
            3: (high >> 26) & DIGIT,
            4: high >> (26 + BITS),
        }
        return _trimmed(len(values), digits)

    def plus(self, other: Exact) -> Exact:
        """Sums, place by place."""
        return self._with(other, np.add)

    def minus(self, other: Exact) -> Exact:
        """Differences, place by place."""
        return self._with(other, np.subtract)

    def times(self, factor: Exact) -> Exact:
        """Products with factors that are not negative."""
        own, total = self.carried().digits, Exact.zeros(self.size)
        for place, digit in factor.carried().digits.items():
            shifted = {place + p: column * digit for p, column in own.items()}
            total = total.plus(Exact(self.size, shifted)).carried()
        return total

    def take(self, index: I64) -> Exact:
        """The numbers at `index`."""
        return Exact(len(index), {place: column[index] for place, column in self.digits.items()})

    def spread(self, index: I64, size: int) -> Exact:
        """`size` numbers, of which these are at `index` and the others zero."""
        digits = {}
        for place, column in self.digits.items():
            digits[place] = np.zeros(size, dtype=np.int64)
            digits[place][index] = column
        return Exact(size, digits)

    def summed(self, starts: I64) -> Exact:
        """The sums of the runs that begin at `starts`, which cover all numbers."""
        if not len(starts):
            return Exact.zeros(0)
        own = self.carried().digits
        return Exact(len(starts), {place: np.add.reduceat(column, starts) for place, column in own.items()}).carried()

    def carried(self) -> Exact:
        """The same numbers with every digit in [0, 2^30), except that the highest carries the sign."""
        if not self.digits:
            return self
        digits: dict[int, I64] = {}
        carry: I64 = np.zeros(self.size, dtype=np.int64)
        place, top = min(self.digits), max(self.digits)
        while True:
            column = self.digits[place] + carry if place in self.digits else carry
            if place >= top and (not self.size or np.abs(column).max() < BASE):
                digits[place] = column
                return _trimmed(self.size, digits)
            digits[place], carry = column & DIGIT, column >> BITS
            place += 1

    def nonzero(self) -> Bools:
        """Which numbers are not zero."""
        found = np.zeros(self.size, dtype=np.bool_)
        for column in self.carried().digits.values():
            found |= column != 0
        return found

    def differs(self, other: Exact) -> Bools:
        """Which numbers are not equal."""
        return self.minus(other).nonzero()

    def to_int64(self) -> tuple[I64, Bools]:
        """As 64-bit integers, and which of them do not fit."""
        sign, digits = self._signed()
        nothing = _zeros(self.size)
        low, middle, high = (digits.get(place, nothing) for place in (0, 1, 2))
        too_large = (high > 8) | ((high == 8) & ((low != 0) | (middle != 0) | (sign > 0)))
        for place, column in digits.items():
            if place > 2:
                too_large |= column != 0
        magnitude: I64 = low | (middle << np.int64(BITS)) | (high << np.int64(2 * BITS))
        return np.where(sign < 0, -magnitude, magnitude), too_large

    def to_float64(self) -> F64:
        """As doubles; what is larger than a double can be is infinite."""
        sign, digits = self._signed()
        total = np.zeros(self.size, dtype=np.float64)
        with np.errstate(over="ignore"):
            for place in sorted(digits):  # small ones first: nothing cancels, so nothing is lost
                total += np.ldexp(digits[place].astype(np.float64), BITS * place)
        return sign * total

    def to_objects(self) -> npt.NDArray[Any]:
        """As Python integers, which have no limit; slow, for decimals. There must be no negative place."""
        numbers = np.zeros(self.size, dtype=object)
        for place, column in self.digits.items():
            numbers = numbers + column.astype(object) * (1 << (BITS * place))
        return numbers

    def _with(self, other: Exact, operation: Any) -> Exact:
        digits = dict(self.digits)
        for place, column in other.digits.items():
            digits[place] = operation(digits[place] if place in digits else _zeros(self.size), column)
        return Exact(self.size, digits)

    def _signed(self) -> tuple[I64, Mapping[int, I64]]:
        """Signs, and the digits of the magnitudes, each in [0, 2^30)."""
        carried = self.carried().digits
        if not carried:
            return np.ones(self.size, dtype=np.int64), {}
        sign: I64 = np.where(carried[max(carried)] < 0, np.int64(-1), np.int64(1))
        return sign, Exact(self.size, {p: column * sign for p, column in carried.items()}).carried().digits


def to_decimals(numbers: npt.NDArray[Any], kind: pa.Decimal128Type) -> tuple[pa.Array, Bools]:
    """Python integers as the unscaled values of decimals, and which of them have too many digits."""
    if not len(numbers):
        return pa.array([], kind), np.zeros(0, dtype=np.bool_)
    too_large: Bools = (np.abs(numbers) >= 10**kind.precision).astype(np.bool_)
    numbers = np.where(too_large, 0, numbers)
    words = np.empty(2 * len(numbers), dtype=np.int64)
    words[0::2] = np.array(numbers & ((1 << 64) - 1), dtype=np.uint64).view(np.int64)
    words[1::2] = np.array(numbers >> 64, dtype=np.int64)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(words)]), too_large


def product(counts: Iterable[I64], size: int) -> Exact:
    """The products of counts, which are not negative, row by row; of none it is one."""
    factors = list(counts)
    bound = 1.0
    for factor in factors:
        bound *= float(factor.max()) if size else 0.0
    if bound < float(1 << 31):
        return Exact(size, {0: reduce(np.multiply, factors, np.ones(size, dtype=np.int64))})
    return reduce(Exact.times, (Exact.of_ints(factor) for factor in factors))


def _zeros(size: int) -> I64:
    return np.zeros(size, dtype=np.int64)


def _trimmed(size: int, digits: Mapping[int, I64]) -> Exact:
    return Exact(size, {place: column for place, column in digits.items() if column.any()})
