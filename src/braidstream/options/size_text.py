"""Sizes in words: `512 MB`, `2g`, `64 KiB`. 1 MB is 2^20 bytes, as in Spark's settings.

Invariant: a text without a unit is refused, unless it is a megabyte or more: then only bytes can be meant, which is
noted. Cost: none to speak of.
"""

from __future__ import annotations

import re
import warnings

from braidstream.errors import InputError, Note

__all__ = ["EXPECTED", "parse_size"]

EXPECTED = 'a number and a unit (B, kB, MB, GB, TB), like "512 MB"'
_UNITS = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*$", re.IGNORECASE)


def parse_size(text: str | int) -> int:
    """Bytes, from a text with a unit, or from a number of them."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    found = _SIZE.match(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"the size is {text!r}", EXPECTED, 'write "512 MB"')
    unit = found.group(2).lower().replace("i", "")
    size = int(float(found.group(1)) * _UNITS[unit if unit.endswith("b") else f"{unit}b"])
    if not found.group(2):
        _without_unit(found.group(1), size)
    return size


def _without_unit(number: str, size: int) -> None:
    if size < _UNITS["mb"]:
        raise InputError(
            f"the size {number!r} has no unit", EXPECTED, f'write "{number} MB", or "{number} B" for bytes'
        )
    warnings.warn(f'the size {number!r} has no unit and is taken as bytes: write "{number} B"', Note, stacklevel=1)
