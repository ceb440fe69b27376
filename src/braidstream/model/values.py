"""Values that cross processes or are kept in files: msgspec Structs, whose classes are the schema of their JSON.

Every such class is frozen, so `changed` gives another one. A field that has its default is left out of the JSON, and
one that is not declared is refused when it is read. An `int` may have any number of bits: prefixes of addresses
(`stage << 64 | hash`) have more than 64.

Cost: the JSON is made and checked in C, in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from dataclasses import replace as changed  # a type checker then knows the fields of a Struct, as of a dataclass
else:
    from msgspec.structs import replace as changed

__all__ = ["Json", "Value", "changed", "of_numpy"]

Json: TypeAlias = Any
"""What a parser made of JSON or TOML, and nobody has looked at: whoever takes it checks it right there."""


class Value(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The base of what is sent or kept."""


def of_numpy(value: object) -> Json:
    """A hook of encoders: NumPy's numbers, which are Python's to the type checker, are written as these."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} is not sent or kept")
