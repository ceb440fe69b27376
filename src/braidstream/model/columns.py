"""The names of columns: those of the engine, and how a user's are kept apart from them.

The engine's columns are `__h` (key hash), `__t` (event time in microseconds), `__k0`, `__k1`, ... (the keys, only where
hashes may collide), `__m` (one bit for each filter that the row passes, only where filters differ) and `__e` (the
latest time that may still be joined with it, only for intermediate results: min over components of t + W).
Columns that routing computes are called `hash of ...` and `value of ...`. A user's column of such a name is stored
under another one (`stored_name`), so that no name of a user is ever taken for one of the engine.
"""

from __future__ import annotations

__all__ = [
    "DEADLINE", "FAILED", "HASH", "HASH_OF", "KEY", "MARK", "MASK", "OWN", "TIME", "VALUE_OF", "stored_name",
    "user_name",
]  # fmt: skip

HASH, TIME, MASK, KEY, DEADLINE = "__h", "__t", "__m", "__k", "__e"
MARK = "__d"
"""True for a row of the sample that a shedding filter would have dropped (`kernels.sampling`)."""
FAILED = "__braidstream failed"
"""What could not be computed of a row, by query, as JSON; NULL of most (`Attempt`)."""
HASH_OF, VALUE_OF = "hash of ", "value of "
"""How the names of columns begin that routing computes: the hash of an expression, or its value."""
OWN = "__"
_ESCAPE = "\x1f"


def stored_name(column: str) -> str:
    """The name under which rows hold a user's column: its own, unless it looks like one of the engine."""
    return _ESCAPE + column if column.startswith((OWN, HASH_OF, VALUE_OF, _ESCAPE)) else column


def user_name(stored: str) -> str:
    """The user's name of a stored column."""
    return stored.removeprefix(_ESCAPE)
